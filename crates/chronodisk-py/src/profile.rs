//! Profiles.

use std::collections::BTreeMap;

use chronodisk_device::{BuildOptions, Profile as DeviceProfile};
use chronodisk_sweep::{Value, changed_profile};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::errors;

/// A profile. Immutable.
#[pyclass(frozen, module = "chronodisk._core")]
pub(crate) struct Profile(pub(crate) DeviceProfile);

/// A value of a profile's key.
fn value_of(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_instance_of::<PyBool>() {
        return Ok(Value::Flag(value.extract()?));
    }
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Value::Integer(number));
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(Value::Number(number));
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(Value::Text(text));
    }
    let members = value.try_iter()?.map(|member| value_of(&member?)).collect::<PyResult<_>>()?;
    Ok(Value::List(members))
}

#[pymethods]
impl Profile {
    /// Loads a profile by name, or by the path of a file.
    #[staticmethod]
    fn load(py: Python<'_>, name: &str) -> PyResult<Self> {
        DeviceProfile::find(name).map(Profile).map_err(|error| errors::profile(py, &error))
    }

    /// Reads a profile from a text in TOML; `label` names it in messages.
    #[staticmethod]
    fn parse(py: Python<'_>, text: &str, label: &str) -> PyResult<Self> {
        DeviceProfile::parse(text, label).map(Profile).map_err(|error| errors::profile(py, &error))
    }

    /// Names of the built-in profiles.
    #[staticmethod]
    fn names() -> Vec<String> {
        DeviceProfile::builtin().iter().map(|profile| profile.name.to_owned()).collect()
    }

    /// The same device with other values.
    fn changed(&self, py: Python<'_>, changes: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut values = BTreeMap::new();
        for (key, value) in changes {
            values.insert(key.extract::<String>()?, value_of(&value)?);
        }
        let values: Vec<(&str, &Value)> = values.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let text = changed_profile(self.0.text(), self.0.name(), &values).map_err(|error| errors::sweep(py, error))?;
        Profile::parse(py, &text, self.0.name())
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn kind(&self) -> &str {
        self.0.kind()
    }

    #[getter]
    fn description(&self) -> &str {
        self.0.description()
    }

    #[getter]
    fn source(&self) -> &str {
        self.0.source()
    }

    #[getter]
    fn validation(&self) -> String {
        self.0.validation().to_string()
    }

    #[getter]
    fn capacity_bytes(&self) -> u64 {
        self.0.capacity_bytes()
    }

    #[getter]
    fn text(&self) -> &str {
        self.0.text()
    }

    /// Most memory that the simulated device takes.
    #[getter]
    fn memory_bytes_max(&self, py: Python<'_>) -> PyResult<u64> {
        let options = BuildOptions::default();
        self.0.memory_bytes_max(&options).map_err(|error| errors::profile(py, &error))
    }
}
