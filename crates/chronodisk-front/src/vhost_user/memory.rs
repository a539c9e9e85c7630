//! The guest's memory, from the file descriptors of its memory table.
//!
//! Every access goes through the table: addresses outside it do not exist. User Mode Linux leaves its kernel image out,
//! for instance.
//!
//! An access to mapped memory with a truncated file kills a process with SIGBUS. A process that serves one guest may
//! end with it ([`Sharing::OwnProcess`]). A server of several clients ([`Sharing::Server`]) maps a file only if it
//! can't be truncated: a memfd with `F_SEAL_SHRINK` (fcntl(2)), which is added where the guest allows it. Any other
//! file is never mapped: it is accessed through its descriptor by `pread` and `pwrite`, which report that the file
//! became too short. See `window.rs`.

use std::fs::File;
use std::io;
use std::iter::FusedIterator;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs};
use vm_memory::guest_memory::GuestMemorySliceIterator;
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryError, GuestMemoryMmap, MmapRegion, Permissions, VolatileMemory, VolatileSlice,
};

use super::memory_error::Fault;
pub use super::memory_error::MemoryError;
use super::message::MemoryRegion;
use super::window::{Window, WriteBack};

/// Clients of the process that accesses a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// This guest only: all its memory is mapped.
    OwnProcess,
    /// Other clients, too: only memory is mapped that the guest can't take away.
    Server,
}

/// The regions of a memory table, and how the front end's own addresses translate to guest addresses.
#[derive(Debug)]
pub struct GuestMemory {
    /// By guest address.
    regions: Vec<Region>,
    fault: Arc<Fault>,
}

#[derive(Debug)]
struct Region {
    table: MemoryRegion,
    access: Access,
}

#[derive(Debug)]
enum Access {
    Mapped(MmapRegion<WriteBack>),
    Copied(Window),
}

/// `TMPFS_MAGIC`, `HUGETLBFS_MAGIC` and `FUSE_SUPER_MAGIC` of `linux/magic.h`. A memfd is a file of
/// tmpfs or, with `MFD_HUGETLB`, of hugetlbfs.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;
const FUSE: u64 = 0x6573_5546;

impl GuestMemory {
    /// Takes every region of the table.
    ///
    /// # Errors
    /// [`MemoryError`] if there is no region, if one wraps around, reaches beyond its file, overlaps another or is
    /// of a kind that can't be used, or if the host refuses to map it. Nothing stays mapped then.
    pub fn map(table: Vec<(MemoryRegion, OwnedFd)>, sharing: Sharing) -> Result<Self, MemoryError> {
        let mut table = table;
        table.sort_by_key(|(region, _)| region.guest_address);
        let fault = Arc::new(Fault::new());
        let regions: Vec<Region> =
            table.into_iter().map(|(region, fd)| Region::new(region, fd, sharing, &fault)).collect::<Result<_, _>>()?;
        if regions.is_empty() {
            return Err(MemoryError::NoRegion);
        }
        for pair in regions.windows(2) {
            let [before, after] = [pair[0].table, pair[1].table];
            if before.guest_address + before.size_bytes > after.guest_address {
                return Err(MemoryError::Overlap { before, after });
            }
        }
        Ok(GuestMemory { regions, fault })
    }

    /// The guest address of `len_bytes` at an address of the front end; `None` unless one region
    /// holds them all.
    #[must_use]
    pub fn translate(&self, user_address: u64, len_bytes: u64) -> Option<GuestAddress> {
        self.regions.iter().map(|region| region.table).find_map(|region| {
            let offset_bytes = user_address.checked_sub(region.user_address)?;
            let end_bytes = offset_bytes.checked_add(len_bytes)?;
            // `map` has checked that the sum does not wrap around.
            (end_bytes <= region.size_bytes).then(|| GuestAddress(region.guest_address + offset_bytes))
        })
    }

    /// Why the memory can no longer be accessed: its file became too short, for instance.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Regions that are mapped, and regions that are accessed through their descriptors.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let mapped = self.regions.iter().filter(|region| matches!(region.access, Access::Mapped(_))).count();
        (mapped, self.regions.len() - mapped)
    }

    fn region_of(&self, address: u64) -> Option<(&Region, u64)> {
        self.regions.iter().find_map(|region| {
            let offset_bytes = address.checked_sub(region.table.guest_address)?;
            (offset_bytes < region.table.size_bytes).then_some((region, offset_bytes))
        })
    }
}

impl vm_memory::GuestMemory for GuestMemory {
    type PhysicalMemory = GuestMemoryMmap<WriteBack>;
    type Bitmap = WriteBack;

    fn check_range(&self, address: GuestAddress, count: usize, _access: Permissions) -> bool {
        let (mut address, mut left) = (address.0, count as u64);
        while left > 0 {
            let Some((region, offset_bytes)) = self.region_of(address) else { return false };
            let here = left.min(region.table.size_bytes - offset_bytes);
            left -= here;
            // `map` has checked that a region's end does not wrap around.
            address += here;
        }
        true
    }

    fn get_slices<'a>(
        &'a self,
        address: GuestAddress,
        count: usize,
        access: Permissions,
    ) -> Result<impl GuestMemorySliceIterator<'a, WriteBack>, GuestMemoryError> {
        Ok(Slices { memory: self, address: address.0, left: count, access })
    }
}

/// Pieces of guest memory, one after the other. Where memory is not mapped, a piece holds until the next one is asked
/// for; that is how all copying of bytes uses them.
struct Slices<'a> {
    memory: &'a GuestMemory,
    address: u64,
    left: usize,
    access: Permissions,
}

impl<'a> Slices<'a> {
    fn piece(&self) -> Result<VolatileSlice<'a, WriteBack>, GuestMemoryError> {
        let invalid = GuestMemoryError::InvalidGuestAddress(GuestAddress(self.address));
        let Some((region, offset_bytes)) = self.memory.region_of(self.address) else { return Err(invalid) };
        // No more than the count.
        let len = (region.table.size_bytes - offset_bytes).min(self.left as u64) as usize;
        match &region.access {
            Access::Mapped(area) => area.get_slice(offset_bytes as usize, len).map_err(Into::into),
            Access::Copied(window) => window.slice(offset_bytes, len, self.access),
        }
    }
}

impl<'a> Iterator for Slices<'a> {
    type Item = Result<VolatileSlice<'a, WriteBack>, GuestMemoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let piece = self.piece();
        match &piece {
            Ok(slice) => {
                self.left -= slice.len();
                self.address += slice.len() as u64;
            }
            Err(_) => self.left = 0,
        }
        Some(piece)
    }
}

impl FusedIterator for Slices<'_> {}

impl<'a> GuestMemorySliceIterator<'a, WriteBack> for Slices<'a> {}

impl Region {
    fn new(region: MemoryRegion, fd: OwnedFd, sharing: Sharing, fault: &Arc<Fault>) -> Result<Self, MemoryError> {
        let range_error = || MemoryError::Range(region);
        let size = usize::try_from(region.size_bytes).map_err(|_| range_error())?;
        let wraps = |start: u64| start.checked_add(region.size_bytes).is_none();
        if size == 0 || wraps(region.guest_address) || wraps(region.user_address) {
            return Err(range_error());
        }
        let end_bytes = region.offset_bytes.checked_add(region.size_bytes).ok_or_else(range_error)?;
        let file = File::from(fd);
        let file_error = |source| MemoryError::File { region, source };
        if sharing == Sharing::Server {
            refuse_dangerous(&file)
                .map_err(file_error)?
                .map_or(Ok(()), |found| Err(MemoryError::Kind { region, found }))?;
        }
        // Sealed before its size is looked at.
        let mapped = sharing == Sharing::OwnProcess || is_sealed(&file);
        let file_bytes = file.metadata().map_err(file_error)?.len();
        if end_bytes > file_bytes {
            return Err(MemoryError::BeyondFile { region, file_bytes });
        }
        let access = if mapped {
            let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
            let flags = rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::NORESERVE;
            let area = MmapRegionBuilder::new_with_bitmap(size, WriteBack::default())
                .with_file_offset(FileOffset::new(file, region.offset_bytes))
                .with_mmap_prot(protection.bits() as i32)
                .with_mmap_flags(flags.bits() as i32)
                .build();
            Access::Mapped(area.map_err(|source| MemoryError::Map { region, source })?)
        } else {
            Access::Copied(Window::new(file, region, Arc::clone(fault))?)
        };
        Ok(Region { table: region, access })
    }
}

/// Returns the kind of file if a server must not use it.
fn refuse_dangerous(file: &File) -> io::Result<Option<&'static str>> {
    if FileType::from_raw_mode(fstat(file)?.st_mode) != FileType::RegularFile {
        return Ok(Some("no regular file"));
    }
    Ok(match file_system(file)? {
        // A guest that punches a hole takes the page back, and another one may not be had: SIGBUS in spite of a
        // seal. They can't be written but by mapping them.
        HUGETLBFS => Some("made of huge pages of hugetlbfs"),
        // The server of a FUSE file system can block a read for ever.
        FUSE => Some("a file in a FUSE file system"),
        _ => None,
    })
}

/// Returns whether the file can't be truncated any more.
fn is_sealed(file: &File) -> bool {
    let shrink = SealFlags::SHRINK;
    file_system(file).is_ok_and(|kind| kind == TMPFS)
        && (fcntl_get_seals(file).is_ok_and(|seals| seals.contains(shrink)) || fcntl_add_seals(file, shrink).is_ok())
}

fn file_system(file: &File) -> io::Result<u64> {
    // The type is a 32-bit number that some architectures extend by its sign.
    Ok(u64::from(fstatfs(file.as_fd())?.f_type as u32))
}
