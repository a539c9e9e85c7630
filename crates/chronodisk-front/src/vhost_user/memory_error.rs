//! Errors of a guest's memory.

use std::io;
use std::sync::OnceLock;

use vm_memory::mmap::MmapRegionError;

use super::message::MemoryRegion;

/// Why guest memory can no longer be accessed, as soon as that is known.
pub(super) type Fault = OnceLock<String>;

/// Why a memory table can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A region is empty, or an address or offset plus its size wraps around.
    #[error("the memory region {0:?} is empty or wraps around")]
    Range(MemoryRegion),
    /// A region reaches beyond its file.
    #[error("the memory region {region:?} reaches beyond its file of {file_bytes} bytes")]
    BeyondFile {
        /// The region.
        region: MemoryRegion,
        /// Size of the file in bytes.
        file_bytes: u64,
    },
    /// The file can't be examined.
    #[error("the file of the memory region {region:?}: {source}")]
    File {
        /// The region.
        region: MemoryRegion,
        /// The host's error.
        source: io::Error,
    },
    /// The file can't be mapped.
    #[error("the memory region {region:?}: {source}")]
    Map {
        /// The region.
        region: MemoryRegion,
        /// The host's error.
        source: MmapRegionError,
    },
    /// The file is of a kind with which the guest could end or stop the process.
    #[error("the memory region {region:?} is {found}, expected a memfd or a file in memory or on a disk")]
    Kind {
        /// The region.
        region: MemoryRegion,
        /// Kind of file found.
        found: &'static str,
    },
    /// There are no regions.
    #[error("memory table: no region")]
    NoRegion,
    /// Regions overlap.
    #[error("memory table: the regions {before:?} and {after:?} overlap")]
    Overlap {
        /// The one that begins first.
        before: MemoryRegion,
        /// The one that begins before its end.
        after: MemoryRegion,
    },
}
