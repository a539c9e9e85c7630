//! Measured sweeps: what a drive did at which depth, read from CSV or from fio's JSON.
//!
//! Text from outside is hostile: lengths and numbers are bounded, and nothing panics.

mod fio;
mod measured_csv;
mod names;
mod select;

use std::fmt;

use chronodisk_sim::Op;
use chronodisk_trace::Workload;
use chronodisk_trace::fio_job::Amount;

pub use fio::read_fio;
pub use measured_csv::read_csv;
pub use names::{Understood, understand};
pub use select::{FALL_LIMIT_PERCENT, Selector, not_monotone};

use crate::FitError;

/// Most points of one file.
const MAX_POINTS: usize = 100_000;
/// Most requests outstanding that a point may have.
const MAX_DEPTH: u64 = 65_536;
/// Largest request that a point may have.
const MAX_BLOCK_BYTES: u64 = 1 << 30;

/// What was done to the drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Share of reads, 0 to 1.
    pub read_share: f64,
    /// Anywhere, or one block after the other.
    pub random: bool,
}

impl Access {
    /// Of a workload that has requests of one size.
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

    /// The workload that does the same; `None` for a mixture in sequence.
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

/// What was measured, as far as it was told; times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Requests per second.
    pub iops: Option<f64>,
    /// Mean latency.
    pub mean_us: Option<f64>,
    /// Percentiles of the latency.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
}

/// A part of a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointRegion {
    /// Its beginning.
    pub offset: Amount,
    /// Its size; `None`: all that follows.
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
    /// Line of a CSV file, number of the job in a JSON file; both counted from 1.
    pub line: u64,
    /// The sweep that it belongs to.
    pub set: String,
    /// What was done.
    pub access: Access,
    /// The requests whose figures these are, where reads and writes were mixed.
    pub only: Option<Op>,
    /// Size of a request.
    pub block_bytes: u64,
    /// Requests outstanding.
    pub depth: u32,
    /// Zones of a zoned drive that it went to.
    pub zones: Option<u32>,
    /// The part of the drive that it went to.
    pub region: PointRegion,
    /// The figures.
    pub measured: Measured,
}

impl Point {
    /// The mean latency; what requests per second and depth say where it was not told.
    #[must_use]
    pub fn mean_us(&self) -> Option<f64> {
        self.measured.mean_us.or_else(|| self.cycle_us())
    }

    /// Time from one completion to the next of one of the outstanding requests: the latency and what the host needs
    /// until it has submitted the next.
    fn cycle_us(&self) -> Option<f64> {
        if self.only.is_some() {
            return None;
        }
        self.measured.iops.map(|iops| f64::from(self.depth) / iops * 1e6)
    }

    /// What the host needed between a completion and the next submission: the cycle without the latency. Zero where
    /// only one of them was told, or where they contradict each other.
    #[must_use]
    pub fn host_us(&self) -> f64 {
        match (self.cycle_us(), self.measured.mean_us) {
            (Some(cycle), Some(mean)) => (cycle - mean).max(0.0),
            _ => 0.0,
        }
    }

    /// Requests per second, told or from the mean.
    #[must_use]
    pub fn iops(&self) -> Option<f64> {
        self.measured.iops.or_else(|| self.measured.mean_us.map(|mean| f64::from(self.depth) / mean * 1e6))
    }

    /// Checks what every source has to give.
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
    /// fio's output is an object, before which fio may have printed notes.
    #[must_use]
    pub fn of(text: &str) -> Self {
        if fio::begins_at(text).is_some() { Format::Fio } else { Format::Csv }
    }
}

/// What overrides what a file says: the access of all points whose set contains the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Part of the set's name; empty for all sets.
    pub set: String,
    /// What was done.
    pub access: Access,
}

/// Reads a sweep in either form.
///
/// # Errors
/// The first thing that is wrong, with file, line and column.
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

/// The access that an override gives to a set; the last one wins.
fn overridden(overrides: &[Override], set: &str) -> Option<Access> {
    overrides.iter().rev().find(|entry| set.contains(&entry.set)).map(|entry| entry.access)
}
