//! Stores that are closed while btrfs has a log, as after a death. Contents that the log assigns to files to be kept
//! are kept, contents of other files are dropped, and the rest stays until two commits have not claimed it.
//!
//! These tests make the logs node by node (Linux, `include/uapi/linux/btrfs_tree.h`). Guests make real ones in the
//! tests of durability.

use std::fs::File;

use chronodisk_squash::{Class, NameRule, SquashOptions, SquashStore, Treatment};
use chronodisk_store::Store;
use tempfile::TempDir;

use super::btrfs_image::CAPACITY_BYTES;
use super::btrfsprogs::{btrfsprogs_are_here, tool};
use super::export::image_folder;
use super::replay::pieces_of;

const NODE_BYTES: usize = 16 << 10;
const SUPERBLOCK_AT: u64 = 64 << 10;
/// In the first data chunk, whose logical addresses equal the device's.
const DATA_AT: u64 = 18 << 20;
const CONTENTS_BYTES: usize = 64 << 10;
const LOG: u64 = 6u64.wrapping_neg();
const FILES: u64 = 5;
const ROOT: u64 = 256;

type Key = (u64, u8, u64);
type Items = Vec<(Key, Vec<u8>)>;

/// A file system made by mkfs.btrfs in an image, and free places for logs.
struct Made {
    folder: TempDir,
    store: Option<SquashStore>,
    uuid: Vec<u8>,
    generation: u64,
    /// Logical address and place of the last node; all nodes behind it are free.
    last_node: (u64, u64),
    nodes: u64,
}

fn options(patterns: &[&str]) -> SquashOptions {
    let rule = |pattern: &&str| NameRule { names: pattern.parse().unwrap(), treatment: Treatment::Keep };
    SquashOptions { names: patterns.iter().map(rule).collect(), ..SquashOptions::default() }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}

fn sign(bytes: &mut [u8]) {
    let sum = crc32c::crc32c(&bytes[32..]);
    put(bytes, 0, &sum.to_le_bytes());
}

/// Bytes without any resemblance to metadata, different for each seed.
fn contents(seed: usize) -> Vec<u8> {
    (0..CONTENTS_BYTES).map(|i| 0x80 | (i / 4096 * 31 + i * 7 % 127 + seed) as u8).collect()
}

fn place(index: usize) -> u64 {
    DATA_AT + (index * CONTENTS_BYTES) as u64
}

fn reference(name: &str) -> Vec<u8> {
    [&2u64.to_le_bytes()[..], &(name.len() as u16).to_le_bytes(), name.as_bytes()].concat()
}

fn entry(inode: u64, name: &str) -> Vec<u8> {
    let head = [&key((inode, 1, 0))[..], &9u64.to_le_bytes(), &[0, 0], &(name.len() as u16).to_le_bytes(), &[1]];
    [&head.concat(), name.as_bytes()].concat()
}

/// The item of the extent at the place with this index.
fn extent(index: usize) -> Vec<u8> {
    let mut item = vec![0; 53];
    item[20] = 1;
    let len_bytes = CONTENTS_BYTES as u64;
    for (at, number) in [(0, 9), (8, len_bytes), (21, place(index)), (29, len_bytes), (45, len_bytes)] {
        put(&mut item, at, &number.to_le_bytes());
    }
    item
}

/// A file in a log: its inode, its name in a folder, and its contents.
fn file(inode: u64, folder: u64, name: &str, index: usize) -> Items {
    vec![((inode, 1, 0), vec![0; 160]), ((inode, 12, folder), reference(name)), ((inode, 108, 0), extent(index))]
}

fn key((object, kind, offset): Key) -> Vec<u8> {
    [&object.to_le_bytes()[..], &[kind], &offset.to_le_bytes()].concat()
}

impl Made {
    fn new(options: &SquashOptions) -> Self {
        let folder = image_folder();
        let path = folder.path().join("full");
        File::create(&path).unwrap().set_len(CAPACITY_BYTES).unwrap();
        let made = tool("mkfs.btrfs", &["-q", "-f", "-m", "single", path.to_str().unwrap()]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut store = SquashStore::create(folder.path().join("image"), CAPACITY_BYTES, options).unwrap();
        let pieces = pieces_of(&path);
        pieces.iter().for_each(|(at, bytes)| store.write(*at, bytes).unwrap());
        store.flush().unwrap();
        let superblock = &pieces[0].1;
        let uuid = superblock[32..48].to_vec();
        let is_node =
            |bytes: &[u8]| bytes[32..48] == uuid[..] && bytes[64..72] != *b"_BHRfS_M" && number(bytes, 88) != 3;
        let nodes = pieces.iter().skip(1).filter(|(_, bytes)| is_node(bytes));
        let last_node = nodes.map(|(at, bytes)| (number(bytes, 48), *at)).max().unwrap();
        let generation = number(superblock, 72);
        Made { folder, store: Some(store), uuid, generation, last_node, nodes: 0 }
    }

    fn store(&mut self) -> &mut SquashStore {
        self.store.as_mut().unwrap()
    }

    fn read(&mut self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.store().read(at, &mut bytes).unwrap();
        bytes
    }

    /// For each of the contents, whether they read back as written.
    fn there(&mut self, count: usize) -> Vec<bool> {
        (0..count).map(|index| self.read(place(index), CONTENTS_BYTES) == contents(index)).collect()
    }

    fn write_contents(&mut self, count: usize) {
        for index in 0..count {
            self.store().write(place(index), &contents(index)).unwrap();
        }
    }

    /// Writes a node of the log and returns its address.
    fn node(&mut self, level: u8, count: usize, body: &[u8]) -> u64 {
        self.nodes += 1;
        let step = self.nodes * NODE_BYTES as u64;
        let (logical, at) = (self.last_node.0 + step, self.last_node.1 + step);
        let mut node = vec![0; NODE_BYTES];
        put(&mut node, 32, &self.uuid);
        for (at, number) in [(48, logical), (80, self.generation + 1), (88, LOG), (96, count as u64)] {
            put(&mut node, at, &number.to_le_bytes());
        }
        node[100] = level;
        put(&mut node, 101, body);
        sign(&mut node);
        self.store().write(at, &node).unwrap();
        logical
    }

    fn leaf(&mut self, items: &[(Key, Vec<u8>)]) -> u64 {
        let mut body = vec![0; NODE_BYTES - 101];
        let mut end = body.len();
        for (index, (item_key, data)) in items.iter().enumerate() {
            end -= data.len();
            let head = [key(*item_key), [end as u32, data.len() as u32].map(u32::to_le_bytes).concat()].concat();
            put(&mut body, index * 25, &head);
            put(&mut body, end, data);
        }
        self.node(0, items.len(), &body)
    }

    /// Writes a tree with these leaves. Returns the address and the level of its root.
    fn tree(&mut self, leaves: &[Items]) -> (u64, u8) {
        let generation = self.generation + 1;
        let addresses: Vec<u64> = leaves.iter().map(|items| self.leaf(items)).collect();
        if let [only] = addresses[..] {
            return (only, 0);
        }
        let pointer = |(items, address): (&Items, &u64)| {
            [key(items[0].0), address.to_le_bytes().to_vec(), generation.to_le_bytes().to_vec()].concat()
        };
        let body: Vec<u8> = leaves.iter().zip(&addresses).flat_map(pointer).collect();
        (self.node(1, leaves.len(), &body), 1)
    }

    /// Writes logs of trees, and the superblock that names them, as a synchronisation does.
    fn synchronise(&mut self, logs: &[(u64, Vec<Items>)]) {
        let mut roots = Items::new();
        for (tree, leaves) in logs {
            let (address, level) = self.tree(leaves);
            let mut item = vec![0; 439];
            put(&mut item, 160, &(self.generation + 1).to_le_bytes());
            put(&mut item, 176, &address.to_le_bytes());
            item[238] = level;
            roots.push(((LOG, 132, *tree), item));
        }
        let (root, level) = self.tree(&[roots]);
        self.store().flush().unwrap();
        self.write_superblock(root, level);
    }

    fn write_superblock(&mut self, log: u64, level: u8) {
        let mut superblock = self.read(SUPERBLOCK_AT, 4096);
        put(&mut superblock, 72, &self.generation.to_le_bytes());
        put(&mut superblock, 96, &log.to_le_bytes());
        superblock[200] = level;
        sign(&mut superblock);
        self.store().write(SUPERBLOCK_AT, &superblock).unwrap();
        self.store().flush().unwrap();
    }

    /// Ends a transaction in which nothing changed.
    fn commit(&mut self) {
        self.generation += 1;
        let root = number(&self.read(SUPERBLOCK_AT, 4096), 80);
        let at = root + self.last_node.1 - self.last_node.0;
        let mut node = self.read(at, NODE_BYTES);
        put(&mut node, 80, &self.generation.to_le_bytes());
        sign(&mut node);
        self.store().write(at, &node).unwrap();
        self.write_superblock(0, 0);
    }

    fn reopen(&mut self, options: &SquashOptions) {
        self.store().close().unwrap();
        self.open_again(options);
    }

    fn open_again(&mut self, options: &SquashOptions) {
        self.store = None;
        self.store = Some(SquashStore::open(self.folder.path().join("image"), CAPACITY_BYTES, options).unwrap());
    }

    fn bytes_of(&mut self, class: Class) -> u64 {
        let kept = self.store().squash_statistics().kept_bytes;
        kept.iter().find(|kept| kept.0 == class).map_or(0, |kept| kept.1)
    }
}

/// A log with a file to be kept, another file, and contents without a file.
#[test]
fn what_a_log_says_counts_when_the_store_is_closed() {
    if !btrfsprogs_are_here() {
        return;
    }
    let keep = options(&["*.db"]);
    let mut made = Made::new(&keep);
    made.write_contents(3);
    made.synchronise(&[(FILES, vec![[file(257, ROOT, "a.db", 0), file(258, ROOT, "a.dat", 1)].concat()])]);
    made.store().close().unwrap();
    assert_eq!(made.there(3), [true, false, true]);
    let notices = made.store().notices();
    assert!(
        notices
            .iter()
            .any(|notice| notice.contains("not unmounted") && notice.contains(" 65536 bytes that no file has")),
        "{notices:?}"
    );
    for rules in [&keep, &options(&[]), &keep] {
        made.reopen(rules);
        assert!(made.there(1)[0], "{rules:?}");
    }
    assert_eq!(made.bytes_of(Class::Raw), CONTENTS_BYTES as u64);
}

#[test]
fn contents_that_no_file_has_go_after_two_commits() {
    if !btrfsprogs_are_here() {
        return;
    }
    let keep = options(&["*"]);
    let mut made = Made::new(&keep);
    made.commit();
    made.write_contents(40);
    made.store().flush().unwrap();
    // A kernel dies while it writes a large file, twice.
    made.reopen(&keep);
    made.reopen(&keep);
    assert_eq!(made.there(40), [true; 40]);
    made.commit();
    assert_eq!(made.there(40), [true; 40], "they may be of the next commit");
    made.commit();
    assert_eq!(made.there(40), [false; 40]);
    // After an unmount no block waits.
    made.write_contents(5);
    made.commit();
    made.store().close().unwrap();
    assert_eq!(made.there(5), [false; 5]);
    assert!(made.store().notices().iter().all(|notice| !notice.contains("not unmounted")));
}

#[test]
fn logs_are_read_whatever_their_shape() {
    if !btrfsprogs_are_here() {
        return;
    }
    let folder = |inode, name| vec![((inode, 1, 0), vec![0; 160]), ((inode, 12, ROOT), reference(name))];
    let mut by_entry = file(258, 300, "", 0);
    by_entry.remove(1);
    let many: Vec<Items> = (0..5)
        .map(|leaf| (0..8).flat_map(|at| file(300 + leaf * 8 + at, ROOT, "a", (leaf * 8 + at) as usize)).collect())
        .collect();
    let mut extended = file(258, ROOT, "", 0);
    let name = [&300u64.to_le_bytes()[..], &2u64.to_le_bytes(), &4u16.to_le_bytes(), b"b.db"].concat();
    extended[1] = ((258, 13, 7), name);
    let two_names = vec![((258, 12, ROOT), [reference("x"), reference("c.db")].concat()), ((258, 108, 0), extent(0))];
    for (what, patterns, leaves, count) in [
        (
            "a folder that is new, too",
            &["/folder/*"][..],
            vec![[file(258, 300, "x", 0), folder(300, "folder")].concat()],
            1,
        ),
        (
            "a name in a folder alone",
            &["/folder/b.db"],
            vec![[by_entry, folder(300, "folder"), vec![((300, 96, 2), entry(258, "b.db"))]].concat()],
            1,
        ),
        ("two levels", &["a"], many, 40),
        ("a name that is elsewhere", &["b.db"], vec![extended], 1),
        ("a second name in the same folder", &["*.db"], vec![two_names], 1),
        ("a folder without a name may be any", &["/folder/*"], vec![file(258, 300, "x", 0)], 1),
    ] {
        let keep = options(patterns);
        let mut made = Made::new(&keep);
        made.write_contents(count);
        made.synchronise(&[(FILES, leaves)]);
        made.reopen(&keep);
        assert_eq!(made.there(count), vec![true; count], "{what}");
        // Kept contents stay kept in a run without rules.
        made.reopen(&options(&[]));
        assert_eq!(made.there(count), vec![!what.contains("may be any"); count], "{what}");
    }
}

/// The store is dropped without being closed, as by a kill of its process.
#[test]
fn a_store_that_was_not_closed_reads_the_log_when_it_is_opened() {
    if !btrfsprogs_are_here() {
        return;
    }
    let keep = options(&["*.db"]);
    let mut made = Made::new(&keep);
    made.write_contents(2);
    made.synchronise(&[(FILES, vec![[file(257, ROOT, "a.db", 0), file(258, ROOT, "a.dat", 1)].concat()])]);
    let store = made.store.take().unwrap();
    let copy = made.folder.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for name in ["image", "image.map", "image.sums"] {
        std::fs::copy(made.folder.path().join(name), copy.join(name)).unwrap();
    }
    drop(store);
    made.store = Some(SquashStore::open(copy.join("image"), CAPACITY_BYTES, &keep).unwrap());
    assert_eq!(made.there(2), [true, false]);
    assert_eq!(made.bytes_of(Class::Raw), CONTENTS_BYTES as u64);
}

#[test]
fn nothing_is_dropped_if_a_log_can_not_be_read() {
    if !btrfsprogs_are_here() {
        return;
    }
    let keep = options(&["*.db"]);
    let one = || vec![file(257, ROOT, "a.dat", 0)];
    for (what, logs) in [
        ("a tree that is not there", vec![(FILES, one()), (300, one())]),
        ("a tree that holds no files", vec![(FILES, one()), (7, one())]),
        ("keys that do not ascend", vec![(FILES, vec![[file(258, ROOT, "b", 0), file(257, ROOT, "a", 0)].concat()])]),
    ] {
        let mut made = Made::new(&keep);
        made.write_contents(1);
        made.synchronise(&logs);
        made.reopen(&keep);
        assert_eq!(made.there(1), [true], "{what}");
    }
    let mut made = Made::new(&keep);
    made.write_contents(1);
    made.synchronise(&[(FILES, one())]);
    let at = made.last_node.1 + NODE_BYTES as u64 + 2000;
    made.store().write(at, &[0x5A]).unwrap();
    made.reopen(&keep);
    assert_eq!(made.there(1), [true], "a checksum that is wrong");
}
