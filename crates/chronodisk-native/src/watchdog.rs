//! A process that outlives the one that started it, and ends what that one leaves.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, unlinkat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::cgroup::{self, Cgroup};
use crate::error::{Doing, NativeError};

/// The word by which this executable becomes the watchdog.
const WORD: &str = "native-watchdog";
/// Where it finds the cgroup, and the one that this is in.
const DIRECTORY: i32 = 3;
const PARENT: i32 = 4;

/// The watchdog as its starter holds it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    /// Closed when this process ends, by whatever means.
    _pipe: Option<ChildStdin>,
    pidfd: OwnedFd,
}

impl Watchdog {
    pub fn start(cgroup: &Cgroup) -> Result<Self, NativeError> {
        const DOING: &str = "starting the watchdog";
        let mut command = Command::new(std::env::current_exe().doing(DOING)?);
        command.args([WORD, cgroup.name()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        bequeath(&mut command, [(cgroup.directory(), DIRECTORY), (cgroup.parent(), PARENT)]).doing(DOING)?;
        let mut child = command.spawn().doing(DOING)?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).doing(DOING)?;
        let pipe = child.stdin.take();
        Ok(Watchdog { child, _pipe: pipe, pidfd })
    }

    /// Readable when it has ended, which it never does by itself.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // All that it would do is done, and it may have been stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gives the child a session of its own, and these descriptors under these numbers.
#[allow(unsafe_code)]
fn bequeath(command: &mut Command, bequest: [(BorrowedFd<'_>, i32); 2]) -> io::Result<()> {
    // Above the numbers that they get, so that none overwrites the other.
    let copies = bequest.map(|(fd, number)| {
        rustix::io::fcntl_dupfd_cloexec(fd, 64).map(|copy| (copy, number)).map_err(io::Error::from)
    });
    let [first, second] = copies;
    let copies = [first?, second?];
    // SAFETY: only system calls that are safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            for (copy, number) in &copies {
                if libc::dup2(copy.as_raw_fd(), *number) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    Ok(())
}

/// How often it looks whether the command is frozen, and how long that may be.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const FROZEN_MAX: Duration = Duration::from_millis(800);

/// What this executable does as the watchdog.
#[must_use]
#[allow(unsafe_code)]
pub fn native_watchdog() -> ExitCode {
    let Some(name) = std::env::args_os().nth(2) else { return ExitCode::FAILURE };
    // SAFETY: the starter has put both descriptors there, and they stay open for as long as this process lives.
    let [directory, parent] = [DIRECTORY, PARENT].map(|number| unsafe { BorrowedFd::borrow_raw(number) });
    let mut frozen_since = None;
    let mut stdin = io::stdin();
    loop {
        let mut events = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut events, Some(&LOOK_EVERY)) {
            Ok(0) => thaw_what_stays_frozen(directory, &mut frozen_since),
            // The pipe's end: nothing is ever written to it.
            Ok(_) => {
                if matches!(stdin.read(&mut [0]), Ok(0) | Err(_)) {
                    break;
                }
            }
            Err(_) => {}
        }
    }
    let has_ended = cgroup::end(directory);
    let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
    if has_ended { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Who froze the command may have been stopped.
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
