//! Processes that do not outlive this one.
#![allow(unsafe_code)]

use std::io;
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
