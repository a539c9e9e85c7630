//! Reported requests until their replies are sent.

use std::sync::Arc;

use super::request::{NbdRequest, Refusal, RequestKey};
use crate::buffer_pool::BufferPool;
use crate::memory::MemoryLimit;

/// Outstanding requests by slot.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    outstanding: usize,
    in_use_bytes: u64,
    pool: BufferPool,
}

/// A request and its data.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    generation: u32,
    /// `None` after its completion, and while the slot is free.
    request: Option<NbdRequest>,
    /// The request's share of `in_use_bytes`.
    claimed_bytes: u64,
    buffer: Box<[u8]>,
    /// Bytes of the buffer that hold the reply's data; `None` if it has none yet.
    pub data_len: Option<usize>,
    /// The pieces of a read with several pieces of data.
    pub pieces: Vec<Piece>,
    /// Failure to be reported.
    pub failure: Option<Failure>,
}

/// A part of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte, relative to the request's.
    pub start: usize,
    pub len: usize,
    /// Reads as zeros and takes no space.
    pub hole: bool,
}

/// Failure of a request, with its place if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub refusal: Refusal,
    pub offset_bytes: u64,
}

impl Slot {
    /// The pieces of a read, and the buffer that they are pieces of.
    pub fn pieces_and_buffer(&mut self) -> (&[Piece], &mut [u8]) {
        (&self.pieces, &mut self.buffer)
    }
}

/// Most memory of a session kept for reuse; the rest is freed at once.
const KEPT_BYTES_MAX: usize = 64 << 20;

impl Slots {
    pub fn new(limit: &Arc<MemoryLimit>) -> Self {
        let pool = BufferPool::new(limit, KEPT_BYTES_MAX);
        Slots { slots: Vec::new(), free: Vec::new(), outstanding: 0, in_use_bytes: 0, pool }
    }

    /// Whether another request with this amount of read data may begin.
    pub fn has_room(&self, data_bytes: u64) -> bool {
        let count = self.slots.len() - self.free.len();
        count < super::IN_FLIGHT_COUNT_MAX
            && (self.in_use_bytes == 0 || self.in_use_bytes + data_bytes <= super::IN_FLIGHT_BYTES_MAX)
    }

    /// The key that the next request gets.
    pub fn next_key(&self) -> RequestKey {
        match self.free.last() {
            Some(&slot) => RequestKey { slot, generation: self.slots[slot as usize].generation },
            None => RequestKey { slot: self.slots.len() as u32, generation: 0 },
        }
    }

    /// Stores a request that has the [`next_key`](Self::next_key), with a buffer for its data. Returns false without
    /// memory for the buffer.
    pub fn begin(&mut self, request: NbdRequest, data_bytes: u64) -> bool {
        let buffer = match data_bytes {
            0 => Box::default(),
            // A request's length is bounded.
            _ => match self.pool.take(data_bytes as usize) {
                Some(buffer) => buffer,
                None => return false,
            },
        };
        let index = request.key.slot();
        if index == self.slots.len() {
            self.slots.push(Slot::default());
        } else {
            self.free.pop();
        }
        let slot = &mut self.slots[index];
        slot.request = Some(request);
        slot.buffer = buffer;
        slot.claimed_bytes = data_bytes;
        self.in_use_bytes += data_bytes;
        self.outstanding += 1;
        true
    }

    /// The request with a key, and its slot; `None` if it is not outstanding.
    pub fn get_mut(&mut self, key: RequestKey) -> Option<(NbdRequest, &mut Slot)> {
        let slot = self.slots.get_mut(key.slot()).filter(|slot| slot.generation == key.generation)?;
        slot.request.map(|request| (request, slot))
    }

    /// The buffer for `len` bytes of the reply's data, at most the request's size; `None` while it is lent.
    pub fn data_mut(&mut self, key: RequestKey, len: usize) -> Option<&mut [u8]> {
        let (_, slot) = self.get_mut(key)?;
        let data = slot.buffer.get_mut(..len)?;
        slot.data_len = Some(len);
        Some(data)
    }

    /// The buffer itself, to be filled elsewhere and [given back](Self::give_back).
    pub fn lend(&mut self, key: RequestKey) -> Option<Box<[u8]>> {
        let (_, slot) = self.get_mut(key)?;
        // If it is completed while the buffer is lent, it has no data.
        slot.data_len = None;
        Some(std::mem::take(&mut slot.buffer))
    }

    /// Returns a lent buffer, with the length of the reply's data if there are any.
    pub fn give_back(&mut self, key: RequestKey, buffer: Box<[u8]>, data_len: Option<usize>) {
        match self.get_mut(key) {
            Some((_, slot)) => (slot.buffer, slot.data_len) = (buffer, data_len),
            None => self.pool.give(buffer),
        }
    }

    /// Memory that is claimed.
    pub fn held_bytes(&self) -> u64 {
        self.pool.held_bytes()
    }

    /// The request is no longer outstanding; its data stay until [`free`](Self::free).
    pub fn end(&mut self, key: RequestKey) {
        let slot = &mut self.slots[key.slot()];
        slot.request = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.outstanding -= 1;
    }

    /// The slot serves another request.
    pub fn free(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        self.in_use_bytes -= slot.claimed_bytes;
        self.pool.give(std::mem::take(&mut slot.buffer));
        slot.data_len = None;
        slot.pieces.clear();
        slot.failure = None;
        self.free.push(index);
    }

    /// A slot's data.
    pub fn data(&self, index: u32) -> &[u8] {
        &self.slots[index as usize].buffer
    }

    pub fn pieces(&self, index: u32) -> &[Piece] {
        &self.slots[index as usize].pieces
    }

    /// Number of reported requests that are not completed.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Frees memory kept for reuse.
    pub fn release(&mut self) {
        self.pool.release();
    }
}
