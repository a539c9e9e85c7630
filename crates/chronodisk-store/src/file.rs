//! A sparse file.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::{Extent, FileOperation, Store, StoreError, check_extent, check_range, len_of};

/// Keeps the device in a file of the same size, byte for byte, that other tools can open.
///
/// What was never written is a hole. The contents survive the end of this process, whatever ends
/// it; they survive a crash of the host from each flush on if the store is durable. While it is
/// open no other `FileStore` can open the file.
#[derive(Debug)]
pub struct FileStore {
    file: File,
    path: PathBuf,
    capacity_bytes: u64,
    durable: bool,
    punch: PunchSupport,
    /// The host's file system can tell whether a read would wait.
    knows_waiting: bool,
}

impl FileStore {
    /// Makes a new file of `capacity_bytes`, all hole. With `durable`, a flush reaches the host's
    /// medium.
    ///
    /// # Errors
    /// [`StoreError::Io`], also if the file exists.
    pub fn create(path: impl AsRef<Path>, capacity_bytes: u64, durable: bool) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let failed = |source| io_error(path, FileOperation::Create, 0, capacity_bytes, source);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(failed)?;
        lock(&file, path)?;
        file.set_len(capacity_bytes).map_err(failed)?;
        Ok(FileStore::from_parts(file, path, capacity_bytes, durable))
    }

    /// Opens a file that must have exactly `capacity_bytes`.
    ///
    /// # Errors
    /// [`StoreError::WrongSize`], [`StoreError::InUse`], [`StoreError::Io`].
    pub fn open(path: impl AsRef<Path>, capacity_bytes: u64, durable: bool) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let failed = |operation| move |source| io_error(path, operation, 0, 0, source);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed(FileOperation::Open))?;
        lock(&file, path)?;
        let actual_bytes = file.metadata().map_err(failed(FileOperation::Stat))?.len();
        if actual_bytes != capacity_bytes {
            return Err(StoreError::WrongSize { path: path.to_owned(), actual_bytes, expected_bytes: capacity_bytes });
        }
        Ok(FileStore::from_parts(file, path, capacity_bytes, durable))
    }

    /// The same file under a descriptor of its own, for reading while this one is busy.
    pub(crate) fn duplicate(&self) -> Result<Self, StoreError> {
        let file = self.file.try_clone().map_err(self.failed(FileOperation::Open, 0, 0))?;
        Ok(FileStore { file, path: self.path.clone(), ..*self })
    }

    fn from_parts(file: File, path: &Path, capacity_bytes: u64, durable: bool) -> Self {
        FileStore {
            file,
            path: path.to_owned(),
            capacity_bytes,
            durable,
            punch: PunchSupport::PunchHole,
            knows_waiting: true,
        }
    }

    fn failed(
        &self,
        operation: FileOperation,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> impl FnOnce(io::Error) -> StoreError {
        move |source| io_error(&self.path, operation, offset_bytes, len_bytes, source)
    }

    fn overwrite_with_zeros(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        const ZEROS: &[u8] = &[0; 64 << 10];
        let mut done_bytes = 0;
        while done_bytes < len_bytes {
            let chunk_bytes = (len_bytes - done_bytes).min(len_of(ZEROS));
            self.file.write_all_at(&ZEROS[..chunk_bytes as usize], offset_bytes + done_bytes)?;
            done_bytes += chunk_bytes;
        }
        Ok(())
    }
}

impl Store for FileStore {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        let len_bytes = len_of(bytes);
        self.file.read_exact_at(bytes, offset_bytes).map_err(self.failed(FileOperation::Read, offset_bytes, len_bytes))
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        self.file.write_all_at(bytes, offset_bytes).map_err(self.failed(
            FileOperation::Write,
            offset_bytes,
            len_of(bytes),
        ))
    }

    /// By `RWF_NOWAIT`, preadv2(2): what is in the host's page cache. Where the file system does not
    /// know, every read may wait.
    fn try_read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        if !self.knows_waiting {
            return Err(StoreError::WouldWait);
        }
        let len = bytes.len();
        match preadv2(&self.file, &mut [IoSliceMut::new(bytes)], offset_bytes, ReadWriteFlags::NOWAIT) {
            Ok(read) if read == len => Ok(()),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Err(StoreError::WouldWait),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.knows_waiting = false;
                Err(StoreError::WouldWait)
            }
            Err(errno) => Err(self.failed(FileOperation::Read, offset_bytes, len as u64)(errno.into())),
        }
    }

    fn flush_waits(&self) -> bool {
        self.durable
    }

    fn second_way(&self) -> Result<Option<Box<dyn Store>>, StoreError> {
        Ok(Some(Box::new(self.duplicate()?)))
    }

    /// The range is punched out and then allocated anew: zeros that were never written.
    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.write_zeroes(offset_bytes, len_bytes)?;
        if len_bytes == 0 {
            return Ok(());
        }
        loop {
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset_bytes, len_bytes) {
                // What a file system can't set aside is not set aside; the zeros are there all the same.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(self.failed(FileOperation::Write, offset_bytes, len_bytes)(errno.into()));
                }
            }
        }
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_bytes)?;
        if len_bytes == 0 {
            return Ok(());
        }
        while let Some(flags) = self.punch.flags() {
            match fallocate(&self.file, flags, offset_bytes, len_bytes) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.punch = self.punch.next(),
                Err(errno) => {
                    return Err(self.failed(FileOperation::Punch, offset_bytes, len_bytes)(errno.into()));
                }
            }
        }
        self.overwrite_with_zeros(offset_bytes, len_bytes).map_err(self.failed(
            FileOperation::Write,
            offset_bytes,
            len_bytes,
        ))
    }

    /// As the host's file system knows it: `SEEK_DATA` and `SEEK_HOLE`, lseek(2). One that does not
    /// know says that everything is data.
    fn extent(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<Extent, StoreError> {
        check_extent(self.capacity_bytes, offset_bytes, len_bytes)?;
        let allocated_until = |until: u64, allocated| Extent {
            // The file may have been cut off behind our back: at least one byte all the same.
            len_bytes: until.saturating_sub(offset_bytes).clamp(1, len_bytes),
            allocated,
        };
        let failed = |errno: Errno| self.failed(FileOperation::Seek, offset_bytes, len_bytes)(errno.into());
        match seek(&self.file, SeekFrom::Data(offset_bytes)) {
            Ok(data) if data > offset_bytes => Ok(allocated_until(data, false)),
            Ok(_) => match seek(&self.file, SeekFrom::Hole(offset_bytes)) {
                Ok(hole) => Ok(allocated_until(hole, true)),
                Err(errno) => Err(failed(errno)),
            },
            // lseek(2): no data from there on to the end.
            Err(Errno::NXIO) => Ok(allocated_until(self.capacity_bytes, false)),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(allocated_until(self.capacity_bytes, true)),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if !self.durable {
            return Ok(());
        }
        self.file.sync_data().map_err(self.failed(FileOperation::Sync, 0, 0))
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        let metadata = self.file.metadata().map_err(self.failed(FileOperation::Stat, 0, 0))?;
        // stat(2): st_blocks counts units of 512 bytes, whatever the file system's block size.
        Ok(metadata.blocks() * 512)
    }

    fn budget_bytes(&self) -> Option<u64> {
        None
    }
}

/// What the host's file system was found to understand; it is asked for less when it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PunchSupport {
    PunchHole,
    ZeroRange,
    Nothing,
}

impl PunchSupport {
    fn flags(self) -> Option<FallocateFlags> {
        match self {
            PunchSupport::PunchHole => Some(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE),
            PunchSupport::ZeroRange => Some(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE),
            PunchSupport::Nothing => None,
        }
    }

    fn next(self) -> Self {
        match self {
            PunchSupport::PunchHole => PunchSupport::ZeroRange,
            PunchSupport::ZeroRange | PunchSupport::Nothing => PunchSupport::Nothing,
        }
    }
}

fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(StoreError::InUse { path: path.to_owned() }),
        Err(errno) => Err(io_error(path, FileOperation::Lock, 0, 0, errno.into())),
    }
}

pub(crate) fn io_error(
    path: &Path,
    operation: FileOperation,
    offset_bytes: u64,
    len_bytes: u64,
    source: io::Error,
) -> StoreError {
    StoreError::Io { path: path.to_owned(), operation, offset_bytes, len_bytes, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY_BYTES: u64 = 1 << 20;

    fn create(directory: &tempfile::TempDir) -> FileStore {
        FileStore::create(directory.path().join("disk"), CAPACITY_BYTES, true).unwrap()
    }

    #[test]
    fn contents_survive_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = create(&directory);
        store.write(1000, b"kept").unwrap();
        store.flush().unwrap();
        drop(store);
        let mut store = FileStore::open(directory.path().join("disk"), CAPACITY_BYTES, false).unwrap();
        let mut bytes = [0; 4];
        store.read(1000, &mut bytes).unwrap();
        assert_eq!(&bytes, b"kept");
    }

    #[test]
    fn the_wrong_size_a_second_user_and_an_existing_file_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let store = create(&directory);
        let error = FileStore::open(&path, CAPACITY_BYTES, false).unwrap_err();
        assert!(matches!(error, StoreError::InUse { .. }), "{error}");
        drop(store);
        let error = FileStore::open(&path, CAPACITY_BYTES + 1, false).unwrap_err();
        assert!(matches!(error, StoreError::WrongSize { actual_bytes: CAPACITY_BYTES, .. }), "{error}");
        assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
        let error = FileStore::create(&path, CAPACITY_BYTES, false).unwrap_err();
        assert!(matches!(error, StoreError::Io { operation: FileOperation::Create, .. }), "{error}");
    }

    #[test]
    fn extents_are_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = create(&directory);
        let all = store.extent(0, CAPACITY_BYTES).unwrap();
        store.write(512 << 10, &[1; 64 << 10]).unwrap();
        let data = store.extent(512 << 10, 512 << 10).unwrap();
        assert!(data.allocated && data.len_bytes >= 64 << 10, "{data:?}");
        assert_eq!(store.extent(520 << 10, 100).unwrap(), Extent { len_bytes: 100, allocated: true });
        if all.allocated {
            eprintln!("SKIPPED holes: the file system of {} does not know them", directory.path().display());
            return;
        }
        assert_eq!(all.len_bytes, CAPACITY_BYTES);
        let hole = store.extent(0, CAPACITY_BYTES).unwrap();
        assert_eq!(hole, Extent { len_bytes: 512 << 10, allocated: false });
        assert_eq!(data.len_bytes, 64 << 10);
        let tail = store.extent(CAPACITY_BYTES - 1, 1).unwrap();
        assert_eq!(tail, Extent { len_bytes: 1, allocated: false });
        assert!(matches!(store.extent(0, 0), Err(StoreError::OutOfRange { .. })));
        assert!(matches!(store.extent(1, CAPACITY_BYTES), Err(StoreError::OutOfRange { .. })));
    }

    #[test]
    fn a_second_way_sees_the_same_bytes_and_what_is_cached_needs_no_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = create(&directory);
        let mut other = store.second_way().unwrap().expect("a file has one");
        store.write(5_000, &[3; 10_000]).unwrap();
        let mut bytes = [0; 10_000];
        other.read(5_000, &mut bytes).unwrap();
        assert_eq!(bytes, [3; 10_000]);
        let mut bytes = [0; 10_000];
        match store.try_read(5_000, &mut bytes) {
            Ok(()) => assert_eq!(bytes, [3; 10_000]),
            Err(StoreError::WouldWait) => eprintln!("SKIPPED cached reads: this file system does not know them"),
            Err(error) => panic!("{error}"),
        }
        assert!(matches!(store.try_read(CAPACITY_BYTES, &mut [0]), Err(StoreError::OutOfRange { .. })));
    }

    #[test]
    fn reserved_zeros_are_zeros_and_take_space() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = create(&directory);
        store.write(0, &[9; 300_000]).unwrap();
        store.reserve_zeroes(1, 500_000).unwrap();
        let mut bytes = vec![1; 600_000];
        store.read(0, &mut bytes).unwrap();
        assert!(bytes[0] == 9 && bytes[1..].iter().all(|byte| *byte == 0));
        assert!(store.allocated_bytes().unwrap() >= 500_000);
        assert!(matches!(store.reserve_zeroes(1, CAPACITY_BYTES), Err(StoreError::OutOfRange { .. })));
    }

    #[test]
    fn without_hole_punching_zeros_are_written() {
        let directory = tempfile::tempdir().unwrap();
        for punch in [PunchSupport::PunchHole, PunchSupport::Nothing] {
            let path = directory.path().join(format!("{punch:?}"));
            let mut store = FileStore::create(path, CAPACITY_BYTES, false).unwrap();
            store.punch = punch;
            store.write(0, &[9; 300_000]).unwrap();
            store.discard(1, 200_000).unwrap();
            let mut bytes = vec![1; 300_000];
            store.read(0, &mut bytes).unwrap();
            assert_eq!((bytes[0], bytes[200_001]), (9, 9));
            assert!(bytes[1..200_001].iter().all(|&byte| byte == 0), "{punch:?}");
        }
    }
}
