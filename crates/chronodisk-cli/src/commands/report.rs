//! `chronodisk report`: runs, or a sweep, as one HTML page.

use std::ops::Range;
use std::path::{Path, PathBuf};

use chronodisk_report::{
    AddressRange, ChartsBuilder, ReportRun, ReportSource, Resolution, charted_window, render_report, write_text,
};
use chronodisk_run::{RunDirectory, read_crash};
use chronodisk_sim::Nanos;
use chronodisk_sweep::{Provenance, RESULTS_FILE, Results};
use clap::Args;

use crate::failure::{Failure, Outcome, status};
use crate::run_choice::RunChoice;
use crate::{output, version};

/// Writes an HTML page with tables and charts of runs, or of a sweep
///
/// The page needs no network: the library that draws is in it. The first run is the baseline of differences. The
/// directory of a sweep is reported by itself. A run of `crash` has a section on its states after power cuts.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk report before after -o report.html")]
pub struct Arguments {
    #[command(flatten)]
    choice: RunChoice,

    /// Writes the page to this file, and replaces it if it exists
    #[arg(long, short, value_name = "FILE.html", required = true)]
    output: PathBuf,

    /// Sets the page's title
    #[arg(long, value_name = "TEXT", default_value = "Chronodisk report")]
    title: String,
}

/// Reads one request after the other, so that memory does not grow with the runs.
pub fn execute(arguments: Arguments) -> Outcome {
    output::expect_place(&arguments.output)?;
    let directories = arguments.choice.directories()?;
    if let Some(sweep) = directories.iter().find(|directory| directory.path().join(RESULTS_FILE).exists()) {
        return match directories.len() {
            1 => report_sweep(sweep.path(), &arguments),
            count => {
                Err(Failure::usage(format!("{} is a sweep, and one of {count} directories", sweep.path().display()))
                    .help("a sweep has a report of its own; name its directory only"))
            }
        };
    }
    let resolution = Resolution::for_runs(directories.len());
    let progress = crate::progress::Progress::new(directories.len() as u64, "runs");
    let mut runs = Vec::new();
    for directory in &directories {
        runs.push(read(directory, resolution)?);
        progress.advance(1);
    }
    progress.finish();
    let page = render_report(&arguments.title, &runs, &format!("chronodisk {}", version::long()));
    write(&arguments.output, &page)
}

fn report_sweep(directory: &Path, arguments: &Arguments) -> Outcome {
    let (results, provenance) = (Results::read(directory)?, Provenance::read(directory)?);
    let made_by = format!("chronodisk {}", version::long());
    let page = results.report(&provenance, &[], &arguments.title, &made_by).map_err(Failure::usage)?;
    write(&arguments.output, &page)
}

fn write(path: &Path, page: &str) -> Outcome {
    write_text(path, page, true).map_err(Failure::host)?;
    output::note(format_args!("report: {}, {}", path.display(), output::size(page.len() as u64)));
    Ok(status::FINE)
}

/// Adds a log to the charts, request by request.
fn add(
    charts: &mut ChartsBuilder,
    directory: &RunDirectory,
    log_file: &str,
    window: Range<Nanos>,
) -> Result<(), Failure> {
    let mut addresses = AddressRange::default();
    if charts.needs_addresses() {
        directory.each_request(log_file, |record| {
            addresses.add(record, &window);
            Ok(())
        })?;
    }
    charts.begin(window, addresses);
    directory.each_request(log_file, |record| {
        charts.record(record);
        Ok(())
    })
}

fn read(directory: &RunDirectory, resolution: Resolution) -> Result<ReportRun, Failure> {
    let mut charts = ChartsBuilder::new(resolution);
    if directory.is_simulation() {
        let simulation = directory.read_simulation()?;
        let device = directory.read_device()?;
        let (mut start, mut end) = (Nanos::MAX, None);
        directory.each_request(RunDirectory::SIMULATION_LOG, |record| {
            start = start.min(record.arrival);
            end = end.max(record.is_completed().then_some(record.completed));
            Ok(())
        })?;
        let start = if start == Nanos::MAX { Nanos::ZERO } else { start };
        let window = start..end.unwrap_or(start).saturating_add(Nanos::from_nanos(1));
        add(&mut charts, directory, RunDirectory::SIMULATION_LOG, window)?;
        let name = directory.id();
        let source = ReportSource::Simulation { name, simulation: Box::new(simulation), device: Box::new(device) };
        return Ok(ReportRun { source, charts: charts.finish(), crash: None });
    }
    let result = directory.read_run()?;
    for rep in &result.reps {
        let window = charted_window(rep);
        let end = window.end.min(rep.end_ns.max(window.start));
        add(&mut charts, directory, &rep.log_file, window.start..end)?;
    }
    let crash = read_crash(directory)?.map(Box::new);
    Ok(ReportRun { source: ReportSource::Run(Box::new(result)), charts: charts.finish(), crash })
}
