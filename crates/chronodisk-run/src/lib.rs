//! A run from its options to its result, without the command line and the terminal.
//!
//! A plan resolves options once: [`RunPlan`] for a guest, [`NativePlan`] for a program of this host, [`ServePlan`] for
//! clients. [`execute`], [`execute_native`] and [`serve`] carry a plan out, and keep a result of one form.
//! [`RunFolder`] finds the kept runs, and [`RunDirectory`] reads and writes the files of one.
//!
//! The options are structures with their help: a new option is a field, read where the plan is resolved. Helper
//! processes are started from the [executable of the caller](Caller::executable). Messages go to
//! [one function](show_notes_with) of the caller.
#![forbid(unsafe_code)]

mod arguments;
mod crash;
pub mod device;
mod executed;
mod failure;
mod folder;
mod guest;
mod hash;
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
mod zones;

pub use arguments::{
    Attach, DebugSetting, DebugSettings, DeviceOptions, Elsewhere, LabelArguments, Reps, ResultOptions,
    SquashArguments, model_lost,
};
pub use crash::{
    CrashArguments, CrashChecked, CrashProgress, CrashRecorded, CutCount, StateChoice, check_states, crash_checker,
    read_crash, record_for_crash,
};
pub use executed::Executed;
pub use failure::{Failure, Place, status, status_of_defect};
pub use folder::{FreshDirectory, Head, KeptRun, LAST, Repetition, Replayable, RunDirectory, RunFolder};
pub use guest::{Draws, GuestArguments, RecordedCalls, RunPlan, RunProgress, Work, execute, guest_failure, snapshot};
pub use native::{DeviceArguments, NativeArguments, NativePlan, execute_native, native_failure};
pub use notes::show_notes_with;
pub use place::expect_place;
pub use recorded::{RecordedOption, RecordedOptions};
pub use result::Caller;
pub use serve::{ServeArguments, ServePlan, ServeProgress, serve, serve_guard};
pub use signals::{EndFlag, EndSignals, Keyboard};
pub use suggest::nearest;
pub use times::now_rfc3339;
pub use whatif::{
    Factor, Measuring, Predicted, RequestTimes, RequestTimesArguments, Suspend, WhatIf, WhatIfArguments,
    measure_requests, predict,
};
