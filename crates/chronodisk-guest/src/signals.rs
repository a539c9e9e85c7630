//! Signals of the launcher as something to wait for, and the user's terminal in raw mode.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Signals that are passed to the command, or that end the run.
const CAUGHT: [libc::c_int; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGCHLD,
];

/// Whether a signal asks its receiver to end.
pub(crate) fn asks_to_end(signal: libc::c_int) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT)
}

/// While this lives, the signals wait to be taken instead of acting.
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    pub fn catch() -> io::Result<Self> {
        // SAFETY: both sets are initialised before use, and the descriptor is ours alone.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in CAUGHT {
                libc::sigaddset(&mut set, signal);
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = OwnedFd::from_raw_fd(fd);
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            Ok(Signals { fd, before })
        }
    }

    /// Numbers of the signals received.
    pub fn take(&self) -> Vec<libc::c_int> {
        let mut numbers = Vec::new();
        loop {
            // SAFETY: a signalfd_siginfo of zeros is valid, and read fills at most its size.
            let information = unsafe {
                let mut information: libc::signalfd_siginfo = std::mem::zeroed();
                let size = size_of_val(&information);
                if libc::read(self.fd.as_raw_fd(), (&raw mut information).cast(), size) != size as isize {
                    return numbers;
                }
                information
            };
            numbers.push(information.ssi_signo as libc::c_int);
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the mask is one that pthread_sigmask returned.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// The user's terminal passes every key to the guest while this lives.
pub(crate) struct TerminalGuard(Termios);

impl TerminalGuard {
    /// `None` if standard input is no terminal after all.
    pub fn raw() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(TerminalGuard(before))
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
