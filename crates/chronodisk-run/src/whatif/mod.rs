//! `chronodisk whatif`: predicted run times on faster devices.

mod factors;
mod predict;
mod request_times;
mod result;

pub use self::factors::Factor;
pub use self::predict::{Predicted, Suspend, WhatIfArguments, predict};
pub use self::request_times::{Measuring, RequestTimes, RequestTimesArguments, measure_requests};
pub use self::result::WhatIf;
