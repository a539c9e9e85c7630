//! A host queue's handling of a request: places, merging, plugging, dispatch.

use std::collections::VecDeque;
use std::sync::Arc;

use chronodisk_sim::{Lba, Nanos, Op, Request, RequestId, Status};

use super::elevator::{Elevator, Item, Scheduler};
use super::line::{Limits, Line, Process};
use crate::Probe;
use crate::composite::{Context, Members, Policy, Slab};
use crate::sector_set::{SectorSet, changed};

/// Requests that are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// No requests.
    Off,
    /// Requests that continue a waiting one.
    Back,
    /// Requests that continue or precede a waiting one.
    Both,
}

/// Events that start a plugged queue besides the delay, the threshold, a completion and a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnplugAt {
    /// A read: its issuer waits for it.
    Reads,
    /// Every request: its issuer waits for it, as with direct I/O.
    All,
    /// No request starts the queue.
    Never,
}

/// A queue's parameters.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    pub(crate) scheduler: Scheduler,
    pub(crate) limits: Limits,
    pub(crate) merge: Merge,
    /// Longest request that the device gets.
    pub(crate) longest_sectors: u32,
    /// Time for which an empty queue waits for more requests; zero for none.
    pub(crate) plug_delay: Nanos,
    /// Number of requests that starts a plugged queue.
    pub(crate) unplug_threshold: u32,
    pub(crate) unplug_at: UnplugAt,
    /// Requests in the device at once.
    pub(crate) device_depth: u32,
}

/// A host's queue in front of one device.
#[derive(Clone, Debug)]
pub(crate) struct HostQueue {
    parameters: Arc<Parameters>,
    parents: Slab<Parent>,
    pieces: Slab<Piece>,
    entries: Slab<Entry>,
    elevator: Elevator,
    /// Flushes, which go first and need no place.
    direct: VecDeque<u32>,
    /// Reads, writes.
    lines: [Line; 2],
    in_flight: u32,
    plugged_until: Option<Nanos>,
    sequence: u64,
    statistics: HostQueueStatistics,
}

/// A request of the host.
#[derive(Clone, Copy, Debug)]
struct Parent {
    id: RequestId,
    remaining: u32,
    status: Status,
}

/// A piece of a request, at most as long as the device's largest request.
#[derive(Clone, Copy, Debug)]
struct Piece {
    parent: u32,
    request: Request,
    /// The next piece of the same entry, or of the same process that waits.
    next: Option<u32>,
}

/// A request for the device: pieces that follow each other.
#[derive(Clone, Copy, Debug)]
struct Entry {
    request: Request,
    first: u32,
    last: u32,
    /// Whether it occupies a place.
    placed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct HostQueueStatistics {
    dispatched: u64,
    back_merges: u64,
    front_merges: u64,
    plugs: u64,
    waits: u64,
    most_used: u32,
}

impl HostQueue {
    pub(crate) fn new(parameters: Arc<Parameters>) -> Self {
        HostQueue {
            parents: Slab::new(),
            pieces: Slab::new(),
            entries: Slab::new(),
            elevator: Elevator::new(parameters.scheduler),
            direct: VecDeque::new(),
            lines: [Line::new(parameters.limits), Line::new(parameters.limits)],
            in_flight: 0,
            plugged_until: None,
            sequence: 0,
            statistics: HostQueueStatistics::default(),
            parameters,
        }
    }

    /// A piece arrives: it joins a request that waits, or gets a place, or waits for one.
    fn arrive_piece(&mut self, piece: u32, now: Nanos) {
        if self.merge(piece, now) {
            return;
        }
        let request = self.pieces.get(piece).request;
        let line = &mut self.lines[direction(request.op)];
        if let Some(process) = line.waiting(request.issuer) {
            let last = std::mem::replace(&mut process.last, piece);
            self.pieces.get_mut(last).next = Some(piece);
        } else if line.take_place(now, request.issuer) {
            self.add(piece, now);
            return;
        } else {
            line.wait(Process { issuer: request.issuer, first: piece, last: piece });
            // An issuer that waits for a place starts the queue, since it might wait for its own requests.
            self.unplug();
        }
        self.statistics.waits += 1;
    }

    /// Queues a piece that has a place for the device.
    fn add(&mut self, piece: u32, now: Nanos) {
        let parameters = Arc::clone(&self.parameters);
        if self.elevator.items().is_empty() && parameters.plug_delay > Nanos::ZERO && self.plugged_until.is_none() {
            self.plugged_until = Some(now.saturating_add(parameters.plug_delay));
            self.statistics.plugs += 1;
        }
        let request = self.pieces.get(piece).request;
        let entry = self.entries.insert(Entry { request, first: piece, last: piece, placed: true });
        self.elevator.insert(self.item(entry, self.sequence, now));
        self.sequence += 1;
        self.statistics.most_used = self.statistics.most_used.max(self.lines[direction(request.op)].used());
        let enough = self.elevator.items().len() >= parameters.unplug_threshold as usize;
        let awaited = match parameters.unplug_at {
            UnplugAt::Reads => request.op == Op::Read,
            UnplugAt::All => true,
            UnplugAt::Never => false,
        };
        if enough || awaited {
            self.unplug();
        }
    }

    fn item(&self, entry: u32, sequence: u64, since: Nanos) -> Item {
        let request = self.entries.get(entry).request;
        let (lba, issuer) = (request.lba.0, request.issuer);
        Item { lba, sequence, entry, writes: request.op != Op::Read, issuer, since }
    }

    fn unplug(&mut self) {
        self.plugged_until = None;
    }

    /// Merges a piece with an adjacent waiting request, if there is one, and that request with its new neighbour.
    fn merge(&mut self, piece: u32, now: Nanos) -> bool {
        let request = self.pieces.get(piece).request;
        let Some((index, back)) = self.partner(&request, None) else { return false };
        let entry = self.elevator.items()[index].entry;
        if back {
            let last = std::mem::replace(&mut self.entries.get_mut(entry).last, piece);
            self.pieces.get_mut(last).next = Some(piece);
            self.entries.get_mut(entry).request.sectors += request.sectors;
            self.statistics.back_merges += 1;
        } else {
            let item = self.elevator.remove(index);
            let joined = self.entries.get_mut(entry);
            self.pieces.get_mut(piece).next = Some(std::mem::replace(&mut joined.first, piece));
            joined.request.lba = request.lba;
            joined.request.sectors += request.sectors;
            self.elevator.insert(Item { lba: request.lba.0, ..item });
            self.statistics.front_merges += 1;
        }
        self.coalesce(entry, now);
        true
    }

    /// Merges a request that has grown with the request that it touches.
    fn coalesce(&mut self, entry: u32, now: Nanos) {
        let grown = self.entries.get(entry).request;
        let Some((index, back)) = self.partner(&grown, Some(entry)) else { return };
        let other = self.elevator.items()[index].entry;
        // The earlier of the two by address takes the other in.
        let (before, after) = if back { (other, entry) } else { (entry, other) };
        let place = self.elevator.items().iter().position(|item| item.entry == after);
        let Some(place) = place else { return };
        self.elevator.remove(place);
        let taken = self.entries.take(after);
        let kept = *self.entries.get(before);
        self.pieces.get_mut(kept.last).next = Some(taken.first);
        let kept = self.entries.get_mut(before);
        kept.last = taken.last;
        kept.request.sectors += taken.request.sectors;
        self.free_place(direction(taken.request.op), now);
    }

    /// The waiting request adjacent to `request`: its place and whether `request` continues it.
    fn partner(&self, request: &Request, not: Option<u32>) -> Option<(usize, bool)> {
        let parameters = &self.parameters;
        if parameters.merge == Merge::Off || !mergeable(request) {
            return None;
        }
        let items = self.elevator.items();
        let goes = |index: &usize| {
            let other = self.entries.get(items[*index].entry).request;
            let length = u64::from(other.sectors) + u64::from(request.sectors);
            Some(items[*index].entry) != not
                && other.op == request.op
                && mergeable(&other)
                && length <= u64::from(parameters.longest_sectors)
        };
        let other = |index: usize| self.entries.get(items[index].entry).request;
        let back = (0..items.len()).find(|index| other(*index).end() == request.lba && goes(index));
        if let Some(index) = back {
            return Some((index, true));
        }
        if parameters.merge == Merge::Back && not.is_none() {
            return None;
        }
        (0..items.len()).find(|index| other(*index).lba == request.end() && goes(index)).map(|index| (index, false))
    }

    /// Handles a free place: the issuer that has waited longest continues, as far as it may.
    fn free_place(&mut self, direction: usize, now: Nanos) {
        let Some(process) = self.lines[direction].free_place(now) else { return };
        let mut next = Some(process.first);
        while let Some(piece) = next {
            if !self.lines[direction].take_place(now, process.issuer) {
                self.lines[direction].wait(Process { first: piece, ..process });
                return;
            }
            next = self.pieces.get_mut(piece).next.take();
            self.add(piece, now);
        }
    }

    /// Dispatches requests up to the device's depth.
    fn dispatch(&mut self, context: &mut Context<'_>) {
        while self.in_flight < self.parameters.device_depth {
            let entry = match self.direct.pop_front() {
                Some(entry) => Some(entry),
                None if self.plugged_until.is_some() => None,
                None => self.elevator.next(context.now()).map(|item| item.entry),
            };
            let Some(entry) = entry else { return };
            self.in_flight += 1;
            self.statistics.dispatched += 1;
            context.submit(0, u64::from(entry), self.entries.get(entry).request);
        }
    }
}

impl Policy for HostQueue {
    fn arrive(&mut self, request: Request, context: &mut Context<'_>) {
        let parent = self.parents.insert(Parent { id: request.id, remaining: 0, status: Status::Ok });
        let longest = if request.op.moves_data() { self.parameters.longest_sectors } else { u32::MAX };
        let mut done = 0;
        while done < request.sectors || (request.op == Op::Flush && done == 0) {
            let sectors = longest.min(request.sectors - done);
            let part = Request { lba: Lba(request.lba.0 + u64::from(done)), sectors, ..request };
            let piece = self.pieces.insert(Piece { parent, request: part, next: None });
            self.parents.get_mut(parent).remaining += 1;
            if request.op == Op::Flush {
                let entry = Entry { request, first: piece, last: piece, placed: false };
                self.direct.push_back(self.entries.insert(entry));
                break;
            }
            self.arrive_piece(piece, context.now());
            done += sectors;
        }
        self.dispatch(context);
    }

    fn answer(&mut self, _member: usize, tag: u64, status: Status, context: &mut Context<'_>) {
        let entry = self.entries.take(u32::try_from(tag).expect("an entry's number"));
        self.in_flight -= 1;
        self.elevator.answered(entry.request.op != Op::Read, entry.request.issuer);
        let mut next = Some(entry.first);
        while let Some(number) = next {
            let piece = self.pieces.take(number);
            next = piece.next;
            let parent = self.parents.get_mut(piece.parent);
            parent.status = parent.status.max(status);
            parent.remaining -= 1;
            if parent.remaining == 0 {
                let parent = self.parents.take(piece.parent);
                context.complete(parent.id, parent.status);
            }
        }
        if entry.placed {
            self.free_place(direction(entry.request.op), context.now());
        }
        // A driver that gets an answer runs its queue, plugged or not.
        self.unplug();
        self.dispatch(context);
    }

    fn next_timer(&self) -> Option<Nanos> {
        match (self.plugged_until, self.elevator.next_timer()) {
            (Some(plug), Some(slice)) => Some(plug.min(slice)),
            (plug, slice) => plug.or(slice),
        }
    }

    fn timer(&mut self, context: &mut Context<'_>) {
        if self.plugged_until.is_some_and(|at| at <= context.now()) {
            self.unplug();
        }
        self.elevator.timer(context.now());
        self.dispatch(context);
    }

    fn volatile(&self, now: Nanos, members: &Members) -> Option<SectorSet> {
        let mut volatile = members.volatile(now, 0)?;
        self.pieces.iter().for_each(|piece| volatile.insert(changed(&piece.request)));
        Some(volatile)
    }

    fn probe(&self, sink: &mut dyn Probe) {
        let statistics = &self.statistics;
        sink.counter("host-queue-dispatched", statistics.dispatched);
        sink.counter("host-queue-back-merges", statistics.back_merges);
        sink.counter("host-queue-front-merges", statistics.front_merges);
        sink.counter("host-queue-plugs", statistics.plugs);
        sink.counter("host-queue-waits", statistics.waits);
        sink.counter("host-queue-most-places-used", u64::from(statistics.most_used));
    }
}

/// Index of a direction: 0 for reads, 1 for all other operations.
fn direction(op: Op) -> usize {
    usize::from(op != Op::Read)
}

fn mergeable(request: &Request) -> bool {
    request.op.moves_data() && !request.fua
}
