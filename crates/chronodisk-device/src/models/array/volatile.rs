//! The volatile sectors of an array, from its members' and from the sectors at risk.

use chronodisk_sim::{Nanos, Request};

use super::layout::MemberSet;
use super::policy::Array;
use crate::composite::{Context, Members};
use crate::sector_set::{SectorSet, changed};

impl Array {
    /// Notes the sectors at risk at the arrival of a request.
    pub(super) fn note_risk(&mut self, request: Request, context: &mut Context<'_>) {
        if !context.has_volatile_cache() || !self.is_redundant() {
            return;
        }
        if self.at_risk.needs_search() {
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
        if self.at_risk.sectors().is_empty() || durable.is_empty() {
            return;
        }
        let of_member = |member| context.volatile(self.device(member));
        let Some(volatile) = self.volatile_in(holders, of_member) else { return };
        volatile.ranges().iter().for_each(|range| durable.remove(range.clone()));
        self.at_risk.remove(&durable);
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
        Some(volatile.and(self.at_risk.sectors()))
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
