//! Power cuts: a program runs once in a guest, and states that its device may be in after a power cut are checked.
//!
//! [`record_for_crash`] runs the program and keeps a recording of the device. [`check_states`] makes the states and
//! checks them in guests. [`crash_checker`] is the process of such a guest.

mod acknowledged;
mod arguments;
mod checker;
mod files;
mod images;
mod kept;
mod load;
mod make;
mod pool;
mod record;
mod result;
mod setup;
mod shrinking;
mod verdicts;
mod verify;

pub use arguments::{CrashArguments, CutCount, StateChoice};
pub use checker::crash_checker;
pub use kept::read_crash;
pub use record::{CrashRecorded, record_for_crash};
pub use result::CrashChecked;
pub use verify::{CrashProgress, check_states};
