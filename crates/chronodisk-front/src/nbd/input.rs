//! Bytes from the client that were not understood so far.

use std::ops::Range;

/// A buffer that is filled at its end and emptied at its front.
///
/// It grows with the bytes that really came, to what one message needs, and stays so until
/// [`release`](Self::release): after warming up nothing is allocated.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    bytes: Vec<u8>,
    filled: Range<usize>,
}

/// Room for several requests at once: one receive for a client that has 32 outstanding.
pub(crate) const RECEIVE_BYTES_BASE: usize = 256 << 10;
/// Less room than this at the end is not worth a receive.
const ROOM_BYTES_MIN: usize = 64 << 10;

impl ReceiveBuffer {
    pub fn new() -> Self {
        ReceiveBuffer { bytes: Vec::new(), filled: 0..0 }
    }

    /// What came and was not consumed.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.filled.clone()]
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
        if at_end < missing.max(ROOM_BYTES_MIN) {
            self.bytes.copy_within(self.filled.clone(), 0);
            self.filled = 0..have;
            if self.bytes.len() - have < missing {
                // At most double what came, so that a length alone claims no memory.
                let wanted = message_bytes.min(have.saturating_mul(2)).max(have + 1).max(RECEIVE_BYTES_BASE);
                if self.bytes.is_empty() {
                    // Zeroed memory that nobody touched costs nothing: many connections stay small.
                    self.bytes = vec![0; wanted];
                } else {
                    self.bytes.resize(wanted.max(self.bytes.len()), 0);
                }
            }
        }
        &mut self.bytes[self.filled.end..]
    }

    /// That many bytes of the [`room`](Self::room) were filled.
    pub fn fill(&mut self, len: usize) {
        assert!(len <= self.bytes.len() - self.filled.end, "more bytes than there was room for");
        self.filled.end += len;
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

    /// Forgets the first bytes; what they were is told as a place for [`at`](Self::at), which
    /// holds until [`room`](Self::room) is asked for.
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

    /// Gives the memory back if nothing is in it.
    pub fn release(&mut self) {
        if self.filled.is_empty() {
            self.bytes = Vec::new();
            self.filled = 0..0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts bytes in as a socket would, at most so many at once.
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
        let mut buffer = ReceiveBuffer::new();
        put(&mut buffer, 32 << 20, &[1; 28]);
        assert_eq!(buffer.room(32 << 20).len(), RECEIVE_BYTES_BASE - 28);
        put(&mut buffer, 32 << 20, &[2; 1 << 20]);
        assert!(buffer.bytes.len() <= 4 << 20);
        assert_eq!(buffer.filled().len(), 28 + (1 << 20));
    }

    #[test]
    fn a_message_is_in_one_piece_wherever_it_began() {
        let mut buffer = ReceiveBuffer::new();
        let message: Vec<u8> = (0..100_000u32).map(|i| (i % 241) as u8).collect();
        for _ in 0..50 {
            put(&mut buffer, message.len(), &message);
            let place = buffer.consume(message.len());
            assert!(buffer.at(place) == message);
        }
        assert_eq!(buffer.bytes.len(), RECEIVE_BYTES_BASE);
        buffer.release();
        assert_eq!(buffer.bytes.capacity(), 0);
    }

    #[test]
    fn release_keeps_what_was_not_consumed() {
        let mut buffer = ReceiveBuffer::new();
        put(&mut buffer, 4, b"half");
        buffer.release();
        assert_eq!(buffer.filled(), b"half");
    }
}
