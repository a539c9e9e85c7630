//! Commands that a hangup ends, also in a test that was begun by nohup.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// nohup has its programs ignore SIGHUP, and they pass that on to the programs that they begin.
pub fn ended_by_hangup(command: &mut Command) {
    // SAFETY: signal is async-signal-safe, and nothing else is called.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        });
    }
}
