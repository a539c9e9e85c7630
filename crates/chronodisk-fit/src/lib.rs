//! Fits a profile's free constants to a measured sweep.
//!
//! A *sweep* ([`Point`]s, from CSV or from fio) says what a drive did at which depth. A [`Template`] is a profile with
//! free constants between bounds. A [`Problem`] joins them: each candidate is a whole profile, as it would be written,
//! and each point is a closed loop on its model ([`simulate()`]), so that any kind of device can be fitted. The search
//! is a least-squares one without derivatives (the module `optimiser`).
//!
//! Nothing here reads a clock, starts a thread or touches a file: who calls hands in texts and a [`Runner`] that does
//! the simulations, on as many threads as it likes. Equal input gives equal results, however they were done.
#![forbid(unsafe_code)]

mod error;
mod fit;
mod optimiser;
mod simulate;
mod sweep;
mod template;

pub use error::FitError;
pub use fit::{CrossValidation, DEEP, Fitted, InUse, LARGE_BYTES, Method, Problem, Progress, Runner, Task, uses};
pub use optimiser::Search;
pub use simulate::{Conditions, simulate};
pub use sweep::{
    Access, FALL_LIMIT_PERCENT, Format, Measured, Override, Point, PointRegion, Selector, Understood, not_monotone,
    read_csv, read_fio, read_sweep, understand,
};
pub use template::{Constant, Free, Template};
