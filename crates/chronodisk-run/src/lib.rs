//! A run from its options to its result: what the command does, without its command line and its terminal.
//!
//! [`RunFolder`] finds the kept runs, and [`RunDirectory`] reads and writes the files of one.
#![forbid(unsafe_code)]

mod failure;
mod folder;
pub mod memory;
pub mod quantity;
mod result;
mod suggest;

pub use failure::{Failure, Place, status};
pub use folder::{Head, KeptRun, LAST, NewFiles, Repetition, Replayable, RunDirectory, RunFolder};
pub use result::{ended_early, now_rfc3339};
pub use suggest::nearest;
