//! XFS on a device whose superblock is a small one's but for what the input changes in it, with the right checksum:
//! as `squash_ext4` otherwise.
//!
//! The input's first bytes are combined with the superblock's by exclusive or; a list of records follows. The lowest
//! bits of the first of all change nothing else: if it is odd, files are made up by their names, and some are kept
//! unless the next bit is there, too.
//!
//! Before the list is played, its bytes are the operations of a record in the log, with the right checksum, behind one
//! that says that the file system was unmounted.
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
    let unmount = [0, 0, 0, 1, 0, 0, 0, 8, 0xAA, 0x20, 0, 0, b'n', b'U', 0, 0, 0, 0, 0, 0];
    twin.change(3, LOG_AT_BYTES, &record(0, 1, &unmount));
    let operations = records.first().map_or(0, |&count| u32::from(count));
    twin.change(3, LOG_AT_BYTES + 2 * SECTOR_BYTES as u64, &record(2, operations, &records[..records.len().min(4096)]));
    twin.change(2, 0, &[]);
    twin.play(records);
    twin.check();
});

const SECTOR_BYTES: usize = 512;
/// The log of the superblock below.
const LOG_AT_BYTES: u64 = (2 * 512 + 8) * 4096;

/// A record of the log that begins at a sector of it, in the first round.
fn record(sector: u64, operations: u32, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    payload.resize(payload.len().next_multiple_of(SECTOR_BYTES).max(SECTOR_BYTES), 0);
    let mut header = vec![0; SECTOR_BYTES];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xFE, 0xED, 0xBA, 0xBE, 0, 0, 0, 1, 0, 0, 0, 2]);
    put(12, &(payload.len() as u32).to_be_bytes());
    put(16, &(1 << 32 | sector).to_be_bytes());
    put(24, &(1u64 << 32).to_be_bytes());
    put(40, &operations.to_be_bytes());
    put(300, &1u32.to_be_bytes());
    put(320, &(32u32 << 10).to_be_bytes());
    for (index, sector) in payload.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        header[44 + 4 * index..48 + 4 * index].copy_from_slice(&sector[..4]);
        sector[..4].copy_from_slice(&[0, 0, 0, 1]);
    }
    let sum = crc32c::crc32c_append(crc32c::crc32c(&header[..328]), &payload);
    header[32..36].copy_from_slice(&sum.to_le_bytes());
    [header, payload].concat()
}

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
