//! A drive's statistics.

use chronodisk_sim::{Nanos, Op, Request};

/// Counts since instant zero that no part keeps for itself.
#[derive(Clone, Debug)]
pub(super) struct SsdStatistics {
    pub(super) requests: [u64; Op::ALL.len()],
    pub(super) sectors: [u64; Op::ALL.len()],
    /// Completion minus arrival, by operation and by class of length: see [`class_of`].
    latencies: Vec<u64>,
    pub(super) bytes_from_memory: u64,
    pub(super) units_written: u64,
    pub(super) units_modified: u64,
    /// Time that commands waited for the mapping table.
    pub(super) mapping_wait: u64,
    pub(super) pages_programmed: u64,
}

/// Classes of a latency, sixteen for each doubling, up to 2^40 ns: a class is less than 6.25 % wide.
const CLASSES_PER_OP: usize = 16 * 37;

impl Default for SsdStatistics {
    fn default() -> Self {
        SsdStatistics {
            requests: [0; Op::ALL.len()],
            sectors: [0; Op::ALL.len()],
            latencies: vec![0; 2 * CLASSES_PER_OP],
            bytes_from_memory: 0,
            units_written: 0,
            units_modified: 0,
            mapping_wait: 0,
            pages_programmed: 0,
        }
    }
}

/// The row of latencies for an operation with data: an append counts as a write.
fn row_of(op: Op) -> usize {
    usize::from(op != Op::Read)
}

/// The class of a latency.
fn class_of(nanos: u64) -> usize {
    if nanos < 16 {
        return nanos as usize;
    }
    let doubling = nanos.ilog2() as usize - 3;
    let within = (nanos >> (doubling - 1)) as usize & 15;
    (doubling * 16 + within).min(CLASSES_PER_OP - 1)
}

/// The longest latency of a class.
fn longest_of(class: usize) -> u64 {
    let (doubling, within) = (class / 16, class as u64 % 16);
    if doubling == 0 { within } else { ((16 + within + 1) << (doubling - 1)) - 1 }
}

impl SsdStatistics {
    pub(super) fn complete(&mut self, request: &Request, latency: Nanos) {
        self.requests[request.op as usize] += 1;
        self.sectors[request.op as usize] += u64::from(request.sectors);
        if request.op.moves_data() {
            let first = row_of(request.op) * CLASSES_PER_OP;
            self.latencies[first + class_of(latency.as_nanos())] += 1;
        }
    }

    /// Reads, or writes with appends.
    pub(super) fn moved(&self, op: Op) -> u64 {
        let appends = if op == Op::Write { self.requests[Op::ZoneAppend as usize] } else { 0 };
        self.requests[op as usize] + appends
    }

    /// The latency that this number of a million requests do not exceed.
    pub(super) fn percentile(&self, op: Op, per_million: u64) -> u64 {
        let classes = &self.latencies[row_of(op) * CLASSES_PER_OP..][..CLASSES_PER_OP];
        let rank = (self.moved(op) * per_million).div_ceil(1_000_000);
        let mut passed = 0;
        for (class, count) in classes.iter().enumerate() {
            passed += count;
            if passed >= rank {
                return longest_of(class);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_at_most_the_longest_of_its_class_and_little_less() {
        for nanos in (0..2_000).chain([88_906, 1 << 20, (1 << 20) - 1, 3_000_000_000, 1 << 38]) {
            let class = class_of(nanos);
            let longest = longest_of(class);
            assert!(longest >= nanos && (longest - nanos) * 16 <= nanos.max(16), "{nanos}: {class} {longest}");
            assert_eq!(class_of(longest), class);
            assert_eq!(class_of(longest + 1), class + 1);
        }
    }
}
