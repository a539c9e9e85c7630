//! Devices that serve requests in order of arrival on one or more channels.
//!
//! [`QueuedDevice`] is the complete [`DeviceModel`] of such a device: one queue, N channels (or one per request),
//! completions in order of their instants. A [`Service`] adds the particular device: the time for which a request
//! occupies its channel. A device that chooses among waiting requests, has background work or preempts implements
//! [`DeviceModel`] itself.
//!
//! Because of the order of arrival, and because a service depends only on the past, the instant of a request's end is
//! known at its arrival; the only events are completions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Completion, EventQueue, Nanos, Op, Request, RequestId, Status};

use crate::sector_set::{SectorSet, changes};
use crate::{DeviceInfo, DeviceModel, Probe};

/// Service of a particular device, once a channel is free for a request.
///
/// The service sees every request once, in order of arrival, and may keep state between them (an arm's position, a busy
/// bus); a fork clones it.
pub trait Service: Clone + Send + 'static {
    /// The instant at which `request`, which begins service at `start`, leaves the device.
    ///
    /// `others` is the number of other requests in service at `start`; 0 unless [`COUNTS_OTHERS`](Self::COUNTS_OTHERS).
    /// [`COUNTS_OTHERS`](Self::COUNTS_OTHERS).
    ///
    /// An answer that is not after `start` is taken as 1 ns after it.
    fn end(&mut self, request: &Request, start: Nanos, others: u32) -> Nanos;

    /// Whether the service depends on how many requests are in service; counting them takes time.
    const COUNTS_OTHERS: bool = false;

    /// Reports the service's own statistics by name.
    fn probe(&self, _sink: &mut dyn Probe) {}
}

/// A device with one queue in front of N channels, first come, first served.
#[derive(Clone, Debug)]
pub struct QueuedDevice<S> {
    info: Arc<DeviceInfo>,
    service: S,
    now: Nanos,
    channels: Channels,
    due: EventQueue<Due>,
    statistics: QueueStatistics,
}

/// A completion on its way.
#[derive(Clone, Copy, Debug)]
struct Due {
    id: RequestId,
    /// The sectors that the request changes.
    first: u64,
    sectors: u32,
    status: Status,
}

impl<S: Service> QueuedDevice<S> {
    /// An idle device at instant zero. `channels` requests are served at once, without a limit if `None`.
    /// # Panics
    /// If `channels` is zero.
    #[must_use]
    pub fn new(info: DeviceInfo, channels: Option<u32>, service: S) -> Self {
        QueuedDevice {
            info: Arc::new(info),
            service,
            now: Nanos::ZERO,
            channels: Channels::new(channels),
            due: EventQueue::new(),
            statistics: QueueStatistics::default(),
        }
    }
}

impl<S: Service> DeviceModel for QueuedDevice<S> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        u32::try_from(self.due.len()).expect("fewer than 2^32 requests are outstanding")
    }

    fn submit(&mut self, request: Request) {
        let start = self.channels.first_free().max(self.now);
        let others = if S::COUNTS_OTHERS { self.channels.busy_at(start) } else { 0 };
        let supported =
            !request.op.is_for_zones() && (request.op != Op::Discard || self.info.discard_unit_sectors.is_some());
        let (asked, status) = match supported {
            true => (self.service.end(&request, start, others), Status::Ok),
            false => (start, Status::Unsupported),
        };
        let end = asked.max(start.saturating_add(SHORTEST));
        self.channels.occupy(end);
        self.statistics.count(&request, self.now, start, end);
        let sectors = if changes(request.op) && supported { request.sectors } else { 0 };
        self.due.push(end, Due { id: request.id, first: request.lba.0, sectors, status });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.due.next_at()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        self.due.next_at()
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let stop = self.due.next_at().map_or(limit, |at| at.min(limit));
        self.now = self.now.max(stop);
        while let Some((at, Due { id, status, .. })) = self.due.pop_until(self.now) {
            completed.push(Completion { id, at, status });
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    /// Outstanding requests: a completed write is durable. `None` if the device has a volatile cache, which no
    /// [`Service`] describes.
    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        let sectors = self.due.events().map(|due| due.first..due.first + u64::from(due.sectors));
        (!self.info.volatile_cache).then(|| sectors.collect::<SectorSet>().into_ranges())
    }

    fn probe(&self, sink: &mut dyn Probe) {
        self.statistics.tell(sink);
        self.service.probe(sink);
    }
}

/// The contract's shortest service time.
const SHORTEST: Nanos = Nanos::from_nanos(1);

/// Instant at which each channel is free again; empty without a limit of channels.
#[derive(Clone, Debug)]
struct Channels(BinaryHeap<Reverse<Nanos>>);

impl Channels {
    fn new(count: Option<u32>) -> Self {
        assert!(count != Some(0), "a device has at least one channel");
        Channels((0..count.unwrap_or(0)).map(|_| Reverse(Nanos::ZERO)).collect())
    }

    fn first_free(&self) -> Nanos {
        self.0.peek().map_or(Nanos::ZERO, |&Reverse(at)| at)
    }

    /// Channels that are kept beyond this instant.
    fn busy_at(&self, at: Nanos) -> u32 {
        self.0.iter().filter(|Reverse(free)| *free > at).count() as u32
    }

    /// Keeps the channel that is free first until `end`.
    fn occupy(&mut self, end: Nanos) {
        if let Some(mut first) = self.0.peek_mut() {
            first.0 = end;
        }
    }
}

/// Requests to the device so far; a request counts in full once it has arrived.
#[derive(Clone, Debug, Default)]
struct QueueStatistics {
    requests: [u64; Op::ALL.len()],
    sectors: [u64; Op::ALL.len()],
    busy: Nanos,
    queued: Nanos,
}

impl QueueStatistics {
    fn count(&mut self, request: &Request, arrival: Nanos, start: Nanos, end: Nanos) {
        self.requests[request.op as usize] += 1;
        self.sectors[request.op as usize] += u64::from(request.sectors);
        self.busy = self.busy.saturating_add(end - start);
        self.queued = self.queued.saturating_add(start - arrival);
    }

    fn tell(&self, sink: &mut dyn Probe) {
        for (op, [requests, sectors]) in Op::ALL.into_iter().zip(STATISTIC_NAMES) {
            sink.counter(requests, self.requests[op as usize]);
            if !sectors.is_empty() {
                sink.counter(sectors, self.sectors[op as usize]);
            }
        }
        sink.counter("busy-time-ns", self.busy.as_nanos());
        sink.counter("queue-time-ns", self.queued.as_nanos());
    }
}

/// Names of the counts of requests and of sectors, in the order of [`Op::COMMON`].
const STATISTIC_NAMES: [[&str; 2]; Op::COMMON.len()] = [
    ["read-requests", "read-sectors"],
    ["write-requests", "write-sectors"],
    ["flush-requests", ""],
    ["discard-requests", "discard-sectors"],
    ["write-zeroes-requests", "write-zeroes-sectors"],
];
