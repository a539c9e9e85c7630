//! Content of an image, for people.

use std::path::Path;
use std::sync::Arc;

use chronodisk_store::StoreError;
use chronodisk_store::host::{Host, RealHost};

use super::backing::{self, Backing};
use super::block::Block;
use super::header::Header;
use super::runs::RunMap;
use super::slot_file::SlotFile;
use super::{Class, ContentKind, SLOT_BYTES, SquashMode, UNIT_BYTES, slots_of};

/// Sizes of a squashed image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ImageInfo {
    /// Version of the image's format.
    pub version: u32,
    /// Size of the device.
    pub capacity_bytes: u64,
    /// The mode.
    pub mode: SquashMode,
    /// Generated contents of dropped blocks.
    pub content: ContentKind,
    /// Seed of generated contents.
    pub seed: u64,
    /// Generation of the map's log.
    pub generation: u64,
    /// Kept bytes of the device, by class, without empty classes.
    pub kept_bytes: Vec<(Class, u64)>,
    /// Bytes of the device that are generated when read.
    pub generated_bytes: u64,
    /// Bytes of the device that were written and are zeros.
    pub zeroed_bytes: u64,
    /// Bytes of the device that a repair found lost: reads of them fail until they are overwritten.
    pub damaged_bytes: u64,
    /// Space of kept blocks, compressed or not, and of the map; an equal share of blocks shared with other devices of
    /// the image.
    pub stored_bytes: u64,
    /// Space of the image's files on the host, including checksums and unused space; files common to several devices
    /// count for each.
    pub host_bytes: u64,
    /// Bytes of kept blocks that are shared with other devices of the image and stored once.
    pub shared_bytes: u64,
}

impl ImageInfo {
    /// Reads the maps of an image that is not open for writing, with the content of each of its devices.
    ///
    /// # Errors
    /// [`StoreError::Image`] names the image's problem; [`StoreError::InUse`], [`StoreError::Io`].
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Self>, StoreError> {
        let path = path.as_ref();
        let host: Arc<dyn Host> = Arc::new(RealHost);
        let (file, header) = SlotFile::open(&host, path, false, false)?;
        let devices = backing::open(path, file, &header, false)?;
        let info = |(capacity_bytes, (backing, map)): (&u64, &(Backing, RunMap<Block>))| {
            let info = ImageInfo::of(&header, *capacity_bytes, map, backing.generation());
            let (blocks_bytes, map_bytes) = backing.host_bytes()?;
            let host_bytes = blocks_bytes + map_bytes;
            Ok(ImageInfo { host_bytes, ..info.with(backing.log_bytes(), backing.shared_bytes(map)) })
        };
        header.capacities_bytes.iter().zip(&devices).map(info).collect()
    }

    fn of(header: &Header, capacity_bytes: u64, map: &RunMap<Block>, generation: u64) -> Self {
        let sizes = Sizes::of(map);
        ImageInfo {
            version: header.version,
            capacity_bytes,
            mode: header.mode,
            content: header.content.kind,
            seed: header.content.seed,
            generation,
            kept_bytes: sizes.kept_bytes,
            generated_bytes: sizes.generated_bytes,
            zeroed_bytes: sizes.zeroed_bytes,
            damaged_bytes: sizes.damaged_bytes,
            stored_bytes: sizes.stored_bytes,
            host_bytes: 0,
            shared_bytes: 0,
        }
    }

    /// Adds a map's size and the shared blocks: their bytes, and the bytes that count for other devices.
    fn with(self, map_bytes: u64, (shared_bytes, of_others_bytes): (u64, u64)) -> Self {
        ImageInfo { stored_bytes: self.stored_bytes + map_bytes - of_others_bytes, shared_bytes, ..self }
    }

    /// Share of a full store's space that this one saves; `None` if a full store would be empty.
    #[must_use]
    pub fn savings(&self) -> Option<f64> {
        let kept: u64 = self.kept_bytes.iter().map(|(_, bytes)| bytes).sum();
        savings(self.stored_bytes, kept + self.generated_bytes)
    }
}

/// One minus the ratio of `stored_bytes` to `full_bytes`.
pub(crate) fn savings(stored_bytes: u64, full_bytes: u64) -> Option<f64> {
    (full_bytes > 0).then(|| 1.0 - stored_bytes as f64 / full_bytes as f64)
}

/// Sums over a map.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) kept_bytes: Vec<(Class, u64)>,
    pub(crate) generated_bytes: u64,
    pub(crate) zeroed_bytes: u64,
    pub(crate) damaged_bytes: u64,
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
                Block::Damaged => sizes.damaged_bytes += bytes,
                Block::Kept { class, .. } | Block::Packed { class, .. } => by_class[class as usize] += bytes,
            }
            sizes.stored_bytes += slots_of(block, end - start).map_or(0, |(_, slots)| slots * SLOT_BYTES);
        }
        let named = Class::ALL.into_iter().zip(by_class);
        sizes.kept_bytes = named.filter(|&(_, bytes)| bytes > 0).collect();
        sizes
    }
}
