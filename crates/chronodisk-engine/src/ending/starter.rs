//! Processes that do not outlive this one.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Kills the process of a command when the thread that starts it ends, also by a kill of this process. Its own children
/// live on.
pub fn kill_with_starter(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec it makes two system calls, and does not allocate.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent died before the call above.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

/// Makes the command's process write its id and a line break to a pipe before it executes its program. So a reader of
/// the pipe knows the process even if its starter dies.
pub fn tell_number(command: &mut Command, pipe: OwnedFd) {
    let tell = move || {
        let mut text = [0; 12];
        let mut at = text.len() - 1;
        text[at] = b'\n';
        let mut number = std::process::id();
        while number > 0 {
            at -= 1;
            text[at] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        rustix::io::write(&pipe, &text[at..])?;
        Ok(())
    };
    // SAFETY: between fork and exec it makes two system calls, and does not allocate.
    unsafe {
        command.pre_exec(tell);
    }
}
