//! A file of a store: completes partial transfers, names the place of a failure, and remembers a failed
//! synchronisation.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::host::{Allocation, FileSize, Host, HostFile, NotRegular, OpenMode, SeekTo};
use crate::{FileOperation, StoreError};

/// An open file of a [`Host`], with its name: for stores that keep their bytes in files.
#[derive(Debug)]
pub struct StoreFile {
    file: Box<dyn HostFile>,
    host: Arc<dyn Host>,
    path: PathBuf,
    /// After a failed `fdatasync` the kernel drops the unwritten pages, and the next one succeeds. So a failure
    /// persists until the file is reopened; descriptors of the same file share it.
    sync_failed: Arc<AtomicBool>,
}

impl StoreFile {
    /// Opens a file.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn open(host: &Arc<dyn Host>, path: &Path, how: OpenMode) -> Result<Self, StoreError> {
        let operation = match how {
            OpenMode::Read | OpenMode::ReadWrite => FileOperation::Open,
            OpenMode::CreateNew => FileOperation::Create,
        };
        let file = host.open(path, how).map_err(|source| io_error(path, operation, 0, 0, source))?;
        Ok(StoreFile {
            file,
            host: Arc::clone(host),
            path: path.to_owned(),
            sync_failed: Arc::new(AtomicBool::new(false)),
        })
    }

    /// Whether a name exists.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn exists(host: &Arc<dyn Host>, path: &Path) -> Result<bool, StoreError> {
        host.exists(path).map_err(|source| io_error(path, FileOperation::Stat, 0, 0, source))
    }

    /// Makes a new file in place of one that a killed process left under a name of its own use.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn create_again(host: &Arc<dyn Host>, path: &Path) -> Result<Self, StoreError> {
        if StoreFile::exists(host, path)? {
            host.remove(path).map_err(|source| io_error(path, FileOperation::Create, 0, 0, source))?;
        }
        StoreFile::open(host, path, OpenMode::CreateNew)
    }

    /// Whether its name is still this file's.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn has_its_name(&self) -> Result<bool, StoreError> {
        match StoreFile::open(&self.host, &self.path, OpenMode::Read) {
            Ok(named) => Ok(named.identity()? == self.identity()?),
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Host of the file.
    #[must_use]
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// Locks the file, against all others or against writers only.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::Io`].
    pub fn lock(&self, exclusive: bool) -> Result<(), StoreError> {
        match self.file.lock(exclusive) {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreError::InUse { path: self.path.clone() }),
            Err(source) => Err(self.failed(FileOperation::Lock, 0, 0)(source)),
        }
    }

    /// Fills `bytes` from `offset_bytes` on.
    ///
    /// # Errors
    /// [`StoreError::Io`], also at the end of the file.
    pub fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let len_bytes = bytes.len() as u64;
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset_bytes + done as u64, false) {
                Ok(0) => {
                    let source = io::ErrorKind::UnexpectedEof.into();
                    return Err(self.failed(FileOperation::Read, offset_bytes, len_bytes)(source));
                }
                Ok(len) => done += len,
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.failed(FileOperation::Read, offset_bytes, len_bytes)(source)),
            }
        }
        Ok(())
    }

    /// Fills `bytes` from memory; false if that would have to wait for a disk, or if the host does not know.
    pub(crate) fn read_cached(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<Cached, StoreError> {
        let len = bytes.len();
        match self.file.read_at(bytes, offset_bytes, true) {
            Ok(read) if read == len => Ok(Cached::Read),
            Ok(_) => Ok(Cached::WouldWait),
            Err(source) => match source.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(Cached::WouldWait),
                io::ErrorKind::Unsupported => Ok(Cached::Unknown),
                _ => Err(self.failed(FileOperation::Read, offset_bytes, len as u64)(source)),
            },
        }
    }

    /// Keeps `bytes` from `offset_bytes` on.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let failed = |source| self.failed(FileOperation::Write, offset_bytes, bytes.len() as u64)(source);
        let mut done = 0;
        while done < bytes.len() {
            match self.file.write_at(&bytes[done..], offset_bytes + done as u64) {
                Ok(0) => return Err(failed(io::ErrorKind::WriteZero.into())),
                Ok(len) => done += len,
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(failed(source)),
            }
        }
        Ok(())
    }

    /// Makes earlier writes survive a power cut.
    ///
    /// # Errors
    /// [`StoreError::Io`], at every call from the first failure on.
    pub fn sync(&self) -> Result<(), StoreError> {
        if self.sync_failed.load(Ordering::Relaxed) {
            let source = io::Error::other("an earlier synchronisation failed; open the device anew");
            return Err(self.failed(FileOperation::Sync, 0, 0)(source));
        }
        self.file.sync_data().map_err(|source| {
            self.sync_failed.store(true, Ordering::Relaxed);
            self.failed(FileOperation::Sync, 0, 0)(source)
        })
    }

    /// Names that changed in the file's folder survive a power cut.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn sync_folder(&self) -> Result<(), StoreError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        self.host.sync_folder(folder).map_err(self.failed(FileOperation::Sync, 0, 0))
    }

    /// Size of the file.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn size(&self) -> Result<FileSize, StoreError> {
        self.file.size().map_err(self.failed(FileOperation::Stat, 0, 0))
    }

    /// Cuts the file off, or extends it with a hole; an error names `operation`.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn set_len(&self, len_bytes: u64, operation: FileOperation) -> Result<(), StoreError> {
        self.file.set_len(len_bytes).map_err(self.failed(operation, 0, len_bytes))
    }

    /// Changes how a range is allocated; false if the host's file system can't.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn allocate(&self, change: Allocation, offset_bytes: u64, len_bytes: u64) -> Result<bool, StoreError> {
        let operation = if change == Allocation::Reserve { FileOperation::Write } else { FileOperation::Punch };
        loop {
            match self.file.allocate(change, offset_bytes, len_bytes) {
                Ok(()) => return Ok(true),
                Err(source) if source.kind() == io::ErrorKind::Unsupported => return Ok(false),
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.failed(operation, offset_bytes, len_bytes)(source)),
            }
        }
    }

    /// See [`HostFile::seek`].
    pub(crate) fn seek(&self, what: SeekTo, offset_bytes: u64) -> Result<Option<u64>, io::Error> {
        self.file.seek(what, offset_bytes)
    }

    /// A number that identifies this file within its file system.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn identity(&self) -> Result<u64, StoreError> {
        self.file.identity().map_err(self.failed(FileOperation::Stat, 0, 0))
    }

    /// Another descriptor of the same file.
    pub(crate) fn duplicate(&self) -> Result<Self, StoreError> {
        let file = self.file.duplicate().map_err(self.failed(FileOperation::Open, 0, 0))?;
        Ok(StoreFile {
            file,
            host: Arc::clone(&self.host),
            path: self.path.clone(),
            sync_failed: Arc::clone(&self.sync_failed),
        })
    }

    /// Renames the file, and replaces any file of the new name.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn rename(&mut self, to: &Path) -> Result<(), StoreError> {
        self.host.rename(&self.path, to).map_err(self.failed(FileOperation::Create, 0, 0))?;
        self.path = to.to_owned();
        Ok(())
    }

    pub(crate) fn failed(
        &self,
        operation: FileOperation,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> impl Fn(io::Error) -> StoreError {
        move |source| io_error(&self.path, operation, offset_bytes, len_bytes, source)
    }
}

impl Drop for StoreFile {
    fn drop(&mut self) {
        // Duplicates share the lock.
        if Arc::strong_count(&self.sync_failed) == 1 {
            self.file.unlock();
        }
    }
}

/// Result of a read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cached {
    Read,
    WouldWait,
    /// The host's file system can't tell.
    Unknown,
}

pub(crate) fn io_error(
    path: &Path,
    operation: FileOperation,
    offset_bytes: u64,
    len_bytes: u64,
    source: io::Error,
) -> StoreError {
    if let Some(NotRegular(kind)) = source.get_ref().and_then(|inner| inner.downcast_ref()) {
        return StoreError::NotRegular { path: path.to_owned(), kind };
    }
    StoreError::Io { path: path.to_owned(), operation, offset_bytes, len_bytes, source }
}
