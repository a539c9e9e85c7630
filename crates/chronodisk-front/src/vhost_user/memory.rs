//! The guest's memory, mapped from the file descriptors of its memory table.
//!
//! Every access goes through the table: what lies outside it does not exist. User Mode Linux
//! leaves its kernel image out, for instance.
//!
//! A guest that truncates its memory file after it was mapped kills this process with SIGBUS when
//! that part is touched; one process serves one guest, so that it only ends its own device.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use vm_memory::mmap::{GuestRegionMmap, MmapRegion, MmapRegionError};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionCollectionError};

use super::message::MemoryRegion;

/// Mapped regions, and how the front end's own addresses translate to guest addresses.
#[derive(Debug)]
pub struct GuestMemory {
    mapped: GuestMemoryMmap,
    regions: Vec<MemoryRegion>,
}

impl GuestMemory {
    /// Maps every region of the table.
    ///
    /// # Errors
    /// [`MemoryError`] if a region wraps around, reaches beyond its file or overlaps another, or
    /// if the host refuses to map it. Nothing stays mapped then.
    pub fn map(table: Vec<(MemoryRegion, OwnedFd)>) -> Result<Self, MemoryError> {
        let mut table = table;
        table.sort_by_key(|(region, _)| region.guest_address);
        let regions = table.iter().map(|&(region, _)| region).collect();
        let mapped = table.into_iter().map(|(region, fd)| map_region(&region, fd)).collect::<Result<Vec<_>, _>>()?;
        Ok(GuestMemory { mapped: GuestMemoryMmap::from_regions(mapped)?, regions })
    }

    /// The memory by guest address.
    #[must_use]
    pub fn mapped(&self) -> &GuestMemoryMmap {
        &self.mapped
    }

    /// The guest address of `len_bytes` at an address of the front end; `None` unless one region
    /// holds them all.
    #[must_use]
    pub fn translate(&self, user_address: u64, len_bytes: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|region| {
            let offset_bytes = user_address.checked_sub(region.user_address)?;
            let end_bytes = offset_bytes.checked_add(len_bytes)?;
            // `map` has checked that the sum does not wrap around.
            (end_bytes <= region.size_bytes).then(|| GuestAddress(region.guest_address + offset_bytes))
        })
    }
}

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
        /// What the host said.
        source: io::Error,
    },
    /// The file can't be mapped.
    #[error("the memory region {region:?}: {source}")]
    Map {
        /// The region.
        region: MemoryRegion,
        /// What the host said.
        source: MmapRegionError,
    },
    /// There are no regions, or they overlap.
    #[error("memory table: {0}")]
    Table(#[from] GuestRegionCollectionError),
}

fn map_region(region: &MemoryRegion, fd: OwnedFd) -> Result<GuestRegionMmap, MemoryError> {
    let region = *region;
    let range_error = || MemoryError::Range(region);
    let size = usize::try_from(region.size_bytes).map_err(|_| range_error())?;
    let wraps = |start: u64| start.checked_add(region.size_bytes).is_none();
    if size == 0 || wraps(region.guest_address) || wraps(region.user_address) {
        return Err(range_error());
    }
    let end_bytes = region.offset_bytes.checked_add(region.size_bytes).ok_or_else(range_error)?;
    let file = File::from(fd);
    let file_bytes = file.metadata().map_err(|source| MemoryError::File { region, source })?.len();
    if end_bytes > file_bytes {
        return Err(MemoryError::BeyondFile { region, file_bytes });
    }
    let mapping = MmapRegion::from_file(FileOffset::new(file, region.offset_bytes), size)
        .map_err(|source| MemoryError::Map { region, source })?;
    GuestRegionMmap::new(mapping, GuestAddress(region.guest_address)).ok_or_else(range_error)
}
