//! A model that is another program: it reads commands from its standard input and answers on its standard output.
#![allow(unsafe_code)]

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::link::{Connector, Wire};

/// Starts a program that is a model. Its standard error is ours, so that what it complains of is seen.
#[derive(Debug)]
pub struct ProgramConnector {
    command: String,
    who: String,
    child: Option<Child>,
}

impl ProgramConnector {
    /// The model that the shell command `command` runs.
    #[must_use]
    pub fn new(command: &str) -> Self {
        ProgramConnector { command: command.to_owned(), who: format!("model '{command}'"), child: None }
    }
}

/// How long a program may take to end by itself once its standard input has ended.
const ENDING: Duration = Duration::from_secs(1);

impl Connector for ProgramConnector {
    fn who(&self) -> &str {
        &self.who
    }

    fn connect(&mut self) -> io::Result<Box<dyn Wire>> {
        let mut command = Command::new("/bin/sh");
        // The shell becomes the program, so that its number is the program's.
        command.arg("-c").arg(format!("exec {}", self.command));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let parent = std::process::id();
        // SAFETY: between fork and exec it makes two system calls, and does not allocate.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                    return Err(io::Error::last_os_error());
                }
                // It died before the call above; nobody waits for us.
                if libc::getppid() as u32 != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        let (stdin, stdout) = (child.stdin.take().expect("it is piped"), child.stdout.take().expect("it is piped"));
        self.child = Some(child);
        Ok(Box::new(PipeWire { stdin, stdout }))
    }

    fn resumes(&self) -> bool {
        false
    }

    fn how_it_ended(&mut self) -> Option<String> {
        // One that closed its output is about to end.
        let status = ended_within(self.child.as_mut()?, ENDING)?;
        Some(match (status.code(), status.signal()) {
            (Some(127), _) => "the program was not found (exit status 127)".into(),
            (Some(code), _) => format!("the program ended (exit status {code})"),
            (None, Some(signal)) => format!("the program was killed by signal {signal}"),
            (None, None) => "the program ended".into(),
        })
    }
}

fn ended_within(child: &mut Child, most: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if begun.elapsed() >= most {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for ProgramConnector {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        if ended_within(child, ENDING).is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct PipeWire {
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Wire for PipeWire {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdin.write_all(bytes)
    }

    fn receive(&mut self, bytes: &mut [u8], timeout: Duration) -> io::Result<usize> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut waits = [PollFd::from_borrowed_fd(self.stdout.as_fd(), PollFlags::IN)];
            match poll(&mut waits, Some(&left)) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
                Ok(_) => return self.stdout.read(bytes),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
