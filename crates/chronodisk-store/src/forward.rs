//! Stores that change little of another one.

/// Forwards methods of [`Store`](crate::Store) to another store, for a store that changes only some of them.
/// ```
/// use chronodisk_store::{RamStore, Store, StoreError, forward_to_store};
///
/// /// Counts the bytes that are read from a store.
/// struct Counted {
///     store: RamStore,
///     read_bytes: usize,
/// }
///
/// impl Store for Counted {
///     forward_to_store!(self => self.store; capacity_bytes, write, write_zeroes, flush);
///     forward_to_store!(self => self.store; allocated_bytes, budget_bytes);
///
///     fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
///         self.read_bytes += bytes.len();
///         self.store.read(offset_bytes, bytes)
///     }
/// }
///
/// let mut store = Counted { store: RamStore::new(1 << 20, 1 << 20), read_bytes: 0 };
/// store.write(512, b"kept").unwrap();
/// let mut bytes = [0; 4];
/// store.read(512, &mut bytes).unwrap();
/// assert_eq!((&bytes, store.read_bytes), (b"kept", 4));
/// ```
#[macro_export]
macro_rules! forward_to_store {
    ($this:ident => $store:expr; $($method:ident),+) => {
        $($crate::forward_to_store! { @ $method $this $store })+
    };
    (@ capacity_bytes $this:ident $store:expr) => {
        fn capacity_bytes(&$this) -> u64 { $store.capacity_bytes() }
    };
    (@ read $this:ident $store:expr) => {
        fn read(&mut $this, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), $crate::StoreError> {
            $store.read(offset_bytes, bytes)
        }
    };
    (@ write $this:ident $store:expr) => {
        fn write(&mut $this, offset_bytes: u64, bytes: &[u8]) -> Result<(), $crate::StoreError> {
            $store.write(offset_bytes, bytes)
        }
    };
    (@ write_with_file_data $this:ident $store:expr) => {
        fn write_with_file_data(
            &mut $this,
            offset_bytes: u64,
            bytes: &[u8],
            file_data: &[$crate::FileData],
        ) -> Result<(), $crate::StoreError> {
            $store.write_with_file_data(offset_bytes, bytes, file_data)
        }
    };
    (@ try_read $this:ident $store:expr) => {
        fn try_read(&mut $this, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), $crate::StoreError> {
            $store.try_read(offset_bytes, bytes)
        }
    };
    (@ try_write $this:ident $store:expr) => {
        fn try_write(&mut $this, offset_bytes: u64, bytes: &[u8]) -> Result<(), $crate::StoreError> {
            $store.try_write(offset_bytes, bytes)
        }
    };
    (@ extent $this:ident $store:expr) => {
        fn extent(&mut $this, offset_bytes: u64, len_bytes: u64) -> Result<$crate::Extent, $crate::StoreError> {
            $store.extent(offset_bytes, len_bytes)
        }
    };
    (@ flush $this:ident $store:expr) => {
        fn flush(&mut $this) -> Result<(), $crate::StoreError> { $store.flush() }
    };
    (@ write_waits $this:ident $store:expr) => {
        fn write_waits(&$this) -> bool { $store.write_waits() }
    };
    (@ flush_waits $this:ident $store:expr) => {
        fn flush_waits(&$this) -> bool { $store.flush_waits() }
    };
    (@ allocated_bytes $this:ident $store:expr) => {
        fn allocated_bytes(&$this) -> Result<u64, $crate::StoreError> { $store.allocated_bytes() }
    };
    (@ budget_bytes $this:ident $store:expr) => {
        fn budget_bytes(&$this) -> Option<u64> { $store.budget_bytes() }
    };
    (@ close $this:ident $store:expr) => {
        fn close(&mut $this) -> Result<(), $crate::StoreError> { $store.close() }
    };
    (@ statistics $this:ident $store:expr) => {
        fn statistics(&$this) -> Vec<(String, f64)> { $store.statistics() }
    };
    (@ measure_cpu $this:ident $store:expr) => {
        fn measure_cpu(&mut $this, clock: Box<dyn $crate::CpuClock>) { $store.measure_cpu(clock); }
    };
    (@ footprint $this:ident $store:expr) => {
        fn footprint(&$this) -> Result<$crate::Footprint, $crate::StoreError> { $store.footprint() }
    };
    (@ notices $this:ident $store:expr) => {
        fn notices(&$this) -> Vec<String> { $store.notices() }
    };
    // The remaining ones change a range: write_zeroes, reserve_zeroes, discard.
    (@ $change:ident $this:ident $store:expr) => {
        fn $change(&mut $this, offset_bytes: u64, len_bytes: u64) -> Result<(), $crate::StoreError> {
            $store.$change(offset_bytes, len_bytes)
        }
    };
}
