//! The stores that are tried, and some that lie.

use std::sync::Arc;

use chronodisk_store::host::Host;
use chronodisk_store::{Durability, FileStore, OverflowStore, StoreError};

use super::harness::{CAPACITY_BYTES, Kind, Opened, PATH};

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    File,
    /// With so little memory that pages are evicted.
    Overflow,
    /// Acknowledges writes and drops some.
    Forgetful,
    /// Changes some sectors when they are read.
    Corrupting,
    /// A second flush succeeds after a failed one.
    Amnesiac,
    Panicking,
}

impl Kind for Store {
    fn create(&self, host: &Arc<dyn Host>, durability: Durability) -> Result<Opened, StoreError> {
        Ok(self.on(FileStore::create_on(host, PATH, CAPACITY_BYTES, durability)?))
    }

    fn open(&self, host: &Arc<dyn Host>, durability: Durability) -> Result<Opened, StoreError> {
        Ok(self.on(FileStore::open_on(host, PATH, CAPACITY_BYTES, durability)?))
    }

    fn reserves_space(&self) -> bool {
        matches!(self, Store::File | Store::Overflow)
    }
}

impl Store {
    fn on(self, file: FileStore) -> Opened {
        match self {
            Store::File => Box::new(file),
            Store::Overflow => Box::new(OverflowStore::new(file, 0)),
            lie => Box::new(Liar::new(lie, file)),
        }
    }
}

/// A file that breaks a promise.
struct Liar {
    lie: Store,
    file: Option<FileStore>,
    calls: u64,
}

impl Liar {
    fn new(lie: Store, file: FileStore) -> Self {
        Liar { lie, file: Some(file), calls: 0 }
    }

    fn file(&mut self) -> &mut FileStore {
        self.file.as_mut().expect("it is there until the end")
    }

    fn lies(&mut self, lie: Store) -> bool {
        self.calls += 1;
        self.lie == lie && self.calls.is_multiple_of(7)
    }
}

impl chronodisk_store::Store for Liar {
    fn capacity_bytes(&self) -> u64 {
        CAPACITY_BYTES
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.file().read(offset_bytes, bytes)?;
        if self.lies(Store::Corrupting) {
            bytes[0] ^= 1;
        }
        if self.lies(Store::Panicking) {
            // Unwinds without the message of a panic.
            std::panic::resume_unwind(Box::new("a lie"));
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.file().write(offset_bytes, bytes)
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.file().write_zeroes(offset_bytes, len_bytes)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        match self.lie {
            Store::Forgetful => Ok(()),
            Store::Amnesiac => {
                let flushed = self.file().flush();
                let _ = self.file().flush();
                if flushed.is_err() && self.calls > 0 {
                    // Reports it only once.
                    self.calls = 0;
                    return flushed;
                }
                self.calls += 1;
                Ok(())
            }
            _ => self.file().flush(),
        }
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn budget_bytes(&self) -> Option<u64> {
        None
    }
}
