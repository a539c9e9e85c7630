//! Common part of arrays and host queues: a device made of other devices.
//!
//! [`Composite`] is the whole [`DeviceModel`] of such a device. A [`Policy`] adds its particular behaviour: the
//! members' requests for a request, and the reaction to a member's completion. A policy never steps a member:
//!
//! ```text
//!  submit ──► Policy::arrive ──► Context::submit ──► (bus) ──► member
//!                                                                │ step to the smallest instant at which
//!                                                                ▼ a member may complete something
//!  step ◄─── Context::complete ◄── Policy::answer ◄── (bus) ◄── completion
//! ```
//!
//! At an instant, first all members that may complete something are stepped to it in the order of their numbers, then
//! the bus advances, then the policy gets the completions in that order, then its timer. This repeats until nothing is
//! left at that instant. A policy's submissions reach a member after everything due in it.
//!
//! A member without outstanding requests is left behind, and advanced when it gets a request or is asked for
//! statistics. By the contract this equals stepping it all the time. The steady state allocates no memory.

mod members;
mod slab;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Completion, EventQueue, Nanos, Request, RequestId, Status};

pub(crate) use members::Members;
pub(crate) use slab::Slab;

use crate::sector_set::SectorSet;
use crate::{DeviceInfo, DeviceModel, Probe, ZoneReport};

/// Behaviour of a particular composite on requests and on its members' completions.
///
/// It sees events in order and may keep state; a fork clones it.
pub(crate) trait Policy: Clone + Send + 'static {
    /// A request arrives.
    fn arrive(&mut self, request: Request, context: &mut Context<'_>);

    /// Takes the answer of member number `member` to the request that it got under `tag`.
    fn answer(&mut self, member: usize, tag: u64, status: Status, context: &mut Context<'_>);

    /// The instant of the next call of [`timer`](Self::timer), if no event comes before.
    fn next_timer(&self) -> Option<Nanos> {
        None
    }

    /// Runs at the instant of [`next_timer`](Self::next_timer); afterwards that must lie in the future.
    fn timer(&mut self, _context: &mut Context<'_>) {}

    /// The device begins with these zones; see [`DeviceModel::begin_with_zones`]. `None` if the member has the zones.
    fn begin_with_zones(&mut self, _zones: &[ZoneReport]) -> Option<bool> {
        None
    }

    /// The composite's volatile sectors at `now`; see [`DeviceModel::volatile`]. The members know the requests that
    /// they got, and the bus the requests on it. `None` if a member does not know, or the policy.
    fn volatile(&self, _now: Nanos, _members: &Members) -> Option<SectorSet> {
        None
    }

    /// Reports the policy's own statistics by name.
    fn probe(&self, _sink: &mut dyn Probe) {}
}

/// Actions of a policy.
pub(crate) struct Context<'a> {
    now: Nanos,
    members: &'a mut Members,
    due: &'a mut EventQueue<(RequestId, Status)>,
}

impl Context<'_> {
    /// The present instant.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Submits to a member; the completion comes back under `tag`, unique among the composite's outstanding requests.
    pub(crate) fn submit(&mut self, member: usize, tag: u64, request: Request) {
        self.members.submit(self.now, member, Request { id: RequestId(tag), ..request });
    }

    /// Whether a member may lose writes that have completed.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        self.members.has_volatile_cache()
    }

    /// The volatile sectors of a member; `None` if it does not know.
    pub(crate) fn volatile(&mut self, member: usize) -> Option<SectorSet> {
        self.members.volatile_after_step(self.now, member)
    }

    /// Completes a request of the host because of an answer: at this instant.
    pub(crate) fn complete(&mut self, id: RequestId, status: Status) {
        self.due.push(self.now, (id, status));
    }

    /// Completes a request of the host some time after an answer.
    pub(crate) fn complete_after(&mut self, delay: Nanos, id: RequestId, status: Status) {
        self.due.push(self.now.saturating_add(delay), (id, status));
    }

    /// Completes a request of the host that needs no member: at the earliest instant that the contract allows.
    pub(crate) fn complete_at_once(&mut self, id: RequestId, status: Status) {
        self.due.push(self.now.saturating_add(Nanos::from_nanos(1)), (id, status));
    }
}

/// A device made of other devices.
pub(crate) struct Composite<P> {
    info: Arc<DeviceInfo>,
    now: Nanos,
    outstanding: u32,
    members: Members,
    policy: P,
    due: EventQueue<(RequestId, Status)>,
}

impl<P: Policy> Composite<P> {
    /// An idle composite at instant zero; its members are new.
    pub(crate) fn new(info: DeviceInfo, members: Members, policy: P) -> Self {
        Composite { info: Arc::new(info), now: Nanos::ZERO, outstanding: 0, members, policy, due: EventQueue::new() }
    }

    /// The next instant with an event; [`Nanos::MAX`] if there is none.
    fn next_instant(&self) -> Nanos {
        let due = self.due.next_at().unwrap_or(Nanos::MAX);
        let timer = self.policy.next_timer().unwrap_or(Nanos::MAX);
        due.min(timer).min(self.members.next_instant())
    }

    /// Runs all events at `now`.
    fn run_instant(&mut self, completed: &mut Vec<Completion>) {
        while self.next_instant() <= self.now {
            self.members.run(self.now);
            let mut context = Context { now: self.now, members: &mut self.members, due: &mut self.due };
            while let Some(answer) = context.members.take_answer() {
                self.policy.answer(answer.member, answer.tag, answer.status, &mut context);
            }
            if self.policy.next_timer().is_some_and(|at| at <= self.now) {
                self.policy.timer(&mut context);
                assert!(self.policy.next_timer().is_none_or(|at| at > self.now), "a timer that was called is over");
            }
            while let Some((at, (id, status))) = self.due.pop_until(self.now) {
                self.outstanding -= 1;
                completed.push(Completion { id, at, status });
            }
        }
    }
}

impl<P: Policy> DeviceModel for Composite<P> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        self.outstanding
    }

    fn submit(&mut self, request: Request) {
        self.outstanding += 1;
        let mut context = Context { now: self.now, members: &mut self.members, due: &mut self.due };
        self.policy.arrive(request, &mut context);
    }

    fn next_event(&self) -> Option<Nanos> {
        Some(self.next_instant()).filter(|&at| at < Nanos::MAX)
    }

    fn completion_bound(&self) -> Option<Nanos> {
        // A completion here is already due, or follows a member's, the bus' or the timer's event.
        if self.outstanding > 0 { self.next_event() } else { None }
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let already = completed.len();
        loop {
            let next = self.next_instant();
            if next > limit {
                self.now = self.now.max(limit);
                return;
            }
            self.now = self.now.max(next);
            self.run_instant(completed);
            if completed.len() > already || self.now >= limit {
                return;
            }
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(Composite {
            info: Arc::clone(&self.info),
            now: self.now,
            outstanding: self.outstanding,
            members: self.members.fork(),
            policy: self.policy.clone(),
            due: self.due.clone(),
        })
    }

    fn begin_with_zones(&mut self, zones: &[ZoneReport]) -> bool {
        let of_policy = self.policy.begin_with_zones(zones);
        of_policy.unwrap_or_else(|| self.members.begin_with_zones(zones))
    }

    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        self.policy.volatile(self.now, &self.members).map(SectorSet::into_ranges)
    }

    fn probe(&self, sink: &mut dyn Probe) {
        self.policy.probe(sink);
        self.members.probe(self.now, sink);
    }
}
