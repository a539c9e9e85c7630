//! Replies to requests, as they go over the wire.

use super::request::{NbdRequest, Refusal};
use super::slots::{Failure, Piece};
use super::wire::{
    BASE_ALLOCATION_ID, CHUNK_FLAG_DONE, CHUNK_HEADER_BYTES, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, chunk,
};
use crate::stream::Output;

/// A simple reply: success without data, and any outcome where replies are not structured.
pub(crate) fn simple(output: &mut Output, cookie: u64, error: u32) {
    let mut head = [0; SIMPLE_REPLY_BYTES];
    head[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&error.to_be_bytes());
    head[8..].copy_from_slice(&cookie.to_be_bytes());
    output.head(&head);
}

/// A refusal without a place.
pub(crate) fn refusal(output: &mut Output, structured: bool, cookie: u64, refusal: Refusal) {
    if structured {
        error(output, cookie, chunk::ERROR, refusal, None);
    } else {
        simple(output, cookie, refusal.error.code());
    }
}

/// Reports a failure, with its place if the reply has a field for it.
pub(crate) fn failure(output: &mut Output, structured: bool, request: &NbdRequest, failure: Failure) {
    if structured && request.command.error_has_offset() {
        error(output, request.cookie, chunk::ERROR_OFFSET, failure.refusal, Some(failure.offset_bytes));
    } else {
        refusal(output, structured, request.cookie, failure.refusal);
    }
}

/// Replies to a read that can't fail any more: content chunks, the last of them final. Returns whether there are data,
/// and not only holes.
pub(crate) fn read(output: &mut Output, request: &NbdRequest, pieces: &[Piece]) -> bool {
    let slot = request.key.slot;
    let whole = [Piece { start: 0, len: request.len_bytes as usize, hole: false }];
    let pieces = if pieces.is_empty() { &whole } else { pieces };
    let data_last = pieces.iter().rposition(|piece| !piece.hole);
    for (index, piece) in pieces.iter().enumerate() {
        let flags = if index + 1 == pieces.len() { CHUNK_FLAG_DONE } else { 0 };
        let offset_bytes = request.offset_bytes + piece.start as u64;
        if piece.hole {
            chunk_head(output, flags, chunk::OFFSET_HOLE, request.cookie, 8 + 4);
            output.head(&offset_bytes.to_be_bytes());
            // Fits, because it is at most the request's length.
            output.head(&(piece.len as u32).to_be_bytes());
        } else {
            chunk_head(output, flags, chunk::OFFSET_DATA, request.cookie, 8 + piece.len as u32);
            output.head(&offset_bytes.to_be_bytes());
            output.data(slot, piece.start, piece.len, data_last == Some(index));
        }
    }
    data_last.is_some()
}

/// Extents that were encoded into the slot's data.
pub(crate) fn block_status(output: &mut Output, request: &NbdRequest, len: usize) {
    chunk_head(output, CHUNK_FLAG_DONE, chunk::BLOCK_STATUS, request.cookie, 4 + len as u32);
    output.head(&BASE_ALLOCATION_ID.to_be_bytes());
    output.data(request.key.slot, 0, len, true);
}

fn error(output: &mut Output, cookie: u64, kind: u16, refusal: Refusal, offset_bytes: Option<u64>) {
    let offset_len = if offset_bytes.is_some() { 8 } else { 0 };
    // Messages are string constants of this crate.
    let len = 4 + 2 + refusal.message.len() as u32 + offset_len;
    chunk_head(output, CHUNK_FLAG_DONE, kind, cookie, len);
    output.head(&refusal.error.code().to_be_bytes());
    output.head(&(refusal.message.len() as u16).to_be_bytes());
    output.head(refusal.message.as_bytes());
    if let Some(offset_bytes) = offset_bytes {
        output.head(&offset_bytes.to_be_bytes());
    }
}

fn chunk_head(output: &mut Output, flags: u16, kind: u16, cookie: u64, len: u32) {
    let mut head = [0; CHUNK_HEADER_BYTES];
    head[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..].copy_from_slice(&len.to_be_bytes());
    output.head(&head);
}
