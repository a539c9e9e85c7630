//! Simulations.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chronodisk_device::{BuildOptions, DeviceInfo, Speed};
use chronodisk_engine::{ModelPort, state_file};
use chronodisk_report::{LogInfo, Simulation, StreamedSummary};
use chronodisk_sim::{ContentsLimit, Nanos, RequestRecord, SECTOR_BYTES};
use chronodisk_sweep::{
    BlockTrace, FioLoad, GeneratedLoad, Load, ReplayOptions, Replayed, TraceArrivals, TraceOptions,
};
use chronodisk_trace::{Addresses, ArrivalProcess, Workload};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;
use crate::model::{Fault, PythonModel};
use crate::profile::Profile;
use crate::table::{Gatherer, Requests, records_of_object};

/// Sizes and durations as texts, as the command takes them.
#[pyfunction]
pub(crate) fn parse_bytes(py: Python<'_>, text: &str) -> PyResult<u64> {
    chronodisk_device::parse_capacity(text).map_err(|message| errors::usage(py, message))
}

/// See [`parse_bytes`].
#[pyfunction]
pub(crate) fn parse_duration(py: Python<'_>, text: &str) -> PyResult<u64> {
    chronodisk_device::parse_duration(text).map(Nanos::as_nanos).map_err(|message| errors::usage(py, message))
}

/// Names and descriptions of the generated workloads.
#[pyfunction]
pub(crate) fn workloads() -> Vec<(&'static str, &'static str)> {
    Workload::ALL.iter().map(|workload| (workload.name(), workload.description())).collect()
}

/// Arguments about the device besides its profile.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DeviceArguments {
    seed: u64,
    capacity_bytes: Option<u64>,
    speed: Option<f64>,
    limit: Option<String>,
    fault: Vec<String>,
    state: Option<PathBuf>,
    host_queue: Option<String>,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct WorkloadArguments {
    workload: String,
    requests: u64,
    block_bytes: Option<u64>,
    depth: u32,
    read_share: Option<f64>,
    think_max_ns: u64,
    addresses: String,
    arrivals: Option<String>,
    rate_per_s: Option<f64>,
    on_ns: Option<u64>,
    off_ns: Option<u64>,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct TraceArguments {
    path: Option<String>,
    format: Option<String>,
    volume: Option<String>,
    accept_bad: u64,
    from_queueing: bool,
    spread_seed: Option<u64>,
    arrivals: String,
    speed: f64,
    wraps: bool,
}

/// Simulates. `device` is a [`Profile`] or a model of Python; `load` the arguments of a workload, the path of a job
/// file of fio, or the arguments of a trace with a `table` if it has no path. Gives the result as the command's JSON,
/// the requests if they are to be kept, and notes.
#[pyfunction]
#[pyo3(signature = (device, device_arguments, load, *, table=None, keep, progress=None))]
pub(crate) fn simulate(
    py: Python<'_>,
    device: &Bound<'_, PyAny>,
    device_arguments: DeviceArguments,
    load: &Bound<'_, PyDict>,
    table: Option<&Bound<'_, PyAny>>,
    keep: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Option<Requests>, Vec<String>)> {
    let fault: Fault = Arc::new(Mutex::new(None));
    let mut port = port(py, device, &device_arguments, fault.clone())?;
    let info = port.info().clone();
    let is_used = device_arguments.state.is_some();
    let mut told = Vec::new();
    let (load, name, mut options) = if load.contains("workload")? {
        let generated = generated(py, load.extract()?, device_arguments.seed)?;
        let (load, options) = generated.begin(&info, is_used).map_err(|error| errors::sweep(py, error))?;
        (load, generated.workload.name(), options)
    } else if let Some(file) = load.get_item("fio_job")? {
        let jobs = FioLoad::open(&file.extract::<PathBuf>()?).map_err(|error| errors::sweep(py, error))?;
        let (load, options) = jobs.begin(&info, device_arguments.seed).map_err(|error| errors::sweep(py, error))?;
        told = jobs.notes();
        (load, "fio-job", options)
    } else {
        let (load, options) = traced(py, load.extract()?, table, &info, device_arguments.seed)?;
        (load, "trace", options)
    };
    if let Some(factor) = device_arguments.speed {
        options.insert("device_speed".to_owned(), factor.into());
    }
    if let Some(limit) = &device_arguments.limit {
        options.insert("limit".to_owned(), limit.as_str().into());
    }
    if !device_arguments.fault.is_empty() {
        options.insert("fault".to_owned(), device_arguments.fault.join(" ").into());
    }
    if let Some(state) = &device_arguments.state {
        options.insert("state".to_owned(), state.display().to_string().into());
    }
    if let Some(elevator) = &device_arguments.host_queue {
        options.insert("host_queue".to_owned(), elevator.as_str().into());
    }
    let mut summary = StreamedSummary::default();
    let mut gatherer = Gatherer::default();
    let (ramp, mut measured_from) = (load.ramp(), None);
    let mut watch = Watch { countdown: LOOK_EVERY, looked: Instant::now(), told: Instant::now(), progress };
    let done = py.detach(|| {
        load.give_to(&mut port, ContentsLimit::NONE, |record: &RequestRecord| {
            if record.arrival >= *measured_from.get_or_insert(record.arrival.saturating_add(ramp)) {
                summary.add(record);
            }
            if keep {
                gatherer.add(record);
            }
            watch.look(summary.requests(), &fault)
        })
    });
    if let Some(error) = fault.lock().ok().and_then(|mut fault| fault.take()) {
        return Err(error);
    }
    told.extend(done.map_err(|error| errors::load(py, error))?);
    let result = Simulation::of_summary(info.name.clone(), name, options, summary.finish());
    Ok((result.to_json(), keep.then(|| gatherer.finish()), told))
}

/// Looks every now and then whether the simulation is to go on.
struct Watch {
    countdown: u64,
    looked: Instant,
    told: Instant,
    progress: Option<Py<PyAny>>,
}

/// Requests between two looks at the clock.
const LOOK_EVERY: u64 = 256;
const SIGNALS_EVERY: Duration = Duration::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

impl Watch {
    fn look(&mut self, requests: u64, fault: &Fault) -> ControlFlow<()> {
        self.countdown -= 1;
        if self.countdown > 0 {
            return ControlFlow::Continue(());
        }
        self.countdown = LOOK_EVERY;
        let Ok(mut fault) = fault.lock() else { return ControlFlow::Break(()) };
        if fault.is_some() {
            return ControlFlow::Break(());
        }
        if self.looked.elapsed() < SIGNALS_EVERY {
            return ControlFlow::Continue(());
        }
        self.looked = Instant::now();
        let seen = Python::attach(|py| {
            py.check_signals()?;
            if let Some(progress) = &self.progress
                && self.told.elapsed() >= PROGRESS_EVERY
            {
                self.told = Instant::now();
                progress.call1(py, (requests,))?;
            }
            Ok(())
        });
        match seen {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                *fault = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

fn port(py: Python<'_>, device: &Bound<'_, PyAny>, arguments: &DeviceArguments, fault: Fault) -> PyResult<ModelPort> {
    let speed = match arguments.speed {
        None => Speed::AS_IT_IS,
        Some(factor) => Speed::from_factor(factor).ok_or_else(|| {
            errors::usage(py, format!("device_speed={factor}; expected {} to {}", Speed::MIN, Speed::MAX))
        })?,
    };
    let Ok(profile) = device.cast::<Profile>() else {
        if arguments.limit.is_some() {
            return Err(errors::usage(py, "limit is for profiles; a model in Python has its own timing".to_owned()));
        }
        if !arguments.fault.is_empty() {
            let problem = "fault is for profiles; a model in Python fails requests by itself";
            return Err(errors::usage(py, problem.to_owned()));
        }
        let model: Box<dyn chronodisk_device::DeviceModel> = Box::new(PythonModel::new(device, fault)?);
        return Ok(speed.apply(model).into());
    };
    let refused = |error| errors::profile(py, &error);
    let mut profile = profile.get().0.clone();
    if let Some(capacity_bytes) = arguments.capacity_bytes {
        if !capacity_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(errors::usage(py, format!("capacity={capacity_bytes}; expected a multiple of {SECTOR_BYTES}")));
        }
        profile = profile.reaching(capacity_bytes).map_err(refused)?;
    }
    if let Some(elevator) = &arguments.host_queue {
        profile = profile.behind_host_queue(elevator).map_err(refused)?;
    }
    for fault in &arguments.fault {
        profile = profile.with_fault(fault).map_err(refused)?;
    }
    if let Some(limit) = &arguments.limit {
        profile = profile.within_limits(limit).map_err(refused)?;
    }
    let options =
        BuildOptions { capacity_bytes: arguments.capacity_bytes, seed: arguments.seed, ..BuildOptions::default() };
    let (model, _) =
        state_file::build(&profile, &options, arguments.state.as_deref()).map_err(|error| errors::build(py, &error))?;
    Ok(speed.apply(model).into())
}

fn generated(py: Python<'_>, arguments: WorkloadArguments, seed: u64) -> PyResult<GeneratedLoad> {
    let wrong = |message: String| errors::usage(py, message);
    let workload: Workload =
        arguments.workload.parse().map_err(|message| wrong(format!("workload={:?}: {message}", arguments.workload)))?;
    if arguments.requests == 0 || !(1..=1_000_000).contains(&arguments.depth) {
        return Err(wrong("expected at least one request, and a depth from 1 to 1000000".to_owned()));
    }
    if arguments.block_bytes.is_some_and(|bytes| bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES)) {
        return Err(wrong(format!("block_size is no multiple of {SECTOR_BYTES} bytes")));
    }
    if arguments.read_share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return Err(wrong("read_share is not from 0 to 1".to_owned()));
    }
    let addresses: Addresses = arguments
        .addresses
        .parse()
        .map_err(|message| wrong(format!("addresses={:?}: {message}", arguments.addresses)))?;
    let rate = || {
        let rate = arguments.rate_per_s.filter(|rate| (1e-6..=1e9).contains(rate));
        rate.ok_or_else(|| wrong("rate_per_s is missing or not from 1e-6 to 1e9".to_owned()))
    };
    let mean = |time: Option<u64>, name: &str| {
        time.map(Nanos::from_nanos).ok_or_else(|| wrong(format!("arrivals=\"on-off\" needs {name}")))
    };
    let is_burst = arguments.on_ns.is_some() || arguments.off_ns.is_some();
    let process = match arguments.arrivals.as_deref() {
        None | Some("closed") if arguments.rate_per_s.is_some() || is_burst => {
            return Err(wrong(
                "rate_per_s, on and off need arrivals=\"poisson\", \"regular\" or \"on-off\"".to_owned(),
            ));
        }
        None | Some("closed") => None,
        Some("poisson" | "regular") if is_burst => {
            return Err(wrong("on and off need arrivals=\"on-off\"".to_owned()));
        }
        Some("poisson") => Some(ArrivalProcess::Poisson { rate_per_s: rate()? }),
        Some("regular") => Some(ArrivalProcess::Regular { rate_per_s: rate()? }),
        Some("on-off") => {
            let (on, off) = (mean(arguments.on_ns.filter(|on| *on > 0), "on")?, mean(arguments.off_ns, "off")?);
            Some(ArrivalProcess::OnOff { rate_per_s: rate()?, on, off })
        }
        Some(other) => {
            let expected = "closed, poisson, regular or on-off; open and depth=N are of traces";
            return Err(wrong(format!("arrivals={other:?}; expected {expected}")));
        }
    };
    Ok(GeneratedLoad {
        block_bytes: arguments.block_bytes,
        depth: arguments.depth,
        read_share: arguments.read_share,
        think_max: Nanos::from_nanos(arguments.think_max_ns),
        addresses,
        process,
        ..GeneratedLoad::new(workload, arguments.requests, seed)
    })
}

type Options = std::collections::BTreeMap<String, serde_json::Value>;

fn traced(
    py: Python<'_>,
    arguments: TraceArguments,
    table: Option<&Bound<'_, PyAny>>,
    info: &DeviceInfo,
    seed: u64,
) -> PyResult<(Load, Options)> {
    let depth = |text: &str| text.strip_prefix("depth=")?.parse().ok().filter(|depth| (1..=1_000_000).contains(depth));
    let arrivals = match arguments.arrivals.as_str() {
        "open" => TraceArrivals::Open,
        "closed" => TraceArrivals::Closed,
        other => TraceArrivals::Depth(depth(other).ok_or_else(|| {
            errors::usage(py, format!("arrivals={other:?}; expected open, closed or depth=N for a trace"))
        })?),
    };
    if !(arguments.speed > 0.0 && arguments.speed.is_finite()) {
        return Err(errors::usage(py, format!("speed={}; expected a number above 0", arguments.speed)));
    }
    let how = ReplayOptions { arrivals, speed: arguments.speed, wraps: arguments.wraps };
    let capacity_bytes = info.capacity_sectors * SECTOR_BYTES;
    let common = [("seed", seed.into()), ("capacity_bytes", capacity_bytes.into())];
    let mut options: Options =
        common.into_iter().chain(how.options()).map(|(name, value)| (name.to_owned(), value)).collect();
    let trace = match (&arguments.path, table) {
        (Some(path), _) => {
            let format = arguments.format.as_deref().map(str::parse).transpose();
            let reading = TraceOptions {
                format: format.map_err(|message: String| errors::usage(py, message))?,
                volume: arguments.volume.clone(),
                placement: None,
                accept_bad: arguments.accept_bad,
                from_queueing: arguments.from_queueing,
                spread_seed: arguments.spread_seed,
            };
            let trace = BlockTrace::open(Path::new(path), &reading).map_err(|error| errors::sweep(py, error))?;
            options.insert("trace".to_owned(), path.as_str().into());
            trace
        }
        (None, Some(table)) => {
            let pieces = records_of_object(table)?;
            options.insert("trace".to_owned(), "table".into());
            // Its first request arrives at the device's beginning, as with traces of other tools.
            let info = LogInfo { format: Some("arrow".to_owned()), ..LogInfo::default() };
            BlockTrace::of_records("table", info, pieces, arguments.volume.clone())
        }
        (None, None) => return Err(errors::usage(py, "there is no trace")),
    };
    if let Some(format) = trace.info().format {
        options.insert("trace_format".to_owned(), format.into());
    }
    if let Some(volume) = arguments.volume {
        options.insert("volume".to_owned(), volume.into());
    }
    if let Some(seed) = arguments.spread_seed {
        options.insert("spread_seed".to_owned(), seed.into());
    }
    Ok((Load::Traced(Box::new(Replayed::new(trace, info, how))), options))
}
