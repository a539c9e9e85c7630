//! Parses a descriptor chain into a checked request.
//!
//! A chain is a request's header (16 bytes read by the device), its data, and one status byte written by the device.
//! The device must not depend on the division into descriptors (VIRTIO 1.2, section 2.7.4, "Message Framing"): the
//! header is the first bytes that can be read, the status the last that can be written. A driver with our kernel patch
//! puts a [file list](super::file_list) between the header and the data of a write.
//!
//! All of a chain comes from the guest. An invalid part becomes a [`BadRequest`], with the status byte's address if
//! there is one; no chain causes a panic or an unbounded loop.

use chronodisk_sim::{Op, Priority, SECTOR_BYTES};
use chronodisk_store::FileData;
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_F_ZONED, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    VIRTIO_BLK_T_ZONE_APPEND, VIRTIO_BLK_T_ZONE_CLOSE, VIRTIO_BLK_T_ZONE_FINISH, VIRTIO_BLK_T_ZONE_OPEN,
    VIRTIO_BLK_T_ZONE_REPORT, VIRTIO_BLK_T_ZONE_RESET, VIRTIO_BLK_T_ZONE_RESET_ALL, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use virtio_queue::DescriptorChain;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

use super::file_list::{FILE_DATA_FEATURE, LIST_HEADER_BYTES, list_bytes, parse_runs};
use super::{BlkConfig, BlkStatus};
use crate::vhost_user::QUEUE_SIZE_MAX;

/// Most data in one request. Drivers cut at their own limits, which are far below.
pub const REQUEST_BYTES_MAX: u64 = 32 << 20;

/// A request whose every address and length was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlkRequest {
    /// Descriptor at the head of the chain.
    pub head: u16,
    /// Where the status byte goes.
    pub status_address: GuestAddress,
    /// The operation.
    pub operation: Operation,
    /// First sector of 512 bytes; zero where the operation has no range.
    pub sector: u64,
    /// Length in sectors; zero where the operation has no range, a logical block for one on a zone.
    pub sectors: u32,
    /// How urgent the guest's kernel thinks it is.
    pub priority: Priority,
    /// Guest memory to read from for a write, to fill for a read, an identification or a report; empty otherwise.
    pub segments: Vec<Segment>,
    /// Guest memory for the sector at which a zone append was written, eight bytes; empty otherwise.
    pub written_at: Vec<Segment>,
    /// The parts of a write that are contents of files; empty unless the driver enabled [`FILE_DATA_FEATURE`].
    pub file_data: Vec<FileData>,
}

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Something that takes time on the device.
    Device(Op),
    /// The device's serial, which is answered at once.
    Identify,
    /// The zones from the one with the request's sector on, answered at once.
    ReportZones,
    /// All zones become empty.
    ResetAllZones,
}

/// A piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub address: GuestAddress,
    /// Length in bytes.
    pub len_bytes: u32,
}

/// A chain that is not a request that the device can obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRequest {
    /// Where the status byte goes; `None` if the chain has none that can be written.
    pub status_address: Option<GuestAddress>,
    /// The problem.
    pub kind: BadRequestKind,
}

impl BadRequest {
    /// Status to answer.
    #[must_use]
    pub fn status(&self) -> BlkStatus {
        match self.kind {
            BadRequestKind::UnknownType | BadRequestKind::NotNegotiated | BadRequestKind::Flags => {
                BlkStatus::Unsupported
            }
            _ => BlkStatus::IoError,
        }
    }
}

/// Problems of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BadRequestKind {
    /// It loops, leaves its table or memory, nests indirect tables, or is longer than a ring.
    BrokenChain,
    /// Memory that the device reads follows memory that it writes.
    Order,
    /// No byte for the status.
    NoStatus,
    /// Fewer bytes to read than a header has.
    NoHeader,
    /// A type that the device does not know.
    UnknownType,
    /// A type whose feature was not negotiated.
    NotNegotiated,
    /// Flags that the operation does not know.
    Flags,
    /// Data outside the guest's memory.
    OutsideMemory,
    /// Data in the wrong direction for the operation.
    Direction,
    /// More data segments than the device allows.
    TooManySegments,
    /// No data, or not whole logical blocks at a logical block's address.
    NotWholeBlocks,
    /// More data than [`REQUEST_BYTES_MAX`], or a longer range than the device allows.
    TooLong,
    /// A range beyond the end of the device.
    OutOfRange,
    /// Not exactly one range for a discard or write-zeroes.
    RangeCount,
    /// More requests or data in flight than the session allows.
    TooMuchInFlight,
    /// No room for the header of a report of zones, or not 8 to 15 bytes for the sector of an append.
    AnswerRoom,
    /// A write's file list contradicts its format.
    FileList,
}

/// The device's limits, and the negotiated features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of the device in sectors.
    pub capacity_sectors: u64,
    /// Smallest addressable unit in sectors.
    pub block_sectors: u64,
    /// Most data segments.
    pub seg_max: u32,
    /// Longest discard or write-zeroes, in sectors.
    pub range_sectors_max: u32,
    /// Longest zone append, in sectors.
    pub append_sectors_max: u32,
    /// Features that the driver enabled.
    pub features: u64,
}

impl Limits {
    /// The limits of a device whose driver enabled `features`.
    #[must_use]
    pub fn new(config: &BlkConfig, features: u64) -> Self {
        Limits {
            capacity_sectors: config.capacity_sectors,
            block_sectors: config.logical_block_sectors(),
            seg_max: config.seg_max,
            range_sectors_max: config.range_sectors_max(),
            append_sectors_max: config.append_sectors_max(),
            features,
        }
    }

    fn negotiated(&self, feature: u32) -> Result<(), BadRequestKind> {
        if self.features & 1 << feature == 0 { Err(BadRequestKind::NotNegotiated) } else { Ok(()) }
    }

    fn check_range(&self, sector: u64, sectors: u64) -> Result<(), BadRequestKind> {
        let whole = |count: u64| count.is_multiple_of(self.block_sectors);
        if sectors == 0 || !whole(sector) || !whole(sectors) {
            return Err(BadRequestKind::NotWholeBlocks);
        }
        match sector.checked_add(sectors) {
            Some(end) if end <= self.capacity_sectors => Ok(()),
            _ => Err(BadRequestKind::OutOfRange),
        }
    }
}

impl BlkRequest {
    /// Reads and checks a chain that lies in `memory`.
    ///
    /// # Errors
    /// [`BadRequest`] if anything in it does not hold.
    pub fn parse<M: GuestMemory>(chain: DescriptorChain<&M>, memory: &M, limits: &Limits) -> Result<Self, BadRequest> {
        let head = chain.head_index();
        let mut layout = Layout::walk(chain).map_err(|kind| BadRequest { status_address: None, kind })?;
        let status_address = layout.take_status(memory);
        let bad = |kind| BadRequest { status_address, kind };
        let status = status_address.ok_or(bad(BadRequestKind::NoStatus))?;
        layout.parse(memory, limits).map_err(bad).map(|body| BlkRequest {
            head,
            status_address: status,
            operation: body.operation,
            sector: body.sector,
            sectors: body.sectors,
            priority: body.priority,
            segments: body.segments,
            written_at: body.written_at,
            file_data: body.file_data,
        })
    }
}

const HEADER_BYTES: usize = 16;
/// Size of `struct virtio_blk_discard_write_zeroes`: sector, length, flags.
const RANGE_BYTES: usize = 16;
/// Sector in the answer to a zone append.
const SECTOR_NUMBER_BYTES: u64 = 8;
/// Size of `struct virtio_blk_zone_report` without its zones.
const REPORT_HEADER_BYTES: u64 = 64;

/// The memory of a chain: the part that the device reads, then the part that it writes.
#[derive(Default)]
struct Layout {
    readable: Vec<Segment>,
    writable: Vec<Segment>,
    out_of_order: bool,
}

/// A request but for its place in the ring.
struct Body {
    operation: Operation,
    sector: u64,
    sectors: u32,
    priority: Priority,
    segments: Vec<Segment>,
    written_at: Vec<Segment>,
    file_data: Vec<FileData>,
}

impl Layout {
    fn walk<M: GuestMemory>(chain: DescriptorChain<&M>) -> Result<Self, BadRequestKind> {
        let mut layout = Layout::default();
        // The iterator ends without a word where a chain is broken: its last descriptor then
        // still names a next one.
        let mut ended = false;
        for descriptor in chain.take(usize::from(QUEUE_SIZE_MAX)) {
            ended = !descriptor.has_next();
            let segment = Segment { address: descriptor.addr(), len_bytes: descriptor.len() };
            if segment.len_bytes == 0 {
                continue;
            }
            if descriptor.is_write_only() {
                layout.writable.push(segment);
            } else {
                layout.out_of_order |= !layout.writable.is_empty();
                layout.readable.push(segment);
            }
        }
        if ended { Ok(layout) } else { Err(BadRequestKind::BrokenChain) }
    }

    /// Splits the status byte off the memory that the device writes.
    fn take_status(&mut self, memory: &impl GuestMemory) -> Option<GuestAddress> {
        let last = self.writable.last_mut()?;
        last.len_bytes -= 1;
        let status_address = GuestAddress(last.address.0.checked_add(u64::from(last.len_bytes))?);
        if last.len_bytes == 0 {
            self.writable.pop();
        }
        memory.check_range(status_address, 1, Permissions::Write).then_some(status_address)
    }

    fn parse(mut self, memory: &impl GuestMemory, limits: &Limits) -> Result<Body, BadRequestKind> {
        if self.out_of_order {
            return Err(BadRequestKind::Order);
        }
        let header: [u8; HEADER_BYTES] = self.take_readable(memory).ok_or(BadRequestKind::NoHeader)?;
        let field = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let sector = u64::from(field(8)) | u64::from(field(12)) << 32;
        let priority = priority(field(4));
        let body = |operation, sector, sectors, segments| Body {
            operation,
            sector,
            sectors,
            priority,
            segments,
            written_at: Vec::new(),
            file_data: Vec::new(),
        };
        match field(0) {
            VIRTIO_BLK_T_IN => {
                let sectors = check_data(&self.writable, &self.readable, sector, memory, limits)?;
                Ok(body(Operation::Device(Op::Read), sector, sectors, self.writable))
            }
            VIRTIO_BLK_T_OUT => {
                let runs = match limits.negotiated(FILE_DATA_FEATURE) {
                    Ok(()) => self.take_file_list(memory).ok_or(BadRequestKind::FileList)?,
                    Err(_) => Vec::new(),
                };
                let sectors = check_data(&self.readable, &self.writable, sector, memory, limits)?;
                let file_data = parse_runs(&runs, u64::from(sectors) * SECTOR_BYTES).ok_or(BadRequestKind::FileList)?;
                Ok(Body { file_data, ..body(Operation::Device(Op::Write), sector, sectors, self.readable) })
            }
            VIRTIO_BLK_T_FLUSH => {
                limits.negotiated(VIRTIO_BLK_F_FLUSH)?;
                Ok(body(Operation::Device(Op::Flush), 0, 0, Vec::new()))
            }
            VIRTIO_BLK_T_DISCARD => {
                limits.negotiated(VIRTIO_BLK_F_DISCARD)?;
                let (sector, sectors) = self.take_range(memory, limits, 0)?;
                Ok(body(Operation::Device(Op::Discard), sector, sectors, Vec::new()))
            }
            VIRTIO_BLK_T_WRITE_ZEROES => {
                limits.negotiated(VIRTIO_BLK_F_WRITE_ZEROES)?;
                let (sector, sectors) = self.take_range(memory, limits, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP)?;
                Ok(body(Operation::Device(Op::WriteZeroes), sector, sectors, Vec::new()))
            }
            VIRTIO_BLK_T_GET_ID => {
                check_memory(&self.writable, memory)?;
                Ok(body(Operation::Identify, 0, 0, self.writable))
            }
            kind => {
                let body = |operation, sectors, segments| body(operation, sector, sectors, segments);
                self.parse_zone_command(kind, sector, memory, limits, body)
            }
        }
    }

    /// Reads a command of a zoned device.
    fn parse_zone_command(
        mut self,
        kind: u32,
        sector: u64,
        memory: &impl GuestMemory,
        limits: &Limits,
        body: impl FnOnce(Operation, u32, Vec<Segment>) -> Body,
    ) -> Result<Body, BadRequestKind> {
        match kind {
            VIRTIO_BLK_T_ZONE_APPEND => {
                limits.negotiated(VIRTIO_BLK_F_ZONED)?;
                let written_at = self.take_written_at(memory)?;
                let sectors = check_data(&self.readable, &self.writable, sector, memory, limits)?;
                if sectors > limits.append_sectors_max {
                    return Err(BadRequestKind::TooLong);
                }
                Ok(Body { written_at, ..body(Operation::Device(Op::ZoneAppend), sectors, self.readable) })
            }
            VIRTIO_BLK_T_ZONE_REPORT => {
                limits.negotiated(VIRTIO_BLK_F_ZONED)?;
                check_memory(&self.writable, memory)?;
                limits.check_range(sector - sector % limits.block_sectors, limits.block_sectors)?;
                if len_bytes(&self.writable) < REPORT_HEADER_BYTES {
                    return Err(BadRequestKind::AnswerRoom);
                }
                Ok(body(Operation::ReportZones, 0, self.writable))
            }
            VIRTIO_BLK_T_ZONE_RESET_ALL => {
                limits.negotiated(VIRTIO_BLK_F_ZONED)?;
                Ok(Body { sector: 0, ..body(Operation::ResetAllZones, 0, Vec::new()) })
            }
            kind => {
                let op = zone_operation(kind).ok_or(BadRequestKind::UnknownType)?;
                limits.negotiated(VIRTIO_BLK_F_ZONED)?;
                limits.check_range(sector, limits.block_sectors)?;
                let sectors = u32::try_from(limits.block_sectors).expect("a logical block has at most 4 KiB");
                Ok(body(Operation::Device(op), sectors, Vec::new()))
            }
        }
    }

    /// Splits the sector of an append off the memory that the device writes: its first eight bytes. Linux 6.12 aligns
    /// the answer to 16 bytes; the status is the last one nevertheless.
    fn take_written_at(&mut self, memory: &impl GuestMemory) -> Result<Vec<Segment>, BadRequestKind> {
        check_memory(&self.writable, memory)?;
        if !(SECTOR_NUMBER_BYTES..2 * SECTOR_NUMBER_BYTES).contains(&len_bytes(&self.writable)) {
            return Err(BadRequestKind::AnswerRoom);
        }
        let mut left = SECTOR_NUMBER_BYTES as u32;
        let mut written_at = std::mem::take(&mut self.writable);
        for segment in &mut written_at {
            segment.len_bytes = segment.len_bytes.min(left);
            left -= segment.len_bytes;
        }
        Ok(written_at)
    }

    /// The one range of a discard or write-zeroes.
    fn take_range(
        &mut self,
        memory: &impl GuestMemory,
        limits: &Limits,
        known_flags: u32,
    ) -> Result<(u64, u32), BadRequestKind> {
        check_memory(&self.readable, memory)?;
        let bytes: [u8; RANGE_BYTES] = self.take_readable(memory).ok_or(BadRequestKind::RangeCount)?;
        if !self.readable.is_empty() {
            return Err(BadRequestKind::RangeCount);
        }
        if !self.writable.is_empty() {
            return Err(BadRequestKind::Direction);
        }
        let (sector, rest) = bytes.split_at(8);
        let (sectors, flags) = rest.split_at(4);
        let sector = u64::from_le_bytes(sector.try_into().expect("eight bytes"));
        let sectors = u32::from_le_bytes(sectors.try_into().expect("four bytes"));
        let flags = u32::from_le_bytes(flags.try_into().expect("four bytes"));
        if flags & !known_flags != 0 {
            return Err(BadRequestKind::Flags);
        }
        if sectors > limits.range_sectors_max {
            return Err(BadRequestKind::TooLong);
        }
        limits.check_range(sector, sectors.into())?;
        Ok((sector, sectors))
    }

    /// The runs of a write's file list, without the list's header.
    fn take_file_list(&mut self, memory: &impl GuestMemory) -> Option<Vec<u8>> {
        let header: [u8; LIST_HEADER_BYTES] = self.take_readable(memory)?;
        let mut runs = vec![0; list_bytes(header)? - LIST_HEADER_BYTES];
        self.fill_from_readable(&mut runs, memory)?;
        Some(runs)
    }

    /// Takes the first bytes of the readable part.
    fn take_readable<const N: usize>(&mut self, memory: &impl GuestMemory) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.fill_from_readable(&mut bytes, memory)?;
        Some(bytes)
    }

    /// Fills `bytes` with the first bytes of the readable part, and takes them off it.
    fn fill_from_readable(&mut self, bytes: &mut [u8], memory: &impl GuestMemory) -> Option<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            let first = self.readable.first_mut()?;
            let len = (bytes.len() - filled).min(first.len_bytes as usize);
            memory.read_slice(&mut bytes[filled..filled + len], first.address).ok()?;
            filled += len;
            first.len_bytes -= len as u32;
            if first.len_bytes == 0 {
                self.readable.remove(0);
            } else {
                first.address = GuestAddress(first.address.0.checked_add(len as u64)?);
            }
        }
        Some(())
    }
}

/// The operation on one zone that has this type.
fn zone_operation(kind: u32) -> Option<Op> {
    match kind {
        VIRTIO_BLK_T_ZONE_OPEN => Some(Op::ZoneOpen),
        VIRTIO_BLK_T_ZONE_CLOSE => Some(Op::ZoneClose),
        VIRTIO_BLK_T_ZONE_FINISH => Some(Op::ZoneFinish),
        VIRTIO_BLK_T_ZONE_RESET => Some(Op::ZoneReset),
        _ => None,
    }
}

fn len_bytes(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.len_bytes)).sum()
}

/// Checks the data of a read or write; returns its length in sectors.
fn check_data(
    data: &[Segment],
    other_direction: &[Segment],
    sector: u64,
    memory: &impl GuestMemory,
    limits: &Limits,
) -> Result<u32, BadRequestKind> {
    if !other_direction.is_empty() {
        return Err(BadRequestKind::Direction);
    }
    if data.len() > limits.seg_max as usize {
        return Err(BadRequestKind::TooManySegments);
    }
    check_memory(data, memory)?;
    let len_bytes = len_bytes(data);
    if len_bytes > REQUEST_BYTES_MAX {
        return Err(BadRequestKind::TooLong);
    }
    if !len_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(BadRequestKind::NotWholeBlocks);
    }
    let sectors = len_bytes / SECTOR_BYTES;
    limits.check_range(sector, sectors)?;
    Ok(u32::try_from(sectors).expect("bounded above"))
}

fn check_memory(segments: &[Segment], memory: &impl GuestMemory) -> Result<(), BadRequestKind> {
    let inside = |segment: &Segment| {
        segment.address.0.checked_add(u64::from(segment.len_bytes)).is_some()
            && memory.check_range(segment.address, segment.len_bytes as usize, Permissions::ReadWrite)
    };
    if segments.iter().all(inside) { Ok(()) } else { Err(BadRequestKind::OutsideMemory) }
}

/// Linux puts its I/O priority into the header: the class above bit 13 (`linux/ioprio.h`:
/// 1 real time, 2 best effort, 3 idle).
fn priority(ioprio: u32) -> Priority {
    match ioprio >> 13 {
        1 => Priority::High,
        3 => Priority::Idle,
        _ => Priority::Normal,
    }
}
