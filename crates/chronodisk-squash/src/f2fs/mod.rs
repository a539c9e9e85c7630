//! F2FS as seen from the block device.
//!
//! The areas in front of the main area have fixed places and are kept. In the main area a block that may be a node, by
//! its footer, is kept; the rest is classified by checkpoints. A node named by the node address table of the last
//! checkpoint lists its file's blocks, and its inode gives their use. Blocks of regular files are dropped; directories
//! and symbolic links are kept.
//!
//! **Safety.** A block used by a checkpoint is not reused before the next checkpoint is complete on the device, so the
//! last checkpoint is valid until then, also for a block that is overwritten in place. Nodes without a checkpoint are
//! ignored, because their numbers may belong to other files by then.
//!
//! At a checkpoint, the nodes written since the previous one are read. All nodes are read when the store is closed, and
//! at a flush after a tool wrote. Blocks that no node names are free and dropped if two conditions hold: the nodes name
//! as many blocks as the checkpoint counts, and an unmount wrote the checkpoint, with no later node. Contents that
//! are overwritten in place take space until then.
//!
//! Not supported, and so kept completely: several devices, zones, encryption, verity, compression, and unknown
//! features. Names of files are not read: with rules by name everything is kept.

mod checkpoint;
mod classify;
mod node;
mod superblock;

use chronodisk_store::StoreError;

use self::checkpoint::Checkpoint;
pub(crate) use self::classify::KIND;
use self::node::{Node, Use};
use self::superblock::{LEN_BYTES, OFFSET_BYTES, Superblock};
use super::UNIT_BYTES;
use super::blocks::Blocks;
use super::classifier::{Refusal, Verdict};
use super::runs::RunMap;
use super::units::VolumeUnit;

/// The classifier of one file system. Its blocks are units, counted from its beginning.
#[derive(Debug)]
pub(crate) struct F2fs {
    start_bytes: u64,
    end_bytes: u64,
    superblock: Superblock,
    checkpoint: Option<Checkpoint>,
    /// Nodes that were written since the last checkpoint.
    fresh: RunMap<()>,
    /// The device was written since all nodes were read.
    unscanned: bool,
    commits: u64,
    scans: u64,
}

/// Reads blocks of the file system.
struct Reader<'a> {
    blocks: &'a mut Blocks,
    start: VolumeUnit,
}

impl Reader<'_> {
    /// Returns false if the bytes were generated.
    fn read(&mut self, block: u64, bytes: &mut [u8]) -> Result<bool, StoreError> {
        self.blocks.read((self.start + block).offset_bytes(), bytes)
    }

    /// Blocks in a range that may be stored, in order.
    fn stored(&self, from: u64, to: u64) -> impl Iterator<Item = u64> + use<> {
        let start = self.start;
        let pieces = self.blocks.stored_pieces(start + from, start + to);
        pieces.into_iter().flat_map(move |(from, to)| from - start..to - start)
    }
}

/// Uses of blocks according to nodes.
#[derive(Debug, Default)]
struct Claims {
    uses: RunMap<Use>,
    nodes: RunMap<()>,
    /// Blocks and nodes in use, as far as they were counted.
    blocks_in_use: u64,
    nodes_in_use: u64,
    /// Every node was readable.
    whole: bool,
}

impl F2fs {
    fn find(blocks: &mut Blocks, start_bytes: u64, end_bytes: u64) -> Result<Result<Self, Refusal>, StoreError> {
        let mut bytes = [0; LEN_BYTES];
        let available_bytes = end_bytes - start_bytes;
        if available_bytes < OFFSET_BYTES + LEN_BYTES as u64 || !blocks.read(start_bytes + OFFSET_BYTES, &mut bytes)? {
            return Ok(Err(Refusal::Absent));
        }
        Ok(Superblock::parse(&bytes, available_bytes).map(|superblock| F2fs {
            start_bytes,
            end_bytes,
            superblock,
            checkpoint: None,
            fresh: RunMap::default(),
            unscanned: true,
            commits: 0,
            scans: 0,
        }))
    }

    fn start(&self) -> VolumeUnit {
        VolumeUnit::of_byte(self.start_bytes)
    }

    fn reader<'a>(&self, blocks: &'a mut Blocks) -> Reader<'a> {
        Reader { blocks, start: self.start() }
    }

    /// Verdict on a block.
    fn verdict(&self, block: u64, bytes: &[u8]) -> Verdict {
        match (self.superblock.fixed(block), Node::of(bytes, &self.superblock)) {
            (Some(class), _) => Verdict::Keep(class),
            (None, Some(node)) => Verdict::Keep(node.class()),
            (None, None) => Verdict::Wait,
        }
    }

    /// Called after a range of blocks was written or cleared: applies a new checkpoint, if there is one.
    fn checkpoints_touched(&mut self, from: u64, to: u64, blocks: &mut Blocks) -> Result<(), StoreError> {
        let (first, last) = self.superblock.checkpoint_blocks();
        if from >= last || to <= first {
            return Ok(());
        }
        let found = Checkpoint::read(&self.superblock, &mut self.reader(blocks))?;
        if found == self.checkpoint {
            return Ok(());
        }
        self.checkpoint = found;
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        self.commits += 1;
        let mut claims = Claims { whole: true, ..Claims::default() };
        let mut bytes = [0; UNIT_BYTES as usize];
        let mut reader = self.reader(blocks);
        for (from, to, ()) in self.fresh.all() {
            for block in from..to {
                if !reader.read(block, &mut bytes)? {
                    continue;
                }
                let Some(node) = Node::of(&bytes, &self.superblock) else { continue };
                if checkpoint.address_of(node.number(), &self.superblock, &mut reader)? == Some(block) {
                    self.claim(checkpoint, block, node, &mut claims, &mut reader)?;
                }
            }
        }
        self.fresh.clear();
        self.act_upon(&claims, blocks)
    }

    /// Records the claims of a node that the checkpoint has at a block.
    fn claim(
        &self,
        checkpoint: &Checkpoint,
        block: u64,
        node: Node<'_>,
        claims: &mut Claims,
        reader: &mut Reader<'_>,
    ) -> Result<(), StoreError> {
        let superblock = &self.superblock;
        claims.nodes.set(block, block + 1, ());
        claims.nodes_in_use += 1;
        let addresses = node.addresses(superblock);
        claims.blocks_in_use += 1 + addresses.blocks.len() as u64 + addresses.set_aside;
        claims.whole &= addresses.understood;
        if addresses.blocks.is_empty() || !addresses.understood {
            return Ok(());
        }
        let mut bytes = [0; UNIT_BYTES as usize];
        let inode = match node.is_inode() {
            true => Some(node),
            false => match checkpoint.address_of(node.inode(), superblock, reader)? {
                Some(place) if reader.read(place, &mut bytes)? => Node::of(&bytes, superblock),
                _ => None,
            },
        };
        let Some(inode) = inode.filter(|inode| inode.is_inode() && inode.inode() == node.inode()) else {
            claims.whole = false;
            return Ok(());
        };
        let uses = inode.uses(superblock);
        for block in addresses.blocks {
            // If two claims differ, contents do not override another use.
            let there = claims.uses.at(block, block + 1).0;
            if uses != Use::Contents || there.is_none() {
                claims.uses.set(block, block + 1, uses);
            }
        }
        Ok(())
    }

    /// Applies the nodes' claims.
    fn act_upon(&self, claims: &Claims, blocks: &mut Blocks) -> Result<(), StoreError> {
        let start = self.start();
        for (from, to, uses) in claims.uses.all() {
            for (from, to) in blocks.stored_pieces(start + from, start + to) {
                for unit in from.up_to(to) {
                    let is_node = claims.nodes.at(unit - start, unit - start + 1).0.is_some();
                    match uses {
                        // A program's marker kept it.
                        _ if is_node || blocks.is_noted(unit) => {}
                        Use::Contents => blocks.squash(unit, unit + 1),
                        Use::Kept(class) => blocks.settle(unit, unit + 1, class)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads all nodes of the last checkpoint, and applies their claims. At `rest` it drops unclaimed blocks.
    fn scan(&mut self, at_rest: bool, blocks: &mut Blocks) -> Result<(), StoreError> {
        self.unscanned = false;
        let Some(checkpoint) = &self.checkpoint else { return Ok(()) };
        let mut reader = self.reader(blocks);
        let (addresses, whole) = checkpoint.addresses(&self.superblock, &mut reader)?;
        let mut claims = Claims { whole, ..Claims::default() };
        let mut bytes = [0; UNIT_BYTES as usize];
        for (&number, &block) in &addresses {
            let exact = reader.read(block, &mut bytes)?;
            match Node::of(&bytes, &self.superblock).filter(|node| exact && node.number() == number) {
                Some(node) => self.claim(checkpoint, block, node, &mut claims, &mut reader)?,
                None => claims.whole = false,
            }
        }
        self.act_upon(&claims, blocks)?;
        let counted = claims.whole
            && claims.blocks_in_use == checkpoint.blocks_in_use
            && claims.nodes_in_use == checkpoint.nodes_in_use;
        let drops_unused = at_rest && counted && checkpoint.is_clean();
        let version = checkpoint.version as u32;
        self.scans += 1;
        if drops_unused {
            self.drop_unused(&claims, version, blocks)?;
        }
        Ok(())
    }

    /// Drops stored blocks of the main area that no node names. It drops none if nodes were written after the
    /// checkpoint of this version: the checkpoint's mark of an unmount stays until the next checkpoint, and a recovery
    /// finds the files synchronised since.
    fn drop_unused(&self, claims: &Claims, version: u32, blocks: &mut Blocks) -> Result<(), StoreError> {
        let (start, superblock) = (self.start(), &self.superblock);
        let mut unused = Vec::new();
        let mut bytes = [0; UNIT_BYTES as usize];
        for (from, to) in blocks.stored_pieces(start + superblock.main, start + superblock.main_end) {
            for unit in from.up_to(to) {
                let (block, next) = (unit - start, unit - start + 1);
                let used = claims.nodes.at(block, next).0.is_some() || claims.uses.at(block, next).0.is_some();
                if used || blocks.is_noted(unit) {
                    continue;
                }
                blocks.read(unit.offset_bytes(), &mut bytes)?;
                if Node::of(&bytes, superblock).is_some_and(|node| node.version() == version) {
                    return Ok(());
                }
                unused.push(unit);
            }
        }
        unused.into_iter().for_each(|unit| blocks.squash(unit, unit + 1));
        Ok(())
    }

    /// Whether a tool may have written, so that blocks wait whose use is unknown.
    fn may_be_done(&self) -> bool {
        self.unscanned && self.checkpoint.as_ref().is_some_and(Checkpoint::is_clean)
    }

    fn memory_bytes(&self) -> u64 {
        self.fresh.memory_bytes() + self.checkpoint.as_ref().map_or(0, Checkpoint::memory_bytes)
    }
}
