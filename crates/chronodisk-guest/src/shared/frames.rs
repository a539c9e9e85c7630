//! Messages between the launcher and the guest's first process over a serial line: frames of one byte of kind, four
//! bytes of length (little-endian), and the payload.

use std::fmt;

/// Largest payload of one frame.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16 << 20;
const HEADER_BYTES: usize = 5;

/// Most bytes sent by the launcher and not yet read by the guest's first process. A guest kernel of release 6.1
/// permanently stops listening to a serial line once its 4 KiB of buffer are nearly full (`line_unthrottle` does not
/// undo `line_throttle`), so this must never happen.
pub(crate) const LINE_WINDOW_BYTES: usize = 2048;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// To the guest: the [`super::spec::GuestSpec`] as JSON.
    Hello = 1,
    /// To the guest: bytes of standard input.
    Stdin = 2,
    /// To the guest: standard input has ended.
    StdinEnd = 3,
    /// To the guest: one byte, the number of a signal for the command.
    Signal = 4,
    /// To the guest: the terminal's rows and columns, two bytes each.
    WindowSize = 5,
    /// To the guest: the reader of the command's standard output is gone.
    StdoutClosed = 6,
    /// To the guest: the reader of its standard error is gone.
    StderrClosed = 7,
    /// From the guest: bytes of standard output.
    Stdout = 16,
    /// From the guest: bytes of standard error.
    Stderr = 17,
    /// From the guest: number of further bytes of standard input that it accepts, four bytes.
    Credit = 18,
    /// From the guest: a [`super::spec::Mark`] as JSON.
    Mark = 19,
    /// From the guest: the [`super::spec::Ending`] as JSON; the last frame.
    Ending = 20,
    /// From the guest: number of further bytes read from the line, four bytes.
    Taken = 21,
    /// From the guest: output of the command to its terminal.
    Terminal = 22,
    /// From the guest: its line carries bytes as they are from now on; the first frame.
    Ready = 23,
    /// From the guest: the guest's time stamp counter (eight bytes), and bytes that the command wrote to its pipe for
    /// acknowledgements.
    Acknowledged = 24,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        const ALL: [Kind; 16] = [
            Kind::Hello,
            Kind::Stdin,
            Kind::StdinEnd,
            Kind::Signal,
            Kind::WindowSize,
            Kind::StdoutClosed,
            Kind::StderrClosed,
            Kind::Stdout,
            Kind::Stderr,
            Kind::Credit,
            Kind::Mark,
            Kind::Ending,
            Kind::Taken,
            Kind::Terminal,
            Kind::Ready,
            Kind::Acknowledged,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Appends a frame to `out`.
pub(crate) fn encode(kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a frame is at most {PAYLOAD_BYTES_MAX} bytes");
    out.push(kind as u8);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
}

/// Cuts a byte stream into frames.
#[derive(Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame.
    ///
    /// # Errors
    /// If the bytes are no frames. Decoding can't continue then.
    pub fn next(&mut self) -> Result<Option<(Kind, Vec<u8>)>, BadFrame> {
        if self.buffer.len() < HEADER_BYTES {
            return Ok(None);
        }
        let kind = Kind::from_byte(self.buffer[0]).ok_or_else(|| self.bad_frame())?;
        let len_bytes = u32::from_le_bytes(self.buffer[1..HEADER_BYTES].try_into().expect("four bytes")) as usize;
        if len_bytes > PAYLOAD_BYTES_MAX {
            return Err(self.bad_frame());
        }
        if self.buffer.len() < HEADER_BYTES + len_bytes {
            return Ok(None);
        }
        let payload = self.buffer[HEADER_BYTES..HEADER_BYTES + len_bytes].to_vec();
        self.buffer.drain(..HEADER_BYTES + len_bytes);
        Ok(Some((kind, payload)))
    }

    fn bad_frame(&self) -> BadFrame {
        BadFrame { found: self.buffer[..self.buffer.len().min(SHOWN_BYTES)].to_vec() }
    }
}

/// Bytes that an error shows.
const SHOWN_BYTES: usize = 64;

/// The byte stream is not one of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadFrame {
    /// The first bytes at the wrong place.
    found: Vec<u8>,
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the guest's serial line carries \"{}\", which is not a frame", self.found.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_being_cut_anywhere() {
        let mut stream = Vec::new();
        encode(Kind::Stdout, b"one", &mut stream);
        encode(Kind::StdinEnd, b"", &mut stream);
        encode(Kind::Stderr, &[0xff; 300], &mut stream);
        for cut in 1..stream.len() {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for piece in stream.chunks(cut) {
                decoder.feed(piece);
                while let Some(frame) = decoder.next().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(
                frames,
                [(Kind::Stdout, b"one".to_vec()), (Kind::StdinEnd, vec![]), (Kind::Stderr, vec![0xff; 300])]
            );
        }
    }

    #[test]
    fn an_unknown_kind_or_a_huge_length_is_refused() {
        for bytes in [[99, 0, 0, 0, 0], [Kind::Stdout as u8, 0xff, 0xff, 0xff, 0xff]] {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            assert_eq!(decoder.next(), Err(BadFrame { found: bytes.to_vec() }));
        }
    }
}
