//! Common part of the helper processes.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Number of the descriptor that a helper is given.
pub(crate) const DESCRIPTOR: i32 = 3;

/// The helper processes, by the names that users see.
pub(crate) const WATCHDOG: &str = "the process that clears up after a killed run (native-watchdog)";
pub(crate) const ATTACHER: &str = "the process that keeps the block device (native-attacher)";

/// Whether the process of this descriptor has ended.
pub(crate) fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    let mut end = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    poll(&mut end, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// Gives the child a session of its own, and the descriptor at its number.
pub(crate) fn bequeath(command: &mut Command, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    // Above the number that it gets, so that this one is free.
    let copy = rustix::io::fcntl_dupfd_cloexec(descriptor, DESCRIPTOR + 1)?;
    // SAFETY: only system calls that are safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            if libc::dup2(copy.as_raw_fd(), DESCRIPTOR) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    Ok(())
}
