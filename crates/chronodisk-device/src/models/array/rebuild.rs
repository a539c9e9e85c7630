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

use chronodisk_sim::{Nanos, Request, SECTOR_BYTES};

use super::layout::{Layout, MemberSector, MemberSet};
use crate::Probe;
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
    pub(super) pace: Pace,
    /// The device at each place of the layout.
    devices: Vec<usize>,
    /// Spares that are left.
    spares: Range<usize>,
    /// Sectors of a member that are in use.
    pub(super) end: u64,
    /// Lost members that cannot be rebuilt.
    given_up: MemberSet,
    pub(super) running: Option<Running>,
    /// Rebuilds so far.
    pub(super) number: u32,
    /// Whether the next window waits for requests that are held back.
    pub(super) after_held: bool,
    /// An instant at which something is to be done.
    pub(super) due: Option<Nanos>,
    /// Requests of the host that are outstanding, and the instant of the last completion.
    hosts: u32,
    last_host: Option<Nanos>,
    /// Requests that are held back, in order of arrival.
    pub(super) held: Vec<u32>,
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
pub(super) struct Running {
    pub(super) member: usize,
    /// Sectors before it are rebuilt.
    pub(super) mark: u64,
    /// End of the last window.
    pub(super) next: u64,
    pub(super) reading: Option<Window>,
    pub(super) writing: Option<(u64, u64)>,
    /// Begin of the last window.
    pub(super) last: Option<Nanos>,
}

/// Sectors of each member that are being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) span: (u64, u64),
    pub(super) state: State,
    /// Members that have been read, and members that failed to be.
    pub(super) read: MemberSet,
    pub(super) lost: MemberSet,
    /// Whether one of the present reads has failed.
    pub(super) fails: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
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
    pub(super) fn next_window(&self, running: &Running) -> Nanos {
        let Some(last) = running.last else { return Nanos::ZERO };
        let bytes = self.pace.window_sectors * SECTOR_BYTES;
        let [slow, fast] = [self.pace.min, self.pace.max].map(|rate| last.saturating_add(rate.time_for(bytes)));
        let idle = self.last_host.map_or(Nanos::ZERO, |at| at.saturating_add(IDLE));
        if self.hosts > 0 { slow } else { slow.min(fast.max(idle)) }
    }

    /// Sectors of the member that no write may change now.
    pub(super) fn locked(&self) -> Option<(usize, (u64, u64))> {
        let running = self.running.as_ref().filter(|running| running.mark < running.next)?;
        Some((running.member, (running.mark, running.next)))
    }

    /// A member was lost.
    pub(super) fn notice_loss(&mut self, now: Nanos) {
        self.due = Some(now);
    }

    /// The spare failed a write during its rebuild: it is gone.
    pub(super) fn drop_spare(&mut self, now: Nanos) {
        self.statistics.dropped_spares += 1;
        self.running = None;
        self.due = Some(now);
    }

    /// A request of the host arrives.
    pub(super) fn host_arrives(&mut self) {
        self.hosts += 1;
    }

    /// A request of the host has completed, `arriving` at the instant of its arrival.
    pub(super) fn host_completed(&mut self, now: Nanos, arriving: bool) {
        self.hosts -= 1;
        self.last_host = Some(now);
        let reading = self.running.as_ref().and_then(|running| running.reading);
        if reading.is_some_and(|window| window.state == State::Draining) {
            // An arrival has no consequences for the rebuild at its own instant, at which others may follow.
            let at = if arriving { now.saturating_add(Nanos::from_nanos(1)) } else { now };
            self.due = Some(self.due.map_or(at, |due| due.min(at)));
        }
    }

    /// Begins to rebuild the next of the `failed` members if none is being rebuilt. Returns the member that has a spare
    /// from now on.
    pub(super) fn begin(&mut self, failed: MemberSet) -> Option<usize> {
        (self.due, self.after_held) = (None, false);
        if self.running.is_some() {
            return None;
        }
        let member = failed.without(self.given_up).iter().next()?;
        let spare = self.spares.next()?;
        self.number += 1;
        self.devices[member] = spare;
        self.running = Some(Running { member, mark: 0, next: 0, reading: None, writing: None, last: None });
        Some(member)
    }

    /// The window being written is on the spare. Returns whether it was the last one.
    pub(super) fn written(&mut self, now: Nanos) -> bool {
        let Some(running) = &mut self.running else { return false };
        let (start, end) = running.writing.take().expect("a window that was written");
        running.mark = end;
        self.statistics.rebuilt_sectors += end - start;
        self.due = Some(now);
        end == self.end
    }

    /// The data of the lost member cannot be read: it stays lost.
    pub(super) fn give_up(&mut self, now: Nanos) {
        let Some(running) = self.running.take() else { return };
        self.given_up.insert(running.member);
        self.statistics.given_up += 1;
        self.due = Some(now);
    }

    /// The spare has all data. Returns the member that it replaces.
    pub(super) fn finish(&mut self, now: Nanos) -> Option<usize> {
        let running = self.running.take()?;
        self.statistics.done += 1;
        self.statistics.done_at = now;
        self.due = Some(now);
        Some(running.member)
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
pub(super) fn changes_rows(layout: &Layout, member: usize, span: (u64, u64), request: &Request) -> bool {
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

/// How many of `length` sectors at a place its member has: the spare of a rebuild has those before the mark.
pub(super) fn held_sectors(rebuild: Option<&Rebuild>, failed: MemberSet, place: MemberSector, length: u64) -> u64 {
    match rebuild {
        _ if !failed.contains(place.member) => length,
        Some(rebuild) => rebuild.rebuilt_sectors(place, length),
        None => 0,
    }
}
