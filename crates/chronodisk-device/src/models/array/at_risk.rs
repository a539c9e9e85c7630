//! Sectors of a redundant array with data that no flush has made durable.
//!
//! An array also writes sectors without new data: the rest of a block that a request changes in part, and copies after
//! an error. Its members report those as volatile, although the array would lose no data with them. So the volatile
//! sectors of an array are those of its members that are at risk.

use std::ops::Range;

use chronodisk_sim::{Op, Request, RequestId, Status};

use crate::footprint;
use crate::sector_set::{SectorSet, changed, changes};

/// Fewest ranges that are searched for durable sectors.
const RANGES_MIN: usize = 1024;

/// The sectors at risk of an array whose members have a volatile cache.
#[derive(Clone, Debug)]
pub(super) struct AtRisk {
    sectors: SectorSet,
    /// Outstanding flushes and writes with force unit access.
    barriers: Vec<Barrier>,
    /// Number of ranges from which on durable sectors are searched.
    limit: usize,
}

/// A request whose completion makes data durable.
#[derive(Clone, Debug)]
struct Barrier {
    request: Request,
    /// Sectors that it does not make durable.
    newer: SectorSet,
}

impl AtRisk {
    pub(super) fn new() -> Self {
        AtRisk { sectors: SectorSet::EMPTY, barriers: Vec::new(), limit: RANGES_MIN }
    }

    /// Most memory in bytes while no flush is outstanding.
    pub(super) fn memory_bytes() -> u64 {
        footprint::array_bytes::<Range<u64>>(4 * RANGES_MIN as u64)
    }

    /// A request arrives. `outstanding` are the requests that arrived before and have not completed.
    pub(super) fn arrive<'a>(&mut self, request: Request, outstanding: impl Iterator<Item = &'a Request>) {
        if changes(request.op) {
            self.sectors.insert(changed(&request));
            self.barriers.iter_mut().for_each(|barrier| barrier.newer.insert(changed(&request)));
        }
        if request.op == Op::Flush {
            self.barriers.push(Barrier { request, newer: outstanding.map(changed).collect() });
        } else if request.fua && changes(request.op) {
            self.barriers.push(Barrier { request, newer: SectorSet::EMPTY });
        }
    }

    /// A request has completed.
    pub(super) fn complete(&mut self, id: RequestId, status: Status) {
        let Some(index) = self.barriers.iter().position(|barrier| barrier.request.id == id) else { return };
        let Barrier { request, newer } = self.barriers.swap_remove(index);
        if status != Status::Ok {
            return;
        }
        if request.op == Op::Flush {
            self.sectors = self.sectors.and(&newer);
            return;
        }
        // A newer write may be durable already.
        let newer = newer.and(&self.sectors);
        let still: Vec<_> = newer.within(changed(&request)).collect();
        self.sectors.remove(changed(&request));
        still.into_iter().for_each(|range| self.sectors.insert(range));
    }

    pub(super) fn sectors(&self) -> &SectorSet {
        &self.sectors
    }

    /// Whether the number of ranges has reached its limit, so that durable ones are to be searched and removed.
    pub(super) fn needs_search(&self) -> bool {
        self.sectors.ranges().len() >= self.limit
    }

    /// Removes sectors that are durable.
    pub(super) fn remove(&mut self, durable: &SectorSet) {
        durable.ranges().iter().for_each(|range| self.sectors.remove(range.clone()));
    }

    /// Keeps the sectors that are volatile.
    pub(super) fn keep(&mut self, volatile: &SectorSet) {
        self.sectors = self.sectors.and(volatile);
        self.limit = RANGES_MIN.max(2 * self.sectors.ranges().len());
    }
}
