//! The parameters of a disk drive as plain data: a profile or an importer fills them in, and the model is made of them.
//!
//! [`DiskParameters`] is the whole drive. The vocabulary is that of the drives' manuals and of the DiskSim 4.0
//! Reference Manual (Bucy, Schindler, Schlosser, Ganger; CMU-PDL-08-101), whose parameter name is quoted where it
//! differs. Times are integer picoseconds ([`Picos`]), so that a value such as 0.28362 ms is exact; numbers without
//! dimension that may have a fraction are [`Millionths`]. Blocks are sectors of 512 bytes throughout.
//!
//! [`DiskParameters::validate`] checks everything that the model relies on: past it no sum or product overflows and
//! no table is larger than the bounds in `limits`.

use std::fmt;

/// A duration or a signed difference of durations in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub i64);

impl Picos {
    /// The empty duration.
    pub const ZERO: Picos = Picos(0);

    /// From a count of nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Picos(nanos * 1_000)
    }

    /// From a count of microseconds.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Picos(micros * 1_000_000)
    }
}

/// A number without dimension in units of one millionth: 0.75 is 750,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millionths(pub i64);

impl Millionths {
    /// One.
    pub const ONE: Millionths = Millionths(1_000_000);

    /// From a whole number.
    #[must_use]
    pub const fn from_whole(number: i64) -> Self {
        Millionths(number * 1_000_000)
    }
}

/// A disk drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskParameters {
    /// Where blocks are.
    pub geometry: GeometryParameters,
    /// How long it takes to get there.
    pub mechanics: MechanicsParameters,
    /// The controller's handling of requests.
    pub controller: ControllerParameters,
    /// The bus of the computer with which the drive was traced.
    pub host_bus: Option<HostBusParameters>,
    /// A write cache that survives loss of power, in front of all this.
    pub nonvolatile: Option<NonvolatileParameters>,
}

/// Layout of the surfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeometryParameters {
    /// Surfaces with data, one head each ("Number of data surfaces").
    pub surfaces: u32,
    /// Cylinders, including those outside all zones.
    pub cylinders: u32,
    /// Order of the tracks within cylinders ("LBN-to-PBN mapping scheme").
    pub track_order: TrackOrder,
    /// Where spare blocks are and how slips shift blocks ("Sparing scheme used").
    pub sparing: Sparing,
    /// Cylinders that share spares; used by [`Sparing::BlocksAtRangeEnd`] alone ("Rangesize for sparing").
    pub spare_range_cylinders: u32,
    /// Unit of the zones' skews and offsets.
    pub skew_unit: SkewUnit,
    /// Zones in order of their cylinders; gaps between them hold no data.
    pub zones: Vec<ZoneParameters>,
}

/// A range of cylinders with the same number of blocks on each track.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneParameters {
    /// First cylinder.
    pub first_cylinder: u32,
    /// Last cylinder, inclusive.
    pub last_cylinder: u32,
    /// Blocks on each track, spares included.
    pub blocks_per_track: u32,
    /// Angle of the zone's first block behind the index mark, in the geometry's skew unit.
    pub first_block_offset: Millionths,
    /// Physical blocks at the zone's beginning that hold no data ("Empty space at zone front").
    pub empty_blocks: u64,
    /// Angle between the first blocks of successive tracks of a cylinder, in the geometry's skew unit.
    pub track_skew: Millionths,
    /// Angle between the first block of a cylinder's last track and that of the next cylinder's first track, in the
    /// geometry's skew unit.
    pub cylinder_skew: Millionths,
    /// Spares per track, cylinder, range or zone as the sparing scheme says; blocks, or tracks for
    /// [`Sparing::TracksAtZoneEnd`].
    pub spares: u64,
    /// Skipped physical positions relative to the zone's beginning, ascending: blocks, or tracks for
    /// [`Sparing::TracksAtZoneEnd`].
    pub slips: Vec<u64>,
    /// Remapped physical positions, in the unit of the slips.
    pub defects: Vec<Defect>,
}

/// A physical position whose contents are elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The bad position, relative to the zone's beginning.
    pub original: u64,
    /// Where the contents are, relative to the zone's beginning.
    pub replacement: u64,
}

/// Order in which a cylinder's tracks are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackOrder {
    /// 0: from head 0 to the last one in every cylinder.
    #[default]
    HeadsAscending,
    /// 1: back and forth; odd cylinders counted from the beginning of the zone run from the last head to head 0.
    SerpentineFromZone,
    /// 2: back and forth; odd cylinders counted from cylinder 0 run from the last head to head 0.
    SerpentineFromDisk,
}

/// Where spares are, and over which unit a slip shifts the blocks that follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparing {
    /// 0: none.
    #[default]
    None,
    /// 1: spare tracks at the end of the zone; slips and defects are numbers of tracks.
    TracksAtZoneEnd,
    /// 2: blocks at the end of each cylinder.
    BlocksAtCylinderEnd,
    /// 3: blocks at the end of each track.
    BlocksAtTrackEnd,
    /// 4: blocks at the end of each cylinder; slips use space at the end of the disk.
    BlocksAtCylinderEndSlipsToDiskEnd,
    /// 5: blocks at the front of each cylinder.
    BlocksAtCylinderFront,
    /// 6: blocks at the front of each cylinder; slips use space at the end of the disk.
    BlocksAtCylinderFrontSlipsToDiskEnd,
    /// 7: blocks at the end of the disk.
    BlocksAtDiskEnd,
    /// 8: blocks at the end of each range of cylinders.
    BlocksAtRangeEnd,
    /// 9: blocks at the end of the zone.
    BlocksAtZoneEnd,
    /// 10: blocks at the end of the zone; slips use space at the end of the disk.
    BlocksAtZoneEndSlipsToDiskEnd,
}

impl Sparing {
    /// All schemes, in the order of DiskSim's numbers from 0.
    pub const ALL: [Sparing; 11] = [
        Sparing::None,
        Sparing::TracksAtZoneEnd,
        Sparing::BlocksAtCylinderEnd,
        Sparing::BlocksAtTrackEnd,
        Sparing::BlocksAtCylinderEndSlipsToDiskEnd,
        Sparing::BlocksAtCylinderFront,
        Sparing::BlocksAtCylinderFrontSlipsToDiskEnd,
        Sparing::BlocksAtDiskEnd,
        Sparing::BlocksAtRangeEnd,
        Sparing::BlocksAtZoneEnd,
        Sparing::BlocksAtZoneEndSlipsToDiskEnd,
    ];
}

/// Unit of skews and offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SkewUnit {
    /// Blocks of the zone's tracks.
    #[default]
    Blocks,
    /// Turns of the platter.
    Revolutions,
}

/// Arm, heads and spindle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MechanicsParameters {
    /// How an access to the medium is timed.
    pub access: AccessTime,
    /// Time to move the arm.
    pub seek: SeekCurve,
    /// Time to use another head of the same cylinder.
    pub head_switch: Picos,
    /// Additional positioning time of a write; negative if writes settle faster.
    pub write_settle: Picos,
    /// Speed of the spindle.
    pub rotation: Rpm,
    /// Angle of the platter at instant zero.
    pub initial_phase: InitialPhase,
}

/// A speed of rotation as an exact fraction of turns per minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rpm {
    /// Turns...
    pub numerator: u32,
    /// ...in so many minutes.
    pub denominator: u32,
}

impl Rpm {
    /// `numerator / denominator` in lowest terms; nothing if one of them is too large then, or if it divides by 0.
    #[must_use]
    pub fn fraction(numerator: u64, denominator: u64) -> Option<Rpm> {
        let (mut common, mut rest) = (numerator, denominator);
        while rest != 0 {
            (common, rest) = (rest, common % rest);
        }
        let part = |part: u64| u32::try_from(part.checked_div(common)?).ok();
        Some(Rpm { numerator: part(numerator)?, denominator: part(denominator).filter(|&part| part > 0)? })
    }

    /// The same speed in lowest terms.
    pub(crate) fn reduced(self) -> Rpm {
        Rpm::fraction(self.numerator.into(), self.denominator.into()).expect("a speed divides by more than 0")
    }
}

/// Where the index mark is at instant zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialPhase {
    /// Under the heads.
    #[default]
    Index,
    /// Drawn from the run's seed.
    Random,
}

/// How an access to the medium is timed ("Access time type").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTime {
    /// Arm, head switch, angle of the platter ("trackSwitchPlusRotation").
    #[default]
    Full,
    /// Arm and head switch, then half a turn ("averageRotation").
    AverageRotation,
    /// Always so long to the first block, without mechanics ("constant").
    Constant(Picos),
}

/// Time to move the arm over d cylinders; zero for d = 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeekCurve {
    /// The same for every distance.
    Constant(Picos),
    /// Through the times of one cylinder, of a third of the cylinders and of all of them, straight lines between.
    Linear(ThreePoints),
    /// Lee's curve through the same three: t = c + b(d − 1) + a√(d − 1).
    Lee(ThreePoints),
    /// Ruemmler and Wilkes, "An Introduction to Disk Drive Modeling" (IEEE Computer, 1994): a root, then a line.
    Hpl(HplCurve),
    /// A table for 1 to 10 cylinders, then as [`SeekCurve::Hpl`].
    HplPlus10 {
        /// Times of 1 to 10 cylinders.
        first_ten: [Picos; 10],
        /// Beyond.
        rest: HplCurve,
    },
    /// Straight lines through measured points, from (0, 0) on; beyond the last one the last line goes on.
    Extracted(Vec<SeekPoint>),
}

/// Three times from a data sheet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreePoints {
    /// One cylinder.
    pub single: Picos,
    /// The mean over random pairs of cylinders.
    pub average: Picos,
    /// From the first cylinder to the last.
    pub full: Picos,
}

/// A root below a threshold and a line from it on ("HPL seek equation values", V1 to V6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HplCurve {
    /// V1: shorter distances use the root.
    pub threshold_cylinders: u32,
    /// V2: constant of the root.
    pub root_constant: Picos,
    /// V3: factor of √d.
    pub root_factor: Picos,
    /// V4: constant of the line.
    pub line_constant: Picos,
    /// V5: factor of d.
    pub line_factor: Picos,
    /// V6: one cylinder, unless the root holds for it too (−1 in a file).
    pub single: Option<Picos>,
}

/// A measured seek.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeekPoint {
    /// Distance.
    pub cylinders: u32,
    /// Time.
    pub time: Picos,
}

/// A value that depends on the last completed request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct After {
    /// After a read.
    pub read: Picos,
    /// After a write.
    pub write: Picos,
}

/// The controller: a command's overheads, the interface, the buffer, the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerParameters {
    /// Bytes a second on the interface; without a value, data cross it in no time.
    pub interface_rate: Option<u64>,
    /// Command of a read whose first block is in the buffer.
    pub read_hit: After,
    /// Command of another read.
    pub read_miss: After,
    /// Any other command.
    pub write: After,
    /// From a read's last block on the interface to its completion.
    pub read_completion: Picos,
    /// From a write's last block to its completion.
    pub write_completion: Picos,
    /// A read crosses the interface when all of it is in the buffer, not as it comes.
    pub store_and_forward: bool,
    /// A read that waited for the medium crosses the interface when this share of it is in the buffer, from 0 to 1.
    pub read_water_mark: Millionths,
    /// From then on until the read has the interface.
    pub reselect: Picos,
    /// From a write's command until its data cross the interface.
    pub write_data_delay: Picos,
    /// Times of a write that follows another one and does not continue it.
    pub extra_write_disconnect: Option<ExtraDisconnect>,
    /// Least positioning time of a write that does not go on without a gap.
    pub minimum_write_seek: Picos,
    /// The arm leaves for a write when its data begin to cross, not when they are in the buffer.
    pub preseek: bool,
    /// Commands in the drive; others wait outside, in order of arrival.
    pub queue_depth: u32,
    /// The order in which the arm serves them.
    pub scheduler: Scheduler,
    /// Segments of the buffer for reads.
    pub segments: u32,
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Most blocks that are read on behind a read.
    pub read_ahead_blocks: u32,
    /// Where reading on ends besides.
    pub read_ahead_to: ReadAheadTo,
    /// Blocks of the track that pass before the first wanted one are kept.
    pub read_free_blocks: bool,
    /// Blocks of a write stay in a segment, where reads find them.
    pub read_hits_on_write_data: bool,
    /// Blocks of the buffer for writes.
    pub write_buffer_blocks: u32,
    /// Ranges of consecutive blocks in it.
    pub write_ranges: u32,
    /// A write completes in the buffer.
    pub write_cache: bool,
    /// A read begins with the wanted block that passes first (zero latency).
    pub immediate_read: bool,
    /// So does a write.
    pub immediate_write: bool,
    /// Older requests go before all others.
    pub age_bound: Picos,
    /// A pass of the arm goes on so long while an older request waits.
    pub longest_pass: Picos,
}

/// The disconnection of some drives' writes before their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraDisconnect {
    /// The command.
    pub overhead: Picos,
    /// From then on until the data cross the interface.
    pub data_delay: Picos,
    /// From the last block's arrival on the medium to the completion.
    pub completion: Picos,
}

/// Where reading on ends if `read_ahead_blocks` does not end it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAheadTo {
    /// Nowhere.
    #[default]
    ReadAhead,
    /// At the end of the track.
    TrackEnd,
    /// At the end of the track, or of the next one if the segment began before the track.
    TrackEndOrNext,
}

/// The order in which the arm serves reads, and writes from the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// First come, first served; a write that completed in the buffer keeps its place.
    Fcfs,
    /// Shortest seek time first.
    Sstf,
    /// LOOK, the elevator: both directions.
    Look,
    /// C-LOOK: upwards only, then back to the lowest.
    CLook,
    /// Shortest positioning time first: seek and rotation.
    #[default]
    Sptf,
    /// SPTF whose positioning times shrink with waiting (Seltzer, Chen, Ousterhout, "Disk Scheduling Revisited", 1990:
    /// aged SPTF): so many millionths of the time that a read has waited are subtracted.
    AgedSptf {
        /// Credit per time waited.
        weight: Millionths,
    },
}

/// The bus of the computer with which a drive was traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostBusParameters {
    /// A block's time in a read, if that is slower than the interface.
    pub read_block: Picos,
    /// A block's time in a write.
    pub write_block: Picos,
    /// Requests cross it. In `chronodisk validate` they always do.
    pub connected: bool,
}

/// The non-volatile write cache of Thekkath, Wilkes and Lazowska, "Techniques for File System Simulation" (1994),
/// case study: a write completes when its data are in the memory; destage in C-SCAN order; reads go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NonvolatileParameters {
    /// Blocks that it holds.
    pub blocks: u32,
    /// Time from a write's last block in the memory to its completion, or of a read that it serves.
    pub access: Picos,
}

/// An invalid parameter, with the value expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// Path of the field such as `geometry.zones[3].slips`.
    pub field: String,
    /// The problem, and the value expected.
    pub problem: String,
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for ParameterError {}

/// Largest values that [`DiskParameters::validate`] lets through.
pub mod limits {
    /// Heads.
    pub const SURFACES: u32 = 256;
    /// Cylinders.
    pub const CYLINDERS: u32 = 1 << 24;
    /// Blocks of a track.
    pub const BLOCKS_PER_TRACK: u32 = 1 << 16;
    /// Zones.
    pub const ZONES: usize = 1 << 14;
    /// Slips and defects of all zones together.
    pub const LISTED_POSITIONS: usize = 1 << 22;
    /// Points of a seek curve.
    pub const SEEK_POINTS: usize = 1 << 16;
    /// Any single time, in picoseconds: ten seconds.
    pub const TIME_PICOS: i64 = 10_000_000_000_000;
    /// Segments of the buffer.
    pub const SEGMENTS: u32 = 1 << 12;
    /// Blocks of a segment or of the non-volatile cache: 64 GiB.
    pub const SEGMENT_BLOCKS: u32 = 1 << 27;
    /// Commands in the drive.
    pub const QUEUE_DEPTH: u32 = 1_024;
    /// Ranges in the write buffer.
    pub const WRITE_RANGES: u32 = 4_096;
    /// Turns a minute.
    pub const RPM: u32 = 1_000_000;
}
