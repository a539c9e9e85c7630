//! The behaviour of a profile's device under plain and mixed loads, beside its published figures.
//!
//! Rules hold for every profile, beside those of [mixed loads](super::mixed):
//! - A published figure is met within its tolerance.
//! - Depth costs at most a tenth of sequential throughput: no depth is slower than that against depth 1.
//! - No request waits longer than [`Row::wait_bound`].

use chronodisk_sim::{Nanos, Op, Request, SECTOR_BYTES, Status};

use super::mixed::{Mixing, Wait};
use super::{Effort, Load, Measured, measure_requests};
use crate::catalog::{Published, PublishedRate};
use crate::load::Summary;
use crate::{BuildOptions, DeviceModel, Profile, ProfileError};

/// Sizes of requests that a check measures, in bytes.
const SIZES: [u32; 3] = [4 << 10, 128 << 10, 1 << 20];

/// Depths that a check measures.
const DEPTHS: [u32; 3] = [1, 4, 32];

/// Share of depth 1's sequential throughput, in per cent, that a depth must reach. Linux's md keeps 90 of a degraded
/// RAID 5 that reads at depth 4 (`experiments/md_arrays`), so an array may keep less.
fn kept_percent(profile: &Profile) -> u64 {
    if profile.kind() == "array" { 88 } else { 90 }
}

/// The name of the figure that no load measures.
pub const AVERAGE_SEEK: &str = "average seek";

/// A load and its measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The load.
    pub load: Load,
    /// Whether the load was at the end of the device, where a disk has its innermost zone, instead of the beginning.
    pub at_end: bool,
    /// The measurements; `None` if the device refuses such requests, as a zoned one refuses random writes, or if a
    /// fresh one has no data to read.
    pub measured: Option<Measured>,
    /// The longest allowed wait: the device's age bound or longest stall, 100 ms, and four times the loop's time for
    /// the outstanding requests.
    pub wait_bound: Nanos,
}

/// A published figure beside the device's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Name of the figure, such as `sequential-read 1 MiB`.
    pub name: String,
    /// `MB/s`, `1/s` or `ms`.
    pub unit: &'static str,
    /// Published value, in thousandths of the unit.
    pub published_thousandths: u64,
    /// Value of the device, in thousandths of the unit.
    pub measured_thousandths: u64,
    /// The largest relative deviation that passes, in millionths.
    pub tolerance_millionths: u64,
    /// Another source that contradicts the figure, if there is one.
    pub contradicted_by: Option<String>,
}

impl Figure {
    /// Deviation from the published value, in millionths.
    #[must_use]
    pub fn deviation_millionths(&self) -> i64 {
        let (measured, published) = (i128::from(self.measured_thousandths), i128::from(self.published_thousandths));
        ((measured - published) * 1_000_000 / published.max(1)) as i64
    }

    /// Whether the measured figure is within its tolerance.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.deviation_millionths().unsigned_abs() <= self.tolerance_millionths
    }
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All rules hold, and all published figures are met.
    Passed,
    /// All rules hold; there are no published figures.
    NoReference,
    /// A rule is broken or a figure is missed.
    Failed,
}

impl Verdict {
    /// The name used in tables and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::NoReference => "no reference",
            Verdict::Failed => "failed",
        }
    }
}

/// Result for a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The profile's name.
    pub profile: String,
    /// Source of the published figures.
    pub source: Option<String>,
    /// All loads that were measured.
    pub rows: Vec<Row>,
    /// Waits under loads that mix operations or never pause.
    pub waits: Vec<Wait>,
    /// All published figures.
    pub figures: Vec<Figure>,
    /// The rules that are broken and the figures that are missed, each in a sentence.
    pub failures: Vec<String>,
}

impl Check {
    /// The outcome.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match (self.failures.is_empty(), self.figures.is_empty()) {
            (false, _) => Verdict::Failed,
            (true, true) => Verdict::NoReference,
            (true, false) => Verdict::Passed,
        }
    }

    /// Measurements of a load at the device's beginning.
    #[must_use]
    pub fn measured(&self, load: Load) -> Option<Measured> {
        self.rows.iter().find(|row| row.load == load && !row.at_end)?.measured
    }
}

/// Checks a profile. Its device is fresh for each load, and all loads have the same seed.
///
/// # Errors
/// A device that can't be built.
pub fn check(profile: &Profile, effort: Effort) -> Result<Check, ProfileError> {
    let mut checking = Checking { profile, effort, age_bound: stated_bound(profile), rows: vec![] };
    checking.measure_grid()?;
    let mut figures = Vec::new();
    if let Some(published) = profile.published() {
        checking.compare(published, &mut figures)?;
    }
    let rows = checking.rows;
    let mixed = Mixing { profile, effort, stated: stated_bound(profile) }.measure()?;
    let mut failures = broken_rules(&rows, kept_percent(profile));
    failures.extend(mixed.failures);
    failures.extend(figures.iter().filter(|figure| !figure.passes()).map(missed));
    let source = profile.published().map(|published| published.source.clone());
    Ok(Check { profile: profile.name().to_owned(), source, rows, waits: mixed.waits, figures, failures })
}

/// Measures a listing's rates, with an eighth of a check's requests.
///
/// # Errors
/// If the device can't be built.
pub fn summarise(profile: &Profile) -> Result<Summary, ProfileError> {
    let mut checking = Checking { profile, effort: Effort::Short, age_bound: Nanos::ZERO, rows: vec![] };
    let mut of = |sequential, write| {
        let bytes = if sequential { 128 << 10 } else { 4 << 10 };
        checking.row(Load { sequential, write, bytes, depth: 32 }, false)
    };
    let (sequential_read, sequential_write) = (of(true, false)?, of(true, true)?);
    let (random_read, random_write) = (of(false, false)?, of(false, true)?);
    let rate = |measured: Measured| measured.bytes_per_second;
    let count = |measured: Measured| measured.requests_per_kilosecond / 1_000;
    Ok(Summary {
        sequential_read: sequential_read.map(rate),
        sequential_write: sequential_write.map(rate),
        random_read: random_read.map(count),
        random_write: random_write.map(count),
    })
}

/// The device's stated bound of a wait.
fn stated_bound(profile: &Profile) -> Nanos {
    profile.age_bound().max(profile.longest_stall()).unwrap_or(Nanos::ZERO)
}

struct Checking<'a> {
    profile: &'a Profile,
    effort: Effort,
    age_bound: Nanos,
    rows: Vec<Row>,
}

impl Checking<'_> {
    fn build(&self) -> Result<Box<dyn DeviceModel>, ProfileError> {
        self.profile.build(&BuildOptions { seed: 1, ..BuildOptions::default() })
    }

    /// The loads that every profile gets.
    fn measure_grid(&mut self) -> Result<(), ProfileError> {
        let short = self.effort == Effort::Short;
        for (sequential, write) in [(true, false), (true, true), (false, false), (false, true)] {
            for bytes in SIZES {
                // A short check covers sequential loads at one size, and random loads at another.
                let wanted = if sequential { 128 << 10 } else { 4 << 10 };
                for depth in DEPTHS.into_iter().filter(|&depth| !short || (bytes == wanted && depth != 4)) {
                    self.row(Load { sequential, write, bytes, depth }, false)?;
                }
            }
        }
        if self.profile.average_seek().is_some() {
            self.row(inner(), true)?;
        }
        Ok(())
    }

    /// The row of a load, measured now if it was not before.
    fn row(&mut self, load: Load, at_end: bool) -> Result<Option<Measured>, ProfileError> {
        if let Some(row) = self.rows.iter().find(|row| row.load == load && row.at_end == at_end) {
            return Ok(row.measured);
        }
        let mut device = self.build()?;
        let info = device.info().clone();
        let sectors = u64::from(load.bytes) / SECTOR_BYTES;
        let mut requests = load.requests(info.rotational);
        // A large buffer would absorb an eighth of these writes.
        let buffered = load.sequential && load.write && load.bytes >= 1 << 20 && !info.rotational;
        if self.effort == Effort::Short && !buffered {
            requests = (requests / 8).max(64).max(32 * u64::from(load.depth)).min(requests);
        }
        let last = info.capacity_sectors.saturating_sub(requests * sectors);
        let first_sector = if at_end { last / sectors * sectors } else { 0 };
        let accepts = info.capacity_sectors >= sectors && accepts(device.fork().as_mut(), load, sectors as u32);
        // A disk that writes anywhere has no place for blocks that were never written, and answers without its arm.
        let empty = !load.write && self.profile.kind() == "eager-writing";
        let measured = (accepts && !empty).then(|| measure_requests(device.as_mut(), load, requests, first_sector, 1));
        let each = measured.map_or(0, |measured| 1_000_000_000_000 / measured.requests_per_kilosecond.max(1));
        let queue = Nanos::from_nanos(4 * u64::from(load.depth) * each);
        let wait_bound = self.age_bound + Nanos::from_millis(100) + queue;
        self.rows.push(Row { load, at_end, measured, wait_bound });
        Ok(measured)
    }

    fn compare(&mut self, published: &Published, figures: &mut Vec<Figure>) -> Result<(), ProfileError> {
        let figure = |name: String, unit, published_thousandths, measured_thousandths| Figure {
            name,
            unit,
            published_thousandths,
            measured_thousandths,
            tolerance_millionths: published.tolerance_millionths,
            contradicted_by: published.contradicted_by.clone(),
        };
        for (write, rate) in [(false, published.sequential_read), (true, published.sequential_write)] {
            let Some(rate) = rate else { continue };
            let mut best = 0;
            for depth in [1, 32] {
                let measured = self.row(Load { sequential: true, write, bytes: 1 << 20, depth }, false)?;
                best = best.max(measured.map_or(0, |measured| measured.bytes_per_second));
            }
            let name = if write { "sequential-write 1 MiB" } else { "sequential-read 1 MiB" };
            figures.push(figure(name.to_owned(), "MB/s", rate.0 / 1_000, best / 1_000));
        }
        if let Some(rate) = published.inner_rate {
            let measured = self.row(inner(), true)?.map_or(0, |measured| measured.bytes_per_second);
            figures.push(figure(
                "sequential-read 1 MiB, innermost".to_owned(),
                "MB/s",
                rate.0 / 1_000,
                measured / 1_000,
            ));
        }
        if let Some(seek) = published.average_seek {
            let measured = self.profile.average_seek().unwrap_or(Nanos::ZERO);
            figures.push(figure(AVERAGE_SEEK.to_owned(), "ms", seek.as_nanos() / 1_000, measured.as_nanos() / 1_000));
        }
        for PublishedRate { load, per_second, bytes_per_second } in published.rates() {
            let measured = self.row(load, false)?;
            let size = crate::Bytes(u64::from(load.bytes));
            let name = format!("{} {size}, depth {}", load.name(), load.depth);
            match (per_second, bytes_per_second) {
                (Some(per_second), _) => {
                    let measured = measured.map_or(0, |measured| measured.requests_per_kilosecond);
                    figures.push(figure(name, "1/s", per_second * 1_000, measured));
                }
                (None, rate) => {
                    let measured = measured.map_or(0, |measured| measured.bytes_per_second);
                    figures.push(figure(name, "MB/s", rate.unwrap_or(0) / 1_000, measured / 1_000));
                }
            }
        }
        Ok(())
    }
}

/// Sequential reads at the end of the device.
fn inner() -> Load {
    Load { sequential: true, write: false, bytes: 1 << 20, depth: 1 }
}

/// Whether the device takes the requests of a load: drives with zones refuse writes elsewhere than at their pointers.
fn accepts(device: &mut dyn DeviceModel, load: Load, sectors: u32) -> bool {
    let Some(zones) = device.info().zones.filter(|_| load.write) else { return true };
    let off_pointer = zones.conventional_sectors() + u64::from(device.info().logical_block_bytes) / SECTOR_BYTES;
    let lba = if load.sequential { 0 } else { off_pointer };
    device.submit(Request::new(0, Op::Write, lba, sectors));
    let mut completed = Vec::new();
    while completed.is_empty() {
        super::step(device, &mut completed);
    }
    completed[0].status == Status::Ok
}

fn broken_rules(rows: &[Row], kept_percent: u64) -> Vec<String> {
    let mut broken = Vec::new();
    for row in rows.iter().filter(|row| !row.at_end) {
        let Some(measured) = row.measured else { continue };
        let Load { sequential, write, bytes, depth } = row.load;
        let size = crate::Bytes(u64::from(bytes));
        let name = format!("{} {size}, depth {depth}", row.load.name());
        if measured.longest_wait > row.wait_bound {
            broken.push(format!("{name}: a request waits {}, longer than {}", measured.longest_wait, row.wait_bound));
        }
        let alone = Load { sequential: true, write, bytes, depth: 1 };
        let alone = rows.iter().find(|other| !other.at_end && other.load == alone).and_then(|other| other.measured);
        let most = alone.map_or(0, |measured| measured.bytes_per_second);
        if sequential && measured.bytes_per_second * 100 < most * kept_percent {
            let mega = |rate: u64| rate as f64 / 1e6;
            let (now, most) = (mega(measured.bytes_per_second), mega(most));
            broken.push(format!("{name}: {now:.1} MB/s, and {most:.1} MB/s at depth 1"));
        }
    }
    broken
}

fn missed(figure: &Figure) -> String {
    let [measured, published] =
        [figure.measured_thousandths, figure.published_thousandths].map(|value| value as f64 / 1e3);
    format!(
        "{}: {measured:.1} {unit}, and {published:.1} {unit} is published: {:+.1} %, more than {:.0} %",
        figure.name,
        figure.deviation_millionths() as f64 / 1e4,
        figure.tolerance_millionths as f64 / 1e4,
        unit = figure.unit,
    )
}
