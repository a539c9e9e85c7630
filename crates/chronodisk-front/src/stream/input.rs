//! Bytes from the client that were not understood so far.

use std::ops::Range;

use std::sync::Arc;

use crate::memory::{Claim, MemoryLimit};

/// A buffer that is filled at its end and emptied at its front.
///
/// It grows with received bytes, to the size of one message or one send of the client, and keeps it until
/// [`release`](Self::release): in the steady state no memory is allocated.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    bytes: Vec<u8>,
    filled: Range<usize>,
    /// The last receive filled the room: the client sends more at once.
    was_full: bool,
    /// Covers the buffer, and the message that was admitted.
    claim: Claim,
}

/// Received bytes without the buffer, and their claim on memory.
#[derive(Debug)]
pub(crate) struct Detached {
    bytes: Vec<u8>,
    place: Range<usize>,
    _claim: Claim,
}

impl AsRef<[u8]> for Detached {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.place.clone()]
    }
}

/// Room at first: for 32 requests without data, and for all that most clients send.
pub(crate) const RECEIVE_BYTES_MIN: usize = 4 << 10;
/// Room for a client that sends many bytes at once, in messages of any size.
pub(crate) const RECEIVE_BYTES_BASE: usize = 256 << 10;
/// A part of the buffer: less room at the end is not worth a receive.
const ROOM_PART: usize = 4;
/// Shorter pieces are copied rather than detached with the buffer.
const DETACHED_BYTES_MIN: usize = 64 << 10;

impl ReceiveBuffer {
    pub fn new(limit: &Arc<MemoryLimit>) -> Self {
        ReceiveBuffer { bytes: Vec::new(), filled: 0..0, was_full: false, claim: Claim::new(limit) }
    }

    /// Received bytes that were not consumed.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.filled.clone()]
    }

    /// Claims memory for a message of this size. Returns false at the limit.
    pub fn admit(&mut self, message_bytes: usize) -> bool {
        message_bytes <= RECEIVE_BYTES_BASE || self.claim.try_grow_to(message_bytes as u64)
    }

    /// Room for more, for a message that begins at the front and takes `message_bytes` in all;
    /// never empty while the message is incomplete.
    pub fn room(&mut self, message_bytes: usize) -> &mut [u8] {
        let have = self.filled.len();
        if have == 0 {
            self.filled = 0..0;
        }
        let missing = message_bytes.saturating_sub(have).max(1);
        let at_end = self.bytes.len() - self.filled.end;
        let more = std::mem::take(&mut self.was_full) && self.bytes.len() < RECEIVE_BYTES_BASE;
        if more || at_end < missing.max(self.bytes.len() / ROOM_PART) {
            self.bytes.copy_within(self.filled.clone(), 0);
            self.filled = 0..have;
            let base = if more { self.bytes.len() * 2 } else { RECEIVE_BYTES_MIN };
            if more || self.bytes.len() - have < missing {
                // At most twice the received bytes, so that a claimed length alone allocates no memory.
                let wanted = message_bytes.min(have.saturating_mul(2)).max(have + 1).max(base);
                self.grow(wanted);
            }
        }
        &mut self.bytes[self.filled.end..]
    }

    fn grow(&mut self, wanted: usize) {
        if wanted > self.bytes.len() {
            self.claim.grow_to(wanted as u64);
            // `reserve_exact`, since the length was already doubled here.
            self.bytes.reserve_exact(wanted - self.bytes.len());
            self.bytes.resize(wanted, 0);
        }
    }

    /// Counts the next bytes of the [`room`](Self::room) as filled.
    pub fn fill(&mut self, len: usize) {
        assert!(len <= self.bytes.len() - self.filled.end, "more bytes than there was room for");
        self.filled.end += len;
        self.was_full = self.filled.end == self.bytes.len();
    }

    /// Copies as many bytes to the end as it takes.
    pub fn extend(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = self.room(self.filled.len() + rest.len());
            let len = rest.len().min(room.len());
            room[..len].copy_from_slice(&rest[..len]);
            self.fill(len);
            rest = &rest[len..];
        }
    }

    /// Consumes the first bytes; returns their place for [`at`](Self::at), valid until the next call of
    /// [`room`](Self::room).
    pub fn consume(&mut self, len: usize) -> Range<usize> {
        assert!(len <= self.filled.len(), "fewer bytes came");
        let consumed = self.filled.start..self.filled.start + len;
        self.filled.start = consumed.end;
        consumed
    }

    /// Bytes that were consumed.
    pub fn at(&self, place: Range<usize>) -> &[u8] {
        &self.bytes[place]
    }

    /// Detaches consumed bytes, with the buffer if they are most of it, so that they need not be copied.
    pub fn detach(&mut self, place: Range<usize>) -> Detached {
        let rest = self.filled.len();
        if place.len() < DETACHED_BYTES_MIN || rest > RECEIVE_BYTES_BASE {
            let mut claim = Claim::new(self.claim.limit());
            claim.grow_to(place.len() as u64);
            return Detached { bytes: self.bytes[place.clone()].to_vec(), place: 0..place.len(), _claim: claim };
        }
        let mut fresh = ReceiveBuffer::new(self.claim.limit());
        // The next message probably has the same length. Untouched zeroed memory costs nothing.
        if fresh.claim.try_grow_to(self.bytes.len() as u64) {
            fresh.bytes = vec![0; self.bytes.len()];
        }
        fresh.extend(self.filled());
        let ReceiveBuffer { bytes, claim, .. } = std::mem::replace(self, fresh);
        Detached { bytes, place, _claim: claim }
    }

    /// Frees memory, unless it holds more than a small buffer can. Places of consumed bytes become invalid.
    pub fn release(&mut self) {
        if self.filled.len() > RECEIVE_BYTES_MIN {
            return;
        }
        let mut fresh = ReceiveBuffer::new(self.claim.limit());
        if !self.filled.is_empty() {
            fresh.extend(self.filled());
        }
        *self = fresh;
    }

    /// Memory that is claimed.
    pub fn held_bytes(&self) -> u64 {
        self.claim.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends bytes as a socket would, at most a part at once.
    fn put(buffer: &mut ReceiveBuffer, message_bytes: usize, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = buffer.room(message_bytes);
            let len = rest.len().min(room.len());
            room[..len].copy_from_slice(&rest[..len]);
            buffer.fill(len);
            rest = &rest[len..];
        }
    }

    #[test]
    fn a_length_alone_claims_no_memory() {
        let mut buffer = ReceiveBuffer::new(&Arc::default());
        put(&mut buffer, 32 << 20, &[1; 28]);
        assert_eq!(buffer.room(32 << 20).len(), RECEIVE_BYTES_MIN - 28);
        put(&mut buffer, 32 << 20, &[2; 1 << 20]);
        assert!(buffer.bytes.len() <= 4 << 20);
        assert_eq!(buffer.filled().len(), 28 + (1 << 20));
    }

    #[test]
    fn a_message_is_in_one_piece_wherever_it_began() {
        let mut buffer = ReceiveBuffer::new(&Arc::default());
        let message: Vec<u8> = (0..100_000u32).map(|i| (i % 241) as u8).collect();
        for _ in 0..50 {
            put(&mut buffer, message.len(), &message);
            let place = buffer.consume(message.len());
            assert!(buffer.at(place) == message);
        }
        assert!(buffer.bytes.len() <= RECEIVE_BYTES_BASE);
        buffer.release();
        assert_eq!(buffer.bytes.capacity(), 0);
    }

    #[test]
    fn a_buffer_grows_with_what_comes_at_once_and_is_claimed() {
        let limit = Arc::new(MemoryLimit::new(1 << 20));
        let mut buffer = ReceiveBuffer::new(&limit);
        put(&mut buffer, 28, &[1; 28]);
        assert_eq!(limit.used_bytes(), RECEIVE_BYTES_MIN as u64);
        put(&mut buffer, 28, &vec![1; 1 << 20]);
        assert!(limit.is_exceeded(), "what came is there");
        buffer.consume((1 << 20) + 28);
        buffer.release();
        assert_eq!(limit.used_bytes(), 0);
        assert!(buffer.admit(1 << 20) && !ReceiveBuffer::new(&limit).admit((256 << 10) + 1));
        drop(buffer);
        assert_eq!(limit.used_bytes(), 0);
    }

    #[test]
    fn what_is_detached_is_the_same_and_so_is_the_rest() {
        for len in [100, 1 << 20] {
            let limit = Arc::default();
            let mut buffer = ReceiveBuffer::new(&limit);
            put(&mut buffer, 28 + len, &[1; 28]);
            put(&mut buffer, 28 + len, &vec![2; len]);
            put(&mut buffer, 28, &[3; 50]);
            buffer.consume(28);
            let place = buffer.consume(len);
            let detached = buffer.detach(place);
            assert!(detached.as_ref() == vec![2; len] && buffer.filled() == [3; 50]);
            drop((detached, buffer));
            assert_eq!(limit.used_bytes(), 0);
        }
    }

    #[test]
    fn release_keeps_what_was_not_consumed() {
        let mut buffer = ReceiveBuffer::new(&Arc::default());
        put(&mut buffer, 4, b"half");
        buffer.release();
        assert_eq!(buffer.filled(), b"half");
    }
}
