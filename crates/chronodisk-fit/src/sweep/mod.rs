//! Measured sweeps: a drive's figures at several queue depths, read from CSV or from fio's JSON.
//!
//! Measurement files are hostile input: lengths and numbers are bounded, and no input causes a panic.

mod deciding;
mod fio;
mod measured_csv;
mod names;
mod select;

use std::fmt;

use chronodisk_sim::Op;
use chronodisk_trace::Workload;
use chronodisk_trace::fio_job::Amount;

pub use deciding::{WRITES_IN_USE_LEAST, missing_sweeps};
pub use fio::read_fio;
pub use measured_csv::read_csv;
pub use names::{Understood, understand};
pub use select::{FALL_LIMIT_PERCENT, Selector, not_monotone};

use crate::FitError;

/// Most points in a file.
const MAX_POINTS: usize = 100_000;
/// Most outstanding requests of a point.
const MAX_DEPTH: u64 = 65_536;
/// Largest request of a point.
const MAX_BLOCK_BYTES: u64 = 1 << 30;

/// The access pattern of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Share of reads, 0 to 1.
    pub read_share: f64,
    /// Random, or sequential.
    pub random: bool,
}

impl Access {
    /// The access of a workload; `None` unless its requests have a single size.
    #[must_use]
    pub fn of_workload(workload: Workload) -> Option<Self> {
        let (read_share, random) = match workload {
            Workload::RandomRead => (1.0, true),
            Workload::RandomWrite => (0.0, true),
            Workload::RandomMixed => (0.7, true),
            Workload::SequentialRead => (1.0, false),
            Workload::SequentialWrite => (0.0, false),
            _ => return None,
        };
        Some(Access { read_share, random })
    }

    /// The workload with this access; `None` for a sequential mixture.
    #[must_use]
    pub fn workload(self) -> Option<Workload> {
        match (self.random, self.read_share) {
            (true, 1.0) => Some(Workload::RandomRead),
            (true, 0.0) => Some(Workload::RandomWrite),
            (true, _) => Some(Workload::RandomMixed),
            (false, 1.0) => Some(Workload::SequentialRead),
            (false, 0.0) => Some(Workload::SequentialWrite),
            (false, _) => None,
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = if self.random { "random" } else { "sequential" };
        match self.read_share {
            1.0 => write!(f, "{pattern} read"),
            0.0 => write!(f, "{pattern} write"),
            share => write!(f, "{pattern}, {:.0} % reads", share * 100.0),
        }
    }
}

/// The measured figures, as far as the file has them; times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Requests per second.
    pub iops: Option<f64>,
    /// Mean latency.
    pub mean_us: Option<f64>,
    /// Median of the latency.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
}

/// A part of a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointRegion {
    /// Offset of the part.
    pub offset: Amount,
    /// Its size; `None` to the end of the drive.
    pub size: Option<Amount>,
}

impl PointRegion {
    /// The whole drive.
    pub const WHOLE: PointRegion = PointRegion { offset: Amount::Bytes(0), size: None };
}

/// One row of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The file as the user named it.
    pub file: String,
    /// Line of a CSV file, or number of the job in a JSON file, from 1.
    pub line: u64,
    /// The sweep that it belongs to.
    pub set: String,
    /// The access pattern.
    pub access: Access,
    /// The operation to which the figures apply, if reads and writes were mixed.
    pub only: Option<Op>,
    /// Size of a request.
    pub block_bytes: u64,
    /// Requests outstanding.
    pub depth: u32,
    /// Number of zones of a zoned drive that were accessed.
    pub zones: Option<u32>,
    /// The part of the drive that was accessed.
    pub region: PointRegion,
    /// Number of requests measured, if the file has it.
    pub requests: Option<u64>,
    /// The figures.
    pub measured: Measured,
}

impl Point {
    /// The mean latency; if it was not measured, derived from requests per second and depth.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        self.measured.mean_us.or_else(|| self.cycle_us())
    }

    /// Time between consecutive completions of one outstanding slot: the latency, plus the host's time until the next
    /// submission.
    fn cycle_us(&self) -> Option<f64> {
        if self.only.is_some() {
            return None;
        }
        self.measured.iops.map(|iops| f64::from(self.depth) / iops * 1e6)
    }

    /// The host's time between a completion and the next submission: the cycle without the latency. Zero if only one of
    /// these was measured, or if they contradict each other.
    #[must_use]
    pub fn host_us(&self) -> f64 {
        match (self.cycle_us(), self.measured.mean_us) {
            (Some(cycle), Some(mean)) => (cycle - mean).max(0.0),
            _ => 0.0,
        }
    }

    /// Requests per second, measured or derived from the mean latency.
    #[must_use]
    pub fn iops(&self) -> Option<f64> {
        self.measured.iops.or_else(|| self.measured.mean_us.map(|mean| f64::from(self.depth) / mean * 1e6))
    }

    /// Checks the fields that every source must have.
    fn check(self) -> Result<Self, FitError> {
        let failed = |field: &str, message: String| {
            Err(FitError::new(message).in_field(field).in_file(&self.file).at_line(self.line))
        };
        if self.access.workload().is_none() {
            return failed("set", "reads and writes mixed in sequence can't be simulated".to_owned());
        }
        if self.block_bytes == 0 || !self.block_bytes.is_multiple_of(512) || self.block_bytes > MAX_BLOCK_BYTES {
            let message = format!("{} bytes; expected a multiple of 512 up to 1 GiB", self.block_bytes);
            return failed("bs", message);
        }
        if self.mean_us().is_none() {
            return failed("mean_us", "neither a mean latency nor requests per second".to_owned());
        }
        Ok(self)
    }
}

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values with a header.
    Csv,
    /// The output of `fio --output-format=json`.
    Fio,
}

impl Format {
    /// Detects the format: fio's output has a JSON object, possibly after notes that fio printed.
    #[must_use]
    pub fn of(text: &str) -> Self {
        if fio::begins_at(text).is_some() { Format::Fio } else { Format::Csv }
    }
}

/// Overrides the access of all points whose set contains the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Part of the set's name; empty for all sets.
    pub set: String,
    /// The access pattern.
    pub access: Access,
}

/// Reads a sweep in either form.
///
/// # Errors
/// The first fault, with file, line and column.
pub fn read_sweep(text: &str, file: &str, overrides: &[Override]) -> Result<Vec<Point>, FitError> {
    let points = match Format::of(text) {
        Format::Csv => read_csv(text, file, overrides)?,
        Format::Fio => read_fio(text, file, overrides)?,
    };
    if points.is_empty() {
        return Err(FitError::new("no points").in_file(file));
    }
    points.into_iter().map(Point::check).collect()
}

/// The access that the overrides set for a set; the last match wins.
fn overridden(overrides: &[Override], set: &str) -> Option<Access> {
    overrides.iter().rev().find(|entry| set.contains(&entry.set)).map(|entry| entry.access)
}
