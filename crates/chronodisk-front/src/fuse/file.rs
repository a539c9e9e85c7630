//! The one file.

use chronodisk_device::DeviceInfo;
use chronodisk_sim::SECTOR_BYTES;

/// Largest read or write in bytes that the kernel sends as one request: 256 pages, its own limit. A block device on the
/// file must not send larger ones (`queue/max_sectors_kb`), since the kernel would divide them.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Value of the mount option `rootmode`: the root of the file system is the regular file itself, so the mount point is
/// a regular file, too.
pub const FILE_ROOT_MODE: &str = "100000";

/// The file whose bytes are those of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuseFile {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Smallest block in bytes, of which each request has a whole number: a power of two, 512 or more.
    pub block_bytes_min: u32,
    /// Preferred block in bytes (`st_blksize`).
    pub block_bytes_preferred: u32,
    /// Refuses everything that changes the contents.
    pub read_only: bool,
    /// Whether holes can be punched, which the device sees as discards. If not, it sees writes of zeros.
    pub discard: bool,
}

impl FuseFile {
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
