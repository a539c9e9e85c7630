//! Error numbers by which the kernel learns of a failed request, for FUSE and ublk.

use std::io;

use chronodisk_sim::Status;
use chronodisk_store::StoreError;

/// Error numbers of Linux (`asm-generic/errno-base.h`, `asm-generic/errno.h`), sent as negative numbers. A program sees
/// `EIO` for several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Errno {
    /// `ENOENT`: no such node.
    NoEntry = 2,
    /// `EIO`: the device or the store failed.
    Io = 5,
    /// `ENOTDIR`: the root is no folder.
    NotDirectory = 20,
    /// `EINVAL`: a range that is not a whole number of blocks, or a message that is too short.
    Invalid = 22,
    /// `EFBIG`: longer than one request can be.
    TooBig = 27,
    /// `ENOSPC`: beyond the end, or the store is full.
    NoSpace = 28,
    /// `EROFS`: the file is read-only.
    ReadOnly = 30,
    /// `ENOSYS`: not supported; the kernel does not send the operation again.
    NotServed = 38,
    /// `EPROTO`: a version that is not served, or a message before the first.
    Protocol = 71,
    /// `EOPNOTSUPP`: a mode that is not served.
    NotSupported = 95,
}

impl Errno {
    /// The error of a completed request, if it failed.
    pub(crate) fn of_status(status: Status) -> Option<Errno> {
        match status {
            Status::Ok => None,
            Status::MediaError | Status::Aborted => Some(Errno::Io),
            Status::Unsupported => Some(Errno::NotSupported),
            // A zone does not accept this write.
            _ => Some(Errno::Invalid),
        }
    }

    /// The error of a request whose bytes could not be moved.
    pub(crate) fn of_store(error: &StoreError) -> Errno {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match error {
            StoreError::BudgetExceeded { .. } => Errno::NoSpace,
            StoreError::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge) => {
                Errno::NoSpace
            }
            _ => Errno::Io,
        }
    }
}
