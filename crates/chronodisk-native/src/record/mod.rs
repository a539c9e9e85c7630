//! Records the system calls of a program on this host, with ptrace and a filter.
//!
//! A seccomp filter stops the program and all its children at the recorded calls only. The recorder then reads the
//! call, its paths and the task's CPU time, and appends them to a journal. The journal survives any end of the
//! recorder. No privilege is needed. [`chronodisk_trace::calls::read_journal`] makes a trace of it.
//!
//! Not recorded: page faults, programs of another architecture, and I/O through memory shared with the kernel
//! (`io_uring`). A program that traces other processes can't be recorded.

mod cost;
mod cpu;
mod ending;
mod failures;
mod filter;
mod journal;
mod memory;
mod privileges;
mod ptrace;
mod tracer;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chronodisk_engine::ending::EndRequests;

use crate::error::NativeError;

/// Options of a recording.
#[derive(Clone, Copy)]
pub struct Recording<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// Mount point of the device's file system: an absolute path in shortest form.
    pub mount: Option<&'a str>,
    /// The journal, which must not exist yet.
    pub journal: &'a Path,
    /// Whether the program's standard output is this process's standard error.
    pub stdout_to_stderr: bool,
    /// Requests to end, which are passed to the program first.
    pub requests: &'a dyn EndRequests,
}

/// Result of a recording.
#[derive(Debug)]
pub enum Recorded {
    /// The program does not exist or can't be run; a shell has this exit status for it. No journal was made.
    Refused {
        /// 126 or 127.
        status: u8,
        /// The host's error.
        reason: io::Error,
    },
    /// All of the program's tasks have ended.
    Ended(RecordingSummary),
}

/// Properties of a recording.
#[derive(Clone, Copy, Debug)]
pub struct RecordingSummary {
    /// The program's exit status, as in a shell: 128 plus the signal's number if a signal ended it.
    pub status: u8,
    /// Calls at which a task was stopped.
    pub calls: u64,
    /// Elapsed time of such a stop, measured before the program.
    pub cost_per_call: Duration,
    /// Time from the start of the program to the end of its last task.
    pub elapsed: Duration,
}

impl RecordingSummary {
    /// The factor by which recording slowed the program down, according to the measured cost of stops. At least 1.
    /// Without stops the program would have needed at least `own_time`: its CPU time, divided by the processors.
    #[must_use]
    pub fn slow_down(&self, own_time: Duration) -> f64 {
        let elapsed = self.elapsed.as_secs_f64();
        // Tasks that run in parallel on several processors share the cost, so it may exceed the elapsed time.
        let stopped = self.cost_per_call.as_secs_f64() * self.calls as f64;
        let without = (elapsed - stopped).max(own_time.as_secs_f64()).max(elapsed / SLOW_DOWN_MAX);
        (elapsed / without.max(f64::MIN_POSITIVE)).max(1.0)
    }
}

/// Largest slow-down that can be computed from the measurements.
const SLOW_DOWN_MAX: f64 = 100.0;

/// Records a program until all its descendants have ended. `left_behind` is called once with the number of remaining
/// tasks when the program itself has ended.
///
/// # Errors
/// If the host does not permit it, if the program would have other privileges than without a recorder, or if the
/// journal can't be written; its content so far stays.
pub fn record(recording: Recording<'_>, left_behind: &dyn Fn(usize)) -> Result<Recorded, NativeError> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(NativeError::HostLacks {
            what: format!("system calls are recorded on x86_64 only, and this host is {}", std::env::consts::ARCH),
            help: "`chronodisk trace import` reads the output of strace".to_owned(),
        });
    }
    let Some(first) = recording.command.first() else {
        return Ok(refused(io::Error::from(io::ErrorKind::NotFound)));
    };
    let program = match find(first) {
        Ok(program) => program,
        Err(reason) => return Ok(refused(reason)),
    };
    if privileges::are_lost(&program) {
        return Err(NativeError::HostLacks {
            what: format!("{} runs with another user's privileges, which it loses if it is traced", program.display()),
            help: "record it as root, or in a guest: chronodisk run --record-calls".to_owned(),
        });
    }
    let costs = cost::measure()?;
    tracer::run(recording, &program, costs, left_behind)
}

fn refused(reason: io::Error) -> Recorded {
    let status = if reason.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    Recorded::Refused { status, reason }
}

/// The file that a shell would execute.
fn find(name: &OsString) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let executable = |path: &Path| {
        let is_file = std::fs::metadata(path)?.is_file();
        if !is_file {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        rustix::fs::access(path, rustix::fs::Access::EXEC_OK).map_err(io::Error::from)
    };
    if name.as_bytes().contains(&b'/') {
        return executable(Path::new(name)).map(|()| PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut reason = io::Error::from(io::ErrorKind::NotFound);
    for folder in std::env::split_paths(&path) {
        let candidate = folder.join(name);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => reason = error,
        }
    }
    Err(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        assert!(find(&"sh".into()).unwrap().ends_with("sh"));
        assert_eq!(find(&"no-such-program".into()).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(find(&"/etc/passwd".into()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(find(&"/".into()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn the_slow_down_follows_from_calls_and_their_cost() {
        let of = |calls| RecordingSummary {
            status: 0,
            calls,
            cost_per_call: Duration::from_micros(10),
            elapsed: Duration::from_secs(2),
        };
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
        near(of(100_000).slow_down(Duration::ZERO), 2.0);
        near(of(0).slow_down(Duration::ZERO), 1.0);
        near(of(u64::MAX).slow_down(Duration::ZERO), SLOW_DOWN_MAX);
        // Two processors that computed for 1.6 s in total can't have done so in 10 ms.
        near(of(200_000).slow_down(Duration::from_millis(800)), 2.5);
        near(of(200_000).slow_down(Duration::from_secs(3)), 1.0);
    }
}
