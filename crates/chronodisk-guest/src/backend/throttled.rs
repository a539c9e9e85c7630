//! A store as slow as a disk behind a slow link, for experiments on its visibility to a guest.
//!
//! Reads and writes take at least their bytes divided by the rate, one after the other, in the host's time. Operations
//! without bytes are not slowed down.

use std::thread;
use std::time::{Duration, Instant};

use chronodisk_store::{FileData, Store, StoreError, forward_to_store};

/// Passes everything on to a store, no faster than a rate.
pub(crate) struct ThrottledStore {
    store: Box<dyn Store>,
    bytes_per_second: u64,
    /// Instant until which the wire is taken.
    free_at: Instant,
}

impl ThrottledStore {
    /// `bytes_per_second` is not zero.
    pub fn new(store: Box<dyn Store>, bytes_per_second: u64) -> Self {
        assert!(bytes_per_second > 0, "a store that never moves a byte");
        ThrottledStore { store, bytes_per_second, free_at: Instant::now() }
    }

    /// Sleeps for as long as the bytes take.
    fn transfer(&mut self, len_bytes: usize) {
        let begins = self.free_at.max(Instant::now());
        self.free_at = begins + time_of(len_bytes as u64, self.bytes_per_second);
        thread::sleep(self.free_at.saturating_duration_since(Instant::now()));
    }
}

/// Time for which a wire is taken by so many bytes.
fn time_of(len_bytes: u64, bytes_per_second: u64) -> Duration {
    let nanos = u128::from(len_bytes) * 1_000_000_000 / u128::from(bytes_per_second);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl Store for ThrottledStore {
    forward_to_store!(self => self.store; capacity_bytes, write_zeroes, reserve_zeroes, discard, extent, flush);
    forward_to_store!(self => self.store; allocated_bytes, budget_bytes, close, statistics);
    forward_to_store!(self => self.store; measure_cpu, footprint, notices);

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.transfer(bytes.len());
        self.store.read(offset_bytes, bytes)
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.transfer(bytes.len());
        self.store.write(offset_bytes, bytes)
    }

    fn write_with_file_data(
        &mut self,
        offset_bytes: u64,
        bytes: &[u8],
        file_data: &[FileData],
    ) -> Result<(), StoreError> {
        self.transfer(bytes.len());
        self.store.write_with_file_data(offset_bytes, bytes, file_data)
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_store::RamStore;

    use super::*;

    #[test]
    fn bytes_take_their_time_and_stay_the_same() {
        let mut store = ThrottledStore::new(Box::new(RamStore::new(1 << 20, 1 << 20)), 1 << 20);
        let begun = Instant::now();
        store.write(4_096, &[7; 16 << 10]).unwrap();
        let mut back = [0; 16 << 10];
        store.read(4_096, &mut back).unwrap();
        assert_eq!(back, [7; 16 << 10]);
        // 32 KiB at 1 MiB/s; a busy host only makes it longer.
        assert!(begun.elapsed() >= Duration::from_micros(31_250));
    }

    #[test]
    fn times_are_exact_and_do_not_overflow() {
        assert_eq!(time_of(4_096, 10_000_000), Duration::from_nanos(409_600));
        assert_eq!(time_of(0, 1), Duration::ZERO);
        assert_eq!(time_of(u64::MAX, 1), Duration::from_nanos(u64::MAX));
    }
}
