//! The processes of cells, and the signals that a sweep passes on to them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use chronodisk_engine::ending::kill_with_starter;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The task of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A cell: it ends its own program, and ends at once at the second signal.
    Cell,
    /// A shell for the setup of a cell.
    Setup,
    /// A shell for the teardown of a cell, also of one that a signal ended.
    Teardown,
}

/// The running children.
#[derive(Debug, Default)]
pub(crate) struct Children(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: Vec<(Pid, Role)>,
    /// The signal that asked the sweep to end.
    asked: Option<Signal>,
}

impl Children {
    /// Runs a process to its end. A shell has a process group of its own.
    pub fn output(&self, command: &mut Command, role: Role) -> io::Result<Output> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if role != Role::Cell {
            command.process_group(0);
        }
        // A killed sweep can't pass signals on. A killed cell cleans up by itself.
        kill_with_starter(command);
        let mut state = self.state();
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        state.running.push((pid, role));
        if let Some(signal) = state.asked.filter(|_| role != Role::Teardown) {
            send(pid, role, signal);
        }
        drop(state);
        let output = child.wait_with_output();
        self.state().running.retain(|(running, _)| *running != pid);
        output
    }

    /// Passes a signal to all children, and to those that start later. Stopped children are continued.
    pub fn ask_to_end(&self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else { return };
        let mut state = self.state();
        state.asked = Some(signal);
        for (pid, role) in &state.running {
            send(*pid, *role, signal);
            send(*pid, *role, Signal::CONT);
        }
    }

    /// Ends all children at once: cells by their second signal, so that they clean up, and shells by force.
    pub fn end_at_once(&self) {
        let state = self.state();
        for (pid, role) in &state.running {
            let signal = if *role == Role::Cell { state.asked.unwrap_or(Signal::TERM) } else { Signal::KILL };
            send(*pid, *role, signal);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a signal, unless the process has ended meanwhile.
fn send(pid: Pid, role: Role, signal: Signal) {
    let _ = match role {
        Role::Cell => kill_process(pid, signal),
        Role::Setup | Role::Teardown => kill_process_group(pid, signal),
    };
}
