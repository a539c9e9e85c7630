//! Cutting a stream of bytes into frames.

use super::{BODY_BYTES_MAX, HEADER_BYTES, ProtocolError};

/// A message as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the message.
    pub kind: u16,
    /// Commands before this one that are not answered yet.
    pub unanswered: u16,
    /// Number of the command.
    pub sequence: u64,
    /// The message's fields.
    pub body: Vec<u8>,
}

/// Appends a frame whose body `write` appends.
///
/// # Panics
/// If the body is longer than any message's.
pub fn encode_frame(out: &mut Vec<u8>, kind: u16, unanswered: u16, sequence: u64, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&unanswered.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    write(out);
    let len = out.len() - start - HEADER_BYTES;
    assert!(len <= BODY_BYTES_MAX, "a message of kind {kind:#06x} with a body of {len} bytes");
    out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
}

/// Splits bytes, in pieces of any size, into frames. Holds at most one frame and one piece.
#[derive(Debug)]
pub struct Decoder {
    body_bytes_max: usize,
    buffer: Vec<u8>,
    /// Bytes of the buffer that belong to frames already given.
    used_bytes: usize,
}

impl Default for Decoder {
    /// Takes frames with bodies of up to [`BODY_BYTES_MAX`].
    fn default() -> Self {
        Decoder { body_bytes_max: BODY_BYTES_MAX, buffer: Vec::new(), used_bytes: 0 }
    }
}

impl Decoder {
    /// Sets the longest accepted body from now on.
    pub fn limit_bodies(&mut self, most_bytes: usize) {
        self.body_bytes_max = most_bytes.min(BODY_BYTES_MAX);
    }

    /// Takes received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..std::mem::take(&mut self.used_bytes));
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame.
    ///
    /// # Errors
    /// If the bytes are no frames. Decoding can't continue then.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ProtocolError> {
        let bytes = &self.buffer[self.used_bytes..];
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, k0, k1, u0, u1, sequence @ ..] = *header;
        let len_bytes = u32::from_le_bytes([l0, l1, l2, l3]);
        let most_bytes = self.body_bytes_max;
        if len_bytes as usize > most_bytes {
            return Err(ProtocolError::TooLong { len_bytes, most_bytes });
        }
        let Some(body) = rest.get(..len_bytes as usize) else { return Ok(None) };
        let frame = Frame {
            kind: u16::from_le_bytes([k0, k1]),
            unanswered: u16::from_le_bytes([u0, u1]),
            sequence: u64::from_le_bytes(sequence),
            body: body.to_vec(),
        };
        self.used_bytes += HEADER_BYTES + body.len();
        Ok(Some(frame))
    }
}
