//! Rebuild of a lost member onto a spare, in the background, as `md_do_sync` in Linux's `drivers/md/md.c`.
//!
//! ```text
//!      rebuilt: the spare is a member    windows, locked           not yet: degraded
//!   0 ──────────────────────────────── mark ──────────── next ──────────────────────── end
//!                                      │ being  │ being │
//!                                      │ written│ read  │
//! ```
//!
//! - A lost member is replaced by the next spare at once. Its sectors are rebuilt in order, one *window* after
//!   the other: the same sectors of all other members with parity, or one copy, are read and then written to the spare.
//!   The next window is read while one is written.
//! - Sectors below the mark are read from and written to the spare. Above, the array stays degraded.
//! - A window begins once the writes to its rows have completed. Until it is rebuilt, new writes to its rows are held
//!   back; reads are not. Writes that are held back come before the next window.
//! - Windows begin no faster than `sync-speed-max`. While the host uses the array, they begin no faster than
//!   `sync-speed-min`. The array counts as idle once no request has been outstanding for 500 ms, the time after which
//!   md looks again.
//! - A spare that fails a write is dropped, and the next one begins from the start. If a window can be read neither
//!   from the members nor from copies, the rebuild is given up: the array stays degraded.
//!
//! Several lost members are rebuilt one after the other; md rebuilds them together. From Linux 4.1 on, md exceeds its
//! minimum beside other requests if the members are fast. A window's failed reads are not written back.

use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Nanos, Op, Request, SECTOR_BYTES, Status};

use super::layout::{Layout, MemberSector, MemberSet};
use super::policy::{Array, Owner};
use crate::Probe;
use crate::composite::Context;
use crate::quantity::Rate;
use crate::sector_set::changes;

/// Time without requests after which an array is idle: the sleep of `md_do_sync` between two looks.
const IDLE: Nanos = Nanos::from_millis(500);

/// Begin of a rebuild of members that are lost from the start: after everything that arrives at instant zero.
const FIRST: Nanos = Nanos::from_nanos(1);

/// Limits of rebuilds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Speed while the host uses the array.
    pub(super) min: Rate,
    /// Speed while the array is idle.
    pub(super) max: Rate,
    /// Length of a window.
    pub(super) window_sectors: u64,
}

/// The spares of an array, and the rebuild that runs.
#[derive(Clone, Debug)]
pub(super) struct Rebuild {
    pace: Pace,
    /// The device at each place of the layout.
    devices: Vec<usize>,
    /// Spares that are left.
    spares: Range<usize>,
    /// Sectors of a member that are in use.
    end: u64,
    /// Lost members that cannot be rebuilt.
    given_up: MemberSet,
    running: Option<Running>,
    /// Rebuilds so far.
    number: u32,
    /// Whether the next window waits for requests that are held back.
    after_held: bool,
    /// An instant at which something is to be done.
    due: Option<Nanos>,
    /// Requests of the host that are outstanding, and the instant of the last completion.
    hosts: u32,
    last_host: Option<Nanos>,
    /// Requests that are held back, in order of arrival.
    held: Vec<u32>,
    statistics: RebuildStatistics,
}

#[derive(Clone, Debug, Default)]
struct RebuildStatistics {
    done: u64,
    given_up: u64,
    dropped_spares: u64,
    rebuilt_sectors: u64,
    done_at: Nanos,
}

/// The rebuild of a member.
#[derive(Clone, Debug)]
struct Running {
    member: usize,
    /// Sectors before it are rebuilt.
    mark: u64,
    /// End of the last window.
    next: u64,
    reading: Option<Window>,
    writing: Option<(u64, u64)>,
    /// Begin of the last window.
    last: Option<Nanos>,
}

/// Sectors of each member that are being read.
#[derive(Clone, Copy, Debug)]
struct Window {
    span: (u64, u64),
    state: State,
    /// Members that have been read, and members that failed to be.
    read: MemberSet,
    lost: MemberSet,
    /// Whether one of the present reads has failed.
    fails: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Writes to its rows are outstanding.
    Draining,
    /// So many reads are outstanding.
    Reading(u32),
    /// It waits for the window before it.
    Read,
}

impl Rebuild {
    /// The spares of an array with these members lost from the start. Their devices follow the members'.
    pub(super) fn new(layout: &Layout, spares: usize, pace: Pace, failed: MemberSet) -> Self {
        Rebuild {
            pace,
            devices: (0..layout.members).collect(),
            spares: layout.members..layout.members + spares,
            end: layout.used_sectors(),
            given_up: MemberSet::default(),
            running: None,
            number: 0,
            after_held: false,
            due: (!failed.is_empty()).then_some(FIRST),
            hosts: 0,
            last_host: None,
            held: Vec::new(),
            statistics: RebuildStatistics::default(),
        }
    }

    pub(super) fn device(&self, member: usize) -> usize {
        self.devices[member]
    }

    /// The member that is being rebuilt.
    pub(super) fn member(&self) -> MemberSet {
        let mut members = MemberSet::default();
        self.running.iter().for_each(|running| members.insert(running.member));
        members
    }

    /// The member that is being rebuilt, if these sectors of it are.
    pub(super) fn member_with(&self, (_, end): (u64, u64)) -> MemberSet {
        let rebuilt = self.running.as_ref().is_some_and(|running| end <= running.mark);
        if rebuilt { self.member() } else { MemberSet::default() }
    }

    /// How many of `length` sectors at a place are rebuilt.
    pub(super) fn rebuilt_sectors(&self, place: MemberSector, length: u64) -> u64 {
        let running = self.running.as_ref().filter(|running| running.member == place.member);
        running.map_or(0, |running| running.mark.saturating_sub(place.sector).min(length))
    }

    /// The next instant at which the rebuild goes on by itself. `failing` are the members that fail later.
    pub(super) fn next_timer(&self, failing: Option<(Nanos, MemberSet)>) -> Option<Nanos> {
        let own = match &self.running {
            Some(_) if self.after_held => None,
            Some(running) if running.reading.is_none() && running.next < self.end => Some(self.next_window(running)),
            Some(_) => None,
            None => failing.filter(|_| !self.spares.is_empty()).map(|(at, _)| at),
        };
        own.into_iter().chain(self.due).min()
    }

    /// The earliest begin of the next window.
    fn next_window(&self, running: &Running) -> Nanos {
        let Some(last) = running.last else { return Nanos::ZERO };
        let bytes = self.pace.window_sectors * SECTOR_BYTES;
        let [slow, fast] = [self.pace.min, self.pace.max].map(|rate| last.saturating_add(rate.time_for(bytes)));
        let idle = self.last_host.map_or(Nanos::ZERO, |at| at.saturating_add(IDLE));
        if self.hosts > 0 { slow } else { slow.min(fast.max(idle)) }
    }

    /// Sectors of the member that no write may change now.
    fn locked(&self) -> Option<(usize, (u64, u64))> {
        let running = self.running.as_ref().filter(|running| running.mark < running.next)?;
        Some((running.member, (running.mark, running.next)))
    }

    pub(super) fn probe(&self, failed: MemberSet, sink: &mut dyn Probe) {
        let sectors = self.running.as_ref().map_or(0, |running| running.mark);
        sink.counter("rebuilds", self.statistics.done);
        sink.counter("rebuilds-given-up", self.statistics.given_up);
        sink.counter("dropped-spares", self.statistics.dropped_spares);
        sink.counter("rebuilt-bytes", self.statistics.rebuilt_sectors * SECTOR_BYTES);
        sink.gauge("lost-members", "members", failed.count() as f64);
        sink.gauge("rebuilding-members", "members", self.member().count() as f64);
        sink.gauge("rebuilt", "%", 100.0 * sectors as f64 / self.end as f64);
        sink.gauge("last-rebuild-done", "s", self.statistics.done_at.as_nanos() as f64 / 1e9);
    }
}

/// Whether a request changes data of rows that a member has in these sectors. With parity, whole rows of chunks count.
fn changes_rows(layout: &Layout, member: usize, span: (u64, u64), request: &Request) -> bool {
    if !changes(request.op) {
        return false;
    }
    let (start, end) = (request.lba.0, request.end().0);
    if layout.has_parity() {
        let (first, last) = (start / layout.row_sectors(), end.div_ceil(layout.row_sectors()));
        return first * layout.chunk_sectors < span.1 && span.0 < last * layout.chunk_sectors;
    }
    layout.origins(member, span.0..span.1).any(|range| range.start < end && start < range.end)
}

/// Spares.
impl Array {
    /// The array with spares.
    pub(super) fn with_spares(mut self, spares: usize, pace: Pace) -> Self {
        self.rebuild = Some(Box::new(Rebuild::new(&self.layout, spares, pace, self.failed)));
        self
    }

    /// A member was lost.
    pub(super) fn notice_loss(&mut self, now: Nanos) {
        self.rebuild.iter_mut().for_each(|rebuild| rebuild.due = Some(now));
    }

    /// The spare failed a write during its rebuild. Returns that it is gone.
    pub(super) fn drop_spare(&mut self, now: Nanos) -> bool {
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.statistics.dropped_spares += 1;
            rebuild.running = None;
            rebuild.due = Some(now);
        }
        true
    }

    /// A request arrives. Returns whether it is held back.
    pub(super) fn holds(&mut self, parent: u32, request: Request) -> bool {
        let Some(rebuild) = &mut self.rebuild else { return false };
        rebuild.hosts += 1;
        let Some((member, span)) = rebuild.locked() else { return false };
        let held = changes_rows(&self.layout, member, span, &request);
        if held {
            rebuild.held.push(parent);
            self.parents.get_mut(parent).held = true;
        }
        held
    }

    /// A request of the host has completed.
    pub(super) fn host_completed(&mut self, now: Nanos) {
        let Some(rebuild) = &mut self.rebuild else { return };
        rebuild.hosts -= 1;
        rebuild.last_host = Some(now);
        let reading = rebuild.running.as_ref().and_then(|running| running.reading);
        if reading.is_some_and(|window| window.state == State::Draining) {
            // An arrival has no consequences for the rebuild at its own instant, at which others may follow.
            let at = if self.arriving { now.saturating_add(Nanos::from_nanos(1)) } else { now };
            rebuild.due = Some(rebuild.due.map_or(at, |due| due.min(at)));
        }
    }

    /// Does everything that the rebuild can do now.
    pub(super) fn advance_rebuild(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        if let Some((_, more)) = self.failing.take_if(|(at, _)| *at <= now) {
            self.failed = self.failed.union(more);
        }
        // A rebuild that is given up, or a request that needs no member, calls for another round.
        loop {
            self.begin_rebuild();
            self.begin_held(context);
            self.next_window(context);
            if self.rebuild.as_ref().is_none_or(|rebuild| rebuild.due != Some(now)) {
                return;
            }
        }
    }

    /// Begins to rebuild the next lost member if none is being rebuilt.
    fn begin_rebuild(&mut self) {
        let Some(rebuild) = &mut self.rebuild else { return };
        (rebuild.due, rebuild.after_held) = (None, false);
        if rebuild.running.is_some() {
            return;
        }
        let lost = self.failed.without(rebuild.given_up).iter().next();
        if let Some((member, spare)) = lost.and_then(|member| Some((member, rebuild.spares.next()?))) {
            rebuild.number += 1;
            rebuild.devices[member] = spare;
            rebuild.running = Some(Running { member, mark: 0, next: 0, reading: None, writing: None, last: None });
            // It was the lost device that was to fail later.
            self.failing.iter_mut().for_each(|(_, more)| more.remove(member));
        }
    }

    /// Begins the requests that need not be held back any longer.
    fn begin_held(&mut self, context: &mut Context<'_>) {
        let mut index = 0;
        while let Some(rebuild) = &mut self.rebuild
            && let Some(&parent) = rebuild.held.get(index)
        {
            let request = self.parents.get(parent).request;
            let locked = rebuild.locked();
            if locked.is_some_and(|(member, span)| changes_rows(&self.layout, member, span, &request)) {
                index += 1;
                continue;
            }
            rebuild.held.remove(index);
            self.parents.get_mut(parent).held = false;
            self.begin(parent, request, context);
        }
    }

    /// Claims the next window if it is time for it, and reads it once nothing writes to its rows.
    fn next_window(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        let Some(rebuild) = &mut self.rebuild else { return };
        let Some(running) = &rebuild.running else { return };
        let span = (running.next, rebuild.end.min(running.next + rebuild.pace.window_sectors));
        let begins = running.reading.is_none() && span.0 < span.1 && rebuild.next_window(running) <= now;
        let (layout, member) = (&self.layout, running.member);
        let holds = |&parent: &u32| changes_rows(layout, member, span, &self.parents.get(parent).request);
        if begins && rebuild.held.iter().any(holds) {
            // Otherwise a long write would be held back until all of its rows are rebuilt.
            rebuild.after_held = true;
            return;
        }
        let Some(running) = &mut rebuild.running else { return };
        let none = MemberSet::default();
        if begins {
            running.reading = Some(Window { span, state: State::Draining, read: none, lost: none, fails: false });
            running.next = span.1;
            running.last = Some(now);
        }
        let Some(window) = running.reading.filter(|window| window.state == State::Draining) else { return };
        let writes = |request: &Request| changes_rows(layout, member, window.span, request);
        if !self.parents.iter().any(|parent| !parent.held && writes(&parent.request)) {
            self.read_window(window, context);
        }
    }
}

/// Windows.
impl Array {
    fn running(&mut self) -> Option<&mut Running> {
        self.rebuild.as_mut().and_then(|rebuild| rebuild.running.as_mut())
    }

    /// Reads a window from the members that have not failed to be read.
    fn read_window(&mut self, window: Window, context: &mut Context<'_>) {
        let Some(member) = self.running().map(|running| running.member) else { return };
        let failed = self.failed(context.now()).union(window.lost);
        let readable = match self.layout.has_parity() {
            true => self.collect_rows(window.span, failed),
            false => self.collect_copies(member, window.span, failed),
        };
        self.runs.close();
        let number = self.rebuild.as_ref().map_or(0, |rebuild| rebuild.number);
        let mut count = 0;
        while let Some((source, run)) = self.runs.take() {
            let pieces = if self.layout.has_parity() { 0 } else { run.pieces };
            if !readable {
                self.balance.answered(source, pieces, None);
                continue;
            }
            let sectors = u32::try_from(run.end - run.start).expect("no longer than a window");
            let request = Request::new(0, Op::Read, run.start, sectors);
            self.submit_part(Owner::Rebuild(number), source, pieces, request, context);
            count += 1;
        }
        if !readable {
            return self.give_up_rebuild(context.now());
        }
        let state = if count > 0 { State::Reading(count) } else { State::Read };
        self.running().into_iter().for_each(|running| running.reading = Some(Window { state, fails: false, ..window }));
        self.write_window(context);
    }

    /// Collects the reads of rows with parity. Returns whether they suffice.
    fn collect_rows(&mut self, span: (u64, u64), failed: MemberSet) -> bool {
        let sources = MemberSet::first(self.layout.members).without(failed);
        sources.iter().for_each(|source| self.runs.add(source, span, Op::Read, false));
        self.layout.survives(failed)
    }

    /// Collects the reads of a copy of each chunk. Returns whether all chunks have one.
    fn collect_copies(&mut self, member: usize, (mut sector, end): (u64, u64), failed: MemberSet) -> bool {
        let (layout, size) = (Arc::clone(&self.layout), self.layout.chunk_sectors);
        while sector < end {
            let (row, offset, next) = (sector / size, sector % size, end.min((sector / size + 1) * size));
            let length = next - sector;
            sector = next;
            let chunk = layout.chunk_at(member, row).filter(|chunk| chunk * size < layout.capacity_sectors);
            let Some(chunk) = chunk else { continue };
            let mut copies = (0..layout.copies()).filter_map(|copy| layout.copy(chunk, copy));
            let Some(place) = copies.find(|place| !failed.contains(place.member)) else { return false };
            let start = place.sector + offset;
            self.runs.add(place.member, (start, start + length), Op::Read, false);
            self.balance.given(place.member, 1);
        }
        true
    }

    /// Writes the window that has been read, unless the one before is still being written.
    fn write_window(&mut self, context: &mut Context<'_>) {
        let Some(running) = self.running() else { return };
        let Some(window) = running.reading.filter(|window| window.state == State::Read) else { return };
        if running.writing.is_some() {
            return;
        }
        (running.reading, running.writing) = (None, Some(window.span));
        let (member, (start, end)) = (running.member, window.span);
        let all = MemberSet::first(self.layout.members);
        let has_parity = self.layout.has_parity();
        // With parity, the data of a lost member are on no other member.
        let copies = if has_parity { MemberSet::default() } else { all.without(self.failed(context.now())) };
        self.rewrite(member, window.span, copies, context);
        let sectors = u32::try_from(end - start).expect("no longer than a window");
        self.submit_to_spare(Request::new(0, Op::Write, start, sectors), context);
    }

    fn submit_to_spare(&mut self, request: Request, context: &mut Context<'_>) {
        let Some(rebuild) = &self.rebuild else { return };
        let (number, Some(running)) = (rebuild.number, &rebuild.running) else { return };
        self.submit_part(Owner::Rebuild(number), running.member, 0, request, context);
    }

    /// Takes a member's answer to a request of a rebuild.
    pub(super) fn rebuild_answered(
        &mut self,
        number: u32,
        member: usize,
        (op, status): (Op, Status),
        context: &mut Context<'_>,
    ) {
        let Some(rebuild) = self.rebuild.as_mut().filter(|rebuild| rebuild.number == number) else { return };
        let Some(running) = &mut rebuild.running else { return };
        match op {
            Op::Read => self.window_answered(member, status, context),
            _ if status != Status::Ok => {
                self.drop_spare(context.now());
            }
            Op::Write => {
                let (start, end) = running.writing.take().expect("a window that was written");
                running.mark = end;
                rebuild.statistics.rebuilt_sectors += end - start;
                rebuild.due = Some(context.now());
                match end == rebuild.end {
                    true if context.has_volatile_cache() => {
                        self.submit_to_spare(Request::new(0, Op::Flush, 0, 0), context)
                    }
                    true => self.finish_rebuild(context.now()),
                    false => self.write_window(context),
                }
            }
            _ => self.finish_rebuild(context.now()),
        }
    }

    /// Takes the answer to a read of the window.
    fn window_answered(&mut self, member: usize, status: Status, context: &mut Context<'_>) {
        let Some(window) = self.running().and_then(|running| running.reading.as_mut()) else { return };
        let State::Reading(count) = window.state else { return };
        let answers = if status == Status::Ok { &mut window.read } else { &mut window.lost };
        answers.insert(member);
        window.fails |= status != Status::Ok;
        window.state = if count > 1 { State::Reading(count - 1) } else { State::Read };
        if count > 1 {
            return;
        }
        let window = *window;
        if self.layout.has_parity() {
            let missing = MemberSet::first(self.layout.members).without(window.read.without(window.lost));
            if !self.layout.survives(missing) {
                return self.give_up_rebuild(context.now());
            }
        } else if window.fails {
            return self.read_window(window, context);
        }
        self.write_window(context);
    }

    /// The data of the lost member cannot be read: it stays lost.
    fn give_up_rebuild(&mut self, now: Nanos) {
        let Some(rebuild) = &mut self.rebuild else { return };
        let Some(running) = rebuild.running.take() else { return };
        rebuild.given_up.insert(running.member);
        rebuild.statistics.given_up += 1;
        rebuild.due = Some(now);
    }

    /// The spare has all data: the array has its member again.
    fn finish_rebuild(&mut self, now: Nanos) {
        let Some(rebuild) = &mut self.rebuild else { return };
        let Some(running) = rebuild.running.take() else { return };
        self.failed.remove(running.member);
        rebuild.statistics.done += 1;
        rebuild.statistics.done_at = now;
        rebuild.due = Some(now);
    }
}
