//! A process that outlives `serve`, and kills the program of `--run` after a kill of `serve`.
//!
//! It waits for the end of a pipe that only `serve` holds open, and so notices any end of `serve`.

use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use chronodisk_engine::ending::{end_family, tell_number};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The command line's word for this process.
const WORD: &str = "serve-guard";

/// The server's handle of the guard. Dropping it ends the guard and spares the program.
pub struct Guard {
    child: Child,
    /// Readable when the guard has ended.
    pub pidfd: OwnedFd,
}

impl Guard {
    /// Starts a guard without a program to kill yet; `executable` is this program's.
    pub fn start(executable: &Path) -> io::Result<Self> {
        let mut command = Command::new(executable);
        command.arg(WORD).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // The terminal's Ctrl-C is not for it.
        command.process_group(0);
        let child = command.spawn()?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok(Guard { child, pidfd })
    }

    /// Makes the program report its process id before it begins.
    pub fn watch(&self, program: &mut Command) -> io::Result<()> {
        let pipe = self.child.stdin.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        tell_number(program, pipe.as_fd().try_clone_to_owned()?);
        Ok(())
    }

    /// Process id of the guard.
    pub fn number(&self) -> u32 {
        self.child.id()
    }

    /// Whether the guard has ended, which it does not do by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Entry point of this executable as the guard.
#[must_use]
pub fn serve_guard() -> ExitCode {
    match guard() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn guard() -> io::Result<()> {
    let mut pipe = BufReader::new(io::stdin());
    let mut number = String::new();
    pipe.read_line(&mut number)?;
    // The server has ended before it started the program.
    if number.is_empty() {
        return Ok(());
    }
    let number = number.trim_end().parse().ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let held = pidfd_open(number, PidfdFlags::empty())?;
    io::copy(&mut pipe, &mut io::sink())?;
    end_family(held.as_fd(), number);
    Ok(())
}
