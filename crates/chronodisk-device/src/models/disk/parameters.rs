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
    /// The controller's buffer.
    pub cache: CacheParameters,
    /// In which order requests that wait are served.
    pub queue: QueueParameters,
    /// The bus to the host.
    pub bus: BusParameters,
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

/// The controller's times and its policy between bus and medium.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerParameters {
    /// Before everything else ("Per-request overhead time").
    pub per_request_overhead: Picos,
    /// All overheads of this structure are multiplied by it ("Time scale for overheads"); usually one.
    pub overhead_scale: Millionths,
    /// Shortest time for a block to cross the interface ("Bulk sector transfer time").
    pub block_transfer: Picos,
    /// "Read hit over.": command of a read that finds data in the buffer.
    pub read_hit: After,
    /// "Read miss over.": command of a read that goes to the medium.
    pub read_miss: After,
    /// "Write hit over.": command of a write that may complete before it is on the medium.
    pub write_hit: After,
    /// "Write miss over.": command of a write that may not.
    pub write_miss: After,
    /// After a read's last block ("Read completion overhead").
    pub read_completion: Picos,
    /// After a write's last block ("Write completion overhead").
    pub write_completion: Picos,
    /// Before each phase of data on the bus ("Data preparation overhead").
    pub data_preparation: Picos,
    /// Getting the bus back after a request's first disconnection ("First reselect overhead").
    pub first_reselect: Picos,
    /// Getting it back after later ones ("Other reselect overhead").
    pub other_reselect: Picos,
    /// A read's disconnection ("Read disconnect afterread", "afterwrite").
    pub read_disconnect: After,
    /// A write's disconnection ("Write disconnect overhead").
    pub write_disconnect: Picos,
    /// A write that follows a write and does not continue it disconnects before its data ("Extra write disconnect").
    pub extra_write_disconnect: Option<ExtraDisconnect>,
    /// Least time of a write's positioning unless it continues the write before it ("Minimum seek delay").
    pub minimum_write_seek: Picos,
    /// Keep the bus while a read waits for the medium ("Hold bus entire read xfer").
    pub hold_bus_for_read: bool,
    /// Keep the bus while a write waits for the medium ("Hold bus entire write xfer").
    pub hold_bus_for_write: bool,
    /// Never give up the bus within a request ("Never disconnect").
    pub never_disconnect: bool,
    /// A whole hit may use the bus while the arm works for another request ("Allow sneaky full read hits").
    pub sneaky_full_read_hits: bool,
    /// The same for a partial hit ("Allow sneaky partial read hits").
    pub sneaky_partial_read_hits: bool,
    /// A hit that waits for the medium may let another use the bus between ("Allow sneaky intermediate read hits").
    pub sneaky_intermediate_read_hits: bool,
    /// A write that waits may move its data while the arm works for another request ("Allow write prebuffering").
    pub write_prebuffering: bool,
    /// When the arm may leave for the next request ("Preseeking level").
    pub preseek: Preseek,
    /// "Disconnect write if seek": give up the bus during a write's seek.
    pub disconnect_write_if_seek: bool,
}

/// The extra disconnection of some drives' writes ("Extradisc ...").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraDisconnect {
    /// The command ("Extradisc command overhead").
    pub command: Picos,
    /// The disconnection itself ("Extradisc disconnect overhead").
    pub disconnect: Picos,
    /// From it until the bus is taken again ("Extradisc inter-disconnect delay").
    pub inter_disconnect_delay: Picos,
    /// The disconnection after the data ("Extradisc 2nd disconnect overhead").
    pub second_disconnect: Picos,
    /// The arm starts this long after the command ("Extradisc seek delta").
    pub seek_delta: Picos,
}

/// When the arm may leave for the next request ("Preseeking level").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preseek {
    /// 0: when the host has acknowledged the completion.
    #[default]
    AfterAcknowledgement,
    /// 1: while the completion is being sent.
    DuringCompletion,
    /// 2: as soon as the medium's part, with the least read-ahead, is over.
    AfterMedia,
}

/// The segmented buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheParameters {
    /// Segments ("Number of buffer segments").
    pub segments: u32,
    /// Segments that may hold data not yet on the medium ("Maximum number of write segments").
    pub write_segments: u32,
    /// Blocks of a segment ("Segment size").
    pub segment_blocks: u32,
    /// Writes have a segment of their own, which no read uses ("Use separate write segment").
    pub separate_write_segment: bool,
    /// Blocks kept after completion ("Enable caching in buffer").
    pub caching: Caching,
    /// A disconnected write takes the bus again when no more than this part of the buffer waits for the medium
    /// ("Low (write) water mark"); 0 to 1.
    pub low_water: Millionths,
    /// A disconnected read takes the bus again when this part has been read ("High (read) water mark"); 0 to 1.
    pub high_water: Millionths,
    /// The water marks are parts of the smaller of request and segment, not of the segment ("Set watermark by
    /// reqsize").
    pub water_by_request: bool,
    /// How far the drive reads on ("Buffer continuous read").
    pub read_ahead: ReadAhead,
    /// Blocks that are read on before another request may stop it ("Minimum read-ahead").
    pub minimum_read_ahead: u32,
    /// Most blocks read on; zero for as many as the segment holds ("Maximum read-ahead").
    pub maximum_read_ahead: u32,
    /// Blocks that read-ahead may displace ("Read-ahead over requested").
    pub read_ahead_over: ReadAheadOver,
    /// A whole hit starts the reading on again ("Read-ahead on idle hit").
    pub read_ahead_on_idle_hit: bool,
    /// After a seek, blocks before the first wanted one are kept too ("Read any free blocks").
    pub read_free_blocks: bool,
    /// When a write completes ("Fast write level").
    pub fast_write: FastWrite,
    /// A read begins with the first wanted block that passes ("Immediate buffer read").
    pub immediate_read: bool,
    /// A write begins with the first wanted block that passes ("Immediate buffer write").
    pub immediate_write: bool,
    /// Writes that continue each other share a segment ("Combine seq writes").
    pub combine_writes: bool,
    /// Reading on stops within a block ("Stop prefetch in sector").
    pub stop_read_ahead_in_block: bool,
    /// A write to the segment that is being filled ends the reading on ("Write hit stop prefetch").
    pub write_hit_stops_read_ahead: bool,
    /// Blocks go from the medium straight into the segment ("Read directly to buffer").
    pub read_directly_to_buffer: bool,
    /// A partial hit starts its transfer at once instead of at the high water mark ("Immed transfer partial hit").
    pub immediate_partial_hits: bool,
    /// A read that begins at the very block that is being read is a partial hit ("Allow almost read hits").
    pub almost_read_hits: bool,
    /// Reads may use data of writes ("Allow read hits on write data").
    pub read_hits_on_write_data: bool,
}

/// Blocks that the buffer keeps after completion ("Enable caching in buffer").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// 0: nothing.
    None,
    /// 1: everything.
    #[default]
    All,
    /// 2: blocks of reads.
    ReadsOnly,
}

/// How far the drive reads on after a read ("Buffer continuous read").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAhead {
    /// 0: not at all.
    #[default]
    None,
    /// 1: to the end of the track.
    ToTrackEnd,
    /// 2: to the end of the cylinder.
    ToCylinderEnd,
    /// 3: until the segment is full.
    UntilFull,
    /// 4: to the end of the track, and a track more if the segment began before it.
    ToTrackEndOrNext,
}

/// Blocks that read-ahead may displace ("Read-ahead over requested").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAheadOver {
    /// −1: the blocks that were delivered are given up as soon as the request completes.
    DropDelivered,
    /// 0: nothing.
    #[default]
    Nothing,
    /// 1: the blocks that were just delivered.
    Delivered,
}

/// When a write completes ("Fast write level").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastWrite {
    /// 0: when it is on the medium.
    #[default]
    Never,
    /// 1: when it is in the buffer, if it continues the write that is under way.
    Sequential,
    /// 2: when it is in the buffer.
    Always,
}

/// The queue inside the drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueParameters {
    /// Requests in the drive at once; others wait outside in order of arrival ("Max queue length", with 0 for 1).
    pub depth: u32,
    /// The order.
    pub scheduler: Scheduler,
    /// The scheduler's knowledge of the geometry.
    pub knowledge: GeometryKnowledge,
    /// Assumed overhead of a read when its position is predicted ("Read initiation delay").
    pub read_initiation: Picos,
    /// Assumed overhead of a write ("Write initiation delay").
    pub write_initiation: Picos,
}

/// The order in which requests that wait are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Shortest seek time first.
    Sstf,
    /// LOOK, the elevator: both directions.
    Look,
    /// C-LOOK: upwards only, then back to the lowest.
    CLook,
    /// Shortest positioning time first: seek and rotation.
    Sptf,
    /// SPTF whose positioning times shrink with waiting (Seltzer, Chen, Ousterhout, "Disk Scheduling Revisited", 1990:
    /// aged SPTF): so many millionths of the time waited are subtracted.
    AgedSptf {
        /// Credit per time waited.
        weight: Millionths,
    },
}

/// The scheduler's knowledge of blocks' places ("Cylinder mapping strategy").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GeometryKnowledge {
    /// Block numbers alone; the position is taken as proportional to them.
    #[default]
    BlockNumbers,
    /// Zones, without spares, slips and defects.
    Zones,
    /// Everything.
    Exact,
}

/// The bus between drive and host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusParameters {
    /// A block's time in a read ("Read block transfer time").
    pub read_block: Picos,
    /// A block's time in a write ("Write block transfer time").
    pub write_block: Picos,
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
    /// Requests queued in the drive.
    pub const QUEUE_DEPTH: u32 = 1 << 16;
    /// Turns a minute.
    pub const RPM: u32 = 1_000_000;
}
