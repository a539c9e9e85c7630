//! Profiles of a streaming drive: the table `[streaming]` of kind `disk`, or kind `streaming-disk` over such a profile.
//!
//! ```toml
//! kind = "streaming-disk"
//! member = "cheetah-9lp-traced"   # a profile of kind disk: its geometry, arm and spindle
//! interface-rate = "80 MB/s"
//! read-overhead = "0.2 ms"        # of each command
//! write-overhead = "0.2 ms"
//! queue-depth = 64                # commands in the drive
//! segments = 3                    # of the buffer, for reads
//! segment-size = "256 KiB"
//! read-ahead = "128 KiB"          # at most half of a segment
//! write-buffer = "256 KiB"
//! write-ranges = 16               # optional: ranges of consecutive blocks in it; 64 is the default
//! write-cache = true              # optional: a write completes in the buffer; false is the default
//! store-and-forward = false       # optional: a read crosses the interface when all of it is in the buffer
//! immediate-read = false          # optional: a read begins with whatever wanted block passes first
//! immediate-write = false         # optional: so does a write
//! age-bound = "500 ms"            # optional: older requests go before all others; the default
//! longest-pass = "100 ms"         # optional: a pass goes on so long while an older request waits; the default
//! ```

use std::sync::Arc;

use chronodisk_sim::{Nanos, SECTOR_BYTES};

use super::super::mechanics::{Ticks, duration, nanos, ticks};
use super::super::parameters::{Picos, limits};
use super::{StreamingDisk, StreamingParameters};
use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::models::blueprint::{Blueprint, FindMembers};
use crate::quantity::{Bytes, Rate};

const LARGEST_BUFFER_BYTES: u64 = 1 << 36;

/// The controller's keys.
pub(crate) fn read_table(fields: &mut Fields<'_>) -> Result<StreamingParameters, ProfileError> {
    let Rate(bytes_per_second) = fields.positive("interface-rate")?;
    let picos = u128::from(SECTOR_BYTES) * 1_000_000_000_000 / u128::from(bytes_per_second);
    let block_time = i64::try_from(picos).unwrap_or(i64::MAX).min(limits::TIME_PICOS);
    let segment_blocks = blocks(fields, "segment-size")?;
    let read_ahead_blocks = blocks(fields, "read-ahead")?;
    if read_ahead_blocks * 2 > segment_blocks {
        return Err(fields.error_at("read-ahead", "expected at most half of `segment-size`"));
    }
    Ok(StreamingParameters {
        read_overhead: time_or(fields, "read-overhead", Nanos::ZERO)?,
        write_overhead: time_or(fields, "write-overhead", Nanos::ZERO)?,
        block_time: duration(Picos(block_time)),
        store_and_forward: fields.flag_or("store-and-forward", false)?,
        depth: fields.count("queue-depth", 1..=1_024)?,
        segments: fields.count("segments", 1..=limits::SEGMENTS)?,
        segment_blocks,
        read_ahead_blocks,
        write_buffer_blocks: blocks(fields, "write-buffer")?,
        write_ranges: fields.optional_count("write-ranges", 4..=4_096)?.unwrap_or(64),
        write_cache: fields.flag_or("write-cache", false)?,
        immediate_read: fields.flag_or("immediate-read", false)?,
        immediate_write: fields.flag_or("immediate-write", false)?,
        age_bound: time_or(fields, "age-bound", Nanos::from_millis(500))?,
        longest_pass: time_or(fields, "longest-pass", Nanos::from_millis(100))?,
    })
}

fn blocks(fields: &mut Fields<'_>, key: &'static str) -> Result<u64, ProfileError> {
    let Bytes(bytes) = fields.positive(key)?;
    if !bytes.is_multiple_of(SECTOR_BYTES) || bytes > LARGEST_BUFFER_BYTES {
        return Err(fields.error_at(key, format!("expected whole sectors, at most {}", Bytes(LARGEST_BUFFER_BYTES))));
    }
    Ok(bytes / SECTOR_BYTES)
}

fn time_or(fields: &mut Fields<'_>, key: &'static str, default: Nanos) -> Result<Ticks, ProfileError> {
    const LONGEST: Nanos = Nanos::from_secs(10);
    let time = fields.quantity_or(key, default)?;
    if time > LONGEST {
        return Err(fields.error_at(key, format!("expected at most {LONGEST}")));
    }
    Ok(ticks(time))
}

/// Most memory of a drive with this controller.
pub(crate) fn memory_bytes_max(parameters: &StreamingParameters) -> u64 {
    let ranges = footprint::array_bytes::<super::dirty::Range>(u64::from(parameters.write_ranges) + 2);
    let segments = footprint::array_bytes::<super::Segment>(parameters.segments.into());
    let commands = footprint::array_bytes::<[super::Reading; 3]>(parameters.depth.into());
    footprint::sum([footprint::DEVICE_BYTES, ranges, segments, commands])
}

/// Kind `streaming-disk`: another controller for the drive of a profile.
pub(crate) fn parse(fields: &mut Fields<'_>, members: &mut dyn FindMembers) -> Result<Blueprint, ProfileError> {
    let member = members.one(fields, "member")?;
    let Some(drive) = member.drive() else {
        let message = format!("of the kind {}; expected a profile of kind disk", member.kind());
        return Err(fields.error_at("member", message));
    };
    let parameters = read_table(fields)?;
    let capacity_bytes = drive.capacity_blocks() * SECTOR_BYTES;
    let memory_bytes = memory_bytes_max(&parameters);
    let shared = Arc::clone(&drive);
    let make = move |info, seed| -> Box<dyn crate::DeviceModel> {
        Box::new(StreamingDisk::new(info, Arc::clone(&drive), parameters, seed))
    };
    Ok(Blueprint::new(move |_info| memory_bytes, make)
        .with_drive(shared)
        .turning()
        .with_volatile_cache(parameters.write_cache)
        .with_age_bound(nanos(parameters.age_bound))
        .sized(member.capacity_bytes().min(capacity_bytes)))
}
