//! A block device that the attacher keeps, of either kind.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::io::Errno;

use crate::error::{Doing, NativeError};

/// A block device. It is detached when this is dropped.
pub(crate) trait BlockDevice {
    /// Path of its node, such as `/dev/loop0`.
    fn path(&self) -> &Path;

    /// The open device; an error while it is left to others.
    fn file(&self) -> Result<&File, NativeError>;

    /// Closes it, so that only other users remain: when the last of them closes it, the kernel writes its page cache
    /// and empties it, as for any disk. It stays attached.
    fn leave(&mut self) -> Result<(), NativeError>;

    /// Opens it again.
    fn take(&mut self) -> Result<(), NativeError>;

    /// Its size according to the kernel.
    fn capacity_bytes(&self) -> Result<u64, NativeError> {
        let mut bytes = 0_u64;
        ioctl(self.file()?.as_fd(), BLKGETSIZE64, &raw mut bytes).doing("asking for the block device's size")?;
        Ok(bytes)
    }

    /// Writes its page cache, and empties it.
    fn flush_cache(&self) -> Result<(), NativeError> {
        let file = self.file()?;
        rustix::fs::fsync(file).doing("writing the device's page cache")?;
        ioctl(file.as_fd(), BLKFLSBUF, std::ptr::null_mut::<u8>()).doing("emptying the device's page cache")?;
        Ok(())
    }
}

// linux/fs.h
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// The error of a device that is left to others.
pub(crate) fn left() -> NativeError {
    NativeError::Attacher("the block device is left to others".to_owned())
}

/// Namespace of process numbers: its inode. Zero without `/proc`, where living processes can't be found.
pub(crate) fn own_namespace() -> u64 {
    rustix::fs::stat("/proc/self/ns/pid").map_or(0, |stat| stat.st_ino)
}

/// Whether a process of this namespace has ended.
pub(crate) fn has_ended(pid: u32) -> bool {
    !Path::new("/proc").join(pid.to_string()).exists()
}

/// Opens a device's node with these options.
pub(crate) fn opened(path: &Path, options: &mut OpenOptions) -> Result<File, NativeError> {
    options.custom_flags(libc::O_CLOEXEC).open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NativeError::HostLacks {
            what: format!("there is no {}", path.display()),
            help: "mount devtmpfs at /dev, or make the node with mknod; `chronodisk run` needs none".to_owned(),
        },
        _ => NativeError::unprivileged(format!("opening {}", path.display())),
    })
}

/// Result of an ioctl of a block device or of the loop driver, without an argument or with a pointer to a value of the
/// type that the kernel reads or fills.
pub(crate) fn ioctl<T>(fd: BorrowedFd<'_>, request: libc::c_ulong, argument: *mut T) -> Result<i32, Errno> {
    // SAFETY: each request is one of this module or of `loop_device`, with the argument that it requires.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument) };
    if result < 0 { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) } else { Ok(result) }
}
