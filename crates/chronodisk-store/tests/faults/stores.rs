//! The stores that are tried, and some that lie.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use chronodisk_store::host::Host;
use chronodisk_store::squash::{SquashMode, SquashOptions, SquashStore};
use chronodisk_store::{Durability, FileStore, OverflowStore, StoreError};

/// Not a whole number of pages.
pub const CAPACITY_BYTES: u64 = (1 << 20) + 3 * 512;

/// A store, by how it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    File,
    /// With so little memory that pages come and go.
    Overflow,
    Exact,
    Classified,
    /// Acknowledges writes and drops some.
    Forgetful,
    /// Changes some sectors when they are read.
    Corrupting,
    /// A second flush succeeds after a failed one.
    Amnesiac,
    Panicking,
}

/// How a store is built on a host.
pub struct Kind {
    pub store: Store,
}

impl Kind {
    pub fn new(store: Store) -> Self {
        Kind { store }
    }

    pub fn path(&self) -> PathBuf {
        PathBuf::from("/folder/device")
    }

    /// Makes a new device.
    pub fn create(&self, host: &Arc<dyn Host>, durability: Durability) -> Result<Opened, StoreError> {
        let path = self.path();
        Ok(match self.store {
            Store::File => Box::new(FileStore::create_on(host, path, CAPACITY_BYTES, durability)?),
            Store::Overflow => {
                let file = FileStore::create_on(host, path, CAPACITY_BYTES, durability)?;
                Box::new(OverflowStore::new(file, 0))
            }
            Store::Exact | Store::Classified => {
                Box::new(SquashStore::create(path, CAPACITY_BYTES, &self.squash_options(host, durability))?)
            }
            lie => Box::new(Liar::new(lie, FileStore::create_on(host, path, CAPACITY_BYTES, durability)?)),
        })
    }

    /// Opens a device that is there.
    pub fn open(&self, host: &Arc<dyn Host>, durability: Durability) -> Result<Opened, StoreError> {
        let path = self.path();
        Ok(match self.store {
            Store::File => Box::new(FileStore::open_on(host, path, CAPACITY_BYTES, durability)?),
            Store::Overflow => {
                let file = FileStore::open_on(host, path, CAPACITY_BYTES, durability)?;
                Box::new(OverflowStore::new(file, 0))
            }
            Store::Exact | Store::Classified => {
                Box::new(SquashStore::open(path, CAPACITY_BYTES, &self.squash_options(host, durability))?)
            }
            lie => Box::new(Liar::new(lie, FileStore::open_on(host, path, CAPACITY_BYTES, durability)?)),
        })
    }

    fn squash_options(&self, host: &Arc<dyn Host>, durability: Durability) -> SquashOptions {
        let mode = if self.store == Store::Exact { SquashMode::Exact } else { SquashMode::Classified };
        SquashOptions { mode, durability, host: Arc::clone(host), ..SquashOptions::default() }
    }

    /// Whether a full disk is noticed by writes at once, so that what was acknowledged can always be flushed.
    pub fn reserves_space(&self) -> bool {
        matches!(self.store, Store::File | Store::Overflow)
    }
}

pub type Opened = Box<dyn chronodisk_store::Store>;

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
            // Without the message of a panic.
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
                    // Says so once.
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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.store, f)
    }
}
