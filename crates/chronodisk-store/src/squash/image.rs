//! What an image holds, for people.

use std::path::Path;

use super::backing::ImageFile;
use super::blocks::Block;
use super::runs::RunMap;
use super::{Class, ContentKind, SLOT_BYTES, SquashMode, UNIT_BYTES, slots_of};
use crate::{FileOperation, StoreError};

/// Sizes of a squashed image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ImageInfo {
    /// Size of the device.
    pub capacity_bytes: u64,
    /// What is kept.
    pub mode: SquashMode,
    /// What dropped blocks read as.
    pub content: ContentKind,
    /// Seed of that.
    pub seed: u64,
    /// Generation of the map's log.
    pub generation: u64,
    /// Bytes of the device that are kept, by class, without classes of which there are none.
    pub kept_bytes: Vec<(Class, u64)>,
    /// Bytes of the device that are made up when they are read.
    pub generated_bytes: u64,
    /// Bytes of the device that were written and are zeros.
    pub zeroed_bytes: u64,
    /// What the image takes on the host: kept blocks, compressed or not, and the map.
    pub stored_bytes: u64,
}

impl ImageInfo {
    /// Reads the map of an image that nobody has open for writing.
    ///
    /// # Errors
    /// [`StoreError::Image`] says what is wrong with the image; [`StoreError::InUse`], [`StoreError::Io`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let (image, header, map) = ImageFile::open(path, false, false)?;
        let log_path = super::map_log::append_name(path, ".map");
        let log_bytes = std::fs::metadata(&log_path)
            .map_err(|source| crate::file::io_error(&log_path, FileOperation::Stat, 0, 0, source))?
            .len();
        let sizes = Sizes::of(&map);
        Ok(ImageInfo {
            capacity_bytes: header.capacity_bytes,
            mode: header.mode,
            content: header.content.kind,
            seed: header.content.seed,
            generation: image.generation(),
            kept_bytes: sizes.kept_bytes,
            generated_bytes: sizes.generated_bytes,
            zeroed_bytes: sizes.zeroed_bytes,
            stored_bytes: sizes.stored_bytes + log_bytes,
        })
    }

    /// The share of what a full store would take that this one does not; `None` if that were nothing.
    #[must_use]
    pub fn savings(&self) -> Option<f64> {
        let kept: u64 = self.kept_bytes.iter().map(|(_, bytes)| bytes).sum();
        savings(self.stored_bytes, kept + self.generated_bytes)
    }
}

/// One minus the share of `full_bytes` that `stored_bytes` are.
pub(crate) fn savings(stored_bytes: u64, full_bytes: u64) -> Option<f64> {
    (full_bytes > 0).then(|| 1.0 - stored_bytes as f64 / full_bytes as f64)
}

/// Sums over a map.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) kept_bytes: Vec<(Class, u64)>,
    pub(crate) generated_bytes: u64,
    pub(crate) zeroed_bytes: u64,
    pub(crate) stored_bytes: u64,
}

impl Sizes {
    pub(crate) fn of(map: &RunMap<Block>) -> Self {
        let mut sizes = Sizes::default();
        let mut by_class = [0; Class::ALL.len()];
        for (start, end, block) in map.all() {
            let bytes = (end - start) * UNIT_BYTES;
            match block {
                Block::Zeroed => sizes.zeroed_bytes += bytes,
                Block::Generated => sizes.generated_bytes += bytes,
                Block::Kept { class, .. } | Block::Packed { class, .. } => by_class[class as usize] += bytes,
            }
            sizes.stored_bytes += slots_of(block, end - start).map_or(0, |(_, slots)| slots * SLOT_BYTES);
        }
        let named = Class::ALL.into_iter().zip(by_class);
        sizes.kept_bytes = named.filter(|&(_, bytes)| bytes > 0).collect();
        sizes
    }
}
