//! F2FS on a device whose superblock and checkpoint are small ones but for what the input changes in them, with the
//! right checksums: as `squash_ext4` otherwise.
//!
//! The input's first bytes are combined with the superblock's by exclusive or, the next ones with the checkpoint's; a
//! list of records follows.
#![no_main]

use chronodisk_squash::SquashOptions;
use libfuzzer_sys::fuzz_target;

mod squash;

/// Room for the tables and a segment of the main area.
const CAPACITY_BYTES: u64 = 12 << 20;

/// Of `struct f2fs_super_block`, as far as it is changed: sizes and areas.
const SUPERBLOCK_CHANGED_BYTES: usize = 108;
/// Of `struct f2fs_checkpoint`: all but its bitmaps.
const CHECKPOINT_CHANGED_BYTES: usize = 192;
const BLOCK_BYTES: usize = 4096;
const MAGIC: u32 = 0xF2F5_2010;
/// Where the checkpoint is, and its blocks: itself, three summaries, and itself again.
const CHECKPOINT_BLOCK: u64 = 2;
const CHECKPOINT_BLOCKS: u32 = 5;
const CHECKSUM_AT: usize = 4092;

fuzz_target!(|input: &[u8]| {
    let (changes, rest) = input.split_at(input.len().min(SUPERBLOCK_CHANGED_BYTES));
    let mut superblock = superblock();
    superblock[1024..].iter_mut().zip(changes).for_each(|(byte, change)| *byte ^= change);
    let (changes, records) = rest.split_at(rest.len().min(CHECKPOINT_CHANGED_BYTES));
    let mut checkpoint = checkpoint();
    checkpoint.iter_mut().zip(changes).for_each(|(byte, change)| *byte ^= change);
    let checksum = checksum(&checkpoint[..CHECKSUM_AT]);
    checkpoint[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    let mut twin = squash::Twin::of_capacity(CAPACITY_BYTES, &SquashOptions::default());
    twin.change(3, 0, &superblock);
    for block in [0, u64::from(CHECKPOINT_BLOCKS) - 1] {
        twin.change(3, (CHECKPOINT_BLOCK + block) * BLOCK_BYTES as u64, &checkpoint);
    }
    twin.play(records);
    // Whatever the records were, the checkpoint is there again, and says what they are.
    for block in [0, u64::from(CHECKPOINT_BLOCKS) - 1] {
        twin.change(3, (CHECKPOINT_BLOCK + block) * BLOCK_BYTES as u64, &checkpoint);
    }
    twin.change(2, 0, &[]);
    twin.check();
});

/// CRC-32 that begins with the magic number and is not inverted.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(MAGIC, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ if sum & 1 == 0 { 0 } else { 0xEDB8_8320 })
    })
}

/// Two segments of checkpoints, two of node addresses, and one of the main area.
fn superblock() -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut put = |at: usize, number: u32| block[1024 + at..1028 + at].copy_from_slice(&number.to_le_bytes());
    put(0, MAGIC);
    put(16, 12);
    put(20, 9);
    put(36, 3072);
    for (at, segments) in [(52, 2), (56, 0), (60, 2), (64, 0), (68, 1)] {
        put(at, segments);
    }
    for (at, block) in [(76, 2), (80, 2 + 1024), (84, 2 + 1024), (88, 2 + 2048), (92, 2 + 2048)] {
        put(at, block);
    }
    block
}

fn checkpoint() -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut put = |at: usize, number: u32| block[at..at + 4].copy_from_slice(&number.to_le_bytes());
    put(0, 1);
    put(132, 1 | 4);
    put(136, CHECKPOINT_BLOCKS);
    put(140, 1);
    put(156, 64);
    put(160, 64);
    put(164, CHECKSUM_AT as u32);
    block
}
