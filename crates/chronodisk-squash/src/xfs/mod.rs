//! XFS, version 5, as seen from the block device.
//!
//! Every metadata block identifies itself: a magic number, the file system's UUID, its own address. So a block is
//! classified by its bytes when it is written, without waiting. Blocks without identification are known by their
//! places: the headers of the allocation groups (superblock, AGF, AGI, AGFL) and the log.
//!
//! A block counts as metadata if it has a magic number, and the UUID or the address matches. Checksums are not
//! verified, so that damaged metadata stay as they are. Data that look like metadata are kept unnecessarily. Freed
//! metadata take space until they are overwritten or discarded.
//!
//! With [names], contents wait for the identification of their file: the [log] has it first, and [committed] applies
//! it.
//!
//! Not supported, and so kept completely: version 4, a realtime section, blocks of more than 4 KiB, directory blocks of
//! several blocks, and unknown features.

mod classify;
mod committed;
mod directory;
mod inode;
mod log;
mod names;
mod superblock;
mod transactions;
mod view;

use chronodisk_store::StoreError;

pub(crate) use self::classify::KIND;
use self::names::Names;
use self::superblock::{LEN_BYTES, Superblock, u64_at};
use super::UNIT_BYTES;
use super::blocks::Blocks;
use super::class::Class;
use super::classifier::{Refusal, Verdict};
use super::units::VolumeUnit;

/// Addresses in blocks count sectors of this size, for any device.
const ADDRESS_BYTES: u64 = 512;

/// The classifier of one file system.
#[derive(Debug)]
pub(crate) struct Xfs {
    start_bytes: u64,
    end_bytes: u64,
    superblock: Superblock,
    /// Present if rules apply to names.
    names: Option<Box<Names>>,
}

/// Offsets of the owner's number in a kind of block.
struct Form {
    magic_at: usize,
    magic: &'static [u8],
    uuid_at: usize,
    address_at: usize,
    class: Class,
}

const fn form(magic: &'static [u8], uuid_at: usize, address_at: usize, class: Class) -> Form {
    Form { magic_at: 0, magic, uuid_at, address_at, class }
}

/// A block of a directory or attribute tree, whose header begins with two links.
const fn linked(magic: &'static [u8], class: Class) -> Form {
    Form { magic_at: 8, magic, uuid_at: 32, address_at: 16, class }
}

/// Self-identifying blocks (Linux, `fs/xfs/libxfs/xfs_format.h` and `xfs_da_format.h`).
const FORMS: [Form; 17] = [
    form(b"AB3B", 32, 16, Class::SpaceTree),
    form(b"AB3C", 32, 16, Class::SpaceTree),
    form(b"IAB3", 32, 16, Class::SpaceTree),
    form(b"FIB3", 32, 16, Class::SpaceTree),
    form(b"RMB3", 32, 16, Class::SpaceTree),
    form(b"R3FC", 32, 16, Class::SpaceTree),
    form(b"BMA3", 40, 24, Class::Mapping),
    form(b"XDB3", 24, 8, Class::Directory),
    form(b"XDD3", 24, 8, Class::Directory),
    form(b"XDF3", 24, 8, Class::Directory),
    linked(&[0x3D, 0xF1], Class::Directory),
    linked(&[0x3D, 0xFF], Class::Directory),
    // Nodes of directories and of attributes.
    linked(&[0x3E, 0xBE], Class::Directory),
    linked(&[0x3B, 0xEE], Class::Attributes),
    form(b"XARM", 16, 40, Class::Attributes),
    form(b"XSLM", 16, 40, Class::SymbolicLink),
    // Quota records: the first one identifies all, and they have no address.
    form(&[0x44, 0x51], 120, 120, Class::OtherMetadata),
];

const INODE_MAGIC: &[u8; 2] = b"IN";
const INODE_UUID_AT: usize = 160;

impl Xfs {
    /// Finds a supported file system that begins at `start_bytes`.
    pub(crate) fn find(
        blocks: &mut Blocks,
        start_bytes: u64,
        end_bytes: u64,
    ) -> Result<Result<Self, Refusal>, StoreError> {
        let mut bytes = [0; LEN_BYTES];
        let available_bytes = end_bytes - start_bytes;
        if available_bytes < LEN_BYTES as u64 || !blocks.read(start_bytes, &mut bytes)? {
            return Ok(Err(Refusal::Absent));
        }
        let parsed = Superblock::parse(&bytes, available_bytes);
        Ok(parsed.map(|superblock| Xfs { start_bytes, end_bytes, superblock, names: None }))
    }

    /// Whether another one is the same file system in the same layout.
    fn same_layout(&self, other: &Xfs) -> bool {
        self.superblock == other.superblock
    }

    /// Verdict on the block `unit` with these bytes.
    fn verdict(&self, unit: VolumeUnit, bytes: &[u8]) -> Verdict {
        let from_bytes = unit.offset_bytes() - self.start_bytes;
        if let Some(class) = self.fixed(from_bytes) {
            return Verdict::Keep(class);
        }
        let len = self.superblock.block_bytes as usize;
        let classes = bytes.chunks_exact(len).zip((from_bytes..).step_by(len));
        match classes.filter_map(|(block, at_bytes)| self.class_of(block, at_bytes)).next() {
            Some(class) => Verdict::Keep(class),
            None => self.contents(unit),
        }
    }

    /// Class of a unit by its place alone.
    fn fixed(&self, from_bytes: u64) -> Option<Class> {
        let superblock = &self.superblock;
        let end_bytes = from_bytes + UNIT_BYTES;
        let (first, last) = (from_bytes / superblock.block_bytes, end_bytes.div_ceil(superblock.block_bytes));
        if last > superblock.blocks_count {
            return Some(Class::Superblock);
        }
        if first < superblock.log_start + superblock.log_blocks && last > superblock.log_start {
            return Some(Class::Journal);
        }
        // Superblock, AGF, AGI and AGFL are a group's first four sectors.
        let group_bytes = superblock.group_blocks * superblock.block_bytes;
        let header_bytes = 4 * superblock.sector_bytes;
        let in_header = from_bytes % group_bytes < header_bytes;
        let before_next = from_bytes / group_bytes != (end_bytes - 1) / group_bytes;
        (in_header || before_next).then_some(Class::Superblock)
    }

    /// Class of a block by its identification.
    fn class_of(&self, block: &[u8], at_bytes: u64) -> Option<Class> {
        let superblock = &self.superblock;
        let inodes = block.chunks_exact(superblock.inode_bytes);
        if inodes.clone().any(|inode| inode.starts_with(INODE_MAGIC) && self.is_own(inode, INODE_UUID_AT)) {
            return Some(Class::InodeTable);
        }
        let form = FORMS.iter().find(|form| block[form.magic_at..].starts_with(form.magic))?;
        let address = at_bytes / ADDRESS_BYTES;
        let own = self.is_own(block, form.uuid_at)
            || form.address_at != form.uuid_at && u64_at(block, form.address_at) == address;
        own.then_some(form.class)
    }

    fn is_own(&self, bytes: &[u8], uuid_at: usize) -> bool {
        bytes[uuid_at..uuid_at + 16] == self.superblock.uuid
    }
}
