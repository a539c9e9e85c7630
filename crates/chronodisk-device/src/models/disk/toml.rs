//! Profiles of kind `disk`: [`DiskParameters`] as TOML, read and written by one description of their fields.
//!
//! ```toml
//! [geometry]                      # where blocks are
//! [[geometry.zones]]              # one for each range of cylinders
//! [mechanics]                     # arm, heads, spindle
//! [mechanics.seek]                # time to move the arm
//! [controller]                    # a request's overheads, and policy between bus and medium
//! [controller.extra-write-disconnect]   # optional
//! [cache]                         # the segmented buffer
//! [queue]                         # optional: order of the requests in the drive
//! [bus]                           # optional: times that the bus adds
//! [nonvolatile]                   # optional: a write cache that survives loss of power
//! [streaming]                     # instead of controller, cache, queue, bus and nonvolatile: see `streaming/toml.rs`
//! ```
//!
//! Each key is described where it is written (see a profile in `profiles/disk`) by the text that the functions below
//! give it. `docs/profile-keys.md` lists the keys, `docs/importing-a-disk.md` the defaults. A key that may be missing
//! has a default, which is the state of a plain drive: no overhead, nothing unusual. Times are exact to the picosecond,
//! fractions to the millionth.

mod read;
mod write;

use std::sync::Arc;

use chronodisk_sim::SECTOR_BYTES;

use super::parameters::*;
use super::{Drive, model, streaming};
use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::models::blueprint::Blueprint;
use read::Reader;
pub use write::{ProfileHeading, write_profile};

/// A key: its name, and its comment in a written profile.
#[derive(Clone, Copy, Debug)]
struct Key {
    name: &'static str,
    about: &'static str,
    /// Whether the value that is there before reading stands if the key is missing.
    optional: bool,
}

/// A key that must be there.
const fn key(name: &'static str, about: &'static str) -> Key {
    Key { name, about, optional: false }
}

/// A key that may be missing.
const fn optional(name: &'static str, about: &'static str) -> Key {
    Key { name, about, optional: true }
}

/// Visits the fields of the parameters: reads each of them from a profile, or writes it to one.
trait Visitor {
    /// A time that is not negative.
    fn time(&mut self, key: Key, value: &mut Picos) -> Outcome;
    /// A time or a difference of times.
    fn signed_time(&mut self, key: Key, value: &mut Picos) -> Outcome;
    /// A number without dimension, with a fraction.
    fn fraction(&mut self, key: Key, value: &mut Millionths) -> Outcome;
    /// A whole number from `least` to `most`.
    fn count(&mut self, key: Key, value: &mut u32, least: u32, most: u32) -> Outcome;
    /// A number of sectors.
    fn sectors(&mut self, key: Key, value: &mut u64, most: u64) -> Outcome;
    /// A number of sectors or of tracks, as `unit` says.
    fn positions(&mut self, key: Key, value: &mut u64, unit: PositionUnit) -> Outcome;
    /// An angle; all of them have one unit.
    fn angle(&mut self, key: Key, value: &mut Millionths, unit: &mut Option<SkewUnit>) -> Outcome;
    /// A speed of rotation.
    fn rotation(&mut self, key: Key, value: &mut Rpm) -> Outcome;
    /// True or false.
    fn flag(&mut self, key: Key, value: &mut bool) -> Outcome;
    /// One of some names, by its index.
    fn choice(&mut self, key: Key, names: &[&str], index: &mut usize) -> Outcome;
    /// Whole numbers.
    fn wholes(&mut self, key: Key, values: &mut Vec<u64>) -> Outcome;
    /// Pairs of whole numbers.
    fn defects(&mut self, key: Key, values: &mut Vec<Defect>) -> Outcome;
    /// Distances and times.
    fn seek_points(&mut self, key: Key, values: &mut Vec<SeekPoint>) -> Outcome;
    /// Exactly as many times.
    fn times(&mut self, key: Key, values: &mut [Picos]) -> Outcome;
    /// A table; `present` says whether it is there, and is told by reading.
    fn table(&mut self, key: Key, present: &mut bool, visit: &mut Visit<'_>) -> Outcome;
    /// Tables of an array.
    fn zones(&mut self, key: Key, zones: &mut Vec<ZoneParameters>, visit: &mut VisitZone<'_>) -> Outcome;
    /// Whether values come from a profile.
    fn is_reading(&self) -> bool;
}

type Outcome = Result<(), ProfileError>;
type Visit<'a> = dyn FnMut(&mut dyn Visitor) -> Outcome + 'a;
type VisitZone<'a> = dyn FnMut(&mut dyn Visitor, &mut ZoneParameters) -> Outcome + 'a;

/// Unit of a sparing scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PositionUnit {
    Sectors,
    Tracks,
}

/// A choice between the variants of an enumeration without data.
fn choose<T: Copy + PartialEq>(
    visitor: &mut dyn Visitor,
    key: Key,
    choices: &[(&'static str, T)],
    value: &mut T,
) -> Outcome {
    let mut index = choices.iter().position(|choice| choice.1 == *value).unwrap_or(0);
    let names: Vec<&str> = choices.iter().map(|choice| choice.0).collect();
    visitor.choice(key, &names, &mut index)?;
    *value = choices[index].1;
    Ok(())
}

/// A table that is always there.
fn table(visitor: &mut dyn Visitor, key: Key, visit: &mut Visit<'_>) -> Outcome {
    visitor.table(key, &mut true, visit)
}

/// A table that may be missing, for something that may be missing.
fn optional_table<T: Default>(
    visitor: &mut dyn Visitor,
    key: Key,
    value: &mut Option<T>,
    visit: &mut dyn FnMut(&mut dyn Visitor, &mut T) -> Outcome,
) -> Outcome {
    let mut present = value.is_some();
    let mut inner = value.take().unwrap_or_default();
    visitor.table(key, &mut present, &mut |visitor| visit(visitor, &mut inner))?;
    *value = present.then_some(inner);
    Ok(())
}

/// Platters, heads, arm and spindle.
fn platters(visitor: &mut dyn Visitor, disk: &mut DiskParameters) -> Outcome {
    table(visitor, key("geometry", "Where blocks are."), &mut |visitor| geometry(visitor, &mut disk.geometry))?;
    table(visitor, key("mechanics", "How long it takes to get there."), &mut |visitor| {
        mechanics(visitor, &mut disk.mechanics)
    })
}

/// All of a drive.
fn disk(visitor: &mut dyn Visitor, disk: &mut DiskParameters) -> Outcome {
    platters(visitor, disk)?;
    let about = "A request's overheads, and the policy between bus and medium. \"after read\" and \"after write\" mean \
                 the request that was completed before.";
    table(visitor, key("controller", about), &mut |visitor| controller(visitor, &mut disk.controller))?;
    table(visitor, key("cache", "The segmented buffer."), &mut |visitor| cache(visitor, &mut disk.cache))?;
    let about = "Order of the requests that the drive has taken.";
    table(visitor, optional("queue", about), &mut |visitor| queue(visitor, &mut disk.queue))?;
    let about = "Time of a sector on the bus; the slower of it and block-transfer above counts.";
    table(visitor, optional("bus", about), &mut |visitor| {
        visitor.time(optional("read-block", "in a read"), &mut disk.bus.read_block)?;
        visitor.time(optional("write-block", "in a write"), &mut disk.bus.write_block)
    })?;
    let about = "A write cache that survives loss of power: writes complete in it and are destaged in C-SCAN order \
                 while no read waits.";
    optional_table(visitor, optional("nonvolatile", about), &mut disk.nonvolatile, &mut |visitor, memory| {
        sectors32(visitor, key("blocks", "what it holds"), &mut memory.blocks)?;
        visitor.time(optional("access", "from the last sector in it to the completion"), &mut memory.access)
    })
}

fn sectors32(visitor: &mut dyn Visitor, key: Key, value: &mut u32) -> Outcome {
    let mut wide = u64::from(*value);
    visitor.sectors(key, &mut wide, limits::SEGMENT_BLOCKS.into())?;
    *value = u32::try_from(wide).unwrap_or(u32::MAX);
    Ok(())
}

const TRACK_ORDERS: [(&str, TrackOrder); 3] = [
    ("heads-ascending", TrackOrder::HeadsAscending),
    ("serpentine-from-zone", TrackOrder::SerpentineFromZone),
    ("serpentine-from-disk", TrackOrder::SerpentineFromDisk),
];

const SPARINGS: [(&str, Sparing); 11] = [
    ("none", Sparing::None),
    ("tracks-at-zone-end", Sparing::TracksAtZoneEnd),
    ("sectors-at-cylinder-end", Sparing::BlocksAtCylinderEnd),
    ("sectors-at-track-end", Sparing::BlocksAtTrackEnd),
    ("sectors-at-cylinder-end-slips-to-disk-end", Sparing::BlocksAtCylinderEndSlipsToDiskEnd),
    ("sectors-at-cylinder-front", Sparing::BlocksAtCylinderFront),
    ("sectors-at-cylinder-front-slips-to-disk-end", Sparing::BlocksAtCylinderFrontSlipsToDiskEnd),
    ("sectors-at-disk-end", Sparing::BlocksAtDiskEnd),
    ("sectors-at-range-end", Sparing::BlocksAtRangeEnd),
    ("sectors-at-zone-end", Sparing::BlocksAtZoneEnd),
    ("sectors-at-zone-end-slips-to-disk-end", Sparing::BlocksAtZoneEndSlipsToDiskEnd),
];

fn geometry(visitor: &mut dyn Visitor, geometry: &mut GeometryParameters) -> Outcome {
    visitor.count(key("surfaces", "with data, one head each"), &mut geometry.surfaces, 1, limits::SURFACES)?;
    let about = "also those outside all zones";
    visitor.count(key("cylinders", about), &mut geometry.cylinders, 1, limits::CYLINDERS)?;
    let about =
        "heads-ascending: from head 0 on in every cylinder; serpentine-from-zone, -disk: odd cylinders backwards";
    choose(visitor, optional("track-order", about), &TRACK_ORDERS, &mut geometry.track_order)?;
    let about = "where spares are, and over what a slip shifts the sectors behind it";
    choose(visitor, optional("sparing", about), &SPARINGS, &mut geometry.sparing)?;
    let about = "that share spares, in the sparing sectors-at-range-end";
    let range = &mut geometry.spare_range_cylinders;
    visitor.count(optional("spare-range-cylinders", about), range, 0, limits::CYLINDERS)?;
    let unit = if geometry.sparing == Sparing::TracksAtZoneEnd { PositionUnit::Tracks } else { PositionUnit::Sectors };
    // Known when writing; when reading, the first angle decides.
    let mut skew_unit = (!visitor.is_reading()).then_some(geometry.skew_unit);
    let about = "Cylinders with the same number of sectors on each track, from the outside in.";
    visitor
        .zones(key("zones", about), &mut geometry.zones, &mut |visitor, of| zone(visitor, of, unit, &mut skew_unit))?;
    geometry.skew_unit = skew_unit.unwrap_or_default();
    Ok(())
}

fn zone(
    visitor: &mut dyn Visitor,
    zone: &mut ZoneParameters,
    unit: PositionUnit,
    skew_unit: &mut Option<SkewUnit>,
) -> Outcome {
    visitor.count(key("first-cylinder", ""), &mut zone.first_cylinder, 0, limits::CYLINDERS)?;
    visitor.count(key("last-cylinder", "inclusive"), &mut zone.last_cylinder, 0, limits::CYLINDERS)?;
    let per_track = &mut zone.blocks_per_track;
    visitor.count(key("blocks-per-track", "spares included"), per_track, 1, limits::BLOCKS_PER_TRACK)?;
    let about = "angle of the zone's first sector, in sectors or turns";
    visitor.angle(optional("first-block-offset", about), &mut zone.first_block_offset, skew_unit)?;
    let about = "at the zone's beginning, without data";
    visitor.sectors(optional("empty-blocks", about), &mut zone.empty_blocks, u64::MAX)?;
    visitor.angle(key("track-skew", "from a track of a cylinder to the next"), &mut zone.track_skew, skew_unit)?;
    visitor.angle(key("cylinder-skew", "from a cylinder to the next"), &mut zone.cylinder_skew, skew_unit)?;
    let about = "per track, cylinder, range or zone, as sparing says";
    visitor.positions(optional("spares", about), &mut zone.spares, unit)?;
    let about = match unit {
        PositionUnit::Sectors => "skipped sectors, counted from the zone's beginning",
        PositionUnit::Tracks => "skipped tracks, counted from the zone's beginning",
    };
    visitor.wholes(optional("slips", about), &mut zone.slips)?;
    let about = "[bad, replacement], counted as slips are";
    visitor.defects(optional("defects", about), &mut zone.defects)
}

fn mechanics(visitor: &mut dyn Visitor, mechanics: &mut MechanicsParameters) -> Outcome {
    let mut access = match mechanics.access {
        AccessTime::Full => 0,
        AccessTime::AverageRotation => 1,
        AccessTime::Constant(_) => 2,
    };
    let about = "full: arm, heads and angle; average-rotation: half a turn after the arm; constant: access-time";
    visitor.choice(optional("access", about), &["full", "average-rotation", "constant"], &mut access)?;
    mechanics.access = match access {
        0 => AccessTime::Full,
        1 => AccessTime::AverageRotation,
        _ => {
            let mut time = match mechanics.access {
                AccessTime::Constant(time) => time,
                _ => Picos::ZERO,
            };
            visitor.time(key("access-time", "to the first sector, whatever it is"), &mut time)?;
            AccessTime::Constant(time)
        }
    };
    visitor.rotation(key("rotation", "speed of the spindle"), &mut mechanics.rotation)?;
    visitor.time(key("head-switch", "to another surface of the same cylinder"), &mut mechanics.head_switch)?;
    let about = "what a write's positioning takes longer than a read's; may be negative";
    visitor.signed_time(optional("write-settle", about), &mut mechanics.write_settle)?;
    let phases = [("index", InitialPhase::Index), ("random", InitialPhase::Random)];
    let about = "of the platter at instant zero: the index mark under the heads, or drawn from the seed";
    choose(visitor, optional("initial-phase", about), &phases, &mut mechanics.initial_phase)?;
    table(visitor, key("seek", "Time to move the arm over d cylinders."), &mut |visitor| {
        seek(visitor, &mut mechanics.seek)
    })
}

fn seek(visitor: &mut dyn Visitor, curve: &mut SeekCurve) -> Outcome {
    let mut index = match curve {
        SeekCurve::Constant(_) => 0,
        SeekCurve::Linear(_) => 1,
        SeekCurve::Lee(_) => 2,
        SeekCurve::Hpl(_) => 3,
        SeekCurve::HplPlus10 { .. } => 4,
        SeekCurve::Extracted(_) => 5,
    };
    let about = "constant; linear or lee through single, average and full; hpl: a root, then a line; hpl-plus-10: a \
                 table, then hpl; extracted: through points";
    let names = ["constant", "linear", "lee", "hpl", "hpl-plus-10", "extracted"];
    visitor.choice(key("curve", about), &names, &mut index)?;
    if visitor.is_reading() {
        *curve = match index {
            0 => SeekCurve::Constant(Picos::ZERO),
            1 => SeekCurve::Linear(ThreePoints::default()),
            2 => SeekCurve::Lee(ThreePoints::default()),
            3 => SeekCurve::Hpl(HplCurve::default()),
            4 => SeekCurve::HplPlus10 { first_ten: [Picos::ZERO; 10], rest: HplCurve::default() },
            _ => SeekCurve::Extracted(Vec::new()),
        };
    }
    match curve {
        SeekCurve::Constant(time) => visitor.time(key("time", "whatever the distance"), time),
        SeekCurve::Linear(points) | SeekCurve::Lee(points) => {
            visitor.time(key("single", "one cylinder"), &mut points.single)?;
            visitor.time(key("average", "mean over random pairs of cylinders"), &mut points.average)?;
            visitor.time(key("full", "from the first cylinder to the last"), &mut points.full)
        }
        SeekCurve::Hpl(rest) => hpl(visitor, rest),
        SeekCurve::HplPlus10 { first_ten, rest } => {
            visitor.times(key("first-ten", "1 to 10 cylinders"), first_ten)?;
            hpl(visitor, rest)
        }
        SeekCurve::Extracted(points) => {
            visitor.seek_points(key("points", "[cylinders, time], straight lines between, from (0, 0) on"), points)
        }
    }
}

fn hpl(visitor: &mut dyn Visitor, curve: &mut HplCurve) -> Outcome {
    let threshold = &mut curve.threshold_cylinders;
    visitor.count(key("threshold-cylinders", "below it, the root"), threshold, 0, limits::CYLINDERS)?;
    visitor.time(key("root-constant", "root-constant + root-factor * sqrt(d)"), &mut curve.root_constant)?;
    visitor.time(key("root-factor", ""), &mut curve.root_factor)?;
    visitor.time(key("line-constant", "line-constant + line-factor * d"), &mut curve.line_constant)?;
    visitor.time(key("line-factor", ""), &mut curve.line_factor)?;
    let mut own = curve.single.is_some();
    visitor.flag(optional("single-differs", "one cylinder takes `single`, not what the root says"), &mut own)?;
    curve.single = match own {
        true => {
            let mut single = curve.single.unwrap_or_default();
            visitor.time(key("single", "one cylinder"), &mut single)?;
            Some(single)
        }
        false => None,
    };
    Ok(())
}

fn controller(visitor: &mut dyn Visitor, controller: &mut ControllerParameters) -> Outcome {
    let about = "before everything else";
    visitor.time(optional("per-request-overhead", about), &mut controller.per_request_overhead)?;
    let about = "all overheads are multiplied by it";
    visitor.fraction(optional("overhead-scale", about), &mut controller.overhead_scale)?;
    let about = "shortest time of a sector on the interface";
    visitor.time(optional("block-transfer", about), &mut controller.block_transfer)?;
    let commands = [
        ("read-hit-after-read", "command of a read that finds data in the buffer", &mut controller.read_hit.read),
        ("read-hit-after-write", "", &mut controller.read_hit.write),
        ("read-miss-after-read", "command of a read that goes to the medium", &mut controller.read_miss.read),
        ("read-miss-after-write", "", &mut controller.read_miss.write),
        ("write-hit-after-read", "command of a write that may complete early", &mut controller.write_hit.read),
        ("write-hit-after-write", "", &mut controller.write_hit.write),
        ("write-miss-after-read", "command of a write that may not", &mut controller.write_miss.read),
        ("write-miss-after-write", "", &mut controller.write_miss.write),
        ("read-completion", "after a read's last sector", &mut controller.read_completion),
        ("write-completion", "after a write's last sector", &mut controller.write_completion),
        ("data-preparation", "before each phase of data on the bus", &mut controller.data_preparation),
        ("first-reselect", "getting the bus back the first time", &mut controller.first_reselect),
        ("other-reselect", "getting it back again", &mut controller.other_reselect),
        ("read-disconnect-after-read", "a read's disconnection", &mut controller.read_disconnect.read),
        ("read-disconnect-after-write", "", &mut controller.read_disconnect.write),
        ("write-disconnect", "a write's disconnection", &mut controller.write_disconnect),
        (
            "minimum-write-seek",
            "least positioning of a write that does not continue the one before",
            &mut controller.minimum_write_seek,
        ),
    ];
    for (name, about, time) in commands {
        visitor.time(optional(name, about), time)?;
    }
    let flags = [
        ("hold-bus-for-read", "keep the bus while a read waits for the medium", &mut controller.hold_bus_for_read),
        ("hold-bus-for-write", "keep the bus while a write waits for the medium", &mut controller.hold_bus_for_write),
        ("never-disconnect", "keep the bus for the whole of each request", &mut controller.never_disconnect),
        ("disconnect-write-if-seek", "give up the bus during a write's seek", &mut controller.disconnect_write_if_seek),
        (
            "sneaky-full-read-hits",
            "a whole hit may use the bus while the arm serves another request",
            &mut controller.sneaky_full_read_hits,
        ),
        ("sneaky-partial-read-hits", "so may a partial hit", &mut controller.sneaky_partial_read_hits),
        (
            "sneaky-intermediate-read-hits",
            "while a hit waits for the medium, another may use the bus",
            &mut controller.sneaky_intermediate_read_hits,
        ),
        (
            "write-prebuffering",
            "a queued write may move its data while the arm serves another request",
            &mut controller.write_prebuffering,
        ),
    ];
    for (name, about, flag) in flags {
        visitor.flag(optional(name, about), flag)?;
    }
    let preseeks = [
        ("after-acknowledgement", Preseek::AfterAcknowledgement),
        ("during-completion", Preseek::DuringCompletion),
        ("after-media", Preseek::AfterMedia),
    ];
    choose(
        visitor,
        optional("preseek", "when the arm may leave for the next request"),
        &preseeks,
        &mut controller.preseek,
    )?;
    let about = "A write that follows a write and does not continue it disconnects before its data.";
    let extra = &mut controller.extra_write_disconnect;
    optional_table(visitor, optional("extra-write-disconnect", about), extra, &mut |visitor, extra| {
        let times = [
            ("command", "the command", &mut extra.command),
            ("disconnect", "the disconnection", &mut extra.disconnect),
            ("inter-disconnect-delay", "until the bus is taken again", &mut extra.inter_disconnect_delay),
            ("second-disconnect", "the disconnection after the data", &mut extra.second_disconnect),
            ("seek-delta", "from the command's end to the arm's start", &mut extra.seek_delta),
        ];
        times.into_iter().try_for_each(|(name, about, time)| visitor.time(optional(name, about), time))
    })
}

fn cache(visitor: &mut dyn Visitor, cache: &mut CacheParameters) -> Outcome {
    visitor.count(key("segments", ""), &mut cache.segments, 1, limits::SEGMENTS)?;
    let about = "of them may hold data not yet on the medium";
    visitor.count(optional("write-segments", about), &mut cache.write_segments, 1, limits::SEGMENTS)?;
    sectors32(visitor, key("segment-size", "of each"), &mut cache.segment_blocks)?;
    let about = "writes have a segment of their own";
    visitor.flag(optional("separate-write-segment", about), &mut cache.separate_write_segment)?;
    let cachings = [("none", Caching::None), ("all", Caching::All), ("reads-only", Caching::ReadsOnly)];
    choose(visitor, optional("caching", "what is kept after completion"), &cachings, &mut cache.caching)?;
    let about = "a disconnected write goes on when no more than this part waits for the medium";
    visitor.fraction(optional("low-water", about), &mut cache.low_water)?;
    let about = "a disconnected read goes on when this part has been read";
    visitor.fraction(optional("high-water", about), &mut cache.high_water)?;
    let about = "water marks are parts of the smaller of request and segment, else of the segment";
    visitor.flag(optional("water-by-request", about), &mut cache.water_by_request)?;
    let read_aheads = [
        ("none", ReadAhead::None),
        ("to-track-end", ReadAhead::ToTrackEnd),
        ("to-cylinder-end", ReadAhead::ToCylinderEnd),
        ("until-full", ReadAhead::UntilFull),
        ("to-track-end-or-next", ReadAhead::ToTrackEndOrNext),
    ];
    let about = "how far the drive reads on; -or-next: a track more if the segment began before this one";
    choose(visitor, optional("read-ahead", about), &read_aheads, &mut cache.read_ahead)?;
    let about = "before another request may stop it";
    sectors32(visitor, optional("minimum-read-ahead", about), &mut cache.minimum_read_ahead)?;
    let about = "0: as much as the segment holds";
    sectors32(visitor, optional("maximum-read-ahead", about), &mut cache.maximum_read_ahead)?;
    let overs = [
        ("drop-delivered", ReadAheadOver::DropDelivered),
        ("nothing", ReadAheadOver::Nothing),
        ("delivered", ReadAheadOver::Delivered),
    ];
    let about = "what sectors that are read on may push out; drop-delivered: delivered ones go at completion";
    choose(visitor, optional("read-ahead-over", about), &overs, &mut cache.read_ahead_over)?;
    let fast_writes =
        [("never", FastWrite::Never), ("sequential", FastWrite::Sequential), ("always", FastWrite::Always)];
    let about = "whether a write completes in the buffer; sequential: if it continues the one under way";
    choose(visitor, optional("fast-write", about), &fast_writes, &mut cache.fast_write)?;
    let flags = [
        ("read-ahead-on-idle-hit", "a whole hit starts the reading on again", &mut cache.read_ahead_on_idle_hit),
        ("read-free-blocks", "sectors that pass before the first wanted one are kept", &mut cache.read_free_blocks),
        (
            "immediate-read",
            "zero latency: a read begins with whatever wanted sector passes first",
            &mut cache.immediate_read,
        ),
        ("immediate-write", "so does a write", &mut cache.immediate_write),
        ("combine-writes", "writes that continue each other share a segment", &mut cache.combine_writes),
        ("stop-read-ahead-in-block", "reading on stops within a sector", &mut cache.stop_read_ahead_in_block),
        (
            "write-hit-stops-read-ahead",
            "a write to the segment that is being filled ends the reading on",
            &mut cache.write_hit_stops_read_ahead,
        ),
        (
            "read-directly-to-buffer",
            "the medium fills the segment, else a sector buffer before it",
            &mut cache.read_directly_to_buffer,
        ),
        (
            "immediate-partial-hits",
            "a partial hit moves its data at once, else at the high water mark",
            &mut cache.immediate_partial_hits,
        ),
        (
            "almost-read-hits",
            "a read of the very sector that is being read is a partial hit",
            &mut cache.almost_read_hits,
        ),
        ("read-hits-on-write-data", "reads may use data of writes", &mut cache.read_hits_on_write_data),
    ];
    flags.into_iter().try_for_each(|(name, about, flag)| visitor.flag(optional(name, about), flag))
}

fn queue(visitor: &mut dyn Visitor, queue: &mut QueueParameters) -> Outcome {
    visitor.count(optional("depth", "requests taken at once"), &mut queue.depth, 0, limits::QUEUE_DEPTH)?;
    let mut index = match queue.scheduler {
        Scheduler::Fcfs => 0,
        Scheduler::Sstf => 1,
        Scheduler::Look => 2,
        Scheduler::CLook => 3,
        Scheduler::Sptf => 4,
        Scheduler::AgedSptf { .. } => 5,
    };
    let names = ["fcfs", "sstf", "look", "c-look", "sptf", "aged-sptf"];
    visitor.choice(optional("scheduler", "which of them is next"), &names, &mut index)?;
    queue.scheduler = match (index, queue.scheduler) {
        (0, _) => Scheduler::Fcfs,
        (1, _) => Scheduler::Sstf,
        (2, _) => Scheduler::Look,
        (3, _) => Scheduler::CLook,
        (4, _) => Scheduler::Sptf,
        (_, before) => {
            let mut weight = match before {
                Scheduler::AgedSptf { weight } => weight,
                _ => Millionths(0),
            };
            visitor.fraction(key("weight", "credit per time waited"), &mut weight)?;
            Scheduler::AgedSptf { weight }
        }
    };
    let knowledge = [
        ("block-numbers", GeometryKnowledge::BlockNumbers),
        ("zones", GeometryKnowledge::Zones),
        ("exact", GeometryKnowledge::Exact),
    ];
    choose(visitor, optional("knowledge", "what it knows of the geometry"), &knowledge, &mut queue.knowledge)?;
    visitor.time(optional("read-initiation", "assumed overhead of a read"), &mut queue.read_initiation)?;
    visitor.time(optional("write-initiation", "assumed overhead of a write"), &mut queue.write_initiation)
}

/// A plain drive: the defaults of missing keys.
fn plain() -> DiskParameters {
    DiskParameters {
        geometry: GeometryParameters {
            surfaces: 1,
            cylinders: 1,
            track_order: TrackOrder::default(),
            sparing: Sparing::default(),
            spare_range_cylinders: 1,
            skew_unit: SkewUnit::default(),
            zones: Vec::new(),
        },
        mechanics: MechanicsParameters {
            access: AccessTime::Full,
            seek: SeekCurve::Constant(Picos::ZERO),
            head_switch: Picos::ZERO,
            write_settle: Picos::ZERO,
            rotation: Rpm { numerator: 1, denominator: 1 },
            initial_phase: InitialPhase::default(),
        },
        controller: ControllerParameters { overhead_scale: Millionths::ONE, ..ControllerParameters::default() },
        cache: CacheParameters { write_segments: 1, ..CacheParameters::default() },
        queue: QueueParameters { depth: 1, ..QueueParameters::default() },
        bus: BusParameters::default(),
        nonvolatile: None,
    }
}

/// The parameters in a profile's tables.
///
/// # Errors
/// The first key that is missing, unknown or wrong, with its place.
pub(crate) fn read(fields: &mut Fields<'_>) -> Result<DiskParameters, ProfileError> {
    let mut parameters = plain();
    let streams = fields.has("streaming");
    let mut reader = Reader::new(fields);
    if streams {
        (parameters.cache.segments, parameters.cache.segment_blocks) = (1, 1);
        platters(&mut reader, &mut parameters)?;
    } else {
        disk(&mut reader, &mut parameters)?;
    }
    let spans = reader.into_spans();
    parameters.validate().map_err(|wrong| {
        let field = wrong.field.replace('_', "-");
        let nearest = spans.iter().filter(|span| field.starts_with(span.0.as_str())).max_by_key(|span| span.0.len());
        match nearest {
            Some((_, span)) => fields.error_in(span, format!("`{field}`: {}", wrong.problem)),
            None => fields.error(wrong.to_string()),
        }
    })?;
    Ok(parameters)
}

/// Kind `disk`: the tables that the module describes.
pub(crate) fn parse(fields: &mut Fields<'_>) -> Result<Blueprint, ProfileError> {
    let parameters = read(fields)?;
    let drive = Arc::new(Drive::new(&parameters).map_err(|wrong| fields.error(wrong.to_string()))?);
    let capacity_bytes = drive.capacity_blocks() * SECTOR_BYTES;
    let streaming = match fields.optional_table("streaming")? {
        Some(mut table) => {
            let streaming = streaming::read_table(&mut table)?;
            table.finish()?;
            Some(streaming)
        }
        None => None,
    };
    let shared = Arc::clone(&drive);
    let blueprint = match streaming {
        Some(controller) => controller.of(&drive),
        None => {
            let volatile = parameters.cache.fast_write != FastWrite::Never && parameters.nonvolatile.is_none();
            let memory_bytes = footprint::DEVICE_BYTES + drive_memory_bytes_max(&shared);
            let make = move |info, seed| model(info, Arc::clone(&drive), seed);
            Blueprint::new(move |_info| memory_bytes, make)
                .with_volatile_cache(volatile)
                .with_age_bound(super::mechanics::nanos(super::scheduler::AGE_BOUND))
        }
    };
    Ok(blueprint.with_drive(shared).turning().at_most(capacity_bytes))
}

/// Most memory of a drive of this design for segments and a non-volatile cache.
pub(crate) fn drive_memory_bytes_max(drive: &Drive) -> u64 {
    // A segment has a list of the jobs that use it, and a place in the order of use.
    const SEGMENT_BYTES: u64 = 512;
    let segments = footprint::allocations_bytes(drive.cache.segments.into(), SEGMENT_BYTES);
    // The worst are single blocks apart from each other.
    let dirty = drive.nonvolatile.map_or(0, |memory| footprint::array_bytes::<(u64, u64)>(memory.blocks.into()));
    segments.saturating_add(dirty)
}

/// The drive described by the text of a profile, without the checks common to all profiles: for tests of writers of
/// such texts.
///
/// # Errors
/// The first error, with its place.
#[cfg(any(test, feature = "test-utils"))]
pub fn read_parameters(text: &str) -> Result<DiskParameters, ProfileError> {
    crate::fields::with_fields(text, |fields| {
        for key in ["name", "kind", "description", "source", "validation", "capacity"] {
            fields.know(key);
        }
        read(fields)
    })
}

#[cfg(test)]
mod tests;
