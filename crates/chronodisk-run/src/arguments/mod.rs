//! Options that several commands share. Each is a field with its help.

mod attach;
mod debug;
mod device;
mod elsewhere;
mod labels;
mod reps;
mod squash;

pub use self::attach::Attach;
pub use self::debug::{DebugSetting, DebugSettings};
pub use self::device::{DeviceOptions, ResultOptions};
pub use self::elsewhere::{Elsewhere, PROGRAM_PREFIX, model_lost};
pub use self::labels::LabelArguments;
pub use self::reps::Reps;
pub use self::squash::SquashArguments;
