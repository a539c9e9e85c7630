//! A device model that is an object of Python.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use chronodisk_device::{DeviceInfo, DeviceModel};
use chronodisk_sim::{Completion, Nanos, Op, Priority, Request, RequestId, Status};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::errors;

/// Holds the exception that a model raised.
pub(crate) type Fault = Arc<Mutex<Option<PyErr>>>;

/// The object, described by Python's class `chronodisk.model.Model`.
///
/// A local model can't fail, but one in Python can raise. Then it completes all outstanding requests at once, and the
/// simulation ends with the [`Fault`].
pub(crate) struct PythonModel {
    object: Py<PyAny>,
    classes: Arc<Classes>,
    info: DeviceInfo,
    now: Nanos,
    /// Arrivals of outstanding requests, by id.
    outstanding: BTreeMap<u64, Nanos>,
    fault: Fault,
    has_failed: bool,
}

/// Python classes of a request's parts.
struct Classes {
    request: Py<PyAny>,
    ops: Vec<Py<PyAny>>,
    priorities: Vec<Py<PyAny>>,
}

impl PythonModel {
    pub(crate) fn new(object: &Bound<'_, PyAny>, fault: Fault) -> PyResult<Self> {
        let py = object.py();
        let module = py.import("chronodisk.model")?;
        let members = |class: &str, count: usize| -> PyResult<Vec<Py<PyAny>>> {
            let class = module.getattr(class)?;
            (0..count).map(|value| Ok(class.call1((value,))?.unbind())).collect()
        };
        let classes = Classes {
            request: module.getattr("Request")?.unbind(),
            // Zones are not in the interface.
            ops: members("Op", 5)?,
            priorities: members("Priority", 3)?,
        };
        let device = object.getattr("device")?;
        let blocks = [device.getattr("logical_block_bytes")?, device.getattr("physical_block_bytes")?]
            .map(|value| value.extract::<u32>());
        let [logical_block_bytes, physical_block_bytes] = blocks;
        let info = DeviceInfo {
            name: device.getattr("name")?.extract()?,
            capacity_sectors: device.getattr("capacity_sectors")?.extract()?,
            logical_block_bytes: logical_block_bytes?,
            physical_block_bytes: physical_block_bytes?,
            volatile_cache: device.getattr("volatile_cache")?.extract()?,
            discard_unit_sectors: device.getattr("discard_unit_sectors")?.extract()?,
            rotational: device.getattr("rotational")?.extract()?,
            zones: None,
            torn_write_sectors: None,
        };
        let is_block = |bytes: u32| bytes >= 512 && bytes.is_power_of_two();
        if info.capacity_sectors == 0 || !is_block(info.logical_block_bytes) || !is_block(info.physical_block_bytes) {
            return Err(PyValueError::new_err(format!(
                "device {}: {} sectors in blocks of {} and {} bytes; expected at least one sector, and powers of two \
                 from 512",
                info.name, info.capacity_sectors, info.logical_block_bytes, info.physical_block_bytes
            )));
        }
        Ok(PythonModel {
            object: object.clone().unbind(),
            classes: Arc::new(classes),
            info,
            now: Nanos::ZERO,
            outstanding: BTreeMap::new(),
            fault,
            has_failed: false,
        })
    }

    fn fail(&mut self, error: PyErr) {
        self.has_failed = true;
        if let Ok(mut fault) = self.fault.lock() {
            fault.get_or_insert(error);
        }
    }

    fn submit_to(&self, py: Python<'_>, request: &Request) -> PyResult<()> {
        let op = self.classes.ops.get(request.op as usize);
        let op = op.ok_or_else(|| errors::usage(py, format!("a model in Python has no {}", request.op)))?;
        let priority = &self.classes.priorities[request.priority as usize];
        let (lba, queue, issuer) = (request.lba.0, request.queue, request.issuer);
        let made = self
            .classes
            .request
            .call1(py, (request.id.0, op, lba, request.sectors, request.fua, priority, queue, issuer))?;
        self.object.call_method1(py, intern!(py, "submit"), (self.now.as_nanos(), made))?;
        Ok(())
    }

    /// Returns the first completions, up to `limit`.
    fn advance(&self, py: Python<'_>, limit: Nanos) -> PyResult<Vec<Completion>> {
        let answer = self.object.call_method1(py, intern!(py, "advance"), (limit.as_nanos(),))?;
        let mut completions: Vec<Completion> = Vec::new();
        for one in answer.bind(py).try_iter()? {
            let one = one?;
            let id: u64 = one.getattr(intern!(py, "id"))?.extract()?;
            let at = Nanos::from_nanos(one.getattr(intern!(py, "at"))?.extract()?);
            let status = match one.getattr(intern!(py, "status"))?.extract::<u8>()? {
                0 => Status::Ok,
                1 => Status::MediaError,
                2 => Status::Aborted,
                3 => Status::Unsupported,
                other => return Err(PyValueError::new_err(format!("status {other}; expected 0 to 3"))),
            };
            let wrong = |what: String| errors::model(py, format!("model {}: {what}", self.info.name));
            let Some(arrival) = self.outstanding.get(&id) else {
                return Err(wrong(format!("completed request {id}, which it does not have")));
            };
            if completions.iter().any(|other| other.id.0 == id) {
                return Err(wrong(format!("completed request {id} twice")));
            }
            let first = completions.first().map_or(at, |first| first.at);
            if at != first || at < self.now || at > limit || at <= *arrival {
                return Err(wrong(format!(
                    "request {id}, which arrived at {} ns, completed at {} ns, asked at {} ns for what completes \
                     first up to {} ns; expected an instant in that span and after the arrival, the same for all",
                    arrival.as_nanos(),
                    at.as_nanos(),
                    self.now.as_nanos(),
                    limit.as_nanos()
                )));
            }
            completions.push(Completion { id: RequestId(id), at, status });
        }
        if completions.is_empty() && limit == Nanos::MAX {
            let count = self.outstanding.len();
            return Err(errors::model(py, format!("model {}: {count} requests never complete", self.info.name)));
        }
        Ok(completions)
    }
}

impl DeviceModel for PythonModel {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        self.outstanding.len() as u32
    }

    fn submit(&mut self, request: Request) {
        self.outstanding.insert(request.id.0, self.now);
        if !self.has_failed
            && let Err(error) = Python::attach(|py| self.submit_to(py, &request))
        {
            self.fail(error);
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.completion_bound()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        if self.outstanding.is_empty() {
            return None;
        }
        let soon = self.now + Nanos::from_nanos(1);
        let bound = |py: Python<'_>| self.object.call_method0(py, intern!(py, "bound"))?.extract::<u64>(py);
        // Early is never wrong.
        let bound = if self.has_failed { Ok(0) } else { Python::attach(bound) };
        Some(bound.map_or(soon, |bound| soon.max(Nanos::from_nanos(bound))))
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let limit = limit.max(self.now);
        if self.outstanding.is_empty() {
            self.now = limit;
            return;
        }
        if !self.has_failed {
            match Python::attach(|py| self.advance(py, limit)) {
                Ok(completions) => {
                    self.now = completions.first().map_or(limit, |first| first.at);
                    for completion in completions {
                        self.outstanding.remove(&completion.id.0);
                        completed.push(completion);
                    }
                    return;
                }
                Err(error) => self.fail(error),
            }
        }
        let soon = self.now + Nanos::from_nanos(1);
        if soon > limit {
            return;
        }
        self.now = soon;
        let ids = std::mem::take(&mut self.outstanding).into_keys();
        completed.extend(ids.map(|id| Completion { id: RequestId(id), at: soon, status: Status::Aborted }));
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        let copy = Python::attach(|py| -> PyResult<Py<PyAny>> {
            Ok(py.import("copy")?.call_method1("deepcopy", (&self.object,))?.unbind())
        });
        let (object, error) = match copy {
            Ok(object) => (object, None),
            Err(error) => (Python::attach(|py| self.object.clone_ref(py)), Some(error)),
        };
        let mut fork = PythonModel {
            object,
            classes: self.classes.clone(),
            info: self.info.clone(),
            now: self.now,
            outstanding: self.outstanding.clone(),
            fault: self.fault.clone(),
            has_failed: self.has_failed,
        };
        if let Some(error) = error {
            fork.fail(error);
        }
        Box::new(fork)
    }
}

/// Urgencies and operations have the numbers of Python's classes.
const _: () = assert!(Op::WriteZeroes as usize == 4 && Priority::High as usize == 2);
