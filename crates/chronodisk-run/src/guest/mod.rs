//! Runs of a program, or of recorded system calls, in a guest.

mod arguments;
mod draws;
mod execute;
mod failure;
mod options;
mod plan;
mod recorded_calls;
pub mod snapshot;
mod surroundings;
mod vary;
mod work;
mod zoned;

pub use self::arguments::{Clock, GuestArguments, Root};
pub use self::draws::Draws;
pub use self::execute::{RunProgress, execute};
pub use self::failure::guest_failure;
pub use self::plan::RunPlan;
pub use self::recorded_calls::RecordedCalls;
pub use self::work::Work;
