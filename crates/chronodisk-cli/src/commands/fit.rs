//! `chronodisk fit`: fits a profile's free constants to measurements of a drive.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use chronodisk_device::{BuildOptions, Profile};
use chronodisk_engine::state_file;
use chronodisk_fit::{
    Access, Conditions, FitError, Fitted, Free, InUse, Method, Override, Point, Problem, Progress, Search, Selector,
    Task, Template, read_sweep, uses,
};
use chronodisk_report::{PointUse, StructureErrors, SweepFigures, SweepFit, plot_sweeps, write_text};
use chronodisk_run::{EndFlag, EndSignals, device, quantity};
use chronodisk_sim::{TextError, TextFile};
use chronodisk_trace::Workload;
use clap::Args;

use crate::failure::{Failure, Outcome, status};
use crate::output;
use crate::progress::Working;

/// Fits free constants of a profile to a measured sweep
///
/// A sweep holds mean latency or requests per second, and percentiles, at several queue depths: fio's JSON output or
/// a CSV file with a header (docs/fitting-a-device.md). Each point is simulated as a closed loop at its depth. A
/// constant is free if the comment after its value begins with `fit: LOW..HIGH`, or if --free names it.
#[derive(Debug, Args)]
#[command(after_help = "Ctrl-C and SIGTERM end the search with the best constants so far and exit status 128+n.\n\
    Points whose throughput is more than 5 % below that of a smaller depth in the same sweep are excluded.\n\n\
    Examples:\n  \
    chronodisk fit --data sweep.csv --profile drive.toml -o fitted.toml --hold-out 'depth>=32'\n  \
    chronodisk fit --data qd1.json --data qd16.json --profile intel-p4800x --check")]
pub struct Arguments {
    /// Reads a measured sweep: fio's JSON or CSV; may be repeated
    #[arg(long, value_name = "FILE", required = true)]
    data: Vec<PathBuf>,

    /// Starts from this profile: a name from `chronodisk devices`, or a file
    #[arg(long, short, value_name = "PROFILE")]
    profile: String,

    /// Writes the fitted profile to this file; comments and other values are kept
    #[arg(long, short, value_name = "OUT.toml", required_unless_present = "check")]
    output: Option<PathBuf>,

    /// Replaces an existing output file
    #[arg(long)]
    force: bool,

    /// Compares the profile with the sweep, without fitting or writing
    #[arg(long, conflicts_with_all = ["output", "free", "cross_validate"])]
    check: bool,

    /// Frees a constant within bounds, such as 'flash.read-time=40 us..60 us'; may be repeated
    #[arg(long, value_name = "KEY[=LOW..HIGH]")]
    free: Vec<Free>,

    /// Frees only the constants of --free, not those marked in the profile
    #[arg(long, requires = "free")]
    only_free: bool,

    /// Uses only points that meet this condition, such as 'set=randread' or 'size<=16KiB'; may be repeated
    #[arg(long, value_name = "CONDITION")]
    only: Vec<Selector>,

    /// Excludes points from the fit and reports their errors separately, such as 'depth>=32'; may be repeated
    #[arg(long, value_name = "CONDITION")]
    hold_out: Vec<Selector>,

    /// Also fits without each set, without requests of 32 KiB and more, and without depths of 32 and more, and reports
    /// the errors of each part that was left out; the fitted profile states them
    #[arg(long)]
    cross_validate: bool,

    /// Also cross-validates this profile, and fits the one whose left-out errors are smaller; may be repeated
    #[arg(long, value_name = "PROFILE", requires = "cross_validate")]
    alternative: Vec<String>,

    /// Sets the workload of all sets, or of sets whose name contains SET, if the file does not state it correctly: a
    /// workload of `simulate` with one request size
    #[arg(long, value_name = "[SET=]WORKLOAD", value_parser = workload_override)]
    workload: Vec<Override>,

    /// Uses only this much of the device, from its beginning
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    region: Option<u64>,

    /// Sets the zone size, for points that state a number of zones
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    zone: Option<u64>,

    /// Sets the capacity of the device (default: the profile's)
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    capacity: Option<u64>,

    /// Simulates points on a used drive, whose state `chronodisk age` wrote, instead of an erased one. Free constants
    /// must not change its flash or translation layer
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Applies --state only to points that meet this condition, such as 'set=preconditioned'; if repeated, all must
    /// hold
    #[arg(long, value_name = "CONDITION", requires = "state")]
    state_for: Vec<Selector>,

    /// Measures this number of requests at each point, after a quarter as many for warming up. Writes on a used drive
    /// get at least 65,536
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    requests: u64,

    /// Ends the search after about this number of simulated devices
    #[arg(long, value_name = "N", default_value_t = 400)]
    evaluations: usize,

    /// Repeats the search from this number of other starting points
    #[arg(long, value_name = "N", default_value_t = 2)]
    restarts: usize,

    /// Seeds workloads, devices and starting points
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Simulates on this number of threads; the result does not depend on it
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,

    /// Plots measured points and modelled curves to this file
    #[arg(long, value_name = "FILE.svg", value_parser = quantity::svg_file)]
    plot: Option<PathBuf>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn workload_override(text: &str) -> Result<Override, String> {
    let (set, name) = text.rsplit_once('=').unwrap_or(("", text));
    let access = name.parse::<Workload>().ok().and_then(Access::of_workload);
    let access = access.ok_or("expected random-read, random-write, random-mixed, seq-read or seq-write")?;
    Ok(Override { set: set.to_owned(), access })
}

/// Fits, and writes the figures and the profile.
pub fn execute(arguments: Arguments) -> Outcome {
    if let Some(path) = arguments.output.as_ref().filter(|path| path.exists() && !arguments.force) {
        let message = format!("{} already exists", path.display());
        return Err(Failure::usage(message).help("choose another name, or add --force to replace it"));
    }
    for path in arguments.output.iter().chain(&arguments.plot) {
        output::expect_place(path)?;
    }
    let points = points(&arguments)?;
    tell(&points);
    let names = [&arguments.profile].into_iter().chain(&arguments.alternative);
    let problems: Vec<Problem> = names.map(|name| problem(&arguments, name, &points)).collect::<Result<_, _>>()?;
    let asked = EndSignals::flag()?;
    let (chosen, fitted) = fit(&arguments, &problems, &asked)?;
    let (problem, fit) = (&problems[chosen], &fitted.fit);
    if let Some(path) = &arguments.output {
        let data = fit.data.join(", ");
        let text = problem.template.documented(&fitted.values, &data, &note(fit), &fit.cross_validation);
        write_text(path, &text, arguments.force).map_err(Failure::host)?;
    }
    if let Some(path) = &arguments.plot {
        plot_sweeps(path, fit).map_err(Failure::host)?;
    }
    output::data(&if arguments.json { fit.to_json() } else { fit.render() })?;
    if fit.interrupted {
        output::note(format_args!(
            "interrupted; these are the best constants after {} simulated devices",
            fit.evaluations
        ));
        return Ok(asked.status());
    }
    Ok(status::FINE)
}

/// The fitting problem.
fn problem(arguments: &Arguments, name: &str, points: &[Point]) -> Result<Problem, Failure> {
    let profile = device::find(name)?;
    let named_only = arguments.only_free || arguments.check;
    let template = Template::new(profile.text(), name, &arguments.free, named_only).map_err(failure)?;
    if template.constants().is_empty() && !arguments.check {
        return Err(Failure::usage(format!("{name}: no constant is free")).help(
            "name one with --free KEY=LOW..HIGH, or add the comment `fit: LOW..HIGH` after its value in the profile; \
             --check compares without fitting",
        ));
    }
    let problem = Problem {
        template,
        profile_file: name.to_owned(),
        points: uses(points.to_vec(), &arguments.hold_out),
        conditions: Conditions {
            requests: arguments.requests,
            seed: arguments.seed,
            region_bytes: arguments.region,
            zone_bytes: arguments.zone,
        },
        capacity_bytes: arguments.capacity,
        in_use: in_use(arguments, &profile)?,
    };
    if !arguments.check && !problem.points.iter().any(|point| point.1 == PointUse::Fitted) {
        return Err(Failure::usage("--hold-out leaves no point to fit to")
            .help("check the conditions of --only and --hold-out"));
    }
    Ok(problem)
}

/// The used drive, if some points are simulated on one.
fn in_use(arguments: &Arguments, profile: &Profile) -> Result<Option<InUse>, Failure> {
    let Some(path) = &arguments.state else { return Ok(None) };
    let build = BuildOptions { capacity_bytes: arguments.capacity, seed: arguments.seed, ..BuildOptions::default() };
    let state = state_file::load(profile, &build, path).map_err(device::build_failure)?;
    Ok(Some(InUse { state, points: arguments.state_for.clone() }))
}

/// The points of all files that meet the conditions.
fn points(arguments: &Arguments) -> Result<Vec<Point>, Failure> {
    let mut points = Vec::new();
    for path in &arguments.data {
        let file = path.display().to_string();
        let text = read_text(path).map_err(|error| Failure::usage(format!("{file}: {error}")))?;
        points.extend(read_sweep(&text, &file, &arguments.workload).map_err(failure)?);
    }
    points.retain(|point| arguments.only.iter().all(|selector| selector.holds(point)));
    match points.is_empty() {
        true => Err(Failure::usage("no point meets the conditions of --only")
            .help("the sets, depths and sizes are those of the data files")),
        false => Ok(points),
    }
}

/// Reads a file that may hold anything, or never end.
fn read_text(path: &Path) -> Result<String, TextError> {
    TextFile::Measurements.read(File::open(path).map_err(TextError::Unreadable)?)
}

/// Prints the access assumed for each set, so that the user can detect a wrong one.
fn tell(points: &[Point]) {
    let mut told: Vec<(&str, Access, u64)> = Vec::new();
    for point in points {
        let this = (point.set.as_str(), point.access, point.block_bytes);
        if told.contains(&this) {
            continue;
        }
        told.push(this);
        let alike: Vec<&Point> =
            points.iter().filter(|it| (it.set.as_str(), it.access, it.block_bytes) == this).collect();
        let depths: Vec<String> = alike.iter().map(|point| point.depth.to_string()).collect();
        let zones = point.zones.map_or(String::new(), |zones| format!(", {zones} zones"));
        let (set, access, bytes) = this;
        output::note(format_args!("understood {set}: {access}, {bytes} B, depth {}{zones}", depths.join(" ")));
    }
}

/// Fits the only profile, or the one of several with the smallest left-out errors; returns its index.
fn fit(arguments: &Arguments, problems: &[Problem], asked: &EndFlag) -> Result<(usize, Fitted), Failure> {
    let threads = usize::from(arguments.threads);
    let working = Working::at("simulating the points");
    if arguments.check {
        let compared = problems[0].compare(&|tasks| in_parallel(tasks, threads, &|| false)).map_err(failure)?;
        return Ok((0, compared));
    }
    let stop = || asked.came();
    let begun = Instant::now();
    let told = Cell::new(begun);
    let progress = |progress: &Progress<'_>| {
        let without = if progress.left_out.is_empty() { "" } else { " without " };
        let words = format!(
            "{} devices{without}{}: error of the mean {:.2} %, of the 99th percentile {:.1} %",
            progress.evaluations, progress.left_out, progress.mean_error_percent, progress.p99_error_percent
        );
        if io::stderr().is_terminal() && told.get().elapsed() >= ON_A_TERMINAL {
            told.set(Instant::now());
            output::note(&words);
        }
        // An evaluation of a large device may take longer than the interval of progress messages should be.
        working.now_at(words);
    };
    let method = Method {
        search: Search { evaluations: arguments.evaluations, restarts: arguments.restarts, seed: arguments.seed },
        cross_validate: arguments.cross_validate && problems.len() == 1,
        run: &|tasks| in_parallel(tasks, threads, &stop),
        stop: &stop,
        progress: &progress,
    };
    if let [problem] = problems {
        return Ok((0, problem.fit(&method).map_err(failure)?));
    }
    let mut structures = Vec::new();
    for problem in problems {
        let found = problem.cross_validate(&method).map_err(failure)?;
        let profile = problem.profile_file.clone();
        structures.push(StructureErrors { profile, score: found.score(), errors: found.errors });
    }
    let score = |index: &usize| structures[*index].score.unwrap_or(f64::INFINITY);
    let chosen = (0..problems.len()).min_by(|a, b| score(a).total_cmp(&score(b))).unwrap_or(0);
    output::note(format_args!("{} has the smallest errors on the left-out points", problems[chosen].profile_file));
    let mut fitted = problems[chosen].fit(&method).map_err(failure)?;
    fitted.fit.cross_validation = structures[chosen].errors.clone();
    fitted.fit.structures = structures;
    Ok((chosen, fitted))
}

/// Interval of progress lines on a terminal, in addition to those every ten seconds.
const ON_A_TERMINAL: Duration = Duration::from_secs(2);

/// Runs the tasks on `threads` threads; a free one takes the next task.
fn in_parallel(
    tasks: &[Task],
    threads: usize,
    stop: &(dyn Fn() -> bool + Sync),
) -> Vec<Result<Vec<SweepFigures>, FitError>> {
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, tasks.len().max(1)) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(index) else { break };
                    // The receiver outlives all senders.
                    let _ = sender.send((index, task.run(stop)));
                }
            });
        }
    });
    drop(sender);
    let mut results: Vec<_> = results.into_iter().collect();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Notes about the fit in the fitted profile.
fn note(fit: &SweepFit) -> Vec<String> {
    let mut lines = vec![format!(
        "{} requests per point, seed {}, {} devices simulated{}.",
        fit.requests,
        fit.seed,
        fit.evaluations,
        if fit.interrupted { " until it was interrupted" } else { "" }
    )];
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1} %"));
    for used in [PointUse::Fitted, PointUse::HeldOut] {
        let Some([before, after]) = fit.errors(used) else { continue };
        let mut line = format!("{} points {}: ", after.points, used.name());
        let _ = write!(line, "absolute error of the mean {} ", cell(after.mean_percent));
        let _ = write!(line, "(before {}), ", cell(before.mean_percent));
        let _ =
            write!(line, "of the 99th percentile {} (before {}).", cell(after.p99_percent), cell(before.p99_percent));
        lines.push(line);
    }
    let excluded = fit.points.iter().filter(|point| point.used == PointUse::Excluded);
    for point in excluded {
        lines.push(format!("Excluded, since not monotone in depth: {}, depth {}.", point.set, point.depth));
    }
    for error in &fit.cross_validation {
        let (mean, p99) = (cell(error.mean_percent), cell(error.p99_percent));
        lines.push(format!("Fitted without {}: its errors {mean} and {p99}.", error.name));
    }
    lines
}

fn failure(error: FitError) -> Failure {
    match &error.help {
        Some(help) => Failure::usage(&error).help(help),
        None => Failure::usage(&error),
    }
}
