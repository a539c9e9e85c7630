//! A run after its repetitions.

use chronodisk_report::{EndedBy, RunResult};

use crate::failure::{Failure, status};
use crate::folder::RunDirectory;

/// A run that has ended.
pub struct Executed {
    /// The result of all repetitions.
    pub result: RunResult,
    /// Exit status of the command, or of the check.
    pub status: u8,
    /// The failure that ended the run. Its status precedes the other.
    pub failure: Option<Failure>,
    /// Failures before that one.
    pub earlier_failures: Vec<Failure>,
    /// Whether the command has begun.
    pub command_began: bool,
    /// Whether the result is in its directory.
    pub is_kept: bool,
}

impl Executed {
    /// A run that has not begun.
    pub(crate) fn begin(result: RunResult) -> Self {
        Executed {
            result,
            status: status::FINE,
            failure: None,
            earlier_failures: Vec::new(),
            command_began: false,
            is_kept: false,
        }
    }

    /// The run ends with this failure.
    pub(crate) fn fails(&mut self, failure: Failure) {
        self.result.ended_by = EndedBy::Chronodisk;
        self.result.failure = Some(failure.to_string());
        self.failure = Some(failure);
    }

    /// Adds a further failure.
    pub(crate) fn fails_too(&mut self, failure: Failure, directory: &RunDirectory) {
        self.earlier_failures.extend(self.failure.take());
        self.fails(failure);
        self.keep_end(directory);
    }

    /// The result of the earlier repetitions must say how the run ended, too.
    pub(crate) fn keep_end(&mut self, directory: &RunDirectory) {
        if self.is_kept
            && let Err(failure) = directory.write_run(&self.result)
        {
            self.failure.get_or_insert(failure);
        }
    }
}
