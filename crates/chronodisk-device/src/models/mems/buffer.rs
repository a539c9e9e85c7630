//! The buffer: a few ranges of blocks with LRU eviction.

/// Ranges that a read needs no sled for.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Segments from the least to the most recently used.
    segments: Vec<Range>,
    most: usize,
    blocks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    begin: u64,
    end: u64,
}

impl Buffer {
    pub(super) fn new(segments: u32, blocks: u64) -> Self {
        let most = if blocks == 0 { 0 } else { segments as usize };
        Buffer { segments: Vec::with_capacity(most), most, blocks }
    }

    /// Whether one segment holds all of these blocks; if so, it becomes the most recently used.
    pub(super) fn holds(&mut self, begin: u64, end: u64) -> bool {
        let found = self.segments.iter().rposition(|range| range.begin <= begin && end <= range.end);
        if let Some(index) = found {
            self.segments[index..].rotate_left(1);
        }
        found.is_some()
    }

    /// Inserts blocks that were just read or written: into the segment that they continue, otherwise into another one.
    pub(super) fn insert(&mut self, begin: u64, end: u64) {
        if self.most == 0 {
            return;
        }
        let joined = self.segments.iter().rposition(|range| range.begin <= begin && begin <= range.end);
        let range = match joined {
            Some(index) => {
                let range = self.segments.remove(index);
                Range { begin: range.begin, end: range.end.max(end) }
            }
            None => {
                if self.segments.len() == self.most {
                    self.segments.remove(0);
                }
                Range { begin, end }
            }
        };
        self.segments.push(Range { begin: range.begin.max(range.end.saturating_sub(self.blocks)), ..range });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_grows_forgets_its_beginning_and_makes_room_for_others() {
        let mut buffer = Buffer::new(2, 100);
        buffer.insert(0, 60);
        buffer.insert(60, 120);
        assert!(buffer.holds(20, 120) && !buffer.holds(19, 120));
        buffer.insert(1_000, 1_010);
        assert!(buffer.holds(20, 30), "now the most recently used");
        buffer.insert(2_000, 2_010);
        assert!(buffer.holds(20, 30) && buffer.holds(2_000, 2_010) && !buffer.holds(1_000, 1_001));
    }

    #[test]
    fn no_segments_hold_nothing() {
        for mut buffer in [Buffer::new(0, 100), Buffer::new(3, 0)] {
            buffer.insert(0, 10);
            assert!(!buffer.holds(0, 1));
        }
    }
}
