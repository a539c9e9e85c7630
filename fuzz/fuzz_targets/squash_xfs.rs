//! XFS on a device whose superblock is a small one's but for what the input changes in it, with the right checksum:
//! as `squash_ext4` otherwise.
//!
//! The input's first bytes are combined with the superblock's by exclusive or; a list of records follows. The lowest
//! bits of the first of all change nothing else: if it is odd, files are made up by their names, and some are kept
//! unless the next bit is there, too.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod squash;

/// Of `struct xfs_dsb`, as far as it is changed: without its last field.
const CHANGED_BYTES: usize = 264;
const CHECKSUM_AT: usize = 224;

fuzz_target!(|input: &[u8]| {
    let choice = input.first().map_or(0, |byte| byte & 3);
    let (changes, records) = input.split_at(input.len().min(CHANGED_BYTES));
    let mut sector = superblock();
    sector.iter_mut().zip(changes).for_each(|(byte, change)| *byte ^= change);
    sector[0] ^= choice;
    sector[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let checksum = crc32c::crc32c(&sector);
    sector[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    let mut twin = squash::Twin::by_choice(choice);
    twin.change(3, 0, &sector);
    twin.play(records);
    twin.check();
});

/// 2,048 blocks of 4 KiB in four groups, with a log of 256 blocks in the third.
fn superblock() -> Vec<u8> {
    let mut sector = vec![0; 512];
    let mut put = |at: usize, bytes: &[u8]| sector[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"XFSB");
    put(4, &4096u32.to_be_bytes());
    put(8, &2048u64.to_be_bytes());
    put(32, &[0x5A; 16]);
    put(48, &(2u64 << 9 | 8).to_be_bytes());
    put(56, &128u64.to_be_bytes());
    put(84, &512u32.to_be_bytes());
    put(88, &4u32.to_be_bytes());
    put(96, &256u32.to_be_bytes());
    put(100, &0xB4A5u16.to_be_bytes());
    put(102, &512u16.to_be_bytes());
    put(104, &512u16.to_be_bytes());
    put(123, &[3, 9]);
    put(219, &[1]);
    sector
}
