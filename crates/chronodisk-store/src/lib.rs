//! Byte stores: the contents of emulated devices.
//!
//! A store knows bytes and no time; a device model knows time and no bytes. The owner of a store applies operations in
//! the order of the requests' arrivals, so a store is a plain object with one owner: no locks, no threads.
//!
//! * [`RamStore`]: sparse memory with a budget.
//! * [`FileStore`]: a sparse file.
//! * [`OverflowStore`]: memory with a budget in front of a file.
//! * [`OverlayStore`]: changes in memory over a file that is only read.
//! * [`DeviceStore`]: a real device, past the host's page cache.
//!
//! ```
//! use chronodisk_store::{RamStore, Store};
//!
//! let mut store = RamStore::new(1 << 30, 16 << 20);
//! store.write(4096, b"kept").unwrap();
//! let mut bytes = [0; 6];
//! store.read(4095, &mut bytes).unwrap();
//! assert_eq!(&bytes, b"\0kept\0");
//! store.discard(0, 1 << 20).unwrap();
//! assert_eq!(store.allocated_bytes().unwrap(), 0);
//! ```
#![forbid(unsafe_code)]

mod device;
mod durability;
mod error;
mod file;
mod file_data;
mod footprint;
mod foreign;
mod forward;
mod frames;
pub mod host;
pub mod image_files;
mod loading;
pub mod overflow;
mod overlay;
mod preload;
mod ram;
pub mod recording;
pub mod simulated;
mod store_file;
mod zone_file;

pub use device::DeviceStore;
pub use durability::Durability;
pub use error::{FileOperation, StoreError};
pub use file::FileStore;
pub use file_data::FileData;
pub use footprint::{Component, CpuClock, Footprint};
pub use overflow::{OverflowStatistics, OverflowStore};
pub use overlay::OverlayStore;
pub use preload::AccessList;
pub use ram::{RamStore, is_zero};
pub use recording::{Change, RecordedDevice, RecordedEntry, Recorder, Recording, RecordingError, RecordingStore};
pub use store_file::StoreFile;
pub use zone_file::{KeptZone, ZoneFile, ZoneShape, discard_unwritten, zones_path};

/// The bytes of one device.
///
/// Unwritten ranges read as zeros. Every operation succeeds completely, or fails. After [`StoreError::OutOfRange`] and
/// [`StoreError::BudgetExceeded`] the contents are unchanged; after [`StoreError::Io`] the contents of the range are
/// unknown.
pub trait Store: Send {
    /// Size of the device in bytes; it never changes.
    fn capacity_bytes(&self) -> u64;

    /// Fills `bytes` from `offset_bytes` on.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`], [`StoreError::Io`].
    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError>;

    /// Keeps `bytes` at `offset_bytes`.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`], [`StoreError::BudgetExceeded`], [`StoreError::Io`].
    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// Keeps `bytes` like [`Store::write`]; `file_data` are their parts that the client's kernel calls contents of
    /// files, in ascending order. Only a store that drops such contents uses them.
    ///
    /// # Errors
    /// Like [`Store::write`].
    fn write_with_file_data(
        &mut self,
        offset_bytes: u64,
        bytes: &[u8],
        _file_data: &[FileData],
    ) -> Result<(), StoreError> {
        self.write(offset_bytes, bytes)
    }

    /// Zeroes the range, and frees its space.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`], [`StoreError::Io`].
    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError>;

    /// The range reads as zeros afterwards, and takes the space that writes to it will need.
    ///
    /// A store that can't set space aside writes zeros.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`], [`StoreError::BudgetExceeded`], [`StoreError::Io`].
    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        const ZEROS: &[u8] = &[0; 64 << 10];
        check_range(self.capacity_bytes(), offset_bytes, len_bytes)?;
        let mut done_bytes = 0;
        while done_bytes < len_bytes {
            let chunk_bytes = (len_bytes - done_bytes).min(len_of(ZEROS));
            self.write(offset_bytes + done_bytes, &ZEROS[..chunk_bytes as usize])?;
            done_bytes += chunk_bytes;
        }
        Ok(())
    }

    /// Discards the range, which is no longer needed: frees its space, and makes it read as zeros.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`], [`StoreError::Io`].
    fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.write_zeroes(offset_bytes, len_bytes)
    }

    /// Whether the byte at `offset_bytes` is allocated, and the length of the range with the same answer: at least one
    /// byte, at most `len_bytes`, and possibly shorter than the maximum.
    ///
    /// Unallocated ranges read as zeros; allocated ones may do so, too. A store without this knowledge reports
    /// everything as allocated.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`], also for a length of zero, and [`StoreError::Io`].
    fn extent(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<Extent, StoreError> {
        check_extent(self.capacity_bytes(), offset_bytes, len_bytes)?;
        Ok(Extent { len_bytes, allocated: true })
    }

    /// Like [`read`](Self::read), but fails if it would block on a disk.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and [`StoreError::WouldWait`].
    fn try_read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.read(offset_bytes, bytes)
    }

    /// Like [`write`](Self::write), but fails if it would first read from a disk.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), and [`StoreError::WouldWait`].
    fn try_write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(offset_bytes, bytes)
    }

    /// Whether a [`flush`](Self::flush) waits for a disk.
    fn flush_waits(&self) -> bool {
        false
    }

    /// Whether a [`write`](Self::write), zeroing or discard waits for a disk before it is complete.
    fn write_waits(&self) -> bool {
        false
    }

    /// A second access to the same contents for another thread, which can wait for the disk without blocking this one.
    /// `None` for stores that never wait.
    ///
    /// Overlapping operations through both accesses at the same time take effect in any order.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the host has no further descriptor.
    fn second_way(&self) -> Result<Option<Box<dyn Store>>, StoreError> {
        Ok(None)
    }

    /// Makes earlier writes durable, according to the store's contract.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn flush(&mut self) -> Result<(), StoreError>;

    /// Bytes of memory or disk that the contents take, tables included.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn allocated_bytes(&self) -> Result<u64, StoreError>;

    /// Upper bound of [`allocated_bytes`](Self::allocated_bytes); `None` if only the host's disk limits it.
    fn budget_bytes(&self) -> Option<u64>;

    /// Ends writing; written data are as safe as after a flush.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn close(&mut self) -> Result<(), StoreError> {
        self.flush()
    }

    /// The store's counters, by name; units are in brackets.
    fn statistics(&self) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// Measures the processor time of the store's components from now on, with this clock.
    fn measure_cpu(&mut self, _clock: Box<dyn CpuClock>) {}

    /// The store's present use of the host, by component.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn footprint(&self) -> Result<Footprint, StoreError> {
        Ok(Footprint { stored_bytes: self.allocated_bytes()?, ..Footprint::default() })
    }

    /// Warnings for later readers of the contents.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A range of the device that is either allocated or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, not zero.
    pub len_bytes: u64,
    /// Whether it is allocated; unallocated ranges read as zeros.
    pub allocated: bool,
}

/// Like [`check_range`], for a range that must not be empty.
///
/// # Errors
/// [`StoreError::OutOfRange`].
pub fn check_extent(capacity_bytes: u64, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
    if len_bytes == 0 {
        return Err(StoreError::OutOfRange { offset_bytes, len_bytes, capacity_bytes });
    }
    check_range(capacity_bytes, offset_bytes, len_bytes)
}

/// Checks that `len_bytes` from `offset_bytes` on lie inside the capacity.
///
/// # Errors
/// [`StoreError::OutOfRange`].
pub fn check_range(capacity_bytes: u64, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
    match offset_bytes.checked_add(len_bytes) {
        Some(end) if end <= capacity_bytes => Ok(()),
        _ => Err(StoreError::OutOfRange { offset_bytes, len_bytes, capacity_bytes }),
    }
}

/// Lengths of slices fit 64 bits on every platform that Rust supports.
fn len_of(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}
