//! `chronodisk validate`: a model beside a drive that was measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use chronodisk_device::{DeviceModel, Probe};
use chronodisk_engine::sim::{Issue, closed_loop};
use chronodisk_report::{Fidelity, ReportError, ServedTwice, plot_fidelity, write_text};
use chronodisk_run::device::{self, Device};
use chronodisk_run::memory::MemoryOptions;
use chronodisk_run::quantity;
use chronodisk_sim::{MeteredRead, Nanos, Op, Request};
use chronodisk_trace::{MeasuredRequest, read_measured};
use clap::Args;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Compares a device model with the trace of a measured drive
///
/// A drive whose profile has a table `[host-bus]` is compared on that bus: the bus of the computer that recorded the
/// trace.
///
/// Each request is issued after the previous one completes plus the pause that the drive's trace recorded. The
/// demerit is the root mean square of the horizontal distance between the two cumulative distributions of service
/// times.
#[derive(Debug, Args)]
#[command(
    after_help = "A trace has one line per request: R or W, class (Hit, Miss, Doub, Trip), first sector, number of\n\
    sectors, response time of the drive in µs, pause until the next request in µs.\n\n\
    Exit status: 1 if the demerit exceeds --max-demerit.\n\n\
    Example: chronodisk validate --device cheetah-9lp --trace cheetah9LP.trace --plot cheetah.svg"
)]
pub struct Arguments {
    /// Selects the device: a name from `chronodisk devices`, or a profile file
    #[arg(long, short, value_name = "PROFILE")]
    device: String,

    /// Replays this trace of the drive
    #[arg(long, short, value_name = "FILE")]
    trace: PathBuf,

    /// Seeds the device
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Ends with status 1 if the demerit exceeds this percentage of the measured mean
    #[arg(long, value_name = "PERCENT", value_parser = chronodisk_run::quantity::factor)]
    max_demerit: Option<f64>,

    /// Plots both distributions to this file
    #[arg(long, value_name = "FILE.svg", value_parser = quantity::svg_file)]
    plot: Option<PathBuf>,

    /// Writes both times of each request, and the model's counters for it, to this CSV file
    #[arg(long, value_name = "FILE.csv")]
    per_request: Option<PathBuf>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    memory: MemoryOptions,
}

/// Upper bound of a request's memory as a multiple of its line's length, results included.
const MEASURED_FACTOR: u64 = 32;

/// Replays, and writes the figures.
pub fn execute(arguments: Arguments) -> Outcome {
    let device = device::load(&arguments.device, None, arguments.seed)?.on_host_bus();
    if device.has_host_bus() {
        output::note(format_args!("{} is compared on the bus of its profile's [host-bus]", device.name()));
    }
    let file = arguments.trace.display().to_string();
    let opened = File::open(&arguments.trace).map_err(|error| Failure::usage(format!("{file}: {error}")))?;
    let metered = MeteredRead::new(opened, MEASURED_FACTOR, arguments.memory.limit());
    let trace = read_measured(BufReader::new(metered), &file).map_err(Failure::usage)?;
    let served = replay(&device, &trace).map_err(|error| error.help(format!("the trace is {file}")))?;
    let (served, counted): (Vec<ServedTwice>, Vec<Counters>) = served.into_iter().unzip();
    let fidelity = Fidelity::of(device.name(), &file, &served).expect("a trace has requests");
    if let Some(path) = &arguments.plot {
        plot_fidelity(path, &fidelity, &served).map_err(failed)?;
    }
    if let Some(path) = &arguments.per_request {
        write_text(path, &table(&trace, &served, &counted), true).map_err(failed)?;
    }
    output::data(&if arguments.json { fidelity.to_json() } else { fidelity.render() })?;
    match arguments.max_demerit.filter(|&most| fidelity.all.demerit_percent > most) {
        Some(most) => {
            output::note(format_args!("the demerit of {:.2} % exceeds {most} %", fidelity.all.demerit_percent));
            Ok(status::CHECK_FAILED)
        }
        None => Ok(status::FINE),
    }
}

/// Counters of a model by their names.
#[derive(Clone, Debug, Default)]
struct Counters(BTreeMap<String, u64>);

impl Counters {
    fn of(model: &dyn DeviceModel) -> Counters {
        let mut counters = Counters::default();
        model.probe(&mut counters);
        counters
    }

    /// Counts since `earlier`.
    fn since(&self, earlier: &Counters) -> Counters {
        let before = |name| earlier.0.get(name).copied().unwrap_or(0);
        Counters(self.0.iter().map(|(name, &count)| (name.clone(), count.saturating_sub(before(name)))).collect())
    }
}

impl Probe for Counters {
    fn counter(&mut self, name: &str, value: u64) {
        self.0.insert(name.to_owned(), value);
    }

    fn gauge(&mut self, _: &str, _: &str, _: f64) {}
}

/// The model's times for each request of the trace, and its counters meanwhile.
fn replay(device: &Device, trace: &[MeasuredRequest]) -> Result<Vec<(ServedTwice, Counters)>, Failure> {
    let capacity_sectors = device.info().capacity_sectors;
    for (index, request) in trace.iter().enumerate() {
        if request.lba.0 + u64::from(request.sectors) > capacity_sectors {
            return Err(Failure::usage(format!(
                "request {} of the trace is for {} sectors from sector {}, but {} has only {capacity_sectors} sectors",
                index + 1,
                request.sectors,
                request.lba.0,
                device.name(),
            )));
        }
    }
    let mut model = device.model()?;
    let mut counted = Counters::of(&*model);
    // The pause after a request is the pause before the next one.
    let mut think = Nanos::ZERO;
    let mut served = Vec::with_capacity(trace.len());
    for request in trace {
        let issue = Issue { request: Request::new(0, request.op, request.lba.0, request.sectors), think };
        let records = closed_loop(&mut *model, [issue], 1).map_err(Failure::usage)?;
        let simulated = records[0].due.saturating_sub(records[0].arrival);
        let now = Counters::of(&*model);
        served.push((ServedTwice { op: request.op, measured: request.response, simulated }, now.since(&counted)));
        counted = now;
        think = request.think_after;
    }
    Ok(served)
}

/// Both times of each request, and a column for each counter of the model.
fn table(trace: &[MeasuredRequest], served: &[ServedTwice], counted: &[Counters]) -> String {
    let mut text = "operation,lba,sectors,measured_ns,simulated_ns,think_ns".to_owned();
    for name in counted.first().into_iter().flat_map(|counters| counters.0.keys()) {
        text.push(',');
        text.push_str(name);
    }
    text.push('\n');
    for ((request, served), counters) in trace.iter().zip(served).zip(counted) {
        let operation = if request.op == Op::Read { "read" } else { "write" };
        let _ = write!(
            text,
            "{operation},{},{},{},{},{}",
            request.lba.0,
            request.sectors,
            served.measured.as_nanos(),
            served.simulated.as_nanos(),
            request.think_after.as_nanos()
        );
        for count in counters.0.values() {
            let _ = write!(text, ",{count}");
        }
        text.push('\n');
    }
    text
}

fn failed(error: ReportError) -> Failure {
    Failure::host(error)
}
