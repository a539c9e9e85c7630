//! Profiles of kind `disk`: [`DiskParameters`] as TOML, read and written by one description of their fields.
//!
//! ```toml
//! [geometry]                      # where blocks are
//! [[geometry.zones]]              # one for each range of cylinders
//! [mechanics]                     # arm, heads, spindle
//! [mechanics.seek]                # time to move the arm
//! [controller]                    # overheads, interface, buffer, queue
//! [controller.extra-write-disconnect]   # optional
//! [host-bus]                      # optional: the bus of the computer with which the drive was traced
//! [nonvolatile]                   # optional: a write cache that survives loss of power
//! ```
//!
//! `member = "NAME"` in place of `geometry` and `mechanics` takes them from another profile of this kind: a drive that
//! differs in its controller.
//!
//! Each key is described where it is written (see a profile in `profiles/disk`) by the text that the functions below
//! give it. `docs/profile-keys.md` lists the keys, `docs/importing-a-disk.md` the defaults. A key that may be missing
//! has a default, which is the state of a plain drive: no overhead, nothing unusual. Times are exact to the picosecond,
//! fractions to the millionth.

mod read;
mod write;

use std::sync::Arc;

use chronodisk_sim::SECTOR_BYTES;

use super::nonvolatile::NonvolatileDisk;
use super::parameters::*;
use super::{Disk, Drive};
use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::models::blueprint::{Blueprint, FindMembers};
use crate::{DeviceInfo, DeviceModel};
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
    /// Bytes a second; missing: no limit.
    fn rate(&mut self, key: Key, value: &mut Option<u64>) -> Outcome;
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
    electronics(visitor, disk)
}

/// Controller, host bus and non-volatile memory.
fn electronics(visitor: &mut dyn Visitor, disk: &mut DiskParameters) -> Outcome {
    let about = "Overheads, interface, buffer, queue. \"after read\" and \"after write\" mean the request that was \
                 completed before.";
    table(visitor, key("controller", about), &mut |visitor| controller(visitor, &mut disk.controller))?;
    let about = "The bus of the computer with which the drive was traced: time of 512 bytes, if the interface is not \
                 slower.";
    optional_table(visitor, optional("host-bus", about), &mut disk.host_bus, &mut |visitor, bus| {
        visitor.time(optional("read-block", "in a read"), &mut bus.read_block)?;
        visitor.time(optional("write-block", "in a write"), &mut bus.write_block)?;
        let about = "requests cross it; in `chronodisk validate` they always do";
        visitor.flag(optional("connected", about), &mut bus.connected)
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

fn controller(visitor: &mut dyn Visitor, of: &mut ControllerParameters) -> Outcome {
    visitor.rate(optional("interface-rate", "of the interface; missing: no limit"), &mut of.interface_rate)?;
    if visitor.is_reading() {
        let (mut read, mut write) = (Picos::ZERO, Picos::ZERO);
        visitor.time(optional("read-overhead", "default of the four overheads of reads"), &mut read)?;
        visitor.time(optional("write-overhead", "default of the two overheads of writes"), &mut write)?;
        (of.read_hit, of.read_miss) = (After { read, write: read }, After { read, write: read });
        of.write = After { read: write, write };
    }
    let times = [
        ("read-hit-after-read", "command of a read whose first sector is in the buffer", &mut of.read_hit.read),
        ("read-hit-after-write", "", &mut of.read_hit.write),
        ("read-miss-after-read", "command of another read", &mut of.read_miss.read),
        ("read-miss-after-write", "", &mut of.read_miss.write),
        ("write-after-read", "any other command", &mut of.write.read),
        ("write-after-write", "", &mut of.write.write),
        ("read-completion", "from a read's last sector to its completion", &mut of.read_completion),
        ("write-completion", "the same of a write", &mut of.write_completion),
        ("reselect", "until a read that waited for the medium has the interface", &mut of.reselect),
        ("write-data-delay", "from a write's command until its data cross", &mut of.write_data_delay),
        (
            "minimum-write-seek",
            "least positioning of a write that does not go on without a gap",
            &mut of.minimum_write_seek,
        ),
    ];
    for (name, about, time) in times {
        visitor.time(optional(name, about), time)?;
    }
    let about = "a read crosses the interface when all of it is in the buffer, not as it comes";
    visitor.flag(optional("store-and-forward", about), &mut of.store_and_forward)?;
    let about = "a read crosses when this share of it is in the buffer; 0: as it comes";
    visitor.fraction(optional("read-water-mark", about), &mut of.read_water_mark)?;
    let about = "the arm leaves for a write as its data begin to cross, not behind them";
    visitor.flag(optional("preseek", about), &mut of.preseek)?;
    buffer(visitor, of)?;
    queue(visitor, of)?;
    let about = "A write that follows a write and does not continue it disconnects before its data.";
    let extra = &mut of.extra_write_disconnect;
    optional_table(visitor, optional("extra-write-disconnect", about), extra, &mut |visitor, extra| {
        visitor.time(optional("overhead", "its command, instead of write-after-write"), &mut extra.overhead)?;
        visitor.time(optional("data-delay", "from then on until its data cross"), &mut extra.data_delay)?;
        visitor.time(optional("completion", "instead of write-completion"), &mut extra.completion)
    })
}

fn buffer(visitor: &mut dyn Visitor, of: &mut ControllerParameters) -> Outcome {
    visitor.count(optional("segments", "of the buffer, for reads"), &mut of.segments, 1, limits::SEGMENTS)?;
    sectors32(visitor, key("segment-size", "of each"), &mut of.segment_blocks)?;
    let about = "at most a segment; a stream keeps its last sectors with at most half of one";
    sectors32(visitor, optional("read-ahead", about), &mut of.read_ahead_blocks)?;
    let ends = [
        ("read-ahead", ReadAheadTo::ReadAhead),
        ("track-end", ReadAheadTo::TrackEnd),
        ("track-end-or-next", ReadAheadTo::TrackEndOrNext),
    ];
    let about = "where reading on ends besides; -or-next: a track more if the segment began before this one";
    choose(visitor, optional("read-ahead-to", about), &ends, &mut of.read_ahead_to)?;
    let about = "sectors of the track that pass before the first wanted one are kept";
    visitor.flag(optional("read-free-blocks", about), &mut of.read_free_blocks)?;
    let about = "sectors of a write stay in a segment, where reads find them";
    visitor.flag(optional("read-hits-on-write-data", about), &mut of.read_hits_on_write_data)?;
    sectors32(visitor, key("write-buffer", "for writes"), &mut of.write_buffer_blocks)?;
    let about = "of consecutive sectors in it";
    visitor.count(optional("write-ranges", about), &mut of.write_ranges, 1, limits::WRITE_RANGES)?;
    visitor.flag(optional("write-cache", "a write completes in the buffer"), &mut of.write_cache)?;
    let about = "zero latency: a read begins with the wanted sector that passes first";
    visitor.flag(optional("immediate-read", about), &mut of.immediate_read)?;
    visitor.flag(optional("immediate-write", "so does a write"), &mut of.immediate_write)
}

fn queue(visitor: &mut dyn Visitor, of: &mut ControllerParameters) -> Outcome {
    visitor.count(optional("queue-depth", "commands in the drive"), &mut of.queue_depth, 1, limits::QUEUE_DEPTH)?;
    let mut index = match of.scheduler {
        Scheduler::Fcfs => 0,
        Scheduler::Sstf => 1,
        Scheduler::Look => 2,
        Scheduler::CLook => 3,
        Scheduler::Sptf => 4,
        Scheduler::AgedSptf { .. } => 5,
    };
    let names = ["fcfs", "sstf", "look", "c-look", "sptf", "aged-sptf"];
    visitor.choice(optional("scheduler", "which of them is next"), &names, &mut index)?;
    of.scheduler = match (index, of.scheduler) {
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
    visitor.time(optional("age-bound", "older requests go before all others"), &mut of.age_bound)?;
    let about = "a pass of the arm goes on so long while an older request waits";
    visitor.time(optional("longest-pass", about), &mut of.longest_pass)
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
        controller: ControllerParameters {
            queue_depth: 1,
            segments: 1,
            write_ranges: 64,
            age_bound: Picos::from_micros(500_000),
            longest_pass: Picos::from_micros(100_000),
            ..ControllerParameters::default()
        },
        host_bus: None,
        nonvolatile: None,
    }
}

/// The parameters in a profile's tables.
///
/// # Errors
/// The first key that is missing, unknown or wrong, with its place.
pub(crate) fn read(fields: &mut Fields<'_>) -> Result<DiskParameters, ProfileError> {
    read_tables(fields, disk, DiskParameters::validate)
}

fn read_tables(
    fields: &mut Fields<'_>,
    visit: fn(&mut dyn Visitor, &mut DiskParameters) -> Outcome,
    validate: fn(&DiskParameters) -> Result<(), ParameterError>,
) -> Result<DiskParameters, ProfileError> {
    let mut parameters = plain();
    let mut reader = Reader::new(fields);
    visit(&mut reader, &mut parameters)?;
    let spans = reader.into_spans();
    validate(&parameters).map_err(|wrong| {
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
pub(crate) fn parse(fields: &mut Fields<'_>, members: &mut dyn FindMembers) -> Result<Blueprint, ProfileError> {
    fields.know("member");
    if !fields.has("member") {
        let parameters = read(fields)?;
        let drive = Drive::new(&parameters).map_err(|wrong| fields.error(wrong.to_string()))?;
        let capacity_bytes = drive.capacity_blocks() * SECTOR_BYTES;
        return Ok(blueprint(Arc::new(drive)).at_most(capacity_bytes));
    }
    let member = members.one(fields, "member")?;
    let Some(platters) = member.drive() else {
        let message = format!("of the kind {}; expected a profile of kind disk", member.kind());
        return Err(fields.error_at("member", message));
    };
    let parameters = read_tables(fields, electronics, DiskParameters::validate_controller)?;
    let drive = platters.with_controller(&parameters).map_err(|wrong| fields.error(wrong.to_string()))?;
    let capacity_bytes = drive.capacity_blocks() * SECTOR_BYTES;
    Ok(blueprint(Arc::new(drive)).sized(member.capacity_bytes().min(capacity_bytes)))
}

fn blueprint(drive: Arc<Drive>) -> Blueprint {
    let memory_bytes = Disk::memory_bytes_max(&drive).saturating_add(nonvolatile_bytes_max(&drive));
    let makes = |new: fn(DeviceInfo, Arc<Drive>, u64) -> Disk| {
        let drive = Arc::clone(&drive);
        move |info, seed| -> Box<dyn DeviceModel> {
            let disk = new(info, Arc::clone(&drive), seed);
            match drive.nonvolatile {
                Some(memory) => Box::new(NonvolatileDisk::new(disk, memory)),
                None => Box::new(disk),
            }
        }
    };
    let blueprint = Blueprint::new(move |_info| memory_bytes, makes(Disk::new))
        .with_volatile_cache(drive.control.write_cache && drive.nonvolatile.is_none())
        .with_age_bound(super::mechanics::nanos(drive.control.age_bound))
        .turning();
    match drive.on_host_bus {
        Some(_) => blueprint.with_host_bus(makes(Disk::on_host_bus)),
        None => blueprint,
    }
    .with_drive(drive)
}

/// Most memory of a drive's non-volatile cache.
fn nonvolatile_bytes_max(drive: &Drive) -> u64 {
    // The worst are single blocks apart from each other.
    drive.nonvolatile.map_or(0, |memory| footprint::array_bytes::<(u64, u64)>(memory.blocks.into()))
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
