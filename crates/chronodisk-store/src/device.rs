//! A real device, past the host's page cache.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::Errno;

use crate::host::irregular;
use crate::{FileOperation, Store, StoreError, check_range, len_of};

/// A block device, or a file in its place, with the answers of the host.
///
/// If the host permits `O_DIRECT`, every operation bypasses the host's page cache and reaches the device. Elsewhere, on
/// tmpfs for instance, the page cache answers, and [`is_direct`](Self::is_direct) returns false. With `O_DIRECT`,
/// offsets and lengths must be multiples of [`block_bytes`](Self::block_bytes). A block device in use, such as by a
/// mounted file system, can't be opened for writing.
#[derive(Debug)]
pub struct DeviceStore {
    file: File,
    path: PathBuf,
    capacity_bytes: u64,
    block_bytes: u32,
    direct: bool,
    /// Room for one operation's data where the device can reach them.
    buffer: Vec<u8>,
}

/// Alignment of memory and of offsets that every device is content with.
const ALIGNMENT_BYTES: usize = 4096;
/// Longest piece of an operation.
const PIECE_BYTES: usize = 4 << 20;

impl DeviceStore {
    /// Opens a device, or a file whose size is a multiple of 4 KiB.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::InUse`].
    pub fn open(path: impl AsRef<Path>, read_only: bool) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let failed = |operation| move |source| io_error(path, operation, 0, 0, source);
        let kind = std::fs::metadata(path).map_err(failed(FileOperation::Open))?.file_type();
        let is_device = kind.is_block_device();
        if let Some(kind) = irregular(kind).filter(|_| !is_device) {
            // Opening a pipe may block for ever.
            return Err(StoreError::NotRegular { path: path.to_owned(), kind });
        }
        // "If the block device is in use by the system (e.g., mounted), open() fails with the error EBUSY", open(2).
        let exclusive = if is_device && !read_only { OFlags::EXCL } else { OFlags::empty() };
        let open = |flags: OFlags| {
            OpenOptions::new().read(true).write(!read_only).custom_flags(flags.bits() as i32).open(path)
        };
        let (mut file, direct) = match open(exclusive | OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                (open(exclusive).map_err(failed(FileOperation::Open))?, false)
            }
            Err(error) => return Err(failed(FileOperation::Open)(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(StoreError::InUse { path: path.to_owned() }),
            Err(errno) => return Err(failed(FileOperation::Lock)(errno.into())),
        }
        let len_bytes = file.seek(SeekFrom::End(0)).map_err(failed(FileOperation::Stat))?;
        let mut store = DeviceStore {
            file,
            path: path.to_owned(),
            capacity_bytes: len_bytes - len_bytes % ALIGNMENT_BYTES as u64,
            block_bytes: 512,
            direct,
            buffer: Vec::new(),
        };
        // A device with larger blocks refuses smaller reads.
        if direct && store.capacity_bytes > 0 && store.read(512, &mut [0; 512]).is_err() {
            store.block_bytes = ALIGNMENT_BYTES as u32;
        }
        Ok(store)
    }

    /// Whether operations go past the host's page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Unit of offsets and lengths in bytes, 512 or 4,096.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn failed(&self, operation: FileOperation, offset_bytes: u64, len: usize) -> impl Fn(io::Error) -> StoreError {
        move |source| io_error(&self.path, operation, offset_bytes, len as u64, source)
    }
}

/// An aligned part of `buffer`, which grows to hold it.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len + ALIGNMENT_BYTES {
        buffer.resize(len + ALIGNMENT_BYTES, 0);
    }
    let start = buffer.as_ptr().align_offset(ALIGNMENT_BYTES);
    &mut buffer[start..start + len]
}

impl Store for DeviceStore {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        let mut position = offset_bytes;
        for piece in bytes.chunks_mut(PIECE_BYTES) {
            let room = aligned(&mut self.buffer, piece.len());
            let read = self.file.read_exact_at(room, position);
            piece.copy_from_slice(room);
            read.map_err(self.failed(FileOperation::Read, position, piece.len()))?;
            position += len_of(piece);
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        let mut position = offset_bytes;
        for piece in bytes.chunks(PIECE_BYTES) {
            let room = aligned(&mut self.buffer, piece.len());
            room.copy_from_slice(piece);
            let written = self.file.write_all_at(room, position);
            written.map_err(self.failed(FileOperation::Write, position, piece.len()))?;
            position += len_of(piece);
        }
        Ok(())
    }

    /// Punches a hole if the device or its file system supports it, otherwise writes zeros.
    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_bytes)?;
        if len_bytes == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(&self.file, flags, offset_bytes, len_bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return self.reserve_zeroes(offset_bytes, len_bytes),
                Err(errno) => {
                    let failed = self.failed(FileOperation::Punch, offset_bytes, len_bytes as usize);
                    return Err(failed(errno.into()));
                }
            }
        }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(self.failed(FileOperation::Sync, 0, 0))
    }

    fn flush_waits(&self) -> bool {
        true
    }

    fn second_way(&self) -> Result<Option<Box<dyn Store>>, StoreError> {
        let file = self.file.try_clone().map_err(self.failed(FileOperation::Open, 0, 0))?;
        Ok(Some(Box::new(DeviceStore { file, path: self.path.clone(), buffer: Vec::new(), ..*self })))
    }

    /// A device uses its full capacity.
    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.capacity_bytes)
    }

    fn budget_bytes(&self) -> Option<u64> {
        None
    }
}

fn io_error(path: &Path, operation: FileOperation, offset_bytes: u64, len_bytes: u64, source: io::Error) -> StoreError {
    StoreError::Io { path: path.to_owned(), operation, offset_bytes, len_bytes, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_to_the_file_and_come_back_by_either_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        File::create(&path).unwrap().set_len((16 << 20) + 100).unwrap();
        let mut store = DeviceStore::open(&path, false).unwrap();
        assert_eq!(store.capacity_bytes(), 16 << 20, "whole blocks");
        let mut other = store.second_way().unwrap().expect("a device has one");
        // Longer than a piece, from an address that is not aligned.
        let bytes: Vec<u8> = (0..(6 << 20) + 1).map(|index| (index % 253) as u8).collect();
        store.write(8192, &bytes[1..]).unwrap();
        let mut back = vec![0; 6 << 20];
        other.read(8192, &mut back).unwrap();
        assert!(back == bytes[1..]);
        other.discard(8192, 4096).unwrap();
        store.read(8192, &mut back[..8192]).unwrap();
        assert!(back[..4096].iter().all(|byte| *byte == 0) && back[4096..8192] == bytes[4097..8193]);
        store.flush().unwrap();
        assert!(matches!(store.read(16 << 20, &mut [0; 512]), Err(StoreError::OutOfRange { .. })));
        assert!(matches!(DeviceStore::open(&path, false), Err(StoreError::InUse { .. })));
        if !store.is_direct() {
            eprintln!("SKIPPED O_DIRECT: the file system of {} does not know it", folder.path().display());
        }
    }

    #[test]
    fn what_is_opened_for_reading_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let mut store = DeviceStore::open(&path, true).unwrap();
        assert!(matches!(store.write(0, &[1; 4096]), Err(StoreError::Io { operation: FileOperation::Write, .. })));
        assert!(DeviceStore::open(folder.path().join("nothing"), true).is_err());
    }
}
