//! Receives the system calls that a guest is refused, counts them, and answers them.
//!
//! A thread waits for them, so that neither the launcher nor a guest waits for the other. Allowed calls never come
//! here. If the launcher is gone, the kernel answers with `ENOSYS`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::filter::AUDIT_ARCH_X86_64;
use crate::recording::names;

/// After this number of refused calls, the launcher stops listening, and the kernel answers the guest.
const HEARD_MAX: u64 = 100_000;

type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

/// Receives refused calls until it is dropped.
pub(crate) struct Refusals {
    counts: Counts,
    /// Closing this pipe ends the thread.
    alive: Option<io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Refusals {
    /// Takes over the listener of the process that begins with `kernel`'s number. That process has sent it through the
    /// other end of `from`. `None` if it could not make one.
    pub fn listen(from: &UnixStream, kernel: u32) -> io::Result<Option<Self>> {
        Self::listen_to(from, kernel, HEARD_MAX)
    }

    /// Like [`Refusals::listen`], for at most `heard_max` calls.
    pub(super) fn listen_to(from: &UnixStream, kernel: u32, heard_max: u64) -> io::Result<Option<Self>> {
        let Some(listener) = receive(from)? else { return Ok(None) };
        let counts = Counts::default();
        let (ends, alive) = io::pipe()?;
        let heard = Arc::clone(&counts);
        let thread = std::thread::Builder::new()
            .name("refusals".into())
            .spawn(move || Listener { listener, session: kernel, counts: heard, heard_max }.serve(&ends))?;
        Ok(Some(Refusals { counts, alive: Some(alive), thread: Some(thread) }))
    }

    /// Number of refusals of each call, by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().map(|counts| counts.clone()).unwrap_or_default()
    }
}

impl Drop for Refusals {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends a descriptor. Allocates no memory, for use between fork and exec.
pub(super) fn send(socket: RawFd, sent: RawFd) -> io::Result<()> {
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        sent: [RawFd; 2],
    }
    let mut byte = 0u8;
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: structures of zeros are valid, and all pointers are to live locals of the lengths given.
    let result = unsafe {
        let mut control: Control = std::mem::zeroed();
        control.header.cmsg_level = libc::SOL_SOCKET;
        control.header.cmsg_type = libc::SCM_RIGHTS;
        control.header.cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        control.sent[0] = sent;
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut data;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
        libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut data = [io::IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut messages = control.drain();
    Ok(messages.find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sent) => sent.next(),
        _ => None,
    }))
}

struct Listener {
    listener: OwnedFd,
    /// Id of the session led by the guest's kernel, which its processes can't leave.
    session: u32,
    counts: Counts,
    heard_max: u64,
}

/// A kernel structure, with room for versions longer than the one known here.
#[repr(C, align(8))]
union Room<T: Copy> {
    known: T,
    room: [u8; 512],
}

impl Listener {
    fn serve(self, ends: &io::PipeReader) {
        let mut heard = 0;
        while heard < self.heard_max {
            let mut waits = [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(ends, PollFlags::IN)];
            match poll(&mut waits, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            let [call, end] = waits.map(|wait| wait.revents());
            if call.contains(PollFlags::IN) {
                heard += u64::from(self.answer());
            } else if !end.is_empty() || !call.is_empty() {
                // The launcher is done, or no filtered process is left.
                return;
            }
        }
    }

    /// Answers one call. Returns whether it was refused.
    fn answer(&self) -> bool {
        // SAFETY: zeros are a valid notification, and the kernel asks for zeros.
        let mut asked: Room<libc::seccomp_notif> = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one notification, and `asked` has room for it.
        if unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) } < 0 {
            return false;
        }
        // SAFETY: every bit pattern is a notification.
        let asked = unsafe { asked.known };
        let verdict = self.judge(&asked);
        // SAFETY: zeros are a valid answer.
        let mut answer: Room<libc::seccomp_notif_resp> = unsafe { std::mem::zeroed() };
        let (error, flags) = match verdict {
            Verdict::Refused => (-libc::EPERM, 0),
            Verdict::Done(errno) => (-errno, 0),
            Verdict::GoesOn => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        };
        answer.known = libc::seccomp_notif_resp { id: asked.id, val: 0, error, flags };
        // SAFETY: the kernel reads one answer.
        let answered =
            unsafe { libc::ioctl(self.listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
        let refused = answered == 0 && verdict == Verdict::Refused;
        if refused && let Ok(mut counts) = self.counts.lock() {
            *counts.entry(name_of(&asked.data)).or_default() += 1;
        }
        refused
    }

    /// Sends the signal of a call to a process of the guest, on hosts that can't restrict a guest's signals to its own
    /// processes. Refuses every other call.
    fn judge(&self, asked: &libc::seccomp_notif) -> Verdict {
        let call = &asked.data;
        let signal = match libc::c_long::from(call.nr) {
            _ if call.arch != AUDIT_ARCH_X86_64 => return Verdict::Refused,
            libc::SYS_kill => call.args[1],
            libc::SYS_tgkill => call.args[2],
            _ => return Verdict::Refused,
        };
        // Signals to groups or to all processes are refused.
        let Some(pid) = Some(call.args[0] as i32).filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
            return Verdict::Refused;
        };
        // A process that signals itself must get the signal during the call, and lives as long as the call.
        if fs::exists(format!("/proc/{}/task/{}", pid.as_raw_pid(), asked.pid)).unwrap_or(false) {
            return Verdict::GoesOn;
        }
        // A held process id is not reused, so the next check sees the held process's session.
        let held = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) => held,
            Err(rustix::io::Errno::SRCH) => return Verdict::Done(libc::ESRCH),
            Err(_) => return Verdict::Refused,
        };
        if session_of(pid) != Some(self.session) {
            return Verdict::Refused;
        }
        let (fd, none) = (held.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: a system call whose pointer may be null.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal as libc::c_int, none, 0) };
        let errno = io::Error::last_os_error().raw_os_error();
        Verdict::Done(if sent == 0 { 0 } else { errno.unwrap_or(libc::EPERM) })
    }
}

/// Verdict on a call, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Refused,
    /// The launcher made the call, with this error or 0.
    Done(libc::c_int),
    /// The guest may make the call.
    GoesOn,
}

/// The session of a process, from proc_pid_stat(5): the name may contain any bytes, and is followed by state, parent,
/// group and session.
fn session_of(pid: Pid) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(3)?.parse().ok()
}

/// Bit in the call numbers of x32 (`asm/unistd.h`).
const X32: usize = 0x4000_0000;

/// The call's name in results.
fn name_of(call: &libc::seccomp_data) -> String {
    let number = call.nr as u32 as usize;
    let name = |number| names::name(number).map_or_else(|| format!("call {number}"), str::to_owned);
    if call.arch != AUDIT_ARCH_X86_64 {
        format!("32-bit call {number}")
    } else if number & X32 != 0 {
        format!("x32 {}", name(number & !X32))
    } else {
        name(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_every_kind_have_names() {
        let call = |arch, nr| name_of(&libc::seccomp_data { nr, arch, instruction_pointer: 0, args: [0; 6] });
        assert_eq!(call(AUDIT_ARCH_X86_64, libc::SYS_prlimit64 as i32), "prlimit64");
        assert_eq!(call(AUDIT_ARCH_X86_64, 0x4000_0000), "x32 read");
        assert_eq!(call(AUDIT_ARCH_X86_64, 9999), "call 9999");
        assert_eq!(call(0x4000_0003, 20), "32-bit call 20");
    }

    #[test]
    fn a_descriptor_arrives_and_its_absence_too() {
        let (here, there) = UnixStream::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        send(there.as_raw_fd(), writer.as_raw_fd()).unwrap();
        drop((there, writer));
        let received = receive(&here).unwrap().unwrap();
        io::Write::write_all(&mut fs::File::from(received), b"x").unwrap();
        let mut byte = [0];
        io::Read::read_exact(&mut &reader, &mut byte).unwrap();
        assert_eq!(byte, *b"x");
        assert!(receive(&here).unwrap().is_none());
    }
}
