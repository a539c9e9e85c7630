//! `chronodisk simulate`: a generated workload on a device model, without a guest.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use chronodisk_device::Speed;
use chronodisk_engine::ModelPort;
use chronodisk_engine::remote::RemoteModel;
use chronodisk_engine::sim::{Issue, SimulationError, closed_loop_streaming_at};
use chronodisk_report::{SIMULATION_SCHEMA, Simulation, StreamedSummary, render_simulation};
use chronodisk_sim::{Nanos, RequestRecord, Status};
use chronodisk_trace::{Generator, GeneratorOptions, Workload, Zones};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::Value;

use crate::device::{self, Device};
use crate::elsewhere::{Elsewhere, lost};
use crate::failure::{Failure, Outcome, status};
use crate::{output, quantity, runs, stored};

/// Runs a generated workload on a device model, without a guest
///
/// The workload is a closed loop: --depth requests are outstanding at any time, and each completion starts the next
/// request. Equal options give identical results.
#[derive(Debug, Args)]
#[command(after_help = "Ctrl-C ends the simulation with the results so far and exit status 130.\n\n\
    Example: chronodisk simulate --device first-disk --workload random-read --block-size 16KiB --depth 32")]
pub struct Arguments {
    /// Selects the device: a name from `chronodisk devices`, a profile file, or exec:COMMAND for a program that is
    /// the model
    #[arg(long, short, value_name = "PROFILE", required_unless_present = "server")]
    device: Option<String>,

    #[command(flatten)]
    elsewhere: Elsewhere,

    /// Selects the workload; the first six are defined by Griffin et al., FAST 2002, section 5.1
    #[arg(long, short, value_name = "NAME", value_parser = workload_parser())]
    workload: Workload,

    /// Issues this number of requests
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,

    /// Seeds the workload and the device
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

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

    /// Sets the capacity of the device, such as 8GiB (default: the profile's). If it exceeds the drive's, several
    /// drives are concatenated
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    capacity: Option<u64>,

    /// Starts the device in the state in this file, made by `chronodisk age` (default: a new device)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host_queue", "server"])]
    state: Option<PathBuf>,

    /// Sets the speed of the device relative to its profile, such as 2x or 0.5x (default: 1x). The queue of
    /// --host-queue has this speed, too
    #[arg(long, value_name = "FACTOR", value_parser = quantity::device_speed)]
    device_speed: Option<Speed>,

    /// Adds the request queue of a host's kernel with this elevator: merging, plugging and a limited queue, as in
    /// David (ACM TOS 2012)
    #[arg(long, value_name = "ELEVATOR", value_parser = ["noop", "deadline", "cfq", "c-look"])]
    host_queue: Option<String>,

    /// Writes the result and the log of all requests to this directory
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn workload_parser() -> impl TypedValueParser<Value = Workload> {
    let names = Workload::ALL.map(|workload| PossibleValue::new(workload.name()).help(workload.description()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Workload>())
}

/// Simulates, and writes the figures.
pub fn execute(arguments: Arguments) -> Outcome {
    let name = arguments.device.as_deref();
    let device = match (&arguments.host_queue, name) {
        (None, name) => device::load_anywhere(name, &arguments.elsewhere, arguments.capacity, arguments.seed)?,
        (Some(elevator), Some(name)) => {
            device::load_behind_host_queue(name, elevator, arguments.capacity, arguments.seed)?
        }
        (Some(_), None) => return Err(Failure::usage("--host-queue needs --device")),
    };
    let device = device.begin_in(arguments.state.as_deref())?.at_speed(arguments.device_speed, &arguments.elsewhere)?;
    let generator = generator(&arguments, &device)?;
    let options = options(&arguments, generator.options());
    let directory = match &arguments.output {
        Some(directory) => Some(runs::plan(Some(directory), "")?),
        None => None,
    };

    let simulated = simulate(&arguments, &device, generator)?;
    let summary = simulated.summary.finish();
    let simulation = Simulation {
        schema: SIMULATION_SCHEMA.to_owned(),
        device: device.name().to_owned(),
        workload: arguments.workload.name().to_owned(),
        options,
        requests: summary.requests,
        simulated_s: summary.window_ns.as_secs_f64(),
        iops: summary.iops,
        mb_per_s: summary.mb_per_s,
        latency_us: summary.service_time_us,
        summary,
    };
    if let Some(directory) = &directory {
        runs::make(directory)?;
        stored::write_simulation(directory, &simulation, &device, &simulated.records)?;
    }
    if arguments.json {
        output::data(&simulation.to_json())?;
    } else {
        output::data(&render_simulation(&simulation))?;
    }
    let done = if simulated.interrupted {
        format!("interrupted after {} of {} requests", simulation.requests, arguments.requests)
    } else {
        format!("{} requests", simulation.requests)
    };
    tell_of_failures(&simulated.failures, simulation.requests);
    let per_second = simulation.requests as f64 / simulated.host_seconds.max(1e-9);
    output::note(format_args!("{done}, simulated in {:.3} s: {per_second:.0} requests/s", simulated.host_seconds));
    Ok(if simulated.interrupted { status::INTERRUPTED } else { status::FINE })
}

fn generator(arguments: &Arguments, device: &Device) -> Result<Generator, Failure> {
    let workload = arguments.workload;
    if arguments.block_size.is_some() && !workload.uses_block_bytes() {
        return Err(Failure::usage(format!(
            "workload {workload} defines its request sizes; --block-size can't be used"
        ))
        .help("for requests of a fixed size, use random-read, random-write, random-mixed, seq-read or seq-write"));
    }
    if arguments.read_share.is_some() && !reads_and_writes(workload) {
        return Err(Failure::usage(format!(
            "workload {workload} has only one kind of request; --read-share can't be used"
        ))
        .help("for a mix of reads and writes, use random-mixed"));
    }
    let info = device.info();
    let defaults = GeneratorOptions::new(workload, info.capacity_sectors, arguments.seed, arguments.requests);
    let options = GeneratorOptions {
        block_bytes: arguments.block_size.unwrap_or(defaults.block_bytes),
        read_share: arguments.read_share.unwrap_or(defaults.read_share),
        align_sectors: info.logical_block_bytes / chronodisk_sim::SECTOR_BYTES as u32,
        think_max: arguments.think_max,
        zones: info.zones.map(|zones| Zones {
            size_sectors: zones.size_sectors,
            capacity_sectors: zones.capacity_sectors,
            written: device.state_file().is_some(),
        }),
        ..defaults
    };
    Generator::new(options).map_err(Failure::usage)
}

fn reads_and_writes(workload: Workload) -> bool {
    !workload.uses_block_bytes() || workload == Workload::RandomMixed
}

/// All options as they took effect, for the result.
fn options(arguments: &Arguments, generator: &GeneratorOptions) -> BTreeMap<String, Value> {
    let mut options: BTreeMap<String, Value> = [
        ("requests", Value::from(arguments.requests)),
        ("seed", arguments.seed.into()),
        ("depth", arguments.depth.into()),
        ("think_max_ns", arguments.think_max.as_nanos().into()),
        ("capacity_bytes", (generator.capacity_sectors * chronodisk_sim::SECTOR_BYTES).into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if let Some(server) = &arguments.elsewhere.server {
        options.insert("server".to_owned(), server.as_str().into());
    }
    if let Some(elevator) = &arguments.host_queue {
        options.insert("host_queue".to_owned(), elevator.as_str().into());
    }
    if let Some(speed) = arguments.device_speed {
        options.insert("device_speed".to_owned(), speed.factor().into());
    }
    if let Some(state) = &arguments.state {
        options.insert("state".to_owned(), state.display().to_string().into());
    }
    if reads_and_writes(arguments.workload) {
        options.insert("read_share".to_owned(), generator.read_share.into());
    }
    if arguments.workload.uses_block_bytes() {
        options.insert("block_size_bytes".to_owned(), generator.block_bytes.into());
    }
    options
}

struct Simulated {
    summary: StreamedSummary,
    /// The log, if it is to be kept.
    records: Vec<RequestRecord>,
    /// Requests that the device answered with an error, by its name.
    failures: BTreeMap<&'static str, u64>,
    interrupted: bool,
    host_seconds: f64,
}

fn simulate(arguments: &Arguments, device: &Device, generator: Generator) -> Result<Simulated, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // A second Ctrl-C ends the process at once, should the first not get through.
    signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, interrupted.clone())
        .and_then(|_| signal_hook::flag::register(signal_hook::consts::SIGINT, interrupted.clone()))
        .map_err(|error| Failure::host(format!("can't catch Ctrl-C: {error}")))?;

    let mut port = device.port(&arguments.elsewhere)?;
    let requests = generator
        .map(|generated| Issue { request: generated.request(chronodisk_sim::RequestId(0)), think: generated.think });
    let keep = arguments.output.is_some();
    let mut records = Vec::new();
    let mut summary = StreamedSummary::default();
    let mut failures = BTreeMap::new();
    let progress = output::Progress::new(arguments.requests, "requests");
    let mut countdown = PROGRESS_EVERY;
    let begun = Instant::now();
    closed_loop_streaming_at(&mut port, requests, arguments.depth, |record| {
        summary.add(record);
        if record.status != Status::Ok {
            *failures.entry(record.status.name()).or_default() += 1;
        }
        if keep {
            records.push(*record);
        }
        countdown -= 1;
        if countdown > 0 {
            return ControlFlow::Continue(());
        }
        countdown = PROGRESS_EVERY;
        progress.advance(PROGRESS_EVERY);
        if interrupted.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .map_err(|error| match error {
        SimulationError::Model(fault) => lost(fault),
        error => Failure::usage(error),
    })?;
    let host_seconds = begun.elapsed().as_secs_f64();
    progress.finish();
    if let ModelPort::Remote(model) = &mut port {
        model.fetch_statistics().map_err(lost)?;
        tell_of_link(model, summary.requests());
    }
    let interrupted = summary.requests() < arguments.requests;
    Ok(Simulated { summary, records, failures, interrupted, host_seconds })
}

/// Which errors the device answered with: figures of requests that failed are none of its work.
fn tell_of_failures(failures: &BTreeMap<&'static str, u64>, requests: u64) {
    if failures.is_empty() {
        return;
    }
    let failed: u64 = failures.values().sum();
    let by_error: Vec<String> = failures.iter().map(|(error, count)| format!("{error} {count}")).collect();
    output::note(format_args!("warning: {failed} of {requests} requests failed: {}", by_error.join(", ")));
}

/// What the connection to a model that is elsewhere cost.
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

/// Requests between two looks at the progress and at Ctrl-C; a millisecond's worth for simple models.
const PROGRESS_EVERY: u64 = 4096;
