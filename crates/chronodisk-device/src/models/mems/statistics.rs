//! Statistics of a MEMS device.

use chronodisk_sim::{Op, Request};

use super::seek::{FEMTOS_PER_NANO, Femtos, Seek};
use crate::Probe;

/// Counts since instant zero; a request counts when it arrives.
#[derive(Clone, Debug, Default)]
pub(super) struct MemsStatistics {
    requests: [u64; Op::ALL.len()],
    read_sectors: u64,
    write_sectors: u64,
    /// Rows that were sought.
    seeks: u64,
    seek_time: Femtos,
    seek_time_x: Femtos,
    seek_time_y: Femtos,
    turnarounds: u64,
    /// Starts out of the parking place.
    pub(super) starts: u64,
    /// Passes of a write over its row before its data had come.
    pub(super) vain_passes: u64,
    pub(super) buffer_hits: u64,
}

impl MemsStatistics {
    pub(super) fn count(&mut self, request: &Request) {
        self.requests[request.op as usize] += 1;
        match request.op {
            Op::Read => self.read_sectors += u64::from(request.sectors),
            Op::Write => self.write_sectors += u64::from(request.sectors),
            _ => {}
        }
    }

    pub(super) fn seek(&mut self, seek: &Seek) {
        self.seeks += 1;
        self.seek_time += seek.time;
        self.seek_time_x += seek.time_x;
        self.seek_time_y += seek.time_y;
        self.turnarounds += u64::from(seek.turns);
    }

    pub(super) fn tell(&self, sink: &mut dyn Probe) {
        let nanos = |femtos: Femtos| u64::try_from(femtos / FEMTOS_PER_NANO).unwrap_or(u64::MAX);
        for (op, name) in Op::ALL.into_iter().zip(REQUEST_NAMES) {
            sink.counter(name, self.requests[op as usize]);
        }
        sink.counter("read-sectors", self.read_sectors);
        sink.counter("write-sectors", self.write_sectors);
        sink.counter("row-seeks", self.seeks);
        sink.counter("seek-time-ns", nanos(self.seek_time));
        sink.counter("seek-time-x-ns", nanos(self.seek_time_x));
        sink.counter("seek-time-y-ns", nanos(self.seek_time_y));
        sink.counter("turnarounds", self.turnarounds);
        sink.counter("sled-starts", self.starts);
        sink.counter("vain-passes", self.vain_passes);
        sink.counter("buffer-hits", self.buffer_hits);
    }
}

/// In the order of [`Op::COMMON`].
const REQUEST_NAMES: [&str; Op::COMMON.len()] =
    ["read-requests", "write-requests", "flush-requests", "discard-requests", "write-zeroes-requests"];
