//! `chronodisk whatif`: predicted run times on faster devices.

mod factors;
mod predict;
mod request_times;
mod result;

use chronodisk_native::WayChoice;

pub use self::factors::Factor;
pub use self::predict::{Predicted, Suspend, WhatIfArguments, predict};
pub use self::request_times::{Measuring, RequestTimes, RequestTimesArguments, measure_requests};
pub use self::result::WhatIf;

/// The driver of the block device. Calibrations and the published errors of predictions are of FUSE and loop devices.
const WAY: WayChoice = WayChoice::FuseMessages;
