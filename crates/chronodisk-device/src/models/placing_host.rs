//! A host that directs eager writing: it keeps the map from blocks to places, and asks the device to write each block
//! to any of several free places.
//!
//! Griffin, Schindler, Schlosser, Bucy and Ganger, "Timing-accurate Storage Emulation" (FAST 2002), section 6.3: the
//! host directs "the disk to write a block to any of several locations (whichever is most efficient)", and records the
//! returned location in its metadata.
//!
//! At first, the blocks of the host are at random places and use a given share of the device. A write offers
//! the free places nearest by address to the last written one, half of them below it. The old place of a block becomes
//! free when its write completes. A request is served block by block; a write of a part of a block writes all of it.
//!
//! Not modelled: the host's own writes of its map.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Completion, Lba, Nanos, Op, RandomStream, Request, RequestId, SECTOR_BYTES, Status};

use super::eager_writing::Space;
use crate::composite::Slab;
use crate::cow_table::CowTable;
use crate::{DeviceInfo, DeviceModel, PLACES_MAX, Probe};

/// Options of a [`PlacingHost`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacingOptions {
    /// Bytes of a block; a multiple of the device's logical block.
    pub block_bytes: u64,
    /// Share of the device in use, above 0 and at most 0.99.
    pub used: f64,
    /// Most places of a write, at least 1.
    pub places: usize,
    /// Seed of the first places.
    pub seed: u64,
}

/// Most blocks of a device: their places in random order take a gibibyte.
const BLOCKS_MAX: u64 = 1 << 28;

/// A device in this process below a host that directs eager writing.
pub struct PlacingHost {
    placing: Placing,
    model: Box<dyn DeviceModel>,
    /// Empty between calls; kept for its capacity.
    answers: Vec<Completion>,
}

/// The host's part: its map, and its requests at a device that is not part of it.
#[derive(Clone, Debug)]
pub struct Placing {
    info: Arc<DeviceInfo>,
    block_sectors: u64,
    places: usize,
    map: CowTable<u32>,
    space: Space,
    last: u64,
    parts: Slab<Part>,
    requests: Slab<Active>,
    outstanding: u32,
    candidates: Vec<Lba>,
    written: u64,
    offered: u64,
}

/// A block of a request at the device.
#[derive(Clone, Copy, Debug)]
struct Part {
    request: u32,
    block: u64,
    /// Where the block is written.
    place: Option<u64>,
}

/// A request of the host.
#[derive(Clone, Copy, Debug)]
struct Active {
    id: RequestId,
    left: u32,
    status: Status,
}

impl PlacingHost {
    /// The host on a new device.
    ///
    /// # Errors
    /// If an option is out of its range, or the device has no room.
    pub fn new(model: Box<dyn DeviceModel>, options: PlacingOptions) -> Result<PlacingHost, String> {
        let placing = Placing::new(model.info(), options)?;
        Ok(PlacingHost { placing, model, answers: Vec::new() })
    }
}

impl Placing {
    /// The host on a new device with these properties.
    ///
    /// # Errors
    /// If an option is out of its range, or the device has no room.
    pub fn new(info: &DeviceInfo, options: PlacingOptions) -> Result<Placing, String> {
        let PlacingOptions { block_bytes, used, places, seed } = options;
        if block_bytes == 0 || !block_bytes.is_multiple_of(u64::from(info.logical_block_bytes)) {
            return Err(format!(
                "a block has {block_bytes} bytes; expected a multiple of the logical block, {} bytes",
                info.logical_block_bytes
            ));
        }
        if !(used > 0.0 && used <= 0.99) {
            return Err(format!("the used share is {used}; expected more than 0 and at most 0.99"));
        }
        if !(1..=PLACES_MAX).contains(&places) {
            return Err(format!("a write has {places} places; expected 1 to {PLACES_MAX}"));
        }
        if info.zones.is_some() {
            return Err(format!("{} has zones; a host can't choose places in zones", info.name));
        }
        let block_sectors = block_bytes / SECTOR_BYTES;
        let all = info.capacity_sectors / block_sectors;
        let blocks = (all as f64 * used) as u64;
        if blocks == 0 || all > BLOCKS_MAX {
            return Err(format!("{blocks} of {all} blocks are in use; expected at least 1, of at most 2^28"));
        }
        let (mut map, mut space) = (CowTable::new(blocks, 0), Space::new(all));
        let mut stream = RandomStream::new(seed, "placing-host", "places");
        let mut order: Vec<u32> = (0..all as u32).collect();
        for block in 0..blocks {
            // Fisher and Yates: the first places of a random order.
            let other = block + stream.below(all - block);
            order.swap(block as usize, other as usize);
            map.set(block, order[block as usize]);
            space.take(order[block as usize].into(), 1);
        }
        let info = DeviceInfo { capacity_sectors: blocks * block_sectors, ..info.clone() };
        Ok(Placing {
            info: Arc::new(info),
            block_sectors,
            places,
            map,
            space,
            last: 0,
            parts: Slab::new(),
            requests: Slab::new(),
            outstanding: 0,
            candidates: Vec::new(),
            written: 0,
            offered: 0,
        })
    }

    /// Properties of the device that the host's load sees.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The load's requests that are not completed.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// A request of the load arrives. `device` gets the requests for the device: each goes to one of the places, or to
    /// its own address if there are none. It returns the place.
    ///
    /// # Errors
    /// The first one of the device. The host can't go on then.
    pub fn submit<E>(
        &mut self,
        request: &Request,
        mut device: impl FnMut(Request, &[Lba]) -> Result<Lba, E>,
    ) -> Result<(), E> {
        let blocks = match request.op {
            Op::Flush => 0..1,
            _ => request.lba.0 / self.block_sectors..request.end().0.div_ceil(self.block_sectors),
        };
        let left = (blocks.end - blocks.start) as u32;
        self.outstanding += 1;
        let number = self.requests.insert(Active { id: request.id, left, status: Status::Ok });
        if request.op == Op::Flush {
            let id = self.parts.insert(Part { request: number, block: 0, place: None });
            device(Request { id: RequestId(id.into()), ..*request }, &[])?;
            return Ok(());
        }
        for block in blocks {
            self.submit_block(request, number, block, &mut device)?;
        }
        Ok(())
    }

    /// The device has completed its requests; appends the load's requests that are complete with them.
    pub fn complete(&mut self, answers: &[Completion], completed: &mut Vec<Completion>) {
        for answer in answers {
            let part = self.parts.take(answer.id.0 as u32);
            if let Some(place) = part.place {
                self.space.free(self.place_of(part.block));
                self.map.set(part.block, place as u32);
            }
            let active = self.requests.get_mut(part.request);
            active.left -= 1;
            active.status = active.status.max(answer.status);
            if active.left == 0 {
                let Active { id, status, .. } = self.requests.take(part.request);
                self.outstanding -= 1;
                completed.push(Completion { id, at: answer.at, status });
            }
        }
    }

    /// Reports the host's counters.
    pub fn probe(&self, sink: &mut dyn Probe) {
        sink.counter("placed-blocks", self.written);
        sink.counter("offered-places", self.offered);
    }

    fn place_of(&self, block: u64) -> u64 {
        u64::from(self.map.get(block))
    }

    /// Free places around the last written one, in order of their addresses; the block's own place without any.
    fn offer(&mut self, block: u64) {
        let (all, used) = (self.space.blocks(), self.space.used());
        // So many places hold half of the free ones that are offered.
        let half = (self.places as u64 / 2).saturating_mul(all) / (all - used).max(1);
        let from = self.last.saturating_sub(half);
        self.candidates.clear();
        for range in [from..all, 0..from] {
            let mut next = range.start;
            while self.candidates.len() < self.places
                && let Some(place) = self.space.next_free(next, range.end)
            {
                self.candidates.push(Lba(place * self.block_sectors));
                next = place + 1;
            }
        }
        if self.candidates.is_empty() {
            let own = self.place_of(block) * self.block_sectors;
            self.candidates.push(Lba(own));
        }
    }

    fn submit_block<E>(
        &mut self,
        request: &Request,
        number: u32,
        block: u64,
        device: &mut impl FnMut(Request, &[Lba]) -> Result<Lba, E>,
    ) -> Result<(), E> {
        let own = self.place_of(block);
        let id = self.parts.insert(Part { request: number, block, place: None });
        let whole = Request {
            id: RequestId(id.into()),
            lba: Lba(own * self.block_sectors),
            sectors: self.block_sectors as u32,
            ..*request
        };
        if !matches!(request.op, Op::Write | Op::WriteZeroes) {
            device(whole, &[])?;
            return Ok(());
        }
        self.offer(block);
        let place = device(whole, &self.candidates)?.0 / self.block_sectors;
        self.written += 1;
        self.offered += self.candidates.len() as u64;
        if place != own {
            self.space.take(place, 1);
            self.parts.get_mut(id).place = Some(place);
        }
        self.last = place;
        Ok(())
    }
}

impl DeviceModel for PlacingHost {
    fn info(&self) -> &DeviceInfo {
        self.placing.info()
    }

    fn now(&self) -> Nanos {
        self.model.now()
    }

    fn outstanding(&self) -> u32 {
        self.placing.outstanding()
    }

    fn submit(&mut self, request: Request) {
        let model = &mut self.model;
        let Ok(()) = self.placing.submit::<Infallible>(&request, |request, places| {
            if places.is_empty() {
                let own = request.lba;
                model.submit(request);
                return Ok(own);
            }
            Ok(model.submit_anywhere(request, places))
        });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.model.next_event()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        self.model.completion_bound()
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let already = completed.len();
        loop {
            self.model.step(limit, &mut self.answers);
            let some = !self.answers.is_empty();
            self.placing.complete(&self.answers, completed);
            self.answers.clear();
            // Not all parts of a request may have completed.
            if !some || completed.len() > already || self.model.now() >= limit {
                return;
            }
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(PlacingHost { placing: self.placing.clone(), model: self.model.fork(), answers: Vec::new() })
    }

    /// Not known: the device's own answer counts places.
    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        None
    }

    fn probe(&self, sink: &mut dyn Probe) {
        self.placing.probe(sink);
        self.model.probe(sink);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract;
    use crate::models::testing::{build, closed_loop};

    fn host(name: &str, used: f64, places: usize) -> PlacingHost {
        let options = PlacingOptions { block_bytes: 4_096, used, places, seed: 1 };
        PlacingHost::new(build(name, 1), options).expect("valid options")
    }

    fn mean_write(name: &str, used: f64, places: usize) -> u64 {
        let mut model = host(name, used, places);
        let blocks = model.info().capacity_sectors / 8;
        let mut stream = RandomStream::new(3, "test", "writes");
        let write = |id| Request { fua: true, ..Request::new(id, Op::Write, stream.below(blocks) * 8, 8) };
        let outcome = closed_loop(&mut model, 1, 500, write);
        outcome.response_times.iter().map(|time| time.as_nanos()).sum::<u64>() / 500
    }

    #[test]
    fn it_keeps_the_contract() {
        // The largest requests have a bounded number of events; so they have few blocks.
        let options = PlacingOptions { block_bytes: 256 << 10, used: 0.6, places: 16, seed: 1 };
        let new = PlacingHost::new(build("dec-rz26", 1), options).expect("valid options");
        contract::check("placing-host", 4, &|_| new.fork());
    }

    #[test]
    fn more_places_and_more_free_space_make_writes_faster() {
        let [one, few, many] = [1, 8, 256].map(|places| mean_write("dec-rz26", 0.5, places));
        let full = mean_write("dec-rz26", 0.95, 256);
        assert!(many < few && few * 2 < one && many < full, "{one}, {few}, {many}; full: {full}");
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let refused = |block_bytes, used, places| {
            let options = PlacingOptions { block_bytes, used, places, seed: 0 };
            PlacingHost::new(build("dec-rz26", 0), options).err().expect("an error")
        };
        assert!(refused(1_000, 0.5, 4).contains("multiple of the logical block"));
        assert!(refused(4_096, 0.0, 4).contains("used share"));
        assert!(refused(4_096, f64::NAN, 4).contains("used share"));
        assert!(refused(4_096, 0.5, 0).contains("expected 1 to 4096"));
        assert!(refused(1 << 40, 0.5, 4).contains("0 of 0 blocks"));
        let large = crate::Profile::find("nearline-20tb").expect("it is built in");
        let large = large.build(&crate::BuildOptions::default()).expect("it can be built");
        let options = PlacingOptions { block_bytes: 4_096, used: 0.5, places: 4, seed: 0 };
        assert!(PlacingHost::new(large, options).err().expect("an error").contains("at most 2^28"));
    }
}
