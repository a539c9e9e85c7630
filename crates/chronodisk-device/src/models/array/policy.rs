//! An array's handling of a request: pieces for its members, and for parity the phases of a write.

use std::collections::VecDeque;
use std::sync::Arc;

use chronodisk_sim::{Lba, Nanos, Op, Request, Status};

use super::at_risk::AtRisk;
use super::balance::Balance;
use super::jobs::{BlockSize, Jobs};
use super::layout::{Layout, MemberSector, MemberSet, Shape};
use super::parts::{Owner, Parent, Part, Repair};
use super::rebuild::{Rebuild, held_sectors};
use super::runs::{Run, Runs};
use super::stripes::Stripes;
use crate::Probe;
use crate::composite::{Context, Members, Policy, Slab};
use crate::sector_set::SectorSet;

/// An array's state besides its members'.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(super) layout: Arc<Layout>,
    pub(super) failed: MemberSet,
    /// Members that fail at an instant; requests from then on don't touch them.
    pub(super) failing: Option<(Nanos, MemberSet)>,
    pub(super) balance: Balance,
    /// Reads of other copies after an error.
    pub(super) repairs: Slab<Repair>,
    pub(super) parents: Slab<Parent>,
    parts: Slab<Part>,
    /// Empty between events.
    pub(super) runs: Runs,
    /// Of an array with parity, as the following.
    pub(super) stripes: Stripes,
    pub(super) jobs: Jobs,
    /// Stripes to be handled. Empty between events.
    pub(super) listed: VecDeque<u32>,
    pub(super) at_risk: AtRisk,
    /// Of an array with spares.
    pub(super) rebuild: Option<Box<Rebuild>>,
    /// Whether a request is arriving. It cannot complete at the same instant.
    pub(super) arriving: bool,
    pub(super) statistics: ArrayStatistics,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ArrayStatistics {
    pub(super) full_row_writes: u64,
    pub(super) read_modify_writes: u64,
    pub(super) reconstruct_writes: u64,
    pub(super) reconstructed_reads: u64,
    pub(super) delayed: u64,
    pub(super) repaired_reads: u64,
    pub(super) dropped_members: u64,
}

impl Array {
    pub(crate) fn new(
        layout: Arc<Layout>,
        failed: MemberSet,
        failing: Option<(Nanos, MemberSet)>,
        balance: Balance,
        cache: (u32, BlockSize),
    ) -> Self {
        let runs = Runs::new(layout.members);
        let stripes = Stripes::new(cache.0, layout.members, cache.1);
        Array {
            layout,
            failed,
            failing,
            balance,
            repairs: Slab::new(),
            parents: Slab::new(),
            parts: Slab::new(),
            runs,
            stripes,
            jobs: Jobs::new(),
            listed: VecDeque::new(),
            at_risk: AtRisk::new(),
            rebuild: None,
            arriving: false,
            statistics: ArrayStatistics::default(),
        }
    }

    /// The members that requests must not touch at this instant.
    pub(super) fn failed(&self, now: Nanos) -> MemberSet {
        match self.failing {
            Some((at, more)) if at <= now => self.failed.union(more),
            _ => self.failed,
        }
    }

    /// Members that take writes: those that have not failed, and the spare during its rebuild.
    pub(super) fn holders(&self, now: Nanos) -> MemberSet {
        let there = MemberSet::first(self.layout.members).without(self.failed(now));
        self.rebuild.as_ref().map_or(there, |rebuild| there.union(rebuild.member()))
    }

    /// The members without the array's data in these sectors of theirs.
    pub(super) fn failed_in(&self, now: Nanos, span: (u64, u64)) -> MemberSet {
        let failed = self.failed(now);
        self.rebuild.as_ref().map_or(failed, |rebuild| failed.without(rebuild.member_with(span)))
    }

    /// The device at a member's place in the layout.
    pub(super) fn device(&self, member: usize) -> usize {
        self.rebuild.as_ref().map_or(member, |rebuild| rebuild.device(member))
    }

    /// Begins the work on a request whose arrival, or hold, is its only part.
    pub(super) fn begin(&mut self, parent: u32, request: Request, context: &mut Context<'_>) {
        match (request.op, &self.layout.shape) {
            (Op::Flush, _) => self.flush(parent, request, context),
            (Op::Read, Shape::Parity { .. }) => self.read_rows(parent, request, context),
            (_, Shape::Parity { .. }) => self.write_rows(parent, request, context),
            _ => self.pieces(parent, request, context),
        }
        self.release(parent, context);
    }

    fn flush(&mut self, parent: u32, request: Request, context: &mut Context<'_>) {
        for member in self.holders(context.now()).iter() {
            self.submit_part(Owner::Request(parent), member, 0, request, context);
        }
    }

    /// Pieces of an array without parity.
    fn pieces(&mut self, parent: u32, request: Request, context: &mut Context<'_>) {
        let layout = Arc::clone(&self.layout);
        let failed = self.failed(context.now());
        let (mut sector, end) = (request.lba.0, request.end().0);
        while sector < end {
            let rest = match layout.shape {
                Shape::Linear(_) => layout.linear_rest(sector),
                _ => layout.chunk_sectors - sector % layout.chunk_sectors,
            };
            let length = rest.min(end - sector);
            self.piece(&layout, failed, request, sector, length);
            sector += length;
        }
        self.submit_runs(Owner::Request(parent), request, context);
    }

    fn piece(&mut self, layout: &Layout, failed: MemberSet, request: Request, sector: u64, length: u64) {
        if let Some(place) = layout.linear_place(sector) {
            self.runs.add(place.member, (place.sector, place.sector + length), request.op, request.fua);
            return;
        }
        let Shape::Copies { copies, .. } = layout.shape else { return };
        let (chunk, offset) = (sector / layout.chunk_sectors, sector % layout.chunk_sectors);
        let rebuild = self.rebuild.as_deref();
        let places = (0..copies)
            .filter_map(|copy| layout.copy(chunk, copy))
            .map(|place| MemberSector { sector: place.sector + offset, ..place })
            .map(|place| (place, held_sectors(rebuild, failed, place, length)));
        if request.op == Op::Read {
            let places = places.filter(|place| place.1 == length).map(|place| place.0);
            if let Some(place) = self.balance.choose(places, length) {
                self.runs.add(place.member, (place.sector, place.sector + length), request.op, request.fua);
                self.balance.given(place.member, 1);
            }
            return;
        }
        for (place, length) in places.filter(|place| place.1 > 0) {
            self.runs.add(place.member, (place.sector, place.sector + length), request.op, request.fua);
            self.balance.given(place.member, 1);
        }
    }

    /// Submits the collected runs; a member's request is as `like` otherwise.
    pub(super) fn submit_runs(&mut self, owner: Owner, like: Request, context: &mut Context<'_>) {
        self.runs.close();
        let counted = matches!(self.layout.shape, Shape::Copies { .. });
        while let Some((member, Run { start, end, pieces, op, fua })) = self.runs.take() {
            // Only copies are balanced, and their pieces were counted when they were chosen.
            let pieces = if counted { pieces } else { 0 };
            let sectors = u32::try_from(end - start).expect("a run is no longer than a request can be");
            let request = Request { op, fua, lba: Lba(start), sectors, ..like };
            self.submit_part(owner, member, pieces, request, context);
        }
    }

    pub(super) fn submit_part(
        &mut self,
        owner: Owner,
        member: usize,
        pieces: u32,
        request: Request,
        context: &mut Context<'_>,
    ) {
        let part = self.parts.insert(Part { owner, member, pieces, request });
        if let Owner::Request(parent) = owner {
            self.parents.get_mut(parent).remaining += 1;
        }
        context.submit(self.device(member), u64::from(part), request);
    }

    /// Handles the end of a part of a request.
    pub(super) fn release(&mut self, number: u32, context: &mut Context<'_>) {
        let parent = self.parents.get_mut(number);
        parent.remaining -= 1;
        if parent.remaining > 0 {
            return;
        }
        let Parent { request, status, .. } = self.parents.take(number);
        self.at_risk.complete(request.id, status);
        self.host_completed(context.now());
        match self.arriving {
            true => context.complete_at_once(request.id, status),
            false => context.complete(request.id, status),
        }
    }
}

impl Policy for Array {
    fn arrive(&mut self, request: Request, context: &mut Context<'_>) {
        self.arriving = true;
        self.note_risk(request, context);
        // The arrival itself is a part, so that the request does not end before all of its parts are known.
        let parent = self.parents.insert(Parent { request, remaining: 1, status: Status::Ok, held: false });
        if !self.holds(parent, request) {
            self.begin(parent, request, context);
        }
        self.arriving = false;
    }

    fn answer(&mut self, device: usize, tag: u64, status: Status, context: &mut Context<'_>) {
        let part = self.parts.take(u32::try_from(tag).expect("a part's number"));
        let Part { owner, member, pieces, request } = part;
        let (start, end) = (request.lba.0, request.end().0);
        self.balance.answered(member, pieces, (request.op != Op::Flush).then_some(end));
        match owner {
            Owner::Request(number) => {
                let fails = status != Status::Ok;
                let status = if fails { self.judge(number, device, &part, status, context) } else { status };
                let parent = self.parents.get_mut(number);
                // The worst of the members' answers is the array's.
                parent.status = parent.status.max(status);
                self.release(number, context);
            }
            Owner::Rows => self.rows_answered((member, device), (start, end), (request.op, status), context),
            Owner::Copy(number) => self.copy_answered(number, member, request.sectors, status, context),
            Owner::WriteBack => self.written_back((member, device), status, context),
            Owner::Rebuild(number) => self.rebuild_answered(number, member, (request.op, status), context),
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.rebuild.as_ref().and_then(|rebuild| rebuild.next_timer(self.failing))
    }

    fn timer(&mut self, context: &mut Context<'_>) {
        self.advance_rebuild(context);
    }

    /// Data in the members that have not failed, and writes with parity until they are done.
    fn volatile(&self, now: Nanos, members: &Members) -> Option<SectorSet> {
        self.volatile_at(now, members)
    }

    fn probe(&self, sink: &mut dyn Probe) {
        if self.layout.has_parity() {
            sink.counter("full-row-writes", self.statistics.full_row_writes);
            sink.counter("read-modify-writes", self.statistics.read_modify_writes);
            sink.counter("reconstruct-writes", self.statistics.reconstruct_writes);
            sink.counter("reconstructed-reads", self.statistics.reconstructed_reads);
            sink.counter("parity-writes-delayed", self.statistics.delayed);
        }
        if self.layout.copies() > 1 || self.layout.has_parity() {
            sink.counter("repaired-reads", self.statistics.repaired_reads);
            sink.counter("dropped-members", self.statistics.dropped_members);
        }
        if let Some(rebuild) = &self.rebuild {
            rebuild.probe(self.failed, sink);
        }
    }
}
