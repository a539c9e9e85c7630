//! A run from its options to its result, without the command line and the terminal.
//!
//! [`RunPlan::resolve`] checks the options of a guest's run, and [`execute`] carries it out. [`new_result`] begins the
//! result of any run. [`RunFolder`] finds the kept runs, and [`RunDirectory`] reads and writes the files of one.
#![forbid(unsafe_code)]

mod arguments;
pub mod device;
mod failure;
mod folder;
mod guest;
pub mod memory;
mod notes;
mod place;
mod present;
pub mod quantity;
mod recorded;
mod result;
mod suggest;

pub use arguments::{Elsewhere, LabelArguments, Reps, SquashArguments, model_lost};
pub use failure::{Failure, Place, command_began, status, status_of_defect};
pub use folder::{Head, KeptRun, LAST, NewFiles, Repetition, Replayable, RunDirectory, RunFolder};
pub use guest::{
    Draws, Executed, GuestArguments, Progress, RecordedCalls, RunPlan, Work, execute, guest_failure, snapshot,
};
pub use notes::show_notes_with;
pub use place::expect_place;
pub use present::now_rfc3339;
pub use recorded::{RecordedOption, RecordedOptions};
pub use result::{
    Caller, NativeFileSystem, NativeRep, Runner, ServedRep, Setting, add_guest_repetition, add_native_repetition,
    add_served_repetition, ended_early, new_result, own_failure, server_failure, settings_of, time_late,
};
pub use suggest::nearest;
