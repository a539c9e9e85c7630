//! Devices that clients use in real time.

mod arguments;
mod before;
mod ending;
mod execute;
mod guard;
mod http;
mod metrics;
mod shadow;
mod start;
mod store;

pub use self::arguments::ServeArguments;
pub use self::execute::{ServePlan, ServeProgress, serve};
pub use self::guard::serve_guard;
