//! CPU time that several processors spent at once, which a guest's single processor spends one after the other.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;

use super::record::CallRecord;

/// CPU time of a trace that would collide on a single processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collisions {
    /// CPU time of all tasks; gaps stand for times that are not known.
    pub cpu: Nanos,
    /// The excess over one processor.
    pub excess: Nanos,
}

/// Parts of a processor.
const WHOLE: u64 = 1 << 20;

/// Assumes that a task uses a processor evenly between the instants at which its CPU time was read.
#[must_use]
pub fn collisions(records: &[CallRecord]) -> Collisions {
    // Changes of the number of busy processors, in fractions, by instant.
    let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
    let mut total = Nanos::ZERO;
    let mut add = |begin: Nanos, end: Nanos, cpu: Option<Nanos>| {
        let length = end.saturating_sub(begin).as_nanos();
        let cpu = cpu.map_or(length, |cpu| cpu.as_nanos().min(length));
        if cpu == 0 {
            return;
        }
        total = total.saturating_add(Nanos::from_nanos(cpu));
        let parts = (u128::from(cpu) * u128::from(WHOLE) / u128::from(length)) as i64;
        *changes.entry(begin.as_nanos()).or_default() += parts;
        *changes.entry(end.as_nanos()).or_default() -= parts;
    };
    let mut returned: BTreeMap<u32, Nanos> = BTreeMap::new();
    for record in records {
        if let Some(child) = record.child() {
            returned.insert(child, record.entry);
        }
        if let Some(before) = returned.get(&record.task) {
            add(*before, record.entry, record.user_cpu);
        }
        if let (Some(exit), Some(cpu)) = (record.exit, record.kernel_cpu) {
            add(record.entry, exit, Some(cpu));
        }
        returned.insert(record.task, record.exit.unwrap_or(record.entry));
    }
    let (mut before, mut parts, mut excess) = (0, 0i64, 0u128);
    for (at, change) in changes {
        let above = (parts - WHOLE as i64).max(0) as u128;
        excess += u128::from(at - before) * above;
        (before, parts) = (at, parts.saturating_add(change));
    }
    let excess = u64::try_from(excess / u128::from(WHOLE)).unwrap_or(u64::MAX);
    Collisions { cpu: total, excess: Nanos::from_nanos(excess) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(task: u32, entry: u64, exit: u64, user: Option<u64>, kernel: Option<u64>) -> CallRecord {
        CallRecord {
            exit: Some(Nanos::from_nanos(exit)),
            result: Some(0),
            user_cpu: user.map(Nanos::from_nanos),
            kernel_cpu: kernel.map(Nanos::from_nanos),
            ..CallRecord::new(task, "read".parse().unwrap(), Nanos::from_nanos(entry))
        }
    }

    #[test]
    fn only_what_exceeds_one_processor_collides() {
        let micro = 1_000_000;
        // Both tasks compute from 0 to 100 and then wait.
        let both = [
            record(1, 0, 0, None, Some(0)),
            record(2, 0, 0, None, Some(0)),
            record(1, 100 * micro, 200 * micro, Some(100 * micro), Some(0)),
            record(2, 100 * micro, 200 * micro, Some(100 * micro), Some(0)),
        ];
        let found = collisions(&both);
        assert_eq!((found.cpu.as_nanos(), found.excess.as_nanos()), (200 * micro, 100 * micro));
        // The tasks compute one after the other.
        let turns = [
            record(1, 0, 0, None, Some(0)),
            record(2, 0, 100 * micro, None, Some(0)),
            record(1, 100 * micro, 200 * micro, Some(100 * micro), Some(0)),
            record(2, 200 * micro, 300 * micro, Some(100 * micro), Some(0)),
        ];
        assert_eq!(collisions(&turns).excess, Nanos::ZERO);
        // Half of a processor each, in the kernel.
        let halves =
            [record(1, 0, 100 * micro, None, Some(50 * micro)), record(2, 0, 100 * micro, None, Some(50 * micro))];
        assert_eq!(collisions(&halves).excess, Nanos::ZERO);
        assert_eq!(collisions(&halves).cpu.as_nanos(), 100 * micro);
    }

    #[test]
    fn a_gap_stands_for_a_time_that_is_not_known() {
        let gaps = [
            record(1, 0, 0, None, None),
            record(2, 0, 0, None, None),
            record(1, 1000, 1000, None, None),
            record(2, 1000, 1000, None, None),
        ];
        assert_eq!(collisions(&gaps).excess.as_nanos(), 1000);
    }
}
