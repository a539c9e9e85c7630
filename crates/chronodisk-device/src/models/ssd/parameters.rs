//! Parameters of a drive in its profile.

use std::sync::Arc;

use chronodisk_sim::Nanos;

use super::flash::FlashTiming;
use super::ftl::FtlParameters;
use super::geometry::Geometry;

/// All parameters of a drive.
#[derive(Clone, Debug)]
pub(crate) struct SsdParameters {
    pub(crate) ftl: FtlParameters,
    pub(crate) timing: Arc<FlashTiming>,
    pub(crate) arrays: ArrayTimes,
    pub(crate) front: FrontParameters,
    pub(crate) buffer: BufferParameters,
    pub(crate) read_ahead: Option<ReadAheadParameters>,
    pub(crate) unwritten: UnwrittenRead,
    /// Number of stripes over which the dies of a drive in its `as-written` state are in random order, each die once
    /// per stripe.
    pub(crate) stripes_mixed: u32,
}

impl SsdParameters {
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.ftl.geometry
    }
}

/// Durations in the array of a die.
#[derive(Clone, Debug)]
pub(crate) struct ArrayTimes {
    /// A read of more than `small_bytes` of a page, by the page's place in its word line.
    pub(crate) read: [Nanos; 4],
    /// A read of less.
    pub(crate) read_small: [Nanos; 4],
    pub(crate) small_bytes: u32,
    /// Largest deviation of a word line's read time; small deviations are more frequent.
    pub(crate) read_variation: Nanos,
    /// Whether a page crosses the bus as a whole, even if only a part of it is requested.
    pub(crate) whole_pages: bool,
    /// Word lines per million that need a second read attempt, and its duration.
    pub(crate) retries_per_million: u32,
    pub(crate) retry: Nanos,
    /// Program times by the page's place in its word line. The first is also that of a whole word line.
    pub(crate) program: [Nanos; 4],
    /// Most that a program's time is off to either side, as with reads.
    pub(crate) program_variation: Nanos,
    pub(crate) erase: Nanos,
    /// Times of cells with one bit.
    pub(crate) slc: SlcTimes,
}

/// Durations in the array with one bit per cell. Erases take as long as elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlcTimes {
    /// A read, before the word line's own variation.
    pub(crate) read: Nanos,
    /// A program of a page in each plane.
    pub(crate) program: Nanos,
}

/// Between the host and the controller's buffer.
#[derive(Clone, Debug)]
pub(crate) struct FrontParameters {
    /// Submission queues that the device distinguishes.
    pub(crate) queues: u32,
    /// Commands of one queue in the device at once.
    pub(crate) fetch_limit: u32,
    /// Commands of one queue that are fetched in its turn.
    pub(crate) burst: u32,
    /// Time from a submission until the device has the command.
    pub(crate) submission: Nanos,
    /// Time from the last data until the host sees the completion.
    pub(crate) completion: Nanos,
    /// Bytes per second of the link, in each direction or, if half-duplex, in all.
    pub(crate) link_rate: u64,
    pub(crate) half_duplex: bool,
    /// Most data bytes of a packet, and its overhead.
    pub(crate) packet_bytes: u32,
    pub(crate) packet_overhead_bytes: u32,
    /// Whether a read's data cross the link only when all of them are there.
    pub(crate) whole_reads: bool,
    /// Processors that understand commands, one each at a time.
    pub(crate) processors: u32,
    /// Processor time of a read, of a write, and of each mapping unit of either.
    pub(crate) read_processing: Nanos,
    pub(crate) write_processing: Nanos,
    pub(crate) unit_processing: Nanos,
    /// Time in the output stage between the flash's buses and the link: per read, and per mapping unit.
    pub(crate) output_command: Nanos,
    pub(crate) output_unit: Nanos,
    /// Whether data from the controller's memory pass the stage, too.
    pub(crate) output_memory: bool,
    /// Additional latency of reads and of writes, at any concurrency. Flushes and discards have a write's.
    pub(crate) read_latency: Nanos,
    pub(crate) write_latency: Nanos,
    /// Mean of a write's additional random latency, exponentially distributed. It does not delay other writes.
    pub(crate) write_jitter: Nanos,
}

/// The controller's memory.
#[derive(Clone, Debug)]
pub(crate) struct BufferParameters {
    /// Units that the write buffer holds.
    pub(crate) units: u32,
    /// Whether it is a ring, whose places become free in the order of their allocation.
    pub(crate) in_order: bool,
    /// Time of a unit from the link into the buffer.
    pub(crate) write_unit: Nanos,
    /// Time of a read from the controller's memory, before the link.
    pub(crate) read_hit: Nanos,
    /// Whether the buffer's contents survive a loss of power, so that a flush has no effect.
    pub(crate) protected: bool,
    /// Programs that may wait for one die.
    pub(crate) programs_per_die: u32,
    /// Bytes that a look-up in a part of the mapping table in flash brings over the bus.
    pub(crate) mapping_read_bytes: u32,
}

/// Reading on after sequential reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAheadParameters {
    /// Sequential streams that the drive distinguishes.
    pub(crate) streams: u32,
    /// Sequential reads before the drive reads ahead.
    pub(crate) after: u32,
    /// Most units read ahead of a stream.
    pub(crate) units: u32,
}

/// Cost of reading a unit that was never written, or was trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnwrittenRead {
    /// Units have places as if the drive had been written once from beginning to end.
    AsWritten,
    /// Reads behave as with `AsWritten`. A write of a part of such a unit needs no old data, and reads none.
    MappedByRead,
    /// No flash is read.
    Zeros,
}
