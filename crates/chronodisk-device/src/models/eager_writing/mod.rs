//! Eager writing, kind `eager-writing`: a disk that writes each block at the place that its heads reach soonest, and
//! maps addresses to places.
//!
//! Griffin, Schindler, Schlosser, Bucy and Ganger, "Timing-accurate Storage Emulation" (FAST 2002), section 6.3: new
//! data go "to an unused location near the disk head's current location", and the firmware maintains a mapping table.
//! The host sees an ordinary device. The idea is Wang, Anderson and Patterson's, "Virtual Log Based File Systems for a
//! Programmable Disk" (OSDI 1999).
//!
//! Modelled:
//! - The host's requests are served one after the other, in order of arrival.
//! - A write goes to the free block that passes under a head soonest. Candidates are the track under the heads and the
//!   `search-tracks` nearest tracks with free blocks. The disk's own positioning time counts, after its command
//!   overhead and `margin`. From there on, the write takes all consecutive free blocks that it needs; for the remaining
//!   data the search begins again once those are written. If no track nearby has a free block, the nearest free block
//!   by address is taken. The old places of the data become free when the new ones are written.
//! - A read collects the places of its blocks. Runs of neighbours are read together, in batches of up to 32. A block
//!   that was never written has no place; it reads as zeros after the command overhead.
//! - A discard and a write of zeros free the places; they cost the command overhead. A flush is passed to the disk.
//!
//! Not modelled: compaction of free space when idle (the paper has none) and the mapping table's own writes. The disk
//! below must write through: with a write cache of its own it would move its heads at another time.
//!
//! ```toml
//! kind = "eager-writing"
//! member = "cheetah-x15"        # a profile of kind `disk`
//! capacity = "16 GB"            # the disk keeps at least 1 % free; the default is 90 % of it
//! logical-block = "4 KiB"       # the unit of the mapping table
//! search-tracks = 8             # the default
//! margin = "100 us"             # the default
//! ```

mod space;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Completion, EventQueue, Lba, Nanos, Op, Request, RequestId, SECTOR_BYTES, Status};

use crate::cow_table::CowTable;
use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::models::blueprint::{Blueprint, FindMembers};
use crate::models::disk::{Disk, Drive};
use crate::sector_set::{SectorSet, changed};
use crate::{DeviceInfo, DeviceModel, Probe};
pub(crate) use space::Space;

/// Immutable parts.
#[derive(Debug)]
struct Parts {
    drive: Arc<Drive>,
    block_sectors: u64,
    search_tracks: u32,
    /// Time between the choice of a place and the earliest movement of the heads, including the margin.
    lead: Nanos,
    overhead: Nanos,
}

/// The layer and the disk in it.
#[derive(Clone, Debug)]
struct EagerWriting {
    info: Arc<DeviceInfo>,
    parts: Arc<Parts>,
    now: Nanos,
    disk: Disk,
    /// The disk's block of each host block, plus one; zero if it has no place.
    map: CowTable<u32>,
    space: Space,
    /// The disk's block after the last accessed one.
    heads: u64,
    waiting: VecDeque<Request>,
    active: Option<Active>,
    due: EventQueue<Due>,
    outstanding: u32,
    /// Completed writes that the write cache of the disk may still hold: all since the last flush. The disk runs ahead
    /// of the present instant, so its own buffer does not tell.
    unflushed: SectorSet,
    /// Empty between calls; kept for its capacity.
    answers: Vec<Completion>,
    statistics: EagerWritingStatistics,
}

/// The request being served, in blocks of the host.
#[derive(Clone, Copy, Debug)]
struct Active {
    request: Request,
    next: u64,
    end: u64,
    /// Instant at which the disk has completed its requests.
    ready: Nanos,
    /// First block on the disk and length of the run being written.
    run: (u64, u64),
    status: Status,
}

/// A completion on its way, with the sectors that become durable by it.
#[derive(Clone, Debug)]
struct Due {
    id: RequestId,
    status: Status,
    changed: Range<u64>,
}

#[derive(Clone, Debug, Default)]
struct EagerWritingStatistics {
    reads: u64,
    writes: u64,
    written_blocks: u64,
    runs: u64,
    far_runs: u64,
}

/// Most runs of a read that are submitted to the disk at once.
const RUNS_OF_A_BATCH: u32 = 32;

impl EagerWriting {
    fn new(info: DeviceInfo, parts: Arc<Parts>, disk: Disk) -> Self {
        let blocks = parts.drive.capacity_blocks() / parts.block_sectors;
        EagerWriting {
            map: CowTable::new(info.capacity_sectors.div_ceil(parts.block_sectors), 0),
            info: Arc::new(info),
            now: Nanos::ZERO,
            disk,
            space: Space::new(blocks),
            heads: 0,
            waiting: VecDeque::new(),
            active: None,
            due: EventQueue::new(),
            outstanding: 0,
            unflushed: SectorSet::EMPTY,
            answers: Vec::new(),
            statistics: EagerWritingStatistics::default(),
            parts,
        }
    }

    fn next_instant(&self) -> Nanos {
        let due = self.due.next_at().unwrap_or(Nanos::MAX);
        due.min(self.active.map_or(Nanos::MAX, |active| active.ready))
    }

    /// Serves waiting requests until one keeps the disk busy.
    fn serve(&mut self) {
        while self.active.is_none() {
            let Some(request) = self.waiting.pop_front() else { return };
            let (next, end) =
                (request.lba.0 / self.parts.block_sectors, request.end().0.div_ceil(self.parts.block_sectors));
            let active = Active { request, next, end, ready: Nanos::MAX, run: (0, 0), status: Status::Ok };
            match request.op {
                Op::Read => self.read_on(active),
                Op::Write => self.write_on(active),
                Op::Flush => {
                    self.send(Request::new(0, Op::Flush, 0, 0));
                    self.await_disk(active);
                }
                Op::Discard | Op::WriteZeroes => {
                    self.map.change(next, end, |_, before| {
                        if let Some(place) = before.checked_sub(1) {
                            self.space.free(place.into());
                        }
                        0
                    });
                    self.complete(&active, self.parts.overhead);
                }
                _ => self.complete(&Active { status: Status::Unsupported, ..active }, self.parts.overhead),
            }
        }
    }

    /// Submits the next batch of a read's runs once the last batch has completed, or completes the read.
    fn read_on(&mut self, mut active: Active) {
        let asked = active.next > active.request.lba.0 / self.parts.block_sectors;
        let mut batch = 0;
        while active.next < active.end && batch < RUNS_OF_A_BATCH {
            let (place, blocks) = self.mapped_run(active.next, active.end);
            if let Some(place) = place {
                self.access(&active.request, active.next, place, blocks);
                batch += 1;
            }
            active.next += blocks;
        }
        match batch {
            0 => self.complete(&active, if asked { Nanos::ZERO } else { self.parts.overhead }),
            _ => self.await_disk(active),
        }
    }

    /// The place of `block`, if it has one, and the number of blocks from it, before `end`, with consecutive places.
    fn mapped_run(&self, block: u64, end: u64) -> (Option<u64>, u64) {
        let first = self.map.get(block);
        let follows = |blocks: u64| match first {
            0 => self.map.get(block + blocks) == 0,
            _ => u64::from(self.map.get(block + blocks)) == u64::from(first) + blocks,
        };
        let mut blocks = 1;
        while block + blocks < end && follows(blocks) {
            blocks += 1;
        }
        (first.checked_sub(1).map(u64::from), blocks)
    }

    /// Writes the next run of a write, or completes it.
    fn write_on(&mut self, mut active: Active) {
        if active.next == active.end {
            return self.complete(&active, Nanos::ZERO);
        }
        let (place, near) = self.soonest();
        let blocks = self.space.run(place, active.end - active.next);
        self.space.take(place, blocks);
        self.statistics.runs += 1;
        self.statistics.far_runs += u64::from(!near);
        self.statistics.written_blocks += blocks;
        self.access(&active.request, active.next, place, blocks);
        active.run = (place, blocks);
        self.await_disk(active);
    }

    /// Submits a read or write of blocks to the disk. The tag does not matter, since completions are only counted.
    fn access(&mut self, request: &Request, block: u64, place: u64, blocks: u64) {
        self.heads = place + blocks;
        let sectors = self.parts.block_sectors;
        self.send(Request {
            id: RequestId(block),
            lba: Lba(place * sectors),
            sectors: u32::try_from(blocks * sectors).expect("a part of a request"),
            ..*request
        });
    }

    fn send(&mut self, request: Request) {
        while self.disk.now() < self.now {
            self.disk.step(self.now, &mut self.answers);
        }
        self.disk.submit(request);
    }

    /// Runs the disk until it has completed the active request.
    ///
    /// The disk gets no other request before then, so its completions can be computed at once.
    fn await_disk(&mut self, mut active: Active) {
        while self.disk.outstanding() > 0 {
            self.disk.step(Nanos::MAX, &mut self.answers);
        }
        for answer in self.answers.drain(..) {
            active.status = active.status.max(answer.status);
        }
        active.ready = self.disk.now();
        self.active = Some(active);
    }

    /// Called when the disk has completed all requests for the active one.
    fn answered(&mut self) {
        let Some(mut active) = self.active.take() else { return };
        match active.request.op {
            Op::Read => self.read_on(active),
            Op::Write => {
                let (place, blocks) = active.run;
                let first = active.next;
                self.map.change(first, first + blocks, |block, before| {
                    if let Some(place) = before.checked_sub(1) {
                        self.space.free(place.into());
                    }
                    (place + (block - first)) as u32 + 1
                });
                active.next += blocks;
                self.write_on(active);
            }
            _ => {
                self.unflushed = SectorSet::EMPTY;
                self.complete(&active, Nanos::ZERO);
            }
        }
    }

    /// Completes the request in `after`, or a nanosecond after now if the disk had no part in it.
    fn complete(&mut self, active: &Active, after: Nanos) {
        let Active { request, status, .. } = *active;
        let changed = changed(&request);
        match request.op == Op::Write && self.info.volatile_cache && !request.fua {
            true => self.unflushed.insert(changed.clone()),
            false => self.unflushed.remove(changed.clone()),
        }
        self.due.push(self.now.saturating_add(after), Due { id: request.id, status, changed });
    }

    /// The free block that the heads reach soonest, and whether it is nearby.
    fn soonest(&self) -> (u64, bool) {
        let at = self.now.saturating_add(self.parts.lead);
        let mut best: Option<(Nanos, u64)> = None;
        let mut found = 0;
        // Search track by track in both directions, by address: tracks with neighbouring addresses are neighbours on
        // the disk.
        let last = self.space.blocks() - 1;
        let here = self.track(self.heads.min(last));
        let (mut down, mut up) = (here.0, here.1);
        let mut consider = |track: (u64, u64)| {
            if let Some(candidate) = self.soonest_on(track, at) {
                found += 1;
                best = Some(best.map_or(candidate, |best| best.min(candidate)));
            }
            found > self.parts.search_tracks
        };
        let mut enough = consider(here);
        for _ in 0..TRACKS_LOOKED_AT {
            if !enough && up <= last {
                let track = self.track(up);
                (enough, up) = (consider(track), track.1);
            }
            if !enough && down > 0 {
                let track = self.track(down - 1);
                (enough, down) = (consider(track), track.0);
            }
        }
        match best {
            Some((_, place)) => (place, true),
            None => (self.space.nearest(self.heads.min(last)).expect("a disk is never full"), false),
        }
    }

    /// The blocks that begin on the track of `block`.
    fn track(&self, block: u64) -> (u64, u64) {
        let sectors = self.parts.block_sectors;
        let place = self.parts.drive.geometry.locate(block * sectors);
        let first = place.track_first.div_ceil(sectors).min(block);
        let end = place.track_end.div_ceil(sectors).clamp(block + 1, self.space.blocks());
        (first, end)
    }

    /// The free block of a track that is reached soonest, and the instant.
    fn soonest_on(&self, (first, end): (u64, u64), at: Nanos) -> Option<(Nanos, u64)> {
        self.space.next_free(first, end)?;
        let sectors = self.parts.block_sectors;
        // Blocks pass in order of address: the blocks before this one begin to pass before the head arrives.
        let passed = self.disk.begun_on_arrival(at, first * sectors, true).div_ceil(sectors);
        let high = end.min(first + passed);
        let block = self.space.next_free(high, end).or_else(|| self.space.next_free(first, high))?;
        Some((self.disk.time_to_reach(at, block * sectors, true), block))
    }
}

/// Most tracks on either side that are searched for free blocks.
const TRACKS_LOOKED_AT: u32 = 64;

impl DeviceModel for EagerWriting {
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
        match request.op {
            Op::Read => self.statistics.reads += 1,
            Op::Write => self.statistics.writes += 1,
            _ => {}
        }
        self.waiting.push_back(request);
        self.serve();
    }

    fn next_event(&self) -> Option<Nanos> {
        Some(self.next_instant()).filter(|&at| at < Nanos::MAX)
    }

    fn completion_bound(&self) -> Option<Nanos> {
        if self.outstanding == 0 { None } else { self.next_event() }
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let already = completed.len();
        loop {
            let next = self.next_instant();
            if next > limit || completed.len() > already {
                if completed.len() == already {
                    self.now = self.now.max(limit);
                }
                return;
            }
            self.now = self.now.max(next);
            while self.next_instant() <= self.now {
                if self.active.is_some_and(|active| active.ready <= self.now) {
                    self.answered();
                    self.serve();
                }
                while let Some((at, Due { id, status, .. })) = self.due.pop_until(self.now) {
                    self.outstanding -= 1;
                    completed.push(Completion { id, at, status });
                }
            }
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    /// Writes until they complete, and with a write cache in the disk until a flush.
    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        let requests = self.waiting.iter().chain(self.active.as_ref().map(|active| &active.request));
        let due = self.due.events().map(|due| due.changed.clone());
        let unflushed = self.unflushed.ranges().iter().cloned();
        Some(requests.map(changed).chain(due).chain(unflushed).collect::<SectorSet>().into_ranges())
    }

    fn probe(&self, sink: &mut dyn Probe) {
        sink.counter("reads", self.statistics.reads);
        sink.counter("writes", self.statistics.writes);
        sink.counter("written-blocks", self.statistics.written_blocks);
        sink.counter("written-runs", self.statistics.runs);
        sink.counter("far-runs", self.statistics.far_runs);
        sink.gauge("disk-in-use", "blocks", self.space.used() as f64);
    }
}

/// Kind `eager-writing`: the keys as the module shows them.
pub(crate) fn parse(fields: &mut Fields<'_>, members: &mut dyn FindMembers) -> Result<Blueprint, ProfileError> {
    let member = members.one(fields, "member")?;
    let Some(drive) = member.drive() else {
        return Err(
            fields.error_at("member", format!("of the kind {}; expected a profile of kind disk", member.kind()))
        );
    };
    let search_tracks = fields.optional_count("search-tracks", 0..=TRACKS_LOOKED_AT)?.unwrap_or(8);
    let margin: Nanos = fields.quantity_or("margin", Nanos::from_micros(100))?;
    // Counted in the largest blocks, so that the capacity is valid for any logical block.
    let whole = drive.capacity_blocks() * SECTOR_BYTES / LARGEST_BLOCK_BYTES;
    let (most, default) = (whole * 99 / 100 * LARGEST_BLOCK_BYTES, whole * 9 / 10 * LARGEST_BLOCK_BYTES);
    if default == 0 || whole * LARGEST_BLOCK_BYTES / SECTOR_BYTES > u64::from(u32::MAX) * 8 {
        return Err(fields.error_at("member", "expected a disk of 128 KiB to 16 TiB"));
    }
    let overhead = drive.command_overhead();
    let (disk_blocks, drive_memory_bytes) = (drive.capacity_blocks(), Disk::memory_bytes_max(&drive));
    let make = move |info: DeviceInfo, seed: u64| -> Box<dyn DeviceModel> {
        let disk_info = DeviceInfo { capacity_sectors: drive.capacity_blocks(), ..info.clone() };
        let disk = Disk::new(disk_info, Arc::clone(&drive), seed);
        let parts = Parts {
            drive: Arc::clone(&drive),
            block_sectors: u64::from(info.logical_block_bytes) / SECTOR_BYTES,
            search_tracks,
            lead: overhead.saturating_add(margin),
            overhead: overhead.max(Nanos::from_nanos(1)),
        };
        let info = DeviceInfo { volatile_cache: disk.info().volatile_cache, ..info };
        Box::new(EagerWriting::new(info, Arc::new(parts), disk))
    };
    let memory = move |info: &DeviceInfo| {
        let block_sectors = u64::from(info.logical_block_bytes) / SECTOR_BYTES;
        footprint::sum([
            2 * footprint::DEVICE_BYTES,
            drive_memory_bytes,
            CowTable::<u32>::bytes_max(info.capacity_sectors.div_ceil(block_sectors)),
            Space::bytes_max(disk_blocks / block_sectors),
        ])
    };
    Ok(Blueprint::new(memory, make).over(&[member]).with_discard().sized_within(default, most))
}

/// The largest logical block that a profile can have.
const LARGEST_BLOCK_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests;
