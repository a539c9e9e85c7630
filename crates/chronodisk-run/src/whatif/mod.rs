//! `chronodisk whatif`: predicted run times on faster devices.

mod factors;
mod predict;
mod result;

pub use self::factors::Factor;
pub use self::predict::{Predicted, Suspend, WhatIfArguments, predict};
pub use self::result::{WhatIf, host_load};
