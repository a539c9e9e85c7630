//! The completion for which each request of a trace waited.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use chronodisk_sim::{Nanos, RequestRecord};

/// For each record, in order of arrival, the last completion that the same issuer saw before it, and the time between
/// them: a closed loop keeps these pauses on any device. A request of an issuer without a completion arrives at its own
/// instant.
///
/// Issuers belong to one device. Records must be in order of arrival.
#[must_use]
pub fn dependences(records: &[RequestRecord]) -> Vec<(Option<usize>, Nanos)> {
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
            None => (None, record.arrival),
        });
        if record.is_completed() {
            under_way.push(Reverse((record.completed, index)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Lba, Op, Priority, Status};

    use super::*;

    fn record(issuer: u32, arrival: u64, completed: Option<u64>) -> RequestRecord {
        RequestRecord {
            device: 0,
            order: 0,
            op: Op::Read,
            fua: false,
            priority: Priority::Normal,
            lba: Lba(0),
            sectors: 8,
            queue: 0,
            issuer,
            arrival: Nanos::from_nanos(arrival),
            due: Nanos::MAX,
            completed: completed.map_or(Nanos::MAX, Nanos::from_nanos),
            status: Status::Ok,
            store_failed: false,
            stolen: false,
            model_time: Nanos::ZERO,
            store_time: Nanos::ZERO,
        }
    }

    #[test]
    fn each_issuer_waits_for_what_it_saw_last() {
        let records = [
            record(1, 10, Some(20)),
            record(2, 12, Some(90)),
            // While the first one is under way.
            record(1, 15, Some(40)),
            record(1, 25, None),
            record(1, 40, Some(50)),
            record(2, 95, Some(96)),
            record(3, 97, Some(98)),
        ];
        let found: Vec<_> = dependences(&records).into_iter().map(|(after, gap)| (after, gap.as_nanos())).collect();
        let (none, after) = (None, Some);
        assert_eq!(
            found,
            [(none, 10), (none, 12), (none, 15), (after(0), 5), (after(2), 0), (after(1), 5), (none, 97),]
        );
    }
}
