//! The signals that ask a command to end, for commands with threads. [`chronodisk_engine::ending`] has the rule.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chronodisk_engine::ending::{EndRequest, EndRequests, status_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::Failure;

/// Ctrl-C, SIGTERM and the end of the terminal (SIGHUP), unless the caller ignores SIGHUP, as `nohup` does. SIGQUIT
/// only if the program receives it, too.
fn ending_signals(keyboard: Keyboard) -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    signals.extend((keyboard == Keyboard::IsThePrograms).then_some(SIGQUIT));
    signals.extend((!ignores(&status, SIGHUP)).then_some(SIGHUP));
    signals
}

/// Whether a process ignores a signal, by its `/proc/PID/status` (proc(5): a mask in hexadecimal digits, signal 1 in
/// the lowest bit).
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The meaning of a signal from the terminal's keyboard (Ctrl-C, Ctrl-\).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyboard {
    /// The program gets it from the terminal, too, and decides: it may be interactive.
    IsThePrograms,
    /// A request like any other.
    AsksToEnd,
}

/// Catches signals to end, until it is dropped.
pub struct EndSignals {
    delivery: Mutex<SignalDelivery<UnixStream, WithRawSiginfo>>,
    /// The delivery's own descriptor once more.
    news: UnixStream,
    keyboard: Keyboard,
    seen: Mutex<Seen>,
    /// Whether signals have their default effect again.
    is_over: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Seen {
    request: Option<EndRequest>,
    /// The last one of the keyboard.
    typed: Option<i32>,
}

impl EndSignals {
    /// Catches the signals from now on.
    pub fn catch(keyboard: Keyboard) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::host(format!("can't catch signals: {error}"));
        let (news, tell) = UnixStream::pair().map_err(failed)?;
        let signals = ending_signals(keyboard);
        let is_over = Arc::new(AtomicBool::new(false));
        for &signal in &signals {
            signal_hook::flag::register_conditional_default(signal, is_over.clone()).map_err(failed)?;
        }
        let again = news.try_clone().map_err(failed)?;
        let delivery = SignalDelivery::with_pipe(news, tell, WithRawSiginfo, signals).map_err(failed)?;
        let (delivery, seen) = (Mutex::new(delivery), Mutex::default());
        Ok(EndSignals { delivery, news: again, keyboard, seen, is_over })
    }

    fn seen(&self) -> (Option<EndRequest>, Option<i32>) {
        let mut delivery = self.delivery.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for signal in delivery.pending() {
            // sigaction(2): the terminal's come from the kernel, others from a process.
            let is_typed = [SIGINT, SIGQUIT].contains(&signal.si_signo) && signal.si_code == SI_KERNEL;
            if is_typed && self.keyboard == Keyboard::IsThePrograms {
                seen.typed = Some(signal.si_signo);
            } else {
                EndRequest::note(&mut seen.request, signal.si_signo, Instant::now());
            }
        }
        (seen.request, seen.typed)
    }

    /// The signal that asked to end, or the keyboard's last one.
    pub fn signal(&self) -> Option<i32> {
        let (request, typed) = self.seen();
        request.map(|request| request.signal).or(typed)
    }

    /// Waits for a signal, for input from one of `others`, or for this time. Returns the index of the first readable
    /// one.
    pub fn wait(&self, others: &[BorrowedFd<'_>], most: Option<Duration>) -> Option<usize> {
        let most = most.map(|most| Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() });
        let all = others.iter().copied().chain([self.news.as_fd()]);
        let mut waits: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An interruption is as good as news.
        let _ = poll(&mut waits, most.as_ref());
        waits[..others.len()].iter().position(|wait| !wait.revents().is_empty())
    }

    /// Sets a flag at the first signal. A second signal ends this process at once.
    pub fn flag() -> Result<EndFlag, Failure> {
        let signals = EndSignals::catch(Keyboard::AsksToEnd)?;
        let flag = EndFlag::default();
        let (came, by) = (flag.came.clone(), flag.signal.clone());
        std::thread::spawn(move || {
            loop {
                let mut waits = [PollFd::new(&signals.news, PollFlags::IN)];
                let _ = poll(&mut waits, None);
                let Some(request) = signals.request() else { continue };
                by.store(request.signal, Ordering::Relaxed);
                came.store(true, Ordering::Relaxed);
                if request.insists {
                    let _ = emulate_default_handler(request.signal);
                }
            }
        });
        Ok(flag)
    }
}

/// `asm-generic/siginfo.h`.
const SI_KERNEL: i32 = 0x80;

impl EndRequests for EndSignals {
    fn request(&self) -> Option<EndRequest> {
        self.seen().0
    }

    fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

impl Drop for EndSignals {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Whether a signal has asked this process to end.
#[derive(Clone, Debug, Default)]
pub struct EndFlag {
    came: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
}

impl EndFlag {
    /// Whether one has.
    pub fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// A flag that is set by the first signal.
    pub fn as_flag(&self) -> &AtomicBool {
        &self.came
    }

    /// The exit status of a process that it ended.
    pub fn status(&self) -> u8 {
        status_of(self.signal.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_found_in_the_mask() {
        let status = "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004000\n";
        assert!(ignores(status, SIGHUP));
        assert!(!ignores(status, SIGTERM));
        assert!(!ignores("", SIGHUP));
        assert!(!ignores("SigIgn:\tnonsense\n", SIGHUP));
    }
}
