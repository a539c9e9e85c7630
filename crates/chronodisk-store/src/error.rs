//! Errors of stores.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Failure of a store's operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The range does not lie inside the device.
    #[error("{len_bytes} bytes at offset {offset_bytes} reach beyond the capacity of {capacity_bytes} bytes")]
    OutOfRange {
        /// First byte asked for.
        offset_bytes: u64,
        /// Length asked for, in bytes.
        len_bytes: u64,
        /// Size of the device, in bytes.
        capacity_bytes: u64,
    },
    /// The contents would take more memory than they may; they are as they were.
    #[error(
        "{needed_bytes} more bytes for a write at offset {offset_bytes} exceed the budget of {budget_bytes} bytes, of which {allocated_bytes} are in use"
    )]
    BudgetExceeded {
        /// First byte of the write.
        offset_bytes: u64,
        /// Memory that the write would have added, in bytes.
        needed_bytes: u64,
        /// Memory in use, in bytes.
        allocated_bytes: u64,
        /// Memory that may be used, in bytes.
        budget_bytes: u64,
    },
    /// A file was opened that does not have the size of the device.
    #[error("{}: the file has {actual_bytes} bytes, expected {expected_bytes}", path.display())]
    WrongSize {
        /// The file.
        path: PathBuf,
        /// Size of the file, in bytes.
        actual_bytes: u64,
        /// Size of the device, in bytes.
        expected_bytes: u64,
    },
    /// Another process holds the file.
    #[error("{}: the file is in use by another device", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The operation would have waited for a disk, which the caller excluded. It had no effect.
    #[error("the bytes are not in memory")]
    WouldWait,
    /// A squashed image can't be used.
    #[error("{}: {reason}", path.display())]
    Image {
        /// The image, or its map.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A part of an open image is not as written.
    #[error("{what} is damaged")]
    Damaged {
        /// The unreadable part.
        what: String,
    },
    /// The host failed.
    #[error("{}: {operation} of {len_bytes} bytes at offset {offset_bytes}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted operation.
        operation: FileOperation,
        /// First byte, 0 where the operation has no range.
        offset_bytes: u64,
        /// Length in bytes, 0 where the operation has no range.
        len_bytes: u64,
        /// The host's error.
        source: io::Error,
    },
}

/// The operation on a file at which the host failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileOperation {
    /// Creating the file or making it as large as the device.
    Create,
    /// Opening the file.
    Open,
    /// Keeping other processes out.
    Lock,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Giving space back.
    Punch,
    /// Asking which parts take space.
    Seek,
    /// Making writes durable.
    Sync,
    /// Asking for the size.
    Stat,
}

impl fmt::Display for FileOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileOperation::Create => "creation",
            FileOperation::Open => "opening",
            FileOperation::Lock => "locking",
            FileOperation::Read => "read",
            FileOperation::Write => "write",
            FileOperation::Punch => "hole punching",
            FileOperation::Seek => "allocation query",
            FileOperation::Sync => "synchronisation",
            FileOperation::Stat => "size query",
        })
    }
}
