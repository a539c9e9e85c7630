//! The statistics of a drive and of its parts, by name.

use chronodisk_sim::Op;

use super::device::Ssd;
use crate::Probe;

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
        if self.ftl.has_zones() {
            let (open, active) = self.ftl.zones().in_use();
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
