//! `chronodisk age`: the state of a flash drive that has been in use for long, in a file.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use chronodisk_device::{
    AgeingMethod, AgeingOptions, AgeingProgress, AgeingReport, AgeingStage, AgeingWorkload, BuildOptions,
};
use chronodisk_engine::state_file;
use chronodisk_run::{EndFlag, EndSignals, device, quantity};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Ages a flash drive and writes its state, for `simulate`, `run` and `serve`
///
/// A used flash drive is slower than a new one, because it collects garbage. For random writes, the initial state is
/// drawn from the analytic fixed point of the garbage collector (Van Houdt, SIGMETRICS 2013). The modelled drive is
/// then written until its write amplification is steady by the rule of SNIA's performance test specification. Equal
/// options give identical files.
#[derive(Debug, Args)]
#[command(after_help = "Ctrl-C, SIGTERM and SIGHUP end the command with exit status 128+n; no file is written.\n\n\
    Example: chronodisk age --device wd-zn540 --workload random -o aged.state\n\
    \x20        chronodisk simulate --device wd-zn540 --state aged.state --workload random-write")]
pub struct Arguments {
    /// Selects the device: a name from `chronodisk devices`, or a profile file
    #[arg(long, short, value_name = "PROFILE")]
    device: String,

    /// Selects the writes that aged the drive
    #[arg(long, short, value_name = "NAME", default_value = "random")]
    workload: WorkloadName,

    /// Selects how the aged state is computed
    #[arg(long, value_name = "NAME", default_value = "drawn")]
    method: Method,

    /// Writes only this share of the capacity, from its beginning; the rest counts as discarded
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = positive_share)]
    occupied: f64,

    /// Sets the hot share of the written part, for hot-cold (default: 0.2)
    #[arg(long, value_name = "SHARE", value_parser = positive_share)]
    hot_share: Option<f64>,

    /// Sets the share of writes that go to the hot part, for hot-cold (default: 0.8)
    #[arg(long, value_name = "SHARE", value_parser = quantity::share)]
    hot_writes: Option<f64>,

    /// Seeds the drawn state and the writes
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Sets the capacity of the device, such as 8GiB (default: the profile's). A smaller drive has fewer blocks and the
    /// profile's share of spare
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    capacity: Option<u64>,

    /// Writes the state to this file; an existing file is replaced
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WorkloadName {
    /// The whole drive is written once, in order
    Sequential,
    /// The whole drive is written twice, in order; from then on, each filled superblock needs an erase
    SequentialTwice,
    /// Random mapping units are written until the drive is steady
    Random,
    /// As random, but --hot-writes of the writes go to --hot-share of the units
    HotCold,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Method {
    /// Draws a nearly steady state, then writes until it is steady
    Drawn,
    /// Only writes, which takes many times as long
    Written,
}

fn positive_share(text: &str) -> Result<f64, String> {
    match quantity::share(text)? {
        0.0 => Err("expected a share above 0, such as 0.7".to_owned()),
        share => Ok(share),
    }
}

/// The result as JSON.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    device: &'a str,
    capacity_bytes: u64,
    workload: String,
    method: String,
    occupied: f64,
    seed: u64,
    steady: bool,
    write_amplification: f64,
    predicted_write_amplification: Option<f64>,
    write_amplification_by_round: &'a [f64],
    valid_share: f64,
    state_file: String,
    state_bytes: u64,
    host_seconds: f64,
}

/// Version 1 of the result.
const SCHEMA: &str = "chronodisk.age/1";

/// Ages, and writes the state.
pub fn execute(arguments: Arguments) -> Outcome {
    let hot = arguments.hot_share.is_some() || arguments.hot_writes.is_some();
    if hot && !matches!(arguments.workload, WorkloadName::HotCold) {
        let workload = name_of(arguments.workload);
        return Err(Failure::usage(format!(
            "workload {workload} has no hot part; --hot-share and --hot-writes can't be used"
        ))
        .help("use --workload hot-cold"));
    }
    let profile = device::find(&arguments.device)?;
    output::expect_place(&arguments.output)?;
    let build = BuildOptions { capacity_bytes: arguments.capacity, seed: arguments.seed, ..BuildOptions::default() };
    let asked = EndSignals::flag()?;
    let begun = Instant::now();
    let mut stages = Stages::default();
    let aged = profile.age(&build, &options(&arguments), &mut |progress| {
        stages.show(&progress);
        if asked.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    stages.finish();
    let Some((state, report)) = aged.map_err(device::failure)? else { return Ok(told_of_interruption(&asked)) };
    let progress = crate::progress::Progress::new(state.len_bytes(), "bytes written");
    let saved = state_file::save(&state, &arguments.output, &mut |bytes| {
        progress.advance(bytes);
        if asked.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.finish();
    match saved {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(told_of_interruption(&asked)),
        saved => {
            saved.map_err(|error| Failure::host(format!("can't write {}: {error}", arguments.output.display())))?
        }
    }
    let host_seconds = begun.elapsed().as_secs_f64();
    output::note(summary(&arguments, &report, state.len_bytes(), host_seconds));
    if arguments.json {
        output::json(&Report {
            schema: SCHEMA,
            device: profile.name(),
            capacity_bytes: arguments.capacity.unwrap_or(profile.capacity_bytes()),
            workload: name_of(arguments.workload),
            method: name_of(arguments.method),
            occupied: arguments.occupied,
            seed: arguments.seed,
            steady: report.steady,
            write_amplification: report.write_amplification,
            predicted_write_amplification: report.predicted_write_amplification,
            write_amplification_by_round: &report.rounds,
            valid_share: report.valid_share,
            state_file: arguments.output.display().to_string(),
            state_bytes: state.len_bytes(),
            host_seconds,
        })?;
    }
    Ok(status::FINE)
}

fn told_of_interruption(asked: &EndFlag) -> u8 {
    output::note("interrupted; no state was written");
    asked.status()
}

fn options(arguments: &Arguments) -> AgeingOptions {
    AgeingOptions {
        workload: match arguments.workload {
            WorkloadName::Sequential => AgeingWorkload::Sequential,
            WorkloadName::SequentialTwice => AgeingWorkload::SequentialTwice,
            WorkloadName::Random => AgeingWorkload::Random,
            WorkloadName::HotCold => {
                let (hot_units, hot_writes) = (arguments.hot_share.unwrap_or(0.2), arguments.hot_writes.unwrap_or(0.8));
                AgeingWorkload::HotCold { hot_units, hot_writes }
            }
        },
        method: match arguments.method {
            Method::Drawn => AgeingMethod::Drawn,
            Method::Written => AgeingMethod::Written,
        },
        occupied: arguments.occupied,
        seed: arguments.seed,
    }
}

fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn summary(arguments: &Arguments, report: &AgeingReport, bytes: u64, seconds: f64) -> String {
    let rounds = report.rounds.len();
    let steadiness = match (rounds, report.steady) {
        (0, _) => "written from beginning to end".to_owned(),
        (_, true) => format!("steady after {rounds} rounds"),
        (_, false) => format!("NOT steady after {rounds} rounds"),
    };
    format!(
        "{}: {steadiness}, write amplification {:.3}, {:.1} MB of state, {seconds:.1} s",
        arguments.output.display(),
        report.write_amplification,
        bytes as f64 / 1e6,
    )
}

/// A progress bar for each stage.
#[derive(Default)]
struct Stages {
    current: Option<(AgeingStage, u64, crate::progress::Progress)>,
}

impl Stages {
    fn show(&mut self, progress: &AgeingProgress) {
        if self.current.as_ref().is_none_or(|(stage, ..)| *stage != progress.stage) {
            self.finish();
            let unit = match progress.stage {
                AgeingStage::Fill | AgeingStage::FillAgain => "units filled",
                AgeingStage::Draw => "units drawn",
                AgeingStage::Round(_) => "units written in this round",
            };
            self.current = Some((progress.stage, 0, crate::progress::Progress::new(progress.total, unit)));
        }
        if let Some((_, shown, bar)) = &mut self.current {
            bar.advance(progress.done - *shown);
            *shown = progress.done;
        }
    }

    fn finish(&mut self) {
        if let Some((.., bar)) = self.current.take() {
            bar.finish();
        }
    }
}
