//! The content of a store before a run: a file system that can be mounted, or something that must not be overwritten
//! accidentally.
//!
//! Only the beginning is examined, where file systems, volumes and partition tables have their signatures. Other
//! content without a signature counts as something, too.

use std::path::Path;

use chronodisk_store::Store;

use crate::shared::control::BackendSpec;
use crate::shared::device_options::{DeviceOptions, ModelChoice, StoreChoice};
use crate::shared::filesystem::FileSystem;

/// Content of a store, by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    /// A file system that a guest can mount.
    FileSystem(FileSystem),
    Other(&'static str),
}

/// Up to the superblock of btrfs and its end.
const PROBED_BYTES: u64 = 128 << 10;

/// Whether a device's bytes may have existed before this run. Otherwise an open store need not be read.
pub(crate) fn is_there(device: &DeviceOptions) -> bool {
    path_of(device).is_some_and(Path::exists) || matches!(device.model, ModelChoice::Server { .. })
}

fn path_of(device: &DeviceOptions) -> Option<&Path> {
    match &device.store {
        StoreChoice::Ram { .. } | StoreChoice::Overlay { .. } => None,
        StoreChoice::File { path } => Some(path),
        StoreChoice::Squashed { image, .. } => image.as_deref(),
    }
}

/// A device's bytes before the run.
pub(crate) struct Place<'a> {
    pub device: &'a DeviceOptions,
    pub store: &'a mut dyn Store,
    pub is_there: bool,
    /// Size of its zones, if it has some.
    pub zone_bytes: Option<u64>,
}

/// The file system to be mounted: the one to be made, unless that would destroy data, or the existing one.
pub(crate) fn file_system(
    places: &mut [Place<'_>],
    spec: &BackendSpec,
) -> Result<FileSystem, Box<dyn std::error::Error>> {
    let conventional = places.iter().position(|place| place.zone_bytes.is_none());
    let found = of_place(places.first_mut().ok_or("a guest has a device")?, spec);
    match (spec.file_system, conventional) {
        (FileSystem::F2fs | FileSystem::Existing, Some(second)) if second > 0 => {
            let on_second = of_place(&mut places[second], spec);
            match (spec.file_system, on_second) {
                (FileSystem::Existing, Ok(FileSystem::F2fs)) => Ok(FileSystem::F2fs),
                (FileSystem::Existing, _) => found,
                (_, on_second) => found.and(on_second),
            }
        }
        _ => found,
    }
}

fn of_place(place: &mut Place<'_>, spec: &BackendSpec) -> Result<FileSystem, Box<dyn std::error::Error>> {
    let Place { device, store, is_there, zone_bytes } = place;
    let wanted = spec.file_system;
    let makes = wanted != FileSystem::Existing;
    if wanted == FileSystem::None || makes && spec.overwrite {
        return Ok(wanted);
    }
    let held = match (*is_there, *zone_bytes) {
        (false, _) => Held::Nothing,
        (true, None) => held_by(*store)?,
        (true, Some(zone_bytes)) => held_by_zones(*store, zone_bytes)?,
    };
    let place = path_of(device).map_or("the device".to_owned(), |path| path.display().to_string());
    Ok(match held {
        Held::Nothing if makes => wanted,
        Held::FileSystem(found) if !makes => found,
        Held::Nothing => return Err(format!("{place} holds no file system that --fs existing could mount").into()),
        Held::Other(what) if !makes => {
            let kinds = "ext2, ext3, ext4, XFS, btrfs and F2FS";
            return Err(format!("{place} holds {what}; --fs existing mounts {kinds} alone").into());
        }
        Held::FileSystem(found) => {
            let instead = "mount it with --fs existing, or replace it with --overwrite";
            return Err(format!("{place} holds a file system ({found}); {instead}").into());
        }
        Held::Other(what) => {
            return Err(format!("{place} holds {what}; replace it with --overwrite, or use it with --fs none").into());
        }
    })
}

fn held_by(store: &mut dyn Store) -> Result<Held, chronodisk_store::StoreError> {
    let mut beginning = vec![0; PROBED_BYTES.min(store.capacity_bytes()) as usize];
    store.read(0, &mut beginning)?;
    Ok(look(&beginning))
}

/// A zoned device. Its file systems can't overwrite a superblock in its place: btrfs writes them one after the other
/// into the first two zones, one of them empty at times (`fs/btrfs/zoned.c`).
fn held_by_zones(store: &mut dyn Store, zone_bytes: u64) -> Result<Held, chronodisk_store::StoreError> {
    const SUPERBLOCK_BYTES: u64 = 4096;
    for zone in [0, 1] {
        let offset_bytes = zone * zone_bytes;
        if offset_bytes + SUPERBLOCK_BYTES > store.capacity_bytes() {
            break;
        }
        let mut block = [0; SUPERBLOCK_BYTES as usize];
        store.read(offset_bytes, &mut block)?;
        if let Some(found) = zoned_superblock(&block) {
            return Ok(Held::FileSystem(found));
        }
    }
    held_by(store)
}

fn zoned_superblock(block: &[u8]) -> Option<FileSystem> {
    let has = |at: usize, bytes: &[u8]| block.get(at..).is_some_and(|rest| rest.starts_with(bytes));
    match (has(0x40, b"_BHRfS_M"), has(0, b"SFOZ")) {
        (true, _) => Some(FileSystem::Btrfs),
        (_, true) => Some(FileSystem::Zonefs),
        _ => None,
    }
}

/// A signature, with its place and meaning.
struct Mark {
    at: usize,
    bytes: &'static [u8],
    of: Held,
}

const fn mark(at: usize, bytes: &'static [u8], what: &'static str) -> Mark {
    Mark { at, bytes, of: Held::Other(what) }
}

/// Signatures as in libblkid (`libblkid/src/superblocks` of util-linux).
const MARKS: [Mark; 23] = [
    Mark { at: 0, bytes: b"XFSB", of: Held::FileSystem(FileSystem::Xfs) },
    Mark { at: 0x1_0040, bytes: b"_BHRfS_M", of: Held::FileSystem(FileSystem::Btrfs) },
    Mark { at: 1024, bytes: &[0x10, 0x20, 0xf5, 0xf2], of: Held::FileSystem(FileSystem::F2fs) },
    mark(1024, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS file system"),
    mark(1030, &[0x34, 0x34], "a NILFS2 file system"),
    mark(4120, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca], "a bcachefs file system"),
    mark(32_768, b"JFS1", "a JFS file system"),
    mark(65_588, b"ReIsEr", "a ReiserFS file system"),
    mark(32_769, b"CD001", "an ISO 9660 file system"),
    mark(0, b"hsqs", "a squashfs file system"),
    mark(3, b"NTFS    ", "an NTFS file system"),
    mark(3, b"EXFAT   ", "an exFAT file system"),
    mark(82, b"FAT32   ", "a FAT file system"),
    mark(54, b"FAT16   ", "a FAT file system"),
    mark(54, b"FAT12   ", "a FAT file system"),
    mark(4086, b"SWAPSPACE2", "swap space"),
    mark(512, b"LABELONE", "a physical volume of LVM"),
    mark(0, b"LUKS\xba\xbe", "a LUKS volume"),
    mark(0, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of an md array"),
    mark(4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of an md array"),
    mark(512, b"EFI PART", "a partition table (GPT)"),
    mark(4096, b"EFI PART", "a partition table (GPT)"),
    mark(0, b"CDSQUASH", "a squashed image, which wants --squash"),
];

fn look(beginning: &[u8]) -> Held {
    if let Some(found) = ext(beginning) {
        return Held::FileSystem(found);
    }
    let found = MARKS.iter().find(|mark| beginning.get(mark.at..).is_some_and(|rest| rest.starts_with(mark.bytes)));
    match found {
        Some(mark) => mark.of,
        None if has_partitions(beginning) => Held::Other("a partition table (MBR)"),
        None if beginning.iter().all(|&byte| byte == 0) => Held::Nothing,
        None => Held::Other("bytes of no known kind"),
    }
}

/// The superblock of ext2, ext3 and ext4, which differ by their features
/// (kernel documentation, `filesystems/ext4/super.rst`).
fn ext(beginning: &[u8]) -> Option<FileSystem> {
    const SUPERBLOCK: usize = 1024;
    const HAS_JOURNAL: u32 = 0x4;
    // Filetype, recovery and meta block groups; sparse superblocks, large files, trees of directories.
    const INCOMPATIBLE_OF_EXT3: u32 = 0x2 | 0x4 | 0x10;
    const READ_ONLY_OF_EXT3: u32 = 0x1 | 0x2 | 0x4;
    let superblock = beginning.get(SUPERBLOCK..SUPERBLOCK + 1024)?;
    if superblock[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    let word = |at: usize| u32::from_le_bytes(superblock[at..at + 4].try_into().expect("four bytes"));
    let (compatible, incompatible, read_only) = (word(0x5c), word(0x60), word(0x64));
    Some(match compatible & HAS_JOURNAL != 0 {
        _ if incompatible & !INCOMPATIBLE_OF_EXT3 != 0 || read_only & !READ_ONLY_OF_EXT3 != 0 => FileSystem::Ext4,
        true => FileSystem::Ext3,
        false => FileSystem::Ext2,
    })
}

/// Whether there is a master boot record with an entry.
fn has_partitions(beginning: &[u8]) -> bool {
    const ENTRIES: std::ops::Range<usize> = 446..510;
    beginning.get(510..512) == Some(&[0x55, 0xaa]) && beginning[ENTRIES].iter().any(|&byte| byte != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_all_kinds_are_found() {
        for mark in &MARKS {
            let mut bytes = vec![0; PROBED_BYTES as usize];
            bytes[mark.at..mark.at + mark.bytes.len()].copy_from_slice(mark.bytes);
            assert_eq!(look(&bytes), mark.of);
            // A store that ends before the mark does not hold it.
            assert_ne!(look(&bytes[..mark.at + mark.bytes.len() - 1]), mark.of);
        }
        let mut bytes = vec![0; PROBED_BYTES as usize];
        assert_eq!((look(&bytes), look(&[])), (Held::Nothing, Held::Nothing));
        bytes[77_777] = 1;
        assert_eq!(look(&bytes), Held::Other("bytes of no known kind"));
        bytes[446] = 0x80;
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(look(&bytes), Held::Other("a partition table (MBR)"));
    }

    #[test]
    fn superblocks_of_zoned_devices_are_found() {
        let mut block = [0; 4096];
        assert_eq!(zoned_superblock(&block), None);
        block[0x40..0x48].copy_from_slice(b"_BHRfS_M");
        assert_eq!(zoned_superblock(&block), Some(FileSystem::Btrfs));
        assert_eq!(zoned_superblock(b"SFOZ"), Some(FileSystem::Zonefs));
        let mut store = chronodisk_store::RamStore::new(1 << 20, 1 << 20);
        assert_eq!(held_by_zones(&mut store, 256 << 10).unwrap(), Held::Nothing);
        Store::write(&mut store, 256 << 10, &block).unwrap();
        assert_eq!(held_by_zones(&mut store, 256 << 10).unwrap(), Held::FileSystem(FileSystem::Btrfs));
    }

    #[test]
    fn file_systems_as_their_makers_make_them_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        for made in FileSystem::ALL {
            let Some((program, package)) = made.maker() else { continue };
            let path = folder.path().join(made.name());
            std::fs::File::create(&path).unwrap().set_len(512 << 20).unwrap();
            let arguments = made.maker_arguments(1, path.to_str().unwrap(), 512 << 20, &[]);
            let maker =
                std::process::Command::new(program).args(arguments).env("PATH", "/usr/sbin:/sbin:/usr/bin").output();
            let Ok(output) = maker else {
                println!("SKIPPED: no {program} (Debian: apt-get install {package})");
                continue;
            };
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let mut beginning = vec![0; PROBED_BYTES as usize];
            std::io::Read::read_exact(&mut std::fs::File::open(&path).unwrap(), &mut beginning).unwrap();
            assert_eq!(look(&beginning), Held::FileSystem(made));
        }
    }
}
