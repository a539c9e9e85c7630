//! An array's handling of a request: pieces for its members, and for parity the phases of a write.

use std::sync::Arc;

use chronodisk_sim::{Lba, Nanos, Op, Request, RequestId, Status};

use super::balance::Balance;
use super::layout::{Layout, MemberSector, MemberSet, Shape};
use super::parity::{self, RowWrite};
use super::runs::Runs;
use super::writes::{Write, Writes};
use crate::Probe;
use crate::composite::{Context, Members, Policy, Slab};
use crate::sector_set::{SectorSet, changed};

/// An array's state besides its members'.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    layout: Arc<Layout>,
    failed: MemberSet,
    /// Members that fail at an instant; requests from then on don't touch them.
    failing: Option<(Nanos, MemberSet)>,
    balance: Balance,
    parents: Slab<Parent>,
    parts: Slab<Part>,
    writes: Writes,
    /// Empty between requests.
    runs: Runs,
    statistics: ArrayStatistics,
}

/// A request of the host.
#[derive(Clone, Copy, Debug)]
struct Parent {
    id: RequestId,
    /// Parts and parity writes that are not done.
    remaining: u32,
    status: Status,
}

/// A request of a member.
#[derive(Clone, Copy, Debug)]
struct Part {
    parent: u32,
    /// The parity write that it belongs to.
    write: Option<u32>,
    pieces: u32,
    /// End of its range; `None` without a range.
    end: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct ArrayStatistics {
    full_row_writes: u64,
    read_modify_writes: u64,
    reconstruct_writes: u64,
    reconstructed_reads: u64,
}

impl Array {
    pub(crate) fn new(
        layout: Arc<Layout>,
        failed: MemberSet,
        failing: Option<(Nanos, MemberSet)>,
        balance: Balance,
        most_writes: u32,
    ) -> Self {
        let runs = Runs::new(layout.members);
        Array {
            layout,
            failed,
            failing,
            balance,
            parents: Slab::new(),
            parts: Slab::new(),
            writes: Writes::new(most_writes),
            runs,
            statistics: ArrayStatistics::default(),
        }
    }

    /// The members that requests must not touch at this instant.
    fn failed(&self, now: Nanos) -> MemberSet {
        match self.failing {
            Some((at, more)) if at <= now => self.failed.union(more),
            _ => self.failed,
        }
    }

    fn flush(&mut self, parent: u32, request: Request, context: &mut Context<'_>) {
        let failed = self.failed(context.now());
        for member in (0..self.layout.members).filter(|&member| !failed.contains(member)) {
            self.submit_part(parent, None, member, (0, None), request, context);
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
            self.piece(&layout, failed, request.op, sector, length);
            sector += length;
        }
        self.submit_runs(parent, None, request, context);
    }

    fn piece(&mut self, layout: &Layout, failed: MemberSet, op: Op, sector: u64, length: u64) {
        if let Some(place) = layout.linear_place(sector) {
            self.runs.add(place.member, place.sector, place.sector + length, false);
            return;
        }
        let Shape::Copies { copies, .. } = layout.shape else { return };
        let (chunk, offset) = (sector / layout.chunk_sectors, sector % layout.chunk_sectors);
        let places = (0..copies)
            .filter_map(|copy| layout.copy(chunk, copy))
            .filter(|place| !failed.contains(place.member))
            .map(|place| MemberSector { sector: place.sector + offset, ..place });
        if op == Op::Read {
            if let Some(place) = self.balance.choose(places, length) {
                self.runs.add(place.member, place.sector, place.sector + length, false);
                self.balance.given(place.member, 1);
            }
            return;
        }
        for place in places {
            self.runs.add(place.member, place.sector, place.sector + length, false);
            self.balance.given(place.member, 1);
        }
    }

    /// Begins a read of an array with parity: data of failed members are computed from the rest of their rows.
    fn read_rows(&mut self, parent: u32, request: Request, context: &mut Context<'_>) {
        let layout = Arc::clone(&self.layout);
        let failed = self.failed(context.now());
        let runs = &mut self.runs;
        let row_sectors = layout.row_sectors();
        let (mut sector, end) = (request.lba.0, request.end().0);
        while sector < end {
            let row = sector / row_sectors;
            let row_end = end.min((row + 1) * row_sectors);
            let span = (sector - row * row_sectors, row_end - row * row_sectors);
            let base = row * layout.chunk_sectors;
            self.statistics.reconstructed_reads += parity::row_read(&layout, failed, row, span, |member, from, to| {
                runs.add(member, base + from, base + to, false);
            });
            sector = row_end;
        }
        self.submit_runs(parent, None, request, context);
    }

    /// A write, a discard or a write of zeros to an array with parity. Rows that it covers completely are written
    /// together, those at its ends separately.
    fn write_rows(&mut self, parent: u32, request: Request, context: &mut Context<'_>) {
        let row_sectors = self.layout.row_sectors();
        let (start, end) = (request.lba.0, request.end().0);
        let (first_whole, end_whole) = (start.div_ceil(row_sectors), end / row_sectors);
        let mut add = |array: &mut Self, rows: (u64, u64), span: (u64, u64)| {
            let (low, high) = parity::member_span(array.layout.chunk_sectors, rows, span);
            let write = Write::new(parent, request, rows, span, (low, high));
            array.parents.get_mut(parent).remaining += 1;
            if let Some(ready) = array.writes.arrive(write) {
                array.begin(ready, context);
            }
        };
        // A row that is covered in part keeps its data, so that its parity must stay.
        let partial = request.op != Op::Discard;
        if first_whole > end_whole {
            // Both ends are in one row.
            let row = end_whole;
            if partial {
                add(self, (row, row + 1), (start - row * row_sectors, end - row * row_sectors));
            }
            return;
        }
        if partial && start < first_whole * row_sectors {
            let row = first_whole - 1;
            add(self, (row, row + 1), (start - row * row_sectors, row_sectors));
        }
        if first_whole < end_whole {
            add(self, (first_whole, end_whole), (0, row_sectors));
        }
        if partial && end > end_whole * row_sectors {
            add(self, (end_whole, end_whole + 1), (0, end - end_whole * row_sectors));
        }
    }

    /// Begins a write whose turn has come: with the reads for its parity, or directly with the writes.
    fn begin(&mut self, number: u32, context: &mut Context<'_>) {
        let write = *self.writes.get(number);
        let plan = self.plan(&write, context.now());
        let runs = &mut self.runs;
        plan.reads(&self.layout, |member, from, to| runs.add(member, from, to, false));
        self.statistics.full_row_writes += plan.whole_rows();
        self.statistics.read_modify_writes += u64::from(plan.modifies());
        self.statistics.reconstruct_writes += u64::from(plan.reconstructs());
        let old = Request { op: Op::Read, fua: false, ..write.request };
        let reads = self.submit_runs(write.parent, Some(number), old, context);
        self.writes.get_mut(number).reading = reads > 0;
        self.writes.get_mut(number).parts = reads;
        if reads == 0 {
            self.write_out(number, context);
        }
    }

    /// Writes data and parity.
    fn write_out(&mut self, number: u32, context: &mut Context<'_>) {
        let write = *self.writes.get(number);
        let plan = self.plan(&write, context.now());
        let runs = &mut self.runs;
        plan.writes(&self.layout, |member, from, to, parity| runs.add(member, from, to, parity));
        let parts = self.submit_runs(write.parent, Some(number), write.request, context);
        let write = self.writes.get_mut(number);
        write.reading = false;
        write.parts = parts;
        assert!(parts > 0, "an array that survives its failures has a member to write");
    }

    fn plan(&self, write: &Write, now: Nanos) -> RowWrite {
        RowWrite::new(&self.layout, self.failed(now), write.rows, write.span)
    }

    /// Submits the collected runs as parts of a request and returns how many they are.
    fn submit_runs(&mut self, parent: u32, write: Option<u32>, request: Request, context: &mut Context<'_>) -> u32 {
        self.runs.close();
        let mut parts = 0;
        let counted = matches!(self.layout.shape, Shape::Copies { .. });
        while let Some((member, run)) = self.runs.take() {
            // Only copies are balanced, and their pieces were counted when they were chosen.
            let pieces = if counted { run.pieces } else { 0 };
            let sectors = u32::try_from(run.end - run.start).expect("a run is no longer than a request can be");
            // Parity of zeros beside other data is no zeros.
            let op = if run.parity && request.op == Op::WriteZeroes { Op::Write } else { request.op };
            let request = Request { op, lba: Lba(run.start), sectors, ..request };
            self.submit_part(parent, write, member, (pieces, Some(run.end)), request, context);
            parts += 1;
        }
        parts
    }

    fn submit_part(
        &mut self,
        parent: u32,
        write: Option<u32>,
        member: usize,
        (pieces, end): (u32, Option<u64>),
        request: Request,
        context: &mut Context<'_>,
    ) {
        let part = self.parts.insert(Part { parent, write, pieces, end });
        self.parents.get_mut(parent).remaining += 1;
        context.submit(member, u64::from(part), request);
    }

    /// Handles the end of a part or parity write of a request.
    fn release(&mut self, number: u32, context: &mut Context<'_>) {
        let parent = self.parents.get_mut(number);
        parent.remaining -= 1;
        if parent.remaining == 0 {
            let parent = self.parents.take(number);
            context.complete(parent.id, parent.status);
        }
    }
}

impl Policy for Array {
    fn arrive(&mut self, request: Request, context: &mut Context<'_>) {
        let parent = self.parents.insert(Parent { id: request.id, remaining: 0, status: Status::Ok });
        match (request.op, &self.layout.shape) {
            (Op::Flush, _) => self.flush(parent, request, context),
            (Op::Read, Shape::Parity { .. }) => self.read_rows(parent, request, context),
            (_, Shape::Parity { .. }) => self.write_rows(parent, request, context),
            _ => self.pieces(parent, request, context),
        }
        if self.parents.get(parent).remaining == 0 {
            self.parents.take(parent);
            context.complete_at_once(request.id, Status::Ok);
        }
    }

    fn answer(&mut self, member: usize, tag: u64, status: Status, context: &mut Context<'_>) {
        let part = self.parts.take(u32::try_from(tag).expect("a part's number"));
        self.balance.answered(member, part.pieces, part.end);
        let parent = self.parents.get_mut(part.parent);
        // The worst of the members' answers is the array's.
        parent.status = parent.status.max(status);
        if let Some(number) = part.write {
            let write = self.writes.get_mut(number);
            write.parts -= 1;
            let (done, reading) = (write.parts == 0, write.reading);
            if done && reading {
                self.write_out(number, context);
            } else if done {
                self.writes.finish(number);
                while let Some(ready) = self.writes.take_ready() {
                    self.begin(ready, context);
                }
                self.release(part.parent, context);
            }
        }
        self.release(part.parent, context);
    }

    /// Data in the members that have not failed, and writes with parity until they are done.
    fn volatile(&self, now: Nanos, members: &Members) -> Option<SectorSet> {
        let (failed, layout) = (self.failed(now), &*self.layout);
        let mut ranges: Vec<_> = self.writes.requests().map(changed).collect();
        for member in (0..layout.members).filter(|&member| !failed.contains(member)) {
            let of_member = members.volatile(now, member)?;
            ranges.extend(of_member.ranges().iter().flat_map(|range| layout.origins(member, range.clone())));
        }
        Some(ranges.into_iter().collect())
    }

    fn probe(&self, sink: &mut dyn Probe) {
        if let Shape::Parity { .. } = self.layout.shape {
            sink.counter("full-row-writes", self.statistics.full_row_writes);
            sink.counter("read-modify-writes", self.statistics.read_modify_writes);
            sink.counter("reconstruct-writes", self.statistics.reconstruct_writes);
            sink.counter("reconstructed-reads", self.statistics.reconstructed_reads);
            sink.counter("parity-writes-delayed", self.writes.delayed());
        }
    }
}
