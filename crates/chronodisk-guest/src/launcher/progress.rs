//! Progress of a run for its launcher, and the times at which a line about it may be drawn on the terminal.

use std::time::{Duration, Instant};

use chronodisk_sim::Nanos;

use crate::shared::page::Traffic;
use crate::shared::spec::Stage;

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEvent {
    /// A stage of the guest's life has ended.
    Stage(Stage),
    /// The command is about to write to the terminal: a drawn progress line must be erased first.
    Output,
    /// The command is running, and its output leaves a line of the terminal free. Sent several times a second.
    Progress(Progress),
    /// A message about the closing of a store after a failed run.
    StoreNotice(String),
    /// A call that a replay can't make has succeeded for the first time, so the recording of system calls is
    /// incomplete.
    Unrecordable(&'static str),
    /// The command wrote bytes to its pipe for acknowledgements.
    Acknowledged {
        /// The guest's instant.
        at: Nanos,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// Progress of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The guest's time since the command began.
    pub guest: Nanos,
    /// The host's time since then.
    pub host: Duration,
    /// Activity of the devices since the guest's start.
    pub traffic: Traffic,
}

/// Real time between two [`RunEvent::Progress`].
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// State of the terminal after the command's output.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    mid_line: bool,
    /// The command moves the cursor itself, so no line may be drawn.
    is_commands: bool,
}

impl Screen {
    /// The command writes these bytes to the terminal.
    pub fn saw(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.mid_line = *last != b'\n';
        }
        self.is_commands |= bytes.contains(&ESCAPE);
    }

    /// Whether a progress line can be drawn and erased again without a trace.
    pub fn is_free(&self) -> bool {
        !self.mid_line && !self.is_commands
    }
}

/// Begins a control sequence of a terminal.
const ESCAPE: u8 = 0x1b;

/// Instant of the next progress event.
#[derive(Debug)]
pub(crate) struct Pulse {
    last: Instant,
}

impl Pulse {
    pub fn new() -> Self {
        Pulse { last: Instant::now() }
    }

    /// Whether the next event is due; at most once an interval.
    pub fn beats(&mut self) -> bool {
        let beats = self.last.elapsed() >= PROGRESS_INTERVAL;
        if beats {
            self.last = Instant::now();
        }
        beats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_free_after_whole_lines_only() {
        let mut screen = Screen::default();
        assert!(screen.is_free());
        screen.saw(b"");
        assert!(screen.is_free());
        screen.saw(b"one\ntw");
        assert!(!screen.is_free(), "a prompt");
        screen.saw(b"o\r\n");
        assert!(screen.is_free());
    }

    #[test]
    fn a_program_that_controls_the_terminal_keeps_it() {
        let mut screen = Screen::default();
        screen.saw(b"\x1b[2J\n");
        assert!(!screen.is_free());
        screen.saw(b"text\n");
        assert!(!screen.is_free());
    }
}
