//! The end of a server: by a signal, or with the program of `--run`.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use chronodisk_engine::ending::{EndRequests, Offspring};
use chronodisk_front::server::Address;
use chronodisk_native::Attachment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::arguments::ServeArguments;
use super::guard::Guard;
use crate::failure::{Failure, status};
use crate::signals::EndSignals;

/// Ways to the device.
pub struct Places<'a> {
    /// The first listener's address.
    pub first: Option<&'a Address>,
    /// The first address of NBD or iSCSI, as clients expect it.
    pub uri: Option<&'a str>,
    pub block_device: Option<&'a Path>,
}

/// Starts the command of `--run`, which finds the device in its environment.
pub fn captive(
    arguments: &ServeArguments,
    command: &std::ffi::OsStr,
    places: Places<'_>,
    guard: &Guard,
) -> Result<Child, Failure> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command);
    if let Some(uri) = places.uri {
        shell.env("uri", uri);
    }
    match places.first {
        Some(Address::Unix(path)) => {
            shell.env("unixsocket", path);
        }
        Some(Address::Tcp { port, .. }) => {
            shell.env("port", port.to_string());
        }
        None => {}
    }
    if let Some(device) = places.block_device {
        shell.env("device", device);
    }
    if arguments.result.json {
        // Standard output is the result's.
        shell.stdout(Stdio::from(std::io::stderr()));
    }
    let started = guard.watch(&mut shell).and_then(|()| shell.spawn());
    started.map_err(|error| Failure::host(format!("can't start a shell: {error}")))
}

/// Cause of a server's end.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// The exit status that this means.
    pub status: u8,
    /// Whether the end was caused by a signal, not by the end of the program of `--run`.
    pub by_signal: bool,
}

/// A server until its end.
pub struct Waiting<'a> {
    pub signals: &'a EndSignals,
    /// The program of `--run`, and its guard.
    pub child: Option<(Child, Guard)>,
    /// The block device of `--attach`.
    pub attachment: Option<&'a Attachment>,
    /// Called every second, if present.
    pub every_second: Option<&'a mut dyn FnMut()>,
}

/// Longest wait for the end of killed processes.
const KILLED_GO_WITHIN: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);

impl Waiting<'_> {
    /// Waits for a signal, the end of the child or the end of the block device. A signal is passed to the child first.
    ///
    /// `offspring` are the child and its descendants; after a signal none of them is left.
    pub fn wait(mut self, offspring: &Offspring) -> Result<Ending, Failure> {
        let failed = |error: std::io::Error| Failure::host(format!("can't wait: {error}"));
        let numbers: Vec<u32> = self.child.iter().flat_map(|(child, guard)| [child.id(), guard.number()]).collect();
        let pidfd = self.child.as_ref().map(|(child, _)| pidfd_open(Pid::from_child(child), PidfdFlags::empty()));
        let pidfd = pidfd.transpose().map_err(|errno| failed(errno.into()))?;
        let mut passed_on = false;
        loop {
            let request = self.signals.request();
            if let Some(request) = request {
                let Some((child, _)) = &mut self.child else {
                    return Ok(Ending { status: status::FINE, by_signal: true });
                };
                if !std::mem::replace(&mut passed_on, true) {
                    ask_to_end(child, request.signal);
                }
                if Instant::now() >= request.kills_at() {
                    offspring.end_all(KILLED_GO_WITHIN);
                    let _ = child.wait();
                    return Ok(Ending { status: request.status(), by_signal: true });
                }
            }
            if let Some((child, _)) = &mut self.child
                && let Some(status) = child.try_wait().map_err(failed)?
            {
                if request.is_some() {
                    offspring.end_all(KILLED_GO_WITHIN);
                }
                return Ok(Ending { status: exit_status(status), by_signal: request.is_some() });
            }
            if self.child.as_mut().is_some_and(|(_, guard)| guard.has_ended()) {
                offspring.end_all(KILLED_GO_WITHIN);
                let what = "the process that ends the program after a kill of chronodisk (serve-guard) died";
                return Err(Failure::host(format!("{what}; the server was ended")));
            }
            if let Some(lost) = self.attachment.and_then(Attachment::lost) {
                offspring.end_all(KILLED_GO_WITHIN);
                return Err(Failure::host(format!("{lost} died; the server was ended")));
            }
            offspring.bury(&numbers);
            let left = request.map(|request| request.kills_at().saturating_duration_since(Instant::now()));
            let guard = self.child.as_ref().map(|(_, guard)| guard.pidfd.as_fd());
            let others = [pidfd.as_ref().map(AsFd::as_fd), guard, self.attachment.map(Attachment::pidfd)];
            let has_waited =
                wait_for(self.signals.news(), others, left.unwrap_or(SECOND).min(SECOND)).map_err(failed)?;
            if let (true, Some(every_second)) = (has_waited, &mut self.every_second) {
                every_second();
            }
        }
    }
}

/// Waits until something can be read from one of them; whether the time is over before that.
fn wait_for(news: BorrowedFd<'_>, others: [Option<BorrowedFd<'_>>; 3], most: Duration) -> std::io::Result<bool> {
    let all = [Some(news)].into_iter().chain(others).flatten();
    let mut waits: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    match poll(&mut waits, Some(&most)) {
        Ok(ready) => Ok(ready == 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Passes a signal on. A stopped process must continue to receive it.
fn ask_to_end(child: &Child, signal: i32) {
    for signal in [Signal::from_named_raw(signal), Some(Signal::CONT)].into_iter().flatten() {
        let _ = kill_process(Pid::from_child(child), signal);
    }
}

/// Exit status as in a shell: 128 plus the signal's number if a signal ended the process.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// A file with this process's id, locked by flock(2) and removed when this value is dropped.
///
/// Only its server holds the lock, so a file left by a killed server is no obstacle.
pub struct PidFile<'a> {
    path: &'a Path,
    /// Holds the lock.
    _file: fs::File,
}

impl<'a> PidFile<'a> {
    /// Refuses a file that belongs to a server which runs.
    pub fn expect_free(path: &Path) -> Result<(), Failure> {
        match fs::File::open(path) {
            Ok(file) => lock(&file, path),
            Err(error) if error.kind() == ErrorKind::NotFound => crate::place::expect_place(path),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Writes it. It appears as a whole, and never in the place of another server's.
    pub fn write(path: &'a Path) -> Result<Self, Failure> {
        let number = std::process::id();
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        let fresh = PathBuf::from(name);
        let written = write_locked(&fresh, number).and_then(|file| {
            let mut linked = fs::hard_link(&fresh, path);
            if linked.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
                PidFile::expect_free(path).map_err(std::io::Error::other)?;
                fs::remove_file(path)?;
                linked = fs::hard_link(&fresh, path);
            }
            linked.map(|()| file)
        });
        let _ = fs::remove_file(&fresh);
        written.map(|file| PidFile { path, _file: file }).map_err(|error| failed(path, error))
    }
}

fn write_locked(path: &Path, number: u32) -> std::io::Result<fs::File> {
    let mut file = fs::File::create_new(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    writeln!(file, "{number}")?;
    Ok(file)
}

fn lock(file: &fs::File, path: &Path) -> Result<(), Failure> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let number = fs::read_to_string(path).unwrap_or_default();
            Err(Failure::usage(format!("--pidfile {}: process {} has it", path.display(), number.trim()))
                .help("name another file, or end that server first"))
        }
        Err(errno) => Err(failed(path, errno.into())),
    }
}

fn failed(path: &Path, error: std::io::Error) -> Failure {
    Failure::host(format!("--pidfile {}: {error}", path.display()))
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path);
    }
}
