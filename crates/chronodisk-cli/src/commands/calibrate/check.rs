//! `chronodisk calibrate --check`: whole programs in a guest on a device that takes no time, and natively in memory.
//!
//! Natively a program's CPU time on one processor is its run time on an otherwise idle one, because in memory it never
//! waits. Its run time on all processors, which the table has as well, is longer on a busy machine and shorter for
//! parallel programs. The run time in the guest, which has one processor, is compared with the native CPU time on one.
//! Both sides work in an ext4 if this process may mount one natively, otherwise in tmpfs.

mod loads;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use chronodisk_guest::calibration::{self, NativeFolder, NativeRun, Processors, native_run};
use chronodisk_guest::{FileSystem, KernelCosts, RunError, RunOutcome, Stage, Work};
use chronodisk_run::guest_failure;
use serde::Serialize;

use super::{Arguments, MOUNT_POINT, guest, interrupted, kept_costs};
use crate::failure::{Failure, Outcome, status};
use crate::output;
use crate::progress::Working;

/// Version of the JSON.
const SCHEMA: &str = "chronodisk.calibration-check/4";
/// Default number of runs of each program on either side.
const REPS: u32 = 3;
/// Beyond this a program's run time is not credible.
const ERROR_MAX_PERCENT: f64 = 10.0;

/// A program that is run on both sides, with `$1` for the folder that it works in.
struct Program {
    name: &'static str,
    needs: &'static [&'static str],
    script: &'static str,
}

/// Names of the programs, and of loads that are the kernel's own work.
pub const NAMES: [&str; 13] = [
    "tar",
    "make",
    "postmark",
    "postmark-8",
    "sqlite",
    "ffmpeg",
    loads::NAMES[0],
    loads::NAMES[1],
    loads::NAMES[2],
    loads::NAMES[3],
    loads::NAMES[4],
    loads::NAMES[5],
    loads::NAMES[6],
];

const PROGRAMS: [Program; 6] = [
    Program {
        name: NAMES[0],
        needs: &["tar", "seq"],
        script: "mkdir files
for i in $(seq 400); do seq $((i * 3)) > files/$i; done
tar -cf files.tar files
for copy in 1 2 3 4; do mkdir $copy; tar -xf files.tar -C $copy; done
",
    },
    Program {
        name: NAMES[1],
        needs: &["make", "cc", "seq"],
        script: "objects=
for i in $(seq 8); do
    { printf '#include <stdio.h>\\n#include <stdlib.h>\\n#include <string.h>\\n'
      for j in $(seq 60); do
          printf 'int f%d_%d(int n) { int s = 0; for (int k = 0; k < n; k++) s += k %% %d; return s; }\\n' $i $j $j
      done
    } > $i.c
    objects=\"$objects $i.o\"
done
printf 'all:%s\\n\\tcc -shared -o all.so%s\\n%%.o: %%.c\\n\\tcc -O1 -fPIC -c $<\\n' \"$objects\" \"$objects\" > Makefile
make -s
",
    },
    Program {
        name: NAMES[2],
        needs: &["postmark"],
        script: "printf '%s\\n' \"set location $1\" 'set number 500' 'set transactions 5000' run quit | postmark > /dev/null
",
    },
    Program {
        name: NAMES[3],
        needs: &["postmark"],
        script: "for job in 1 2 3 4 5 6 7 8; do
    mkdir $job
    printf '%s\\n' \"set location $1/$job\" 'set number 60' 'set transactions 600' run quit | postmark > /dev/null &
done
wait
",
    },
    Program {
        name: NAMES[4],
        needs: &["sqlite3", "seq"],
        script: "{ echo 'pragma synchronous=off; create table t(a integer primary key, b text);'
  for i in $(seq 600); do echo \"insert into t(b) values (hex(zeroblob($i)));\"; done
  echo 'select sum(length(a.b) * length(c.b)) from t a join t c where a.a % 7 = c.a % 7;'
} | sqlite3 base.db > /dev/null
",
    },
    Program {
        name: NAMES[5],
        needs: &["ffmpeg"],
        script: "ffmpeg -v error -nostdin -f lavfi -i testsrc2=size=352x288:rate=30:duration=4 -threads 1 -c:v mpeg2video a.mpg
ffmpeg -v error -nostdin -threads 1 -i a.mpg -threads 1 -f rawvideo a.yuv
",
    },
];

/// The JSON output.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    calibrated: bool,
    /// The one factor that was checked instead of the costs by kind.
    kernel_scale: Option<f64>,
    reps: u32,
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
    /// Error of the guest's median relative to the native CPU time's, in per cent.
    error_percent: f64,
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
                let counted_s = costs.works[kind as usize].counts_nanos(worked) / 1e9;
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
    let (names, reps) = (&arguments.program, arguments.reps.unwrap_or(REPS));
    let costs = arguments.kernel_scale.map_or_else(kept_costs, KernelCosts::uniform);
    let folder =
        NativeFolder::make().map_err(|error| Failure::host(format!("can't create a directory in memory: {error}")))?;
    let mut report = Report {
        schema: SCHEMA,
        calibrated: calibration::kept().is_some(),
        kernel_scale: arguments.kernel_scale,
        reps,
        file_system: file_system_name(folder.file_system()),
        error_max_percent: ERROR_MAX_PERCENT,
        programs: Vec::new(),
        load_ratio_min: loads::RATIO_MIN,
        load_ratio_max: loads::RATIO_MAX,
        loads: Vec::new(),
        skipped: Vec::new(),
    };
    if !report.calibrated && arguments.kernel_scale.is_none() {
        output::note(
            "this machine is not calibrated, so the built-in costs are checked; run `chronodisk calibrate` first",
        );
    }
    let is_asked_for = |asked: &str| names.is_empty() || names.iter().any(|name| name == asked);
    // Its thread must be started while signals are blocked, and inherits that: signals are for the running programs.
    let working = Working::at("starting");
    let begin = |name: &str| {
        output::note(name);
        working.now_at(name);
    };
    for program in PROGRAMS.iter().filter(|program| is_asked_for(program.name)) {
        if let Some(missing) = program.needs.iter().find(|name| !is_there(name)) {
            output::note(format_args!("{} is skipped: {missing} is not installed", program.name));
            report.skipped.push(program.name.to_owned());
            continue;
        }
        begin(program.name);
        match row(program, &folder, reps, &costs) {
            Ok(row) => report.programs.push(row),
            Err(RunError::Interrupted { signal }) => return Ok(interrupted(signal)),
            Err(error) => return Err(guest_failure(error)),
        }
    }
    for load in loads::LOADS.iter().filter(|load| is_asked_for(load.name)) {
        begin(load.name);
        match loads::measure(load, reps, &costs) {
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
    let beyond = report.programs.iter().any(|row| row.error_percent.abs() > ERROR_MAX_PERCENT)
        || report.loads.iter().any(|row| !row.is_credible());
    Ok(if beyond { status::CHECK_FAILED } else { status::FINE })
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn file_system_name(native: FileSystem) -> &'static str {
    if native == FileSystem::None { "tmpfs" } else { native.name() }
}

fn row(program: &Program, folder: &NativeFolder, reps: u32, costs: &KernelCosts) -> Result<Row, RunError> {
    let (mut ones, mut alls, mut guests) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..reps {
        ones.push(natively(program, folder, Processors::One)?);
        alls.push(natively(program, folder, Processors::All)?.wall.as_secs_f64());
        guests.push(in_guest(program, folder.file_system(), costs)?);
    }
    let of_ones =
        |part: fn(&NativeRun) -> Duration| -> Vec<f64> { ones.iter().map(|run| part(run).as_secs_f64()).collect() };
    let [user, system] = [|run: &NativeRun| run.user, |run: &NativeRun| run.system].map(of_ones).map(median_and_range);
    let cpu = median_and_range(of_ones(NativeRun::cpu));
    let native = median_and_range(alls);
    guests.sort_by(|a, b| a.run_s.total_cmp(&b.run_s));
    let guest_run_s = median_and_range(guests.iter().map(|guest| guest.run_s).collect());
    Ok(Row {
        program: program.name,
        native_cpu_s: cpu,
        native_run_s: native,
        guest_run_s,
        error_percent: 100.0 * (guest_run_s[0] / cpu[0] - 1.0),
        native_user_s: user[0],
        native_system_s: system[0],
        native_page_faults: ones[0].faults,
        guest: guests[guests.len() / 2].clone(),
    })
}

fn natively(program: &Program, folder: &NativeFolder, processors: Processors) -> Result<NativeRun, RunError> {
    let work = folder.path().join("work");
    fs::create_dir(&work).map_err(|source| RunError::Io { doing: "making a folder", source })?;
    let took = native_run(&mut native_command(program, &work), processors);
    fs::remove_dir_all(&work).map_err(|source| RunError::Io { doing: "emptying a folder", source })?;
    took
}

/// The words that run a program in a folder.
fn words(program: &Program, work: &Path) -> Vec<OsString> {
    let script = format!("set -e\ncd \"$1\"\n{}", program.script);
    vec!["sh".into(), "-c".into(), script.into(), "sh".into(), work.into()]
}

fn native_command(program: &Program, work: &Path) -> Command {
    let words = words(program, work);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

fn in_guest(program: &Program, native: FileSystem, costs: &KernelCosts) -> Result<GuestRun, RunError> {
    let work = if native == FileSystem::None { "/dev/shm" } else { MOUNT_POINT };
    let command = words(program, Path::new(work));
    let options = guest(command, FileSystem::Ext4, *costs).map_err(|error| RunError::Device(error.to_string()))?;
    let outcome = chronodisk_guest::run(&options, &mut |_| {})?;
    match outcome.exit_status {
        0 => Ok(GuestRun::of(&outcome)),
        status => Err(RunError::Stage(Stage::Command, format!("{} ended with status {status}", program.name))),
    }
}

fn median_and_range(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    [f64::midpoint(low, high), values[0], values[values.len() - 1]]
}

fn table(report: &Report) -> String {
    let heads = ["program", "native CPU s", "native run s", "guest run s", "(least, greatest)", "error"];
    let [program, cpu, native, guest, range, error] = heads;
    let mut text = format!("{program:<12}{cpu:>14}{native:>14}{guest:>13}  {range:<20}{error:>9}\n");
    for row in &report.programs {
        let [median, least, greatest] = row.guest_run_s;
        let range = format!("({least:.3}, {greatest:.3})");
        text += &format!(
            "{:<12}{:>14.3}{:>14.3}{median:>13.3}  {range:<20}{:>+7.1} %\n",
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
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median_and_range(vec![3.0, 1.0, 2.0]), [2.0, 1.0, 3.0]);
        assert_eq!(median_and_range(vec![4.0, 1.0, 2.0, 3.0]), [2.5, 1.0, 4.0]);
    }

    #[test]
    fn every_program_runs_natively() {
        let folder = NativeFolder::make().unwrap();
        for program in PROGRAMS.iter().filter(|program| program.needs.iter().all(|name| is_there(name))) {
            let took = natively(program, &folder, Processors::All);
            assert!(took.is_ok_and(|took| !took.cpu().is_zero()), "{}", program.name);
        }
    }
}
