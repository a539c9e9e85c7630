//! A store that keeps the metadata of file systems and generates the rest: a device of 100 TiB on a laptop.
//!
//! After "Emulating Goliath Storage Systems with David" (Agrawal et al., ACM TOS 2012): a classifier determines the
//! blocks of the file system itself. These are kept, compactly, in memory or in an image file. Contents of files are
//! dropped, and generated when they are read. Unclassified blocks wait in memory up to a limit, and are kept beyond it.
//! A wrong guess costs space, never metadata.
//!
//! Supported: ext2, ext3, ext4, XFS, btrfs and F2FS, on the whole device, in partitions, on mirrors of md and on linear
//! volumes of LVM. Anything else is kept. [`SquashMode::Exact`] keeps all blocks, compressed.
//!
//! [Rules by name](NameRule) keep files, or generate their contents in the form of their kind. Programs may mark pages
//! by a [`Notice`]. The stores of mirrors may share a [`JointMemory`].
#![forbid(unsafe_code)]

mod arena;
mod backing;
mod block;
mod blocks;
mod btrfs;
mod bytes;
mod checksum;
mod claims;
mod class;
mod classifier;
mod content;
mod crc32c;
mod device_blocks;
mod ext4;
mod f2fs;
mod file_content;
mod header;
mod image;
mod joint;
mod kinds;
mod location;
mod lvm;
mod map_log;
mod meter;
mod name_index;
mod names;
mod new_image;
mod notes;
mod part;
mod places;
mod runs;
mod sharing;
mod slot_file;
mod statistics;
mod store;
mod sums;
mod table;
mod units;
mod upkeep;
mod volume;
mod xfs;

pub use class::Class;
pub use content::ContentKind;
pub use file_content::FileKind;
pub use image::ImageInfo;
pub use joint::JointMemory;
pub use names::{Glob, GlobError, NameRule, Treatment};
pub use notes::{Mark, Notice};
pub use statistics::SquashStatistics;
pub use store::{SquashOptions, SquashStore};
pub use upkeep::{DeviceExamination, Examination, examine, repair, upgrade};

use std::path::Path;

use chronodisk_store::StoreError;

use block::slots_of;

/// Unit in which blocks are kept or dropped.
pub const UNIT_BYTES: u64 = 4096;
/// Unit in which places in memory and in image files are counted.
const SLOT_BYTES: u64 = 512;
const UNIT_SLOTS: u64 = UNIT_BYTES / SLOT_BYTES;

/// Treatment of written blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SquashMode {
    /// Keeps metadata, makes up the rest.
    #[default]
    Classified,
    /// Keeps everything, compressed (LZ4, 4 KiB at a time).
    Exact,
}

impl SquashMode {
    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SquashMode::Classified => "classified",
            SquashMode::Exact => "exact",
        }
    }

    fn code(self) -> u8 {
        match self {
            SquashMode::Classified => 0,
            SquashMode::Exact => 1,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [SquashMode::Classified, SquashMode::Exact].into_iter().find(|mode| mode.code() == code)
    }
}

fn image_error(path: &Path, reason: String) -> StoreError {
    StoreError::Image { path: path.to_owned(), reason }
}

/// Lengths of slices fit 64 bits on every platform that Rust supports.
fn len_of(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}
