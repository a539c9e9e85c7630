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
//! read-ahead = "128 KiB"          # at most a segment; a stream keeps its last blocks with at most half of one
//! write-buffer = "256 KiB"
//! write-ranges = 16               # optional: ranges of consecutive blocks in it; 64 is the default
//! write-cache = true              # optional: a write completes in the buffer; false is the default
//! store-and-forward = false       # optional: a read crosses the interface when all of it is in the buffer
//! read-water-mark = 0             # optional: ... when this share of it is; 0, the default, as it comes
//! reselect = "0 ms"               # optional: from then on until a read that waited has the interface
//! write-data-delay = "0 ms"       # optional: from a write's command until its data cross
//! minimum-write-seek = "0 ms"     # optional: least positioning of a write that does not go on without a gap
//! preseek = false                 # optional: the arm leaves for a write as its data begin to cross, not behind them
//! read-ahead-to = "read-ahead"    # optional: or "track-end", "track-end-or-next" if reading on ends there before
//! read-free-blocks = false        # optional: blocks of the track that pass before the first wanted one are kept
//! immediate-read = false          # optional: a read begins with the wanted block that passes first
//! immediate-write = false         # optional: so does a write
//! age-bound = "500 ms"            # optional: older requests go before all others; the default
//! longest-pass = "100 ms"         # optional: a pass goes on so long while an older request waits; the default
//!
//! # Optional, each with `read-overhead` or `write-overhead` as its default: a command's overhead by the command that
//! # completed before it.
//! read-hit-after-read = "0.066 ms"
//! read-hit-after-write = "0.273 ms"
//! read-miss-after-read = "0.284 ms"
//! read-miss-after-write = "0.087 ms"
//! write-after-read = "0.748 ms"
//! write-after-write = "0.5 ms"
//! read-completion = "0 ms"        # optional: from a read's last block to its completion
//! write-completion = "0 ms"
//!
//! [extra-write-disconnect]        # optional: a write that follows one and does not continue it disconnects first
//! overhead = "0.892 ms"           # its command, instead of `write-after-write`
//! data-delay = "0.378 ms"         # from then on until its data cross
//! completion = "0.179 ms"         # instead of `write-completion`
//!
//! [host-bus]                      # optional: the bus of the computer with which the drive was traced
//! read-block = "0.105 ms"         # of 512 bytes, if that is slower than the interface
//! write-block = "0.105 ms"
//! connected = false               # optional: requests cross it; in `chronodisk validate` they always do
//! ```

use std::sync::Arc;

use chronodisk_sim::{Nanos, SECTOR_BYTES};

use super::super::drive::{AfterTicks, Drive};
use super::super::mechanics::{Ticks, duration, nanos, ticks};
use super::super::parameters::{Picos, limits};
use super::{ExtraDisconnect, ReadAheadTo, StreamingDisk, StreamingParameters};
use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::models::blueprint::{Blueprint, FindMembers};
use crate::quantity::{Bytes, Rate};

const LARGEST_BUFFER_BYTES: u64 = 1 << 36;

/// A drive's controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Controller {
    pub(crate) parameters: StreamingParameters,
    /// On the bus of the computer with which the drive was traced.
    on_host_bus: Option<StreamingParameters>,
}

impl Controller {
    /// The blueprint of a drive with this controller.
    pub(crate) fn of(&self, drive: &Arc<Drive>) -> Blueprint {
        let makes = |parameters: StreamingParameters| {
            let drive = Arc::clone(drive);
            move |info, seed| -> Box<dyn crate::DeviceModel> {
                Box::new(StreamingDisk::new(info, Arc::clone(&drive), parameters, seed))
            }
        };
        let memory_bytes = memory_bytes_max(&self.parameters);
        let blueprint = Blueprint::new(move |_info| memory_bytes, makes(self.parameters))
            .with_volatile_cache(self.parameters.write_cache)
            .with_age_bound(nanos(self.parameters.age_bound));
        match self.on_host_bus {
            Some(parameters) => blueprint.with_host_bus(makes(parameters)),
            None => blueprint,
        }
    }
}

/// The controller's keys.
pub(crate) fn read_table(fields: &mut Fields<'_>) -> Result<Controller, ProfileError> {
    let Rate(bytes_per_second) = fields.positive("interface-rate")?;
    let picos = u128::from(SECTOR_BYTES) * 1_000_000_000_000 / u128::from(bytes_per_second);
    let interface = duration(Picos(i64::try_from(picos).unwrap_or(i64::MAX).min(limits::TIME_PICOS)));
    let bus = host_bus(fields)?;
    let segment_blocks = blocks(fields, "segment-size")?;
    let read_ahead_blocks = blocks(fields, "read-ahead")?;
    if read_ahead_blocks > segment_blocks {
        return Err(fields.error_at("read-ahead", "expected at most `segment-size`"));
    }
    let read_overhead = time_or(fields, "read-overhead", Nanos::ZERO)?;
    let write_overhead = time_or(fields, "write-overhead", Nanos::ZERO)?;
    let store_and_forward = fields.flag_or("store-and-forward", false)?;
    let read_water_mark = fields.optional_millionths("read-water-mark")?.unwrap_or(0);
    if read_water_mark > 1_000_000 || (read_water_mark > 0 && store_and_forward) {
        let message = "expected a share of the request, from 0 to 1, and none with `store-and-forward`";
        return Err(fields.error_at("read-water-mark", message));
    }
    let parameters = StreamingParameters {
        read_hit: after(fields, ["read-hit-after-read", "read-hit-after-write"], read_overhead)?,
        read_miss: after(fields, ["read-miss-after-read", "read-miss-after-write"], read_overhead)?,
        write: after(fields, ["write-after-read", "write-after-write"], write_overhead)?,
        read_completion: time_or(fields, "read-completion", Nanos::ZERO)?,
        write_completion: time_or(fields, "write-completion", Nanos::ZERO)?,
        read_block: interface,
        write_block: interface,
        store_and_forward,
        read_water_mark,
        reselect: time_or(fields, "reselect", Nanos::ZERO)?,
        write_data_delay: time_or(fields, "write-data-delay", Nanos::ZERO)?,
        extra_disconnect: extra_disconnect(fields)?,
        least_write_seek: time_or(fields, "minimum-write-seek", Nanos::ZERO)?,
        preseek: fields.flag_or("preseek", false)?,
        read_free_blocks: fields.flag_or("read-free-blocks", false)?,
        read_ahead_to: fields.choice_or("read-ahead-to", READ_AHEAD_TO, ReadAheadTo::ReadAhead)?,
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
    };
    Ok(match bus {
        None => Controller { parameters, on_host_bus: None },
        Some(HostBus { read_block, write_block, connected }) => {
            let (read_block, write_block) = (read_block.max(interface), write_block.max(interface));
            let on_host_bus = StreamingParameters { read_block, write_block, ..parameters };
            let parameters = if connected { on_host_bus } else { parameters };
            Controller { parameters, on_host_bus: Some(on_host_bus) }
        }
    })
}

const READ_AHEAD_TO: &[(&str, ReadAheadTo)] = &[
    ("read-ahead", ReadAheadTo::ReadAhead),
    ("track-end", ReadAheadTo::TrackEnd),
    ("track-end-or-next", ReadAheadTo::TrackEndOrNext),
];

fn extra_disconnect(fields: &mut Fields<'_>) -> Result<Option<ExtraDisconnect>, ProfileError> {
    let Some(mut extra) = fields.optional_table("extra-write-disconnect")? else { return Ok(None) };
    let disconnect = ExtraDisconnect {
        overhead: time_or(&mut extra, "overhead", Nanos::ZERO)?,
        data_delay: time_or(&mut extra, "data-delay", Nanos::ZERO)?,
        completion: time_or(&mut extra, "completion", Nanos::ZERO)?,
    };
    extra.finish()?;
    Ok(Some(disconnect))
}

/// The bus of a computer.
struct HostBus {
    read_block: Ticks,
    write_block: Ticks,
    /// Whether requests cross it.
    connected: bool,
}

fn host_bus(fields: &mut Fields<'_>) -> Result<Option<HostBus>, ProfileError> {
    let Some(mut bus) = fields.optional_table("host-bus")? else { return Ok(None) };
    let host_bus = HostBus {
        read_block: time_or(&mut bus, "read-block", Nanos::ZERO)?,
        write_block: time_or(&mut bus, "write-block", Nanos::ZERO)?,
        connected: bus.flag_or("connected", false)?,
    };
    bus.finish()?;
    Ok(Some(host_bus))
}

fn blocks(fields: &mut Fields<'_>, key: &'static str) -> Result<u64, ProfileError> {
    let Bytes(bytes) = fields.positive(key)?;
    if !bytes.is_multiple_of(SECTOR_BYTES) || bytes > LARGEST_BUFFER_BYTES {
        return Err(fields.error_at(key, format!("expected whole sectors, at most {}", Bytes(LARGEST_BUFFER_BYTES))));
    }
    Ok(bytes / SECTOR_BYTES)
}

/// Overheads of a command behind a read and behind a write.
fn after(fields: &mut Fields<'_>, keys: [&'static str; 2], usual: Ticks) -> Result<AfterTicks, ProfileError> {
    let [read, write] = keys;
    Ok(AfterTicks { read: time_or(fields, read, nanos(usual))?, write: time_or(fields, write, nanos(usual))? })
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
fn memory_bytes_max(parameters: &StreamingParameters) -> u64 {
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
    let controller = read_table(fields)?;
    let capacity_bytes = drive.capacity_blocks() * SECTOR_BYTES;
    Ok(controller.of(&drive).with_drive(drive).turning().sized(member.capacity_bytes().min(capacity_bytes)))
}
