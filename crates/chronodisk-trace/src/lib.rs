//! Workload generators.
//!
//! A [`Generator`] makes the requests of a [`Workload`] from a seed: the same options give the
//! same requests on every machine, for ever. All are made for closed loops: a request says how
//! long after a completion it comes, not when.
#![forbid(unsafe_code)]

mod generator;
mod workload;

pub use generator::{GeneratedRequest, Generator, GeneratorOptions};
pub use workload::Workload;
