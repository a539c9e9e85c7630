//! The work of a guest.

use std::ffi::OsString;
use std::sync::Arc;

use chronodisk_trace::calls::Plan;

use super::draws::Draws;
use super::recorded_calls::RecordedCalls;

/// Work of a guest.
pub enum Work<'a> {
    /// Runs a program, and records its system calls if there is a recording.
    Command(Vec<OsString>, Option<&'a RecordedCalls>),
    /// Replays system calls.
    Replay(Arc<Plan>),
    /// Replays other calls in each repetition.
    Draws(&'a Draws),
}

impl Work<'_> {
    /// Whether system calls are replayed.
    pub(super) fn replays(&self) -> bool {
        self.plan().is_some()
    }

    /// The replayed plan; of draws, their origin.
    pub(super) fn plan(&self) -> Option<&Plan> {
        match self {
            Work::Command(..) => None,
            Work::Replay(plan) => Some(plan),
            Work::Draws(draws) => Some(&draws.plan),
        }
    }
}
