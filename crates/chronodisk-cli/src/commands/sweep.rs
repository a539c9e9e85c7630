//! `chronodisk sweep`: every combination of some options.

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chronodisk_engine::ending::{EndRequests, signal_name, status_of};
use chronodisk_report::{AtomicFile, counted, plot_curves};
use chronodisk_run::{EndSignals, Keyboard};
use chronodisk_sim::TextFile;
use chronodisk_sweep::{ArrayJob, Command, Done, Part, Plan, Results, Runner, Sweep, SweepError, Value, option_words};
use clap::Args;
use clap::error::ErrorKind;

use crate::failure::{Failure, Outcome, status};
use crate::{output, version};

/// Runs every combination of some options, each with several seeds
///
/// FILE.toml names a command, options of it, and axes: options with a list of values. Each combination and seed is a
/// cell. Cells whose results are in DIR are not run again, so that a sweep that was interrupted goes on where it ended.
/// DIR then has sweep.json, sweep.parquet (a row for each cell), sweep.provenance.json (date, host and load), and
/// sweep.html, a report with tables and charts.
#[derive(Debug, Args)]
#[command(after_help = "FILE.toml:  command = \"simulate\"          # or run, mount, replay\n            \
    seeds = 30\n            [options]\n            workload = \"random-read\"\n            [axes]\n            \
    device = [\"cheetah-9lp\", \"wd-zn540\"]\n            depth = [1, 4, 16]\n\n\
    Exit status: 1 if a cell failed, 128+n if signal n ended it; the same command goes on. If cells run\n\
    programs, 125 if the sweep failed after the first program had started.\n\n\
    On a cluster: --slurm for Slurm, --part for other batch systems. The nodes share DIR.\n\n\
    Example: chronodisk sweep depths.toml -o depths --plot depth,iops")]
pub struct Arguments {
    /// File of the sweep
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,

    /// Keeps the results in this directory. One that an earlier sweep made may be used again
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,

    /// Runs this number of cells at the same time (default: one for each processor; for guests, as many as the memory
    /// is enough for; one for programs in real time)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,

    /// Runs only part I of N parts of the cells, and writes no results: parts may run at the same time, on hosts that
    /// share DIR. The same command without this option then writes the results
    #[arg(long, value_name = "I/N", value_parser = part, conflicts_with_all = ["plot", "json"])]
    part: Option<Part>,

    /// Runs nothing, but writes DIR/slurm.sh: an array job for Slurm's sbatch, whose tasks run the parts. With --jobs,
    /// at most N tasks run at the same time
    #[arg(long, conflicts_with_all = ["part", "plot", "json"])]
    slurm: bool,

    /// Plots a figure, such as iops or latency_us.mean, against an axis or another figure, to DIR/X-Y.svg and in the
    /// report; may be repeated
    #[arg(long, value_name = "X,Y", value_parser = plot_names)]
    plot: Vec<(String, String)>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn plot_names(text: &str) -> Result<(String, String), String> {
    match text.split_once(',') {
        Some((x, y)) if !x.is_empty() && !y.is_empty() && !text.contains('/') => Ok((x.to_owned(), y.to_owned())),
        _ => Err("expected two names, such as depth,iops".to_owned()),
    }
}

fn part(text: &str) -> Result<Part, String> {
    let numbers = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    numbers
        .and_then(|(part, of)| Part::new(part, of))
        .ok_or_else(|| "expected two numbers, such as 3/100, the first from 1 to the second".to_owned())
}

/// Runs the missing cells, and writes the results; `root` is the whole command line.
pub fn execute(arguments: &Arguments, root: &clap::Command) -> Outcome {
    let label = arguments.file.display().to_string();
    let cannot = |error: &dyn std::fmt::Display| Failure::usage(format!("{label}: can't read the sweep: {error}"));
    let file = fs::File::open(&arguments.file).map_err(|error| cannot(&error))?;
    let text = TextFile::Sweep.read(file).map_err(|error| cannot(&error))?;
    let sweep = Sweep::parse(&text, &label, |command| options_of(root, command))?;
    check_values(&sweep, root)?;
    // Before hours of cells; a figure that no cell has is found out after them.
    for (x, _) in &arguments.plot {
        if let Some(text) = sweep.axes.get(x).and_then(|values| values.iter().find(|value| value.as_number().is_none()))
        {
            return Err(Failure::usage(format!("--plot {x}: the axis has the value {text}; expected numbers")));
        }
    }
    let runner = Runner {
        executable: std::env::current_exe()
            .map_err(|error| Failure::host(format!("can't find the command's own executable: {error}")))?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        directory: arguments.output.clone(),
        jobs: arguments.jobs.map_or_else(|| jobs(&sweep), usize::from),
        part: arguments.part,
    };
    let executable = runner.executable.clone();
    if sweep.cell_count() > CELLS_PREPARED_AT_ONCE {
        output::note(format_args!("preparing {} cells", sweep.cell_count()));
    }
    let plan = Plan::new(sweep, runner)?;
    if arguments.slurm {
        return write_array_job(arguments, &plan, &executable);
    }
    let failed = |error: std::io::Error| Failure::host(format!("can't catch signals: {error}"));
    let (done, tell_done) = UnixStream::pair().map_err(failed)?;
    let ending = Ending { signals: EndSignals::catch(Keyboard::AsksToEnd)?, stop: AtomicBool::new(false), plan: &plan };
    let outcome = std::thread::scope(|threads| {
        threads.spawn(|| ending.pass_on(&done));
        let outcome = do_cells(arguments, &plan, &ending);
        drop(tell_done);
        outcome
    });
    // From then on no status but this one is Chronodisk's own.
    outcome.map_err(|failure| if plan.command_began() { failure.after_start() } else { failure })
}

/// The end that a signal asks for.
struct Ending<'a> {
    signals: EndSignals,
    /// Set when no further cell may begin.
    stop: AtomicBool,
    plan: &'a Plan,
}

/// Time for cells to end at once.
const AT_ONCE: Duration = Duration::from_secs(3);

impl Ending<'_> {
    /// Ends the running cells on request, until `done` is closed.
    fn pass_on(&self, done: &UnixStream) {
        let (mut passed_on, mut dies_at) = (false, None);
        loop {
            let next = dies_at.or(self.signals.request().map(|request| request.kills_at()));
            let left = next.map(|at: Instant| at.saturating_duration_since(Instant::now()));
            if self.signals.wait(&[done.as_fd()], left).is_some() {
                return;
            }
            let Some(request) = self.signals.request() else { continue };
            if !std::mem::replace(&mut passed_on, true) {
                self.stop.store(true, Ordering::Relaxed);
                self.plan.ask_to_end(request.signal);
            }
            let now = Instant::now();
            if dies_at.is_none() && now >= request.kills_at() {
                self.plan.end_at_once();
                dies_at = Some(now + AT_ONCE);
            }
            if dies_at.is_some_and(|at| now >= at) {
                // A process left by a cell keeps this process from noticing the cell's end.
                let _ = signal_hook::low_level::emulate_default_handler(request.signal);
            }
        }
    }

    /// The exit status, and the signal's name.
    fn told(&self) -> (u8, &'static str) {
        let signal = self.signals.signal().unwrap_or_default();
        (status_of(signal), signal_name(signal))
    }
}

/// Cells prepared before a progress message is due.
const CELLS_PREPARED_AT_ONCE: u64 = 20_000;
/// Message of a failure after some cells.
const GOES_ON: &str = "the cells that are done are kept; the same command goes on";

/// Does the cells, and writes the results.
fn do_cells(arguments: &Arguments, plan: &Plan, ending: &Ending<'_>) -> Outcome {
    let total = (0..plan.cells()).filter(|&index| arguments.part.is_none_or(|part| part.has(index))).count();
    let progress = crate::progress::Progress::new(total as u64, "cells");
    let (there, complete) = (AtomicU64::new(0), AtomicU64::new(0));
    let seen = |done: &Done| {
        complete.fetch_add(1, Ordering::Relaxed);
        there.fetch_add(u64::from(done.was_there), Ordering::Relaxed);
        progress.advance(1);
    };
    let found = plan.run(&ending.stop, &seen);
    progress.finish();
    let found: Vec<Option<Done>> = match found {
        Ok(found) => found,
        Err(error @ SweepError::Host(_)) if complete.load(Ordering::Relaxed) > 0 => {
            return Err(Failure::from(error).help(GOES_ON));
        }
        Err(error) => return Err(error.into()),
    };
    let there = there.into_inner();
    if arguments.part.is_some() {
        return end_part(arguments, &found, (total, there), ending);
    }
    let Some(done) = found.iter().cloned().collect::<Option<Vec<Done>>>() else {
        let complete = found.iter().flatten().count();
        return Ok(told_of_end(ending, complete, total));
    };
    let results = plan.write_results(&done).map_err(|error| Failure::from(error).help(GOES_ON))?;
    output::data(&if arguments.json { results.to_json() } else { results.render() })?;
    output::note(format_args!("{}, {there} of them from earlier: {}", cells(total), arguments.output.display()));
    if results.failed > 0 {
        output::note(format_args!("{} of {} failed; the same command runs them again", results.failed, cells(total)));
    }
    let made_by = format!("chronodisk {}", version::long());
    let report = plan.write_report(&results, &done, &arguments.plot, &made_by)?;
    output::note(format_args!("report: {}", report.display()));
    let plotted: Result<(), Failure> = arguments.plot.iter().try_for_each(|(x, y)| plot(arguments, &results, x, y));
    if results.failed > 0 {
        // If cells failed, there may be no data to plot.
        plotted.unwrap_or_else(output::failure);
        return Ok(status::CHECK_FAILED);
    }
    plotted?;
    Ok(status::FINE)
}

fn cells(count: usize) -> String {
    counted(count as u64, "cell")
}

fn told_of_end(ending: &Ending<'_>, complete: usize, total: usize) -> u8 {
    let (status, name) = ending.told();
    output::note(format_args!("{name} ended the sweep after {complete} of {}; the same command goes on", cells(total)));
    status
}

/// Reports the result of a part.
fn end_part(
    arguments: &Arguments,
    found: &[Option<Done>],
    (total, there): (usize, u64),
    ending: &Ending<'_>,
) -> Outcome {
    let done: Vec<&Done> = found.iter().flatten().collect();
    if done.len() < total {
        return Ok(told_of_end(ending, done.len(), total));
    }
    let directory = arguments.output.display();
    output::note(format_args!("this part is done: {}, {there} of them from earlier: {directory}", cells(total)));
    let failed = done.iter().filter(|done| done.status != 0).count();
    if failed > 0 {
        output::note(format_args!("{failed} of {} failed; the same command runs them again", cells(total)));
        return Ok(status::CHECK_FAILED);
    }
    Ok(status::FINE)
}

/// Writes the script of an array job, and prints the commands to type.
fn write_array_job(arguments: &Arguments, plan: &Plan, executable: &Path) -> Outcome {
    let working_directory =
        std::env::current_dir().map_err(|error| Failure::host(format!("can't find the working directory: {error}")))?;
    let directory = &arguments.output;
    let job = ArrayJob {
        executable,
        working_directory: &working_directory,
        file: &arguments.file,
        directory,
        cells: plan.cells(),
        jobs: arguments.jobs,
        exclusive: is_in_real_time(plan.sweep()),
    };
    let path = job.path();
    let mut file = AtomicFile::create(&path).map_err(Failure::host)?;
    file.write_all(job.script().as_bytes())
        .map_err(|error| Failure::host(format!("can't write {}: {error}", path.display())))?;
    file.keep().map_err(Failure::host)?;
    let (cells, tasks) = (job.cells, job.tasks());
    output::note(format_args!("an array job of {tasks} tasks for {cells} cells. To run it, and to write the results:"));
    output::data(&job.commands())?;
    Ok(status::FINE)
}

fn plot(arguments: &Arguments, results: &Results, x: &str, y: &str) -> Result<(), Failure> {
    let curves = results.curves(x, y).map_err(|message| Failure::usage(format!("--plot {x},{y}: {message}")))?;
    let path = arguments.output.join(format!("{x}-{y}.svg"));
    plot_curves(&path, x, y, &curves).map_err(Failure::host)?;
    output::note(format_args!("plot: {}", path.display()));
    Ok(())
}

/// The long options of a command of `root`, the whole command line.
fn options_of(root: &clap::Command, command: Command) -> Vec<String> {
    let found = command.words().iter().try_fold(root, |at, word| at.find_subcommand(word));
    let options = found.into_iter().flat_map(clap::Command::get_arguments);
    options.filter_map(|argument| argument.get_long()).map(str::to_owned).collect()
}

/// Refuses values that the command would refuse, before any cell has run.
fn check_values(sweep: &Sweep, root: &clap::Command) -> Result<(), Failure> {
    let options = sweep.options.iter().map(|(name, value)| ("options", name, value));
    let axes = sweep.axes.iter().flat_map(|(name, values)| values.iter().map(move |value| ("axes", name, value)));
    let mut parser = root.clone();
    for (table, name, value) in options.chain(axes) {
        if sweep.command.argument() == Some(name.as_str()) || name.starts_with("profile.") {
            continue;
        }
        let words = std::iter::once(root.get_name()).chain(sweep.command.words().iter().copied()).map(str::to_owned);
        let Err(error) = parser.try_get_matches_from_mut(words.chain(option_words(name, value))) else { continue };
        // The other options are not there.
        if [ErrorKind::MissingRequiredArgument, ErrorKind::MissingSubcommand].contains(&error.kind()) {
            continue;
        }
        let told = error.to_string();
        let message = told.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        let key = format!("{table}.{name}");
        return Err(sweep.wrong(&key, format!("{key}: {message}")).into());
    }
    Ok(())
}

/// Values that an option has in some cell.
fn values(sweep: &Sweep, name: &str) -> Vec<Value> {
    let of_axis = sweep.axes.get(name).into_iter().flatten();
    sweep.options.get(name).into_iter().chain(of_axis).cloned().collect()
}

/// Whether other load on the host disturbs some cell.
fn is_in_real_time(sweep: &Sweep) -> bool {
    sweep.command == Command::Mount || values(sweep, "clock").contains(&Value::Text("real".to_owned()))
}

/// Cells that this host does well at the same time.
fn jobs(sweep: &Sweep) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match sweep.command {
        Command::Simulate => processors,
        _ if is_in_real_time(sweep) => 1,
        Command::Run | Command::Replay | Command::Mount => {
            let sizes = values(sweep, "memory");
            let sizes = sizes.iter().filter_map(|size| chronodisk_run::quantity::bytes(&size.to_string()).ok()).max();
            // Twice the size: for the emulator, and for the bytes of the device.
            let need = 2 * sizes.unwrap_or(GUEST_MEMORY_BYTES);
            processors.min((memory_available_bytes() / need) as usize).max(1)
        }
    }
}

/// Default memory of a guest.
const GUEST_MEMORY_BYTES: u64 = 512 << 20;

fn memory_available_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
