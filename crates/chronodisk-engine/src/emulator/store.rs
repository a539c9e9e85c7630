//! Stores for the bytes of sessions' devices.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronodisk_store::{Durability, FileStore, OverflowStore, RamStore, Store, StoreError};

use super::limits::{Held, MemoryPool};

/// Place of the bytes of clients' devices on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// In memory; they are gone with the session.
    Ram,
    /// In a file, or in memory in front of one.
    File {
        /// A file, which keeps the bytes and serves one session at a time; or a directory, in which each session has a
        /// temporary file.
        path: PathBuf,
        /// Whether pages that are used often are in memory.
        overflow: bool,
        /// Whether the device's promises also hold against a power cut of this host.
        durable: bool,
    },
}

/// Memory in front of a file with which an overflow store makes sense.
const OVERFLOW_BYTES_MIN: u64 = 1 << 20;

impl StorePlace {
    /// Opens a device's store, with or without a volatile cache, with at most `budget_bytes` of memory from `pool`.
    pub(super) fn open(
        &self,
        capacity_bytes: u64,
        volatile_cache: bool,
        budget_bytes: u64,
        pool: &Arc<MemoryPool>,
    ) -> Result<Box<dyn Store>, String> {
        let StorePlace::File { path, overflow, durable } = self else {
            return Ok(Box::new(Counted::new(RamStore::new(capacity_bytes, budget_bytes), pool)));
        };
        let durability = Durability { write_through: !volatile_cache, power_cut: *durable };
        let file = open_file(path, capacity_bytes, durability).map_err(|error| error.to_string())?;
        if !overflow {
            return Ok(Box::new(file));
        }
        let left_bytes = pool.limit_bytes().saturating_sub(pool.used_bytes());
        let bytes = budget_bytes.min(left_bytes).max(OVERFLOW_BYTES_MIN);
        let Some(memory) = pool.hold(bytes) else {
            return Err("the server's memory for bytes is taken by other sessions".into());
        };
        Ok(Box::new(Overflow { store: OverflowStore::new(file, bytes), _memory: memory }))
    }
}

fn open_file(path: &Path, capacity_bytes: u64, durability: Durability) -> Result<FileStore, StoreError> {
    if path.is_dir() {
        let name = super::identity::fresh_id().map_or(0, |id| u128::from_le_bytes(id.0));
        let path = path.join(format!("session-{name:032x}"));
        let file = FileStore::create(&path, capacity_bytes, durability)?;
        // An unnamed file is deleted at the end of the session, for any cause.
        let _ = std::fs::remove_file(&path);
        return Ok(file);
    }
    FileStore::open_or_create(path, capacity_bytes, durability)
}

/// Passes operations on to the store inside, by a shared or an exclusive reference.
macro_rules! pass_on {
    ($inner:ident) => {};
    ($inner:ident read $name:ident() -> $result:ty; $($rest:tt)*) => {
        fn $name(&self) -> $result {
            self.$inner.$name()
        }
        pass_on! { $inner $($rest)* }
    };
    ($inner:ident change $name:ident($($argument:ident: $type:ty),*) -> $result:ty; $($rest:tt)*) => {
        fn $name(&mut self, $($argument: $type),*) -> $result {
            self.$inner.$name($($argument),*)
        }
        pass_on! { $inner $($rest)* }
    };
}

/// An overflow store with the memory that it may fill.
struct Overflow {
    store: OverflowStore,
    _memory: Held,
}

impl Store for Overflow {
    pass_on! { store
        read capacity_bytes() -> u64;
        change read(offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError>;
        change write(offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError>;
        change write_zeroes(offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError>;
        change reserve_zeroes(offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError>;
        change discard(offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError>;
        change flush() -> Result<(), StoreError>;
        change close() -> Result<(), StoreError>;
        read allocated_bytes() -> Result<u64, StoreError>;
        read budget_bytes() -> Option<u64>;
    }
}

/// A store in memory with pages charged to the pool of all sessions.
struct Counted {
    store: RamStore,
    pool: Arc<MemoryPool>,
    counted_bytes: u64,
}

/// A page of [`RamStore`], and its share of a table, generously.
const PAGE_BYTES: u64 = 4096;
const TABLE_BYTES: u64 = 8192;
const PAGES_OF_A_TABLE: u64 = 512;

impl Counted {
    fn new(store: RamStore, pool: &Arc<MemoryPool>) -> Self {
        Counted { store, pool: Arc::clone(pool), counted_bytes: 0 }
    }

    /// Does something that may take memory for a range.
    fn grow(
        &mut self,
        offset_bytes: u64,
        len_bytes: u64,
        change: impl FnOnce(&mut RamStore) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let pages = |bytes: u64| bytes.div_ceil(PAGE_BYTES) + 1;
        let room = |pages: u64| pages * PAGE_BYTES + (pages / PAGES_OF_A_TABLE + 2) * TABLE_BYTES;
        let mut taken_bytes = room(pages(len_bytes));
        let mut taken = self.pool.take(taken_bytes);
        if !taken {
            // Most of the range may have space already.
            let absent_bytes = self.absent_bytes(offset_bytes, len_bytes)?;
            taken_bytes = if absent_bytes == 0 { 0 } else { room(pages(absent_bytes)) };
            taken = self.pool.take(taken_bytes);
        }
        if !taken {
            return Err(StoreError::BudgetExceeded {
                offset_bytes,
                needed_bytes: taken_bytes,
                allocated_bytes: self.pool.used_bytes(),
                budget_bytes: self.pool.limit_bytes(),
            });
        }
        let changed = change(&mut self.store);
        // Returns the unused part of the reservation. No other session could take it meanwhile.
        self.counted_bytes += taken_bytes;
        self.recount();
        changed
    }

    fn absent_bytes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<u64, StoreError> {
        let (mut at, end, mut absent_bytes) = (offset_bytes, offset_bytes.saturating_add(len_bytes), 0);
        while at < end {
            let extent = self.store.extent(at, end - at)?;
            absent_bytes += if extent.allocated { 0 } else { extent.len_bytes };
            at += extent.len_bytes;
        }
        Ok(absent_bytes)
    }

    /// Charges the pool with the store's present size, which was reserved before.
    fn recount(&mut self) {
        let bytes = self.store.allocated_bytes().unwrap_or(self.counted_bytes);
        match self.counted_bytes.checked_sub(bytes) {
            Some(freed_bytes) => self.pool.give_back(freed_bytes),
            None => self.pool.add(bytes - self.counted_bytes),
        }
        self.counted_bytes = bytes;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.pool.give_back(self.counted_bytes);
    }
}

impl Store for Counted {
    pass_on! { store
        read capacity_bytes() -> u64;
        change read(offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError>;
        change flush() -> Result<(), StoreError>;
        read allocated_bytes() -> Result<u64, StoreError>;
        read budget_bytes() -> Option<u64>;
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.grow(offset_bytes, bytes.len() as u64, |store| store.write(offset_bytes, bytes))
    }

    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.grow(offset_bytes, len_bytes, |store| store.reserve_zeroes(offset_bytes, len_bytes))
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        let cleared = self.store.write_zeroes(offset_bytes, len_bytes);
        self.recount();
        cleared
    }

    fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        let cleared = self.store.discard(offset_bytes, len_bytes);
        self.recount();
        cleared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_devices_in_memory_share_what_there_is_and_give_it_back() {
        let pool = MemoryPool::new(1 << 20);
        let open = || StorePlace::Ram.open(1 << 30, true, 1 << 30, &pool).unwrap();
        let (mut one, mut other) = (open(), open());
        one.write(0, &vec![1; 600 << 10]).unwrap();
        let refused = other.write(0, &vec![1; 600 << 10]).unwrap_err();
        assert!(matches!(refused, StoreError::BudgetExceeded { .. }), "{refused}");
        other.write(0, &vec![1; 300 << 10]).unwrap();
        // Existing pages can be overwritten even when the pool is empty.
        one.write(0, &vec![2; 600 << 10]).unwrap();
        assert!(pool.used_bytes() <= 1 << 20);
        one.discard(0, 600 << 10).unwrap();
        other.write(0, &vec![1; 600 << 10]).unwrap();
        drop((one, other));
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_directory_has_a_file_for_each_session_and_keeps_none() {
        let folder = std::env::temp_dir().join(format!("chronodisk-sessions-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pool = MemoryPool::new(8 << 20);
        for overflow in [false, true] {
            let place = StorePlace::File { path: folder.clone(), overflow, durable: false };
            let (mut one, mut other) = (
                place.open(1 << 40, true, 1 << 20, &pool).unwrap(),
                place.open(1 << 40, true, 1 << 20, &pool).unwrap(),
            );
            one.write(1 << 39, b"one").unwrap();
            other.write(1 << 39, b"two").unwrap();
            let mut bytes = [0; 3];
            one.read(1 << 39, &mut bytes).unwrap();
            assert_eq!(&bytes, b"one");
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        }
        assert_eq!(pool.used_bytes(), 0);
        std::fs::remove_dir(&folder).unwrap();
    }
}
