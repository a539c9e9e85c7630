//! `chronodisk calibrate`: charges for the guest's work on this machine, and the resulting accuracy of guests.

mod check;

use std::ffi::OsString;
use std::time::Duration;

use chronodisk_guest::calibration::{self, Calibration, HeldSignals, Measured, PROBES};
use chronodisk_guest::{
    CPU_SPEED_DEFAULT, DeviceOptions, FileSystem, GuestTime, IdlePace, KernelCosts, MeasuredCpu, ModelChoice,
    QUANTUM_DEFAULT, RunError, RunOptions, StoppingCpu, StoreChoice, Work,
};
use chronodisk_run::memory::host_memory_bytes;
use chronodisk_run::{guest_failure, quantity};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome, status};
use crate::progress::Working;
use crate::{output, version};

/// Measures the cost of system calls in a guest against this host's
///
/// System calls in a guest cost several times their native cost, each kind by another factor. The command runs small
/// programs natively and in a guest and keeps the factors in your cache. `chronodisk run --clock guest` uses them on
/// this processor with this kernel.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk calibrate && chronodisk calibrate --check")]
pub struct Arguments {
    /// Compares run times of whole programs in a guest, on a device without delays, with native ones. A difference of
    /// more than 10 % ends with status 1
    #[arg(long)]
    check: bool,

    /// Limits --check to this program; may be repeated
    #[arg(long, value_name = "NAME", requires = "check", value_parser = PossibleValuesParser::new(check::names()))]
    program: Vec<String>,

    /// Checks guests with this number of processors, against native run times on as many. Only programs that use
    /// several are run, unless --program names others. Experimental beyond 1
    #[arg(long, value_name = "N", default_value_t = 1, requires = "check", value_parser = quantity::processors)]
    cpus: usize,

    /// Checks this one factor on all CPU time of the guest's kernel instead of the costs by kind, as run --kernel-scale
    #[arg(long, value_name = "F", requires = "check", value_parser = quantity::kernel_scale)]
    kernel_scale: Option<f64>,

    /// Runs each program this number of times and uses the shortest (default: 6), or the median with --check (default:
    /// 3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    reps: Option<u32>,

    /// Deletes the kept factors
    #[arg(long, conflicts_with_all = ["check", "reps", "json"])]
    forget: bool,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Calibrates, checks or forgets.
pub fn execute(arguments: Arguments) -> Outcome {
    if arguments.forget {
        return forget();
    }
    let _held = HeldSignals::hold().map_err(Failure::host)?;
    if arguments.check {
        return check::execute(&arguments);
    }
    let options = guest(Vec::new(), FileSystem::None, 1, kept_costs(1))?;
    // Its thread must be started while signals are blocked, and inherits that: signals are for the running programs.
    let working = Working::at("starting");
    let mut tell = |title: &str| {
        output::note(title);
        working.now_at(title);
    };
    let calibration = match calibration::calibrate(&options, arguments.reps.unwrap_or(REPS), &mut tell) {
        Ok(calibration) => calibration,
        Err(RunError::Interrupted { signal }) => return Ok(interrupted(signal)),
        Err(error) => return Err(guest_failure(error)),
    };
    drop(working);
    let file =
        calibration::keep(&calibration).map_err(|error| Failure::host(format!("can't keep the result: {error}")))?;
    if arguments.json {
        output::json(&with_errors(&calibration))?;
    } else {
        output::data(&table(&calibration))?;
    }
    if let Some(share) = calibration.halves_differ.filter(|&share| share > HALVES_DIFFER_MAX) {
        output::note(format_args!(
            "warning: the costs of one half of the runs are up to {:.0} % off those of the other half, so something \
             else ran on this machine; calibrate again when it is quiet, or use the built-in costs (--forget)",
            share * 100.0
        ));
    }
    output::note(format_args!("kept in {}", file.display()));
    Ok(status::FINE)
}

/// Runs of each probe, three for each half.
const REPS: u32 = 6;
/// Halves that differ by more than this share say that the result depends on the moment. The loads of --check are to be
/// within 0.8 to 1.25 of their native time.
const HALVES_DIFFER_MAX: f64 = 0.25;

/// The status of a command that a signal has ended.
fn interrupted(signal: i32) -> u8 {
    output::note("interrupted; no calibration was kept");
    128 + signal as u8
}

fn forget() -> Outcome {
    match calibration::file().map(std::fs::remove_file) {
        Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::host(format!("can't delete the calibration: {error}")))
        }
        _ => Ok(status::FINE),
    }
}

/// This machine's calibrated costs, or the built-in ones without a calibration. Calibrated costs are for a kernel with
/// one processor, which traces its programs.
fn kept_costs(processors: usize) -> KernelCosts {
    let kept = if processors == 1 { calibration::kept() } else { None };
    kept.map(|kept| kept.costs).unwrap_or_default()
}

/// A guest on a device that takes no time.
fn guest(
    command: Vec<OsString>,
    file_system: FileSystem,
    processors: usize,
    costs: KernelCosts,
) -> Result<RunOptions, Failure> {
    let profile = chronodisk_run::device::find("null")?;
    let model = ModelChoice::Profile { text: profile.text().to_owned(), label: profile.name().to_owned() };
    let store = StoreChoice::Ram { budget_bytes: host_memory_bytes() / 2 };
    let device = DeviceOptions { capacity_bytes: Some(DEVICE_BYTES), ..DeviceOptions::new(model, store) };
    let (cpu, idle) = (MeasuredCpu { costs, speed: CPU_SPEED_DEFAULT }, IdlePace::Jump);
    let time = match processors {
        1 => GuestTime::Stopping { cpu: StoppingCpu::Measured(cpu), idle },
        processors => GuestTime::Several { cpu, processors, quantum: QUANTUM_DEFAULT, idle },
    };
    Ok(RunOptions {
        file_system,
        mount_point: MOUNT_POINT.to_owned(),
        start_time: Some(Duration::from_secs(START_SECONDS)),
        settle: false,
        stdout_to_stderr: true,
        ends_by_signal: true,
        ..RunOptions::new(version::executable(), device, time, command)
    })
}

const MOUNT_POINT: &str = "/mnt";
const DEVICE_BYTES: u64 = 1 << 30;
/// Any: make(1) wants the dates of files to be before its own.
const START_SECONDS: u64 = 4_000_000_000;

/// Times of a probe per repetition, in microseconds: native, with a single factor, and calibrated.
fn microseconds(measured: &Measured, costs: &KernelCosts) -> (f64, f64, f64) {
    let times = PROBES.iter().find(|probe| probe.name == measured.name).map_or(1, |probe| probe.times);
    let each = |nanos: f64| nanos / 1e3 / f64::from(times);
    let uniform = measured.charged_nanos(&KernelCosts::default());
    (each(measured.native_nanos), each(uniform), each(measured.charged_nanos(costs)))
}

fn table(calibration: &Calibration) -> String {
    let mut text = format!("{:<38}{:>12}{:>14}{:>12}\n", "microseconds", "native", "uncalibrated", "calibrated");
    for measured in &calibration.probes {
        let title = PROBES.iter().find(|probe| probe.name == measured.name).map_or("", |probe| probe.title);
        let (native, uniform, fitted) = microseconds(measured, &calibration.costs);
        text += &format!("{title:<38}{native:>12.2}{uniform:>14.2}{fitted:>12.2}\n");
    }
    text += &format!("\n{:<38}{:>12}{:>14}{:>12}\n", "work of the kernel counts", "less, ns", "more, ns", "times");
    for (work, cost) in Work::ALL.into_iter().zip(&calibration.costs.works) {
        text +=
            &format!("{:<38}{:>12}{:>14}{:>12.3}\n", work.name(), cost.taken_off_nanos, cost.added_nanos, cost.scale);
    }
    if let Some(requests) = calibration.costs.requests {
        for (name, nanos) in [
            ("a request's submission counts, ns", requests.submission_nanos),
            ("its completion", requests.completion_nanos),
            ("a wake-up for it", requests.wake_up_nanos),
        ] {
            text += &format!("{name:<38}{nanos:>12}\n");
        }
    }
    text += &format!("{:<38}{:>12}\n", "taken off at a page fault", calibration.costs.fault_extra_nanos);
    text += &format!("{:<38}{:>12}\n", "taken off at a time stamp counter", calibration.costs.tsc_extra_nanos);
    text
}

fn with_errors(calibration: &Calibration) -> Value {
    let mut value = json!(calibration);
    for (index, measured) in calibration.probes.iter().enumerate() {
        let (native, uniform, fitted) = microseconds(measured, &calibration.costs);
        value["probes"][index]["native_us"] = json!(native);
        value["probes"][index]["uncalibrated_us"] = json!(uniform);
        value["probes"][index]["calibrated_us"] = json!(fitted);
    }
    value
}
