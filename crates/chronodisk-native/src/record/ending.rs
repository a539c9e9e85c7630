//! Ends a recorded program after a signal.
//!
//! The tracing thread waits for its tasks only. Another thread waits for signals, passes them on, and wakes the tracing
//! thread when it must kill its tasks.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use chronodisk_engine::ending::EndRequests;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Interval between wake-ups of the tracing thread, because a wake-up before its wait is lost.
const WAKE_EVERY: Duration = Duration::from_millis(20);

/// The demand made by a signal.
#[derive(Debug, Default)]
pub struct Ending {
    /// The exit status of a program that is to be killed, or 0.
    killed_by: AtomicU8,
}

impl Ending {
    /// The exit status of the program once all tasks are to be killed.
    pub fn killed_by(&self) -> Option<u8> {
        Some(self.killed_by.load(Ordering::Relaxed)).filter(|status| *status != 0)
    }

    /// Traces to the end, in this thread, while another one passes signals on to the program.
    pub fn beside<T>(&self, requests: &dyn EndRequests, program: u32, trace: impl FnOnce() -> T) -> T {
        let tracer = rustix::thread::gettid().as_raw_nonzero().get();
        // If any of this fails, no thread waits for signals.
        let Some(program) = Pid::from_raw(program as i32) else { return trace() };
        let Ok((done, tell_done)) = UnixStream::pair() else { return trace() };
        let Ok(program) = pidfd_open(program, PidfdFlags::empty()) else { return trace() };
        let _handler = WakeUps::caught();
        std::thread::scope(|threads| {
            threads.spawn(|| self.watch(requests, program.as_fd(), tracer, &done));
            let traced = trace();
            drop(tell_done);
            traced
        })
    }

    fn watch(&self, requests: &dyn EndRequests, program: BorrowedFd<'_>, tracer: i32, done: &UnixStream) {
        let mut passed_on = false;
        loop {
            let request = requests.request();
            let left = request.map(|request| request.kills_at().saturating_duration_since(Instant::now()));
            let left = if self.killed_by().is_some() { Some(WAKE_EVERY) } else { left };
            if wait(requests.news(), done.as_fd(), left) {
                return;
            }
            let Some(request) = requests.request() else { continue };
            if !std::mem::replace(&mut passed_on, true) {
                // A stopped program must continue to receive the signal.
                for signal in [Signal::from_named_raw(request.signal), Some(Signal::CONT)].into_iter().flatten() {
                    let _ = pidfd_send_signal(program, signal);
                }
            }
            if Instant::now() >= request.kills_at() {
                self.killed_by.store(request.status(), Ordering::Relaxed);
                // SAFETY: numbers and a signal that this process catches.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tracer, WAKE_UP) };
            }
        }
    }
}

/// Whether something can be read from `done`.
fn wait(news: BorrowedFd<'_>, done: BorrowedFd<'_>, most: Option<Duration>) -> bool {
    let most = most.map(|most| Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() });
    let mut waits = [news, done].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    // An interruption is as good as news.
    let _ = poll(&mut waits, most.as_ref());
    !waits[1].revents().is_empty()
}

/// Interrupts the wait for a task.
const WAKE_UP: libc::c_int = libc::SIGURG;

/// Installs an empty handler for the signal until it is dropped.
struct WakeUps(libc::sigaction);

extern "C" fn nothing(_: libc::c_int) {}

impl WakeUps {
    fn caught() -> io::Result<Self> {
        // SAFETY: the structures are complete, and the handler is empty.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            let mut old: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            match libc::sigaction(WAKE_UP, &raw const new, &raw mut old) {
                0 => Ok(WakeUps(old)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

impl Drop for WakeUps {
    fn drop(&mut self) {
        // SAFETY: restores the previous action.
        unsafe { libc::sigaction(WAKE_UP, &raw const self.0, std::ptr::null_mut()) };
    }
}
