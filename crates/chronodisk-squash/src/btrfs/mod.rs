//! btrfs as it looks from below.
//!
//! The chunk tree says which parts of the device hold nodes of trees, and which the contents of files; it is read
//! whenever a superblock with another one is written. Where nodes are everything is kept, where contents are
//! everything is dropped that does not begin like a node of this file system. In what belongs to no chunk yet, a
//! range that would be a node is kept or dropped as soon as one write has all of it; pieces of it wait for the
//! superblock that says what they are. A node that is free again is found in the tree of free space.
//!
//! The bytes that are made up for a sector pass its checksum: the last four are chosen so, or what the kind of the
//! file leaves free if that is known by [names]. The checksum is remembered when a sector is dropped until a committed
//! checksum tree has it, and read there from then on.
//!
//! What a running kernel writes while a commit's superblock is on its way belongs to the next commit. So what waits
//! is dropped only at the second superblock after it was written. What was synchronised since the last commit is in a
//! [log]. The [rest] is decided when the store is closed, as far as that is known.
//!
//! Not understood, and so kept whole: other checksums than CRC-32C, sectors of other sizes than 4 KiB, striped
//! chunks, several devices that don't each have all nodes, zones, verity, and features that are not known here.
//! When there are compressed files, contents are kept. When something is kept by [names], all contents wait
//! for the second commit, as they do with the space cache of version 1.

mod chunks;
mod classify;
mod log;
mod names;
mod rest;
mod sums;
mod superblock;
mod tree;

use std::sync::Arc;

use chronodisk_store::StoreError;

use self::chunks::{ChunkBlock, Chunks, Kind};
pub(crate) use self::classify::KIND;
use self::names::Names;
use self::sums::Sums;
use self::superblock::{LEN_BYTES, PLACES_BYTES, Root, Superblock};
use self::tree::{NodeCache, Trees, class_of, has_encoded_extent, is_node, logical_of};
use super::UNIT_BYTES;
use super::blocks::Blocks;
use super::checksum::forge;
use super::class::Class;
use super::classifier::{Judged, Refusal, Verdict};
use super::file_content::MadeUpFile;
use super::map_log::u32_at;
use super::name_index::Rules;
use super::names::NameRule;
use super::runs::RunMap;
use super::units::{VolumeBytes, VolumeUnit};
use crate::crc32c;
use crate::len_of;

/// What lies in front of the first chunk belongs to nobody, but for the superblock.
const RESERVED_BYTES: u64 = 1 << 20;
/// The most that one compressed extent takes.
const COMPRESSED_UNITS: usize = 32;
/// Free nodes are dropped whenever 16 MiB of nodes were written.
const SWEEP_UNITS: u64 = 4096;

/// The classifier of one file system.
#[derive(Debug)]
pub(crate) struct Btrfs {
    start_bytes: u64,
    end_bytes: u64,
    /// Its first block in the volume; others are counted from it.
    start: VolumeUnit,
    superblock: Superblock,
    /// Not there until the whole chunk tree is.
    chunks: Option<Arc<Chunks>>,
    cache: NodeCache,
    /// The checksum tree, once it was looked for.
    checksum_root: Option<Option<Root>>,
    sums: Sums,
    /// Blocks that wait, or were kept unclassified: since the last commit, and from before it.
    fresh: RunMap<()>,
    older: RunMap<()>,
    /// Blocks of the space cache of version 1.
    space_cache: RunMap<()>,
    compressed: bool,
    /// If something goes by names.
    names: Option<Box<Names>>,
    /// Not all could be read that says where things are, so nothing stored is settled.
    unsettled: bool,
    /// Blocks of nodes written since the free ones were dropped.
    nodes_since_sweep: u64,
    /// Another program writes where btrfs never does, so nothing is believed until the next commit.
    doubted: bool,
    /// A kernel may have the file system mounted: it made a commit, or the image was opened.
    watched: bool,
    /// Something may have been written for the next commit, so the last one was not that of an unmount.
    in_use: bool,
    pub(crate) commits: u64,
}

impl Btrfs {
    /// The file system that begins at `start_bytes`, a multiple of a block, if there is one that is understood.
    pub(crate) fn find(
        blocks: &mut Blocks,
        start_bytes: u64,
        end_bytes: u64,
    ) -> Result<Result<Self, Refusal>, StoreError> {
        let mut bytes = [0; LEN_BYTES];
        let (available_bytes, at_bytes) = (end_bytes - start_bytes, PLACES_BYTES[0]);
        if available_bytes < at_bytes + LEN_BYTES as u64 || !blocks.read(start_bytes + at_bytes, &mut bytes)? {
            return Ok(Err(Refusal::Absent));
        }
        Ok(Superblock::parse(&bytes, available_bytes).map(|superblock| Btrfs {
            start_bytes,
            end_bytes,
            start: VolumeUnit::of_byte(start_bytes),
            compressed: superblock.compressed,
            superblock,
            chunks: None,
            cache: NodeCache::default(),
            checksum_root: None,
            sums: Sums::default(),
            fresh: RunMap::default(),
            older: RunMap::default(),
            space_cache: RunMap::default(),
            names: None,
            unsettled: true,
            nodes_since_sweep: 0,
            doubted: false,
            watched: false,
            in_use: false,
            commits: 0,
        }))
    }

    /// The same, where files are treated by their names; what is made up for them follows from a seed.
    pub(crate) fn with_names(self, rules: &Arc<[NameRule]>, seed: u64) -> Self {
        let names = Rules::new(rules).map(|rules| Box::new(Names::new(rules, seed)));
        Btrfs { names, ..self }
    }

    /// Some files are kept by their names.
    fn keeps_by_names(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.keeps_some())
    }

    /// Blocks of files to be kept that were squashed before their names were known.
    pub(crate) fn late_units(&self) -> u64 {
        self.names.as_ref().map_or(0, |names| names.late_units)
    }

    /// Whether another one is the same file system, perhaps at a later time.
    fn is_same(&self, other: &Btrfs) -> bool {
        self.superblock.is_same(&other.superblock)
    }

    /// What becomes of the block `unit`, with which the `bytes` of one write begin or go on, and of those behind it
    /// up to which one.
    fn verdict(&self, unit: VolumeUnit, bytes: &[u8]) -> (Verdict, VolumeUnit) {
        let (verdict, len) = self.verdict_on(unit - self.start, bytes);
        (verdict, unit + len.min(len_of(bytes) / UNIT_BYTES))
    }

    /// The same, counted from the file system's beginning; of how many blocks it is so, perhaps more than there are.
    fn verdict_on(&self, inside: u64, bytes: &[u8]) -> (Verdict, u64) {
        if self.is_fixed(inside) {
            return (Verdict::Keep(Class::Superblock), 1);
        }
        let Some(chunks) = self.chunks.as_ref().filter(|_| !self.doubted) else { return (Verdict::Wait, 1) };
        if is_node(bytes, &self.superblock) {
            return (Verdict::Keep(class_of(bytes)), self.node_units());
        }
        let place = chunks.at(inside, inside + 1).0;
        let kept = match place {
            Some(ChunkBlock { kind, .. }) if self.is_of_nodes(kind) => Some(Class::Tree),
            Some(ChunkBlock { logical, .. }) => self.kept_content(inside, logical),
            None => None,
        };
        if let Some(class) = kept {
            return (Verdict::Keep(class), 1);
        }
        if may_be_compressed(bytes) {
            return (Verdict::Wait, COMPRESSED_UNITS as u64);
        }
        if !self.superblock.free_space_tree || self.compressed || self.keeps_by_names() || self.sums.is_full() {
            return (Verdict::Wait, 1);
        }
        match place {
            Some(_) => (Verdict::Drop, 1),
            None if self.is_whole_and_no_node(inside, bytes) => (Verdict::Drop, self.node_units()),
            None => (Verdict::Wait, 1),
        }
    }

    /// Whether everything in a chunk is kept. In a mixed one, nodes have one block, and each says what it is.
    fn is_of_nodes(&self, kind: Kind) -> bool {
        kind == Kind::Nodes || kind == Kind::Mixed && self.node_units() > 1
    }

    /// Why a block in a chunk of data is kept, if it is.
    fn kept_content(&self, inside: u64, logical: u64) -> Option<Class> {
        if self.names.as_ref().is_some_and(|names| names.keeps(logical)) {
            return Some(Class::Raw);
        }
        if self.space_cache.at(inside, inside + 1).0.is_some() {
            return Some(Class::Bitmap);
        }
        self.compressed.then_some(Class::Everything)
    }

    /// Kept because of its place: superblocks, what is reserved, and what lies outside of the file system.
    fn is_fixed(&self, inside: u64) -> bool {
        let at_bytes = inside * UNIT_BYTES;
        at_bytes < RESERVED_BYTES
            || PLACES_BYTES.contains(&at_bytes)
            || at_bytes + UNIT_BYTES > self.superblock.total_bytes
    }

    /// Whether blocks begin with all of a range that would be a node, and none of them begins like one, or like
    /// compressed contents.
    fn is_whole_and_no_node(&self, inside: u64, bytes: &[u8]) -> bool {
        let len_bytes = self.superblock.node_bytes as usize;
        inside.is_multiple_of(self.node_units())
            && bytes.len() >= len_bytes
            && !(inside..inside + self.node_units()).any(|block| self.is_fixed(block))
            && bytes[..len_bytes]
                .chunks_exact(UNIT_BYTES as usize)
                .all(|unit| !is_node(unit, &self.superblock) && !may_be_compressed(unit))
    }

    fn node_units(&self) -> u64 {
        self.superblock.node_bytes / UNIT_BYTES
    }

    /// Blocks were written, and this is what became of them.
    fn note_judged(&mut self, unit: VolumeUnit, bytes: &[u8], judged: &[Judged]) {
        for &(from, to, verdict) in judged {
            let (first, last) = (from - self.start, to - self.start);
            self.in_use |= self.watched && (first..last).any(|block| !self.is_fixed(block));
            match verdict {
                Verdict::Drop => {
                    self.no_longer_waits(first, last);
                    let part = &bytes[((from - unit) * UNIT_BYTES) as usize..((to - unit) * UNIT_BYTES) as usize];
                    for (sector, block) in part.chunks_exact(UNIT_BYTES as usize).zip(first..) {
                        self.sums.set(block, crc32c::crc32c(sector));
                    }
                }
                Verdict::Wait => {
                    self.sums.remove(first, last);
                    self.older.remove(first, last);
                    self.fresh.set(first, last, ());
                }
                Verdict::Keep(_) => {
                    self.sums.remove(first, last);
                    self.no_longer_waits(first, last);
                    self.nodes_since_sweep += last - first;
                }
            }
        }
    }

    fn no_longer_waits(&mut self, first: u64, last: u64) {
        self.fresh.remove(first, last);
        self.older.remove(first, last);
    }

    /// Looks at what was written, which is in `blocks` now, for what it says of others.
    fn look_at(&mut self, unit: VolumeUnit, bytes: &[u8], blocks: &mut Blocks) -> Result<(), StoreError> {
        let (first, last) = (unit - self.start, unit - self.start + len_of(bytes) / UNIT_BYTES);
        let superblock = PLACES_BYTES[0] / UNIT_BYTES;
        if (first..last.min(RESERVED_BYTES / UNIT_BYTES)).any(|block| block != superblock) {
            self.doubted = true;
        }
        let node_units = self.node_units();
        let mut window = first / node_units * node_units;
        while window < last {
            let window_end = window + node_units;
            if window >= first && window_end <= last {
                let from = ((window - first) * UNIT_BYTES) as usize;
                self.look_at_node(&bytes[from..from + self.superblock.node_bytes as usize]);
            } else if self.may_hold_node(window) {
                let mut node = vec![0; self.superblock.node_bytes as usize];
                let at_bytes = self.start_bytes + window * UNIT_BYTES;
                if window_end * UNIT_BYTES <= self.superblock.total_bytes && blocks.read(at_bytes, &mut node)? {
                    self.look_at_node(&node);
                }
            }
            window = window_end;
        }
        Ok(())
    }

    fn may_hold_node(&self, block: u64) -> bool {
        let place = self.chunks.as_ref().and_then(|chunks| chunks.at(block, block + 1).0);
        place.is_none_or(|place| place.kind != Kind::Data)
    }

    fn look_at_node(&mut self, node: &[u8]) {
        if is_node(node, &self.superblock) {
            self.cache.forget(logical_of(node));
            self.compressed |= has_encoded_extent(node);
        }
    }

    /// A range was given back, or zeroed.
    fn forget(&mut self, range: VolumeBytes) {
        let inside = range.offset_bytes.saturating_sub(self.start_bytes);
        let (first, last) = (inside.div_ceil(UNIT_BYTES), (inside + range.len_bytes) / UNIT_BYTES);
        if first < last {
            self.sums.remove(first, last);
            self.no_longer_waits(first, last);
            if let (Some(names), Some(chunks)) = (&mut self.names, &self.chunks) {
                for (from, to, place) in chunks.pieces(first, last) {
                    names.forget(place.logical, place.logical + (to - from));
                }
            }
        }
        self.cache.clear();
    }

    /// The superblock was written, and is of the same file system still.
    fn superblock_written(&mut self, found: Btrfs, blocks: &mut Blocks) -> Result<Result<(), Refusal>, StoreError> {
        let old = std::mem::replace(&mut self.superblock, found.superblock);
        self.compressed |= self.superblock.compressed;
        if old.chunk_root != self.superblock.chunk_root || old.total_bytes != self.superblock.total_bytes {
            self.chunks = None;
        } else if (old.generation, old.tree_root) == (self.superblock.generation, self.superblock.tree_root) {
            // A log was synchronised; no transaction ended.
            return Ok(Ok(()));
        }
        self.commits += 1;
        (self.doubted, self.watched, self.in_use) = (false, true, false);
        self.cache.clear();
        self.checksum_root = None;
        self.settle(blocks)
    }

    /// Settles what waits as far as the last commit says what it is.
    fn settle(&mut self, blocks: &mut Blocks) -> Result<Result<(), Refusal>, StoreError> {
        if let Err(refusal) = self.read_layout(blocks)? {
            return Ok(Err(refusal));
        }
        if self.unsettled {
            return Ok(Ok(()));
        }
        let older = std::mem::take(&mut self.older);
        self.older = self.settle_blocks(&older, None, blocks)?;
        for (first, last, ()) in std::mem::take(&mut self.fresh).all() {
            self.older.set(first, last, ());
        }
        self.confirm_sums(blocks)?;
        if self.nodes_since_sweep >= SWEEP_UNITS {
            self.drop_free_nodes(blocks)?;
        }
        Ok(Ok(()))
    }

    /// Reads where the chunks and the space cache are. All that is stored is settled if that was not possible before.
    fn read_layout(&mut self, blocks: &mut Blocks) -> Result<Result<(), Refusal>, StoreError> {
        let known = self.chunks.clone().map(Ok);
        let chunks = match known.map_or_else(|| self.read_chunks(blocks), |known| Ok(Some(known)))? {
            Some(Ok(chunks)) => chunks,
            Some(Err(fault)) => return Ok(Err(Refusal::NotUnderstood(format!("btrfs: {fault}")))),
            None => {
                self.unsettled = true;
                return Ok(Ok(()));
            }
        };
        self.chunks = Some(chunks.clone());
        self.space_cache.clear();
        if !self.superblock.free_space_tree {
            let Some(ranges) = self.trees(&chunks, blocks).space_cache()? else {
                self.unsettled = true;
                return Ok(Ok(()));
            };
            for (logical, len_bytes) in ranges {
                for at in chunks.copies(logical, len_bytes) {
                    self.space_cache.set(at / UNIT_BYTES, (at + len_bytes).div_ceil(UNIT_BYTES), ());
                }
            }
        }
        if !self.read_names(&chunks, blocks)? {
            self.unsettled = true;
            return Ok(Ok(()));
        }
        if std::mem::take(&mut self.unsettled) {
            self.settle_all(blocks)?;
        }
        Ok(Ok(()))
    }

    /// Reads which files are kept, and lets what they no longer have wait again. False if not all could be read.
    fn read_names(&mut self, chunks: &Chunks, blocks: &mut Blocks) -> Result<bool, StoreError> {
        let Some(mut names) = self.names.take() else { return Ok(true) };
        let read = self.read_names_of(&mut names, chunks, blocks);
        self.names = Some(names);
        read
    }

    fn read_names_of(&mut self, names: &mut Names, chunks: &Chunks, blocks: &mut Blocks) -> Result<bool, StoreError> {
        let mut trees = self.trees(chunks, blocks);
        let Some(new) = names.read(&mut trees)? else { return Ok(false) };
        let free_space = if trees.superblock.free_space_valid { trees.free_space_root()? } else { None };
        let (mut freed, mut no_longer_made_up) = (Vec::new(), Vec::new());
        for (start, end) in chunks.ranges() {
            let Some(root) = free_space else { break };
            let (first, last) = (start / UNIT_BYTES, end / UNIT_BYTES);
            if names.kept(first, last).chain(names.made_up_pieces(first, last)).next().is_none() {
                continue;
            }
            let mut visit = |logical: u64, len_bytes: u64| {
                let last = logical.saturating_add(len_bytes).min(end) / UNIT_BYTES;
                let first = logical.div_ceil(UNIT_BYTES);
                freed.extend(names.kept(first, last));
                no_longer_made_up.extend(names.made_up_pieces(first, last));
            };
            if !trees.free_ranges(root, start, end, UNIT_BYTES, &mut visit)? {
                return Ok(false);
            }
        }
        no_longer_made_up.into_iter().for_each(|(first, last)| names.forget(first, last));
        for (first, last) in freed {
            names.forget(first, last);
            // A later transaction may have begun to use them again.
            for (from, to) in on_device(chunks, first, last) {
                self.older.remove(from, to);
                self.fresh.set(from, to, ());
            }
        }
        names.late_units += self.squashed_units(&new, chunks, blocks);
        Ok(true)
    }

    /// How many of logical blocks were squashed, in all copies.
    fn squashed_units(&self, logical: &[(u64, u64)], chunks: &Chunks, blocks: &Blocks) -> u64 {
        let places = logical.iter().flat_map(|&(first, last)| on_device(chunks, first, last));
        let squashed = places.flat_map(|(from, to)| blocks.generated_pieces(self.start + from, self.start + to));
        squashed.map(|(from, to)| to - from).sum()
    }

    fn read_chunks(&mut self, blocks: &mut Blocks) -> Result<Option<Result<Arc<Chunks>, String>>, StoreError> {
        let system = match Chunks::of_system(&self.superblock) {
            Ok(system) => system,
            Err(fault) => return Ok(Some(Err(fault))),
        };
        let read = self.trees(&system, blocks).read_chunks()?;
        Ok(read.map(|chunks| chunks.map(Arc::new)))
    }

    fn trees<'a>(&'a mut self, chunks: &'a Chunks, blocks: &'a mut Blocks) -> Trees<'a> {
        let Btrfs { start_bytes, superblock, cache, .. } = self;
        Trees { blocks, start_bytes: *start_bytes, superblock, chunks, cache }
    }

    /// Settles all that is stored.
    fn settle_all(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        let end = self.superblock.total_bytes / UNIT_BYTES;
        let mut stored = RunMap::default();
        for (from, to) in blocks.stored_pieces(self.start, self.start + end) {
            stored.set(from - self.start, to - self.start, ());
        }
        let node_units = self.node_units();
        let mut node = vec![0; self.superblock.node_bytes as usize];
        for (first, last, ()) in stored.all() {
            // Whether there are compressed files decides what becomes of contents.
            for window in first / node_units..last.div_ceil(node_units) {
                let at_bytes = window * self.superblock.node_bytes;
                if !self.compressed
                    && self.may_hold_node(window * node_units)
                    && at_bytes + self.superblock.node_bytes <= self.superblock.total_bytes
                    && blocks.read(self.start_bytes + at_bytes, &mut node)?
                {
                    self.look_at_node(&node);
                }
            }
        }
        if self.keeps_by_names() {
            // Contents written since the last commits may belong to files that have no names there yet.
            for waiting in [&self.fresh, &self.older] {
                waiting.all().for_each(|(first, last, ())| stored.remove(first, last));
            }
            let others = self.others(blocks)?;
            self.fresh_again(&stored, &others, blocks)?;
            return Ok(());
        }
        self.fresh.clear();
        self.older = self.settle_blocks(&stored, None, blocks)?;
        Ok(())
    }

    /// Settles what is stored of some blocks by what the chunks say. Of contents that are not kept only those of
    /// `others`, by logical block, are dropped if these are given. Returns blocks that are not settled.
    fn settle_blocks(
        &mut self,
        set: &RunMap<()>,
        others: Option<&RunMap<()>>,
        blocks: &mut Blocks,
    ) -> Result<RunMap<()>, StoreError> {
        let mut rest = RunMap::default();
        let mut bytes = [0; UNIT_BYTES as usize];
        // The node that the last header began: where it ends, and its class.
        let mut node = (0, Class::Tree);
        for (first, last, ()) in set.all() {
            for (from, to) in blocks.stored_pieces(self.start + first, self.start + last) {
                for unit in from.up_to(to) {
                    let inside = unit - self.start;
                    if self.is_fixed(inside) {
                        blocks.settle(unit, unit + 1, Class::Superblock)?;
                        continue;
                    }
                    // A program asked for it; or an earlier run went by names, and this one does not.
                    if blocks.is_noted(unit) || blocks.is_raw(unit) && !self.keeps_by_names() {
                        continue;
                    }
                    let place = self.chunks.as_ref().and_then(|chunks| chunks.at(inside, inside + 1).0);
                    let Some(ChunkBlock { kind, logical }) = place else {
                        rest.set(inside, inside + 1, ());
                        continue;
                    };
                    blocks.read(unit.offset_bytes(), &mut bytes)?;
                    if is_node(&bytes, &self.superblock) {
                        node = (inside + self.node_units(), class_of(&bytes));
                    }
                    if inside < node.0 || self.is_of_nodes(kind) {
                        let class = if inside < node.0 { node.1 } else { Class::Tree };
                        if !blocks.is_kept_metadata(unit) {
                            blocks.settle(unit, unit + 1, class)?;
                        }
                    } else if let Some(class) = self.kept_content(inside, logical) {
                        blocks.settle(unit, unit + 1, class)?;
                    } else if self.sums.is_full()
                        || others.is_some_and(|others| others.at(logical, logical + 1).0.is_none())
                    {
                        rest.set(inside, inside + 1, ());
                    } else {
                        blocks.squash(unit, unit + 1);
                        self.sums.set(inside, crc32c::crc32c(&bytes));
                    }
                }
            }
            if !self.compressed {
                self.squash_zeros_of_files(first, last, blocks);
            }
        }
        Ok(rest)
    }

    /// Drops zeros between two blocks that are contents of files which are made up, and would have a hole there.
    fn squash_zeros_of_files(&self, first: u64, last: u64, blocks: &mut Blocks) {
        let (Some(names), Some(chunks)) = (&self.names, &self.chunks) else { return };
        for (from, to, place) in chunks.pieces(first, last) {
            for (start, end) in names.made_up_pieces(place.logical, place.logical + (to - from)) {
                let on_device = |logical| self.start + from + (logical - place.logical);
                blocks.squash_zeros(on_device(start), on_device(end));
            }
        }
    }

    /// The root of the checksum tree, as the last commit has it.
    fn checksum_root(&mut self, chunks: &Chunks, blocks: &mut Blocks) -> Result<Option<Root>, StoreError> {
        if self.checksum_root.is_none() {
            self.checksum_root = Some(self.trees(chunks, blocks).checksum_root()?);
        }
        Ok(self.checksum_root.flatten())
    }

    /// Forgets checksums that can be read from the committed tree.
    fn confirm_sums(&mut self, blocks: &mut Blocks) -> Result<(), StoreError> {
        let ranges = self.sums.unconfirmed();
        let Some(chunks) = self.chunks.clone() else { return Ok(()) };
        if ranges.is_empty() {
            return Ok(());
        }
        let Some(root) = self.checksum_root(&chunks, blocks)? else { return Ok(()) };
        for (first, last) in ranges {
            let mut found = Vec::new();
            self.visit_sums(root, &chunks, first, last, blocks, &mut |block, sum| found.push((block, sum)))?;
            found.into_iter().for_each(|(block, sum)| self.sums.confirm(block, sum));
        }
        self.sums.commit();
        Ok(())
    }

    /// Visits the checksums that a tree has for blocks between two.
    fn visit_sums(
        &mut self,
        root: Root,
        chunks: &Chunks,
        first: u64,
        last: u64,
        blocks: &mut Blocks,
        visit: &mut dyn FnMut(u64, u32),
    ) -> Result<(), StoreError> {
        for (from, to, place) in chunks.pieces(first, last) {
            let (start, end) = (place.logical * UNIT_BYTES, (place.logical + (to - from)) * UNIT_BYTES);
            self.trees(chunks, blocks).checksums(root, start, end, UNIT_BYTES, &mut |logical, sum| {
                visit(from + (logical - start) / UNIT_BYTES, sum);
            })?;
        }
        Ok(())
    }

    /// Gives what was made up for blocks between two the checksums that btrfs expects; `bytes` are those of the
    /// device from `offset_bytes` on.
    fn correct_sums(
        &mut self,
        (start, end): (VolumeUnit, VolumeUnit),
        offset_bytes: u64,
        bytes: &mut [u8],
        blocks: &mut Blocks,
    ) -> Result<(), StoreError> {
        for (from, to) in blocks.generated_pieces(start, end) {
            let sums = self.sums_of(from - self.start, to - self.start, blocks)?;
            for (unit, sum) in from.up_to(to).zip(sums) {
                let file = self.made_up_file(unit - self.start);
                let unit_bytes = unit.offset_bytes();
                let skip = offset_bytes.saturating_sub(unit_bytes) as usize;
                let at = unit_bytes.saturating_sub(offset_bytes) as usize;
                let len = (UNIT_BYTES as usize - skip).min(bytes.len() - at);
                let target = &mut bytes[at..at + len];
                let mut sector = [0; UNIT_BYTES as usize];
                match (file, sum) {
                    (Some((file, number)), Some(sum)) => file.fill_checked(number, &mut sector, sum),
                    (Some((file, number)), None) => file.fill(number * UNIT_BYTES, &mut sector),
                    (None, Some(sum)) if len == sector.len() => {
                        forge(target, sum);
                        continue;
                    }
                    (None, Some(sum)) => {
                        blocks.read(unit_bytes, &mut sector)?;
                        forge(&mut sector, sum);
                    }
                    (None, None) => continue,
                }
                target.copy_from_slice(&sector[skip..skip + len]);
            }
        }
        Ok(())
    }

    /// The file that a block is made up for, and the number of its sector in it.
    fn made_up_file(&self, inside: u64) -> Option<(&MadeUpFile, u64)> {
        let (names, chunks) = (self.names.as_ref()?, self.chunks.as_ref()?);
        names.made_up(chunks.at(inside, inside + 1).0?.logical)
    }

    /// The checksums of blocks between two, as far as there are any.
    fn sums_of(&mut self, first: u64, last: u64, blocks: &mut Blocks) -> Result<Vec<Option<u32>>, StoreError> {
        let mut sums: Vec<_> = (first..last).map(|block| self.sums.get(block)).collect();
        if sums.iter().all(Option::is_some) {
            return Ok(sums);
        }
        let Some(chunks) = self.chunks.clone() else { return Ok(sums) };
        let Some(root) = self.checksum_root(&chunks, blocks)? else { return Ok(sums) };
        self.visit_sums(root, &chunks, first, last, blocks, &mut |block, sum| {
            sums[(block - first) as usize].get_or_insert(sum);
        })?;
        Ok(sums)
    }

    /// What should be said about how it is followed.
    fn sentence_of_doubt(&self) -> Option<&'static str> {
        if self.compressed {
            return Some("the file system is followed only in part: some files are compressed, so contents are kept");
        }
        if !self.superblock.free_space_tree {
            return Some(
                "the file system is followed only in part: it has a space cache of version 1, so contents wait for the \
                 second commit",
            );
        }
        None
    }

    /// Memory that is taken by what is known of blocks, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let sets = self.fresh.memory_bytes() + self.older.memory_bytes() + self.space_cache.memory_bytes();
        let chunks = self.chunks.as_deref().map_or(0, Chunks::memory_bytes);
        let sets = sets + self.names.as_ref().map_or(0, |names| names.memory_bytes());
        sets + chunks + self.cache.memory_bytes() + self.sums.memory_bytes()
    }

    /// Entries that are held in memory.
    pub(crate) fn entries(&self) -> u64 {
        let sets = self.fresh.len() + self.older.len() + self.space_cache.len();
        let names = self.names.as_ref().map_or(0, |names| names.entries());
        self.chunks.as_deref().map_or(0, Chunks::entries) + self.sums.entries() + names + sets as u64
    }
}

/// Where logical blocks lie, in all copies: the first block and the one behind the last.
fn on_device(chunks: &Chunks, first: u64, last: u64) -> Vec<(u64, u64)> {
    let len_bytes = (last - first) * UNIT_BYTES;
    let starts = chunks.copies(first * UNIT_BYTES, len_bytes).map(|at| at / UNIT_BYTES);
    starts.map(|at| (at, at + last - first)).collect()
}

/// Whether bytes begin like compressed contents: a frame of zstd (RFC 8878, section 3.1.1), a stream of zlib with a
/// window of 32 KiB (RFC 1950, section 2.2), or the segments of LZO (Linux, `fs/btrfs/lzo.c`).
fn may_be_compressed(bytes: &[u8]) -> bool {
    const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
    let zlib = bytes[0] == 0x78 && u16::from_be_bytes([bytes[0], bytes[1]]).is_multiple_of(31) && bytes[1] & 0x20 == 0;
    let extent = COMPRESSED_UNITS as u32 * UNIT_BYTES as u32;
    let (len, segment) = (u32_at(bytes, 0), u32_at(bytes, 4));
    // A segment is what became of one page, at worst a little longer than that.
    let lzo = (8..=extent).contains(&len) && (1..=len - 8).contains(&segment) && u64::from(segment) < 2 * UNIT_BYTES;
    bytes.starts_with(&ZSTD_MAGIC) || zlib || lzo
}
