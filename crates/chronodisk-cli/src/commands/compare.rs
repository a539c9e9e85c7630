//! `chronodisk compare`: runs side by side.

use std::path::PathBuf;

use chronodisk_report::{PhaseName, PlotRun, RunResult, compare, plot_comparison, service_times};
use chronodisk_sim::Nanos;
use clap::Args;

use crate::failure::{Failure, Outcome, status};
use crate::{output, quantity, runs, stored};

/// Compares runs in one table, with paired differences to the first
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk compare runs/null runs/first-disk --plot runs.svg")]
pub struct Arguments {
    /// Compares these runs: directories, ids, or `last`. The first is the baseline
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,

    /// Plots run times and distributions of service times to this file
    #[arg(long, value_name = "FILE.svg", value_parser = quantity::svg_file)]
    plot: Option<PathBuf>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Compares, and writes the table.
pub fn execute(arguments: Arguments) -> Outcome {
    let directories = arguments.runs.iter().map(|run| runs::find(run)).collect::<Result<Vec<_>, _>>()?;
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

fn plot(path: &std::path::Path, directories: &[PathBuf], results: &[RunResult]) -> Result<(), Failure> {
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
