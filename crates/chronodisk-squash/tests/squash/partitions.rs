//! File systems in partitions and on mirrors are found at their offset.

use std::fs;
use std::path::{Path, PathBuf};

use chronodisk_store::Store;

use super::btrfsprogs::{self, btrfsprogs_are_here};
use super::e2fsprogs::{self, e2fsprogs_are_here};
use super::export::export;
use super::replay::{Order, PIECE_BYTES, Pieces, is_kept_whole, orders_of_parts, pieces_of, replay};
use super::xfsprogs::{self, xfsprogs_are_here};
use super::{btrfs_image, ext4_image, xfs_image};

const SECTOR_BYTES: u64 = 512;

/// A partition: first sector and number of sectors.
type SectorRange = (u64, u64);

/// An MBR with partitions of Linux's type, or with the single entry that protects a GPT.
fn mbr(places: &[SectorRange], kind: u8) -> Vec<u8> {
    let mut sector = vec![0; SECTOR_BYTES as usize];
    for (&(start, len), entry) in places.iter().zip(sector[446..510].chunks_exact_mut(16)) {
        entry[4] = kind;
        entry[8..12].copy_from_slice(&(start as u32).to_le_bytes());
        entry[12..].copy_from_slice(&(len as u32).to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    sector
}

/// A GPT of 128 entries (UEFI Specification 2.10, section 5.3), with its protective MBR before it.
pub fn gpt(places: &[SectorRange], capacity_bytes: u64) -> Vec<u8> {
    const ENTRY_BYTES: usize = 128;
    let sectors = capacity_bytes / SECTOR_BYTES;
    let mut entries = vec![0; 128 * ENTRY_BYTES];
    for (&(start, len), entry) in places.iter().zip(entries.chunks_exact_mut(ENTRY_BYTES)) {
        // The partition's type and UUID only need to differ from zero.
        entry[..32].fill(0x5A);
        entry[32..40].copy_from_slice(&start.to_le_bytes());
        entry[40..48].copy_from_slice(&(start + len - 1).to_le_bytes());
    }
    let mut header = vec![0; SECTOR_BYTES as usize];
    header[..8].copy_from_slice(b"EFI PART");
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(8, &0x1_0000u32.to_le_bytes());
    put(12, &92u32.to_le_bytes());
    for (at, number) in [(24, 1), (32, sectors - 1), (40, 34), (48, sectors - 34), (72, 2)] {
        put(at, &number.to_le_bytes());
    }
    put(80, &128u32.to_le_bytes());
    put(84, &(ENTRY_BYTES as u32).to_le_bytes());
    put(88, &crc32(&entries).to_le_bytes());
    let checksum = crc32(&header[..92]);
    header[16..20].copy_from_slice(&checksum.to_le_bytes());
    [mbr(&[(1, sectors - 1)], 0xEE), header, entries].concat()
}

/// CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    !crc32_from(!0, bytes)
}

/// Continues a CRC-32 from `seed`, without the final inversion.
pub fn crc32_from(seed: u32, bytes: &[u8]) -> u32 {
    let mut crc = seed;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    crc
}

/// The first 8 KiB of a member of a Linux md array (metadata version 1.2) whose data are in this range.
fn md_member((start, len): SectorRange, level: i32) -> Vec<u8> {
    const ROLES: u32 = 129;
    let mut superblock = vec![0; 4096];
    let mut put = |at: usize, bytes: &[u8]| superblock[at..at + bytes.len()].copy_from_slice(bytes);
    for (at, number) in [(0, 0xA92B_4EFC), (4, 1), (72, level as u32), (92, 2), (220, ROLES)] {
        put(at, &number.to_le_bytes());
    }
    for (at, number) in [(80, len), (128, start), (136, len), (144, 8)] {
        put(at, &number.to_le_bytes());
    }
    superblock[16..64].fill(0xA7);
    superblock[256 + 2 * 128..][..2].fill(0xFE);
    let signed = &superblock[..256 + 2 * ROLES as usize];
    let words = signed.chunks(4).map(|word| word.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte)));
    let sum: u64 = words.sum();
    let checksum = (sum as u32).wrapping_add((sum >> 32) as u32);
    superblock[216..220].copy_from_slice(&checksum.to_le_bytes());
    [vec![0; 4096], superblock].concat()
}

/// The pieces of a device with this partition table, and with images of file systems from these sectors on.
fn disk(table: &[u8], parts: &[(u64, &Path)]) -> Pieces {
    let mut table = table.to_vec();
    table.resize(table.len().next_multiple_of(PIECE_BYTES), 0);
    let chunks = table.chunks(PIECE_BYTES).zip((0..).step_by(PIECE_BYTES));
    let mut pieces: Pieces = chunks.map(|(chunk, at)| (at, chunk.to_vec())).collect();
    for &(start, part) in parts {
        pieces.extend(pieces_of(part).into_iter().map(|(at, bytes)| (start * SECTOR_BYTES + at, bytes)));
    }
    pieces
}

/// Extracts a partition of a store into a file.
fn extract(store: &mut dyn Store, start: u64, like: &Path) -> PathBuf {
    let (whole, part) = (like.with_extension("whole"), like.with_extension("part"));
    export(store, &whole);
    let len_bytes = fs::metadata(like).unwrap().len();
    let bytes = fs::read(&whole).unwrap();
    let from = (start * SECTOR_BYTES) as usize;
    fs::write(&part, &bytes[from..from + len_bytes as usize]).unwrap();
    fs::remove_file(whole).unwrap();
    part
}

#[test]
fn each_partition_has_its_file_system() {
    if !e2fsprogs_are_here() || !xfsprogs_are_here() {
        return;
    }
    let (first, second) = (ext4_image::make(&["-t", "ext4"], 24 << 20), xfs_image::make(&[]));
    let starts = [2048, 2048 + (24 << 11)];
    let capacity_bytes = (2 << 20) + (24 << 20) + xfs_image::CAPACITY_BYTES;
    let table = gpt(&[(starts[0], 24 << 11), (starts[1], xfs_image::CAPACITY_BYTES / SECTOR_BYTES)], capacity_bytes);
    let pieces = disk(&table, &[(starts[0], &first.path), (starts[1], &second.path)]);
    for &order in orders_of_parts() {
        let mut store = replay(pieces.clone(), capacity_bytes, order, 7);
        let statistics = store.squash_statistics();
        let squashed = extract(&mut store, starts[0], &first.path);
        e2fsprogs::compare_files(&first.path, &squashed, &format!("{order:?}"));
        let squashed = extract(&mut store, starts[1], &second.path);
        xfsprogs::compare_files(&second.path, &squashed, &format!("{order:?}"));
        let data_bytes = first.data_bytes / 2 + second.data_bytes * 9 / 10;
        assert!(statistics.generated_bytes > data_bytes, "{order:?}: {statistics:?}");
        let mut read = vec![0; table.len()];
        store.read(0, &mut read).unwrap();
        assert!(read == table, "{order:?}");
    }
}

#[test]
fn mirrors_of_md_are_understood_and_other_arrays_are_not() {
    if !e2fsprogs_are_here() {
        return;
    }
    let image = ext4_image::make(&["-t", "ext4"], 24 << 20);
    let (start, capacity_bytes) = (2048, 26 << 20);
    let place = (start, 24 << 11);
    let mut store = replay(disk(&md_member(place, 1), &[(start, &image.path)]), capacity_bytes, Order::Shuffled, 5);
    let squashed = extract(&mut store, start, &image.path);
    e2fsprogs::compare_files(&image.path, &squashed, "a mirror");
    let statistics = store.squash_statistics();
    assert!(statistics.generated_bytes > image.data_bytes / 2, "{statistics:?}");
    let reason = "an array that is no mirror (level 0)";
    is_kept_whole(disk(&md_member(place, 0), &[(start, &image.path)]), capacity_bytes, reason);
    // A damaged superblock is ignored.
    let mut damaged = md_member(place, 0);
    damaged[4096 + 80] ^= 1;
    is_kept_whole(disk(&damaged, &[(start, &image.path)]), capacity_bytes, "no file system that is known");
}

#[test]
fn addresses_of_btrfs_count_from_its_partition() {
    if !btrfsprogs_are_here() {
        return;
    }
    let (image, start) = (btrfs_image::make(&[]), 4096);
    let len = btrfs_image::CAPACITY_BYTES / SECTOR_BYTES;
    let pieces = disk(&mbr(&[(start, len)], 0x83), &[(start, &image.path)]);
    let mut store = replay(pieces, (start + len) * SECTOR_BYTES, Order::Shuffled, 5);
    let squashed = extract(&mut store, start, &image.path);
    btrfsprogs::compare_files(&image.path, &squashed, "btrfs in a partition");
    let statistics = store.squash_statistics();
    assert!(statistics.generated_bytes > image.data_bytes * 9 / 10, "{statistics:?}");
}

#[test]
fn a_partition_that_begins_within_a_block_is_kept_whole() {
    if !e2fsprogs_are_here() {
        return;
    }
    let image = ext4_image::make(&["-t", "ext4"], 24 << 20);
    let pieces = disk(&mbr(&[(63, 24 << 11)], 0x83), &[(63, &image.path)]);
    is_kept_whole(pieces, 32 << 20, "within a block");
}

#[test]
fn a_table_beside_a_file_system_means_that_everything_is_kept() {
    if !e2fsprogs_are_here() {
        return;
    }
    let image = ext4_image::make(&["-t", "ext4"], 24 << 20);
    let mut pieces = pieces_of(&image.path);
    pieces[0].1[..SECTOR_BYTES as usize].copy_from_slice(&mbr(&[(2048, 4096)], 0x83));
    is_kept_whole(pieces, 24 << 20, "partition table");
}
