//! A run from its options to its result, without the command line and the terminal.
//!
//! [`RunPlan::resolve`] checks the options of a guest's run, and [`execute`] carries it out. [`new_result`] begins the
//! result of any run. [`RunFolder`] finds the kept runs, and [`RunDirectory`] reads and writes the files of one.
#![forbid(unsafe_code)]

mod arguments;
pub mod device;
mod executed;
mod failure;
mod folder;
mod guest;
pub mod memory;
mod native;
mod notes;
mod place;
pub mod quantity;
mod recorded;
mod recording;
mod result;
mod serve;
mod signals;
mod suggest;
mod times;
mod whatif;

pub use arguments::{Elsewhere, LabelArguments, Reps, SquashArguments, model_lost};
pub use executed::Executed;
pub use failure::{Failure, Place, command_began, status, status_of_defect};
pub use folder::{Head, KeptRun, LAST, NewFiles, Repetition, Replayable, RunDirectory, RunFolder};
pub use guest::{Draws, GuestArguments, Progress, RecordedCalls, RunPlan, Work, execute, guest_failure, snapshot};
pub use native::{DeviceArguments, NativeArguments, NativePlan, execute_native, native_failure, serve_native};
pub use notes::show_notes_with;
pub use place::expect_place;
pub use recorded::{RecordedOption, RecordedOptions};
pub use result::{Caller, ended_early, new_result};
pub use serve::{ServeArguments, ServePlan, ServeProgress, serve};
pub use signals::{EndFlag, EndSignals, Keyboard};
pub use suggest::nearest;
pub use times::now_rfc3339;
pub use whatif::{Factor, Predicted, Suspend, WhatIf, WhatIfArguments, host_load, predict};
