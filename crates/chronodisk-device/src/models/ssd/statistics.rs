//! A drive's statistics.

use chronodisk_sim::{Nanos, Op, Request};

use super::device::Ssd;
use crate::Probe;

/// Counts since instant zero that no part keeps for itself.
#[derive(Clone, Debug)]
pub(super) struct SsdStatistics {
    requests: [u64; Op::ALL.len()],
    sectors: [u64; Op::ALL.len()],
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
    fn moved(&self, op: Op) -> u64 {
        let appends = if op == Op::Write { self.requests[Op::ZoneAppend as usize] } else { 0 };
        self.requests[op as usize] + appends
    }

    /// The latency that this number of a million requests do not exceed.
    fn percentile(&self, op: Op, per_million: u64) -> u64 {
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

impl Ssd {
    pub(super) fn tell(&self, sink: &mut dyn Probe) {
        let statistics = &self.statistics;
        for (op, [requests, sectors]) in Op::ALL.into_iter().zip(NAMES) {
            if op.is_for_zones() && !self.ftl.has_zones() {
                break;
            }
            sink.counter(requests, statistics.requests[op as usize]);
            if !sectors.is_empty() {
                sink.counter(sectors, statistics.sectors[op as usize]);
            }
        }
        for (op, names) in [Op::Read, Op::Write].into_iter().zip(PERCENTILES) {
            if statistics.moved(op) > 0 {
                for (name, per_million) in names.into_iter().zip([500_000, 900_000, 990_000, 999_000, 999_900]) {
                    sink.gauge(name, "us", statistics.percentile(op, per_million) as f64 / 1e3);
                }
            }
        }
        self.tell_flash(sink);
        self.tell_delays(sink);
    }

    fn tell_flash(&self, sink: &mut dyn Probe) {
        let (statistics, counters) = (&self.statistics, self.ftl.counters());
        let (flash, mapping) = (self.flash.statistics(), self.mapping_reads.counts());
        for (name, value) in [
            ("bytes-read-from-memory", statistics.bytes_from_memory),
            ("units-read-ahead", self.read_ahead.units_found()),
            ("units-written", statistics.units_written),
            ("units-read-to-modify", statistics.units_modified),
            ("mapping-reads", mapping.reads),
            ("mapping-written-back", mapping.written_back),
            ("flash-reads", flash.works[0]),
            ("flash-programs", flash.works[1]),
            ("flash-pages-programmed", statistics.pages_programmed),
            ("flash-erases", flash.works[2]),
            ("flash-suspensions", flash.suspensions),
            ("collections", counters.collections),
            ("collected-valid-units", self.collector.collected_valid()),
            ("moved-units", counters.moved_units),
            ("wear-levellings", counters.levellings),
            ("levelled-units", counters.levelled_units),
            ("units-written-to-slc", counters.cached_units),
            ("units-moved-from-slc", counters.emptied_units),
            ("slc-superblocks-emptied", counters.emptyings),
            ("log-blocks-merged", counters.merges),
            ("log-blocks-merged-in-part", counters.partial_merges),
            ("log-blocks-switched", counters.switches),
            ("unused-units", counters.unused_units),
            ("padded-units", counters.padded_units),
            ("trimmed-units", counters.trimmed_units),
        ] {
            sink.counter(name, value);
        }
        sink.gauge("write-amplification", "", counters.write_amplification());
        let geometry = self.parameters.geometry();
        let free: u32 = (0..geometry.dies()).map(|die| self.ftl.free_superblocks(die)).sum();
        sink.gauge("free-superblocks-per-die", "", f64::from(free) / f64::from(geometry.dies()));
        if self.parameters.ftl.slc_cache.is_some() {
            let free: u32 = (0..geometry.dies()).map(|die| self.ftl.free_slc_superblocks(die)).sum();
            sink.gauge("free-slc-superblocks-per-die", "", f64::from(free) / f64::from(geometry.dies()));
        }
        if let Some((open, active)) = self.ftl.zones_in_use() {
            sink.gauge("open-zones", "", f64::from(open));
            sink.gauge("active-zones", "", f64::from(active));
        }
        sink.gauge("erases-per-superblock", "", counters.erases as f64 / f64::from(geometry.superblocks()));
        let elapsed = self.now.as_nanos().max(1) as f64;
        let share = |busy: u64, of: u32| 100.0 * busy as f64 / (elapsed * f64::from(of));
        sink.gauge("die-utilisation", "%", share(flash.die_busy, geometry.dies()));
        sink.gauge("bus-utilisation", "%", share(self.flash.bus_busy(), geometry.channels));
        let (links, output) = self.front.busy_ns();
        sink.gauge("link-from-host-utilisation", "%", share(links[0], 1));
        sink.gauge("link-to-host-utilisation", "%", share(links[1], 1));
        sink.gauge("output-utilisation", "%", share(output, 1));
    }

    /// Waiting times of requests by cause, summed over all requests.
    fn tell_delays(&self, sink: &mut dyn Probe) {
        let flash = self.flash.statistics();
        let (waits, buffer) = (self.front.waits(), self.admission.waits());
        for (name, value) in [
            ("wait-for-die-ns", flash.die_wait),
            ("wait-for-collector-ns", flash.collector_wait),
            ("wait-for-bus-ns", flash.bus_wait),
            ("wait-for-mapping-ns", self.statistics.mapping_wait),
            ("wait-for-buffer-ns", buffer.nanos),
            ("wait-for-link-ns", waits.link_ns),
            ("wait-for-processor-ns", waits.processor_ns),
            ("wait-for-output-ns", waits.output_ns),
        ] {
            sink.counter(name, value);
        }
        sink.counter("writes-held-back", buffer.held_back);
    }
}

/// Names of the counts of requests and of sectors, in the order of [`Op::ALL`].
const NAMES: [[&str; 2]; Op::ALL.len()] = [
    ["read-requests", "read-sectors"],
    ["write-requests", "write-sectors"],
    ["flush-requests", ""],
    ["discard-requests", "discard-sectors"],
    ["write-zeroes-requests", "write-zeroes-sectors"],
    ["zone-append-requests", "zone-append-sectors"],
    ["zone-reset-requests", ""],
    ["zone-open-requests", ""],
    ["zone-close-requests", ""],
    ["zone-finish-requests", ""],
];

const PERCENTILES: [[&str; 5]; 2] = [
    ["read-latency-p50", "read-latency-p90", "read-latency-p99", "read-latency-p99.9", "read-latency-p99.99"],
    ["write-latency-p50", "write-latency-p90", "write-latency-p99", "write-latency-p99.9", "write-latency-p99.99"],
];

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
