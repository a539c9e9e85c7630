//! Runs matrices: every combination of some options, each with several seeds.
//!
//! A [`Sweep`] is read from a TOML file. [`Sweep::cells`] lists its cells. Each cell is one call of the command, named
//! by a digest of everything that its result depends on. A [`Plan`] executes the missing cells in processes of this
//! host, or returns each as a [`Task`] for any process. [`Results`] condenses them: figures with bootstrap intervals
//! over the seeds, main effects, a table in Parquet, a report.
//!
//! Each cell is a process of its own: a failing cell or a killed sweep harms no other cell. The order in which cells
//! end has no effect.
//!
//! A [`Load`] is the load of one simulation: a [generated workload](GeneratedLoad), a [`BlockTrace`], or a job file of
//! fio ([`FioLoad`]). The command and the Python package share it.
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

/// Error of a sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// The file or its options are wrong; the message names the value found and the value expected.
    #[error("{0}")]
    Usage(String),
    /// A wrong file or option, with advice.
    #[error("{message}")]
    Advised {
        /// The value found, and the value expected.
        message: String,
        /// The advice.
        help: String,
    },
    /// The host refuses something.
    #[error("{0}")]
    Host(String),
}

impl SweepError {
    /// Adds advice to the error.
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
