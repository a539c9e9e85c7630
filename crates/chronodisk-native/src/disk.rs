//! The disk that a path of this host is on.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::error::NativeError;

/// A whole disk of this host with request statistics in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    name: String,
}

impl Disk {
    /// The disk below the file, directory or block device at this path: the whole disk of a partition, or the only disk
    /// below LVM and LUKS.
    ///
    /// # Errors
    /// [`NativeError::Unsuitable`] for a path on no disk, or on several; [`NativeError::System`] if the path does not
    /// exist.
    pub fn under(path: &Path) -> Result<Disk, NativeError> {
        let metadata = fs::metadata(path)
            .map_err(|source| NativeError::System { doing: format!("looking for {}", path.display()), source })?;
        let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        let sys = Sys(Path::new("/sys"));
        if major(number) != 0 {
            return sys.disk_of_number(path, major(number), minor(number));
        }
        // File systems with numbers of their own: some have disks below.
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        match mount_of(&mounts, &whole) {
            Some((kind, source)) if kind == "btrfs" => sys.disk_of_btrfs(path, &source),
            Some((kind, _)) => Err(unsuitable(path, &format!("{kind} is on no disk of this host"))),
            None => Err(unsuitable(path, "its file system is on no disk of this host")),
        }
    }

    /// Path of the disk's node.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        // The kernel writes a slash of a name as an exclamation mark.
        Path::new("/dev").join(self.name.replace('!', "/"))
    }
}

fn unsuitable(path: &Path, why: &str) -> NativeError {
    NativeError::Unsuitable {
        what: format!("{}: {why}", path.display()),
        help: "name a file, a directory or a block device on a disk of this host, or emulate one with --device".into(),
    }
}

/// `/sys`, or a test's substitute.
struct Sys<'a>(&'a Path);

/// Devices that may lie on each other.
const LAYERS_MAX: usize = 16;

impl Sys<'_> {
    fn disk_of_number(&self, path: &Path, major: u32, minor: u32) -> Result<Disk, NativeError> {
        let place = self.0.join(format!("dev/block/{major}:{minor}"));
        self.disk_at(path, &place)
    }

    fn disk_at(&self, path: &Path, place: &Path) -> Result<Disk, NativeError> {
        let unknown = || unsuitable(path, &format!("there is no {}", place.display()));
        let mut folder = fs::canonicalize(place).map_err(|_| unknown())?;
        for _ in 0..LAYERS_MAX {
            if folder.join("partition").exists() {
                folder = folder.parent().ok_or_else(unknown)?.to_owned();
            }
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).ok_or_else(unknown)?;
            let below: Vec<_> =
                fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            match &below[..] {
                [] if name.starts_with("dm-") || name.starts_with("md") => {
                    let why = format!("/dev/{name} reports no requests, and no disk is below it");
                    return Err(NativeError::HostLacks {
                        what: format!("{}: {why}", path.display()),
                        help: HELP.into(),
                    });
                }
                [] => return Ok(Disk { name }),
                [one] => folder = fs::canonicalize(one).map_err(|_| unknown())?,
                several => {
                    let why = format!("/dev/{name} reports no requests, and is on {} disks", several.len());
                    return Err(NativeError::HostLacks {
                        what: format!("{}: {why}", path.display()),
                        help: HELP.into(),
                    });
                }
            }
        }
        Err(unknown())
    }

    fn disk_of_btrfs(&self, path: &Path, source: &str) -> Result<Disk, NativeError> {
        let name = Path::new(source).canonicalize().unwrap_or_else(|_| source.into());
        let name = name.file_name().unwrap_or_default().to_owned();
        let volumes = fs::read_dir(self.0.join("fs/btrfs")).into_iter().flatten().flatten();
        for devices in volumes.map(|volume| volume.path().join("devices")) {
            if devices.join(&name).exists() {
                let count = fs::read_dir(&devices).into_iter().flatten().count();
                if count > 1 {
                    return Err(unsuitable(path, &format!("its btrfs is on {count} disks")));
                }
            }
        }
        self.disk_at(path, &self.0.join("class/block").join(name))
    }
}

const HELP: &str = "name a path on a plain disk, or emulate one with --device";

/// Kind and source of the mount that this path is in, by `/proc/self/mountinfo`.
fn mount_of(mounts: &str, path: &Path) -> Option<(String, String)> {
    let mut best: Option<(usize, (String, String))> = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (Some(point), mut right) = (left.split(' ').nth(4), right.split(' ')) else { continue };
        let (Some(kind), Some(source)) = (right.next(), right.next()) else { continue };
        let point = point.replace("\\040", " ");
        // A later mount at the same place hides the earlier one.
        if path.starts_with(&point) && best.as_ref().is_none_or(|(length, _)| point.len() >= *length) {
            best = Some((point.len(), (kind.to_owned(), source.to_owned())));
        }
    }
    best.map(|(_, mount)| mount)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A `/sys` with a partition of sda, dm-0 on it, md0 on sda and sdb, and dm-1 on nothing.
    fn sys() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let make = |path: &str| fs::create_dir_all(folder.path().join(path)).unwrap();
        let link = |from: &str, to: &str| symlink(folder.path().join(to), folder.path().join(from)).unwrap();
        let folders =
            ["dev/block", "class/block", "d/sda/sda1", "d/sdb", "d/dm-0/slaves", "d/dm-1/slaves", "d/md0/slaves"];
        folders.into_iter().for_each(make);
        fs::write(folder.path().join("d/sda/sda1/partition"), "1").unwrap();
        let numbers = [("8:0", "sda"), ("8:1", "sda/sda1"), ("253:0", "dm-0"), ("253:1", "dm-1"), ("9:0", "md0")];
        for (number, device) in numbers {
            link(&format!("dev/block/{number}"), &format!("d/{device}"));
        }
        link("class/block/sda1", "d/sda/sda1");
        link("d/dm-0/slaves/sda1", "d/sda/sda1");
        link("d/md0/slaves/sda", "d/sda");
        link("d/md0/slaves/sdb", "d/sdb");
        folder
    }

    #[test]
    fn a_disk_is_found_below_partitions_and_mapped_devices() {
        let folder = sys();
        let disk = |major, minor| Sys(folder.path()).disk_of_number(Path::new("/x"), major, minor);
        for (major, minor) in [(8, 0), (8, 1), (253, 0)] {
            assert_eq!(disk(major, minor).unwrap().path(), Path::new("/dev/sda"));
        }
        assert!(disk(9, 0).unwrap_err().to_string().contains("on 2 disks"));
        assert!(disk(253, 1).unwrap_err().to_string().contains("no disk is below it"));
        assert!(matches!(disk(7, 7), Err(NativeError::Unsuitable { .. })));
    }

    #[test]
    fn a_btrfs_must_be_on_one_disk() {
        let folder = sys();
        let volume = folder.path().join("fs/btrfs/uuid/devices");
        fs::create_dir_all(volume.join("sda1")).unwrap();
        let disk = || Sys(folder.path()).disk_of_btrfs(Path::new("/x"), "/dev/no-such/sda1");
        assert_eq!(disk().unwrap().path(), Path::new("/dev/sda"));
        fs::create_dir_all(volume.join("sdb")).unwrap();
        assert!(disk().unwrap_err().to_string().contains("on 2 disks"));
    }

    #[test]
    fn the_innermost_and_latest_mount_counts() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /tmp rw shared:1 - tmpfs tmpfs rw\n\
            3 1 0:6 / /a\\040b rw - btrfs /dev/sdb rw\n4 1 0:7 / /tmp rw - overlay overlay rw\nnonsense\n";
        let kind = |path: &str| mount_of(mounts, Path::new(path)).map(|(kind, _)| kind);
        assert_eq!(kind("/home/x").as_deref(), Some("ext4"));
        assert_eq!(kind("/tmp/x").as_deref(), Some("overlay"));
        assert_eq!(kind("/a b/x").as_deref(), Some("btrfs"));
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn files_without_a_disk_are_refused() {
        let error = Disk::under(Path::new("/proc/self/stat")).unwrap_err();
        assert!(error.to_string().contains("proc is on no disk"), "{error}");
    }
}
