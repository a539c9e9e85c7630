//! Classes of kept blocks.

/// Content of a kept block, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Class {
    /// Superblocks and their copies, and blocks outside the file system.
    Superblock,
    /// Group descriptors, their copies, and the room for more of them.
    GroupDescriptors,
    /// Bitmaps of blocks and inodes.
    Bitmap,
    /// Inode tables.
    InodeTable,
    /// Directories.
    Directory,
    /// Extent trees and indirect blocks.
    Mapping,
    /// Extended attributes, and values of theirs that fill inodes of their own.
    Attributes,
    /// Targets of symbolic links.
    SymbolicLink,
    /// The journal.
    Journal,
    /// Quota and orphan files, protection against double mounts, reserved inodes, and metadata that
    /// the journal names before an inode does.
    OtherMetadata,
    /// Not classified yet.
    Unclassified,
    /// Kept because the file system is not understood.
    Everything,
    /// Kept because everything was asked to be.
    Exact,
    /// Partition tables, and all other blocks outside partitions.
    PartitionTable,
    /// Trees of free space, of inodes, and of block owners.
    SpaceTree,
    /// Trees of names, inodes and extents of files (btrfs).
    Tree,
    /// Checksums of contents (btrfs).
    Checksums,
    /// Contents of files that are kept because of their names.
    Raw,
    /// Pages that a program's marker asks to keep.
    Noted,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 19] = [
        Class::Superblock,
        Class::GroupDescriptors,
        Class::Bitmap,
        Class::InodeTable,
        Class::Directory,
        Class::Mapping,
        Class::Attributes,
        Class::SymbolicLink,
        Class::Journal,
        Class::OtherMetadata,
        Class::Unclassified,
        Class::Everything,
        Class::Exact,
        Class::PartitionTable,
        Class::SpaceTree,
        Class::Tree,
        Class::Checksums,
        Class::Raw,
        Class::Noted,
    ];

    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Superblock => "superblock",
            Class::GroupDescriptors => "group-descriptors",
            Class::Bitmap => "bitmap",
            Class::InodeTable => "inode-table",
            Class::Directory => "directory",
            Class::Mapping => "mapping",
            Class::Attributes => "attributes",
            Class::SymbolicLink => "symbolic-link",
            Class::Journal => "journal",
            Class::OtherMetadata => "other-metadata",
            Class::Unclassified => "unclassified",
            Class::Everything => "everything",
            Class::Exact => "exact",
            Class::PartitionTable => "partition-table",
            Class::SpaceTree => "space-tree",
            Class::Tree => "tree",
            Class::Checksums => "checksums",
            Class::Raw => "raw",
            Class::Noted => "noted",
        }
    }

    /// Whether blocks of this class are compressed: classes with many blocks. Superblocks are few and written often,
    /// and contents of files may be incompressible.
    pub(crate) fn is_compressed(self) -> bool {
        match self {
            Class::GroupDescriptors
            | Class::Bitmap
            | Class::InodeTable
            | Class::Directory
            | Class::Mapping
            | Class::Attributes
            | Class::SymbolicLink
            | Class::Journal
            | Class::OtherMetadata
            | Class::SpaceTree
            | Class::Tree
            | Class::Checksums => true,
            Class::Superblock
            | Class::Unclassified
            | Class::Everything
            | Class::Exact
            | Class::PartitionTable
            | Class::Raw
            | Class::Noted => false,
        }
    }

    /// Its code in images: its position in [`Class::ALL`], counted from 1.
    pub(crate) fn code(self) -> u8 {
        self as u8 + 1
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Class::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}
