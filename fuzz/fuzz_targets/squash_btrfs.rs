//! btrfs on a device whose superblock and nodes are a small one's but for what the input changes in them, with the
//! right checksums: the classifier stays within its bounds, and every sector reads as it was written, or as made up
//! with the same checksum.
//!
//! The input begins with what is combined, by exclusive or, with the superblock and each node; a list of records
//! follows, see [`squash::Twin::play`]. The lowest bits of the first byte change nothing else: if it is odd, files are
//! made up by their names, and some are kept unless the next bit is there, too. With the third bit there is a log tree.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod squash;

const SECTOR_BYTES: usize = 4096;
const SUPERBLOCK_AT: u64 = 64 << 10;
/// Bytes that the input changes of each: those that are not zero, and some more.
const CHANGED_BYTES: usize = 320;
const SYSTEM_CHUNKS_AT: usize = 811;
const UUID: [u8; 16] = [0x5A; 16];
const GENERATION: u64 = 7;

/// Chunks: logical address, place, length and type.
const SYSTEM: [u64; 4] = [1 << 20, 1 << 20, 64 << 10, 2];
const NODES: [u64; 4] = [2 << 20, 2 << 20, 1 << 20, 4];
const DATA: [u64; 4] = [8 << 20, 4 << 20, 4 << 20, 1];

const CHUNK_TREE: u64 = SYSTEM[0];
const ROOT_TREE: u64 = NODES[0];
const CHECKSUM_TREE: u64 = ROOT_TREE + SECTOR_BYTES as u64;
const FREE_SPACE_TREE: u64 = CHECKSUM_TREE + SECTOR_BYTES as u64;
const FILES: u64 = FREE_SPACE_TREE + SECTOR_BYTES as u64;
const LOG_ROOTS: u64 = FILES + SECTOR_BYTES as u64;
const LOG: u64 = LOG_ROOTS + SECTOR_BYTES as u64;
const LOG_OWNER: u64 = -6i64 as u64;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    let choice = input.first().map_or(0, |byte| byte & 3);
    let by_name = choice & 1 == 1;
    let has_log = input.first().is_some_and(|byte| byte & 4 != 0);
    let mut twin = squash::Twin::by_choice(choice);
    let chunk_items = [SYSTEM, NODES, DATA].map(|chunk| ((256, 228, chunk[0]), chunk_item(chunk)));
    let root_items = [(5, FILES), (7, CHECKSUM_TREE), (10, FREE_SPACE_TREE)];
    let root_items = &root_items[usize::from(!by_name)..];
    let root_item_of = |&(tree, logical): &(u64, u64)| ((tree, 132, 0), root_item(logical, GENERATION));
    let root_items: Vec<_> = root_items.iter().map(root_item_of).collect();
    let checksum_items = [((-10i64 as u64, 128, DATA[0]), vec![0x11; 256])];
    let free = (NODES[2] - 3 * SECTOR_BYTES as u64, FREE_SPACE_TREE + SECTOR_BYTES as u64);
    let free_items = [((free.1, 199, free.0), vec![]), ((DATA[0], 200, DATA[2]), vec![0xF0; 128])];
    let file_items = [
        ((256, 12, 256), name("..")),
        ((257, 12, 256), name("folder")),
        ((258, 1, 0), inode(60 << 10)),
        ((258, 12, 257), name("file")),
        ((258, 108, 0), extent(DATA[0], 64 << 10)),
        ((259, 1, 0), inode(36 << 10)),
        ((259, 12, 256), name("a.db")),
        ((259, 108, 4096), extent(DATA[0] + (128 << 10), 32 << 10)),
    ];
    let trees = [
        (CHUNK_TREE, 3, &chunk_items[..]),
        (ROOT_TREE, 1, &root_items[..]),
        (CHECKSUM_TREE, 7, &checksum_items[..]),
        (FREE_SPACE_TREE, 10, &free_items[..]),
        (FILES, 5, &file_items[..]),
    ];
    for &(logical, owner, items) in &trees[..trees.len() - usize::from(!by_name)] {
        // Nodes lie where their addresses say.
        twin.change(3, logical, &signed(leaf(logical, owner, GENERATION, items), &mut rest));
    }
    if has_log {
        let log_roots = [((LOG_OWNER, 132, 5), root_item(LOG, GENERATION + 1))];
        let log_items = [
            ((256, 84, 9), entry(260, "b.db")),
            ((259, 12, 257), name("folder")),
            ((259, 108, 65536), extent(DATA[0] + (160 << 10), 16 << 10)),
            ((260, 1, 0), inode(32 << 10)),
            ((260, 13, 7), [&257u64.to_le_bytes()[..], &name("file")].concat()),
            ((260, 108, 0), extent(DATA[0] + (192 << 10), 32 << 10)),
        ];
        for (logical, items) in [(LOG, &log_items[..]), (LOG_ROOTS, &log_roots[..])] {
            twin.change(3, logical, &signed(leaf(logical, LOG_OWNER, GENERATION + 1, items), &mut rest));
        }
    }
    twin.change(3, SUPERBLOCK_AT, &signed(superblock(has_log), &mut rest));
    twin.play(rest);
    twin.check();
});

/// Changes a sector by the input's next bytes, and gives it its checksum.
fn signed(mut sector: Vec<u8>, input: &mut &[u8]) -> Vec<u8> {
    let (changes, rest) = input.split_at(input.len().min(CHANGED_BYTES));
    *input = rest;
    sector.iter_mut().zip(changes).for_each(|(byte, change)| *byte ^= change);
    let checksum = crc32c::crc32c(&sector[32..]);
    sector[..4].copy_from_slice(&checksum.to_le_bytes());
    sector
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}

fn superblock(has_log: bool) -> Vec<u8> {
    let mut sector = vec![0; SECTOR_BYTES];
    put(&mut sector, 32, &UUID);
    put(&mut sector, 64, b"_BHRfS_M");
    let system = [key((256, 228, SYSTEM[0])), chunk_item(SYSTEM)].concat();
    let numbers = [
        (48, SUPERBLOCK_AT),
        (72, GENERATION),
        (80, ROOT_TREE),
        (88, CHUNK_TREE),
        (96, if has_log { LOG_ROOTS } else { 0 }),
        (112, squash::CAPACITY_BYTES),
        (136, 1),
        (164, GENERATION),
        (180, 3),
        (188, 0x341),
        (201, 1),
        (209, squash::CAPACITY_BYTES),
    ];
    numbers.iter().for_each(|(at, number)| put(&mut sector, *at, &number.to_le_bytes()));
    for (at, number) in [(144, 4096), (148, 4096), (160, system.len() as u32)] {
        put(&mut sector, at, &number.to_le_bytes());
    }
    put(&mut sector, SYSTEM_CHUNKS_AT, &system);
    sector
}

type Key = (u64, u8, u64);

fn key((object, kind, offset): Key) -> Vec<u8> {
    [&object.to_le_bytes()[..], &[kind], &offset.to_le_bytes()].concat()
}

fn leaf(logical: u64, owner: u64, generation: u64, items: &[(Key, Vec<u8>)]) -> Vec<u8> {
    const HEADER_BYTES: usize = 101;
    let mut node = vec![0; SECTOR_BYTES];
    put(&mut node, 32, &UUID);
    for (at, number) in [(48, logical), (80, generation), (88, owner)] {
        put(&mut node, at, &number.to_le_bytes());
    }
    put(&mut node, 96, &(items.len() as u32).to_le_bytes());
    // Headers from the front, data close behind them, so that the input's changes reach both.
    let mut data_at = items.len() * 25;
    for ((item_key, data), index) in items.iter().zip(0..) {
        let place = [data_at as u32, data.len() as u32].map(u32::to_le_bytes).concat();
        put(&mut node, HEADER_BYTES + index * 25, &[key(*item_key), place].concat());
        put(&mut node, HEADER_BYTES + data_at, data);
        data_at += data.len();
    }
    node
}

fn chunk_item([_, place, len_bytes, kind]: [u64; 4]) -> Vec<u8> {
    let numbers = [len_bytes, 2, 64 << 10, kind].map(u64::to_le_bytes).concat();
    let sizes = [4096u32, 4096, 4096].map(u32::to_le_bytes).concat();
    let copy = [1, place, 0, 0].map(u64::to_le_bytes).concat();
    [numbers, sizes, vec![1, 0, 1, 0], copy].concat()
}

fn name(name: &str) -> Vec<u8> {
    [&1u64.to_le_bytes()[..], &(name.len() as u16).to_le_bytes(), name.as_bytes()].concat()
}

/// A name in a folder, of this inode.
fn entry(inode: u64, name: &str) -> Vec<u8> {
    let head = [&key((inode, 1, 0))[..], &GENERATION.to_le_bytes(), &[0, 0], &(name.len() as u16).to_le_bytes(), &[1]];
    [&head.concat(), name.as_bytes()].concat()
}

fn extent(logical: u64, len_bytes: u64) -> Vec<u8> {
    let mut item = vec![0; 53];
    item[20] = 1;
    for (at, number) in [(0, GENERATION), (8, len_bytes), (21, logical), (29, len_bytes), (45, len_bytes)] {
        put(&mut item, at, &number.to_le_bytes());
    }
    item
}

fn inode(len_bytes: u64) -> Vec<u8> {
    [GENERATION, GENERATION, len_bytes].map(u64::to_le_bytes).concat()
}

fn root_item(logical: u64, generation: u64) -> Vec<u8> {
    let mut item = vec![0; 239];
    put(&mut item, 160, &generation.to_le_bytes());
    put(&mut item, 176, &logical.to_le_bytes());
    item
}
