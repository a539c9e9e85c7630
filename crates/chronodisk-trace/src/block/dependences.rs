//! Which completion a request of a trace waited for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use chronodisk_sim::{Nanos, RequestRecord};

/// For each record, in order of arrival, the completion that the same issuer saw last before it, and the time between
/// them: a closed loop keeps these pauses, whatever the device takes. A request of an issuer that has seen none begins
/// with the trace, after its time since then.
///
/// Each device's issuers are others. Records must be in order of arrival.
#[must_use]
pub fn dependences(records: &[RequestRecord]) -> Vec<(Option<usize>, Nanos)> {
    let begin = records.first().map_or(Nanos::ZERO, |record| record.arrival);
    let mut under_way: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
    let mut seen_last: BTreeMap<(u16, u32), (usize, Nanos)> = BTreeMap::new();
    let issuer = |record: &RequestRecord| (record.device, record.issuer);
    let mut found = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        while let Some(&Reverse((completed, done))) = under_way.peek()
            && completed <= record.arrival
        {
            under_way.pop();
            seen_last.insert(issuer(&records[done]), (done, completed));
        }
        found.push(match seen_last.get(&issuer(record)) {
            Some(&(done, completed)) => (Some(done), record.arrival - completed),
            None => (None, record.arrival.saturating_sub(begin)),
        });
        if record.is_completed() {
            under_way.push(Reverse((record.completed, index)));
        }
    }
    found
}
