//! A process that outlives its starter, and cleans up after it.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, unlinkat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::cgroup::{self, Parent};
use crate::error::{Doing, NativeError};
use crate::helper::{DESCRIPTOR, bequeath};

/// Argument with which this executable becomes the watchdog.
const WORD: &str = "native-watchdog";
/// The watchdog as its starter holds it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    /// Closed at the end of this process, for any cause.
    _pipe: Option<ChildStdin>,
    pidfd: OwnedFd,
}

impl Watchdog {
    /// Starts one for the future cgroup of `parent`, so that the cgroup is removed in any case.
    pub fn start(parent: &Parent, executable: &Path) -> Result<Self, NativeError> {
        const DOING: &str = "starting the watchdog";
        let mut command = Command::new(executable);
        command.args([WORD, parent.name()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        bequeath(&mut command, parent.directory()).doing(DOING)?;
        let mut child = command.spawn().doing(DOING)?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).doing(DOING)?;
        let pipe = child.stdin.take();
        Ok(Watchdog { child, _pipe: pipe, pidfd })
    }

    /// Readable when the watchdog has ended, which it never does by itself.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // It has no work left, and may be stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Interval of the checks for a frozen command, and the longest time that it may be frozen.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const FROZEN_MAX: Duration = Duration::from_millis(800);

/// Entry point of this executable as the watchdog.
#[must_use]
#[allow(unsafe_code)]
pub fn native_watchdog() -> ExitCode {
    let Some(name) = std::env::args().nth(2) else { return ExitCode::FAILURE };
    // SAFETY: the starter has put the descriptor of the cgroup above the command's there, and it stays open for as long
    // as this process lives.
    let parent = unsafe { BorrowedFd::borrow_raw(DESCRIPTOR) };
    // The cgroup may not exist yet.
    let cgroup = || cgroup::open_in(parent, &name).ok();
    let mut frozen_since = None;
    let mut stdin = io::stdin();
    loop {
        let mut events = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut events, Some(&LOOK_EVERY)) {
            Ok(0) => {
                if let Some(directory) = cgroup() {
                    thaw_what_stays_frozen(directory.as_fd(), &mut frozen_since);
                }
            }
            // The end of the pipe: no byte is ever written to it.
            Ok(_) => {
                if matches!(stdin.read(&mut [0]), Ok(0) | Err(_)) {
                    break;
                }
            }
            Err(_) => {}
        }
    }
    let has_ended = cgroup().is_none_or(|directory| cgroup::end(directory.as_fd()));
    let _ = unlinkat(parent, &name, AtFlags::REMOVEDIR);
    if has_ended { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The process that froze the command may have been stopped.
fn thaw_what_stays_frozen(directory: BorrowedFd<'_>, since: &mut Option<Instant>) {
    if !cgroup::has(directory, "frozen 1") {
        *since = None;
        return;
    }
    if since.get_or_insert_with(Instant::now).elapsed() >= FROZEN_MAX {
        let _ = cgroup::write(directory, "cgroup.freeze", b"0");
        *since = None;
    }
}
