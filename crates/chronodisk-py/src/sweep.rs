//! Sweeps.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronodisk_report::curves_svg;
use chronodisk_sweep::{Done, Plan, Results, Runner, Sweep, SweepError, Task};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::errors;

/// A sweep that is being done.
#[pyclass(frozen, module = "chronodisk._core")]
pub(crate) struct SweepPlan {
    plan: Plan,
    done: Mutex<Vec<Option<Done>>>,
}

/// A sweep's file, or a dictionary of Python, which has no label: its lines are nothing that its author knows.
fn parsed(
    text: &str,
    label: Option<&str>,
    options_of: impl Fn(chronodisk_sweep::Command) -> Vec<String>,
) -> Result<Sweep, SweepError> {
    match label {
        Some(label) => Sweep::parse(text, label, options_of),
        None => Sweep::parse_generated(text, DICTIONARY, options_of),
    }
}

/// Name of a dictionary in messages.
const DICTIONARY: &str = "sweep";

/// The command that a sweep runs, which tells the options that it knows.
#[pyfunction]
pub(crate) fn sweep_command(py: Python<'_>, text: &str, label: Option<&str>) -> PyResult<Vec<&'static str>> {
    let found = Mutex::new(None);
    let options = |command: chronodisk_sweep::Command| {
        if let Ok(mut found) = found.lock() {
            *found = Some(command.words());
        }
        Vec::new()
    };
    let parsed = parsed(text, label, options);
    match (found.into_inner().unwrap_or(None), parsed) {
        (Some(words), _) => Ok(words.to_vec()),
        (None, Err(error)) => Err(errors::sweep(py, error)),
        (None, Ok(_)) => Ok(Vec::new()),
    }
}

#[pymethods]
impl SweepPlan {
    /// Prepares the cells of the sweep in `text`; `options` are the long options of its command.
    #[new]
    fn new(
        py: Python<'_>,
        text: &str,
        label: Option<&str>,
        options: Vec<String>,
        executable: PathBuf,
        directory: PathBuf,
        jobs: usize,
    ) -> PyResult<Self> {
        let sweep = parsed(text, label, |_| options.clone()).map_err(|error| errors::sweep(py, error))?;
        let runner = Runner { executable, version: env!("CARGO_PKG_VERSION").to_owned(), directory, jobs, part: None };
        let plan = py.detach(|| Plan::new(sweep, runner)).map_err(|error| errors::sweep(py, error))?;
        let done = Mutex::new(vec![None; plan.cells()]);
        Ok(SweepPlan { plan, done })
    }

    /// Indices of the cells that are not done.
    fn missing(&self, py: Python<'_>) -> Vec<usize> {
        py.detach(|| {
            let Ok(mut done) = self.done.lock() else { return Vec::new() };
            for (index, place) in done.iter_mut().enumerate() {
                if place.is_none() {
                    *place = self.plan.found(index);
                }
            }
            done.iter().enumerate().filter(|(_, place)| place.is_none()).map(|(index, _)| index).collect()
        })
    }

    fn __len__(&self) -> usize {
        self.plan.cells()
    }

    /// The names of the cells' files, in order.
    fn names(&self) -> Vec<String> {
        self.plan.names()
    }

    /// Returns the task of a cell, for [`execute_task`] in any process.
    fn task(&self, index: usize) -> PyResult<String> {
        self.expect(index)?;
        Ok(serde_json::to_string(&self.plan.task(index)).unwrap_or_default())
    }

    /// Keeps a result of [`execute_task`].
    fn keep(&self, py: Python<'_>, index: usize, answer: &str) -> PyResult<()> {
        self.expect(index)?;
        let done: Done = serde_json::from_str(answer).map_err(|error| errors::usage(py, error))?;
        let done = py.detach(|| self.plan.keep(index, done)).map_err(|error| errors::sweep(py, error))?;
        if let Ok(mut all) = self.done.lock() {
            all[index] = Some(done);
        }
        Ok(())
    }

    /// Executes the missing cells in processes of this host. `progress` is called with the number of finished cells.
    #[pyo3(signature = (progress=None))]
    fn run(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<()> {
        let (stop, count) = (AtomicBool::new(false), std::sync::atomic::AtomicUsize::new(0));
        let (found, raised) = py.detach(|| {
            std::thread::scope(|scope| {
                let work = scope.spawn(|| {
                    self.plan.run(&stop, &|_| {
                        count.fetch_add(1, Ordering::Relaxed);
                    })
                });
                let mut raised = None;
                while !work.is_finished() {
                    std::thread::park_timeout(Duration::from_millis(50));
                    let looked = Python::attach(|py| {
                        py.check_signals()?;
                        progress
                            .as_ref()
                            .map_or(Ok(()), |tell| tell.call1(py, (count.load(Ordering::Relaxed),)).map(drop))
                    });
                    if let Err(error) = looked
                        && raised.is_none()
                    {
                        raised = Some(error);
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                let panicked = || Err(SweepError::Host("a worker of the sweep failed".to_owned()));
                (work.join().unwrap_or_else(|_| panicked()), raised)
            })
        });
        if let Some(error) = raised {
            return Err(error);
        }
        let found = found.map_err(|error| errors::sweep(py, error))?;
        if let Ok(mut all) = self.done.lock() {
            all.clone_from(&found);
        }
        Ok(())
    }

    /// Writes the files of the results, and gives them as JSON and as text.
    fn finish(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let done = self.done.lock().map(|done| done.clone()).unwrap_or_default();
        let done: Option<Vec<Done>> = done.into_iter().collect();
        let done = done.ok_or_else(|| errors::usage(py, "some cells are not done"))?;
        let made_by = concat!("chronodisk ", env!("CARGO_PKG_VERSION"), ", Python package");
        let written = || {
            let results = self.plan.write_results(&done)?;
            self.plan.write_report(&results, &done, &[], made_by)?;
            Ok(results)
        };
        let results: Results = py.detach(written).map_err(|error: SweepError| errors::sweep(py, error))?;
        Ok((results.to_json(), results.render()))
    }
}

impl SweepPlan {
    fn expect(&self, index: usize) -> PyResult<()> {
        let cells = self.plan.cells();
        if index < cells { Ok(()) } else { Err(PyIndexError::new_err(format!("cell {index} of {cells}"))) }
    }
}

/// Draws a figure of a sweep against an axis with numbers, or another figure, as SVG. `results` is `sweep.json`.
#[pyfunction]
pub(crate) fn sweep_plot(py: Python<'_>, results: &str, x: &str, y: &str) -> PyResult<String> {
    let wrong = |message: String| errors::usage(py, message);
    let results: Results = serde_json::from_str(results).map_err(|error| wrong(error.to_string()))?;
    curves_svg(x, y, &results.curves(x, y).map_err(wrong)?).map_err(wrong)
}

/// Does a cell with an executable of this host, and gives the answer for [`SweepPlan::keep`].
#[pyfunction]
pub(crate) fn execute_task(py: Python<'_>, task: &str, executable: PathBuf) -> PyResult<String> {
    let task: Task = serde_json::from_str(task).map_err(|error| errors::usage(py, error))?;
    let done = py.detach(|| task.execute(&executable, &AtomicBool::new(false)));
    let done = done.map_err(|error| errors::sweep(py, error))?;
    done.and_then(|done| serde_json::to_string(&done).ok())
        .ok_or_else(|| errors::usage(py, format!("cell {} gave no result", task.name())))
}
