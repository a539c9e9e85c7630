//! The read buffer: segments of consecutive blocks. The arm fills one of them.

use super::super::drive::Control;

/// The segments, and how far reading on goes in each.
#[derive(Clone, Debug)]
pub(super) struct ReadBuffer {
    /// Segments for reads; behind them one for the blocks of a write, if the drive keeps these.
    segments: Vec<Segment>,
    for_reads: usize,
    segment_blocks: u64,
    read_ahead_blocks: u64,
    /// Uses so far.
    uses: u64,
    filling: Option<usize>,
}

/// Consecutive blocks in the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    start: u64,
    end: u64,
    /// Where reading on ends.
    limit: u64,
    /// The end of the last read of it.
    asked: u64,
    /// Whether a read has begun where the one before ended.
    sequential: bool,
    /// Order of use.
    used: u64,
}

/// The part of a read that is in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// Its first block.
    Beginning,
    /// All blocks, in this segment.
    All(usize),
}

impl ReadBuffer {
    pub(super) fn new(control: &Control) -> Self {
        ReadBuffer {
            segments: vec![Segment::default(); control.all_segments()],
            for_reads: control.segments as usize,
            segment_blocks: control.segment_blocks,
            read_ahead_blocks: control.read_ahead_blocks,
            uses: 0,
            filling: None,
        }
    }

    /// Looks for the blocks of a read.
    pub(super) fn find(&self, first: u64, end: u64) -> Found {
        let Some(from) = self.segments.iter().position(|segment| segment.start <= first && first < segment.end) else {
            return Found::Nothing;
        };
        let all = self.segments[from..].iter().position(|segment| segment.start <= first && end <= segment.end);
        all.map_or(Found::Beginning, |index| Found::All(from + index))
    }

    /// The first block of a segment.
    pub(super) fn start(&self, index: usize) -> u64 {
        self.segments[index].start
    }

    /// The segment that the arm fills.
    pub(super) fn filling(&self) -> Option<usize> {
        self.filling
    }

    /// Where that segment ends: the next block that the arm reads.
    pub(super) fn filled(&self) -> Option<u64> {
        self.filling.map(|index| self.segments[index].end)
    }

    /// From where to where reads find their next block in that segment, or behind it.
    pub(super) fn bounds(&self) -> Option<(u64, u64)> {
        self.filling.map(|index| (self.segments[index].start, self.segments[index].end))
    }

    /// The arm has read up to a block.
    pub(super) fn fill(&mut self, reached: u64) {
        let Some(index) = self.filling else { return };
        let segment = &mut self.segments[index];
        segment.end = reached;
        segment.start = segment.start.max(reached.saturating_sub(self.segment_blocks));
    }

    /// The arm begins to fill the segment at an earlier block than the read's first one.
    pub(super) fn fill_from(&mut self, first: u64) {
        let Some(index) = self.filling else { return };
        (self.segments[index].start, self.segments[index].end) = (first, first);
    }

    /// The arm fills no segment any more.
    pub(super) fn stop_filling(&mut self) {
        self.filling = None;
    }

    /// Begins to fill a segment for a read that finds nothing: the one that was not used for the longest time.
    pub(super) fn fill_for(&mut self, first: u64, end: u64) -> usize {
        let (mut oldest, mut oldest_used) = (0, u64::MAX);
        let mut sequential = false;
        for (index, segment) in self.segments.iter().enumerate() {
            // A stream whose segment has run out goes on being one.
            sequential |= segment.asked == first;
            if segment.used < oldest_used && index < self.for_reads {
                (oldest, oldest_used) = (index, segment.used);
            }
        }
        self.segments[oldest] = Segment { start: first, end: first, asked: end, sequential, ..Segment::default() };
        self.filling = Some(oldest);
        oldest
    }

    /// A read uses a segment. Reading on goes `read-ahead` beyond the read, at most to `read_ahead_end`.
    pub(super) fn use_for(&mut self, index: usize, first: u64, end: u64, read_ahead_end: u64) {
        self.uses += 1;
        let limit = (end + self.read_ahead_blocks).min(read_ahead_end).max(end);
        let segment = &mut self.segments[index];
        segment.used = self.uses;
        segment.limit = segment.limit.max(limit);
        segment.sequential |= first == segment.asked;
        segment.asked = end;
    }

    /// Forgets the segments that hold blocks of a write. The measured drives forget all of a segment: reads of its
    /// other blocks miss. A segment that the arm is reading into loses the blocks up to the write's end, as reads may
    /// wait for the others. Returns whether the segment that was filled is forgotten.
    pub(super) fn forget(&mut self, first: u64, end: u64, is_reading: bool) -> bool {
        let mut filled_is_forgotten = false;
        for (index, segment) in self.segments.iter_mut().enumerate() {
            if first >= segment.end || end <= segment.start {
                continue;
            }
            if self.filling == Some(index) && is_reading {
                segment.start = end.min(segment.end);
            } else {
                filled_is_forgotten |= self.filling == Some(index);
                *segment = Segment::default();
            }
        }
        filled_is_forgotten
    }

    /// Keeps the blocks of a write in the last segment, which no read fills. A write that continues it extends it.
    pub(super) fn keep_written(&mut self, first: u64, end: u64) {
        let Some(kept) = self.segments.get_mut(self.for_reads) else { return };
        let first = if kept.end == first && kept.start < kept.end { kept.start } else { first };
        let start = first.max(end.saturating_sub(self.segment_blocks));
        // Nothing is read on behind it: no read asked for it.
        *kept = Segment { start, end, limit: end, asked: u64::MAX, ..Segment::default() };
    }

    /// Whether the segment that the arm fills belongs to a stream that is to be read on from a block before other work.
    pub(super) fn streams_on(&self, reached: u64) -> bool {
        let segment = self.filling.map(|index| &self.segments[index]);
        segment.is_some_and(|segment| segment.sequential && reached < self.least_limit(segment))
    }

    /// Where reading on ends, if other work waits `elsewhere` or not.
    pub(super) fn limit(&self, elsewhere: bool) -> Option<u64> {
        self.filling.map(|index| match &self.segments[index] {
            segment if elsewhere && segment.sequential => self.least_limit(segment),
            segment => segment.limit,
        })
    }

    /// Whether there is something to read on. A stopped arm restarts only for at least half of its read-ahead;
    /// `behind` is the block behind the last one that the arm has just read.
    pub(super) fn may_read_on(&self, behind: Option<u64>) -> bool {
        self.filling.is_some_and(|index| {
            let segment = &self.segments[index];
            let left = segment.limit.saturating_sub(segment.end);
            left > 0 && (behind == Some(segment.end) || left * 2 >= self.read_ahead_blocks)
        })
    }

    /// Where a stream is read ahead to while others wait: it will request half of the read-ahead, and returning for it
    /// costs a seek.
    fn least_limit(&self, segment: &Segment) -> u64 {
        segment.limit.saturating_sub(self.read_ahead_blocks / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::disk::Drive;
    use crate::models::disk::tests::small;

    /// Three segments of 64 blocks for reads, one for writes, 32 blocks of read-ahead.
    fn buffer() -> ReadBuffer {
        let control = Drive::new(&small()).expect("a drive").control;
        let keys = Control { segments: 3, segment_blocks: 64, read_ahead_blocks: 32, ..control };
        ReadBuffer::new(&Control { read_hits_on_write_data: true, ..keys })
    }

    /// The buffer after a read that found nothing, whose blocks have come.
    fn read(buffer: &mut ReadBuffer, first: u64, end: u64) -> usize {
        let index = buffer.fill_for(first, end);
        buffer.use_for(index, first, end, u64::MAX);
        buffer.fill(end);
        index
    }

    #[test]
    fn a_read_finds_all_blocks_the_first_one_or_nothing() {
        let mut buffer = buffer();
        let index = read(&mut buffer, 100, 108);
        assert_eq!(buffer.find(102, 108), Found::All(index));
        assert_eq!(buffer.find(102, 109), Found::Beginning);
        assert_eq!(buffer.find(99, 101), Found::Nothing);
        assert_eq!(buffer.bounds(), Some((100, 108)));
    }

    #[test]
    fn a_segment_keeps_its_last_blocks_and_the_one_unused_for_the_longest_time_goes() {
        let mut buffer = buffer();
        read(&mut buffer, 0, 8);
        buffer.fill(100);
        assert_eq!((buffer.find(35, 36), buffer.find(36, 100)), (Found::Nothing, Found::All(0)));
        let others = [1_000, 2_000, 3_000].map(|first| read(&mut buffer, first, first + 8));
        assert_eq!(others, [1, 2, 0]);
        assert_eq!(buffer.find(36, 37), Found::Nothing);
    }

    #[test]
    fn a_stream_is_read_on_for_half_of_the_read_ahead_before_other_work() {
        let mut buffer = buffer();
        let index = read(&mut buffer, 100, 108);
        assert!(!buffer.streams_on(108));
        buffer.use_for(index, 108, 116, u64::MAX);
        assert!(buffer.streams_on(131) && !buffer.streams_on(132));
        assert_eq!((buffer.limit(true), buffer.limit(false)), (Some(132), Some(148)));
        // The whole read-ahead is left behind block 116, and less than a half of it behind 133.
        buffer.fill(116);
        assert!(buffer.may_read_on(None));
        buffer.fill(133);
        assert!(!buffer.may_read_on(None) && buffer.may_read_on(Some(133)));
        buffer.stop_filling();
        assert!(!buffer.may_read_on(Some(133)) && !buffer.streams_on(116));
    }

    #[test]
    fn a_write_makes_it_forget_segments_but_the_one_that_is_being_read_into() {
        let mut buffer = buffer();
        read(&mut buffer, 100, 108);
        let filling = read(&mut buffer, 200, 208);
        assert!(!buffer.forget(104, 204, true));
        assert_eq!((buffer.find(100, 104), buffer.find(204, 208)), (Found::Nothing, Found::All(filling)));
        assert!(buffer.forget(204, 208, false));
    }

    #[test]
    fn the_blocks_of_writes_that_continue_each_other_are_kept_apart_from_reads() {
        let mut buffer = buffer();
        buffer.keep_written(0, 8);
        buffer.keep_written(8, 16);
        let others = [1_000, 2_000, 3_000, 4_000].map(|first| read(&mut buffer, first, first + 8));
        assert_eq!((others, buffer.find(0, 16)), ([0, 1, 2, 0], Found::All(3)));
    }
}
