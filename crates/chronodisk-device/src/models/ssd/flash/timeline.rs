//! Reservations of a bus or a link.

use chronodisk_sim::Nanos;

/// Busy intervals of a resource that serves one user at a time. A reservation takes the first gap that is long enough,
/// also before an earlier reservation, and is never moved afterwards.
///
/// Unlike a "busy until" instant, it lets ready data use gaps in front of data that become ready later. Only unfinished
/// intervals are kept, at most [`MOST`]: beyond that the first gap is given up.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    /// Beginning and end by time, apart from each other.
    intervals: [(u64, u64); MOST],
    len: u32,
    busy: u64,
}

/// Intervals kept: neighbours merge, so a busy bus has few.
const MOST: usize = 16;

impl Timeline {
    pub(crate) fn new() -> Self {
        Timeline { intervals: [(0, 0); MOST], len: 0, busy: 0 }
    }

    /// Reserves `length` in the first gap from `ready` on, and returns its beginning; `ready` is not before `now`.
    pub(crate) fn reserve(&mut self, now: Nanos, ready: Nanos, length: Nanos) -> Nanos {
        let (now, ready, length) = (now.as_nanos(), ready.as_nanos(), length.as_nanos());
        self.forget(now);
        if length == 0 {
            return Nanos::from_nanos(ready);
        }
        if self.len as usize == MOST {
            self.give_up_first_gap();
        }
        self.busy += length;
        let mut start = ready;
        let mut place = 0;
        let len = self.len as usize;
        while place < len {
            let (begin, end) = self.intervals[place];
            if start + length <= begin {
                break;
            }
            start = start.max(end);
            place += 1;
        }
        let end = start + length;
        let joins_before = place > 0 && self.intervals[place - 1].1 == start;
        let joins_after = place < len && self.intervals[place].0 == end;
        match (joins_before, joins_after) {
            (true, true) => {
                self.intervals[place - 1].1 = self.intervals[place].1;
                self.intervals.copy_within(place + 1..len, place);
                self.len -= 1;
            }
            (true, false) => self.intervals[place - 1].1 = end,
            (false, true) => self.intervals[place].0 = start,
            (false, false) => {
                self.intervals.copy_within(place..len, place + 1);
                self.intervals[place] = (start, end);
                self.len += 1;
            }
        }
        Nanos::from_nanos(start)
    }

    /// The end of the last reservation; an instant in the past if there is none.
    pub(crate) fn busy_until(&self) -> Nanos {
        Nanos::from_nanos(if self.len == 0 { 0 } else { self.intervals[self.len as usize - 1].1 })
    }

    /// Total reserved time.
    pub(crate) fn busy(&self) -> Nanos {
        Nanos::from_nanos(self.busy)
    }

    /// Drops finished intervals.
    fn forget(&mut self, now: u64) {
        let len = self.len as usize;
        let ended = self.intervals[..len].iter().take_while(|interval| interval.1 <= now).count();
        if ended > 0 {
            self.intervals.copy_within(ended..len, 0);
            self.len -= ended as u32;
        }
    }

    fn give_up_first_gap(&mut self) {
        let len = self.len as usize;
        self.intervals[1].0 = self.intervals[0].0;
        self.intervals.copy_within(1..len, 0);
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reserve(timeline: &mut Timeline, now: u64, ready: u64, length: u64) -> u64 {
        let nanos = Nanos::from_nanos;
        timeline.reserve(nanos(now), nanos(ready), nanos(length)).as_nanos()
    }

    #[test]
    fn gaps_are_filled_if_they_are_long_enough() {
        let mut bus = Timeline::new();
        assert_eq!(reserve(&mut bus, 0, 100, 50), 100);
        assert_eq!(reserve(&mut bus, 0, 0, 40), 0, "before the earlier one");
        assert_eq!(reserve(&mut bus, 0, 0, 70), 150, "the gap of 60 is too short");
        assert_eq!(reserve(&mut bus, 0, 10, 60), 40, "it fits exactly");
        assert_eq!(reserve(&mut bus, 0, 0, 1), 220);
        assert_eq!(reserve(&mut bus, 300, 300, 5), 300, "what has ended is forgotten");
        assert_eq!((bus.len, bus.busy().as_nanos()), (1, 226));
    }

    proptest! {
        #[test]
        fn reservations_never_overlap(
            steps in prop::collection::vec((0u64..30, 0u64..400, 1u64..40), 1..400),
        ) {
            let mut bus = Timeline::new();
            let (mut now, mut taken) = (0, Vec::new());
            for (passed, ahead, length) in steps {
                now += passed;
                let start = reserve(&mut bus, now, now + ahead, length);
                prop_assert!(start >= now + ahead);
                prop_assert!(taken.iter().all(|&(begin, end)| start + length <= begin || end <= start));
                taken.push((start, start + length));
                prop_assert!(bus.len as usize <= MOST);
                let kept = &bus.intervals[..bus.len as usize];
                prop_assert!(kept.iter().all(|(begin, end)| begin < end));
                prop_assert!(kept.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
        }
    }
}
