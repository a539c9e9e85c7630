//! The limiter: its two queues, and the completions that wait for their delay.

use std::collections::VecDeque;
use std::sync::Arc;

use chronodisk_sim::{Nanos, Op, RandomStream, Request, RequestId, Status};

use super::bucket::Bucket;
use super::{Limits, Scope, Unit};
use crate::Probe;
use crate::composite::{Context, Members, Policy, Slab};
use crate::sector_set::{SectorSet, changed};

/// Numbers of the two queues: reads, and all other requests with an address.
const READS: usize = 0;
const WRITES: usize = 1;

/// The limits, and the requests that wait for them.
#[derive(Clone, Debug)]
pub(super) struct Limiter {
    limits: Arc<Limits>,
    /// In the order of the parameters.
    buckets: Vec<Bucket>,
    queues: [VecDeque<Waiting>; 2],
    arrivals: u64,
    /// Requests in the device by the device's numbers.
    inside: Slab<(RequestId, Op)>,
    stream: RandomStream,
    delayed: u64,
    waited: Nanos,
    delay: Nanos,
}

/// A request that waits for limits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    arrival: Nanos,
    order: u64,
}

impl Limiter {
    /// An idle limiter.
    pub(super) fn new(limits: Arc<Limits>, seed: u64) -> Self {
        Limiter {
            buckets: limits.buckets.iter().map(|(_, _, bucket)| *bucket).collect(),
            limits,
            queues: [VecDeque::new(), VecDeque::new()],
            arrivals: 0,
            inside: Slab::new(),
            stream: RandomStream::new(seed, "limits", "delay"),
            delayed: 0,
            waited: Nanos::ZERO,
            delay: Nanos::ZERO,
        }
    }

    /// The instant at which the first request of a queue may pass; [`Nanos::MAX`] for an empty queue.
    fn opens_at(&self, queue: usize) -> Nanos {
        if self.queues[queue].is_empty() {
            return Nanos::MAX;
        }
        let of_queue = self.limits.buckets.iter().zip(&self.buckets).filter(|((scope, ..), _)| scope.has(queue));
        of_queue.fold(Nanos::ZERO, |opens, (_, bucket)| opens.max(bucket.opens_at()))
    }

    /// Passes all requests on that may enter the device now; of two that may, the one that arrived first.
    fn release(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        loop {
            let may_pass = |queue: &usize| self.opens_at(*queue) <= now;
            let first = |queue: &usize| self.queues[*queue].front().map_or(u64::MAX, |waiting| waiting.order);
            let Some(queue) = [READS, WRITES].into_iter().filter(may_pass).min_by_key(first) else { return };
            let Some(Waiting { request, arrival, .. }) = self.queues[queue].pop_front() else { return };
            for ((scope, unit, _), bucket) in self.limits.buckets.iter().zip(&mut self.buckets) {
                if scope.has(queue) {
                    bucket.take(now, self.limits.cost(*unit, &request));
                }
            }
            if now > arrival {
                self.delayed += 1;
                self.waited = self.waited.saturating_add(now - arrival);
            }
            self.enter(request, context);
        }
    }

    fn enter(&mut self, request: Request, context: &mut Context<'_>) {
        let inside = self.inside.insert((request.id, request.op));
        context.submit(0, u64::from(inside), request);
    }
}

impl Limits {
    /// The tokens that a request takes.
    fn cost(&self, unit: Unit, request: &Request) -> u64 {
        let len_bytes = match request.op {
            Op::Read | Op::Write | Op::ZoneAppend => request.len_bytes(),
            _ => 0,
        };
        match unit {
            Unit::Bytes => len_bytes,
            Unit::Requests => self.request_bytes.map_or(1, |size| len_bytes.div_ceil(size).max(1)),
        }
    }
}

impl Scope {
    /// Whether the limit counts the requests of a queue.
    fn has(self, queue: usize) -> bool {
        match self {
            Scope::Reads => queue == READS,
            Scope::Writes => queue == WRITES,
            Scope::Both => true,
        }
    }
}

impl Policy for Limiter {
    fn arrive(&mut self, request: Request, context: &mut Context<'_>) {
        let queue = match request.op {
            Op::Flush => return self.enter(request, context),
            Op::Read => READS,
            _ => WRITES,
        };
        self.queues[queue].push_back(Waiting { request, arrival: context.now(), order: self.arrivals });
        self.arrivals += 1;
        self.release(context);
    }

    fn answer(&mut self, _member: usize, tag: u64, status: Status, context: &mut Context<'_>) {
        let (id, op) = self.inside.take(u32::try_from(tag).expect("a number that the slab gave"));
        let delay = match op {
            Op::Read => &self.limits.read_delay,
            Op::Flush => &self.limits.flush_delay,
            _ => &self.limits.write_delay,
        };
        let delay = delay.as_ref().map_or(Nanos::ZERO, |delay| delay.draw(&mut self.stream));
        self.delay = self.delay.saturating_add(delay);
        context.complete_after(delay, id, status);
    }

    fn next_timer(&self) -> Option<Nanos> {
        Some(self.opens_at(READS).min(self.opens_at(WRITES))).filter(|&at| at < Nanos::MAX)
    }

    fn timer(&mut self, context: &mut Context<'_>) {
        self.release(context);
    }

    fn volatile(&self, now: Nanos, members: &Members) -> Option<SectorSet> {
        let mut volatile = members.volatile(now, 0)?;
        self.queues[WRITES].iter().for_each(|waiting| volatile.insert(changed(&waiting.request)));
        Some(volatile)
    }

    fn probe(&self, sink: &mut dyn Probe) {
        sink.counter("limited-requests", self.delayed);
        sink.counter("limit-wait-time-ns", self.waited.as_nanos());
        sink.counter("added-delay-ns", self.delay.as_nanos());
    }
}
