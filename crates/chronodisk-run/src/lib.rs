//! A run from its options to its result: what the command does, without its command line and its terminal.
//!
//! [`RunFolder`] finds the kept runs, and [`RunDirectory`] reads and writes the files of one.
#![forbid(unsafe_code)]

mod failure;
mod folder;
pub mod memory;
mod present;
pub mod quantity;
mod recorded;
mod reps;
mod result;
mod suggest;

pub use failure::{Failure, Place, status};
pub use folder::{Head, KeptRun, LAST, NewFiles, Repetition, Replayable, RunDirectory, RunFolder};
pub use present::now_rfc3339;
pub use recorded::{RecordedOption, RecordedOptions};
pub use reps::{AUTO_HALF_WIDTH, AUTO_MAX, AUTO_MIN, AUTO_PILOT, Reps};
pub use result::{
    Caller, NativeFileSystem, NativeRep, Runner, ServedRep, Setting, add_guest_repetition, add_native_repetition,
    add_served_repetition, ended_early, new_result, own_failure, server_failure, settings_of, time_late,
};
pub use suggest::nearest;
