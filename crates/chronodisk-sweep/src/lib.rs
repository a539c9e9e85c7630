//! The runner of matrices: every combination of some options, each with several seeds.
//!
//! A [`Sweep`] is read from a TOML file. [`Sweep::cells`] lists its cells; each is one call of the command, told apart
//! by the content of all that its result depends on. [`run`] does the cells that are not there yet, and [`Results`]
//! condenses them: figures with bootstrap intervals over the seeds, main effects, a table in Parquet.
//!
//! A cell is a process of its own: a cell that fails, or a sweep that is killed, harms no other cell. Nothing is
//! decided by which cell ends first.
#![forbid(unsafe_code)]

mod cell;
mod figures;
mod results;
mod runner;
mod sweep;
mod table;

pub use cell::{Cell, Value};
pub use results::{Effect, Group, Results, SWEEP_SCHEMA};
pub use runner::{Done, Progress, Runner, run, write_results};
pub use sweep::{Command, Sweep};

/// Why a sweep can't be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// Its file or its options are wrong: what was found, and what was expected.
    #[error("{0}")]
    Usage(String),
    /// The host refuses something.
    #[error("{0}")]
    Host(String),
}

impl SweepError {
    pub(crate) fn io(action: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        SweepError::Host(format!("can't {action} {}: {error}", path.display()))
    }
}
