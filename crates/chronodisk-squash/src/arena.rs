//! Memory divided into slots, allocated and freed in ranges.

use super::SLOT_BYTES;
use super::places::Places;

/// A memory arena. The host provides it in chunks, which exist as long as slots in them are used.
#[derive(Debug)]
pub(crate) struct Arena {
    places: Places,
    chunks: Vec<Chunk>,
    /// Chunks without a used slot, for reuse: allocating memory from the host takes as long as copying into it.
    spare: Vec<Box<[u8]>>,
    spare_chunks_max: usize,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Option<Box<[u8]>>,
    used: u64,
}

const CHUNK_SLOTS: u64 = 2048;
const CHUNK_BYTES: usize = (CHUNK_SLOTS * SLOT_BYTES) as usize;

impl Arena {
    /// An arena of at most `budget_bytes`, rounded up to a chunk.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        let places = Places::new(budget_bytes / SLOT_BYTES);
        Arena { places, chunks: Vec::new(), spare: Vec::new(), spare_chunks_max: 0 }
    }

    /// The arena keeps this much unused memory instead of returning it to the host.
    pub(crate) fn with_spare(self, spare_bytes: u64) -> Self {
        Arena { spare_chunks_max: spare_bytes as usize / CHUNK_BYTES, ..self }
    }

    /// Like [`Places::take`].
    pub(crate) fn take(&mut self, len: u64, unit: u64) -> Option<(u64, u64)> {
        let (start, len) = self.places.take(len, unit)?;
        for (index, count) in by_chunk(start, len) {
            if self.chunks.len() <= index {
                self.chunks.resize_with(index + 1, Chunk::default);
            }
            let chunk = &mut self.chunks[index];
            chunk.used += count;
            chunk.bytes.get_or_insert_with(|| self.spare.pop().unwrap_or_else(|| vec![0; CHUNK_BYTES].into()));
        }
        Some((start, len))
    }

    /// Like [`Places::give`].
    pub(crate) fn give(&mut self, start: u64, len: u64) {
        self.places.give(start, len);
        for (index, count) in by_chunk(start, len) {
            let chunk = &mut self.chunks[index];
            chunk.used -= count;
            if chunk.used == 0
                && let Some(bytes) = chunk.bytes.take()
                && self.spare.len() < self.spare_chunks_max
            {
                self.spare.push(bytes);
            }
        }
    }

    /// Reads from an allocated place.
    pub(crate) fn read(&self, place: u64, skip_bytes: u64, bytes: &mut [u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (index, offset) = locate(place, skip_bytes + done as u64);
            let part = (CHUNK_BYTES - offset).min(bytes.len() - done);
            let chunk = self.chunks[index].bytes.as_ref().expect("taken");
            bytes[done..done + part].copy_from_slice(&chunk[offset..offset + part]);
            done += part;
        }
    }

    /// Whether the bytes at an allocated place begin with these.
    pub(crate) fn holds(&self, place: u64, bytes: &[u8]) -> bool {
        let mut done = 0;
        while done < bytes.len() {
            let (index, offset) = locate(place, done as u64);
            let part = (CHUNK_BYTES - offset).min(bytes.len() - done);
            let chunk = self.chunks[index].bytes.as_ref().expect("taken");
            if bytes[done..done + part] != chunk[offset..offset + part] {
                return false;
            }
            done += part;
        }
        true
    }

    /// Writes to an allocated place.
    pub(crate) fn write(&mut self, place: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (index, offset) = locate(place, done as u64);
            let part = (CHUNK_BYTES - offset).min(bytes.len() - done);
            let chunk = self.chunks[index].bytes.as_mut().expect("taken");
            chunk[offset..offset + part].copy_from_slice(&bytes[done..done + part]);
            done += part;
        }
    }

    /// Memory allocated from the host, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let used = self.chunks.iter().filter(|chunk| chunk.bytes.is_some()).count();
        ((used + self.spare.len()) * CHUNK_BYTES) as u64
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }
}

fn locate(place: u64, skip_bytes: u64) -> (usize, usize) {
    let position = place * SLOT_BYTES + skip_bytes;
    ((position / CHUNK_BYTES as u64) as usize, (position % CHUNK_BYTES as u64) as usize)
}

/// The chunks of a range, each with the count of its slots in the range.
fn by_chunk(start: u64, len: u64) -> impl Iterator<Item = (usize, u64)> {
    (start / CHUNK_SLOTS..(start + len).div_ceil(CHUNK_SLOTS)).map(move |index| {
        let from = start.max(index * CHUNK_SLOTS);
        let to = (start + len).min((index + 1) * CHUNK_SLOTS);
        (index as usize, to - from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_chunks_and_memory_is_given_back() {
        let mut arena = Arena::new(4 << 20);
        let first = arena.take(CHUNK_SLOTS - 3, 1).unwrap();
        let (place, len) = arena.take(8, 8).unwrap();
        assert_eq!((place, len), (CHUNK_SLOTS - 3, 8));
        let written: Vec<u8> = (0..4096u32).map(|i| (i % 251) as u8).collect();
        arena.write(place, &written);
        let mut bytes = vec![0; 4000];
        arena.read(place, 96, &mut bytes);
        assert_eq!(bytes, written[96..]);
        arena.give(first.0, first.1);
        assert!(arena.chunks[0].bytes.is_some());
        arena.give(place, len);
        assert!(arena.chunks.iter().all(|chunk| chunk.bytes.is_none()));
    }

    #[test]
    fn as_much_memory_is_held_on_to_as_is_said() {
        let mut arena = Arena::new(8 << 20).with_spare(2 << 20);
        let (place, len) = arena.take(3 * CHUNK_SLOTS, 8).unwrap();
        arena.write(place, &[7; 4096]);
        assert_eq!(arena.memory_bytes(), 3 << 20);
        arena.give(place, len);
        assert_eq!(arena.memory_bytes(), 2 << 20);
        let (place, _) = arena.take(CHUNK_SLOTS, 8).unwrap();
        assert_eq!(arena.memory_bytes(), 2 << 20, "one of the spare ones is used");
        arena.write(place, &[8; 4096]);
        assert!(arena.holds(place, &[8; 4096]));
    }
}
