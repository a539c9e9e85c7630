//! Bytes for the client that were not sent so far.

use std::collections::VecDeque;
use std::io::IoSlice;

/// A queue of replies: heads in one buffer, data where they lie.
///
/// Data are named by the slot of their request, and stay in it until they were sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    heads: Vec<u8>,
    /// Bytes at the front of `heads` that were sent.
    heads_sent: usize,
    segments: VecDeque<Segment>,
}

/// A piece of the output.
#[derive(Clone, Copy, Debug)]
enum Segment {
    /// The next bytes of the reply headers.
    Heads { len: usize },
    /// Bytes of a slot's data.
    Data { slot: u32, start: usize, len: usize, last: bool },
}

/// Sent bytes at the front of the heads that are worth moving the rest.
const COMPACT_BYTES: usize = 64 << 10;

impl Output {
    /// Appends bytes of a head.
    pub fn head(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.heads.extend_from_slice(bytes);
        if let Some(Segment::Heads { len }) = self.segments.back_mut() {
            *len += bytes.len();
        } else {
            self.segments.push_back(Segment::Heads { len: bytes.len() });
        }
    }

    /// Appends bytes of a slot's data; after the `last` ones the slot is free.
    pub fn data(&mut self, slot: u32, start: usize, len: usize, last: bool) {
        self.segments.push_back(Segment::Data { slot, start, len, last });
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes of heads that wait.
    pub fn head_bytes(&self) -> usize {
        self.heads.len() - self.heads_sent
    }

    /// Points `slices` at the next bytes, until the slices or the bytes are used up. Returns the number of slices used.
    pub fn gather<'a>(&'a self, data: impl Fn(u32) -> &'a [u8], slices: &mut [IoSlice<'a>]) -> usize {
        let mut heads = &self.heads[self.heads_sent..];
        let mut count = 0;
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            *slice = IoSlice::new(match *segment {
                Segment::Heads { len } => {
                    let (now, later) = heads.split_at(len);
                    heads = later;
                    now
                }
                Segment::Data { slot, start, len, .. } => &data(slot)[start..start + len],
            });
            count += 1;
        }
        count
    }

    /// The next bytes in one piece.
    pub fn first<'a>(&'a self, data: impl Fn(u32) -> &'a [u8]) -> &'a [u8] {
        match self.segments.front() {
            None => &[],
            Some(&Segment::Heads { len }) => &self.heads[self.heads_sent..self.heads_sent + len],
            Some(&Segment::Data { slot, start, len, .. }) => &data(slot)[start..start + len],
        }
    }

    /// Removes sent bytes, and reports slots whose last data were among them.
    pub fn sent(&mut self, bytes: usize, mut freed: impl FnMut(u32)) {
        let mut rest = bytes;
        while rest > 0 {
            let segment = self.segments.front_mut().expect("no more was sent than was there");
            match segment {
                Segment::Heads { len } => {
                    let now = rest.min(*len);
                    *len -= now;
                    self.heads_sent += now;
                    rest -= now;
                    if *len > 0 {
                        break;
                    }
                }
                Segment::Data { slot, start, len, last } => {
                    let now = rest.min(*len);
                    *start += now;
                    *len -= now;
                    rest -= now;
                    if *len > 0 {
                        break;
                    }
                    if *last {
                        freed(*slot);
                    }
                }
            }
            self.segments.pop_front();
        }
        if self.heads_sent == self.heads.len() {
            self.heads.clear();
            self.heads_sent = 0;
        } else if self.heads_sent >= COMPACT_BYTES {
            self.heads.drain(..self.heads_sent);
            self.heads_sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(output: &Output, data: &[u8], slices_max: usize) -> Vec<u8> {
        let mut slices = vec![IoSlice::new(&[]); slices_max];
        let count = output.gather(|_| data, &mut slices);
        slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    #[test]
    fn whatever_was_sent_the_rest_follows() {
        let data: Vec<u8> = (0..200).collect();
        let mut whole = b"onetwo".to_vec();
        whole.extend(&data[10..40]);
        whole.extend(b"three");
        whole.extend(&data[100..150]);
        for step in 1..whole.len() {
            let mut output = Output::default();
            output.head(b"one");
            output.head(b"two");
            output.data(7, 10, 30, false);
            output.head(b"three");
            output.data(7, 100, 50, true);
            let mut said: Vec<u8> = Vec::new();
            let mut freed = Vec::new();
            while !output.is_empty() {
                let now = gathered(&output, &data, 2);
                let len = now.len().min(step);
                said.extend(&now[..len]);
                output.sent(len, |slot| freed.push(slot));
            }
            assert_eq!(said, whole);
            assert_eq!(freed, [7], "once, and only after the last byte");
            assert_eq!(output.head_bytes(), 0);
        }
    }

    #[test]
    fn heads_that_never_run_dry_take_no_more_memory() {
        let mut output = Output::default();
        output.head(&[1; 100]);
        for _ in 0..10_000 {
            output.head(&[1; 100]);
            output.sent(100, |_| {});
        }
        assert!(output.heads.capacity() < 4 * COMPACT_BYTES);
    }
}
