//! Bytes that move at the completion of a request, for devices whose requests can fail.
//!
//! Changes of the contents end in order of arrival: a change leaves out the parts that a later, already completed
//! change has overwritten.

use std::collections::BTreeMap;
use std::ops::Range;

use chronodisk_sim::{Op, RangeSet, SECTOR_BYTES, Status};

/// Outstanding changes of a device's contents, in order of arrival.
#[derive(Debug)]
pub(crate) struct LateChanges {
    torn_bytes: u64,
    next_order: u64,
    outstanding: BTreeMap<u64, Change>,
}

/// An outstanding change of a range of bytes.
#[derive(Debug)]
struct Change {
    range: Range<u64>,
    /// Parts that later changes have overwritten.
    overwritten: RangeSet,
}

impl LateChanges {
    /// No changes yet. A write that ends as a media error writes its first `torn_write_sectors` sectors.
    pub fn new(torn_write_sectors: u32) -> Self {
        let torn_bytes = u64::from(torn_write_sectors) * SECTOR_BYTES;
        LateChanges { torn_bytes, next_order: 0, outstanding: BTreeMap::new() }
    }

    /// Notes the arrival of a change of these bytes. Returns its place in the order of arrival.
    pub fn arrived(&mut self, range: Range<u64>) -> u64 {
        let order = self.next_order;
        self.next_order += 1;
        self.outstanding.insert(order, Change { range, overwritten: RangeSet::new() });
        order
    }

    /// Ends a change, which must be made before the next one ends. Returns the parts of its range to change.
    pub fn completed(&mut self, order: u64, op: Op, status: Status) -> Vec<Range<u64>> {
        let Some(Change { range, overwritten }) = self.outstanding.remove(&order) else { return Vec::new() };
        let len_bytes = range.end - range.start;
        let done_bytes = match status {
            Status::Ok => len_bytes,
            // A whole write is not torn.
            Status::MediaError if op == Op::Write => self.torn_bytes.min(len_bytes.saturating_sub(SECTOR_BYTES)),
            _ => 0,
        };
        let done = range.start..range.start + done_bytes;
        for (_, earlier) in self.outstanding.range_mut(..order) {
            earlier.overwritten.insert(done.start.max(earlier.range.start)..done.end.min(earlier.range.end));
        }
        overwritten.gaps(done).collect()
    }

    /// Forgets a change that no client waits for any more.
    pub fn dropped(&mut self, order: u64) {
        self.outstanding.remove(&order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beginning and end of each part to change.
    fn end(changes: &mut LateChanges, order: u64, op: Op, status: Status) -> Vec<(u64, u64)> {
        changes.completed(order, op, status).into_iter().map(|part| (part.start, part.end)).collect()
    }

    #[test]
    fn changes_end_in_order_of_arrival() {
        let changes = &mut LateChanges::new(0);
        let [first, second, third] = [0..8_192, 4_096..8_192, 0..1_024].map(|range| changes.arrived(range));
        assert_eq!(end(changes, third, Op::Write, Status::Ok), [(0, 1_024)]);
        assert_eq!(end(changes, second, Op::Write, Status::Ok), [(4_096, 8_192)]);
        assert_eq!(end(changes, first, Op::WriteZeroes, Status::Ok), [(1_024, 4_096)]);
        // Both are gone: a later change is whole.
        let later = changes.arrived(0..8_192);
        assert_eq!(end(changes, later, Op::Discard, Status::Ok), [(0, 8_192)]);
        assert!(changes.outstanding.is_empty());
    }

    #[test]
    fn a_failed_change_writes_nothing_or_its_first_sectors() {
        for (torn_sectors, op, status, len_bytes, written_bytes) in [
            (0, Op::Write, Status::MediaError, 4_096, 0),
            (0, Op::Write, Status::Aborted, 4_096, 0),
            (3, Op::Write, Status::MediaError, 4_096, 1_536),
            (3, Op::Write, Status::MediaError, 1_536, 1_024),
            (3, Op::Write, Status::MediaError, 512, 0),
            (3, Op::Write, Status::Aborted, 4_096, 0),
            (3, Op::Discard, Status::MediaError, 4_096, 0),
        ] {
            let changes = &mut LateChanges::new(torn_sectors);
            let order = changes.arrived(0..len_bytes);
            let expected = if written_bytes > 0 { vec![(0, written_bytes)] } else { vec![] };
            assert_eq!(end(changes, order, op, status), expected, "{op} {torn_sectors} {len_bytes}");
        }
    }

    #[test]
    fn a_failed_change_overwrites_nothing_of_an_earlier_one() {
        let changes = &mut LateChanges::new(1);
        let [first, second] = [0..4_096, 0..4_096].map(|range| changes.arrived(range));
        assert_eq!(end(changes, second, Op::Write, Status::MediaError), [(0, 512)]);
        assert_eq!(end(changes, first, Op::Write, Status::Ok), [(512, 4_096)]);
        let [first, second] = [0..4_096, 0..4_096].map(|range| changes.arrived(range));
        changes.dropped(second);
        assert_eq!(end(changes, first, Op::Write, Status::Ok), [(0, 4_096)]);
    }
}
