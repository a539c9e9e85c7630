//! A sparse file.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::host::{Allocation, Host, OpenMode, RealHost, SeekTo};
use crate::image_files::refuse_parts_beside;
use crate::store_file::{Cached, StoreFile};
use crate::{Durability, Extent, FileOperation, Store, StoreError, check_extent, check_range, len_of};

/// Keeps the device in a file of the same size, byte for byte, that other tools can open.
///
/// Unwritten ranges are holes. [`Durability`] lists the events that completed writes survive. The end of this process,
/// for any cause, loses nothing. While it is open no other `FileStore` can open the file.
#[derive(Debug)]
pub struct FileStore {
    file: StoreFile,
    capacity_bytes: u64,
    durability: Durability,
    /// Requests that the host's file system supports, reduced at each refusal.
    clearing: Option<Allocation>,
    /// The host's file system can tell whether a read would wait.
    knows_waiting: bool,
    /// The host's file system can set space aside.
    knows_reserving: bool,
}

impl FileStore {
    /// Makes a new file of `capacity_bytes`, all hole. A creation that fails leaves no file behind.
    ///
    /// # Errors
    /// [`StoreError::Io`], also if the file exists; [`StoreError::Incomplete`].
    pub fn create(path: impl AsRef<Path>, capacity_bytes: u64, durability: Durability) -> Result<Self, StoreError> {
        FileStore::create_on(&real_host(), path, capacity_bytes, durability)
    }

    /// Like [`FileStore::create`], with files of `host`.
    ///
    /// # Errors
    /// Like [`FileStore::create`].
    pub fn create_on(
        host: &Arc<dyn Host>,
        path: impl AsRef<Path>,
        capacity_bytes: u64,
        durability: Durability,
    ) -> Result<Self, StoreError> {
        let path = path.as_ref();
        refuse_parts_beside(host, path)?;
        let file = StoreFile::open(host, path, OpenMode::CreateNew)?;
        let made = file.lock(true).and_then(|()| {
            // Before the lock another start may have made it a device's, or removed it again.
            let is_ours = file.size()?.len_bytes == 0 && file.has_its_name()?;
            if !is_ours {
                return Err(StoreError::InUse { path: path.to_owned() });
            }
            make(&file, capacity_bytes, durability)
        });
        if let Err(error) = made {
            // An empty file would block the next attempt. If another process uses it already, it must stay.
            if !matches!(error, StoreError::InUse { .. }) {
                let _ = host.remove(path);
            }
            return Err(error);
        }
        Ok(FileStore::from_parts(file, capacity_bytes, durability))
    }

    /// Opens a file, or creates it if it does not exist.
    ///
    /// # Errors
    /// Like [`FileStore::open`] and [`FileStore::create`].
    pub fn open_or_create(
        path: impl AsRef<Path>,
        capacity_bytes: u64,
        durability: Durability,
    ) -> Result<Self, StoreError> {
        let (host, path) = (real_host(), path.as_ref());
        match StoreFile::exists(&host, path)? {
            true => FileStore::open_on(&host, path, capacity_bytes, durability),
            false => FileStore::create_on(&host, path, capacity_bytes, durability),
        }
    }

    /// Opens a file that must have exactly `capacity_bytes`. An empty file is left over from a creation that was
    /// killed, and is extended to the size of the device.
    ///
    /// # Errors
    /// [`StoreError::WrongSize`], [`StoreError::ForeignFormat`], [`StoreError::NotRegular`], [`StoreError::InUse`],
    /// [`StoreError::Io`].
    pub fn open(path: impl AsRef<Path>, capacity_bytes: u64, durability: Durability) -> Result<Self, StoreError> {
        FileStore::open_on(&real_host(), path, capacity_bytes, durability)
    }

    /// Like [`FileStore::open`], with files of `host`.
    ///
    /// # Errors
    /// Like [`FileStore::open`].
    pub fn open_on(
        host: &Arc<dyn Host>,
        path: impl AsRef<Path>,
        capacity_bytes: u64,
        durability: Durability,
    ) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let file = StoreFile::open(host, path, OpenMode::ReadWrite)?;
        file.lock(true)?;
        let actual_bytes = file.size()?.len_bytes;
        if actual_bytes == 0 {
            refuse_parts_beside(host, path)?;
            make(&file, capacity_bytes, durability)?;
        } else if actual_bytes != capacity_bytes {
            crate::foreign::expect_raw(path, &file)?;
            return Err(StoreError::WrongSize { path: path.to_owned(), actual_bytes, expected_bytes: capacity_bytes });
        } else if durability.power_cut {
            // A killed creator may not have made its name durable.
            file.sync_folder()?;
        }
        Ok(FileStore::from_parts(file, capacity_bytes, durability))
    }

    /// The same file with a descriptor of its own, for reading while this one is busy.
    pub(crate) fn duplicate(&self) -> Result<Self, StoreError> {
        Ok(FileStore { file: self.file.duplicate()?, ..*self })
    }

    fn from_parts(file: StoreFile, capacity_bytes: u64, durability: Durability) -> Self {
        FileStore {
            file,
            capacity_bytes,
            durability,
            clearing: Some(Allocation::Punch),
            knows_waiting: true,
            knows_reserving: true,
        }
    }

    /// Its durability contract.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Like [`Store::write`], but the caller must call [`settle`](Self::settle) before it acknowledges the write.
    ///
    /// # Errors
    /// Like [`Store::write`].
    pub fn write_unsettled(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        self.file.write(offset_bytes, bytes)
    }

    /// Makes written data as durable as a completed write must be.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn settle(&self) -> Result<(), StoreError> {
        if self.write_waits() { self.file.sync() } else { Ok(()) }
    }

    /// Reserves space for writes to a range. Has no effect if the host's file system does not support it.
    ///
    /// # Errors
    /// [`StoreError::OutOfRange`], [`StoreError::Io`] if there is no space.
    pub fn reserve(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_bytes)?;
        if self.knows_reserving && len_bytes > 0 {
            self.knows_reserving = self.file.allocate(Allocation::Reserve, offset_bytes, len_bytes)?;
        }
        Ok(())
    }

    /// Like [`Store::write_zeroes`], but the caller must call [`settle`](Self::settle) afterwards.
    pub(crate) fn clear_unsettled(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_bytes)?;
        if len_bytes == 0 {
            return Ok(());
        }
        while let Some(clearing) = self.clearing {
            if self.file.allocate(clearing, offset_bytes, len_bytes)? {
                return Ok(());
            }
            self.clearing = (clearing == Allocation::Punch).then_some(Allocation::Zero);
        }
        self.overwrite_with_zeros(offset_bytes, len_bytes)
    }

    fn overwrite_with_zeros(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        const ZEROS: &[u8] = &[0; 64 << 10];
        let mut done_bytes = 0;
        while done_bytes < len_bytes {
            let chunk_bytes = (len_bytes - done_bytes).min(len_of(ZEROS));
            self.file.write(offset_bytes + done_bytes, &ZEROS[..chunk_bytes as usize])?;
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
        self.file.read(offset_bytes, bytes)
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_unsettled(offset_bytes, bytes)?;
        self.settle()
    }

    /// Uses `RWF_NOWAIT`, preadv2(2), which reads from the host's page cache only. If the file system does not support
    /// it, every read may block.
    fn try_read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        if !self.knows_waiting {
            return Err(StoreError::WouldWait);
        }
        match self.file.read_cached(offset_bytes, bytes)? {
            Cached::Read => Ok(()),
            Cached::WouldWait => Err(StoreError::WouldWait),
            Cached::Unknown => {
                self.knows_waiting = false;
                Err(StoreError::WouldWait)
            }
        }
    }

    fn flush_waits(&self) -> bool {
        self.durability.power_cut
    }

    fn write_waits(&self) -> bool {
        self.durability.write_through && self.durability.power_cut
    }

    fn second_way(&self) -> Result<Option<Box<dyn Store>>, StoreError> {
        Ok(Some(Box::new(self.duplicate()?)))
    }

    /// Punches the range out and then allocates it again, so that no zeros are written.
    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear_unsettled(offset_bytes, len_bytes)?;
        // If the file system does not support reservation, writes may still fail for lack of space.
        self.reserve(offset_bytes, len_bytes)?;
        self.settle()
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear_unsettled(offset_bytes, len_bytes)?;
        self.settle()
    }

    /// Extents according to the host's file system: `SEEK_DATA` and `SEEK_HOLE`, lseek(2). A file system without holes
    /// reports data everywhere.
    fn extent(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<Extent, StoreError> {
        check_extent(self.capacity_bytes, offset_bytes, len_bytes)?;
        let until = |until: u64, allocated| Extent {
            // Another program may have truncated the file; the extent must have at least one byte all the same.
            len_bytes: until.saturating_sub(offset_bytes).clamp(1, len_bytes),
            allocated,
        };
        let failed = self.file.failed(FileOperation::Seek, offset_bytes, len_bytes);
        match self.file.seek(SeekTo::Data, offset_bytes) {
            Ok(Some(data)) if data > offset_bytes => Ok(until(data, false)),
            Ok(Some(_)) => {
                let hole = self.file.seek(SeekTo::Hole, offset_bytes).map_err(failed)?;
                Ok(until(hole.unwrap_or(self.capacity_bytes), true))
            }
            Ok(None) => Ok(until(self.capacity_bytes, false)),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
                Ok(until(self.capacity_bytes, true))
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if self.durability.power_cut { self.file.sync() } else { Ok(()) }
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.file.size()?.allocated_bytes)
    }

    fn budget_bytes(&self) -> Option<u64> {
        None
    }
}

/// Makes a new file as long as the device.
fn make(file: &StoreFile, capacity_bytes: u64, durability: Durability) -> Result<(), StoreError> {
    file.set_len(capacity_bytes, FileOperation::Create)?;
    if durability.power_cut {
        file.sync()?;
        file.sync_folder()?;
    }
    Ok(())
}

/// The operating system's files as a host.
pub(crate) fn real_host() -> Arc<dyn Host> {
    Arc::new(RealHost)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY_BYTES: u64 = 1 << 20;
    const DURABLE: Durability = Durability { write_through: false, power_cut: true };

    fn create(directory: &tempfile::TempDir) -> FileStore {
        FileStore::create(directory.path().join("disk"), CAPACITY_BYTES, DURABLE).unwrap()
    }

    #[test]
    fn contents_survive_the_store() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = create(&directory);
        store.write(1000, b"kept").unwrap();
        store.flush().unwrap();
        drop(store);
        let mut store = FileStore::open(directory.path().join("disk"), CAPACITY_BYTES, Durability::default()).unwrap();
        let mut bytes = [0; 4];
        store.read(1000, &mut bytes).unwrap();
        assert_eq!(&bytes, b"kept");
    }

    #[test]
    fn the_wrong_size_a_second_user_and_an_existing_file_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let store = create(&directory);
        let error = FileStore::open(&path, CAPACITY_BYTES, Durability::default()).unwrap_err();
        assert!(matches!(error, StoreError::InUse { .. }), "{error}");
        drop(store);
        let error = FileStore::open(&path, CAPACITY_BYTES + 1, Durability::default()).unwrap_err();
        assert!(matches!(error, StoreError::WrongSize { actual_bytes: CAPACITY_BYTES, .. }), "{error}");
        assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
        assert!(error.to_string().contains("(--capacity 1MiB gives"), "{error}");
        let error = FileStore::create(&path, CAPACITY_BYTES, Durability::default()).unwrap_err();
        assert!(matches!(error, StoreError::Io { operation: FileOperation::Create, .. }), "{error}");
    }

    #[test]
    fn images_of_other_programs_are_named_unless_they_have_the_size_of_the_device() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        for (head, format, command) in [
            (&b"QFI\xfb\0\0\0\x03"[..], "qcow2", "qemu-img convert -f qcow2 -O raw"),
            (b"KDMV\x01\0\0\0", "vmdk", "qemu-img convert -f vmdk -O raw"),
            (b"vhdxfile", "vhdx", "qemu-img convert -f vhdx -O raw"),
            (b"\x1f\x8b\x08\0\0\0\0\0", "gzip", "gzip -dc"),
        ] {
            std::fs::write(&path, [head, &[0; 5_000][..]].concat()).unwrap();
            let error = FileStore::open(&path, CAPACITY_BYTES, Durability::default()).unwrap_err().to_string();
            assert!(error.contains(format) && error.contains(command), "{error}");
            // A guest may write such a signature to the first block of its device.
            std::fs::File::options().write(true).open(&path).unwrap().set_len(CAPACITY_BYTES).unwrap();
            FileStore::open(&path, CAPACITY_BYTES, Durability::default()).unwrap();
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused_by_its_kind() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for (path, kind) in [
            (fifo.as_path(), "a pipe; expected a regular file"),
            (directory.path(), "a directory; expected a regular file"),
            (Path::new("/dev/zero"), "a character device; expected a regular file"),
        ] {
            let error = FileStore::open(path, CAPACITY_BYTES, Durability::default()).unwrap_err();
            assert!(matches!(error, StoreError::NotRegular { .. }), "{error:?}");
            assert_eq!(error.to_string(), format!("{}: {kind}", path.display()));
        }
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
        for clearing in [Some(Allocation::Punch), None] {
            let path = directory.path().join(format!("{clearing:?}"));
            let mut store = FileStore::create(path, CAPACITY_BYTES, Durability::default()).unwrap();
            store.clearing = clearing;
            store.write(0, &[9; 300_000]).unwrap();
            store.discard(1, 200_000).unwrap();
            let mut bytes = vec![1; 300_000];
            store.read(0, &mut bytes).unwrap();
            assert_eq!((bytes[0], bytes[200_001]), (9, 9));
            assert!(bytes[1..200_001].iter().all(|&byte| byte == 0), "{clearing:?}");
        }
    }
}
