//! The block device.

use chronodisk_device::DeviceInfo;
use chronodisk_sim::SECTOR_BYTES;

use super::REQUEST_BYTES_MAX;
use super::wire::{Parameters, attribute};

/// Properties of the block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkDisk {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Logical block in bytes; each request is a whole number of them. A power of two from 512 to
    /// [`BLOCK_BYTES_MAX`](Self::BLOCK_BYTES_MAX).
    pub block_bytes: u32,
    /// Physical block in bytes. A power of two, not less than the logical block.
    pub physical_block_bytes: u32,
    /// Refuses everything that changes the contents.
    pub read_only: bool,
    /// Unit of discards in bytes, if the device has them.
    pub discard_unit_bytes: Option<u32>,
    /// Completed writes are durable only after a flush.
    pub volatile_cache: bool,
    /// Counts as a disk that turns.
    pub rotational: bool,
}

/// Longest range of one request. The kernel counts it in 32 bits of bytes (`UINT_MAX >> 9` sectors).
const RANGE_SECTORS_MAX: u32 = u32::MAX >> 9;

impl UblkDisk {
    /// Largest logical block in bytes: the smallest page of the kernel's.
    pub const BLOCK_BYTES_MAX: u32 = 4096;

    /// The block device of a device.
    #[must_use]
    pub fn of(info: &DeviceInfo) -> Self {
        let block_bytes = info.logical_block_bytes;
        UblkDisk {
            size_bytes: info.capacity_sectors * SECTOR_BYTES,
            block_bytes,
            physical_block_bytes: info.physical_block_bytes.next_power_of_two().max(block_bytes),
            read_only: false,
            discard_unit_bytes: info.discard_unit_sectors.map(|sectors| sectors.saturating_mul(SECTOR_BYTES as u32)),
            volatile_cache: info.volatile_cache,
            rotational: info.rotational,
        }
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// The field, and the expected value.
    pub fn check(&self) -> Result<(), &'static str> {
        let block_bytes = self.block_bytes;
        if !block_bytes.is_power_of_two() || !(SECTOR_BYTES as u32..=Self::BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err("block_bytes: expected a power of two from 512 to 4096");
        }
        if !self.physical_block_bytes.is_power_of_two() || self.physical_block_bytes < block_bytes {
            return Err("physical_block_bytes: expected a power of two, at least block_bytes");
        }
        if self.size_bytes == 0 || !self.size_bytes.is_multiple_of(block_bytes.into()) {
            return Err("size_bytes: expected a multiple of block_bytes above 0");
        }
        if self.discard_unit_bytes.is_some_and(|bytes| bytes < block_bytes) {
            return Err("discard_unit_bytes: expected at least block_bytes");
        }
        Ok(())
    }

    /// The parameters for the kernel.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        let mut attributes = 0;
        let mut set = |wanted: bool, flag: u32| attributes |= if wanted { flag } else { 0 };
        set(self.read_only, attribute::READ_ONLY);
        set(self.rotational, attribute::ROTATIONAL);
        set(self.volatile_cache, attribute::VOLATILE_CACHE | attribute::FUA);
        Parameters {
            attributes,
            logical_block_shift: self.block_bytes.trailing_zeros() as u8,
            physical_block_shift: self.physical_block_bytes.trailing_zeros() as u8,
            sectors_max: REQUEST_BYTES_MAX / SECTOR_BYTES as u32,
            capacity_sectors: self.size_bytes / SECTOR_BYTES,
            discard_granularity: self.discard_unit_bytes.unwrap_or(self.block_bytes),
            discard_sectors_max: if self.discard_unit_bytes.is_some() { RANGE_SECTORS_MAX } else { 0 },
            write_zeroes_sectors_max: RANGE_SECTORS_MAX,
        }
    }
}
