//! The extension module of the Python package `chronodisk`: its parts that are not Python.
//!
//! This module takes and returns plain values. The package (`python/chronodisk`) has the public interface, its types
//! and its documentation. Python's lock is released during simulations.

mod errors;
mod intervals;
mod model;
mod profile;
mod simulate;
mod sweep;
mod table;

use pyo3::prelude::*;

/// The module `chronodisk._core`.
#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::intervals::{bootstrap, bootstrap_copies, bootstrap_of};
    #[pymodule_export]
    use crate::profile::Profile;
    #[pymodule_export]
    use crate::simulate::{parse_bytes, parse_duration, simulate, workloads};
    #[pymodule_export]
    use crate::sweep::{SweepPlan, execute_task, sweep_command, sweep_plot};
    #[pymodule_export]
    use crate::table::{Requests, read_requests};

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
