//! Requests that a coarse clock put at one instant, at instants of their own.

use chronodisk_sim::{Nanos, RandomStream, RequestRecord};

/// Spreads requests with equal time stamps over the resolution of their clock, in their order.
///
/// The instants are uniform, because only the time stamp of a request is known. Equal seeds give equal instants.
#[derive(Debug)]
pub struct Spread {
    random: RandomStream,
    resolution_ns: u64,
    /// Records with the latest time stamp.
    waiting: Vec<RequestRecord>,
}

impl Spread {
    /// Spreads over a clock's resolution.
    #[must_use]
    pub fn new(resolution_ns: u64, seed: u64) -> Self {
        Spread { random: RandomStream::new(seed, "trace", "spread of time stamps"), resolution_ns, waiting: Vec::new() }
    }

    /// Takes records, and replaces them by those with final instants.
    pub fn spread(&mut self, records: &mut Vec<RequestRecord>) {
        let mut done = Vec::with_capacity(records.len());
        for record in records.drain(..) {
            if self.waiting.first().is_some_and(|first| first.arrival != record.arrival) {
                self.finish(&mut done);
            }
            self.waiting.push(record);
        }
        *records = done;
    }

    /// Adds the rest.
    pub fn finish(&mut self, records: &mut Vec<RequestRecord>) {
        let mut instants: Vec<u64> = self.waiting.iter().map(|_| self.random.below(self.resolution_ns)).collect();
        instants.sort_unstable();
        for (mut record, ns) in self.waiting.drain(..).zip(instants) {
            let after = Nanos::from_nanos(ns);
            record.arrival += after;
            if record.is_completed() {
                record.completed += after;
            }
            records.push(record);
        }
    }
}
