//! Interface extensions for programs in the guest.
//!
//! A program writes a request page to the device, and reads the answer at the same place. So it needs no interface
//! beside reads and writes. [`RequestPageStore`] sees the pages, and [`RequestPages`] passes them to the device when
//! they arrive.

mod pages;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronodisk_device::BackgroundDone;
use chronodisk_engine::{DeviceIndex, GuestClock, Transfer};
use chronodisk_sim::{Lba, Nanos, Op, Request, RequestId, SECTOR_BYTES};
use chronodisk_store::{Store, StoreError, forward_to_store};

use pages::{Outcome, PAGE_BYTES, PAGE_SECTORS, PageRequest, READS_MAX, answer, answer_with_place, answer_with_reads};

/// Most answers that are kept. A program that does not write to its pages again takes 4 KiB for each.
const ANSWERS_MAX: usize = 256;
/// Most writes to any of several places whose data have not arrived.
const WAITING_MAX: usize = 64;

/// A device's bytes, and the pages that programs have written to it.
struct Pages {
    store: Box<dyn Store>,
    /// The last request page and its first byte, until the write of it arrives at the device.
    request: Option<(u64, PageRequest)>,
    /// Answers by their first bytes. They hide the pages of the store.
    answers: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
    /// The answers' first bytes, the oldest first.
    order: VecDeque<u64>,
    /// Why data could not be copied to their place, the first time.
    copy_error: Option<StoreError>,
}

type Shared = Arc<Mutex<Pages>>;

fn lock(pages: &Shared) -> MutexGuard<'_, Pages> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pages {
    /// Drops the answers on a range that is written.
    fn forget_answers(&mut self, offset_bytes: u64, len_bytes: u64) {
        let from = offset_bytes.saturating_sub(PAGE_BYTES as u64 - 1);
        let hidden: Vec<u64> = self.answers.range(from..offset_bytes + len_bytes).map(|(&at, _)| at).collect();
        for at in hidden {
            self.answers.remove(&at);
            self.order.retain(|&kept| kept != at);
        }
    }

    fn answer(&mut self, at_byte: u64, page: Box<[u8; PAGE_BYTES]>) {
        if self.answers.insert(at_byte, page).is_none() {
            self.order.push_back(at_byte);
        }
        if self.order.len() > ANSWERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
    }

    /// Puts the answers over the bytes of a read.
    fn show_answers(&self, offset_bytes: u64, bytes: &mut [u8]) {
        let end = offset_bytes + bytes.len() as u64;
        for (&at, page) in self.answers.range(offset_bytes.saturating_sub(PAGE_BYTES as u64 - 1)..end) {
            let (from, to) = (at.max(offset_bytes), (at + PAGE_BYTES as u64).min(end));
            if from < to {
                let of_page = &page[(from - at) as usize..(to - at) as usize];
                bytes[(from - offset_bytes) as usize..(to - offset_bytes) as usize].copy_from_slice(of_page);
            }
        }
    }

    fn copy(&mut self, from_byte: u64, to_byte: u64, len_bytes: u64) -> Result<(), StoreError> {
        let mut bytes = vec![0; len_bytes as usize];
        self.store.read(from_byte, &mut bytes)?;
        self.forget_answers(to_byte, len_bytes);
        self.store.write(to_byte, &bytes)
    }
}

/// A store that shows the answers to request pages where these were written.
pub(crate) struct RequestPageStore(Shared);

impl Store for RequestPageStore {
    forward_to_store!(self => lock(&self.0).store; capacity_bytes, extent, flush, allocated_bytes, budget_bytes, close);
    forward_to_store!(self => lock(&self.0).store; statistics, measure_cpu, footprint);

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let mut pages = lock(&self.0);
        pages.store.read(offset_bytes, bytes)?;
        pages.show_answers(offset_bytes, bytes);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut pages = lock(&self.0);
        pages.store.write(offset_bytes, bytes)?;
        pages.forget_answers(offset_bytes, bytes.len() as u64);
        pages.request = PageRequest::read(bytes).map(|asked| (offset_bytes, asked));
        Ok(())
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear(offset_bytes, len_bytes, |store| store.write_zeroes(offset_bytes, len_bytes))
    }

    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear(offset_bytes, len_bytes, |store| store.reserve_zeroes(offset_bytes, len_bytes))
    }

    fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear(offset_bytes, len_bytes, |store| store.discard(offset_bytes, len_bytes))
    }

    fn notices(&self) -> Vec<String> {
        let pages = lock(&self.0);
        let failed =
            pages.copy_error.as_ref().map(|error| format!("a write could not be copied to its place: {error}"));
        pages.store.notices().into_iter().chain(failed).collect()
    }
}

/// A write to any of several places, whose data have not arrived.
struct Waiting {
    /// First byte of its request page.
    page_at: u64,
    places: Vec<Lba>,
}

/// Request pages of a device, and its requests that wait for data or for an answer.
pub(crate) struct RequestPages {
    pages: Shared,
    /// By their first places.
    waiting: BTreeMap<Lba, Waiting>,
    /// Background reads that no answer has had.
    reads: VecDeque<BackgroundDone>,
    /// Sectors that were still wanted when these were taken.
    wanted_sectors: u64,
    /// Requests whose data could not be copied to their places.
    failed: BTreeSet<RequestId>,
}

impl RequestPageStore {
    /// Zeroes a range of the store by `change`.
    fn clear(
        &self,
        offset_bytes: u64,
        len_bytes: u64,
        change: impl FnOnce(&mut dyn Store) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut pages = lock(&self.0);
        change(&mut *pages.store)?;
        pages.forget_answers(offset_bytes, len_bytes);
        Ok(())
    }

    /// Watches a device's store for request pages.
    pub fn watch(store: Box<dyn Store>) -> (RequestPageStore, RequestPages) {
        let (answers, order) = (BTreeMap::new(), VecDeque::new());
        let pages = Arc::new(Mutex::new(Pages { store, request: None, answers, order, copy_error: None }));
        let requests = RequestPages {
            pages: Arc::clone(&pages),
            waiting: BTreeMap::new(),
            reads: VecDeque::new(),
            wanted_sectors: 0,
            failed: BTreeSet::new(),
        };
        (RequestPageStore(pages), requests)
    }
}

impl RequestPages {
    /// A request, whose bytes are in the store, arrives at its device. Returns the instant of the arrival.
    pub fn arrive(&mut self, clock: &mut GuestClock, device: DeviceIndex, request: Request, bytes: Transfer) -> Nanos {
        let waiting = if request.op == Op::Write { self.waiting.remove(&request.lba) } else { None };
        let at = match waiting {
            Some(waiting) => self.write_anywhere(clock, device, request, bytes, &waiting),
            None => clock.arrive(device, request, bytes),
        };
        let request_page = lock(&self.pages).request.take();
        // A page among others of one request is data.
        let is_alone = u64::from(request.sectors) == PAGE_SECTORS;
        if let Some((page_at, asked)) = request_page
            && is_alone
            && request.op == Op::Write
            && request.lba.0 * SECTOR_BYTES == page_at
        {
            let page = self.obey(clock, device, page_at, asked);
            lock(&self.pages).answer(page_at, page);
        }
        at
    }

    /// Whether the data of a request, which completes, are not where they should be.
    pub fn has_failed(&mut self, id: RequestId) -> bool {
        self.failed.remove(&id)
    }

    fn write_anywhere(
        &mut self,
        clock: &mut GuestClock,
        device: DeviceIndex,
        request: Request,
        bytes: Transfer,
        waiting: &Waiting,
    ) -> Nanos {
        let info = clock.engine().info(device);
        let sectors = u64::from(request.sectors);
        let block_sectors = u64::from(info.logical_block_bytes) / SECTOR_BYTES;
        let fits = |place: &Lba| place.0.checked_add(sectors).is_some_and(|end| end <= info.capacity_sectors);
        let mut sorted = waiting.places.clone();
        sorted.sort_unstable();
        let are_apart = sorted.windows(2).all(|pair| pair[1].0 - pair[0].0 >= sectors);
        let are_whole = waiting.places.iter().all(|place| place.0.is_multiple_of(block_sectors));
        if !(waiting.places.iter().all(fits) && are_apart && are_whole) {
            lock(&self.pages).answer(waiting.page_at, answer(Outcome::Malformed));
            return clock.arrive(device, request, bytes);
        }
        let (at, place) = clock.arrive_anywhere(device, request, &waiting.places, bytes);
        let mut pages = lock(&self.pages);
        if place != request.lba {
            let copied = pages.copy(request.lba.0 * SECTOR_BYTES, place.0 * SECTOR_BYTES, request.len_bytes());
            if let Err(error) = copied {
                self.failed.insert(request.id);
                pages.copy_error.get_or_insert(error);
            }
        }
        pages.answer(waiting.page_at, answer_with_place(place));
        at
    }

    fn obey(
        &mut self,
        clock: &mut GuestClock,
        device: DeviceIndex,
        page_at: u64,
        asked: PageRequest,
    ) -> Box<[u8; PAGE_BYTES]> {
        let capacity_sectors = clock.engine().info(device).capacity_sectors;
        match asked {
            PageRequest::Want(read) if read.ranges.iter().all(|range| range.end <= capacity_sectors) => {
                answer(if clock.want(device, &read) { Outcome::Done } else { Outcome::Unsupported })
            }
            PageRequest::Take => {
                if self.reads.is_empty() {
                    let taken = clock.take_background(device);
                    self.reads = taken.done.into();
                    self.wanted_sectors = taken.wanted_sectors;
                }
                let now: Vec<BackgroundDone> = self.reads.drain(..self.reads.len().min(READS_MAX)).collect();
                answer_with_reads(&now, self.reads.len(), self.wanted_sectors)
            }
            PageRequest::Anywhere(places) if self.waiting.len() < WAITING_MAX => {
                self.waiting.insert(places[0], Waiting { page_at, places });
                answer(Outcome::Waiting)
            }
            PageRequest::Want(_) | PageRequest::Anywhere(_) | PageRequest::Malformed => answer(Outcome::Malformed),
        }
    }
}

#[cfg(test)]
mod tests;
