//! The extension module of the Python package `chronodisk`: the parts of it that are not Python.
//!
//! What is here takes and gives plain values; the package (`python/chronodisk`) has the interface that users see, its
//! types and its documentation. Python's lock is not held while anything is simulated.

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
