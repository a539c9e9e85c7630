//! `chronodisk calibrate --check`: whole programs in a guest on a device that takes no time, and natively in memory.
//!
//! Natively a program's CPU time on one processor is its run time on an otherwise idle one, but for the times that it
//! sleeps. Its run time on all processors, which the table has as well, is longer on a busy machine and shorter for
//! parallel programs. The run time in the guest, which has one processor, without its idle time is compared with the
//! native CPU time on one.
//! A guest with several processors is compared with the native run time on as many, which needs an idle host.
//!
//! Both sides run in turn, and the ratio of each pair counts, because the host's speed drifts. Both work in an ext4 if
//! this process may mount one natively, otherwise in tmpfs.

mod loads;
mod pairs;
mod programs;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use chronodisk_guest::calibration::{self, NativeFolder, NativeRun, Processors, native_run};
use chronodisk_guest::{FileSystem, KernelCosts, RunError, RunOutcome, Stage, Work};
use chronodisk_run::guest_failure;
use serde::Serialize;

use self::pairs::{STOLEN_SHARE_MAX, Stolen, median_and_interval, median_and_range};
use self::programs::{PROGRAMS, Program};
use super::{Arguments, MOUNT_POINT, guest, interrupted, kept_costs};
use crate::failure::{Failure, Outcome, status};
use crate::output;
use crate::progress::Working;

/// Version of the JSON.
const SCHEMA: &str = "chronodisk.calibration-check/6";
/// Default number of runs of each program on either side.
const REPS: u32 = 3;
/// Beyond this a program's run time is not credible.
const ERROR_MAX_PERCENT: f64 = 10.0;

/// Bound with several processors: their clocks differ by up to a quantum, and native run times are noisy.
const ERROR_MAX_PERCENT_PARALLEL: f64 = 15.0;
/// Runs of a pair, when stolen time spoils each. The last one counts.
const ATTEMPTS_MAX: u32 = 5;

/// Names of the programs, and of loads that are the kernel's own work.
pub fn names() -> Vec<&'static str> {
    PROGRAMS.iter().map(|program| program.name).chain(loads::NAMES).collect()
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    calibrated: bool,
    /// The one factor that was checked instead of the costs by kind.
    kernel_scale: Option<f64>,
    reps: u32,
    /// Processors of the guests and of the native runs.
    processors: usize,
    /// File system in which the programs work, on both sides.
    file_system: &'static str,
    error_max_percent: f64,
    programs: Vec<Row>,
    /// Kernel work is credible between these ratios of guest to native CPU time.
    load_ratio_min: f64,
    load_ratio_max: f64,
    loads: Vec<loads::LoadRow>,
    skipped: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    program: &'static str,
    /// Medians, and the least and the greatest, in seconds.
    native_cpu_s: [f64; 3],
    native_run_s: [f64; 3],
    guest_run_s: [f64; 3],
    /// Median of the pairs' errors: the guest's run time without its idle time relative to the native CPU time (with
    /// several processors: run time with idle time), in per cent.
    error_percent: f64,
    /// Interval that covers the median of such errors,
    error_interval_percent: [f64; 2],
    /// with this confidence.
    interval_confidence: f64,
    /// Pairs that were run again because of stolen time.
    pairs_repeated: u32,
    /// Largest share of stolen time in a pair that counts.
    stolen_share_max: f64,
    /// Parts of that CPU time, as medians: of the programs and of the kernel, divided by the host's ticks.
    native_user_s: f64,
    native_system_s: f64,
    native_page_faults: u64,
    /// The guest's run of median length.
    guest: GuestRun,
}

/// Components of a run time in the guest.
#[derive(Clone, Debug, Serialize)]
struct GuestRun {
    run_s: f64,
    /// CPU time of the programs' own code.
    user_s: f64,
    /// Cost of their stops, which does not count.
    stops_taken_off_s: f64,
    stops: u64,
    /// Charge for the kernel's CPU time.
    kernel_s: f64,
    /// CPU time after idle time, without a kind of work.
    kernel_other_s: f64,
    /// Skipped because no task ran.
    idle_s: f64,
    work: Vec<GuestWork>,
}

/// Work of one kind.
#[derive(Clone, Debug, Serialize)]
struct GuestWork {
    kind: &'static str,
    count: u64,
    cpu_s: f64,
    /// Charge for `count` pieces of work with their mean CPU time.
    counted_s: f64,
}

impl GuestRun {
    fn of(outcome: &RunOutcome) -> Self {
        let (before, after) = &outcome.counters_at;
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let run_s = calibration::run_time(outcome).as_secs_f64();
        let user_s = seconds(after.user_cpu_nanos.saturating_sub(before.user_cpu_nanos));
        let idle_s = seconds(after.jumped_nanos.saturating_sub(before.jumped_nanos));
        let costs = outcome.clock.time.measured_cpu().expect("these guests' CPU time is measured").costs;
        let work: Vec<GuestWork> = Work::ALL
            .into_iter()
            .map(|kind| {
                let worked = outcome.worked[kind as usize];
                let counted_s = costs.counts_nanos(kind, worked) / 1e9;
                GuestWork { kind: kind.name(), count: worked.count, cpu_s: seconds(worked.cpu_nanos), counted_s }
            })
            .collect();
        let kernel_s = (run_s - user_s - idle_s).max(0.0);
        GuestRun {
            run_s,
            user_s,
            stops_taken_off_s: seconds(after.trap_overhead_nanos.saturating_sub(before.trap_overhead_nanos)),
            stops: after.traps.saturating_sub(before.traps),
            kernel_s,
            kernel_other_s: (kernel_s - work.iter().map(|work| work.counted_s).sum::<f64>()).max(0.0),
            idle_s,
            work,
        }
    }
}

/// Runs the programs that were named, or all.
pub fn execute(arguments: &Arguments) -> Outcome {
    let (names, reps, processors) = (&arguments.program, arguments.reps.unwrap_or(REPS), arguments.cpus);
    let costs = arguments.kernel_scale.map_or_else(|| kept_costs(processors), KernelCosts::uniform);
    let folder =
        NativeFolder::make().map_err(|error| Failure::host(format!("can't create a directory in memory: {error}")))?;
    let calibrated = processors == 1 && calibration::kept().is_some();
    let mut report = Report {
        schema: SCHEMA,
        calibrated,
        kernel_scale: arguments.kernel_scale,
        reps,
        processors,
        file_system: file_system_name(folder.file_system()),
        error_max_percent: if processors == 1 { ERROR_MAX_PERCENT } else { ERROR_MAX_PERCENT_PARALLEL },
        programs: Vec::new(),
        load_ratio_min: loads::RATIO_MIN,
        load_ratio_max: loads::RATIO_MAX,
        loads: Vec::new(),
        skipped: Vec::new(),
    };
    if !calibrated && processors == 1 && arguments.kernel_scale.is_none() {
        output::note(
            "this machine is not calibrated, so the built-in costs are checked; run `chronodisk calibrate` first",
        );
    }
    let is_asked_for = |asked: &str| names.iter().any(|name| name == asked);
    // Its thread must be started while signals are blocked, and inherits that: signals are for the running programs.
    let working = Working::at("starting");
    let begin = |name: &str| {
        output::note(name);
        working.now_at(name);
    };
    let setting = Setting { folder: &folder, processors, costs: &costs };
    let by_default = |program: &Program| names.is_empty() && (processors == 1 || program.parallel);
    for program in PROGRAMS.iter().filter(|program| by_default(program) || is_asked_for(program.name)) {
        if let Some(missing) = program.missing() {
            output::note(format_args!("{} is skipped: {missing} is not installed", program.name));
            report.skipped.push(program.name.to_owned());
            continue;
        }
        begin(program.name);
        match row(program, &setting, reps) {
            Ok(row) => report.programs.push(row),
            Err(RunError::Interrupted { signal }) => return Ok(interrupted(signal)),
            Err(error) => return Err(guest_failure(error)),
        }
    }
    let all_loads = names.is_empty() && processors == 1;
    for load in loads::LOADS.iter().filter(|load| all_loads || is_asked_for(load.name)) {
        begin(load.name);
        match loads::measure(load, reps, processors, &costs) {
            Ok(Some(row)) => report.loads.push(row),
            Ok(None) => report.skipped.push(load.name.to_owned()),
            Err(RunError::Interrupted { signal }) => return Ok(interrupted(signal)),
            Err(error) => return Err(guest_failure(error)),
        }
    }
    drop(working);
    if arguments.json {
        output::json(&report)?;
    } else {
        output::data(&table(&report))?;
    }
    let beyond = report.programs.iter().any(|row| row.error_percent.abs() > report.error_max_percent)
        || report.loads.iter().any(|row| !row.is_credible());
    Ok(if beyond { status::CHECK_FAILED } else { status::FINE })
}

fn file_system_name(native: FileSystem) -> &'static str {
    if native == FileSystem::None { "tmpfs" } else { native.name() }
}

/// Conditions of both sides.
struct Setting<'a> {
    folder: &'a NativeFolder,
    processors: usize,
    costs: &'a KernelCosts,
}

/// A native run and a guest's.
struct Pair {
    native: NativeRun,
    guest: GuestRun,
    stolen_share: f64,
}

impl Pair {
    /// Runs both sides, in either order, so that a drift of the host's speed favours neither.
    fn run(program: &Program, setting: &Setting<'_>, guest_first: bool) -> Result<Self, RunError> {
        let stolen = Stolen::since_now();
        let guest = if guest_first { Some(in_guest(program, setting)?) } else { None };
        let native = natively(program, setting, Processors::Only(setting.processors))?;
        let guest = guest.map_or_else(|| in_guest(program, setting), Ok)?;
        Ok(Pair { native, guest, stolen_share: stolen.share() })
    }

    /// Error of the guest's run time, in per cent. Native CPU time has no sleep, as some programs (rsync) do.
    fn error_percent(&self, processors: usize) -> f64 {
        let (native, guest_s) = match processors {
            1 => (self.native.cpu(), self.guest.run_s - self.guest.idle_s),
            _ => (self.native.wall, self.guest.run_s),
        };
        100.0 * (guest_s / native.as_secs_f64() - 1.0)
    }
}

fn row(program: &Program, setting: &Setting<'_>, reps: u32) -> Result<Row, RunError> {
    let (mut pairs, mut alls, mut pairs_repeated) = (Vec::new(), Vec::new(), 0);
    for number in 0..reps {
        let mut pair = Pair::run(program, setting, number % 2 == 1)?;
        for _ in 1..ATTEMPTS_MAX {
            if pair.stolen_share <= STOLEN_SHARE_MAX {
                break;
            }
            pairs_repeated += 1;
            pair = Pair::run(program, setting, number % 2 == 1)?;
        }
        pairs.push(pair);
        alls.push(natively(program, setting, Processors::All)?.wall.as_secs_f64());
    }
    let of_natives = |part: fn(&NativeRun) -> Duration| {
        median_and_range(pairs.iter().map(|pair| part(&pair.native).as_secs_f64()).collect())
    };
    let errors = pairs.iter().map(|pair| pair.error_percent(setting.processors)).collect();
    let (error_percent, error_interval_percent, interval_confidence) = median_and_interval(errors);
    let mut guests: Vec<&GuestRun> = pairs.iter().map(|pair| &pair.guest).collect();
    guests.sort_by(|a, b| a.run_s.total_cmp(&b.run_s));
    Ok(Row {
        program: program.name,
        native_cpu_s: of_natives(NativeRun::cpu),
        native_run_s: median_and_range(alls),
        guest_run_s: median_and_range(guests.iter().map(|guest| guest.run_s).collect()),
        error_percent,
        error_interval_percent,
        interval_confidence,
        pairs_repeated,
        stolen_share_max: pairs.iter().map(|pair| pair.stolen_share).fold(0.0, f64::max),
        native_user_s: of_natives(|run| run.user)[0],
        native_system_s: of_natives(|run| run.system)[0],
        native_page_faults: pairs[0].native.faults,
        guest: guests[guests.len() / 2].clone(),
    })
}

fn natively(program: &Program, setting: &Setting<'_>, processors: Processors) -> Result<NativeRun, RunError> {
    let work = setting.folder.path().join("work");
    fs::create_dir(&work).map_err(|source| RunError::Io { doing: "making a folder", source })?;
    let words = words(program, &work, setting.processors);
    let mut command = Command::new(&words[0]);
    // The result has the standard output to itself, as beside a guest.
    command.args(&words[1..]).stdin(Stdio::null()).stdout(io::stderr());
    let took = native_run(&mut command, processors);
    fs::remove_dir_all(&work).map_err(|source| RunError::Io { doing: "emptying a folder", source })?;
    took
}

/// The words that run a program in a folder. A make(1) that runs the check must not pass its options to the program's.
fn words(program: &Program, work: &Path, processors: usize) -> Vec<OsString> {
    let script = format!("set -e\nunset MAKEFLAGS MAKELEVEL MFLAGS\ncd \"$1\"\n{}", program.script);
    vec!["sh".into(), "-c".into(), script.into(), "sh".into(), work.into(), processors.to_string().into()]
}

fn in_guest(program: &Program, setting: &Setting<'_>) -> Result<GuestRun, RunError> {
    let work = if setting.folder.file_system() == FileSystem::None { "/dev/shm" } else { MOUNT_POINT };
    let command = words(program, Path::new(work), setting.processors);
    let options = guest(command, FileSystem::Ext4, setting.processors, *setting.costs)
        .map_err(|error| RunError::Device(error.to_string()))?;
    let outcome = chronodisk_guest::run(&options, &mut |_| {})?;
    match outcome.exit_status {
        0 => Ok(GuestRun::of(&outcome)),
        status => Err(RunError::Stage(Stage::Command, format!("{} ended with status {status}", program.name))),
    }
}

fn table(report: &Report) -> String {
    let heads = ["program", "native CPU s", "native run s", "guest run s", "(least, greatest)", "error", "interval"];
    let [program, cpu, native, guest, range, error, interval] = heads;
    let mut text = format!("{program:<12}{cpu:>14}{native:>14}{guest:>13}  {range:<20}{error:>9}  {interval}\n");
    for row in &report.programs {
        let [median, least, greatest] = row.guest_run_s;
        let range = format!("({least:.3}, {greatest:.3})");
        let [from, to] = row.error_interval_percent;
        let interval = format!("{from:+.1} to {to:+.1} % ({:.0} %)", row.interval_confidence * 100.0);
        let repeated = match row.pairs_repeated {
            0 => String::new(),
            times => format!("; {times} pairs repeated (stolen time)"),
        };
        text += &format!(
            "{:<12}{:>14.3}{:>14.3}{median:>13.3}  {range:<20}{:>+7.1} %  {interval}{repeated}\n",
            row.program, row.native_cpu_s[0], row.native_run_s[0], row.error_percent
        );
    }
    if !report.programs.is_empty() {
        text += "\n";
        text += &table_of_parts(report);
    }
    if !report.loads.is_empty() {
        text += &loads::table(&report.loads);
    }
    text
}

/// CPU time of both sides by its parts.
fn table_of_parts(report: &Report) -> String {
    let heads =
        ["native user s", "system s", "faults", "guest user s", "kernel s", "idle s", "stops", "each us", "faults"];
    let mut text = format!("{:<12}", report.file_system);
    heads.into_iter().for_each(|head| text += &format!("{head:>14}"));
    text += "\n";
    for row in &report.programs {
        let GuestRun { user_s, kernel_s, idle_s, stops, stops_taken_off_s, work, .. } = &row.guest;
        let stop_us = stops_taken_off_s * 1e6 / (*stops).max(1) as f64;
        let faults = work[Work::Fault as usize].count;
        let (user, system, native_faults) = (row.native_user_s, row.native_system_s, row.native_page_faults);
        text += &format!("{:<12}{user:>14.3}{system:>14.3}{native_faults:>14}", row.program);
        text += &format!("{user_s:>14.3}{kernel_s:>14.3}{idle_s:>14.3}{stops:>14}{stop_us:>14.2}{faults:>14}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_runs_natively() {
        let folder = NativeFolder::make().unwrap();
        let setting = Setting { folder: &folder, processors: 2, costs: &KernelCosts::default() };
        for program in PROGRAMS.iter().filter(|program| program.missing().is_none()) {
            let took = natively(program, &setting, Processors::All);
            assert!(took.is_ok_and(|took| !took.cpu().is_zero()), "{}", program.name);
        }
    }
}
