//! The files that requests belong to, on ext2 to ext4: debugfs finds them in the contents at the end of the recording.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use chronodisk_guest::FileSystem;
use chronodisk_sim::SECTOR_BYTES;

/// Blocks of the file system that are looked up; the owners of further ones stay unknown.
const BLOCKS_MAX: usize = 2000;
/// Paths of programs that only root has, which a user's `PATH` may lack.
const PROGRAMS: &str = "/usr/sbin:/sbin:/usr/bin:/bin";
/// The inode of the journal (`Documentation/filesystems/ext4/special_inodes.rst`).
const JOURNAL_INODE: u64 = 8;

/// Owners of blocks of a file system.
#[derive(Debug, Default)]
pub(super) struct Owners {
    block_sectors: u64,
    names: BTreeMap<u64, String>,
}

impl Owners {
    /// Finds the owners of ranges of sectors. Nothing is known on another file system, or without debugfs.
    pub fn find(file_system: FileSystem, image: &Path, ranges: &[Range<u64>]) -> Self {
        let is_ext = matches!(file_system, FileSystem::Ext2 | FileSystem::Ext3 | FileSystem::Ext4);
        let Some(block_sectors) = block_sectors(image).filter(|_| is_ext) else { return Owners::default() };
        let blocks = ranges.iter().flat_map(|range| range.start / block_sectors..range.end.div_ceil(block_sectors));
        let blocks: BTreeSet<u64> = blocks.take(BLOCKS_MAX).collect();
        let inodes = numbers(&debugfs(image, "icheck", &blocks));
        let paths = debugfs(image, "ncheck", &inodes.values().copied().collect());
        let paths: BTreeMap<u64, &str> = pairs(&paths).collect();
        let name = |inode: u64| match (inode, paths.get(&inode)) {
            (JOURNAL_INODE, _) => "the journal".to_owned(),
            // debugfs prints two slashes before names in the root.
            (_, Some(path)) => format!("/{}", path.trim_start_matches('/')),
            (inode, None) => format!("inode {inode}"),
        };
        Owners { block_sectors, names: inodes.into_iter().map(|(block, inode)| (block, name(inode))).collect() }
    }

    /// The files of a range of sectors.
    pub fn of(&self, range: Range<u64>) -> Vec<String> {
        if self.block_sectors == 0 {
            return Vec::new();
        }
        let blocks = range.start / self.block_sectors..range.end.div_ceil(self.block_sectors);
        let names: BTreeSet<&String> = self.names.range(blocks).map(|(_, name)| name).collect();
        names.into_iter().cloned().collect()
    }
}

/// Sectors of a block, from the superblock at byte 1,024: its magic is at 0x38, the size of a block at 0x18.
fn block_sectors(image: &Path) -> Option<u64> {
    let mut superblock = [0; 64];
    File::open(image).and_then(|file| file.read_exact_at(&mut superblock, 1024)).ok()?;
    let is_ext = superblock[0x38..0x3a] == 0xef53_u16.to_le_bytes();
    let shift = u32::from_le_bytes(superblock[0x18..0x1c].try_into().ok()?);
    (is_ext && shift <= 6).then(|| (1024 << shift) / SECTOR_BYTES)
}

/// The output of debugfs; empty if it fails.
fn debugfs(image: &Path, request: &str, numbers: &BTreeSet<u64>) -> String {
    if numbers.is_empty() {
        return String::new();
    }
    let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("debugfs")
        .args(["-R", &format!("{request} {}", words.join(" "))])
        .arg(image)
        .env("PATH", format!("{path}:{PROGRAMS}"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Lines of a number, a tab and a text; the heading and other lines are skipped.
fn pairs(output: &str) -> impl Iterator<Item = (u64, &str)> {
    output.lines().filter_map(|line| {
        let (number, text) = line.split_once('\t')?;
        Some((number.trim().parse().ok()?, text.trim()))
    })
}

fn numbers(output: &str) -> BTreeMap<u64, u64> {
    pairs(output).filter_map(|(number, text)| Some((number, text.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_debugfs_is_read() {
        let icheck = "Block\tInode number\n1\t12\n20\t8\n30\t<block not found>\n";
        assert_eq!(numbers(icheck), BTreeMap::from([(1, 12), (20, 8)]));
        let ncheck = "Inode\tPathname\n12\t/a folder/file\n";
        assert_eq!(pairs(ncheck).collect::<Vec<_>>(), [(12, "/a folder/file")]);
    }

    #[test]
    fn ranges_have_the_names_of_their_blocks() {
        let names = BTreeMap::from([(1, "/a".to_owned()), (2, "/a".to_owned()), (4, "/b".to_owned())]);
        let owners = Owners { block_sectors: 8, names };
        assert_eq!(owners.of(8..24), ["/a"]);
        assert_eq!(owners.of(20..33), ["/a", "/b"]);
        assert!(Owners::default().of(0..8).is_empty());
    }
}
