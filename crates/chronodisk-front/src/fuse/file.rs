//! The one file.

use chronodisk_device::DeviceInfo;
use chronodisk_sim::SECTOR_BYTES;

/// Largest read or write in bytes that the kernel sends as one request: 256 pages of 4 KiB, its own limit.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Largest read or write in bytes that a block device on the file should send (`queue/max_sectors_kb`). Each piece of
/// memory that is not a whole page counts as one, so the kernel divides requests near [`REQUEST_BYTES_MAX`], and
/// perhaps within a block, which fails. Half of that leaves as many pages again for such pieces.
pub const DEVICE_REQUEST_BYTES_MAX: u32 = REQUEST_BYTES_MAX / 2;

/// Value of the mount option `rootmode`: the root of the file system is the regular file itself, so the mount point is
/// a regular file, too.
pub const FILE_ROOT_MODE: &str = "100000";

/// The file with the device's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuseFile {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Smallest block in bytes; each request is a whole number of them. A power of two, at least 512.
    pub block_bytes_min: u32,
    /// Preferred block in bytes (`st_blksize`).
    pub block_bytes_preferred: u32,
    /// Refuses everything that changes the contents.
    pub read_only: bool,
    /// Whether holes can be punched, which the device sees as discards. If not, it sees writes of zeros.
    pub discard: bool,
}

impl FuseFile {
    /// Checks the fields; `store_bytes` is the size of the device's store.
    pub(crate) fn check(&self, store_bytes: u64) -> Result<(), &'static str> {
        let block_bytes = self.block_bytes_min;
        if !block_bytes.is_power_of_two() || u64::from(block_bytes) < SECTOR_BYTES {
            return Err("block_bytes_min: expected a power of two, at least 512");
        }
        if self.size_bytes == 0 || self.size_bytes != store_bytes {
            return Err("size_bytes: expected the size of the store");
        }
        if !self.size_bytes.is_multiple_of(block_bytes.into()) {
            return Err("size_bytes: expected a multiple of block_bytes_min");
        }
        // `off_t` has a sign.
        if i64::try_from(self.size_bytes).is_err() {
            return Err("size_bytes: expected less than 2^63");
        }
        Ok(())
    }

    /// The file of a device.
    #[must_use]
    pub fn of(info: &DeviceInfo) -> Self {
        FuseFile {
            size_bytes: info.capacity_sectors * SECTOR_BYTES,
            block_bytes_min: info.logical_block_bytes,
            block_bytes_preferred: info.physical_block_bytes.max(4096),
            read_only: false,
            discard: info.discard_unit_sectors.is_some(),
        }
    }
}
