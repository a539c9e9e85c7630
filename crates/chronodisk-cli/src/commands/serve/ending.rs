//! How a server ends: by a signal, or with the program of `--run`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use chronodisk_front::server::Address;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::Arguments;
use crate::ending_signals::ending_signals;
use crate::failure::{Failure, status};

/// A descriptor that gets a byte for every signal that ends the server.
pub fn signals() -> Result<UnixStream, Failure> {
    let failed = |error: std::io::Error| Failure::host(format!("can't catch signals: {error}"));
    let (reader, writer) = UnixStream::pair().map_err(failed)?;
    for signal in ending_signals() {
        let writer = writer.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
    }
    Ok(reader)
}

/// Starts the command of `--run`, which finds the device in its environment.
pub fn captive(
    arguments: &Arguments,
    command: &std::ffi::OsStr,
    first: Option<&Address>,
    block_device: Option<&Path>,
) -> Result<Child, Failure> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command);
    if let (Some(first), false) = (first, arguments.nbd.is_empty()) {
        shell.env("uri", arguments.nbd_uri(first));
    }
    match first {
        Some(Address::Unix(path)) => {
            shell.env("unixsocket", path);
        }
        Some(Address::Tcp { port, .. }) => {
            shell.env("port", port.to_string());
        }
        None => {}
    }
    if let Some(device) = block_device {
        shell.env("device", device);
    }
    if arguments.json {
        // Standard output is the result's.
        shell.stdout(Stdio::from(std::io::stderr()));
    }
    shell.spawn().map_err(|error| Failure::host(format!("can't start a shell: {error}")))
}

/// Cause of a server's end.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// The exit status that this means.
    pub status: u8,
    /// It was a signal, not the end of the program of `--run`.
    pub by_signal: bool,
}

/// Waits for a signal, or for the child's end. Calls `every_second` meanwhile, if there is something to call.
pub fn wait(
    mut signals: UnixStream,
    child: Option<Child>,
    mut every_second: Option<&mut dyn FnMut()>,
) -> Result<Ending, Failure> {
    let failed = |error: std::io::Error| Failure::host(format!("can't wait: {error}"));
    let (mut news, tell) = UnixStream::pair().map_err(failed)?;
    news.set_read_timeout(every_second.is_some().then_some(Duration::from_secs(1))).map_err(failed)?;
    let mut by_signal = tell.try_clone().map_err(failed)?;
    // These two end with the process at the latest.
    thread::spawn(move || {
        let mut byte = [0];
        if signals.read_exact(&mut byte).is_ok() {
            let _ = by_signal.write_all(b"s");
        }
    });
    let child_number = child.as_ref().map(Child::id);
    let waiting = child.map(|mut child| {
        let mut by_child = tell;
        thread::spawn(move || {
            let status = child.wait();
            let _ = by_child.write_all(b"c");
            status
        })
    });
    let mut byte = [0];
    loop {
        match news.read(&mut byte) {
            Ok(1) if byte == *b"s" => break,
            Ok(_) => {
                let status = waiting.map(thread::JoinHandle::join);
                return match status {
                    Some(Ok(Ok(status))) => Ok(Ending { status: exit_status(status), by_signal: false }),
                    _ => Err(Failure::host("can't wait for the command")),
                };
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if let Some(every_second) = &mut every_second {
                    every_second();
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    // A signal ends the command, too, if there is one: it would be left without its device.
    if let Some(number) = child_number.and_then(|number| i32::try_from(number).ok())
        && let Some(process) = rustix::process::Pid::from_raw(number)
    {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        let status = waiting.map(thread::JoinHandle::join);
        if let Some(Ok(Ok(status))) = status {
            return Ok(Ending { status: exit_status(status), by_signal: true });
        }
    }
    Ok(Ending { status: status::FINE, by_signal: true })
}

/// As a shell has it: 128 and the signal's number if one ended the process.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// A file with this process's number, locked by flock(2) and removed when this value is dropped.
///
/// Only its server holds the lock, so that a file that a killed server left behind is no obstacle.
pub struct PidFile<'a> {
    path: &'a Path,
    /// Its lock ends with it.
    _file: fs::File,
}

impl<'a> PidFile<'a> {
    /// Refuses a file that belongs to a server which runs.
    pub fn expect_free(path: &Path) -> Result<(), Failure> {
        match fs::File::open(path) {
            Ok(file) => lock(&file, path),
            Err(error) if error.kind() == ErrorKind::NotFound => crate::output::expect_place(path),
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
