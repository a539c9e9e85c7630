//! `chronodisk compare`: runs side by side.

use std::path::PathBuf;

use chronodisk_report::{PhaseName, PlotRun, RunResult, compare, plot_comparison, service_times};
use chronodisk_sim::Nanos;
use clap::Args;

use crate::failure::{Failure, Outcome, status};
use crate::labels::RunChoice;
use crate::{output, stored};

/// Compares runs in one table, with paired differences to the first
///
/// The first run is the baseline.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk compare before after --plot runs.svg\n\
    \x20        chronodisk compare --tag nightly")]
pub struct Arguments {
    #[command(flatten)]
    choice: RunChoice,

    /// Plots run times and distributions of service times to this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Compares, and writes the table.
pub fn execute(arguments: Arguments) -> Outcome {
    let directories = arguments.choice.directories()?;
    let results = directories.iter().map(|directory| stored::read_run(directory)).collect::<Result<Vec<_>, _>>()?;
    let comparison = compare(&results);
    if arguments.json {
        output::data(&comparison.to_json())?;
    } else {
        output::data(&comparison.render())?;
    }
    if let Some(path) = &arguments.plot {
        plot(path, &directories, &results)?;
    }
    Ok(status::FINE)
}

/// Draws runs beside each other.
pub fn plot(path: &std::path::Path, directories: &[PathBuf], results: &[RunResult]) -> Result<(), Failure> {
    let mut times: Vec<Vec<Nanos>> = Vec::new();
    for (directory, result) in directories.iter().zip(results) {
        let mut of_run = Vec::new();
        for rep in &result.reps {
            let Some(command) = rep.phase(PhaseName::Command) else { continue };
            let records = stored::read_repetition(directory, &rep.log_file)?;
            of_run.extend(service_times(&records, command.start_ns..command.end_ns));
        }
        times.push(of_run);
    }
    let runs: Vec<PlotRun<'_>> =
        results.iter().zip(&times).map(|(run, service_times)| PlotRun { run, service_times }).collect();
    plot_comparison(path, &runs).map_err(Failure::host)?;
    output::note(format_args!("plot: {}", path.display()));
    Ok(())
}
