//! Snapshots: the metadata of a file system as it is, in a sparse image, in place of a new file system.
//!
//! A snapshot is an image of the whole device whose data blocks are holes. `e2image` makes it of ext2 to ext4,
//! `xfs_metadump` and `xfs_mdrestore` of XFS. Each repetition begins with a copy of its own.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// A file system with snapshot support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ext2, ext3 or ext4.
    Ext,
    /// XFS.
    Xfs,
}

impl Kind {
    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Ext => "ext2 to ext4",
            Kind::Xfs => "XFS",
        }
    }
}

/// Content of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemFound {
    /// Kind of the file system.
    pub kind: Kind,
    /// UUID of the file system.
    pub uuid: String,
    /// Size of the file system in bytes.
    pub bytes: u64,
}

/// End of the last superblock: btrfs's is at 64 KiB.
const HEAD_BYTES: usize = 69_632;

/// Reads the superblock of a device, an image or a snapshot.
pub fn examine(path: &Path) -> Result<FileSystemFound, Failure> {
    let shown = path.display();
    let unreadable = |error: io::Error| Failure::usage(format!("{shown}: can't read: {error}"));
    let mut head = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(unreadable)?;
    head.resize(HEAD_BYTES, 0);
    superblock(&head).map_err(|what| {
        Failure::usage(format!("{shown}: {what}"))
            .help("snapshots are of ext2, ext3, ext4 and XFS, without a partition table")
    })
}

fn superblock(head: &[u8]) -> Result<FileSystemFound, String> {
    let little = |at: usize, bytes: usize| {
        head[at..at + bytes].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte))
    };
    let big =
        |at: usize, bytes: usize| head[at..at + bytes].iter().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    if &head[0x1_0040..0x1_0048] == b"_BHRfS_M" {
        return Err("btrfs can't be put into a snapshot: its checksums need the data".to_owned());
    }
    if &head[..4] == b"XFSB" {
        let bytes = big(4, 4).checked_mul(big(8, 8)).ok_or("the XFS superblock is damaged")?;
        return Ok(FileSystemFound { kind: Kind::Xfs, uuid: uuid(&head[32..48]), bytes });
    }
    if little(1024 + 0x38, 2) == 0xef53 {
        let block =
            1024u64.checked_shl(little(1024 + 0x18, 4) as u32).filter(|&block| (1024..=65_536).contains(&block));
        // The upper half counts with the feature `64bit` only.
        let has_upper = little(1024 + 0x60, 4) & 0x80 != 0;
        let upper = if has_upper { little(1024 + 0x150, 4) } else { 0 };
        let blocks = little(1024 + 0x4, 4) | upper << 32;
        let bytes = block.and_then(|block| blocks.checked_mul(block)).ok_or("the ext superblock is damaged")?;
        return Ok(FileSystemFound { kind: Kind::Ext, uuid: uuid(&head[1024 + 0x68..1024 + 0x78]), bytes });
    }
    Err("no file system that is known".to_owned())
}

fn uuid(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Makes a snapshot of an unmounted device or image; on an error, no file is left behind.
pub fn make(source: &Path, output: &Path) -> Result<FileSystemFound, Failure> {
    let found = examine(source)?;
    if is_mounted(source) {
        return Err(Failure::usage(format!("{} is mounted: its metadata are not all there", source.display()))
            .help("unmount it, or take the snapshot of a snapshot of the volume"));
    }
    let partial = beside(output);
    let done = match found.kind {
        Kind::Ext => tool("e2image", "e2fsprogs", &[&"-r", &source, &partial]),
        Kind::Xfs => {
            let dump = with_end(&partial, ".metadump");
            let done = tool("xfs_metadump", "xfsprogs", &[&"-o", &source, &dump])
                .and_then(|()| tool("xfs_mdrestore", "xfsprogs", &[&dump, &partial]));
            let _ = fs::remove_file(&dump);
            done
        }
    };
    let done = done.and_then(|()| {
        let cannot = |error: io::Error| Failure::host(format!("{}: can't write: {error}", output.display()));
        // The image ends with the file system, even if its last blocks are holes.
        let file = OpenOptions::new().write(true).open(&partial).map_err(cannot)?;
        file.set_len(found.bytes).and_then(|()| file.sync_all()).map_err(cannot)?;
        fs::rename(&partial, output).map_err(cannot)
    });
    if done.is_err() {
        let _ = fs::remove_file(&partial);
    }
    done.map(|()| found)
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn beside(path: &Path) -> PathBuf {
    with_end(path, &format!(".partial-{}", std::process::id()))
}

/// Whether a block device, or a loop device of this image, is mounted.
fn is_mounted(source: &Path) -> bool {
    let Ok(metadata) = fs::metadata(source) else { return false };
    let real = fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let numbers: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    if metadata.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        return numbers.contains(&format!("{major}:{minor}").as_str());
    }
    numbers.iter().any(|number| {
        let backing = fs::read_to_string(format!("/sys/dev/block/{number}/loop/backing_file"));
        backing.is_ok_and(|backing| Path::new(backing.trim_end()) == real)
    })
}

/// UUID of the file system mounted at this directory; `None` if none is mounted, or its device is unreadable.
pub fn uuid_of_mount(point: &str) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // A later mount at the same place hides the earlier one.
    let mounted = mounts.lines().rev().find(|line| line.split(' ').nth(4) == Some(&point.replace(' ', "\\040")))?;
    let source = mounted.split_once(" - ")?.1.split(' ').nth(1)?;
    examine(Path::new(source)).ok().map(|found| found.uuid)
}

/// Runs a tool of the file system.
fn tool(name: &str, package: &str, words: &[&dyn AsRef<OsStr>]) -> Result<(), Failure> {
    // The tools are in /sbin, which is not on every user's PATH.
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    let output = Command::new(name)
        .args(words.iter().map(|word| AsRef::<OsStr>::as_ref(*word)))
        .env("PATH", path)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Failure::host(format!("{name} failed with {}: {}", output.status, said.trim())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::host(format!("there is no {name} here")).help(format!("Debian: apt-get install {package}")))
        }
        Err(error) => Err(Failure::host(format!("{name}: {error}"))),
    }
}

/// A guest's own copy of a snapshot, which is deleted when this is dropped.
#[derive(Debug)]
pub struct Copy {
    source: PathBuf,
    path: PathBuf,
    capacity_bytes: u64,
}

impl Copy {
    /// Checks that the snapshot fits on a device of this capacity.
    pub fn new(source: &Path, capacity_bytes: u64, folder: &Path) -> Result<Self, Failure> {
        let found = examine(source)?;
        let shown = source.display();
        if found.bytes > capacity_bytes {
            return Err(Failure::usage(format!(
                "--snapshot {shown}: its file system has {} bytes, and the device only {capacity_bytes}",
                found.bytes
            ))
            .help("--capacity sets another capacity"));
        }
        let path = folder.join(format!("chronodisk-snapshot-{}.img", std::process::id()));
        Ok(Copy { source: source.to_owned(), path, capacity_bytes })
    }

    /// Path of the copy.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the copy again.
    pub fn refresh(&self) -> Result<(), Failure> {
        let _ = fs::remove_file(&self.path);
        copy_sparse(&self.source, &self.path, self.capacity_bytes).map_err(|error| {
            Failure::host(format!("{}: can't copy {}: {error}", self.path.display(), self.source.display()))
                .help("TMPDIR names a directory with more space")
        })
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Copies the data, without holes, to a file of `to_bytes` bytes.
fn copy_sparse(from: &Path, to: &Path, to_bytes: u64) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut target = OpenOptions::new().write(true).create_new(true).open(to)?;
    let length = source.metadata()?.len().min(to_bytes);
    target.set_len(to_bytes)?;
    let mut at = 0;
    loop {
        let data = match rustix::fs::seek(&source, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(&source, rustix::fs::SeekFrom::Hole(data))?.min(length);
        source.seek(SeekFrom::Start(data))?;
        target.seek(SeekFrom::Start(data))?;
        io::copy(&mut (&mut source).take(end.saturating_sub(data)), &mut target)?;
        target.flush()?;
        if end >= length {
            return Ok(());
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_say_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let made = |words: &[&str]| {
            File::create(&image).unwrap().set_len(400 << 20).unwrap();
            let mut path = std::env::var_os("PATH").unwrap_or_default();
            path.push(":/usr/sbin:/sbin");
            let made = Command::new(words[0]).args(&words[1..]).arg(&image).env("PATH", path).output();
            made.is_ok_and(|output| output.status.success())
        };
        let id = "6d0f4a3e-7a5c-4c1e-9d7b-0a1b2c3d4e5f";
        for (words, kind, bytes) in [
            (vec!["mkfs.ext4", "-q", "-F", "-U", id], Kind::Ext, 400u64 << 20),
            (vec!["mkfs.ext2", "-q", "-F", "-b", "1024", "-U", id], Kind::Ext, 400 << 20),
            (vec!["mkfs.xfs", "-q", "-f", "-m", &format!("uuid={id}")], Kind::Xfs, 400 << 20),
        ] {
            if !made(&words) {
                println!("SKIPPED: no {} here", words[0]);
                continue;
            }
            assert_eq!(examine(&image).unwrap(), FileSystemFound { kind, uuid: id.to_owned(), bytes }, "{words:?}");
        }
        if made(&["mkfs.btrfs", "-q", "-f"]) {
            assert!(examine(&image).unwrap_err().to_string().contains("checksums need the data"));
        }
        fs::write(&image, "nothing").unwrap();
        assert!(examine(&image).unwrap_err().to_string().contains("no file system"));
    }

    #[test]
    fn any_head_is_read_without_a_panic() {
        let mut head = vec![0xff; HEAD_BYTES];
        assert!(superblock(&head).is_err());
        head[1024 + 0x38] = 0x53;
        head[1024 + 0x39] = 0xef;
        assert!(superblock(&head).unwrap_err().contains("damaged"));
        head[..4].copy_from_slice(b"XFSB");
        assert!(superblock(&head).unwrap_err().contains("damaged"));
    }

    #[test]
    fn copies_keep_their_holes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let mut file = File::create(&from).unwrap();
        file.set_len(64 << 20).unwrap();
        for at in [0, 5 << 20, (64 << 20) - 100] {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(&[7; 100]).unwrap();
        }
        copy_sparse(&from, &to, 65 << 20).unwrap();
        let expected = [fs::read(&from).unwrap(), vec![0; 1 << 20]].concat();
        assert!(expected == fs::read(&to).unwrap());
        assert!(fs::metadata(&to).unwrap().blocks() * 512 < 1 << 20);
    }
}
