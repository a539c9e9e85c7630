//! Accuracy of the drives against other simulators, row by row. Measured drives: `chronodisk-fit`'s `measured_drives`.
//!
//! ```console
//! $ cargo bench -p chronodisk-device --bench ssd_accuracy -- [mqsim|simplessd] [--profile FILE] [--set TEXT]
//! ```
//!
//! Each row of the reference is run as a closed loop of its depth and size on the drive's profile, or on the given one;
//! a fifth of the requests is dropped from the beginning, as in the reference. Without the reference
//! (`CHRONODISK_REFERENCE`, or `../shared/reference` beside the repository) it prints the skipped rows.

use std::path::PathBuf;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_sim::{Nanos, Op, RandomStream, Request};

/// A closed loop of requests at random addresses in a range.
struct Load {
    depth: u64,
    block: u64,
    /// Reads of a hundred requests; the others are writes.
    reads: u64,
    random: bool,
    /// Bytes of the range, from the drive's beginning.
    range: u64,
    requests: u64,
}

/// A loop's measurements, in microseconds.
#[derive(Clone, Copy, Default)]
struct Measured {
    mean: f64,
    p50: f64,
    p99: f64,
    per_second: f64,
}

fn run(drive: &mut dyn DeviceModel, load: &Load) -> Measured {
    let mut stream = RandomStream::new(1, "accuracy", "addresses");
    let blocks = load.range.min(drive.info().capacity_sectors * 512) / load.block;
    let mut arrivals = vec![Nanos::ZERO; load.requests as usize];
    let mut latencies = Vec::with_capacity(load.requests as usize);
    let mut submitted = 0;
    let start = drive.now();
    let mut submit = |drive: &mut dyn DeviceModel, arrivals: &mut [Nanos]| {
        let block = if load.random { stream.below(blocks) } else { submitted % blocks };
        let op = if stream.below(100) < load.reads { Op::Read } else { Op::Write };
        arrivals[submitted as usize] = drive.now();
        drive.submit(Request::new(submitted, op, block * load.block / 512, (load.block / 512) as u32));
        submitted += 1;
        submitted < load.requests
    };
    let mut more = true;
    for _ in 0..load.depth {
        more = more && submit(drive, &mut arrivals);
    }
    let mut completed = Vec::new();
    let dropped = load.requests as usize / 5;
    let mut first = start;
    while drive.outstanding() > 0 {
        completed.clear();
        let next = drive.next_event().expect("an outstanding request has an event before it");
        drive.step(next, &mut completed);
        for completion in &completed {
            latencies.push((completion.at - arrivals[completion.id.0 as usize]).as_micros_f64());
            if latencies.len() == dropped {
                first = completion.at;
            }
            more = more && submit(drive, &mut arrivals);
        }
    }
    let mut kept = latencies.split_off(dropped);
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    let per_second = (kept.len() - 1) as f64 / (drive.now() - first).as_secs_f64();
    kept.sort_unstable_by(f64::total_cmp);
    let percentile = |share: f64| kept[((kept.len() as f64 * share).ceil() as usize).clamp(1, kept.len()) - 1];
    Measured { mean, p50: percentile(0.5), p99: percentile(0.99), per_second }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let option = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let part = arguments.first().filter(|first| !first.starts_with("--")).map_or("all", String::as_str);
    let (profile, set) = (option("--profile"), option("--set").unwrap_or_default());
    if matches!(part, "all" | "mqsim") {
        simulated("mqsim_reference.csv", "mqsim-default", profile.as_deref(), &set);
    }
    if matches!(part, "all" | "simplessd") {
        simulated("simplessd_reference.csv", "simplessd-sample", profile.as_deref(), &set);
    }
}

/// The fields of each line of a reference file; `None` without the file.
fn rows(file: &str) -> Option<Vec<Vec<String>>> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference");
    let folder = std::env::var_os("CHRONODISK_REFERENCE").map_or_else(beside, PathBuf::from);
    let path = folder.join("ssd").join(file);
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("SKIPPED: no {}; set CHRONODISK_REFERENCE", path.display());
        return None;
    };
    Some(text.lines().skip(1).map(fields).collect())
}

/// Splits at commas outside quotes.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            letter => fields.last_mut().expect("there is one").push(letter),
        }
    }
    fields
}

fn number(text: &str) -> f64 {
    text.trim_end_matches("bs").parse().unwrap_or(f64::NAN)
}

fn build(name: &str) -> Option<Box<dyn DeviceModel>> {
    match Profile::find(name) {
        Ok(profile) => Some(profile.build(&BuildOptions { seed: 1, ..BuildOptions::default() }).expect("it fits")),
        Err(error) => {
            println!("SKIPPED: {error}");
            None
        }
    }
}

/// Prints a row, and adds its errors up.
struct Table {
    mean_errors: Vec<f64>,
    p99_errors: Vec<f64>,
}

impl Table {
    fn new() -> Self {
        println!(
            "{:<46} {:>9} {:>9} {:>7} {:>9} {:>9} {:>9} {:>9} {:>7}",
            "row", "mean us", "model", "error", "p50 us", "model", "p99 us", "model", "error"
        );
        Table { mean_errors: Vec::new(), p99_errors: Vec::new() }
    }

    fn row(&mut self, name: &str, reference: Measured, model: Measured) {
        let error = |model: f64, reference: f64| 100.0 * (model - reference) / reference;
        let (mean, p99) = (error(model.mean, reference.mean), error(model.p99, reference.p99));
        println!(
            "{name:<46} {:>9.1} {:>9.1} {mean:>+6.1}% {:>9.1} {:>9.1} {:>9.1} {:>9.1} {p99:>+6.1}% {:>9.0}/s",
            reference.mean, model.mean, reference.p50, model.p50, reference.p99, model.p99, model.per_second
        );
        self.mean_errors.push(mean.abs());
        self.p99_errors.push(p99.abs());
    }

    fn sum_up(&self, what: &str) {
        let mean = |errors: &[f64]| {
            let known: Vec<f64> = errors.iter().copied().filter(|error| error.is_finite()).collect();
            known.iter().sum::<f64>() / known.len().max(1) as f64
        };
        let (means, p99s) = (mean(&self.mean_errors), mean(&self.p99_errors));
        println!("{what}: {} rows, error of the mean {means:.1} %, of the p99 {p99s:.1} %\n", self.mean_errors.len());
    }
}

/// The runs of another simulator on fresh drives.
fn simulated(file: &str, own: &str, profile: Option<&str>, wanted: &str) {
    let Some(rows) = rows(file) else { return };
    let mut table = Table::new();
    for row in rows.iter().filter(|row| row[0].contains(wanted) && !row[0].contains("gc")) {
        let name = &row[0];
        let Some(depth) = name.split("_qd").nth(1).and_then(|rest| rest.split('_').next()?.parse().ok()) else {
            continue;
        };
        let block = if name.contains("128k") { 128 << 10 } else { 4 << 10 };
        let p99 = if file.starts_with("mqsim") { 6 } else { 5 };
        let reference = Measured {
            mean: number(&row[3]),
            p50: number(&row[4]),
            p99: number(&row[p99]),
            per_second: number(&row[2]),
        };
        let own = if name.contains("idealmap") { "mqsim-ideal-mapping" } else { own };
        let Some(mut drive) = build(profile.unwrap_or(own)) else { continue };
        let reads = if name.contains("mixed") { 70 } else { 100 };
        let requests = number(&row[1]) as u64 * 5 / 4;
        let load = Load { depth, block, reads, random: name.contains("rand") || reads == 70, range: 1 << 40, requests };
        table.row(name, reference, run(drive.as_mut(), &load));
    }
    table.sum_up(file);
}
