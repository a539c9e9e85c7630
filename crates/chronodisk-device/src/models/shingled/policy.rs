//! Handling of the host's requests, and the conditions for cleaning.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Nanos, Op, Request, RequestId, Status};

use super::Layout;
use super::cleaning::Cleaning;
use super::log::Log;
use crate::Probe;
use crate::composite::{Context, Members, Policy, Slab};
use crate::sector_set::SectorSet;

/// The layer's state.
#[derive(Clone, Debug)]
pub(super) struct Shingled {
    layout: Arc<Layout>,
    log: Log,
    hosts: Slab<Host>,
    parts: Slab<u32>,
    /// Parts of writes that wait for room in the cache, in order.
    waiting: VecDeque<Part>,
    /// Requests of the host that are not complete.
    outstanding: u32,
    idle_since: Nanos,
    stream: Stream,
    /// Sectors of bands whose newest content the host wrote there, or cleaning before the disk had it on its medium.
    /// Other content of a band is durable: the drive finds it in the cache or in the scratch area.
    direct: SectorSet,
    cleaning: Option<Cleaning>,
    /// A step of the cleaning is under way.
    step_under_way: bool,
    statistics: ShingledStatistics,
}

/// A request of the host.
#[derive(Clone, Copy, Debug)]
struct Host {
    id: RequestId,
    /// Parts that are not complete.
    parts: u32,
    status: Status,
}

/// A write, or its rest, within one band.
#[derive(Clone, Copy, Debug)]
struct Part {
    request: Request,
    host: u32,
    block: u64,
    blocks: u64,
}

/// State of the host's sequential writing.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The block after the last write.
    next: u64,
    /// Blocks written in a row up to there.
    blocks: u64,
    /// Next block of a stream that bypasses the cache.
    direct: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct ShingledStatistics {
    cached_blocks: u64,
    direct_blocks: u64,
    cleaned_bands: u64,
    waits: u64,
}

/// The tag of cleaning's steps; parts have 32 bits.
const CLEANING: u64 = u64::MAX;

impl Shingled {
    pub(super) fn new(layout: Arc<Layout>, log: Log) -> Self {
        Shingled {
            layout,
            log,
            hosts: Slab::new(),
            parts: Slab::new(),
            waiting: VecDeque::new(),
            outstanding: 0,
            idle_since: Nanos::ZERO,
            stream: Stream::default(),
            direct: SectorSet::EMPTY,
            cleaning: None,
            step_under_way: false,
            statistics: ShingledStatistics::default(),
        }
    }

    fn blocks_of(&self, request: &Request) -> (u64, u64) {
        let sectors = u64::from(self.layout.block_sectors);
        (request.lba.0 / sectors, request.end().0.div_ceil(sectors))
    }

    /// Sends a part of a host's request to the disk.
    fn send(&mut self, request: &Request, host: u32, place: u64, blocks: u64, context: &mut Context<'_>) {
        let sectors = u64::from(self.layout.block_sectors);
        let part = self.parts.insert(host);
        self.hosts.get_mut(host).parts += 1;
        let below = Request {
            lba: chronodisk_sim::Lba(place * sectors),
            sectors: u32::try_from(blocks * sectors).expect("part of a request"),
            ..*request
        };
        context.submit(0, part.into(), below);
    }

    fn read(&mut self, request: &Request, host: u32, context: &mut Context<'_>) {
        let (mut block, end) = self.blocks_of(request);
        while block < end {
            let (place, blocks) = self.log.run(block, end);
            let place = place.unwrap_or_else(|| self.layout.band_place(block));
            self.send(request, host, place, blocks, context);
            block += blocks;
        }
    }

    /// Splits a write at bands; its parts queue behind earlier ones.
    fn write(&mut self, request: Request, host: u32, context: &mut Context<'_>) {
        let (mut block, end) = self.blocks_of(&request);
        while block < end {
            let band_end = (block / self.layout.band_blocks + 1) * self.layout.band_blocks;
            let blocks = end.min(band_end) - block;
            // Counts the part before it is sent, so that the request can't complete before.
            self.hosts.get_mut(host).parts += 1;
            self.waiting.push_back(Part { request, host, block, blocks });
            block += blocks;
        }
        self.admit(context);
        self.statistics.waits += u64::from(!self.waiting.is_empty());
    }

    /// Sends writes that have room; cleaning makes room for others.
    fn admit(&mut self, context: &mut Context<'_>) {
        while let Some(&part) = self.waiting.front() {
            if !self.has_place(&part) {
                self.clean(context);
                return;
            }
            self.waiting.pop_front();
            self.place(part, context);
            self.part_done(part.host, Status::Ok, context);
        }
    }

    fn is_direct(&self, part: &Part) -> bool {
        let starts_band = part.block.is_multiple_of(self.layout.band_blocks);
        let streams = part.block == self.stream.next && self.stream.blocks >= self.layout.stream_blocks;
        self.stream.direct == Some(part.block) || (starts_band && streams)
    }

    fn has_place(&mut self, part: &Part) -> bool {
        if self.is_direct(part) || self.log.has_room(part.blocks) {
            return true;
        }
        self.log.oldest();
        self.log.has_room(part.blocks)
    }

    /// Sends a part that has a place.
    fn place(&mut self, part: Part, context: &mut Context<'_>) {
        let Part { request, host, block, blocks } = part;
        let direct = self.is_direct(&part);
        let in_a_row = if block == self.stream.next { self.stream.blocks } else { 0 };
        self.stream =
            Stream { next: block + blocks, blocks: in_a_row + blocks, direct: direct.then_some(block + blocks) };
        if direct {
            self.statistics.direct_blocks += blocks;
            self.log.forget(block, block + blocks, self.log.head());
            self.direct.insert(self.layout.sectors(block, blocks));
            return self.send(&request, host, self.layout.band_place(block), blocks, context);
        }
        self.statistics.cached_blocks += blocks;
        let before_end = blocks.min(self.log.until_end());
        let place = self.log.append(block, before_end);
        self.send(&request, host, place, before_end, context);
        if before_end < blocks {
            let place = self.log.append(block + before_end, blocks - before_end);
            self.send(&request, host, place, blocks - before_end, context);
        }
    }

    /// Ends a part of a host's request; the last one completes it.
    fn part_done(&mut self, number: u32, status: Status, context: &mut Context<'_>) {
        let host = self.hosts.get_mut(number);
        host.parts -= 1;
        host.status = host.status.max(status);
        if host.parts == 0 {
            let host = self.hosts.take(number);
            self.outstanding -= 1;
            self.idle_since = context.now();
            context.complete(host.id, host.status);
        }
    }

    /// Takes the next step of cleaning; begins with the oldest band if none is being cleaned.
    fn clean(&mut self, context: &mut Context<'_>) {
        if self.step_under_way {
            return;
        }
        let layout = Arc::clone(&self.layout);
        let mut cleaning = match self.cleaning {
            Some(cleaning) => cleaning,
            None => match self.log.oldest() {
                Some(block) => Cleaning::new(&layout, &self.log, block),
                None => return,
            },
        };
        match cleaning.step(&layout, &self.log) {
            Some(step) => {
                if step.write && step.place >= layout.band_place(0) {
                    self.clean_over(step.place - layout.band_place(0), step.blocks, context);
                }
                let sectors = u64::from(layout.block_sectors);
                let op = if step.write { Op::Write } else { Op::Read };
                let sectors_of_step = u32::try_from(step.blocks * sectors).expect("a band is at most 1 GiB");
                context.submit(0, CLEANING, Request::new(0, op, step.place * sectors, sectors_of_step));
                self.step_under_way = true;
                self.cleaning = Some(cleaning);
            }
            None => {
                self.finish_cleaning(&cleaning, context);
                self.statistics.cleaned_bands += 1;
                self.cleaning = None;
                self.log.oldest();
                if self.waiting.is_empty() {
                    self.go_on_cleaning(context);
                } else {
                    self.admit(context);
                }
            }
        }
    }

    /// Cleaning writes these blocks of a band over the host's content. A part of it may not be on the medium.
    fn clean_over(&mut self, block: u64, blocks: u64, context: &mut Context<'_>) {
        let sectors = self.layout.sectors(block, blocks);
        if self.direct.within(sectors.clone()).next().is_some() {
            self.keep_volatile(sectors, context);
        }
    }

    /// A band is at its place: the log forgets its blocks, except those that were written meanwhile.
    fn finish_cleaning(&mut self, cleaning: &Cleaning, context: &mut Context<'_>) {
        let Range { start, end } = cleaning.band(&self.layout);
        self.keep_volatile(self.layout.sectors(start, end - start), context);
        self.log.forget(start, end, cleaning.head());
    }

    /// From now on, the content of these sectors in their band is the newest where it is volatile now.
    fn keep_volatile(&mut self, sectors: Range<u64>, context: &mut Context<'_>) {
        let volatile = context.volatile(0).map(|below| self.volatile_above(&below)).unwrap_or_default();
        self.direct.remove(sectors.clone());
        volatile.within(sectors).for_each(|range| self.direct.insert(range));
    }

    /// The host's sectors whose newest content is volatile on the disk, which has these volatile sectors.
    fn volatile_above(&self, below: &SectorSet) -> SectorSet {
        let layout = &*self.layout;
        let block_sectors = u64::from(layout.block_sectors);
        let (log_end, bands) = (layout.cache_blocks * block_sectors, layout.band_place(0) * block_sectors);
        let in_log = blocks_of(below.within(0..log_end), block_sectors).filter_map(|(place, part)| {
            let block = self.log.block_at(place)?;
            let start = block * block_sectors + part.start % block_sectors;
            Some(start..start + (part.end - part.start))
        });
        let in_bands = below.within(bands..u64::MAX).flat_map(|part| {
            let direct = self.direct.within(part.start - bands..part.end - bands);
            // The newest content of other blocks is in the log.
            blocks_of(direct, block_sectors).filter(|&(block, _)| self.log.place_of(block).is_none())
        });
        in_log.chain(in_bands.map(|(_, part)| part)).collect()
    }

    /// Continues cleaning after a step, unless the host is active and no write waits for room.
    fn go_on_cleaning(&mut self, context: &mut Context<'_>) {
        let idle = self.outstanding == 0 && context.now() >= self.idle_since.saturating_add(self.layout.clean_after);
        if idle || !self.waiting.is_empty() {
            self.clean(context);
        }
    }
}

/// The blocks of ranges of sectors, each with its part of the range.
fn blocks_of(ranges: impl Iterator<Item = Range<u64>>, block_sectors: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    ranges.flat_map(move |range| {
        let blocks = range.start / block_sectors..range.end.div_ceil(block_sectors);
        blocks.map(move |block| {
            let (first, end) = (block * block_sectors, (block + 1) * block_sectors);
            (block, first.max(range.start)..end.min(range.end))
        })
    })
}

impl Policy for Shingled {
    fn arrive(&mut self, request: Request, context: &mut Context<'_>) {
        self.outstanding += 1;
        if request.op == Op::Discard {
            self.outstanding -= 1;
            self.idle_since = context.now();
            return context.complete_at_once(request.id, Status::Unsupported);
        }
        let host = self.hosts.insert(Host { id: request.id, parts: 0, status: Status::Ok });
        match request.op {
            Op::Read => self.read(&request, host, context),
            Op::Write | Op::WriteZeroes => self.write(request, host, context),
            _ => self.send(&request, host, 0, 0, context),
        }
    }

    fn answer(&mut self, _member: usize, tag: u64, status: Status, context: &mut Context<'_>) {
        if tag == CLEANING {
            self.step_under_way = false;
            return self.go_on_cleaning(context);
        }
        let host = self.parts.take(tag as u32);
        self.part_done(host, status, context);
    }

    fn next_timer(&self) -> Option<Nanos> {
        let due = self.outstanding == 0 && !self.step_under_way && !self.log.is_clean();
        due.then(|| self.idle_since.saturating_add(self.layout.clean_after))
    }

    fn timer(&mut self, context: &mut Context<'_>) {
        self.clean(context);
    }

    fn volatile(&self, now: Nanos, members: &Members) -> Option<SectorSet> {
        let mut volatile = self.volatile_above(&members.volatile(now, 0)?);
        for part in &self.waiting {
            volatile.insert(self.layout.sectors(part.block, part.blocks));
        }
        Some(volatile)
    }

    fn probe(&self, sink: &mut dyn Probe) {
        sink.counter("cached-blocks", self.statistics.cached_blocks);
        sink.counter("direct-blocks", self.statistics.direct_blocks);
        sink.counter("cleaned-bands", self.statistics.cleaned_bands);
        sink.counter("writes-that-waited", self.statistics.waits);
        sink.gauge("cache-in-use", "blocks", self.log.live() as f64);
    }
}
