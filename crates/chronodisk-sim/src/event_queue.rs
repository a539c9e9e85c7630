//! A queue of future events with a total, repeatable order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Nanos;

/// Events by instant; events of one instant leave in the order in which they were pushed.
///
/// Ties are broken by (time, sequence), so two runs that push the same events pop them in the
/// same order.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    next_sequence: u64,
}

/// The place of an event among all events of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventOrder {
    /// Instant of the event.
    pub at: Nanos,
    sequence: u64,
}

impl<E> EventQueue<E> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        EventQueue { heap: BinaryHeap::new(), next_sequence: 0 }
    }

    /// Adds an event that happens at `at`.
    pub fn push(&mut self, at: Nanos, event: E) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.heap.push(Reverse(Entry { at, sequence, event }));
    }

    /// A place in the order of the events of this instant, for an event that its owner keeps elsewhere.
    pub fn reserve(&mut self, at: Nanos) -> EventOrder {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        EventOrder { at, sequence }
    }

    /// The order of the first event.
    #[must_use]
    pub fn first(&self) -> Option<EventOrder> {
        self.heap.peek().map(|Reverse(entry)| EventOrder { at: entry.at, sequence: entry.sequence })
    }

    /// The instant of the first event.
    #[must_use]
    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// The earliest instant for an event's instant plus the least time needed after it, which `rest` returns. `None`
    /// without events.
    #[must_use]
    pub fn earliest_end(&self, rest: impl Fn(&E) -> Nanos) -> Option<Nanos> {
        self.heap.iter().map(|Reverse(entry)| entry.at.saturating_add(rest(&entry.event))).min()
    }

    /// Takes the first event if it happens at or before `limit`.
    pub fn pop_until(&mut self, limit: Nanos) -> Option<(Nanos, E)> {
        if self.next_at()? > limit {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }

    /// The events that wait, in no particular order.
    pub fn events(&self) -> impl Iterator<Item = &E> {
        self.heap.iter().map(|Reverse(entry)| &entry.event)
    }

    /// Number of events that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no event waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        EventQueue::new()
    }
}

#[derive(Clone, Debug)]
struct Entry<E> {
    at: Nanos,
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_end_need_not_be_the_first_events() {
        let mut queue = EventQueue::new();
        assert_eq!(queue.earliest_end(|_: &u64| Nanos::ZERO), None);
        for (at, rest) in [(3, 10), (5, 1), (6, 9)] {
            queue.push(Nanos::from_nanos(at), rest);
        }
        assert_eq!(queue.earliest_end(|rest| Nanos::from_nanos(*rest)), Some(Nanos::from_nanos(6)));
        assert_eq!(queue.next_at(), Some(Nanos::from_nanos(3)));
    }

    #[test]
    fn pops_by_time_then_by_sequence() {
        let mut queue = EventQueue::new();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            queue.push(Nanos::from_nanos(at), event);
        }
        let mut order = String::new();
        while let Some((_, event)) = queue.pop_until(Nanos::MAX) {
            order.push(event);
        }
        assert_eq!(order, "abcd");
    }

    #[test]
    fn reserved_events_keep_their_place() {
        let mut queue = EventQueue::new();
        queue.push(Nanos::from_nanos(5), 'a');
        let reserved = queue.reserve(Nanos::from_nanos(5));
        queue.push(Nanos::from_nanos(5), 'c');
        assert!(queue.first().unwrap() < reserved);
        queue.pop_until(Nanos::MAX);
        assert!(queue.first().unwrap() > reserved);
        assert_eq!(queue.first().unwrap().at, reserved.at);
    }

    #[test]
    fn pops_nothing_beyond_the_limit() {
        let mut queue = EventQueue::new();
        queue.push(Nanos::from_nanos(10), ());
        assert_eq!(queue.pop_until(Nanos::from_nanos(9)), None);
        assert_eq!(queue.pop_until(Nanos::from_nanos(10)), Some((Nanos::from_nanos(10), ())));
        assert!(queue.is_empty());
    }
}
