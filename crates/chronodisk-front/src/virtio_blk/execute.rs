//! Doing: moves a request's bytes between guest memory and the store.

use chronodisk_sim::{Op, SECTOR_BYTES};
use chronodisk_store::{Store, StoreError};
use virtio_bindings::bindings::virtio_blk::VIRTIO_BLK_ID_BYTES;
use vm_memory::{Bytes, GuestMemory, GuestMemoryError};

use super::{BlkRequest, Segment};

/// Bytes on their way. Guest memory can change under our hands, so it is copied, never lent out
/// as a slice; whole, so that a write that the store refuses changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Bounce(Vec<u8>);

impl Bounce {
    /// Grows to the largest request seen; nothing is allocated after that.
    fn of_len(&mut self, len_bytes: u64) -> &mut [u8] {
        let len = usize::try_from(len_bytes).expect("a request's length is bounded");
        if self.0.len() < len {
            self.0.resize(len, 0);
        }
        &mut self.0[..len]
    }

    /// Gives a long request's memory back.
    pub fn trim(&mut self) {
        if self.0.len() > KEPT_BYTES_MAX {
            self.0 = Vec::new();
        }
    }
}

/// Memory that is kept for the next request.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Why a request failed although its form was right.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecuteError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("guest memory: {0}")]
    Memory(#[from] GuestMemoryError),
}

/// Applies a device operation to the store, from `sector` on.
pub(crate) fn execute(
    request: &BlkRequest,
    op: Op,
    sector: u64,
    memory: &impl GuestMemory,
    store: &mut dyn Store,
    bounce: &mut Bounce,
) -> Result<(), ExecuteError> {
    let offset_bytes = sector * SECTOR_BYTES;
    let len_bytes = u64::from(request.sectors) * SECTOR_BYTES;
    match op {
        Op::Read => {
            let bytes = bounce.of_len(len_bytes);
            store.read(offset_bytes, bytes)?;
            scatter(bytes, &request.segments, memory)?;
        }
        Op::Write | Op::ZoneAppend => {
            let bytes = bounce.of_len(len_bytes);
            gather(bytes, &request.segments, memory)?;
            store.write_with_file_data(offset_bytes, bytes, &request.file_data)?;
        }
        Op::Flush => store.flush()?,
        Op::Discard => store.discard(offset_bytes, len_bytes)?,
        Op::WriteZeroes => store.write_zeroes(offset_bytes, len_bytes)?,
        // A reset discards the zone.
        Op::ZoneReset | Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish => {}
    }
    Ok(())
}

/// Writes the serial, filled up with zeros to 20 bytes, as far as the request has room for it;
/// returns the bytes written.
pub(crate) fn answer_identify(
    request: &BlkRequest,
    serial: &str,
    memory: &impl GuestMemory,
) -> Result<u32, ExecuteError> {
    let mut id = [0; VIRTIO_BLK_ID_BYTES as usize];
    let len = serial.len().min(id.len());
    id[..len].copy_from_slice(&serial.as_bytes()[..len]);
    scatter(&id, &request.segments, memory)
}

/// Copies `bytes` to the segments until either ends; returns the bytes copied.
pub(super) fn scatter(bytes: &[u8], segments: &[Segment], memory: &impl GuestMemory) -> Result<u32, ExecuteError> {
    let mut rest = bytes;
    for segment in segments {
        let (now, later) = rest.split_at(rest.len().min(segment.len_bytes as usize));
        memory.write_slice(now, segment.address)?;
        rest = later;
    }
    Ok((bytes.len() - rest.len()) as u32)
}

/// Fills `bytes` from the segments, which hold as many.
pub(crate) fn gather(bytes: &mut [u8], segments: &[Segment], memory: &impl GuestMemory) -> Result<(), ExecuteError> {
    let mut rest = bytes;
    for segment in segments {
        let (now, later) = rest.split_at_mut(rest.len().min(segment.len_bytes as usize));
        memory.read_slice(now, segment.address)?;
        rest = later;
    }
    Ok(())
}
