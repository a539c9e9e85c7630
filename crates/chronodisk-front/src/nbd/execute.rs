//! Doing: moves a request's bytes between the session and a store.

use std::io;

use chronodisk_store::{Store, StoreError};

use super::request::{Command, NbdRequest, Refusal, RequestKey};
use super::slots::{Failure, Piece, Slots};
use super::wire::{NbdError, allocation_state};

/// Most extents in one answer to `NBD_CMD_BLOCK_STATUS`; a client asks again for the rest.
const EXTENT_COUNT_MAX: usize = 1024;
/// An extent on the wire: length and state, 32 bits each.
const EXTENT_BYTES: usize = 8;
/// Shorter reads are not worth the question where the holes are.
const HOLE_QUERY_BYTES_MIN: u32 = 64 << 10;
/// A hole shorter than this is sent as zeros, because a chunk of its own costs more.
const HOLE_BYTES_MIN: u64 = 4 << 10;
/// Most pieces of one read; the rest is sent as data.
const PIECE_COUNT_MAX: usize = 16;

/// Bytes of read data that a request holds until its reply was sent.
pub(crate) fn claimed_bytes(command: Command, len_bytes: u32) -> u64 {
    match command {
        Command::Read => len_bytes.into(),
        Command::BlockStatus => (EXTENT_COUNT_MAX * EXTENT_BYTES) as u64,
        Command::Write | Command::Flush | Command::Trim | Command::Cache | Command::WriteZeroes => 0,
    }
}

/// Applies a request to the store; read data and extents go to the request's slot.
pub(crate) fn execute(
    request: &NbdRequest,
    structured: bool,
    payload: Option<&[u8]>,
    slots: &mut Slots,
    store: &mut dyn Store,
) -> Result<(), ExecuteError> {
    let (offset_bytes, len_bytes) = (request.offset_bytes, u64::from(request.len_bytes));
    match request.command {
        Command::Read if structured && !request.unfragmented && request.len_bytes >= HOLE_QUERY_BYTES_MIN => {
            return Ok(read_pieces(request, slots, store)?);
        }
        Command::Read => store.read(offset_bytes, data_mut(slots, request.key, request.len_bytes as usize))?,
        Command::Write => store.write(offset_bytes, payload.ok_or(ExecuteError::PayloadGone)?)?,
        Command::Trim => store.discard(offset_bytes, len_bytes)?,
        Command::WriteZeroes if request.no_hole && request.fast_zero => return Err(ExecuteError::NotFast),
        Command::WriteZeroes if request.no_hole => store.reserve_zeroes(offset_bytes, len_bytes)?,
        Command::WriteZeroes => store.write_zeroes(offset_bytes, len_bytes)?,
        Command::Flush => store.flush()?,
        Command::Cache => {}
        Command::BlockStatus => block_status(request, slots, store)?,
    }
    if request.fua && request.command.changes_contents() {
        store.flush()?;
    }
    Ok(())
}

/// Reason why a valid request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Zeros that take space are no faster than a write.
    #[error("writing zeros that take space is no faster than a write")]
    NotFast,
    /// The data of a write are kept only until the session's next event or receive.
    #[error("the data of the write are gone: it was executed too late")]
    PayloadGone,
    /// The request is not outstanding.
    #[error("no such request is outstanding")]
    NotOutstanding,
}

impl ExecuteError {
    pub(crate) fn failure(&self, request: &NbdRequest) -> Failure {
        let (error, message) = match self {
            ExecuteError::Store(error) => store_failure(error, request.command),
            ExecuteError::NotFast => (NbdError::NotSupported, "no faster than a write"),
            ExecuteError::PayloadGone | ExecuteError::NotOutstanding => (NbdError::Io, "internal error"),
        };
        Failure { refusal: Refusal { error, message }, offset_bytes: request.offset_bytes }
    }
}

fn store_failure(error: &StoreError, command: Command) -> (NbdError, &'static str) {
    // "It also SHOULD map the EDQUOT and EFBIG errors to ENOSPC", "Error values".
    let full = |source: &io::Error| {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    };
    match error {
        StoreError::BudgetExceeded { .. } => (NbdError::NoSpace, "the emulator's store is full"),
        StoreError::OutOfRange { .. } if command.changes_contents() => (NbdError::NoSpace, "beyond the store's end"),
        StoreError::OutOfRange { .. } => (NbdError::Inval, "beyond the store's end"),
        StoreError::Io { source, .. } if full(source) => (NbdError::NoSpace, "the emulator's host is full"),
        _ => (NbdError::Io, "the emulator's store failed"),
    }
}

fn data_mut(slots: &mut Slots, key: RequestKey, len: usize) -> &mut [u8] {
    slots.data_mut(key, len).expect("the caller found the request outstanding")
}

/// Reads allocated ranges; the rest is sent as holes.
fn read_pieces(request: &NbdRequest, slots: &mut Slots, store: &mut dyn Store) -> Result<(), StoreError> {
    let len = request.len_bytes as usize;
    data_mut(slots, request.key, len);
    let (_, slot) = slots.get_mut(request.key).expect("the caller found the request outstanding");
    slot.pieces.clear();
    let mut start = 0;
    while start < len {
        let rest = len - start;
        let piece = if slot.pieces.len() + 1 < PIECE_COUNT_MAX {
            let extent = store.extent(request.offset_bytes + start as u64, rest as u64)?;
            let hole = !extent.allocated && extent.len_bytes >= HOLE_BYTES_MIN;
            Piece { start, len: (extent.len_bytes as usize).min(rest), hole }
        } else {
            Piece { start, len: rest, hole: false }
        };
        start += piece.len;
        match slot.pieces.last_mut() {
            Some(last) if last.hole == piece.hole => last.len += piece.len,
            _ => slot.pieces.push(piece),
        }
    }
    let (pieces, buffer) = slot.pieces_and_buffer();
    for piece in pieces.iter().filter(|piece| !piece.hole) {
        store.read(request.offset_bytes + piece.start as u64, &mut buffer[piece.start..][..piece.len])?;
    }
    Ok(())
}

/// Encodes the extents of a range into the request's data, equal neighbours as one.
fn block_status(request: &NbdRequest, slots: &mut Slots, store: &mut dyn Store) -> Result<(), StoreError> {
    let count_max = if request.one_extent { 1 } else { EXTENT_COUNT_MAX };
    let data = data_mut(slots, request.key, EXTENT_COUNT_MAX * EXTENT_BYTES);
    let mut count = 0;
    let mut done_bytes = 0;
    let mut last: Option<(u32, u32)> = None;
    let mut encode = |(len_bytes, state): (u32, u32)| {
        let place = &mut data[count * EXTENT_BYTES..][..EXTENT_BYTES];
        place[..4].copy_from_slice(&len_bytes.to_be_bytes());
        place[4..].copy_from_slice(&state.to_be_bytes());
        count += 1;
        count
    };
    while done_bytes < request.len_bytes {
        let rest = request.len_bytes - done_bytes;
        let extent = store.extent(request.offset_bytes + u64::from(done_bytes), rest.into())?;
        // At most the requested length, which has 32 bits.
        let len_bytes = extent.len_bytes.min(rest.into()) as u32;
        let state = if extent.allocated { 0 } else { allocation_state::HOLE | allocation_state::ZERO };
        match &mut last {
            Some((last_len, last_state)) if *last_state == state => *last_len += len_bytes,
            _ => {
                if let Some(complete) = last.replace((len_bytes, state))
                    && encode(complete) == count_max
                {
                    last = None;
                    break;
                }
            }
        }
        done_bytes += len_bytes;
    }
    if let Some(complete) = last {
        encode(complete);
    }
    data_mut(slots, request.key, count * EXTENT_BYTES);
    Ok(())
}
