//! Workload generators and traces of measured disks.
//!
//! A [`Generator`] makes the requests of a [`Workload`] from a seed: the same options give the
//! same requests on every machine, for ever. All are made for closed loops: a request says how
//! long after a completion it comes, not when. [`read_measured`] reads what a real drive took for each
//! request of a trace. [`block`] has traces of devices, [`calls`] those of system calls, [`bootstrap`] the intervals of
//! what is computed from either.
#![forbid(unsafe_code)]

pub mod block;
pub mod bootstrap;
pub mod calls;
mod generator;
mod measured;
mod workload;

pub use generator::{GeneratedRequest, Generator, GeneratorOptions, Zones};
pub use measured::{MeasuredClass, MeasuredRequest, TraceError, read_measured};
pub use workload::Workload;
