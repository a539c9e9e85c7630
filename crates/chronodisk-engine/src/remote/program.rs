//! A model that is another program: it reads commands from its standard input and answers on its standard output.
#![allow(unsafe_code)]

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid};

use super::link::{Connector, Wire};
use crate::ending::kill_with_starter;

/// Starts a model program. It inherits standard error, so that its messages are seen.
#[derive(Debug)]
pub struct ProgramConnector {
    command: String,
    who: String,
    started: Option<Started>,
}

/// A program, the leader of a process group, and a guard that ends the group if this process is killed.
#[derive(Debug)]
struct Started {
    leader: Child,
    guard: Option<Child>,
    /// The group was ended; its number may be in use again.
    over: bool,
}

impl ProgramConnector {
    /// The model that the shell command `command` runs.
    #[must_use]
    pub fn new(command: &str) -> Self {
        ProgramConnector { command: command.to_owned(), who: format!("model '{command}'"), started: None }
    }
}

/// Time for a program to end by itself after the end of its standard input.
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
        kill_with_starter(&mut command);
        let mut leader = command.spawn()?;
        let (stdin, stdout) = (leader.stdin.take().expect("it is piped"), leader.stdout.take().expect("it is piped"));
        // The guard is optional: without it, the program's children may outlive a kill of this process.
        let guard = guard(&leader).ok();
        let guarded = guard.as_ref().map(|guard| pidfd_open(Pid::from_child(guard), PidfdFlags::empty())).transpose();
        self.started = Some(Started { leader, guard, over: false });
        Ok(Box::new(PipeWire { stdin, stdout, guarded: guarded? }))
    }

    fn resumes(&self) -> bool {
        false
    }

    fn how_it_ended(&mut self) -> Option<String> {
        // A program that closed its output is about to end.
        let status = self.started.as_mut()?.ended_within(ENDING)?;
        Some(match (status.code(), status.signal()) {
            (Some(127), _) => "the program was not found (exit status 127)".into(),
            (Some(code), _) => format!("the program ended (exit status {code})"),
            (None, Some(signal)) => format!("the program was killed by signal {signal}"),
            (None, None) => "the program ended".into(),
        })
    }
}

/// Starts a shell that waits for the end of its standard input, which lasts as long as this process, and then kills the
/// program's group.
fn guard(leader: &Child) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "read -r _; kill -KILL \"-$0\" 2>/dev/null # exec-guard"]).arg(leader.id().to_string());
    // Its own group, so that Ctrl-C does not reach it.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn()
}

impl Started {
    /// Returns the program's exit status if it ends in time. Its group is ended then, too.
    fn ended_within(&mut self, most: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        while !self.has_ended() {
            if begun.elapsed() >= most {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.end_group();
        self.leader.wait().ok()
    }

    /// Returns whether the program has ended. Does not reap it, so that its number is not reused.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(Pid::from_child(&self.leader)), options) {
            Ok(status) => status.is_some(),
            // The process has been waited for before.
            Err(_) => true,
        }
    }

    /// Kills all processes left in the program's group. Does not reap the program.
    fn end_group(&mut self) {
        // End the guard first, so that it can't kill a group that reuses the id.
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.kill();
            let _ = guard.wait();
        }
        if !std::mem::replace(&mut self.over, true) {
            let _ = kill_process_group(Pid::from_child(&self.leader), Signal::KILL);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.ended_within(ENDING).is_none() {
            let _ = kill_process_group(Pid::from_child(&self.leader), Signal::KILL);
            let _ = self.ended_within(ENDING);
        }
    }
}

struct PipeWire {
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// The guard's process, which does not end by itself.
    guarded: Option<OwnedFd>,
}

/// The guard has ended.
fn guard_lost() -> io::Error {
    io::Error::other("the process that ends the model's program after a kill of chronodisk (exec-guard) died")
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
            let stdout = self.stdout.as_fd();
            // In place of one that is not there, the output is watched twice.
            let guarded = self.guarded.as_ref().map_or(stdout, AsFd::as_fd);
            let mut waits = [stdout, guarded].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            match poll(&mut waits, Some(&left)) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
                Ok(_) if self.guarded.is_some() && !waits[1].revents().is_empty() => return Err(guard_lost()),
                Ok(_) => return self.stdout.read(bytes),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
