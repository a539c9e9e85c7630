//! Errors as the package's exceptions, which are classes of Python.

use std::fmt;

use chronodisk_device::ProfileError;
use chronodisk_engine::state_file::BuildError;
use chronodisk_report::ReportError;
use chronodisk_sweep::{LoadError, SweepError};
use pyo3::prelude::*;

/// The exception of a kind, of module `chronodisk.errors`.
fn raise(py: Python<'_>, kind: &str, message: String, help: Option<String>) -> PyErr {
    let make = || py.import("chronodisk.errors")?.getattr(kind)?.call1((message, help));
    make().map_or_else(|error| error, PyErr::from_value)
}

/// Makes the exception for wrong arguments.
pub(crate) fn usage(py: Python<'_>, message: impl fmt::Display) -> PyErr {
    raise(py, "UsageError", as_arguments(&message.to_string()), None)
}

pub(crate) fn sweep(py: Python<'_>, error: SweepError) -> PyErr {
    match error {
        SweepError::Usage(message) => usage(py, message),
        SweepError::Advised { message, help } => {
            raise(py, "UsageError", as_arguments(&message), Some(as_arguments(&help)))
        }
        SweepError::Host(message) => raise(py, "HostError", message, None),
    }
}

pub(crate) fn load(py: Python<'_>, error: LoadError) -> PyErr {
    match error {
        LoadError::Load(error) => sweep(py, error),
        LoadError::Model(fault) => raise(py, "ModelError", fault.to_string(), None),
    }
}

pub(crate) fn profile(py: Python<'_>, error: &ProfileError) -> PyErr {
    raise(py, "UsageError", error.to_string(), error.help.clone())
}

pub(crate) fn build(py: Python<'_>, error: &BuildError) -> PyErr {
    match error {
        BuildError::Profile(error) => profile(py, error),
        error => usage(py, error),
    }
}

pub(crate) fn report(py: Python<'_>, error: &ReportError) -> PyErr {
    usage(py, error)
}

/// A model in Python broke the contract.
pub(crate) fn model(py: Python<'_>, message: String) -> PyErr {
    raise(py, "ModelError", message, None)
}

/// Options of the command as arguments of a function: `--block-size` is `block_size`.
fn as_arguments(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find("--") {
        let (before, option) = rest.split_at(at);
        let word = option[2..].find(|letter: char| !letter.is_ascii_lowercase() && letter != '-');
        let name = &option[2..word.map_or(option.len(), |end| end + 2)];
        let is_option = name.starts_with(|letter: char| letter.is_ascii_lowercase());
        text.push_str(before);
        text.push_str(&if is_option { name.replace('-', "_") } else { format!("--{name}") });
        rest = &option[2 + name.len()..];
    }
    text + rest
}
