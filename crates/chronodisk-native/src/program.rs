//! The command: its start in its cgroup, and its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{Doing, NativeError};
use crate::helper::{ATTACHER, WATCHDOG};
use crate::scope::CommandScope;

/// Variable of the command's environment that names the block device.
pub(crate) const DEVICE_VARIABLE: &str = "CHRONODISK_DEVICE";

/// A command that runs.
#[derive(Debug)]
pub struct Program<'a> {
    child: Child,
    pidfd: OwnedFd,
    scope: &'a CommandScope,
    /// The host's monotonic clock when it began.
    began: Duration,
}

/// Result of starting a command.
#[derive(Debug)]
pub enum Start<'a> {
    /// The program runs.
    Runs(Program<'a>),
    /// The program does not exist, or can't be run; a shell has this exit status for it.
    Refused {
        /// 126 or 127.
        status: u8,
        /// Why.
        reason: io::Error,
    },
}

/// Reason why [`Program::wait`] has returned.
#[derive(Debug)]
pub enum Ended {
    /// The command has ended.
    Command {
        /// Exit status as in a shell: 128 plus the signal's number if a signal ended it.
        status: u8,
        /// The host's monotonic clock when that was seen.
        at: Duration,
    },
    /// This helper process has ended, which it does not do by itself.
    Helper(&'static str),
    /// The watched descriptor is readable.
    Readable,
}

impl<'a> Program<'a> {
    /// Starts a command in `scope`, with the block device `device` in its environment.
    ///
    /// # Errors
    /// If the host refuses a process.
    #[allow(unsafe_code)]
    pub fn start(
        scope: &'a CommandScope,
        command: &[OsString],
        device: &Path,
        stdout_to_stderr: bool,
    ) -> Result<Start<'a>, NativeError> {
        const DOING: &str = "starting the command";
        let (first, rest) = command.split_first().expect("a command has a word");
        let processes = scope.cgroup.processes()?;
        let (times, tell_time) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing(DOING)?;
        let mut starter = Command::new(first);
        starter.args(rest).env(DEVICE_VARIABLE, device);
        if stdout_to_stderr {
            starter.stdout(Stdio::from(io::stderr()));
        }
        // SAFETY: only system calls that are safe between fork and exec.
        unsafe {
            starter.pre_exec(move || {
                // The program's children are in the cgroup, too.
                rustix::io::write(&processes, b"0")?;
                // The watchdog would kill it with this process, too, but later.
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // An observer of the cgroup sees a process when it begins to wait or to run.
                let _ = rustix::thread::nanosleep(&Timespec { tv_sec: 0, tv_nsec: 1_000 });
                let nanos = monotonic().as_nanos() as u64;
                rustix::io::write(&tell_time, &nanos.to_ne_bytes())?;
                Ok(())
            });
        }
        let child = match starter.spawn() {
            Ok(child) => child,
            Err(reason) => {
                // The last step before CMD reports the instant, so a later failure is CMD's own.
                drop(starter);
                if rustix::io::read(&times, &mut [0; 8]) != Ok(8) {
                    return Err(reason).doing(DOING);
                }
                let status = if reason.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
                return Ok(Start::Refused { status, reason });
            }
        };
        // Closes this process's end of the pipe, so that the end of a program killed before its start is noticed.
        drop(starter);
        let mut nanos = [0; 8];
        let began = match rustix::io::read(&times, &mut nanos).doing(DOING)? {
            0 => monotonic(),
            _ => Duration::from_nanos(u64::from_ne_bytes(nanos)),
        };
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).doing(DOING)?;
        Ok(Start::Runs(Program { child, pidfd, scope, began }))
    }

    /// The host's monotonic clock (`CLOCK_MONOTONIC`) at its start.
    #[must_use]
    pub fn began(&self) -> Duration {
        self.began
    }

    /// Waits for the end of the command or of a helper process (the watchdog, `helper`), for input from `watched`, or
    /// for the timeout, if there is one.
    ///
    /// # Errors
    /// The host's error.
    pub fn wait(
        &mut self,
        helper: Option<BorrowedFd<'_>>,
        watched: BorrowedFd<'_>,
        most: Option<Duration>,
    ) -> Result<Option<Ended>, NativeError> {
        let most = most.map(|most| Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() });
        let watchdog = self.scope.watchdog.pidfd();
        // In place of one that is not there, the watchdog is watched twice.
        let mut events = [self.pidfd.as_fd(), watchdog, helper.unwrap_or(watchdog), watched]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut events, most.as_ref()) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno).doing("waiting for the command"),
        }
        let [command, watchdog, attacher, _] = events.map(|event| !event.revents().is_empty());
        let helper = helper.is_some() && attacher;
        if command {
            let at = monotonic();
            let status = self.child.wait().doing("waiting for the command")?;
            return Ok(Some(Ended::Command { status: shell_status(status), at }));
        }
        Ok(Some(match (watchdog, helper) {
            (true, _) => Ended::Helper(WATCHDOG),
            (_, true) => Ended::Helper(ATTACHER),
            _ => Ended::Readable,
        }))
    }

    /// Passes a signal on to the command. A stopped process must continue to receive it.
    pub fn ask_to_end(&self, signal: i32) {
        for signal in [Signal::from_named_raw(signal), Some(Signal::CONT)].into_iter().flatten() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Kills all processes of the command, including those that it left behind. Returns whether they have ended: a
    /// process that waits for a device ends when the device answers.
    pub fn end_all(&mut self) -> bool {
        let gone = self.scope.cgroup.end();
        if gone {
            let _ = self.child.wait();
        }
        gone
    }
}

/// The host's monotonic clock.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn shell_status(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
