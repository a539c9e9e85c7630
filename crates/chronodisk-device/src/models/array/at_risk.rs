//! Sectors of a redundant array with data that no flush has made durable.
//!
//! An array also writes sectors without new data: the rest of a block that a request changes in part, and copies after
//! an error. Its members report those as volatile, although the array would lose no data with them. So the volatile
//! sectors of an array are those of its members that are at risk.

use std::ops::Range;

use chronodisk_sim::{Nanos, Op, Request, RequestId, Status};

use super::layout::MemberSet;
use super::policy::Array;
use crate::composite::{Context, Members};
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
    fn arrive<'a>(&mut self, request: Request, outstanding: impl Iterator<Item = &'a Request>) {
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

    /// Removes the sectors that are durable.
    fn keep(&mut self, volatile: &SectorSet) {
        self.sectors = self.sectors.and(volatile);
        self.limit = RANGES_MIN.max(2 * self.sectors.ranges().len());
    }
}

impl Array {
    /// Notes the sectors at risk at the arrival of a request.
    pub(super) fn note_risk(&mut self, request: Request, context: &mut Context<'_>) {
        if !context.has_volatile_cache() || !self.is_redundant() {
            return;
        }
        if self.at_risk.sectors.ranges().len() >= self.at_risk.limit {
            let there = self.holders(context.now());
            let of_member = |member| context.volatile(self.device(member));
            let Some(volatile) = self.volatile_in(there, of_member) else { return };
            self.at_risk.keep(&volatile);
        }
        self.at_risk.arrive(request, self.parents.iter().map(|parent| &parent.request));
    }

    /// Sectors of a member, from the first to before the second, are about to be written. `holders` are the members
    /// that have the array's data of these sectors. Data that are durable there stay durable.
    pub(super) fn rewrite(
        &mut self,
        member: usize,
        (start, end): (u64, u64),
        holders: MemberSet,
        context: &mut Context<'_>,
    ) {
        let mut durable: SectorSet = self.layout.origins(member, start..end).collect();
        if self.at_risk.sectors.is_empty() || durable.is_empty() {
            return;
        }
        let of_member = |member| context.volatile(self.device(member));
        let Some(volatile) = self.volatile_in(holders, of_member) else { return };
        volatile.ranges().iter().for_each(|range| durable.remove(range.clone()));
        durable.ranges().iter().for_each(|range| self.at_risk.sectors.remove(range.clone()));
    }

    /// The volatile sectors at `now`; `None` if a member does not know.
    pub(super) fn volatile_at(&self, now: Nanos, members: &Members) -> Option<SectorSet> {
        let there = self.holders(now);
        let of_member = |member| members.volatile(now, self.device(member));
        if !self.is_redundant() {
            return self.volatile_in(there, of_member);
        }
        let outstanding: SectorSet = self.parents.iter().map(|parent| changed(&parent.request)).collect();
        if !members.has_volatile_cache() {
            return Some(outstanding);
        }
        let volatile = self.volatile_in(there, of_member)?;
        Some(volatile.and(&self.at_risk.sectors))
    }

    /// The sectors of the array that are volatile in these members, and the new data of requests that are not done and
    /// have parity or wait for a rebuild.
    fn volatile_in(
        &self,
        holders: MemberSet,
        mut of_member: impl FnMut(usize) -> Option<SectorSet>,
    ) -> Option<SectorSet> {
        let has_parity = self.layout.has_parity();
        let unfinished =
            self.parents.iter().filter(|parent| has_parity || parent.held).map(|parent| changed(&parent.request));
        let mut ranges: Vec<_> = unfinished.collect();
        for member in holders.iter() {
            let volatile = of_member(member)?;
            ranges.extend(volatile.ranges().iter().flat_map(|range| self.layout.origins(member, range.clone())));
        }
        Some(ranges.into_iter().collect())
    }

    fn is_redundant(&self) -> bool {
        self.layout.copies() > 1 || self.layout.has_parity()
    }
}
