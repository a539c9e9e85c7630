//! The places of a host's queue, and the processes that wait for one.
//!
//! As in Linux up to 4.x (`get_request`, `get_request_wait` and `freed_request` in `block/ll_rw_blk.c` of 2.6.23, later
//! `blk-core.c`): reads and writes have `limit` places each. The process that takes the last one and every process that
//! has waited for one may go on for a batch of requests or a time, up to `limit_batching`; the others wait, first come,
//! first served. A process is a request's issuer; while it waits, its later requests wait behind.

use std::collections::VecDeque;

use chronodisk_sim::Nanos;

/// Numbers of places in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Places for all processes.
    pub(crate) limit: u32,
    /// Places for issuers with the privilege to batch.
    pub(crate) limit_batching: u32,
    /// Requests of a batch.
    pub(crate) batch_requests: u32,
    /// Duration of the privilege after the first use of the batch.
    pub(crate) batch_time: Nanos,
}

/// The places of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    limits: Limits,
    used: u32,
    full: bool,
    batchers: Vec<Batcher>,
    waiting: VecDeque<Process>,
}

#[derive(Clone, Copy, Debug)]
struct Batcher {
    issuer: u32,
    left: u32,
    until: Nanos,
}

/// A waiting process, with the numbers of its first and last request. The owner links the requests between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) issuer: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Line {
    pub(crate) fn new(limits: Limits) -> Self {
        Line { limits, used: 0, full: false, batchers: Vec::new(), waiting: VecDeque::new() }
    }

    /// Places in use.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// The process of this issuer, if it waits.
    pub(crate) fn waiting(&mut self, issuer: u32) -> Option<&mut Process> {
        self.waiting.iter_mut().find(|process| process.issuer == issuer)
    }

    /// Puts a process at the end of the line.
    pub(crate) fn wait(&mut self, process: Process) {
        self.waiting.push_back(process);
    }

    /// Takes a place for a request of `issuer`, if it may have one.
    pub(crate) fn take_place(&mut self, now: Nanos, issuer: u32) -> bool {
        let Limits { limit, limit_batching, .. } = self.limits;
        self.batchers.retain(|batcher| batcher.lasts(now, &self.limits));
        if self.used + 1 >= limit {
            if !self.full {
                self.full = true;
                self.privilege(now, issuer);
            } else if !self.batchers.iter().any(|batcher| batcher.issuer == issuer) {
                return false;
            }
            if self.used >= limit_batching {
                return false;
            }
        }
        self.used += 1;
        if let Some(batcher) = self.batchers.iter_mut().find(|batcher| batcher.issuer == issuer) {
            batcher.left = batcher.left.saturating_sub(1);
        }
        true
    }

    /// A place is free again; returns the process that gets its turn, which has the privilege to batch then.
    pub(crate) fn free_place(&mut self, now: Nanos) -> Option<Process> {
        self.used -= 1;
        if self.used + 1 > self.limits.limit {
            return None;
        }
        self.full = false;
        let process = self.waiting.pop_front()?;
        self.privilege(now, process.issuer);
        Some(process)
    }

    fn privilege(&mut self, now: Nanos, issuer: u32) {
        let Limits { batch_requests: left, batch_time, .. } = self.limits;
        let fresh = Batcher { issuer, left, until: now.saturating_add(batch_time) };
        match self.batchers.iter_mut().find(|batcher| batcher.issuer == issuer) {
            Some(batcher) => *batcher = fresh,
            None => self.batchers.push(fresh),
        }
    }
}

impl Batcher {
    fn lasts(&self, now: Nanos, limits: &Limits) -> bool {
        self.left == limits.batch_requests || (self.left > 0 && now < self.until)
    }
}
