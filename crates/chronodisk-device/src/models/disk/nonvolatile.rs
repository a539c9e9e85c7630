//! A write cache that survives loss of power, in front of a drive: the case study of Thekkath, Wilkes and Lazowska,
//! "Techniques for File System Simulation" (Software: Practice and Experience, 1994).
//!
//! A write completes when its data are in the memory. They go to the disk in C-SCAN order (upwards from where the last
//! one ended, then back to the lowest), and only while no read waits: a read that arrives goes before all that is not
//! on its way. A read whose blocks are all in the memory does not need the disk. Writes that find no room wait, in
//! order of arrival; one that is larger than the memory goes to the disk itself, and completes on the medium.
//!
//! Not modelled: a read that finds part of its blocks in the memory reads them all from the disk.

use std::collections::VecDeque;
use std::ops::Range;

use chronodisk_sim::{Completion, EventQueue, Nanos, Op, Request, RequestId, Status};

use super::controller::{Disk, SHORTEST};
use super::mechanics::{Ticks, duration, nanos, ticks};
use super::parameters::NonvolatileParameters;
use crate::sector_set::{SectorSet, changed};
use crate::{Background, DeviceInfo, DeviceModel, Probe, advance};

/// A drive behind a non-volatile write cache.
#[derive(Clone, Debug)]
pub(super) struct NonvolatileDisk {
    info: DeviceInfo,
    disk: Disk,
    now: Nanos,
    capacity: u64,
    access: Ticks,
    read_block: Ticks,
    write_block: Ticks,
    /// Blocks that are not on the disk.
    dirty: SectorSet,
    /// On its way to the disk.
    destaging: Option<Range<u64>>,
    /// Where the last destage ended.
    head: u64,
    bus_free: Ticks,
    waiting: VecDeque<Request>,
    /// Completions with the blocks that they make safe.
    due: EventQueue<(RequestId, Range<u64>)>,
    /// Requests in the disk, by their numbers there; a destage has no host's request.
    at_disk: Vec<(u64, Option<Request>)>,
    next_number: u64,
    outstanding: u32,
    scratch: Vec<Completion>,
    hits: u64,
    destages: u64,
}

/// Longest write to the disk, so that a read does not wait for a memory full of consecutive blocks.
const LONGEST_DESTAGE: u64 = 256;

impl NonvolatileDisk {
    pub(super) fn new(disk: Disk, parameters: NonvolatileParameters) -> Self {
        let (info, [read_block, write_block]) = (disk.info().clone(), disk.block_times());
        NonvolatileDisk {
            info: DeviceInfo { volatile_cache: false, ..info },
            capacity: parameters.blocks.into(),
            access: duration(parameters.access),
            read_block,
            write_block,
            disk,
            now: Nanos::ZERO,
            dirty: SectorSet::EMPTY,
            destaging: None,
            head: 0,
            bus_free: 0,
            waiting: VecDeque::new(),
            due: EventQueue::new(),
            at_disk: Vec::new(),
            next_number: 0,
            outstanding: 0,
            scratch: Vec::new(),
            hits: 0,
            destages: 0,
        }
    }

    fn used(&self) -> u64 {
        self.dirty.sectors() + self.destaging.as_ref().map_or(0, |range| range.end - range.start)
    }

    fn holds(&self, blocks: &Range<u64>) -> bool {
        let leaves = |range: &Range<u64>| range.start <= blocks.start && blocks.end <= range.end;
        self.dirty.covers(blocks) || self.destaging.as_ref().is_some_and(leaves)
    }

    /// Completes a request with data that cross the bus, or none.
    fn complete_from_memory(&mut self, request: &Request, block_time: Ticks) {
        self.bus_free = self.bus_free.max(ticks(self.now)) + u64::from(request.sectors) * block_time;
        let at = nanos(self.bus_free + self.access).max(self.now + SHORTEST);
        self.due.push(at, (request.id, changed(request)));
    }

    fn send_to_disk(&mut self, request: Request, asked: Option<Request>) {
        let number = self.next_number;
        self.next_number += 1;
        self.at_disk.push((number, asked));
        self.disk.submit(Request { id: RequestId(number), ..request });
    }

    /// Takes the writes that have room, then lets the disk work if no read keeps it busy.
    fn go_on(&mut self) {
        while let Some(&request) = self.waiting.front() {
            let blocks = u64::from(request.sectors);
            if blocks > self.capacity {
                self.dirty.remove(request.lba.0..request.end().0);
                // Through the drive's own cache: no flush of the host reaches the drive.
                self.send_to_disk(Request { fua: true, ..request }, Some(request));
            } else if self.used() + blocks <= self.capacity {
                self.dirty.insert(request.lba.0..request.end().0);
                let time = if request.op == Op::Write { self.write_block } else { 0 };
                self.complete_from_memory(&request, time);
            } else {
                break;
            }
            self.waiting.pop_front();
        }
        if self.at_disk.is_empty() && !self.dirty.is_empty() {
            let ranges = self.dirty.ranges();
            let next = ranges.iter().find(|range| range.end > self.head).unwrap_or(&ranges[0]);
            let first = if next.contains(&self.head) { self.head } else { next.start };
            let end = next.end.min(first + LONGEST_DESTAGE);
            self.dirty.remove(first..end);
            self.destaging = Some(first..end);
            self.head = end;
            self.destages += 1;
            let write = Request { fua: true, ..Request::new(0, Op::Write, first, (end - first) as u32) };
            self.send_to_disk(write, None);
        }
    }

    /// The disk's answers of the present instant.
    fn collect(&mut self, completed: &mut Vec<Completion>) {
        advance(&mut self.disk, self.now, &mut self.scratch);
        for index in 0..self.scratch.len() {
            let done = self.scratch[index];
            let Some(at) = self.at_disk.iter().position(|&(number, _)| number == done.id.0) else { continue };
            match self.at_disk.swap_remove(at).1 {
                Some(Request { id, .. }) => self.finish(Completion { id, ..done }, completed),
                None => self.destaging = None,
            }
        }
        self.scratch.clear();
        while let Some((at, (id, _))) = self.due.pop_until(self.now) {
            self.finish(Completion { id, at, status: Status::Ok }, completed);
        }
    }

    fn finish(&mut self, completion: Completion, completed: &mut Vec<Completion>) {
        self.outstanding -= 1;
        completed.push(completion);
    }
}

impl DeviceModel for NonvolatileDisk {
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
            // Completed writes are safe.
            Op::Flush => self.due.push(self.now + SHORTEST, (request.id, 0..0)),
            Op::Read if self.holds(&(request.lba.0..request.end().0)) => {
                self.hits += 1;
                self.complete_from_memory(&request, self.read_block);
            }
            Op::Read => self.send_to_disk(request, Some(request)),
            _ => self.waiting.push_back(request),
        }
        self.go_on();
    }

    fn background(&mut self) -> Option<&mut dyn Background> {
        self.disk.background()
    }

    fn next_event(&self) -> Option<Nanos> {
        [self.disk.next_event(), self.due.next_at()].into_iter().flatten().min()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        if self.outstanding == 0 { None } else { self.next_event() }
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let (limit, already) = (limit.max(self.now), completed.len());
        loop {
            let next = self.next_event().unwrap_or(limit).min(limit);
            self.now = next.max(self.now);
            self.collect(completed);
            self.go_on();
            if self.now == limit || completed.len() > already {
                return;
            }
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    /// Outstanding writes, and the disk's own, except for blocks that the memory keeps until the disk has them.
    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        let mut volatile: SectorSet = self.disk.volatile()?.into_iter().collect();
        self.destaging.iter().for_each(|blocks| volatile.remove(blocks.clone()));
        let at_disk = self.at_disk.iter().filter_map(|(_, asked)| asked.as_ref());
        let arriving = self.due.events().map(|(_, blocks)| blocks.clone());
        let outstanding = self.waiting.iter().chain(at_disk).map(changed).chain(arriving);
        outstanding.for_each(|blocks| volatile.insert(blocks));
        Some(volatile.into_ranges())
    }

    fn probe(&self, sink: &mut dyn Probe) {
        sink.counter("memory-read-hits", self.hits);
        sink.counter("memory-destages", self.destages);
        sink.gauge("memory-used", "sectors", self.used() as f64);
        self.disk.probe(sink);
    }
}
