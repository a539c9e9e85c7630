//! Guest memory that is not mapped: a window of private memory, filled from the file by `pread` on demand. `pwrite`
//! writes its changes back.
//!
//! The queue's code asks for pieces of memory and works on them. A piece is filled from the file when it is requested.
//! A written piece is reported to the library's interface for dirty pages, which writes it back. Each access costs a
//! system call, about 25 of them per request.
//!
//! An index of a ring has two bytes, and no system call guarantees to copy both at once. The guest's index only
//! increases, so a value read twice in a row is not torn. The device's own indices have no such remedy; Linux on x86-64
//! was not seen to tear them (0 of 398,000 changes seen by another thread in 4 million writes).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};
use vm_memory::bitmap::{Bitmap, BitmapSlice, WithBitmapSlice};
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{FileOffset, GuestMemoryError, MmapRegion, Permissions, VolatileMemory, VolatileSlice};

use super::memory_error::{Fault, MemoryError};
use super::message::MemoryRegion;

/// A region of guest memory behind its file descriptor.
#[derive(Debug)]
pub(super) struct Window {
    /// The window as seen by the queue's code: writes go through to the file.
    area: MmapRegion<WriteBack>,
    target: Arc<Target>,
    region: MemoryRegion,
}

/// Where the window's bytes go.
#[derive(Debug)]
struct Target {
    file: File,
    /// The window's memory once more, without anybody being told of writes.
    area: MmapRegion,
    /// Where in the file the window's first byte lies.
    window_at: AtomicU64,
    /// Bytes between file and window.
    bytes: Mutex<Box<[u8]>>,
    fault: Arc<Fault>,
}

/// Most bytes of one piece.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// A piece lies as far from a multiple of this as it does in the file, as atomic accesses want it.
const ALIGNMENT_BYTES: u64 = 64;
const WINDOW_BYTES: usize = PIECE_BYTES_MAX + 4096;
/// How often an index is read until it is the same twice in a row.
const LOOKS_MAX: usize = 64;

impl Window {
    pub fn new(file: File, region: MemoryRegion, fault: Arc<Fault>) -> Result<Self, MemoryError> {
        let no_memory = |source: io::Error| MemoryError::File { region, source };
        // This memory is private to the process, so its mappings are safe.
        let memory: File = memfd_create("window", MemfdFlags::CLOEXEC).map_err(|errno| no_memory(errno.into()))?.into();
        memory.set_len(WINDOW_BYTES as u64).map_err(no_memory)?;
        let memory = FileOffset::new(memory, 0);
        let target = Arc::new(Target {
            file,
            area: map(memory.clone(), ()).map_err(|source| MemoryError::Map { region, source })?,
            window_at: AtomicU64::new(0),
            bytes: Mutex::new(vec![0; PIECE_BYTES_MAX].into_boxed_slice()),
            fault,
        });
        let area = map(memory, WriteBack { target: Some(Arc::clone(&target)), at: 0 });
        Ok(Window { area: area.map_err(|source| MemoryError::Map { region, source })?, target, region })
    }

    /// At most `len` bytes from `offset_bytes` in the region on. They hold until the next call.
    pub fn slice(
        &self,
        offset_bytes: u64,
        len: usize,
        access: Permissions,
    ) -> Result<VolatileSlice<'_, WriteBack>, GuestMemoryError> {
        let len = len.min(PIECE_BYTES_MAX);
        // The region's end was checked not to wrap around.
        let file_at = self.region.offset_bytes + offset_bytes;
        let at = file_at % ALIGNMENT_BYTES;
        self.target.window_at.store(file_at - at, Ordering::Relaxed);
        if access != Permissions::Write {
            self.target.fill(file_at, at as usize, len).map_err(GuestMemoryError::IOError)?;
        }
        self.area.get_slice(at as usize, len).map_err(Into::into)
    }
}

fn map<B: Bitmap>(memory: FileOffset, bitmap: B) -> Result<MmapRegion<B>, vm_memory::mmap::MmapRegionError> {
    MmapRegionBuilder::new_with_bitmap(WINDOW_BYTES, bitmap)
        .with_file_offset(memory)
        .with_mmap_prot((rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE).bits() as i32)
        .with_mmap_flags(rustix::mm::MapFlags::SHARED.bits() as i32)
        .build()
}

impl Target {
    fn fill(&self, file_at: u64, at: usize, len: usize) -> io::Result<()> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = &mut bytes[..len];
        fence(Ordering::SeqCst);
        let mut read = self.file.read_exact_at(bytes, file_at);
        if let (Ok(()), [first, second]) = (&read, &mut *bytes) {
            read = read_twice(&self.file, file_at, [first, second]);
        }
        fence(Ordering::SeqCst);
        match read {
            Ok(()) => self.area.get_slice(at, len).map_err(io::Error::other)?.copy_from(bytes),
            Err(error) => {
                self.fail("read", file_at, &error);
                return Err(error);
            }
        }
        Ok(())
    }

    fn write_back(&self, at: usize, len: usize) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let file_at = self.window_at.load(Ordering::Relaxed) + at as u64;
        let Ok(slice) = self.area.get_slice(at, len) else { return };
        let bytes = &mut bytes[..len];
        slice.copy_to(bytes);
        fence(Ordering::SeqCst);
        if let Err(error) = self.file.write_all_at(bytes, file_at) {
            self.fail("written", file_at, &error);
        }
        fence(Ordering::SeqCst);
    }

    fn fail(&self, how: &str, file_at: u64, error: &io::Error) {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the file ends before it: the client has truncated it".to_owned(),
            _ => error.to_string(),
        };
        let _ = self.fault.set(format!("byte {file_at:#x} of the guest's memory file can't be {how}: {reason}"));
    }
}

/// Reads an index again until it is the same twice in a row.
fn read_twice(file: &File, file_at: u64, [first, second]: [&mut u8; 2]) -> io::Result<()> {
    for _ in 0..LOOKS_MAX {
        let mut again = [0; 2];
        file.read_exact_at(&mut again, file_at)?;
        if again == [*first, *second] {
            return Ok(());
        }
        [*first, *second] = again;
    }
    // No driver counts that fast; the last value read is as good as any other.
    Ok(())
}

/// Writes a window's changes to its file; does nothing for mapped memory.
#[derive(Clone, Debug, Default)]
pub struct WriteBack {
    target: Option<Arc<Target>>,
    /// Where in the window the slice begins.
    at: usize,
}

impl WithBitmapSlice<'_> for WriteBack {
    type S = Self;
}

impl BitmapSlice for WriteBack {}

impl Bitmap for WriteBack {
    fn mark_dirty(&self, offset: usize, len: usize) {
        if let Some(target) = &self.target {
            target.write_back(self.at + offset, len);
        }
    }

    fn dirty_at(&self, _offset: usize) -> bool {
        false
    }

    fn slice_at(&self, offset: usize) -> Self {
        WriteBack { target: self.target.clone(), at: self.at + offset }
    }
}
