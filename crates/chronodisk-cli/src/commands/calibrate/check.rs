//! `chronodisk calibrate --check`: whole programs in a guest on a device that takes no time, and natively in memory.
//!
//! Natively a program's CPU time on one processor is what it would run for if that idled otherwise, because in memory it
//! waits for nothing; its run time on all processors, which the table has as well, is longer on a busy machine and
//! shorter where it uses several. What is compared is the run time in the guest, which has one processor, and the native
//! CPU time on one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use chronodisk_guest::FileSystem;
use chronodisk_guest::calibration::{self, NativeRun, Processors, native_run};
use serde::Serialize;

use super::{MOUNT_POINT, guest};
use crate::commands::run;
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Version of the JSON.
const SCHEMA: &str = "chronodisk.calibration-check/1";
/// Beyond this a program's run time is not credible.
const ERROR_MAX_PERCENT: f64 = 10.0;

/// A program that is run on both sides, with `$1` for the folder that it works in.
struct Program {
    name: &'static str,
    needs: &'static [&'static str],
    script: &'static str,
}

/// Names of the programs.
pub const NAMES: [&str; 6] = ["tar", "make", "postmark", "postmark-8", "sqlite", "ffmpeg"];

const PROGRAMS: [Program; NAMES.len()] = [
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

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    calibrated: bool,
    reps: u32,
    error_max_percent: f64,
    programs: Vec<Row>,
    skipped: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    program: &'static str,
    /// Medians, and the least and the greatest, in seconds.
    native_cpu_s: [f64; 3],
    native_run_s: [f64; 3],
    guest_run_s: [f64; 3],
    /// Of the guest's median against the native CPU time's.
    error_percent: f64,
}

/// Runs the programs that were named, or all.
pub fn execute(names: &[String], reps: u32, as_json: bool) -> Outcome {
    let folder = Folder::make()?;
    let mut report = Report {
        schema: SCHEMA,
        calibrated: calibration::kept().is_some(),
        reps,
        error_max_percent: ERROR_MAX_PERCENT,
        programs: Vec::new(),
        skipped: Vec::new(),
    };
    if !report.calibrated {
        output::note(
            "nothing is calibrated on this machine: one factor is checked; `chronodisk calibrate` comes first",
        );
    }
    for program in PROGRAMS.iter().filter(|program| names.is_empty() || names.iter().any(|name| name == program.name)) {
        if let Some(missing) = program.needs.iter().find(|name| !is_there(name)) {
            output::note(format_args!("{} is left out: no {missing} on this host", program.name));
            report.skipped.push(program.name.to_owned());
            continue;
        }
        output::note(program.name);
        report.programs.push(row(program, &folder, reps)?);
    }
    if as_json {
        output::json(&report)?;
    } else {
        output::data(&table(&report))?;
    }
    let beyond = report.programs.iter().any(|row| row.error_percent.abs() > ERROR_MAX_PERCENT);
    Ok(if beyond { status::CHECK_FAILED } else { status::FINE })
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn row(program: &Program, folder: &Folder, reps: u32) -> Result<Row, Failure> {
    let (mut cpu, mut native, mut guests) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..reps {
        cpu.push(natively(program, folder, Processors::One)?.cpu.as_secs_f64());
        native.push(natively(program, folder, Processors::All)?.wall.as_secs_f64());
        guests.push(in_guest(program)?);
    }
    let [cpu, native, guests] = [cpu, native, guests].map(median_and_range);
    let error_percent = 100.0 * (guests[0] / cpu[0] - 1.0);
    Ok(Row { program: program.name, native_cpu_s: cpu, native_run_s: native, guest_run_s: guests, error_percent })
}

fn natively(program: &Program, folder: &Folder, processors: Processors) -> Result<NativeRun, Failure> {
    let work = folder.0.join("work");
    fs::create_dir(&work).map_err(Failure::host)?;
    let took = native_run(&mut native_command(program, &work), processors)
        .map_err(|error| Failure::host(format!("{}: {error}", program.name)));
    fs::remove_dir_all(&work).map_err(Failure::host)?;
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

fn in_guest(program: &Program) -> Result<f64, Failure> {
    let command = words(program, Path::new(MOUNT_POINT));
    let outcome = chronodisk_guest::run(&guest(command, FileSystem::Ext4)?, &mut |_| {}).map_err(run::failure)?;
    match outcome.exit_status {
        0 => Ok(calibration::run_time(&outcome).as_secs_f64()),
        status => Err(Failure::host(format!("{} ended with status {status} in the guest", program.name))),
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
    text
}

/// A folder in memory that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, Failure> {
        let path = PathBuf::from(format!("/dev/shm/chronodisk-check-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| Failure::host(format!("{}: {error}", path.display())))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is in memory and has this process's number in its name: at worst it stays until the next boot.
        let _ = fs::remove_dir_all(&self.0);
    }
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
        let folder = Folder::make().unwrap();
        for program in PROGRAMS.iter().filter(|program| program.needs.iter().all(|name| is_there(name))) {
            let work = folder.0.join(program.name);
            fs::create_dir(&work).unwrap();
            let took = native_run(&mut native_command(program, &work), Processors::All);
            assert!(took.is_ok_and(|took| !took.cpu.is_zero()), "{}", program.name);
        }
        let path = folder.0.clone();
        drop(folder);
        assert!(!path.exists());
    }
}
