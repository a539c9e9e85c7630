//! Errors of simulated flash drives against measured ones: without a fit, and on rows that were held out of a fit.
//!
//! ```console
//! $ cargo bench -p chronodisk-fit --bench measured_drives -- \
//!       [PART..] [--set NAME] [--start FILE] [--free KEY=BOUNDS]... [--evaluations N] [--requests N]
//! ```
//!
//! | part | printed for each row of `ssd/measured-drives.csv` |
//! |---|---|
//! | `published` | the ZN540 as published (`zn540-as-published.toml`), nothing fitted |
//! | `sweeps` | each sweep by a fit to the three others, which begins at the published constants |
//! | `depths` | the rows of depth 32 and more by a fit to those below of the same drive |
//! | `shipped` | the profiles as they are shipped, fitted to these rows |
//! | `constants` | no rows: the constants fitted to all rows of a drive |
//!
//! With `--set NAME`, `sweeps` leaves out only sets whose name contains it. With `--start FILE`, that profile replaces
//! the published one. `--free` adds a constant to the fitted ones, such as one of a structure in that file. Without a
//! part, `published` and `shipped` run, which fit nothing and take seconds.
//!
//! For `sweeps`, both drives are fitted together: each has constants that only the other drive's sweeps can tell. No
//! other sweep of the zoned drive depends on its program time, and the conventional drive has a single sweep. The
//! second table leaves out the rows that can't be predicted: rows that depend on a constant on which no fitted row of
//! the same drive depends (`DEPENDS`, `TELLS`). Sweeps of a preconditioned drive are simulated on a drive that was
//! written twice from beginning to end, so that filling a superblock takes an erase. Zones are erased beforehand. Rows
//! that are not monotone in depth are excluded by the rule of `chronodisk_fit::not_monotone`. Without the reference
//! (`CHRONODISK_REFERENCE`, or `../shared/reference` beside the repository), the bench prints the parts that it skips.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use chronodisk_device::{AgeingOptions, AgeingWorkload, BuildOptions, FlashState, Profile};
use chronodisk_fit::{
    Conditions, FitError, Free, InUse, Method, Point, Problem, Progress, Search, Selector, Task, Template, read_sweep,
    uses,
};
use chronodisk_report::{PointUse, SweepFigures, SweepPoint};

/// The drives' names in the sweeps.
const DRIVES: [&str; 2] = ["zns-a", "nvme-a"];

/// A fit simulates one request for each n of the reported figures.
const SEARCHED: u64 = 4;

const PUBLISHED: &str = include_str!("zn540-as-published.toml");

/// The fitted constants and their bounds.
const FREE: [&str; 16] = [
    "flash.read-small.0=40 us..70 us",
    "flash.read-small.1=40 us..70 us",
    "flash.read-small.2=40 us..80 us",
    "flash.program.0=300 us..3500 us",
    "flash.program-variation=10 us..2000 us",
    "bus.rate=400 MB/s..800 MB/s",
    "front.link-rate=3500 MB/s..4300 MB/s",
    "front.read-processing=0.5 us..4 us",
    "front.write-processing=0.5 us..4 us",
    "front.read-latency=2 us..30 us",
    "front.write-latency=2 us..15 us",
    "front.write-jitter=0.05 us..2 us",
    "buffer.size=2 MiB..12 MiB by 128 KiB",
    "buffer.write-unit=0.05 us..1.5 us",
    "buffer.read-hit=0.1 us..5 us",
    "read-ahead.size=1 MiB..8 MiB by 256 KiB",
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |name: &str, otherwise: u64| {
        let place = arguments.iter().position(|argument| argument == name);
        place.and_then(|place| arguments.get(place + 1)?.parse().ok()).unwrap_or(otherwise)
    };
    let (requests, evaluations) = (number("--requests", 40_000), number("--evaluations", 300));
    let conditions = Conditions { requests, seed: 1, region_bytes: None, zone_bytes: None };
    let search = Search { evaluations: evaluations as usize, restarts: 0, seed: 1 };
    let Some(points) = measured() else { return };
    let start = arguments.iter().position(|argument| argument == "--start");
    let start = start.map_or(PUBLISHED.to_owned(), |place| {
        let file = arguments.get(place + 1).expect("--start has a file behind it");
        std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"))
    });
    let free = free_constants(&arguments);
    let only = arguments.iter().position(|argument| argument == "--set").and_then(|place| arguments.get(place + 1));
    let named = |part: &str| arguments.iter().any(|argument| argument == part);
    let parts = ["published", "sweeps", "depths", "shipped", "constants"];
    let none = !parts.iter().any(|part| named(part));
    if none || named("published") {
        compare("published constants, nothing fitted", &start, "zn540-as-published", points.clone(), conditions);
    }
    if named("sweeps") {
        let mut held_out = Vec::new();
        for set in sets(&points).iter().filter(|set| only.is_none_or(|only| set.contains(only.as_str()))) {
            let selector = format!("set={set}").parse().expect("a condition");
            held_out.extend(fit_without(&start, &free, &points, &[selector], search, conditions));
        }
        print_rows("each sweep by a fit to the others", &held_out);
        held_out.retain(|row| row.told);
        print_rows("of these, the rows that depend on nothing that only they tell of their drive", &held_out);
    }
    if named("depths") {
        let mut held_out = Vec::new();
        for drive in DRIVES {
            let own: Vec<Point> = points.iter().filter(|point| point.set.starts_with(drive)).cloned().collect();
            let selector = "depth>=32".parse().expect("a condition");
            held_out.extend(fit_without(&start, &free, &own, &[selector], search, conditions));
        }
        print_rows("depth 32 and more by a fit to the rest", &held_out);
    }
    if named("constants") {
        for drive in DRIVES {
            let selector = format!("set!={drive}").parse().expect("a condition");
            fit_without(&start, &free, &points, &[selector], search, conditions);
        }
    }
    if none || named("shipped") {
        for (drive, name) in DRIVES.into_iter().zip(["wd-zn540", "nvme-a"]) {
            let own = points.iter().filter(|point| point.set.starts_with(drive)).cloned().collect();
            let profile = Profile::find(name).expect("a built-in profile");
            compare(&format!("{name} as shipped, fitted to these rows"), profile.text(), name, own, conditions);
        }
    }
}

/// The free constants: those of all fits, and those of `--free`.
fn free_constants(arguments: &[String]) -> Vec<Free> {
    let named = arguments.windows(2).filter(|pair| pair[0] == "--free").map(|pair| pair[1].as_str());
    FREE.into_iter().chain(named).map(|free| free.parse().unwrap_or_else(|error| panic!("{free}: {error}"))).collect()
}

/// The rows of the reference; `None` without it.
fn measured() -> Option<Vec<Point>> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    let folder = std::env::var_os("CHRONODISK_REFERENCE").map_or_else(beside, PathBuf::from);
    let path = folder.join("ssd/measured-drives.csv");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("SKIPPED: no {}; set CHRONODISK_REFERENCE", path.display());
        return None;
    };
    Some(read_sweep(&text, "measured-drives.csv", &[]).unwrap_or_else(|error| panic!("{error}")))
}

thread_local! {
    /// The last aged profile and its state, because ageing a terabyte takes a minute.
    static AGED: RefCell<Option<(String, FlashState)>> = const { RefCell::new(None) };
}

/// The preconditioned drive of the sweeps that ask for one; `None` if no sweep does. Later profiles must differ from
/// `text` in times only.
fn preconditioned(text: &str, name: &str, points: &[(Point, PointUse)]) -> Option<InUse> {
    let selector: Selector = "set=preconditioned".parse().expect("a condition");
    points.iter().find(|(point, _)| selector.holds(point))?;
    let known = AGED.take().filter(|(aged, _)| aged == text).map(|(_, state)| state);
    let state = known.unwrap_or_else(|| {
        let profile = Profile::parse(text, name).unwrap_or_else(|error| panic!("{error}"));
        let ageing = AgeingOptions { workload: AgeingWorkload::SequentialTwice, ..AgeingOptions::default() };
        let aged = profile.age(&BuildOptions::default(), &ageing, &mut |_| ControlFlow::Continue(()));
        aged.unwrap_or_else(|error| panic!("{error}")).expect("nobody ended it").0
    });
    AGED.set(Some((text.to_owned(), state.clone())));
    Some(InUse { state, points: vec![selector] })
}

fn sets(points: &[Point]) -> Vec<String> {
    let mut sets: Vec<String> = points.iter().map(|point| point.set.clone()).collect();
    sets.dedup();
    sets
}

fn compare(what: &str, text: &str, name: &str, points: Vec<Point>, conditions: Conditions) {
    let template = Template::new(text, name, &[], true).unwrap_or_else(|error| panic!("{error}"));
    let points = uses(points, &[]);
    let in_use = preconditioned(text, name, &points);
    let problem = Problem { template, profile_file: name.to_owned(), points, conditions, capacity_bytes: None, in_use };
    let compared = problem.compare(&in_parallel).unwrap_or_else(|error| panic!("{error}"));
    let rows = compared.fit.points.into_iter().map(|point| Row { point, told: true });
    print_rows(what, &rows.collect::<Vec<Row>>());
}

/// A held-out row.
struct Row {
    point: SweepPoint,
    /// Whether fitted rows of the same drive determine the constants on which it depends.
    told: bool,
}

/// A row depends on a constant if a change of the constant by a fifth changes the logarithm of the row's mean by this
/// much: by a quarter of the change or more.
const DEPENDS: f64 = 0.05;
/// A row determines a constant if the same change of the constant changes the logarithm of its mean by this much.
const TELLS: f64 = 0.01;

/// Whether each point depends only on constants that a fitted point of its drive determines; prints the others. The
/// rule was fixed before any of the results were known.
fn told_by_fitted(problem: &Problem, values: &[f64]) -> Vec<bool> {
    let followed = problem.sensitivities(values, 1.2, &in_parallel).unwrap_or_else(|error| panic!("{error}"));
    let drive = |point: &Point| DRIVES.into_iter().find(|drive| point.set.starts_with(drive));
    let mut told = vec![true; problem.points.len()];
    for (constant, followed) in problem.template.constants().iter().zip(&followed) {
        let mut untold = 0;
        for (index, (point, _)) in problem.points.iter().enumerate() {
            let tells = |(other, followed): (&(Point, PointUse), &f64)| {
                other.1 == PointUse::Fitted && drive(&other.0) == drive(point) && followed.abs() >= TELLS
            };
            if followed[index].abs() >= DEPENDS && !problem.points.iter().zip(followed).any(tells) {
                told[index] = false;
                untold += 1;
            }
        }
        if untold > 0 {
            println!("  {} is told by no fitted row of the drive, and {untold} rows depend on it", constant.key);
        }
    }
    told
}

/// Fits to the rows that meet no condition in `out`, prints the constants, and returns the figures of the other rows.
fn fit_without(
    start: &str,
    free: &[Free],
    points: &[Point],
    out: &[Selector],
    search: Search,
    conditions: Conditions,
) -> Vec<Row> {
    let name = "zn540-as-published";
    let template = Template::new(start, name, free, true).unwrap_or_else(|error| panic!("{error}"));
    let points = uses(points.to_vec(), out);
    let searched = Conditions { requests: conditions.requests / SEARCHED, ..conditions };
    let in_use = preconditioned(start, name, &points);
    let mut problem =
        Problem { template, profile_file: name.to_owned(), points, conditions: searched, capacity_bytes: None, in_use };
    let told = Cell::new(Instant::now());
    let progress = |progress: &Progress<'_>| {
        if told.get().elapsed().as_secs() >= 20 {
            told.set(Instant::now());
            let Progress { evaluations, mean_error_percent: mean, p99_error_percent: p99, .. } = progress;
            println!("  {evaluations} devices: {mean:.1} % and {p99:.1} %");
        }
    };
    let run = &in_parallel;
    let method = Method { search, cross_validate: false, run, stop: &|| false, progress: &progress };
    let fitted = problem.fit(&method).unwrap_or_else(|error| panic!("{error}"));
    for constant in &fitted.fit.constants {
        println!("  {:<26} {:>9} -> {:>9} {}", constant.key, constant.before, constant.after, constant.unit);
    }
    if let Some([before, after]) = fitted.fit.errors(PointUse::Fitted) {
        let percent = |value: Option<f64>| value.unwrap_or(f64::NAN);
        println!(
            "  {} fitted rows: error of the mean {:.1} % (before {:.1}), of the p99 {:.1} % (before {:.1})",
            after.points,
            percent(after.mean_percent),
            percent(before.mean_percent),
            percent(after.p99_percent),
            percent(before.p99_percent)
        );
    }
    let told = told_by_fitted(&problem, &fitted.values);
    let told = told.into_iter().zip(&problem.points).filter(|(_, point)| point.1 != PointUse::Fitted);
    let told: Vec<bool> = told.map(|(told, _)| told).collect();
    // The held-out rows are simulated with more requests.
    let text = problem.template.text(&fitted.values);
    problem.template = Template::new(&text, name, &[], true).unwrap_or_else(|error| panic!("{error}"));
    problem.points.retain(|(_, used)| *used != PointUse::Fitted);
    problem.conditions = conditions;
    let points = problem.compare(&in_parallel).unwrap_or_else(|error| panic!("{error}")).fit.points;
    points.into_iter().zip(told).map(|(point, told)| Row { point, told }).collect()
}

/// Prints rows and their mean errors; excluded rows are listed but not averaged.
fn print_rows(what: &str, rows: &[Row]) {
    println!("\n{what}");
    println!(
        "{:<42} {:>7} {:>5} {:>9} {:>9} {:>8} {:>9} {:>9} {:>8}",
        "sweep", "bytes", "depth", "mean us", "model", "error", "p99 us", "model", "error"
    );
    let (mut means, mut p99s, mut counted) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = Vec::new();
    for Row { point: row, .. } in rows {
        // A row excluded in one fit is excluded in all, so list it once.
        if seen.contains(&row.line) {
            continue;
        }
        seen.push(row.line);
        let model = row.after.as_ref().unwrap_or(&row.before);
        let figure = |of: fn(&SweepFigures) -> Option<f64>| {
            let (measured, modelled) = (of(&row.measured).unwrap_or(f64::NAN), of(model).unwrap_or(f64::NAN));
            (measured, modelled, 100.0 * (modelled - measured) / measured)
        };
        let (mean, p99) = (figure(|figures| figures.mean_us), figure(|figures| figures.p99_us));
        let excluded = row.used == PointUse::Excluded;
        println!(
            "{:<42} {:>7} {:>5} {:>9.1} {:>9.1} {:>+7.1}% {:>9.1} {:>9.1} {:>+7.1}%{}",
            row.set.chars().take(42).collect::<String>(),
            row.block_bytes,
            row.depth,
            mean.0,
            mean.1,
            mean.2,
            p99.0,
            p99.1,
            p99.2,
            if excluded { "  not monotone" } else { "" }
        );
        if !excluded {
            means.push(mean.2.abs());
            p99s.push(p99.2.abs());
            counted.push((row.set.as_str(), mean.2.abs(), p99.2.abs()));
        }
    }
    let mut of_set = std::collections::BTreeMap::<&str, (Vec<f64>, Vec<f64>)>::new();
    for (set, mean, p99) in &counted {
        let (means, p99s) = of_set.entry(set).or_default();
        means.push(*mean);
        p99s.push(*p99);
    }
    let average = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    for (set, (means, p99s)) in &of_set {
        let set: String = set.chars().take(42).collect();
        println!("{set:<42} {} rows: mean {:.1} %, p99 {:.1} %", means.len(), average(means), average(p99s));
    }
    println!("{} rows: error of the mean {:.1} %, of the p99 {:.1} %", means.len(), average(&means), average(&p99s));
}

/// Runs the tasks on two threads; a free one takes the next task.
fn in_parallel(tasks: &[Task]) -> Vec<Result<Vec<SweepFigures>, FitError>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { return results };
            results.push((index, task.run(&|| false)));
        }
    };
    let mut results = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut results = work();
        results.extend(other.join().expect("a task does not panic"));
        results
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
