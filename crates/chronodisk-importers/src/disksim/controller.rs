//! Controller, buffer and queue of a DiskSim drive as [`ControllerParameters`].
//!
//! DiskSim's controller gives up the bus and takes it back within a request. Here, these times are overheads of the
//! command and delays of its data, which add up to the same in a request alone in the drive. Parameters that the
//! controller has no part for are named by a warning if they are not at the value that it behaves like.

use chronodisk_device::ProfileError;
use chronodisk_device::disk::*;

use super::common::{MILLIONTHS, Origins, Surroundings, time};
use super::reader::Reader;

/// Parameters without a counterpart: name, least and most value, and the value that is modelled, if others differ.
const NOT_MODELLED: &[(&str, i64, i64, Option<i64>)] = &[
    ("Allow almost read hits", 0, 1, None),
    ("Allow read hits on write data", 0, 1, None),
    ("Allow sneaky full read hits", 0, 1, None),
    ("Allow sneaky intermediate read hits", 0, 1, None),
    ("Allow sneaky partial read hits", 0, 1, None),
    ("Combine seq writes", 0, 1, Some(1)),
    ("Disconnect write if seek", 0, 1, None),
    ("Enable caching in buffer", 0, 2, None),
    ("Hold bus entire read xfer", 0, 1, None),
    ("Hold bus entire write xfer", 0, 1, Some(0)),
    ("Immed transfer partial hit", 0, 1, Some(1)),
    ("Never disconnect", 0, 1, Some(0)),
    ("Preseeking level", 0, 2, None),
    ("Read directly to buffer", 0, 1, None),
    ("Read-ahead on idle hit", 0, 1, None),
    ("Read-ahead over requested", -1, 1, None),
    ("Set watermark by reqsize", 0, 1, None),
    ("Stop prefetch in sector", 0, 1, None),
    ("Use separate write segment", 0, 1, None),
    ("Write hit stop prefetch", 0, 1, Some(1)),
];

/// The controller of a drive whose queue and bus are known.
pub(super) fn controller(
    reader: &mut Reader<'_>,
    around: Surroundings,
    (queue_depth, scheduler): (u32, Scheduler),
    origins: &mut Origins,
) -> Result<(ControllerParameters, Option<HostBusParameters>), ProfileError> {
    let overheads = Overheads::read(reader)?;
    let fast_write = reader.whole("Fast write level", 0, 2)?;
    if fast_write == 1 {
        reader.warn_at("Fast write level", "imported as 2: every write completes in the buffer");
    }
    let mark = reader.number("High (read) water mark", MILLIONTHS)?;
    origins.add("controller.read_water_mark", reader, "High (read) water mark");
    let low = reader.number("Low (write) water mark", MILLIONTHS)?;
    if !(0..=Millionths::ONE.0).contains(&low) {
        return Err(reader.error_at("Low (write) water mark", "expected 0 to 1"));
    }
    let block_transfer = time(reader, "Bulk sector transfer time")?;
    let minimum_write_seek = time(reader, "Minimum seek delay")?;
    let parameters = ControllerParameters {
        read_water_mark: Millionths(mark),
        minimum_write_seek,
        preseek: true,
        queue_depth,
        scheduler,
        write_cache: fast_write > 0,
        read_free_blocks: reader.flag("Read any free blocks")?,
        immediate_read: without_effect(reader, "Immediate buffer read")?,
        immediate_write: without_effect(reader, "Immediate buffer write")?,
        age_bound: Picos::from_micros(500_000),
        longest_pass: Picos::from_micros(100_000),
        ..overheads.parameters(fast_write > 0)
    };
    let parameters = buffer(reader, parameters)?;
    for &(name, least, most, like) in NOT_MODELLED {
        let value = reader.whole(name, least, most)?;
        if like.is_some_and(|like| value != like) {
            reader.warn_at(name, format!("{value} is not modelled; imported as {}", like.unwrap_or_default()));
        }
    }
    let (read_block, write_block) =
        (block_transfer.max(around.bus.read_block), block_transfer.max(around.bus.write_block));
    let bus = HostBusParameters { read_block, write_block, connected: true };
    let moves_in_no_time = read_block == Picos::ZERO && write_block == Picos::ZERO;
    Ok((parameters, (!moves_in_no_time).then_some(bus)))
}

/// Segments, reading on, and the part for writes.
fn buffer(reader: &mut Reader<'_>, of: ControllerParameters) -> Result<ControllerParameters, ProfileError> {
    let mut segments = reader.whole("Number of buffer segments", 0, limits::SEGMENTS.into())? as u32;
    let most = i64::from(segments.max(1));
    let write_segments = reader.whole("Maximum number of write segments", 1, most)? as u32;
    if segments == 0 {
        reader.warn_at("Number of buffer segments", "imported as one segment");
        segments = 1;
    }
    let segment_blocks = reader.whole("Segment size (in blks)", 1, limits::SEGMENT_BLOCKS.into())?;
    reader.whole("Minimum read-ahead (blks)", 0, segment_blocks)?;
    let most = match reader.whole("Maximum read-ahead (blks)", 0, segment_blocks)? {
        0 => segment_blocks,
        most => most,
    };
    let (read_ahead_blocks, read_ahead_to) = match reader.whole("Buffer continuous read", 0, 4)? {
        0 => (0, ReadAheadTo::ReadAhead),
        1 => (most, ReadAheadTo::TrackEnd),
        2 => {
            reader.warn_at("Buffer continuous read", "imported as 3: reading on goes beyond the cylinder");
            (most, ReadAheadTo::ReadAhead)
        }
        3 => (most, ReadAheadTo::ReadAhead),
        _ => (most, ReadAheadTo::TrackEndOrNext),
    };
    // Without prebuffering, data of a write cross when the arm is free for it: one range is written at a time.
    let write_ranges = if reader.flag("Allow write prebuffering")? { write_segments } else { 1 };
    let write_buffer_blocks = (segment_blocks as u32).saturating_mul(write_segments).min(limits::SEGMENT_BLOCKS);
    Ok(ControllerParameters {
        segments,
        segment_blocks: segment_blocks as u32,
        read_ahead_blocks: read_ahead_blocks as u32,
        read_ahead_to,
        write_buffer_blocks,
        write_ranges,
        ..of
    })
}

/// Access out of order: DiskSim 4.0 reads the parameter and begins with the first wanted block all the same, as its
/// outputs for drives that set it show, so that the drives' other parameters were fitted without it.
fn without_effect(reader: &mut Reader<'_>, name: &'static str) -> Result<bool, ProfileError> {
    if reader.whole(name, 0, 2)? > 0 {
        let message = "has no effect in DiskSim 4.0 and is left out; set it in the profile for zero-latency access";
        reader.warn_at(name, message);
    }
    Ok(false)
}

/// DiskSim's overheads, scaled.
struct Overheads {
    per_request: Picos,
    read_hit: After,
    read_miss: After,
    write_hit: After,
    write_miss: After,
    read_completion: Picos,
    write_completion: Picos,
    data_preparation: Picos,
    first_reselect: Picos,
    other_reselect: Picos,
    extra: Option<Extra>,
}

/// Overheads of the extra disconnection of a write.
struct Extra {
    command: Picos,
    disconnect: Picos,
    delay: Picos,
    seek_delta: Picos,
}

impl Overheads {
    fn read(reader: &mut Reader<'_>) -> Result<Overheads, ProfileError> {
        const SCALE: &str = "Time scale for overheads";
        const LARGEST_SCALE: i64 = 1_000_000_000;
        let scale = reader.number(SCALE, MILLIONTHS)?;
        if !(0..=LARGEST_SCALE).contains(&scale) {
            return Err(reader.error_at(SCALE, "expected 0 to 1000"));
        }
        let scaled = |time: Picos| {
            let scaled = i128::from(time.0) * i128::from(scale) / 1_000_000;
            Picos(i64::try_from(scaled).unwrap_or(i64::MAX).min(limits::TIME_PICOS))
        };
        let mut one = |name| time(reader, name).map(scaled);
        for left_out in [
            "Read disconnect afterread",
            "Read disconnect afterwrite",
            "Write disconnect overhead",
            "Extradisc 2nd disconnect overhead",
        ] {
            one(left_out)?;
        }
        let extra = Extra {
            command: one("Extradisc command overhead")?,
            disconnect: one("Extradisc disconnect overhead")?,
            seek_delta: one("Extradisc seek delta")?,
            // The reference does not scale this one: it is a pause and no overhead.
            delay: time(reader, "Extradisc inter-disconnect delay")?,
        };
        let has_extra = reader.flag("Extra write disconnect")?;
        let mut one = |name| time(reader, name).map(scaled);
        let mut both = |read, write| Ok::<After, ProfileError>(After { read: one(read)?, write: one(write)? });
        Ok(Overheads {
            read_hit: both("Read hit over. after read", "Read hit over. after write")?,
            read_miss: both("Read miss over. after read", "Read miss over. after write")?,
            write_hit: both("Write hit over. after read", "Write hit over. after write")?,
            write_miss: both("Write miss over. after read", "Write miss over. after write")?,
            per_request: one("Per-request overhead time")?,
            read_completion: one("Read completion overhead")?,
            write_completion: one("Write completion overhead")?,
            data_preparation: one("Data preparation overhead")?,
            first_reselect: one("First reselect overhead")?,
            other_reselect: one("Other reselect overhead")?,
            extra: has_extra.then_some(extra),
        })
    }

    /// The times of the controller.
    fn parameters(&self, fast_write: bool) -> ControllerParameters {
        let Overheads { per_request, data_preparation, first_reselect, .. } = *self;
        let plus = |times: After, more: Picos| After { read: add(times.read, more), write: add(times.write, more) };
        let write = if fast_write { self.write_hit } else { self.write_miss };
        // A write that completes on the medium has given up the bus before.
        let reselect = if fast_write { Picos::ZERO } else { first_reselect };
        let extra = self.extra.as_ref().map(|extra| {
            let overhead = add(extra.command, extra.seek_delta);
            let data = [extra.command, extra.disconnect, extra.delay, first_reselect, data_preparation];
            ExtraDisconnect {
                overhead: add(overhead, per_request),
                data_delay: Picos((data.iter().map(|time| time.0).sum::<i64>() - overhead.0).max(0)),
                completion: add(self.write_completion, self.other_reselect),
            }
        });
        ControllerParameters {
            read_hit: plus(self.read_hit, add(per_request, data_preparation)),
            read_miss: plus(self.read_miss, per_request),
            write: plus(write, per_request),
            read_completion: self.read_completion,
            write_completion: add(self.write_completion, reselect),
            reselect: add(first_reselect, data_preparation),
            write_data_delay: data_preparation,
            extra_write_disconnect: extra,
            ..ControllerParameters::default()
        }
    }
}

/// A sum of times, at most the longest that a drive can have.
fn add(a: Picos, b: Picos) -> Picos {
    Picos((a.0 + b.0).min(limits::TIME_PICOS))
}
