//! Commands that signals end, also in a test that was begun by nohup or in the background.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// nohup ignores SIGHUP and a shell's background job SIGINT. A program passes ignored signals on to the programs that
/// it begins.
pub fn with_default_signals(command: &mut Command) {
    // SAFETY: signal is async-signal-safe, and nothing else is called.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}
