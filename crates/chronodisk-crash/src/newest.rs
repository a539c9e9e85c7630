//! The content of each block, with or without lost changes.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Content, Effect, History, Version};
use crate::states::Lost;

impl History {
    /// The bytes of a content; `None` for zeros.
    #[must_use]
    pub fn bytes(&self, content: Content) -> Option<&[u8]> {
        let (request, offset) = self.contents[content.index()?];
        let Effect::Bytes(bytes) = &self.requests[request].effect else { return None };
        Some(&bytes[offset..offset + self.block_bytes() as usize])
    }

    /// The newest content of each block at a position, without blocks of zeros.
    #[must_use]
    pub fn newest(&self, position: usize) -> BTreeMap<u64, Content> {
        let newest = self.versions.keys().map(|block| (*block, self.content(*block, position, &Lost::default())));
        newest.filter(|(_, content)| *content != Content::ZEROS).collect()
    }

    /// The blocks that differ between the newest contents at `base`, and the contents at `position` without the lost
    /// changes.
    #[must_use]
    pub fn difference(&self, base: usize, position: usize, lost: &Lost) -> BTreeMap<u64, Content> {
        let nothing = Lost::default();
        let differs = |block: u64| {
            let content = self.content(block, position, lost);
            (content != self.content(block, base, &nothing)).then_some((block, content))
        };
        self.changed(base, position)
            .chain(lost.blocks())
            .collect::<BTreeSet<u64>>()
            .into_iter()
            .filter_map(differs)
            .collect()
    }

    /// The blocks of changes that arrived between two positions.
    fn changed(&self, base: usize, position: usize) -> impl Iterator<Item = u64> {
        let first = self.arrived.partition_point(|event| *event < base);
        let end = self.arrived.partition_point(|event| *event < position);
        let changes = (first..end.max(first)).filter(|index| self.requests[*index].effect != Effect::Nothing);
        changes.flat_map(|index| self.blocks(index))
    }

    fn content(&self, block: u64, position: usize, lost: &Lost) -> Content {
        let versions = self.arrived_versions(block, position);
        let kept = versions.iter().rev().find(|version| !lost.contains(version.request, block));
        kept.map_or(Content::ZEROS, |version| version.content)
    }

    /// The changes of a block that have arrived at a position.
    pub(crate) fn arrived_versions(&self, block: u64, position: usize) -> &[Version] {
        let Some(versions) = self.versions.get(&block) else { return &[] };
        let end = versions.partition_point(|version| self.arrived[version.request] < position);
        &versions[..end]
    }
}
