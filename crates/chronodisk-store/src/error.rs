//! Errors of stores.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::image_files::sums_path;

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
    #[error(
        "{}: the file has {actual_bytes} bytes; expected {expected_bytes}, the capacity of the device \
         (--capacity {} gives the device the size of the file)",
        path.display(),
        size_option(*actual_bytes)
    )]
    WrongSize {
        /// The file.
        path: PathBuf,
        /// Size of the file, in bytes.
        actual_bytes: u64,
        /// Size of the device, in bytes.
        expected_bytes: u64,
    },
    /// An image in the format of another program, of another size than the device.
    #[error("{}: an image in {format} format; expected a raw image ({advice})", path.display())]
    ForeignFormat {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// The command to type.
        advice: String,
    },
    /// No regular file.
    #[error("{}: {kind}; expected a regular file", path.display())]
    NotRegular {
        /// Path that is not a regular file.
        path: PathBuf,
        /// Kind of the object.
        kind: &'static str,
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
    /// A squashed image, or a file of write pointers, is unusable.
    #[error("{}: {reason}", path.display())]
    Image {
        /// The image, its map, or the file of write pointers.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// Only some files of an image exist, so nothing is opened or created.
    #[error("{}", incomplete(image, missing, there))]
    Incomplete {
        /// The image.
        image: PathBuf,
        /// Missing files of the image.
        missing: Vec<PathBuf>,
        /// Existing files of the image.
        there: Vec<PathBuf>,
    },
    /// A part of an open image does not match its checksum or format.
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

fn incomplete(image: &Path, missing: &[PathBuf], there: &[PathBuf]) -> String {
    let image = image.display();
    let list = |paths: &[PathBuf]| {
        let names = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        format!("{names} {}", if paths.len() == 1 { "is" } else { "are" })
    };
    let mut text = format!(
        "{image}: the image is incomplete: {} missing, but {} there; put the missing files back (is their disk \
         mounted?), or move the others away to begin anew",
        list(missing),
        list(there)
    );
    if let [only] = missing
        && *only == sums_path(Path::new(&image.to_string()))
    {
        text.push_str(&format!("; if the checksums are lost, `chronodisk image repair {image}` makes new ones"));
    }
    text
}

/// A size as `--capacity` takes it.
fn size_option(bytes: u64) -> String {
    match bytes {
        bytes if bytes > 0 && bytes.is_multiple_of(1 << 30) => format!("{}GiB", bytes >> 30),
        bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        bytes => format!("{bytes}B"),
    }
}

/// Operation on a file during which the host failed.
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
