//! The runner of matrices: every combination of some options, each with several seeds.
//!
//! A [`Sweep`] is read from a TOML file. [`Sweep::cells`] lists its cells; each is one call of the command, told apart
//! by the content of all that its result depends on. A [`Plan`] does the cells that are not there yet, in processes of
//! this host, or hands each out as a [`Task`] that any process can do. [`Results`] condenses them: figures with
//! bootstrap intervals over the seeds, main effects, a table in Parquet, a report.
//!
//! A cell is a process of its own: a cell that fails, or a sweep that is killed, harms no other cell. Nothing is
//! decided by which cell ends first.
//!
//! A [`Load`] is what one simulation does: a [generated workload](GeneratedLoad), a [`BlockTrace`], or a job file of
//! fio ([`FioLoad`]). The command and the Python package simulate with it.
#![forbid(unsafe_code)]

use std::fmt;

mod block_trace;
mod cell;
mod children;
mod executable;
mod figures;
mod fio;
mod load;
mod replay;
mod report;
mod results;
mod runner;
mod slurm;
mod sweep;
mod table;

pub use block_trace::{BlockTrace, Pieces, Placement, TraceOptions};
pub use cell::{Cell, Value, changed_profile, option_words};
pub use fio::FioLoad;
pub use load::{GeneratedLoad, Load, LoadError};
pub use replay::{ReplayOptions, Replayed, TraceArrivals};
pub use report::{CellProvenance, PROVENANCE_SCHEMA, Provenance, REPORT_FILE, RESULTS_FILE};
pub use results::{Effect, Group, Results, SWEEP_SCHEMA};
pub use runner::{Done, Part, Plan, Progress, Runner, Task, host_info};
pub use slurm::ArrayJob;
pub use sweep::{Command, Sweep};

/// Why a sweep can't be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// Its file or its options are wrong: what was found, and what was expected.
    #[error("{0}")]
    Usage(String),
    /// The same, with what to do about it.
    #[error("{message}")]
    Advised {
        /// What was found, and what was expected.
        message: String,
        /// What to type.
        help: String,
    },
    /// The host refuses something.
    #[error("{0}")]
    Host(String),
}

impl SweepError {
    /// The same error, with what to do about it.
    #[must_use]
    pub fn help(self, help: impl fmt::Display) -> Self {
        match self {
            SweepError::Usage(message) | SweepError::Advised { message, .. } => {
                SweepError::Advised { message, help: help.to_string() }
            }
            SweepError::Host(message) => SweepError::Host(format!("{message}; {help}")),
        }
    }

    pub(crate) fn io(action: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        SweepError::Host(format!("can't {action} {}: {error}", path.display()))
    }
}
