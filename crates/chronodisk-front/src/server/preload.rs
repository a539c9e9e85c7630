//! An overflow store that is filled ahead of its use while it is being served.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use chronodisk_store::overflow::PAGE_BYTES;
use chronodisk_store::{Extent, FileStore, OverflowStatistics, OverflowStore, Store, StoreError};

/// An overflow store, shared between who serves from it and who fills it.
///
/// The filling thread reads the file without the store in its hand, so that a request waits for
/// its own bytes and not for those of the future.
#[derive(Debug)]
pub struct Preloaded {
    store: Arc<Mutex<OverflowStore>>,
    ended: Arc<AtomicBool>,
    filler: Option<JoinHandle<()>>,
}

/// Shows what a [`Preloaded`] store did, after it was given away.
#[derive(Clone, Debug)]
pub struct OverflowView(Arc<Mutex<OverflowStore>>);

impl OverflowView {
    /// What was done so far.
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

/// Pause when there is nothing to bring in: the run has to get on first.
const PAUSE: Duration = Duration::from_micros(500);

impl Preloaded {
    /// Fills `store`, which knows what will be needed, with a thread of its own.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the host gives no further descriptor.
    pub fn start(store: OverflowStore) -> Result<Self, StoreError> {
        let reader = store.file_reader()?;
        let store = Arc::new(Mutex::new(store));
        let ended = Arc::new(AtomicBool::new(false));
        let (filled, stop) = (store.clone(), ended.clone());
        // Without a thread everything is served all the same, only later.
        let filler =
            std::thread::Builder::new().name("preload".into()).spawn(move || fill(&filled, reader, &stop)).ok();
        Ok(Preloaded { store, ended, filler })
    }

    /// A view that stays when this is given away.
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
        // What can't be read now is tried again when it is needed, and the client is told then.
        if len > 0 && reader.read(start, &mut bytes[..len]).is_ok() {
            let _ = lock(store).finish_preload(page, &bytes[..len]);
        }
    }
}

impl Store for Preloaded {
    fn capacity_bytes(&self) -> u64 {
        lock(&self.store).capacity_bytes()
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        lock(&self.store).read(offset_bytes, bytes)
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        lock(&self.store).write(offset_bytes, bytes)
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        lock(&self.store).write_zeroes(offset_bytes, len_bytes)
    }

    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        lock(&self.store).reserve_zeroes(offset_bytes, len_bytes)
    }

    fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        lock(&self.store).discard(offset_bytes, len_bytes)
    }

    fn extent(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<Extent, StoreError> {
        lock(&self.store).extent(offset_bytes, len_bytes)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        lock(&self.store).flush()
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        lock(&self.store).allocated_bytes()
    }

    fn budget_bytes(&self) -> Option<u64> {
        lock(&self.store).budget_bytes()
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
