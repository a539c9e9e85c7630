//! Workload generators and traces of measured disks.
//!
//! A [`Generator`] makes the requests of a [`Workload`] from a seed: the same options give the
//! same requests on every machine, for ever. In a closed loop a request says how long after a
//! completion it comes; for open loops [`ArrivalTimes`] says when. [`read_measured`] reads what a real drive took for
//! each request of a trace. [`block`] has traces of devices, [`calls`] those of system calls, [`bootstrap`] the
//! intervals of what is computed from either. [`fio_job`] reads fio's job files.
#![forbid(unsafe_code)]

mod addresses;
mod arrivals;
pub mod block;
pub mod bootstrap;
pub mod calls;
pub mod fio_job;
mod generator;
mod measured;
mod workload;

pub use addresses::{Addresses, EXPONENT_MAX};
pub use arrivals::{ArrivalProcess, ArrivalTimes};
pub use generator::{GeneratedRequest, Generator, GeneratorOptions, Zones};
pub use measured::{
    MEASURED_LINE_BYTES_MAX, MEASURED_REQUESTS_MAX, MeasuredClass, MeasuredRequest, TraceError, read_measured,
};
pub use workload::Workload;
