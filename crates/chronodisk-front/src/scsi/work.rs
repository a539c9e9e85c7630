//! Commands that use the medium, as requests to the device and work on the store.

use chronodisk_sim::Op;

use super::wire::number;
use super::{ByteCheck, Command, Decoded, LogicalUnit, Range, Sense, UNMAP_BYTES_MAX};

/// A command's use of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediumWork {
    /// The device's operation.
    pub operation: Op,
    /// First byte; zero for a flush.
    pub offset_bytes: u64,
    /// Length in bytes; zero for a flush, at least one block otherwise.
    pub len_bytes: u32,
    /// The data are durable before the answer.
    pub fua: bool,
    /// The work on the bytes.
    pub store: StoreWork,
}

/// Work on the bytes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreWork {
    /// No bytes are moved.
    Nothing,
    /// Reads the bytes.
    Read,
    /// Writes the initiator's data.
    Write,
    /// Writes the initiator's single block repeatedly.
    WriteRepeatedly,
    /// Discards the bytes.
    Discard,
    /// Writes zeros.
    WriteZeroes,
    /// Makes earlier writes durable.
    Flush,
}

/// Bytes of the header of the parameters of `UNMAP`, and of a range; SBC-3, 5.28.2.
const UNMAP_HEADER_BYTES: usize = 8;
const UNMAP_RANGE_BYTES: usize = 16;

impl LogicalUnit {
    /// A command's use of the medium, once its data are there; `None` if it has none. `outgoing` are the initiator's
    /// data, which for `WRITE` may be shorter than announced.
    ///
    /// # Errors
    /// The sense data of a refusal.
    pub fn work(&self, decoded: &Decoded, outgoing: &[u8]) -> Result<Option<MediumWork>, Sense> {
        let is_short = outgoing.len() < decoded.outgoing_bytes as usize;
        match decoded.command {
            Command::Read(range) => Ok(self.on(range, Op::Read, StoreWork::Read)),
            Command::Write { range, fua } => {
                let blocks = outgoing.len() / self.description().block_bytes as usize;
                // At most the command's own number.
                let range = Range { blocks: range.blocks.min(blocks as u32), ..range };
                let work = self.on(range, Op::Write, StoreWork::Write);
                Ok(work.map(|work| MediumWork { fua: self.is_durable(fua), ..work }))
            }
            Command::Verify { .. } | Command::WriteSame { .. } if is_short => Err(Sense::TRANSFER_LENGTH),
            Command::Verify { range, check: ByteCheck::Medium } => Ok(self.on(range, Op::Read, StoreWork::Nothing)),
            Command::Verify { range, .. } => Ok(self.on(range, Op::Read, StoreWork::Read)),
            Command::WriteSame { range, unmap, .. } => Ok(self.write_same_work(range, unmap, outgoing)),
            Command::Unmap => self.unmap_work(outgoing, is_short),
            Command::Synchronize | Command::StartStop { start: false, flush: true } => Ok(Some(MediumWork::FLUSH)),
            _ => Ok(None),
        }
    }

    fn is_durable(&self, fua: bool) -> bool {
        fua || (self.description().volatile_cache && !self.has_write_cache())
    }

    fn on(&self, range: Range, operation: Op, store: StoreWork) -> Option<MediumWork> {
        let block_bytes = self.description().block_bytes;
        // The range was checked: it lies within the unit, and its length is bounded.
        (range.blocks > 0).then(|| MediumWork {
            operation,
            offset_bytes: range.lba * u64::from(block_bytes),
            len_bytes: range.blocks * block_bytes,
            fua: false,
            store,
        })
    }

    fn write_same_work(&self, range: Range, unmap: bool, block: &[u8]) -> Option<MediumWork> {
        let is_zero = block.iter().all(|byte| *byte == 0);
        let (operation, store) = match (is_zero, unmap) {
            (false, _) => (Op::Write, StoreWork::WriteRepeatedly),
            (true, false) => (Op::WriteZeroes, StoreWork::WriteZeroes),
            (true, true) if self.description().zeroes_after_discard => (Op::Discard, StoreWork::Discard),
            // The blocks must read as zeros.
            (true, true) => (Op::WriteZeroes, StoreWork::WriteZeroes),
        };
        let work = self.on(range, operation, store);
        work.map(|work| MediumWork { fua: self.is_durable(false) && operation != Op::Discard, ..work })
    }

    fn unmap_work(&self, parameters: &[u8], is_short: bool) -> Result<Option<MediumWork>, Sense> {
        if parameters.is_empty() && !is_short {
            return Ok(None);
        }
        let header = parameters.get(..UNMAP_HEADER_BYTES).ok_or(Sense::PARAMETER_LENGTH)?;
        let ranges_bytes = number(&header[2..4]) as usize;
        let ranges = &parameters[UNMAP_HEADER_BYTES..];
        if is_short || ranges_bytes > ranges.len() {
            return Err(Sense::PARAMETER_LENGTH);
        }
        let mut ranges = ranges[..ranges_bytes].chunks_exact(UNMAP_RANGE_BYTES);
        let Some(first) = ranges.next() else { return Ok(None) };
        // The page of block limits permits a single one.
        if ranges.next().is_some() {
            return Err(Sense::in_parameters(2));
        }
        let (lba, blocks) = (number(&first[..8]), number(&first[8..12]));
        if lba.checked_add(blocks).is_none_or(|end| end > self.blocks()) {
            return Err(Sense::OUT_OF_RANGE);
        }
        if blocks * u64::from(self.description().block_bytes) > u64::from(UNMAP_BYTES_MAX) {
            return Err(Sense::in_parameters(UNMAP_HEADER_BYTES as u16 + 8));
        }
        // The field has 32 bits.
        Ok(self.on(Range { lba, blocks: blocks as u32 }, Op::Discard, StoreWork::Discard))
    }
}

impl MediumWork {
    /// Makes earlier writes durable.
    pub const FLUSH: MediumWork =
        MediumWork { operation: Op::Flush, offset_bytes: 0, len_bytes: 0, fua: false, store: StoreWork::Flush };
}
