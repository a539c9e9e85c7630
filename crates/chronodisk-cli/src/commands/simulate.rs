//! `chronodisk simulate`: a generated workload, a block trace or a job file of fio on a device model, without a guest.

mod arrivals;
mod extensions;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use chronodisk_device::{DeviceInfo, probed};
use chronodisk_engine::ModelPort;
use chronodisk_engine::remote::RemoteModel;
use chronodisk_report::{BackgroundScan, LogWriter, Simulation, StreamedSummary, render_simulation};
use chronodisk_run::device::{self, Device};
use chronodisk_run::memory::MemoryOptions;
use chronodisk_run::{
    DebugSetting, DebugSettings, DeviceOptions, Elsewhere, EndFlag, EndSignals, FreshDirectory, RunDirectory,
    RunFolder, model_lost, quantity,
};
use chronodisk_sim::{Nanos, RequestRecord, Status};
use chronodisk_sweep::{FioLoad, GeneratedLoad, Load, LoadError, Replayed};
use chronodisk_trace::{Addresses, Workload};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::Value;

use self::arrivals::ReplayArguments;
use self::extensions::{ExtensionArguments, Foreground, begin_scan, end_scan};
use crate::block_trace::{self, TraceOptions};
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Runs a generated workload, a block trace or a job file of fio on a device model, without a guest
///
/// A generated workload is a closed loop: --depth requests are outstanding at any time, and each completion starts the
/// next request. With --arrivals poisson, regular or on-off it is an open loop. A trace is replayed by its time stamps,
/// by its pauses, or at a constant depth (--arrivals). A job file of fio (--fio-job) says itself how many requests are
/// outstanding and when they are issued. Equal options give identical results.
#[derive(Debug, Args)]
#[command(mut_arg("state", |state| state.conflicts_with_all(["host_queue", "server"])))]
#[command(after_help = "Ctrl-C and SIGTERM end the simulation with the results so far and exit status 128+n.\n\n\
    Example: chronodisk simulate --device first-disk --workload random-read --block-size 16KiB --depth 32")]
pub struct Arguments {
    /// Selects the device: a name from `chronodisk devices`, a profile file, or exec:COMMAND for a program that is
    /// the model
    #[arg(long, short, value_name = "PROFILE", required_unless_present = "server")]
    device: Option<String>,

    #[command(flatten)]
    elsewhere: Elsewhere,

    /// Selects the workload; the first six are defined by Griffin et al., FAST 2002, section 5.1
    #[arg(long, short, value_name = "NAME", value_parser = workload_parser(), required_unless_present_any = ["trace", "fio_job"])]
    workload: Option<Workload>,

    /// Replays this block trace: a run, a log in Parquet, or a file of another tool (`chronodisk trace convert --help`)
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["workload", "requests", "block_size", "depth", "read_share", "think_max", "addresses"])]
    trace: Option<String>,

    /// Follows this job file of fio. Each thread is a closed loop of its own; a key that a model can't follow is an
    /// error
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all =
            ["workload", "trace", "requests", "block_size", "depth", "read_share", "think_max", "addresses"]
    )]
    fio_job: Option<PathBuf>,

    #[command(flatten)]
    replay: ReplayArguments,

    #[command(flatten)]
    trace_options: TraceOptions,

    /// Issues this number of requests
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,

    /// Sets the size of a request, for workloads that do not define it (default: 4KiB)
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    block_size: Option<u64>,

    /// Keeps this number of requests outstanding
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    depth: u32,

    /// Sets the share of reads from 0 to 1, for workloads that read and write
    #[arg(long, value_name = "SHARE", value_parser = quantity::share)]
    read_share: Option<f64>,

    /// Pauses before each request for a random time, uniform from zero to this
    #[arg(long, value_name = "DURATION", default_value = "0ns", value_parser = quantity::duration)]
    think_max: Nanos,

    /// Selects the addresses of random requests: uniform; zipf=EXPONENT, scattered over the device; or
    /// hot-cold=REQUESTS:SPACE, where hot-cold=0.9:0.1 sends 90 % of the requests to the first 10 % of the device
    #[arg(long, value_name = "ADDRESSES", default_value = "uniform")]
    addresses: Addresses,

    #[command(flatten)]
    on: DeviceOptions,

    #[command(flatten)]
    extensions: ExtensionArguments,

    /// Adds the request queue of a host's kernel with this elevator: merging, plugging and a limited queue, as in
    /// David (ACM TOS 2012). --device-speed applies to the queue, too
    #[arg(long, value_name = "ELEVATOR", value_parser = ["noop", "deadline", "cfq", "c-look"])]
    host_queue: Option<String>,

    /// Writes the result and the log of all requests to this directory
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    memory: MemoryOptions,

    /// Tests the emulator; the figures stay the same. speculation=off keeps a --server from computing ahead
    #[arg(long, value_name = "KEY=VALUE", hide_short_help = true, value_parser = DebugSetting::of_simulation)]
    debug: Vec<DebugSetting>,
}

fn workload_parser() -> impl TypedValueParser<Value = Workload> {
    let names = Workload::ALL.map(|workload| PossibleValue::new(workload.name()).help(workload.description()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Workload>())
}

/// Simulates, and writes the figures.
pub fn execute(arguments: Arguments) -> Outcome {
    let name = arguments.device.as_deref();
    let device = match (&arguments.host_queue, name) {
        (None, name) => device::load_anywhere(name, &arguments.elsewhere, arguments.on.capacity, arguments.on.seed)?,
        (Some(elevator), Some(name)) => {
            device::load_behind_host_queue(name, elevator, arguments.on.capacity, arguments.on.seed)?
        }
        (Some(_), None) => return Err(Failure::usage("--host-queue needs --device")),
    };
    let device = arguments.on.surround(device)?.begin_in(arguments.on.state.as_deref())?;
    let device = device.at_speed(arguments.on.device_speed, &arguments.elsewhere)?;
    let placing = match arguments.extensions.write_anywhere {
        Some(_) => Some(port(&arguments, &device)?),
        None => None,
    };
    let info = placing.as_ref().map_or(device.info(), ModelPort::info).clone();
    let (load, name, options) = load(&arguments, &device, &info)?;
    let directory = match &arguments.output {
        Some(directory) => Some(RunFolder::plan(Some(directory), "")?),
        None => None,
    };

    let total = load.requests();
    let mut log = directory.as_ref().map(Log::create).transpose()?;
    let asked = EndSignals::flag()?;
    let mut port = placing.map_or_else(|| port(&arguments, &device), Ok)?;
    if let Some(when) = arguments.extensions.background_scan {
        begin_scan(&mut port, when)?;
    }
    let mut simulated = simulate(&arguments, &mut port, load, log.as_mut(), &asked)?;
    let summary = std::mem::take(&mut simulated.summary).finish();
    let mut simulation = Simulation::of_summary(device.name(), name, options, summary);
    simulation.model_statistics = probed(|sink| port.probe(sink)).into_iter().collect();
    simulation.background = scan_beside(&arguments, &device, &mut port, &simulated, &asked)?;
    if let (Some(directory), Some(log)) = (&directory, log) {
        log.finish()?;
        directory.write_simulation(&simulation, &device.used())?;
    }
    if arguments.json {
        output::data(&simulation.to_json())?;
    } else {
        output::data(&render_simulation(&simulation))?;
    }
    let done = if simulated.interrupted {
        match total {
            Some(total) => format!("interrupted after {} of {total} requests", simulation.requests),
            None => format!("interrupted after {} requests", simulation.requests),
        }
    } else {
        format!("{} requests", simulation.requests)
    };
    tell_of_failures(&simulated.failures, simulation.requests);
    let per_second = simulation.requests as f64 / simulated.host_seconds.max(1e-9);
    output::note(format_args!("{done}, simulated in {:.3} s: {per_second:.0} requests/s", simulated.host_seconds));
    Ok(if simulated.interrupted { asked.status() } else { status::FINE })
}

/// The device's model, below the host that chooses places if the load has one.
fn port(arguments: &Arguments, device: &Device) -> Result<ModelPort, Failure> {
    let debug = DebugSettings::new(&arguments.debug);
    arguments.elsewhere.expect_server_for(&debug)?;
    let port = device.port(&arguments.elsewhere, &debug)?;
    match arguments.extensions.write_anywhere {
        Some(anywhere) => anywhere.surround(port, arguments.block_size.unwrap_or(4_096), arguments.on.seed),
        None => Ok(port),
    }
}

/// The figures of a background scan, after the load has run with it. The load runs once more without it.
fn scan_beside(
    arguments: &Arguments,
    device: &Device,
    beside: &mut ModelPort,
    simulated: &Simulated,
    asked: &EndFlag,
) -> Result<Option<BackgroundScan>, Failure> {
    let Some(when) = arguments.extensions.background_scan.filter(|_| !simulated.interrupted) else { return Ok(None) };
    let (load, _, _) = load(arguments, device, &beside.info().clone())?;
    let alone = simulate(arguments, &mut port(arguments, device)?, load, None, asked)?;
    if alone.interrupted {
        return Ok(None);
    }
    let alone = (&alone.foreground, &alone.summary.finish());
    end_scan(beside, when, &simulated.foreground, alone).map(Some)
}

/// The load, its name, and all options as they took effect.
fn load(
    arguments: &Arguments,
    device: &Device,
    info: &DeviceInfo,
) -> Result<(Load, String, BTreeMap<String, Value>), Failure> {
    if let Some(workload) = arguments.workload {
        if let Some(option) = arguments.trace_options.given().or_else(|| arguments.replay.given_of_trace()) {
            return Err(Failure::usage(format!("{option} needs --trace")));
        }
        let generated = GeneratedLoad {
            block_bytes: arguments.block_size,
            depth: arguments.depth,
            read_share: arguments.read_share,
            think_max: arguments.think_max,
            addresses: arguments.addresses,
            process: arguments.replay.process()?,
            ..GeneratedLoad::new(workload, arguments.requests, arguments.on.seed)
        };
        let (load, mut options) = generated.begin(info, device.state_file().is_some())?;
        options.extend(device_options(arguments));
        return Ok((load, workload.name().to_owned(), options));
    }
    if let Some(file) = &arguments.fio_job {
        return fio_load(arguments, info, file);
    }
    let how = arguments.replay.of_trace()?;
    let name = arguments.trace.as_deref().unwrap_or_default();
    let trace = block_trace::open(name, &arguments.trace_options)?;
    let mut options = device_options(arguments);
    let capacity_bytes = info.capacity_sectors * chronodisk_sim::SECTOR_BYTES;
    let common = [("seed", arguments.on.seed.into()), ("capacity_bytes", capacity_bytes.into())];
    options.extend(common.into_iter().chain(how.options()).map(|(name, value)| (name.to_owned(), value)));
    options.insert("trace".to_owned(), trace.path().display().to_string().into());
    if let Some(format) = trace.info().format {
        options.insert("trace_format".to_owned(), format.into());
    }
    if let Some(volume) = &arguments.trace_options.volume {
        options.insert("volume".to_owned(), volume.as_str().into());
    }
    if let Some(volumes) = &arguments.trace_options.volumes {
        options.insert("volumes".to_owned(), volumes.to_string().into());
    }
    if let Some(seed) = arguments.trace_options.spread {
        options.insert("spread_seed".to_owned(), seed.into());
    }
    Ok((Load::Traced(Box::new(Replayed::new(trace, info, how))), "trace".to_owned(), options))
}

fn fio_load(
    arguments: &Arguments,
    info: &DeviceInfo,
    file: &Path,
) -> Result<(Load, String, BTreeMap<String, Value>), Failure> {
    if let Some(option) = arguments.trace_options.given().or_else(|| arguments.replay.given()) {
        return Err(Failure::usage(format!("{option} can't be used with --fio-job")));
    }
    let jobs = FioLoad::open(file)?;
    let (load, mut options) = jobs.begin(info, arguments.on.seed)?;
    jobs.notes().iter().for_each(output::note);
    options.extend(device_options(arguments));
    Ok((load, "fio-job".to_owned(), options))
}

/// The options of the device, as they took effect.
fn device_options(arguments: &Arguments) -> BTreeMap<String, Value> {
    let mut options = BTreeMap::new();
    if let Some(server) = &arguments.elsewhere.server {
        options.insert("server".to_owned(), server.as_str().into());
    }
    if let Some(elevator) = &arguments.host_queue {
        options.insert("host_queue".to_owned(), elevator.as_str().into());
    }
    if let Some(speed) = arguments.on.device_speed {
        options.insert("device_speed".to_owned(), speed.factor().into());
    }
    if let Some(limit) = &arguments.on.limit {
        options.insert("limit".to_owned(), limit.as_str().into());
    }
    if !arguments.on.fault.is_empty() {
        options.insert("fault".to_owned(), arguments.on.fault.join(" ").into());
    }
    if let Some(when) = arguments.extensions.background_scan {
        options.insert("background_scan".to_owned(), when.name().into());
    }
    if let Some(anywhere) = arguments.extensions.write_anywhere {
        options.insert("write_anywhere_used".to_owned(), anywhere.used.into());
        options.insert("write_anywhere_places".to_owned(), anywhere.places.into());
    }
    if let Some(state) = &arguments.on.state {
        options.insert("state".to_owned(), state.display().to_string().into());
    }
    options
}

struct Simulated {
    summary: StreamedSummary,
    foreground: Foreground,
    /// Requests that the device answered with an error, by its name.
    failures: BTreeMap<&'static str, u64>,
    interrupted: bool,
    host_seconds: f64,
}

/// The log of the requests. If the result can't be written, the log is removed, too.
struct Log {
    writer: LogWriter,
    waiting: Vec<RequestRecord>,
    /// Dropped after the log. Removes the directory if the simulation failed.
    _directory: FreshDirectory,
}

impl Log {
    fn create(directory: &RunDirectory) -> Result<Self, Failure> {
        let fresh = directory.make_fresh()?;
        let writer = LogWriter::create(&directory.simulation_log()).map_err(Failure::host)?;
        Ok(Log { writer, waiting: Vec::with_capacity(PROGRESS_EVERY as usize), _directory: fresh })
    }

    fn add(&mut self, record: &RequestRecord) -> Result<(), Failure> {
        self.waiting.push(*record);
        if self.waiting.len() < PROGRESS_EVERY as usize { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.writer.append(&self.waiting).map_err(Failure::host)?;
        self.waiting.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.write()?;
        self.writer.finish().map_err(Failure::host)
    }
}

fn simulate(
    arguments: &Arguments,
    port: &mut ModelPort,
    load: Load,
    mut log: Option<&mut Log>,
    asked: &EndFlag,
) -> Result<Simulated, Failure> {
    let (mut unwritten, mut foreground) = (None, Foreground::default());
    let compares = arguments.extensions.background_scan.is_some();
    let mut summary = StreamedSummary::default();
    let mut failures = BTreeMap::new();
    let total = load.requests();
    let (ramp, mut measured_from) = (load.ramp(), None);
    let progress = total.map(|total| crate::progress::Progress::new(total, "requests"));
    let mut countdown = PROGRESS_EVERY;
    let begun = Instant::now();
    let mut stopped = false;
    let mut seen = |record: &RequestRecord| {
        if record.arrival >= *measured_from.get_or_insert(record.arrival.saturating_add(ramp)) {
            summary.add(record);
        }
        if compares {
            foreground.add(record);
        }
        if record.status != Status::Ok {
            *failures.entry(record.status.name()).or_default() += 1;
        }
        if let Some(Err(failure)) = log.as_mut().map(|log| log.add(record)) {
            unwritten.get_or_insert(failure);
            stopped = true;
            return ControlFlow::Break(());
        }
        countdown -= 1;
        if countdown > 0 {
            return ControlFlow::Continue(());
        }
        countdown = PROGRESS_EVERY;
        if let Some(progress) = &progress {
            progress.advance(PROGRESS_EVERY);
        }
        stopped |= asked.came();
        if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let notes = load.give_to(port, arguments.memory.limit(), &mut seen).map_err(|error| match error {
        LoadError::Load(error) => error.into(),
        LoadError::Model(fault) => model_lost(fault),
    })?;
    if let Some(failure) = unwritten {
        return Err(failure);
    }
    notes.iter().for_each(output::note);
    let host_seconds = begun.elapsed().as_secs_f64();
    if let Some(progress) = progress {
        progress.finish();
    }
    if let ModelPort::Remote(model) = port {
        model.fetch_statistics().map_err(model_lost)?;
        tell_of_link(model, summary.requests());
    }
    let interrupted = match total {
        Some(total) => summary.requests() < total,
        None => stopped,
    };
    Ok(Simulated { summary, foreground, failures, interrupted, host_seconds })
}

/// Reports errors of the device, whose requests are excluded from the figures.
fn tell_of_failures(failures: &BTreeMap<&'static str, u64>, requests: u64) {
    if failures.is_empty() {
        return;
    }
    let failed: u64 = failures.values().sum();
    let by_error: Vec<String> = failures.iter().map(|(error, count)| format!("{error} {count}")).collect();
    output::note(format_args!("warning: {failed} of {requests} requests failed: {}", by_error.join(", ")));
}

/// Cost of the connection to a remote model.
fn tell_of_link(model: &RemoteModel, requests: u64) {
    let (statistics, link) = model.statistics();
    let per_request = |count: u64| count as f64 / requests.max(1) as f64;
    output::note(format_args!(
        "external model: {:.3} round trips and {:.3} rollbacks per request, {} reconnections",
        per_request(link.round_trips),
        per_request(statistics.rollbacks),
        link.reconnections
    ));
}

/// Requests between two checks for progress and Ctrl-C; about a millisecond with simple models.
const PROGRESS_EVERY: u64 = 4096;
