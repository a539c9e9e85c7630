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
//! tolerance = 0.3                          # only with contradicted-by; 0.15 otherwise
//! contradicted-by = "a measurement that differs from the data sheet"
//! ```

use super::{Fields, ProfileError};
use crate::quantity::Rate;
use chronodisk_sim::Nanos;

/// What was published of a device, and where.
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
    /// Seek between two blocks anywhere, without rotation.
    pub average_seek: Option<Nanos>,
    /// Random reads of 4 KiB a second at depth 1.
    pub random_read_4k: Option<u32>,
    /// Random reads of 4 KiB a second at depth 16.
    pub random_read_4k_depth_16: Option<u32>,
    /// The largest relative deviation that passes, in millionths.
    pub tolerance_millionths: u64,
    /// The source that allows more than 15 %.
    pub contradicted_by: Option<String>,
}

/// What passes where nothing contradicts the figures.
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
            tolerance_millionths: tolerance.unwrap_or(TOLERANCE_MILLIONTHS),
            contradicted_by,
        };
        table.finish()?;
        Ok(Some(published))
    }
}
