//! Figures that a data sheet or a paper publishes of a device: the table `[published]` of a profile.
//!
//! ```toml
//! [published]
//! source = "data sheet of the drive, revision 3"
//! sequential-read = "285 MB/s"             # of 1 MiB at any depth, from the device's beginning on
//! sequential-write = "285 MB/s"
//! inner-rate = "140 MB/s"                  # sequential reads at the device's end
//! average-seek = "8 ms"                    # between two blocks anywhere
//! random-read-4k-per-second = 79           # depth 1
//! random-read-4k-depth-16-per-second = 168
//! rates = [                                # all other loads, on a fresh device
//!     { load = "random-write", size = "4 KiB", depth = 128, per-second = 175000 },
//!     { load = "sequential-read", size = "128 KiB", depth = 32, rate = "3200 MB/s" },
//! ]
//! tolerance = 0.3                          # only with contradicted-by; 0.15 otherwise
//! contradicted-by = "a measurement that differs from the data sheet"
//! ```

use crate::fields::{Fields, ProfileError};
use crate::load::Load;
use crate::quantity::{Bytes, Rate};
use chronodisk_sim::{Nanos, SECTOR_BYTES};

/// Published figures of a device, with their source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The data sheet or the paper.
    pub source: String,
    /// Sequential reads from the device's beginning on.
    pub sequential_read: Option<Rate>,
    /// Sequential writes from the device's beginning on.
    pub sequential_write: Option<Rate>,
    /// Sequential reads at the device's end.
    pub inner_rate: Option<Rate>,
    /// Mean seek time between two random blocks, without rotation.
    pub average_seek: Option<Nanos>,
    /// Random reads of 4 KiB a second at depth 1.
    pub random_read_4k: Option<u32>,
    /// Random reads of 4 KiB a second at depth 16.
    pub random_read_4k_depth_16: Option<u32>,
    other: Vec<PublishedRate>,
    /// The largest relative deviation that passes, in millionths.
    pub tolerance_millionths: u64,
    /// The source that justifies a tolerance above 15 %.
    pub contradicted_by: Option<String>,
}

/// Published rate of one load: requests per second, or bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedRate {
    /// The load.
    pub load: Load,
    /// Requests a second.
    pub per_second: Option<u64>,
    /// Bytes a second.
    pub bytes_per_second: Option<u64>,
}

/// Most entries of `rates`.
const MOST_RATES: usize = 64;

/// Default tolerance.
const TOLERANCE_MILLIONTHS: u64 = 150_000;

impl Published {
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Option<Published>, ProfileError> {
        let Some(mut table) = fields.optional_table("published")? else { return Ok(None) };
        let rate = |table: &mut Fields<'_>, key| match table.has(key) {
            true => table.positive(key).map(Some),
            false => Ok(None),
        };
        let average_seek = if table.has("average-seek") { Some(table.positive("average-seek")?) } else { None };
        let contradicted_by = if table.has("contradicted-by") { Some(table.text("contradicted-by")?) } else { None };
        let tolerance = table.optional_millionths("tolerance")?;
        if tolerance.is_some() != contradicted_by.is_some() {
            return Err(table.error("`tolerance` and `contradicted-by` stand together or not at all"));
        }
        let published = Published {
            source: table.text("source")?,
            sequential_read: rate(&mut table, "sequential-read")?,
            sequential_write: rate(&mut table, "sequential-write")?,
            inner_rate: rate(&mut table, "inner-rate")?,
            average_seek,
            random_read_4k: table.optional_count("random-read-4k-per-second", 1..=u32::MAX)?,
            random_read_4k_depth_16: table.optional_count("random-read-4k-depth-16-per-second", 1..=u32::MAX)?,
            other: read_rates(&mut table)?,
            tolerance_millionths: tolerance.unwrap_or(TOLERANCE_MILLIONTHS),
            contradicted_by,
        };
        table.finish()?;
        Ok(Some(published))
    }

    /// Rates of all loads except sequential ones at any depth or at the device's end.
    pub fn rates(&self) -> impl Iterator<Item = PublishedRate> + '_ {
        let reads = [(1, self.random_read_4k), (16, self.random_read_4k_depth_16)];
        let reads = reads.into_iter().filter_map(|(depth, per_second)| {
            let load = Load { sequential: false, write: false, bytes: 4_096, depth };
            Some(PublishedRate { load, per_second: Some(u64::from(per_second?)), bytes_per_second: None })
        });
        reads.chain(self.other.iter().copied())
    }
}

fn read_rates(table: &mut Fields<'_>) -> Result<Vec<PublishedRate>, ProfileError> {
    const LOADS: [(&str, (bool, bool)); 4] = [
        ("sequential-read", (true, false)),
        ("sequential-write", (true, true)),
        ("random-read", (false, false)),
        ("random-write", (false, true)),
    ];
    let mut rates = Vec::new();
    for mut entry in table.tables_or_none("rates", MOST_RATES)? {
        let (sequential, write) = entry.choice("load", &LOADS)?;
        let Bytes(bytes) = entry.positive("size")?;
        if !bytes.is_multiple_of(SECTOR_BYTES) || bytes > 1 << 24 {
            return Err(entry.error_at("size", "expected whole sectors, at most 16 MiB"));
        }
        let depth = entry.count("depth", 1..=1_024)?;
        let per_second = entry.optional_count("per-second", 1..=u32::MAX)?.map(u64::from);
        let bytes_per_second = match entry.has("rate") {
            true => Some(entry.positive::<Rate>("rate")?.0),
            false => None,
        };
        if per_second.is_some() == bytes_per_second.is_some() {
            return Err(entry.error("expected either `per-second` or `rate`"));
        }
        entry.finish()?;
        let load = Load { sequential, write, bytes: bytes as u32, depth };
        rates.push(PublishedRate { load, per_second, bytes_per_second });
    }
    Ok(rates)
}

/// Errors of a fit on rows that it did not see: an entry of the array `[[held-out]]` of a profile.
///
/// ```toml
/// [[held-out]]
/// left-out = "128 KiB sequential reads"   # the rows that the constants were not fitted to
/// rows = 8
/// mean-error = 0.031                      # mean of the absolute relative errors of the mean latency
/// p99-error = 0.22                        # and of the 99th percentile, if that was measured
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldOut {
    /// The rows that the constants were not fitted to.
    pub left_out: String,
    /// Their number.
    pub rows: u32,
    /// Mean of the absolute relative errors of the mean latency, in millionths.
    pub mean_error_millionths: u64,
    /// Largest error of the 99th percentile, in millionths.
    pub p99_error_millionths: Option<u64>,
}

impl HeldOut {
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Vec<HeldOut>, ProfileError> {
        const MOST: usize = 64;
        let mut all = Vec::new();
        for mut entry in fields.tables_or_none("held-out", MOST)? {
            let mean = entry.optional_millionths("mean-error")?;
            all.push(HeldOut {
                left_out: entry.text("left-out")?,
                rows: entry.count("rows", 1..=1_000_000)?,
                mean_error_millionths: mean.ok_or_else(|| entry.error("expected `mean-error`"))?,
                p99_error_millionths: entry.optional_millionths("p99-error")?,
            });
            entry.finish()?;
        }
        Ok(all)
    }

    /// Combines all rows: means weighted by their numbers, the 99th percentile over the rows that have it.
    #[must_use]
    pub fn overall(all: &[HeldOut]) -> Option<HeldOut> {
        let rows: u32 = all.iter().map(|it| it.rows).sum();
        let weighted = |chosen: &mut dyn Iterator<Item = (u32, u64)>| {
            let (mut rows, mut sum) = (0, 0);
            for (of, error) in chosen {
                rows += u64::from(of);
                sum += u64::from(of) * error;
            }
            (rows > 0).then(|| sum / rows)
        };
        let mean = weighted(&mut all.iter().map(|it| (it.rows, it.mean_error_millionths)))?;
        let p99 = weighted(&mut all.iter().filter_map(|it| Some((it.rows, it.p99_error_millionths?))));
        Some(HeldOut { left_out: "all".to_owned(), rows, mean_error_millionths: mean, p99_error_millionths: p99 })
    }
}
