//! How a server ends: by a signal, or with the program of `--run`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use chronodisk_front::server::Address;

use super::Arguments;
use crate::failure::{Failure, status};

/// A descriptor that gets a byte for every signal that ends the server.
pub fn signals() -> Result<UnixStream, Failure> {
    let failed = |error: std::io::Error| Failure::host(format!("can't catch signals: {error}"));
    let (reader, writer) = UnixStream::pair().map_err(failed)?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let writer = writer.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
    }
    Ok(reader)
}

/// Starts the command of `--run`, which finds the device in its environment.
pub fn captive(arguments: &Arguments, command: &std::ffi::OsStr, first: &Address) -> Result<Child, Failure> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command);
    if !arguments.nbd.is_empty() {
        shell.env("uri", arguments.nbd_uri(first));
    }
    match first {
        Address::Unix(path) => {
            shell.env("unixsocket", path);
        }
        Address::Tcp { port, .. } => {
            shell.env("port", port.to_string());
        }
    }
    if arguments.json {
        // Standard output is the result's.
        shell.stdout(Stdio::from(std::io::stderr()));
    }
    shell.spawn().map_err(|error| Failure::host(format!("can't start a shell: {error}")))
}

/// Waits for a signal, or for the child's end, and tells the exit status that this means. Calls
/// `every_second` meanwhile, if there is something to call.
pub fn wait(
    mut signals: UnixStream,
    child: Option<Child>,
    mut every_second: Option<&mut dyn FnMut()>,
) -> Result<u8, Failure> {
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
                    Some(Ok(Ok(status))) => Ok(exit_status(status)),
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
            return Ok(exit_status(status));
        }
    }
    Ok(status::FINE)
}

/// As a shell has it: 128 and the signal's number if one ended the process.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// A file with this process's number, removed when this value is dropped.
pub struct PidFile<'a>(&'a Path);

impl<'a> PidFile<'a> {
    /// Writes it.
    pub fn write(path: &'a Path) -> Result<Self, Failure> {
        fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|error| Failure::host(format!("--pidfile {}: {error}", path.display())))?;
        Ok(PidFile(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}
