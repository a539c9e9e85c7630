//! `chronodisk compare`: runs side by side.

use std::path::{Path, PathBuf};

use chronodisk_report::{
    Condition, PhaseName, PlotRun, RunResult, compare, judge, plot_comparison, render_junit, render_markdown,
    service_times,
};
use chronodisk_run::memory::{self, MemoryOptions};
use chronodisk_run::{RunDirectory, quantity};
use chronodisk_sim::{ContentsBudget, ContentsLimit, Nanos};
use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome, status};
use crate::output;
use crate::run_choice::RunChoice;

/// Compares runs in one table, with paired differences to the first
///
/// The first run is the baseline. It can also be the file result.json of a run, such as one that is committed beside a
/// project's tests.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 1 if a condition of --fail-if holds, else 0.\n\nExample: chronodisk compare before after --plot runs.svg\n\
    \x20        chronodisk compare baseline.json last --fail-if 'run_time > +5%'"
)]
pub struct Arguments {
    #[command(flatten)]
    choice: RunChoice,

    /// Plots run times and distributions of service times to this file
    #[arg(long, value_name = "FILE.svg", value_parser = quantity::svg_file)]
    plot: Option<PathBuf>,

    /// Fails (status 1) if a run differs from the baseline beyond this limit, such as 'run_time > +5%'. The whole 95 %
    /// interval must be beyond; may be repeated. Metrics: run_time, requests, service_time_mean, service_time_p99,
    /// bytes_written, flushes
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,

    /// Selects the format of the result on standard output
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    output: Format,

    /// Prints the result as JSON on standard output, as --output json does
    #[arg(long, conflicts_with = "output")]
    json: bool,

    #[command(flatten)]
    memory: MemoryOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    /// XML that CI services show as tests
    Junit,
    /// A table for a comment on a pull request
    Markdown,
}

/// Compares, and writes the table.
pub fn execute(arguments: Arguments) -> Outcome {
    arguments.plot.as_deref().map_or(Ok(()), output::expect_place)?;
    let directories = arguments.choice.directories_or_files()?;
    if let (Some(file), Some(_)) = (directories.iter().find(|path| path.path().is_file()), &arguments.plot) {
        let failure =
            Failure::usage(format!("{}: a result without its requests can't be plotted", file.path().display()));
        return Err(failure.help("name the run's directory"));
    }
    if !arguments.fail_if.is_empty() && directories.len() < 2 {
        return Err(Failure::usage("--fail-if needs a baseline and a run to be judged; only one run was named"));
    }
    let results = directories.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let mut comparison = compare(&results);
    comparison.judgements = judge(&results, &arguments.fail_if);
    output::data(&match arguments.output {
        _ if arguments.json => comparison.to_json(),
        Format::Text => comparison.render(),
        Format::Json => comparison.to_json(),
        Format::Junit => render_junit(&comparison),
        Format::Markdown => render_markdown(&comparison),
    })?;
    if let Some(path) = &arguments.plot {
        plot(path, &directories, &results, arguments.memory.limit())?;
    }
    let failed = comparison.judgements.iter().any(|judgement| judgement.failed);
    Ok(if failed { status::CHECK_FAILED } else { status::FINE })
}

/// A result in a run's directory, or in a file of its own.
fn read(run: &RunDirectory) -> Result<RunResult, Failure> {
    if run.path().is_file() { RunResult::read(run.path()).map_err(Failure::usage) } else { run.read_run() }
}

/// Draws runs beside each other.
pub fn plot(
    path: &Path,
    directories: &[RunDirectory],
    results: &[RunResult],
    limit: ContentsLimit,
) -> Result<(), Failure> {
    // A value here, in the sorted distribution and in the vector that grows.
    const VALUE_BYTES: u64 = 32;
    let mut budget = ContentsBudget::new(limit);
    let mut times: Vec<Vec<Nanos>> = Vec::new();
    for (directory, result) in directories.iter().zip(results) {
        let mut of_run = Vec::new();
        for rep in &result.reps {
            let Some(command) = rep.phase(PhaseName::Command) else { continue };
            let window = command.start_ns..command.end_ns;
            directory.each_request(&rep.log_file, |record| {
                for time in service_times(std::slice::from_ref(record), window.clone()) {
                    budget.take(VALUE_BYTES).map_err(|over| memory::exceeded(directory.path().display(), over))?;
                    of_run.push(time);
                }
                Ok(())
            })?;
        }
        times.push(of_run);
    }
    let runs: Vec<PlotRun<'_>> =
        results.iter().zip(&times).map(|(run, service_times)| PlotRun { run, service_times }).collect();
    plot_comparison(path, &runs).map_err(Failure::host)?;
    output::note(format_args!("plot: {}", path.display()));
    Ok(())
}
