//! Block numbers with a type for each address space, so that they can't be confused.
//!
//! A volume of one range of the device keeps the device's numbers; one of several ranges has its own. Only
//! [`Blocks`](super::blocks::Blocks) and [`Volume`](super::volume::Volume) convert between them.

use std::ops::{Add, Sub};

use super::UNIT_BYTES;
use super::runs::RunValue;

/// A block of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DeviceUnit(pub(crate) u64);

/// A block of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VolumeUnit(pub(crate) u64);

/// A range of a volume's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeBytes {
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
}

impl Add<u64> for DeviceUnit {
    type Output = Self;
    fn add(self, count: u64) -> Self {
        DeviceUnit(self.0 + count)
    }
}

impl Sub for DeviceUnit {
    type Output = u64;
    fn sub(self, before: Self) -> u64 {
        self.0 - before.0
    }
}

impl Add<u64> for VolumeUnit {
    type Output = Self;
    fn add(self, count: u64) -> Self {
        VolumeUnit(self.0 + count)
    }
}

impl Sub for VolumeUnit {
    type Output = u64;
    fn sub(self, before: Self) -> u64 {
        self.0 - before.0
    }
}

/// The device's blocks of a volume.
impl RunValue for DeviceUnit {
    fn advanced(self, by: u64) -> Self {
        self + by
    }
}

impl DeviceUnit {
    /// Offset of its first byte.
    pub(crate) fn offset_bytes(self) -> u64 {
        self.0 * UNIT_BYTES
    }
}

impl VolumeUnit {
    /// The block that a byte lies in.
    pub(crate) fn of_byte(offset_bytes: u64) -> Self {
        VolumeUnit(offset_bytes / UNIT_BYTES)
    }

    /// Offset of its first byte.
    pub(crate) fn offset_bytes(self) -> u64 {
        self.0 * UNIT_BYTES
    }

    /// The blocks from this one up to another.
    pub(crate) fn up_to(self, end: VolumeUnit) -> impl DoubleEndedIterator<Item = VolumeUnit> + Clone {
        (self.0..end.0).map(VolumeUnit)
    }
}

impl VolumeBytes {
    /// The end of the range.
    pub(crate) fn end_bytes(self) -> u64 {
        self.offset_bytes + self.len_bytes
    }
}
