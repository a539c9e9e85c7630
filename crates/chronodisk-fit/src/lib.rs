//! Fits a profile's free constants to a measured sweep.
//!
//! A *sweep* ([`Point`]s, from CSV or from fio) has a drive's figures by depth. A [`Template`] is a profile with free
//! constants between bounds. A [`Problem`] joins them: each candidate is a complete profile, and each point is a closed
//! loop on its model ([`simulate()`]), so any kind of device can be fitted. The search is least squares without
//! derivatives (module `optimiser`).
//!
//! This crate reads no clock, starts no thread and touches no file: the caller passes texts and a [`Runner`] that does
//! the simulations, on any number of threads. Equal input gives equal results in any order of execution.
#![forbid(unsafe_code)]

pub mod data_sheet;
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
    Access, FALL_LIMIT_PERCENT, Format, Measured, Override, Point, PointRegion, Selector, Understood,
    WRITES_IN_USE_LEAST, missing_sweeps, not_monotone, read_csv, read_fio, read_sweep, understand,
};
pub use template::{Constant, Free, Template};
