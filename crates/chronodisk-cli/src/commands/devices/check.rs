//! `chronodisk devices check`: the behaviour of devices under plain and mixed loads, beside their published figures.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronodisk_device::rates::{Check, Effort, Figure, Load, Row, Verdict, Wait, check};
use chronodisk_device::{Bytes, Profile, ProfileError};
use chronodisk_report::{Align, Table};
use chronodisk_run::device;
use chronodisk_sim::Nanos;
use clap::Args;
use serde::Serialize;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Name and version of the JSON schema; added fields do not change it.
const SCHEMA: &str = "chronodisk.devices-check/1";

#[derive(Debug, Args)]
#[command(
    after_help = "A published figure is met within 15 %, or within the tolerance that its profile states with a \
    source. Depth costs at most 10 % of sequential throughput. A request waits at most the age bound or the longest \
    stall of the device, 100 ms, and four times the time of as many requests as are outstanding. A flush or a FUA \
    write beside an endless writer takes at most the time without later requests, the age bound or the longest stall, \
    and 100 ms. Zero-latency access is not slower than access in order.\n\n\
    Exit status: 1 if a profile fails.\n\n\
    Example: chronodisk devices check nearline-20tb my-drive.toml"
)]
pub struct Arguments {
    /// Profiles to check: names from the list, or files (default: all built-in profiles)
    #[arg(value_name = "PROFILE")]
    profiles: Vec<String>,

    /// Measures fewer loads with fewer requests
    #[arg(long)]
    short: bool,

    /// Checks on this number of threads; the result does not depend on it
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Found<'a> {
    schema: &'static str,
    effort: &'static str,
    checks: Vec<Checked<'a>>,
}

#[derive(Serialize)]
pub(super) struct Checked<'a> {
    profile: &'a str,
    verdict: &'static str,
    /// Source of the published figures.
    source: Option<&'a str>,
    figures: Vec<FigureOut<'a>>,
    loads: Vec<LoadOut>,
    waits: Vec<WaitOut<'a>>,
    failures: &'a [String],
}

#[derive(Serialize)]
struct FigureOut<'a> {
    name: &'a str,
    unit: &'static str,
    published: f64,
    measured: f64,
    deviation_percent: f64,
    tolerance_percent: f64,
    contradicted_by: Option<&'a str>,
    passes: bool,
}

#[derive(Serialize)]
struct LoadOut {
    load: &'static str,
    block_bytes: u32,
    depth: u32,
    /// Whether the load was at the end of the device instead of its beginning.
    at_end: bool,
    /// These three are `null` if a fresh device refuses such requests or has no data to read.
    megabytes_per_second: Option<f64>,
    requests_per_second: Option<f64>,
    longest_wait_ms: Option<f64>,
    wait_bound_ms: f64,
}

/// A wait under a load that mixes operations or never pauses.
#[derive(Serialize)]
struct WaitOut<'a> {
    load: &'a str,
    wait_ms: f64,
    bound_ms: f64,
}

/// Checks profiles, and prints the findings.
pub fn execute(arguments: &Arguments) -> Outcome {
    let found: Result<Vec<Profile>, Failure> = match arguments.profiles.as_slice() {
        [] => Profile::builtin().iter().map(|builtin| device::find(&builtin.name)).collect(),
        names => names.iter().map(|name| device::find(name)).collect(),
    };
    let effort = if arguments.short { Effort::Short } else { Effort::Whole };
    let checks = in_parallel(&found?, effort, usize::from(arguments.threads)).map_err(device::failure)?;
    if arguments.json {
        let effort = if arguments.short { "short" } else { "whole" };
        output::json(&Found { schema: SCHEMA, effort, checks: checks.iter().map(checked).collect() })?;
    } else {
        output::data(&render(&checks))?;
    }
    let failed = checks.iter().any(|check| check.verdict() == Verdict::Failed);
    Ok(if failed { status::CHECK_FAILED } else { status::FINE })
}

/// Checks the profiles on `threads` threads; a free one takes the next profile.
fn in_parallel(profiles: &[Profile], effort: Effort, threads: usize) -> Result<Vec<Check>, ProfileError> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let done = crate::progress::Progress::new(profiles.len() as u64, "profiles");
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, profiles.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(profile) = profiles.get(index) else { break };
                    let checked = check(profile, effort);
                    done.advance(1);
                    results.lock().expect("no thread panics with it").push((index, checked));
                }
            });
        }
    });
    done.finish();
    let mut results = results.into_inner().expect("no thread panics with it");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, checked)| checked).collect()
}

pub(super) fn checked(check: &Check) -> Checked<'_> {
    Checked {
        profile: &check.profile,
        verdict: check.verdict().name(),
        source: check.source.as_deref(),
        figures: check.figures.iter().map(figure_out).collect(),
        loads: check.rows.iter().map(load_out).collect(),
        waits: check.waits.iter().map(wait_out).collect(),
        failures: &check.failures,
    }
}

fn thousandths(value: u64) -> f64 {
    value as f64 / 1e3
}

/// Rounds to significant digits for a result file.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn figure_out(figure: &Figure) -> FigureOut<'_> {
    FigureOut {
        name: &figure.name,
        unit: figure.unit,
        published: thousandths(figure.published_thousandths),
        measured: thousandths(figure.measured_thousandths),
        deviation_percent: rounded(figure.deviation_millionths() as f64 / 1e4),
        tolerance_percent: figure.tolerance_millionths as f64 / 1e4,
        contradicted_by: figure.contradicted_by.as_deref(),
        passes: figure.passes(),
    }
}

fn load_out(row: &Row) -> LoadOut {
    let Load { bytes, depth, .. } = row.load;
    LoadOut {
        load: row.load.name(),
        block_bytes: bytes,
        depth,
        at_end: row.at_end,
        megabytes_per_second: row.measured.map(|it| rounded(it.bytes_per_second as f64 / 1e6)),
        requests_per_second: row.measured.map(|it| thousandths(it.requests_per_kilosecond)),
        longest_wait_ms: row.measured.map(|it| rounded(it.longest_wait.as_millis_f64())),
        wait_bound_ms: rounded(row.wait_bound.as_millis_f64()),
    }
}

fn wait_out(wait: &Wait) -> WaitOut<'_> {
    let [wait_ms, bound_ms] = [wait.wait, wait.bound].map(|time| rounded(time.as_millis_f64()));
    WaitOut { load: &wait.name, wait_ms, bound_ms }
}

fn render(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        text.push_str(&format!("{}: {}\n", check.profile, check.verdict().name()));
        text.push_str(&loads_table(check));
        text.push_str(&waits_table(check));
        text.push_str(&render_figures(check));
        text.push('\n');
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict() == verdict).count();
    let [passed, none, failed] = [Verdict::Passed, Verdict::NoReference, Verdict::Failed].map(count);
    text.push_str(&format!("{passed} passed, {none} without a reference, {failed} failed\n"));
    text
}

/// The published figures beside the model's, followed by the failures.
pub(super) fn render_figures(check: &Check) -> String {
    let mut text = String::new();
    if !check.figures.is_empty() {
        text.push_str(&format!("published: {}\n", check.source.as_deref().unwrap_or("-")));
        text.push_str(&figures_table(check));
    }
    for failure in &check.failures {
        text.push_str(&format!("failed: {failure}\n"));
    }
    text
}

/// A line for each load and size: the rates at each depth, and the longest wait of all depths beside its bound.
fn loads_table(check: &Check) -> String {
    use Align::{Left, Right};
    let mut depths: Vec<u32> = check.rows.iter().map(|row| row.load.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let titles: Vec<String> = depths.iter().map(|depth| format!("depth {depth}")).collect();
    let mut columns = vec![("load", Left), ("size", Right), ("", Left)];
    columns.extend(titles.iter().map(|title| (title.as_str(), Right)));
    columns.extend([("longest wait", Right), ("bound", Right)]);
    let mut table = Table::new(columns);
    let mut lines: Vec<(bool, bool, u32, bool)> = Vec::new();
    for row in &check.rows {
        let line = (row.load.sequential, row.load.write, row.load.bytes, row.at_end);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    for (sequential, write, bytes, at_end) in lines {
        let of = |depth: u32| {
            let load = Load { sequential, write, bytes, depth };
            check.rows.iter().find(|row| row.load == load && row.at_end == at_end)
        };
        let load = Load { sequential, write, bytes, depth: 1 };
        let place = if at_end { ", innermost" } else { "" };
        let unit = if sequential { "MB/s" } else { "1/s" };
        let mut cells = vec![format!("{}{place}", load.name()), Bytes(u64::from(bytes)).to_string(), unit.to_owned()];
        cells.extend(depths.iter().map(|&depth| of(depth).map_or_else(String::new, |row| rate(row, sequential))));
        // The depth whose longest wait is nearest to its bound.
        let waits = depths.iter().filter_map(|&depth| of(depth)).filter_map(|row| {
            let wait = row.measured?.longest_wait;
            Some((wait.as_nanos() as f64 / row.wait_bound.as_nanos() as f64, wait, row.wait_bound))
        });
        let nearest = waits.max_by(|a, b| a.0.total_cmp(&b.0));
        let millis = |time: Nanos| format!("{:.1} ms", time.as_millis_f64());
        cells.extend(nearest.map_or([String::new(), String::new()], |(_, wait, bound)| [millis(wait), millis(bound)]));
        table.row(cells);
    }
    table.render()
}

/// The mixed loads, each with its longest wait and its bound.
fn waits_table(check: &Check) -> String {
    use Align::{Left, Right};
    const SHOWN: usize = 4;
    let mut table = Table::new([("mixed load", Left), ("longest wait", Right), ("bound", Right)]);
    let share = |wait: &Wait| wait.wait.as_nanos() as f64 / wait.bound.as_nanos().max(1) as f64;
    let mut waits: Vec<&Wait> = check.waits.iter().collect();
    waits.sort_by(|a, b| share(b).total_cmp(&share(a)));
    for wait in waits.into_iter().take(SHOWN) {
        let millis = |time: Nanos| format!("{:.1} ms", time.as_millis_f64());
        table.row([wait.name.clone(), millis(wait.wait), millis(wait.bound)]);
    }
    table.render()
}

fn rate(row: &Row, sequential: bool) -> String {
    let Some(measured) = row.measured else { return "-".to_owned() };
    let (value, most) = match sequential {
        true => (measured.bytes_per_second as f64 / 1e6, 100.0),
        false => (thousandths(measured.requests_per_kilosecond), 1_000.0),
    };
    if value < most { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn figures_table(check: &Check) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("figure", Left),
        ("published", Right),
        ("device", Right),
        ("", Left),
        ("deviation", Right),
        ("allowed", Right),
        ("contradicted by", Left),
    ]);
    for figure in &check.figures {
        table.row([
            figure.name.clone(),
            format!("{:.1}", thousandths(figure.published_thousandths)),
            format!("{:.1}", thousandths(figure.measured_thousandths)),
            figure.unit.to_owned(),
            format!("{:+.1} %", figure.deviation_millionths() as f64 / 1e4),
            format!("{:.0} %", figure.tolerance_millionths as f64 / 1e4),
            figure.contradicted_by.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}
