//! The host's files as used by stores: one small interface, so that a test can fail every call.
//!
//! [`RealHost`] is the operating system. Calls map to system calls without retries: the stores themselves complete
//! short transfers, equally for every host.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Names of files, and folders that hold them.
pub trait Host: Debug + Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// The host's error.
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Box<dyn HostFile>>;

    /// Whether a name exists, also as a dangling link.
    ///
    /// # Errors
    /// The host's error.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Renames a file, and replaces any file of the new name.
    ///
    /// # Errors
    /// The host's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// The host's error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes earlier creations, changes and removals of names in a folder survive a power cut.
    ///
    /// # Errors
    /// The host's error.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// Mode of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading.
    Read,
    /// For reading and writing.
    ReadWrite,
    /// A new file, for reading and writing; an error if it exists.
    CreateNew,
}

/// An open file.
pub trait HostFile: Debug + Send {
    /// Reads at most `bytes.len()` bytes from `offset_bytes` on; returns zero at the end of the file. With
    /// `cached_only`, reads from memory only: [`io::ErrorKind::WouldBlock`] if the data are not cached,
    /// [`io::ErrorKind::Unsupported`] if the host can't tell.
    ///
    /// # Errors
    /// The host's error.
    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64, cached_only: bool) -> io::Result<usize>;

    /// Writes at most `bytes.len()` bytes from `offset_bytes` on.
    ///
    /// # Errors
    /// The host's error.
    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<usize>;

    /// Makes earlier writes survive a power cut.
    ///
    /// # Errors
    /// The host's error.
    fn sync_data(&self) -> io::Result<()>;

    /// Size of the file.
    ///
    /// # Errors
    /// The host's error.
    fn size(&self) -> io::Result<FileSize>;

    /// Truncates the file, or extends it with a hole.
    ///
    /// # Errors
    /// The host's error.
    fn set_len(&self, len_bytes: u64) -> io::Result<()>;

    /// Changes the allocation of a range, which must end inside the file.
    ///
    /// # Errors
    /// The host's error; [`io::ErrorKind::Unsupported`] if its file system lacks the operation.
    fn allocate(&self, change: Allocation, offset_bytes: u64, len_bytes: u64) -> io::Result<()>;

    /// The first byte of data, or of a hole, from `offset_bytes` on; `None` without data.
    ///
    /// # Errors
    /// The host's error; [`io::ErrorKind::Unsupported`] or [`io::ErrorKind::InvalidInput`] if it can't tell.
    fn seek(&self, what: SeekTo, offset_bytes: u64) -> io::Result<Option<u64>>;

    /// Takes an exclusive or a shared lock on the file. Returns false if a conflicting lock exists.
    ///
    /// # Errors
    /// The host's error.
    fn lock(&self, exclusive: bool) -> io::Result<bool>;

    /// Releases the lock before the last descriptor is closed. A child process that is being started holds copies of
    /// all descriptors until it executes its program.
    fn unlock(&self) {}

    /// A number that identifies the file within its file system.
    ///
    /// # Errors
    /// The host's error.
    fn identity(&self) -> io::Result<u64>;

    /// Another descriptor of the same file.
    ///
    /// # Errors
    /// The host's error.
    fn duplicate(&self) -> io::Result<Box<dyn HostFile>>;
}

/// Sizes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSize {
    /// Offset of its end.
    pub len_bytes: u64,
    /// Space used on the host.
    pub allocated_bytes: u64,
}

/// Change of a range's allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Makes the range a hole.
    Punch,
    /// Makes the range read as zeros; it may take space.
    Zero,
    /// Allocates space, and keeps the contents.
    Reserve,
}

/// Target of [`HostFile::seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte that is in a hole; the end of the file is one.
    Hole,
}

/// The operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealHost;

impl Host for RealHost {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Box<dyn HostFile>> {
        if matches!(how, OpenMode::Read | OpenMode::ReadWrite)
            && let Some(kind) = std::fs::metadata(path).ok().and_then(|metadata| irregular(metadata.file_type()))
        {
            // Opening a pipe may block for ever, and a device has no file size.
            return Err(io::Error::other(NotRegular(kind)));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(how != OpenMode::Read);
        options.create_new(how == OpenMode::CreateNew);
        Ok(Box::new(options.open(path)?))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match std::fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match File::open(folder)?.sync_all() {
            // fsync(2): "EINVAL: fd is bound to a special file which does not support synchronization".
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }
}

/// A path leads to a file of this kind instead of a regular one.
#[derive(Debug)]
pub struct NotRegular(pub &'static str);

impl std::fmt::Display for NotRegular {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; expected a regular file", self.0)
    }
}

impl std::error::Error for NotRegular {}

/// The kind of a file that is not regular.
pub(crate) fn irregular(kind: std::fs::FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_block_device() => Some("a block device"),
        kind if kind.is_char_device() => Some("a character device"),
        kind if kind.is_fifo() => Some("a pipe"),
        _ => Some("a socket"),
    }
}

impl HostFile for File {
    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64, cached_only: bool) -> io::Result<usize> {
        if !cached_only {
            return FileExt::read_at(self, bytes, offset_bytes);
        }
        preadv2(self, &mut [IoSliceMut::new(bytes)], offset_bytes, ReadWriteFlags::NOWAIT).map_err(
            |errno| match errno {
                Errno::OPNOTSUPP | Errno::NOSYS => io::ErrorKind::Unsupported.into(),
                errno => errno.into(),
            },
        )
    }

    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn size(&self) -> io::Result<FileSize> {
        let metadata = self.metadata()?;
        // stat(2): st_blocks counts units of 512 bytes, for any block size of the file system.
        Ok(FileSize { len_bytes: metadata.len(), allocated_bytes: metadata.blocks() * 512 })
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        File::set_len(self, len_bytes)
    }

    fn allocate(&self, change: Allocation, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::KEEP_SIZE
            | match change {
                Allocation::Punch => FallocateFlags::PUNCH_HOLE,
                Allocation::Zero => FallocateFlags::ZERO_RANGE,
                Allocation::Reserve => FallocateFlags::empty(),
            };
        fallocate(self, flags, offset_bytes, len_bytes).map_err(|errno| match errno {
            Errno::OPNOTSUPP | Errno::NOSYS => io::ErrorKind::Unsupported.into(),
            errno => errno.into(),
        })
    }

    fn seek(&self, what: SeekTo, offset_bytes: u64) -> io::Result<Option<u64>> {
        let from = match what {
            SeekTo::Data => SeekFrom::Data(offset_bytes),
            SeekTo::Hole => SeekFrom::Hole(offset_bytes),
        };
        match seek(self, from) {
            Ok(found) => Ok(Some(found)),
            // `ENXIO`: no data from there to the end.
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::OPNOTSUPP) => Err(io::ErrorKind::Unsupported.into()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn lock(&self, exclusive: bool) -> io::Result<bool> {
        let how = match exclusive {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        match flock(self, how) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn unlock(&self) {
        // Without the unlock, closing the last descriptor releases the lock.
        let _ = flock(self, FlockOperation::Unlock);
    }

    fn identity(&self) -> io::Result<u64> {
        Ok(self.metadata()?.ino())
    }

    fn duplicate(&self) -> io::Result<Box<dyn HostFile>> {
        Ok(Box::new(self.try_clone()?))
    }
}
