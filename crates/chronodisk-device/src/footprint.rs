//! Upper bounds of devices' memory, from a profile's parameters, before a device is built.
//!
//! Each kind of model adds up the full sizes of its tables, with the sizes from here. The sums saturate: a size beyond
//! 64 bits fits no machine either. A test builds devices under a counting allocator and compares.

/// A device without tables: its properties, name, queues and statistics, and room for them to grow with a few requests.
pub(crate) const DEVICE_BYTES: u64 = 8 << 10;

/// Overhead of an allocation, rounding included.
const ALLOCATION_BYTES: u64 = 32;

/// A profile's text is kept, and its parsed form (rows, curves, zones) takes a few times as much.
pub(crate) const TEXT_FACTOR: u64 = 16;

/// An array of that many values that was allocated at once or has grown to that length.
pub(crate) fn array_bytes<T>(len: u64) -> u64 {
    // A vector that grows doubles.
    len.saturating_mul(2 * size_of::<T>() as u64).saturating_add(ALLOCATION_BYTES)
}

/// Memory of `count` allocations of this size.
pub(crate) fn allocations_bytes(count: u64, each_bytes: u64) -> u64 {
    count.saturating_mul(each_bytes.saturating_add(ALLOCATION_BYTES))
}

/// A sum that stays at the largest number.
pub(crate) fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
