//! Fills an overflow store ahead of its use while it is being served.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use chronodisk_store::overflow::PAGE_BYTES;
use chronodisk_store::{FileStore, OverflowStatistics, OverflowStore, Store, StoreError, forward_to_store};

/// An overflow store shared by its users and the thread that fills it.
///
/// The filling thread reads the file without holding the store's lock, so that a request waits for its own bytes only.
#[derive(Debug)]
pub struct Preloaded {
    store: Arc<Mutex<OverflowStore>>,
    ended: Arc<AtomicBool>,
    filler: Option<JoinHandle<()>>,
}

/// Shows the statistics of a [`Preloaded`] store after it was moved.
#[derive(Clone, Debug)]
pub struct OverflowView(Arc<Mutex<OverflowStore>>);

impl OverflowView {
    /// Statistics so far.
    #[must_use]
    pub fn statistics(&self) -> OverflowStatistics {
        lock(&self.0).statistics()
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        lock(&self.0).memory_bytes()
    }
}

/// Pause if there is nothing to load yet.
const PAUSE: Duration = Duration::from_micros(500);

impl Preloaded {
    /// Fills `store`, which knows the future accesses, with a thread of its own.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the host has no further descriptor.
    pub fn start(store: OverflowStore) -> Result<Self, StoreError> {
        let reader = store.file_reader()?;
        let store = Arc::new(Mutex::new(store));
        let ended = Arc::new(AtomicBool::new(false));
        let (filled, stop) = (store.clone(), ended.clone());
        // Without the thread, the store works as well, but data are loaded later.
        let filler =
            std::thread::Builder::new().name("preload".into()).spawn(move || fill(&filled, reader, &stop)).ok();
        Ok(Preloaded { store, ended, filler })
    }

    /// A view that stays valid after this value is moved.
    #[must_use]
    pub fn view(&self) -> OverflowView {
        OverflowView(self.store.clone())
    }
}

fn lock(store: &Mutex<OverflowStore>) -> MutexGuard<'_, OverflowStore> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fill(store: &Mutex<OverflowStore>, mut reader: FileStore, ended: &AtomicBool) {
    let mut bytes = vec![0; PAGE_BYTES as usize];
    while !ended.load(Ordering::Relaxed) {
        let Some(page) = lock(store).next_preload() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let start = page * PAGE_BYTES;
        let len = PAGE_BYTES.min(reader.capacity_bytes().saturating_sub(start)) as usize;
        // A failed read is repeated on demand, and then reported to the client.
        let read = len > 0 && reader.read(start, &mut bytes[..len]).is_ok();
        lock(store).finish_preload(page, read.then_some(&bytes[..len]));
    }
}

impl Store for Preloaded {
    forward_to_store!(self => lock(&self.store); capacity_bytes, read, write, write_zeroes, reserve_zeroes, discard);
    forward_to_store!(self => lock(&self.store); extent, try_read, try_write, flush, flush_waits, write_waits);
    forward_to_store!(self => lock(&self.store); allocated_bytes, budget_bytes);

    fn second_way(&self) -> Result<Option<Box<dyn Store>>, StoreError> {
        let file = lock(&self.store).file_reader()?;
        Ok(Some(Box::new(SecondWay { store: self.store.clone(), file, incoming: Vec::new() })))
    }
}

impl Drop for Preloaded {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(filler) = self.filler.take() {
            let _ = filler.join();
        }
    }
}

/// Access to the same store for a thread that may block: it reads the file without the store's lock.
struct SecondWay {
    store: Arc<Mutex<OverflowStore>>,
    file: FileStore,
    incoming: Vec<u8>,
}

impl SecondWay {
    /// Loads the first absent pages of a range, and passes each to `see` if it equals the device's contents.
    fn load(&mut self, offset_bytes: u64, len_bytes: u64, mut see: impl FnMut(u64, &[u8])) -> Result<(), StoreError> {
        let run = lock(&self.store).begin_load(offset_bytes, len_bytes);
        let start_bytes = run.start * PAGE_BYTES;
        let len_bytes = (run.end * PAGE_BYTES).min(self.file.capacity_bytes()).saturating_sub(start_bytes);
        self.incoming.resize(len_bytes as usize, 0);
        let read = self.file.read(start_bytes, &mut self.incoming);
        let mut pages = self.incoming.chunks(PAGE_BYTES as usize);
        for page in run {
            let bytes = pages.next().filter(|_| read.is_ok());
            if lock(&self.store).finish_load(page, bytes) {
                see(page, bytes.expect("nothing else is kept"));
            }
        }
        read
    }
}

/// Attempts at a write that needs the rest of a page, before it is done under the store's lock: the page may be evicted
/// again before each attempt.
const ATTEMPTS: usize = 4;

impl Store for SecondWay {
    fn capacity_bytes(&self) -> u64 {
        self.file.capacity_bytes()
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        lock(&self.store).note_access(offset_bytes, bytes.len() as u64);
        let mut done = 0;
        // Every turn copies something, or another request has brought or changed it meanwhile.
        while done < bytes.len() {
            let position = offset_bytes + done as u64;
            let resident = lock(&self.store).read_resident(position, &mut bytes[done..])?;
            if resident > 0 {
                done += resident;
                continue;
            }
            let rest = &mut bytes[done..];
            let mut next = position;
            let end = position + rest.len() as u64;
            self.load(position, rest.len() as u64, |page, contents| {
                let page_bytes = page * PAGE_BYTES;
                // Only contiguous pages.
                if next / PAGE_BYTES == page && next < end {
                    let to = end.min(page_bytes + PAGE_BYTES);
                    let part = &contents[(next - page_bytes) as usize..(to - page_bytes) as usize];
                    rest[(next - position) as usize..(to - position) as usize].copy_from_slice(part);
                    next = to;
                }
            })?;
            done += (next - position) as usize;
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            let missing = lock(&self.store).missing_for_write(offset_bytes, bytes.len() as u64);
            let Some(page) = missing else { break };
            self.load(page * PAGE_BYTES, 1, |_, _| {})?;
        }
        lock(&self.store).write_unsettled(offset_bytes, bytes)?;
        self.file.settle()
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        lock(&self.store).write_zeroes(offset_bytes, len_bytes)
    }

    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        lock(&self.store).reserve_zeroes(offset_bytes, len_bytes)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        lock(&self.store).write_back_all()?;
        self.file.flush()
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        self.file.allocated_bytes()
    }

    fn budget_bytes(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_store::Durability;

    use super::*;

    #[test]
    fn both_ways_see_one_device_whatever_fits_into_memory() {
        for write_through in [false, true] {
            both_ways_see_one_device(Durability { write_through, power_cut: false });
        }
    }

    fn both_ways_see_one_device(durability: Durability) {
        const PAGES: u64 = 700;
        let folder = tempfile::tempdir().unwrap();
        let file = FileStore::create(folder.path().join("disk"), PAGES * PAGE_BYTES - 1_000, durability).unwrap();
        // Room for 64 pages.
        let mut store = Preloaded::start(OverflowStore::new(file, 0)).unwrap();
        let mut second = store.second_way().unwrap().expect("it has one");
        let len = (PAGES * PAGE_BYTES - 1_000) as usize;
        let mut model: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
        store.write(0, &model).unwrap();
        let mut random = 1u64;
        for round in 0..2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (random >> 33) as usize % (len - 1);
            let size = ((random >> 17) as usize % 20_000 + 1).min(len - offset);
            let mut bytes = vec![0; size];
            match round % 4 {
                0 => {
                    let new = vec![round as u8; size];
                    match store.try_write(offset as u64, &new) {
                        Err(StoreError::WouldWait) => second.write(offset as u64, &new).unwrap(),
                        done => done.unwrap(),
                    }
                    model[offset..offset + size].copy_from_slice(&new);
                }
                1 => {
                    store.write_zeroes(offset as u64, size as u64).unwrap();
                    model[offset..offset + size].fill(0);
                }
                _ => {
                    match store.try_read(offset as u64, &mut bytes) {
                        Err(StoreError::WouldWait) => second.read(offset as u64, &mut bytes).unwrap(),
                        done => done.unwrap(),
                    }
                    assert!(bytes == model[offset..offset + size], "round {round}");
                }
            }
        }
        second.flush().unwrap();
        assert!(std::fs::read(folder.path().join("disk")).unwrap() == model);
    }
}
