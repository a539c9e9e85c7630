//! The file systems that a guest can make on its device: how each is made, mounted and checked.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A file system, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// Linux's default.
    #[default]
    Ext4,
    /// With a journal and block maps.
    Ext3,
    /// Without a journal.
    Ext2,
    /// SGI's.
    Xfs,
    /// Copy on write, with checksums.
    Btrfs,
    /// For flash, log-structured.
    F2fs,
    /// Each zone of a zoned device as a file.
    Zonefs,
    /// The one in the store, which is detected before the guest starts.
    Existing,
    /// No file system: the raw device stays unchanged.
    None,
}

impl FileSystem {
    /// All file systems, in the order of the help text.
    pub const ALL: [FileSystem; 9] = [
        FileSystem::Ext4,
        FileSystem::Ext3,
        FileSystem::Ext2,
        FileSystem::Xfs,
        FileSystem::Btrfs,
        FileSystem::F2fs,
        FileSystem::Zonefs,
        FileSystem::Existing,
        FileSystem::None,
    ];

    /// File systems that this host's kernel can make and mount on an emulated device.
    pub const NATIVE: [FileSystem; 6] =
        [FileSystem::Ext4, FileSystem::Ext3, FileSystem::Ext2, FileSystem::Xfs, FileSystem::Btrfs, FileSystem::None];

    /// The name that `mount -t` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Ext3 => "ext3",
            FileSystem::Ext2 => "ext2",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
            FileSystem::F2fs => "f2fs",
            FileSystem::Zonefs => "zonefs",
            FileSystem::Existing => "existing",
            FileSystem::None => "none",
        }
    }

    /// Its mkfs program, and the Debian package of that.
    #[must_use]
    pub const fn maker(self) -> Option<(&'static str, &'static str)> {
        match self {
            FileSystem::Ext4 => Some(("mkfs.ext4", "e2fsprogs")),
            FileSystem::Ext3 => Some(("mkfs.ext3", "e2fsprogs")),
            FileSystem::Ext2 => Some(("mkfs.ext2", "e2fsprogs")),
            FileSystem::Xfs => Some(("mkfs.xfs", "xfsprogs")),
            FileSystem::Btrfs => Some(("mkfs.btrfs", "btrfs-progs")),
            FileSystem::F2fs => Some(("mkfs.f2fs", "f2fs-tools")),
            FileSystem::Zonefs | FileSystem::Existing | FileSystem::None => None,
        }
    }

    /// Arguments that make it on a zoned device: btrfs in its zoned form without copies of metadata, which is the form
    /// of a single zoned device in its documentation.
    #[must_use]
    pub fn zoned_arguments(self) -> Vec<String> {
        let words: &[&str] = match self {
            FileSystem::Btrfs => &["-O", "zoned", "-d", "single", "-m", "single"],
            FileSystem::F2fs => &["-m"],
            _ => &[],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// Arguments that make it repeatable and leave no lazy work that would disturb the command.
    #[must_use]
    pub fn maker_arguments(self, seed: u64, device: &str, capacity_bytes: u64, extra: &[String]) -> Vec<String> {
        let uuid = uuid_of(seed);
        let own: Vec<String> = match self {
            FileSystem::Ext4 | FileSystem::Ext3 | FileSystem::Ext2 => {
                let journal = if self == FileSystem::Ext2 { "" } else { ",lazy_journal_init=0" };
                let tables = u8::from(self.leaves_inode_tables(capacity_bytes));
                vec![
                    "-q".into(),
                    "-F".into(),
                    "-U".into(),
                    uuid.clone(),
                    "-E".into(),
                    format!("lazy_itable_init={tables}{journal},hash_seed={uuid}"),
                ]
            }
            FileSystem::Xfs => vec!["-q".into(), "-f".into(), "-m".into(), format!("uuid={uuid}")],
            FileSystem::Btrfs => vec!["-q".into(), "-f".into(), "-U".into(), uuid],
            // Quiet, it does not say why it fails.
            FileSystem::F2fs => vec!["-f".into(), "-U".into(), uuid],
            FileSystem::Zonefs | FileSystem::Existing | FileSystem::None => Vec::new(),
        };
        own.into_iter().chain(extra.iter().cloned()).chain([device.to_owned()]).collect()
    }

    /// Whether a kernel refuses a second file system of the same UUID.
    #[must_use]
    pub const fn has_unique_uuid(self) -> bool {
        matches!(self, FileSystem::Xfs | FileSystem::Btrfs)
    }

    /// Mount options that go before the user's own.
    #[must_use]
    pub fn mount_options(self, capacity_bytes: u64) -> Option<&'static str> {
        // Otherwise a kernel thread would write them during the command.
        self.leaves_inode_tables(capacity_bytes).then_some("noinit_itable")
    }

    /// Whether mkfs leaves inode tables unwritten until their inodes are used. It writes each group's table separately
    /// and waits for it: 819,200 requests on 100 TiB, by far the longest part.
    fn leaves_inode_tables(self, capacity_bytes: u64) -> bool {
        self == FileSystem::Ext4 && capacity_bytes > INODE_TABLES_WRITTEN_BYTES_MAX
    }

    /// The command that checks it without changing it.
    pub(crate) fn checker(self, device: &str) -> Option<Vec<String>> {
        let words: &[&str] = match self {
            FileSystem::Ext4 | FileSystem::Ext3 | FileSystem::Ext2 => &["e2fsck", "-f", "-n"],
            FileSystem::Xfs => &["xfs_repair", "-n"],
            FileSystem::Btrfs => &["btrfs", "check", "--readonly"],
            FileSystem::F2fs => &["fsck.f2fs", "--dry-run"],
            FileSystem::Zonefs | FileSystem::Existing | FileSystem::None => return None,
        };
        Some(words.iter().map(|&word| word.to_owned()).chain([device.to_owned()]).collect())
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FileSystem {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        FileSystem::ALL.into_iter().find(|file_system| file_system.name() == name).ok_or_else(|| {
            format!(
                "unknown file system '{name}'; expected ext4, ext3, ext2, xfs, btrfs, f2fs, zonefs, existing or none"
            )
        })
    }
}

/// The largest device whose inode tables mkfs writes: 32,768 groups of ext4.
const INODE_TABLES_WRITTEN_BYTES_MAX: u64 = 4 << 40;

/// A UUID of version 4's form (RFC 9562, section 5.4) that depends on the seed alone.
pub(crate) fn uuid_of(seed: u64) -> String {
    let mut stream = chronodisk_sim::RandomStream::new(seed, "guest", "file-system-uuid");
    let high = stream.next_u64() & !0xf000 | 0x4000;
    let low = stream.next_u64() & !(3 << 62) | 2 << 62;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for file_system in FileSystem::ALL {
            assert_eq!(file_system.name().parse(), Ok(file_system));
        }
        assert!("zfs".parse::<FileSystem>().unwrap_err().contains("btrfs"));
    }

    #[test]
    fn inode_tables_of_huge_devices_are_left_by_mkfs_and_by_the_kernel() {
        let written = |file_system: FileSystem, capacity_bytes| {
            let arguments = file_system.maker_arguments(1, "/dev/vda", capacity_bytes, &[]).join(" ");
            (arguments.contains("lazy_itable_init=0"), file_system.mount_options(capacity_bytes))
        };
        assert_eq!(written(FileSystem::Ext4, 4 << 40), (true, None));
        assert_eq!(written(FileSystem::Ext4, 100 << 40), (false, Some("noinit_itable")));
        // ext3 has no checksums in its group descriptors, so it can't mark unwritten tables.
        assert_eq!(written(FileSystem::Ext3, 8 << 40), (true, None));
    }

    #[test]
    fn the_uuid_follows_the_seed_and_has_the_standard_form() {
        let uuid = uuid_of(1);
        assert_eq!(uuid, uuid_of(1));
        assert_ne!(uuid, uuid_of(2));
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert!("89ab".contains(&uuid[19..20]));
    }
}
