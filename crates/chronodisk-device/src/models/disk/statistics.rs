//! Counters of a drive.

use chronodisk_sim::{Op, Request};

use super::controller::Hit;
use super::mechanics::{Ticks, nanos};
use crate::Probe;

/// Counts since instant zero.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskStatistics {
    requests: [u64; Op::ALL.len()],
    sectors: [u64; 2],
    hits: [u64; 5],
    /// Accesses to the medium for requests, their seek distances and times, and how long the platter turned first.
    pub(super) accesses: u64,
    pub(super) seek_cylinders: u64,
    pub(super) seek_time: Ticks,
    pub(super) rotation_time: Ticks,
    pub(super) prefetches_stopped: u64,
    pub(super) disconnects: u64,
    /// How often jobs that stood in each other's way had to start over.
    pub(super) started_over: u64,
}

impl DiskStatistics {
    pub(super) fn count(&mut self, request: &Request) {
        self.requests[request.op as usize] += 1;
        if request.op.moves_data() {
            self.sectors[usize::from(request.op == Op::Write)] += u64::from(request.sectors);
        }
    }

    pub(super) fn count_hit(&mut self, hit: Hit, write: bool) {
        let kind = match hit {
            Hit::Whole => 0,
            Hit::Partial => 1,
            Hit::Append => 3,
            Hit::Miss | Hit::Collision if write => 4,
            Hit::Miss | Hit::Collision => 2,
        };
        self.hits[kind] += 1;
    }

    pub(super) fn tell(&self, sink: &mut dyn Probe) {
        let names = ["read-requests", "write-requests", "flush-requests", "discard-requests", "write-zeroes-requests"];
        for (name, count) in names.into_iter().zip(self.requests) {
            sink.counter(name, count);
        }
        sink.counter("read-sectors", self.sectors[0]);
        sink.counter("write-sectors", self.sectors[1]);
        let names = ["read-hits", "read-partial-hits", "read-misses", "write-appends", "write-misses"];
        for (name, count) in names.into_iter().zip(self.hits) {
            sink.counter(name, count);
        }
        sink.counter("read-aheads-stopped", self.prefetches_stopped);
        sink.counter("disconnects", self.disconnects);
        sink.counter("started-over", self.started_over);
        sink.counter("accesses", self.accesses);
        sink.counter("seek-cylinders", self.seek_cylinders);
        sink.counter("seek-nanoseconds", nanos(self.seek_time).as_nanos());
        sink.counter("rotation-nanoseconds", nanos(self.rotation_time).as_nanos());
        let mean = |sum: u64| if self.accesses == 0 { 0.0 } else { sum as f64 / self.accesses as f64 };
        sink.gauge("mean-seek-distance", "cylinders", mean(self.seek_cylinders));
        sink.gauge("mean-seek-time", "ns", mean(nanos(self.seek_time).as_nanos()));
        sink.gauge("mean-rotational-latency", "ns", mean(nanos(self.rotation_time).as_nanos()));
    }
}
