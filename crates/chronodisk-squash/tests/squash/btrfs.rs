//! File systems made by mkfs.btrfs, replayed into a squashing store in varied orders: all metadata are there, as
//! btrfs-progs read them, the data are not, and what is read in their place passes its checksums.

use std::fs::{self, File};
use std::path::Path;

use chronodisk_squash::{Class, ContentKind, NameRule, SquashOptions, SquashStore, Treatment};
use chronodisk_store::Store;
use tempfile::TempDir;

use super::btrfs_image::{self, CAPACITY_BYTES};
use super::btrfsprogs::{btrfsprogs_are_here, compare_files, tool};
use super::export::{export, image_folder};
use super::image::is_fine;
use super::replay::{Order, PIECE_BYTES, Pieces, is_kept_whole, pieces_of, replay, replay_with};

const LAYOUTS: [(&str, &[&str]); 6] = [
    ("default", &[]),
    ("single", &["-m", "single"]),
    ("nodes-of-4k", &["-n", "4096"]),
    ("nodes-of-64k", &["-n", "65536"]),
    ("mixed", &["--mixed"]),
    ("space-cache-1", &["-R", "^free-space-tree"]),
];

#[test]
fn metadata_survive_whatever_the_order() {
    if !btrfsprogs_are_here() {
        return;
    }
    for (index, (name, options)) in LAYOUTS.iter().enumerate() {
        let image = btrfs_image::make(options);
        let pieces = pieces_of(&image.path);
        for order in Order::of_layout(index) {
            let mut store = replay(pieces.clone(), CAPACITY_BYTES, *order, index as u64);
            let what = format!("{name} {order:?}");
            let squashed = image.path.with_extension("squashed");
            export(&mut store, &squashed);
            compare_files(&image.path, &squashed, &what);
            // Reading in odd parts gives the same bytes.
            let mut whole = vec![0; 3 * PIECE_BYTES];
            for (at, _) in pieces.iter().step_by(97) {
                let at = (*at).min(CAPACITY_BYTES - whole.len() as u64);
                store.read(at, &mut whole).unwrap();
                let mut part = vec![0; 2 * PIECE_BYTES];
                store.read(at + 1000, &mut part).unwrap();
                assert!(part == whole[1000..1000 + part.len()], "{what} at {at}");
            }
            // Whatever is free at the end is dropped, and nothing else.
            store.close().unwrap();
            export(&mut store, &squashed);
            compare_files(&image.path, &squashed, &format!("{what}, closed"));
            let statistics = store.squash_statistics();
            assert!(statistics.generated_bytes > image.data_bytes * 9 / 10, "{what}: {statistics:?}");
            println!("{what}: {statistics:?}");
        }
    }
}

/// All files of an image, as btrfs-progs read them.
fn files(image: &Path) -> TempDir {
    let folder = image_folder();
    let ran = tool("btrfs", &["restore", image.to_str().unwrap(), folder.path().to_str().unwrap()]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    folder
}

#[test]
fn files_are_kept_by_their_names() {
    if !btrfsprogs_are_here() {
        return;
    }
    // One file, and 13 or 14 of them in another folder.
    let names = ["*-number-399", "/folder1/*-number-3[0-3]?"].map(|names| names.parse().unwrap());
    let names = names.map(|names| NameRule { names, treatment: Treatment::Keep }).into();
    let options = SquashOptions { content: ContentKind::Random, names, ..SquashOptions::default() };
    for (index, (name, layout)) in LAYOUTS.iter().enumerate() {
        let image = btrfs_image::make(layout);
        let order = Order::ALL[index % Order::ALL.len()];
        let mut store = replay_with(&options, pieces_of(&image.path), CAPACITY_BYTES, order, index as u64);
        store.close().unwrap();
        let what = format!("{name} {order:?}");
        let statistics = store.squash_statistics();
        let squashed = image.path.with_extension("squashed");
        export(&mut store, &squashed);
        compare_files(&image.path, &squashed, &what);
        let (full, made_up) = (files(&image.path), files(&squashed));
        let mut kept_bytes = 0;
        for number in 1..400usize {
            let name = format!("folder{}/a-rather-long-name-of-a-file-number-{number}", number % 3);
            let [full, made_up] = [&full, &made_up].map(|folder| fs::read(folder.path().join(&name)).unwrap());
            let asked_for = number == 399 || number % 3 == 1 && (300..340).contains(&number);
            // Short ones are in metadata.
            if full.len() > 4096 {
                assert_eq!(full == made_up, asked_for, "{what}: {name}");
                kept_bytes += if asked_for { full.len().next_multiple_of(4096) as u64 } else { 0 };
            }
        }
        assert_eq!(statistics.late_bytes, 0, "{what}");
        let raw = statistics.kept_bytes.iter().find(|(class, _)| *class == Class::Raw).map_or(0, |kept| kept.1);
        assert!((kept_bytes..kept_bytes + 40_000).contains(&raw), "{what}: {raw} of {kept_bytes}");
        assert!(statistics.generated_bytes > image.data_bytes * 8 / 10, "{what}: {statistics:?}");
    }
}

#[test]
fn squashed_files_have_the_kind_that_their_names_say() {
    if !btrfsprogs_are_here() {
        return;
    }
    let names = ["/folder1/*=gzip", "*-number-[23]??=pdf", "*-number-0=text"].map(|rule| rule.parse().unwrap());
    let kept = NameRule { names: "*-number-398".parse().unwrap(), treatment: Treatment::Keep };
    for (index, (name, layout)) in LAYOUTS.iter().enumerate() {
        let image = btrfs_image::make(layout);
        let order = Order::ALL[index % Order::ALL.len()];
        // Contents are dropped when they come, or wait for names.
        let also_kept = index % 2 == 1;
        let names = also_kept.then(|| kept.clone()).into_iter().chain(names.clone()).collect();
        let options = SquashOptions { content: ContentKind::Random, names, ..SquashOptions::default() };
        let mut store = replay_with(&options, pieces_of(&image.path), CAPACITY_BYTES, order, index as u64);
        store.close().unwrap();
        let what = format!("{name} {order:?}");
        let squashed = image.path.with_extension("squashed");
        export(&mut store, &squashed);
        // Checksums of contents among them.
        compare_files(&image.path, &squashed, &what);
        let (files, said) = (files(&squashed), squashed.with_extension("file"));
        let file = |number: usize| {
            let name = format!("folder{}/a-rather-long-name-of-a-file-number-{number}", number % 3);
            fs::read(files.path().join(name)).unwrap()
        };
        assert!(file(0).iter().all(|byte| byte.is_ascii_lowercase() || b" \n".contains(byte)), "{what}");
        // Short ones are in metadata, and stay as they are.
        for (number, contents) in (1..400).map(|number| (number, file(number))).filter(|(_, file)| file.len() > 4096) {
            match number {
                _ if number % 3 == 1 => is_fine("gzip", &["-t", "-S", ".file"], &contents, &said, &what),
                200.. if number % 7 == 0 => is_fine("qpdf", &["--check"], &contents, &said, &what),
                _ => {}
            }
        }
    }
}

#[test]
fn mirrors_are_understood_and_stripes_are_not() {
    if !btrfsprogs_are_here() {
        return;
    }
    for (data, nodes, reason) in
        [("raid1", "raid1", None), ("raid0", "raid1", Some("striped")), ("single", "single", Some("not on each"))]
    {
        let folder = image_folder();
        let paths = ["first", "second"].map(|name| folder.path().join(name));
        paths.iter().for_each(|path| File::create(path).unwrap().set_len(CAPACITY_BYTES).unwrap());
        let [first, second] = paths.each_ref().map(|path| path.to_str().unwrap());
        let made = tool("mkfs.btrfs", &["-q", "-f", "-d", data, "-m", nodes, first, second]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let pieces = pieces_of(&paths[1]);
        if let Some(reason) = reason {
            is_kept_whole(pieces, CAPACITY_BYTES, reason);
            continue;
        }
        let mut store = replay(pieces.clone(), CAPACITY_BYTES, Order::Shuffled, 3);
        for at in (1 << 20..CAPACITY_BYTES)
            .step_by(64 << 10)
            .filter(|at| !pieces.iter().any(|piece| piece.0 / (64 << 10) == at / (64 << 10)))
        {
            store.write(at, &[0x91; 64 << 10]).unwrap();
        }
        assert!(store.squash_statistics().generated_bytes > CAPACITY_BYTES / 2, "{:?}", store.squash_statistics());
        for (at, bytes) in pieces {
            let mut read = vec![0; bytes.len()];
            store.read(at, &mut read).unwrap();
            assert!(read == bytes, "at {at}");
        }
    }
}

#[test]
fn what_is_not_understood_is_kept_whole() {
    if !btrfsprogs_are_here() {
        return;
    }
    for (reason, options) in [("not CRC-32C", ["--csum", "xxhash"]), ("not of 4 KiB", ["--sectorsize", "16384"])] {
        let image = btrfs_image::make(&options);
        is_kept_whole(pieces_of(&image.path), CAPACITY_BYTES, reason);
    }
    let pieces = pieces_of(&btrfs_image::make(&[]).path);
    // Where `struct btrfs_super_block` has what is changed.
    for (reason, at, bytes) in [
        ("lies elsewhere", 48, &[1][..]),
        ("larger than the device", 209 + 4, &[1]),
        ("size of a node", 148, &[1]),
        ("length of the system chunks", 160, &[0, 9]),
        ("system chunks are cut off", 160, &[60]),
        ("verity", 180, &[7]),
        ("read-only features 0x40", 180, &[0x43]),
        ("zones", 188 + 1, &[0x13]),
        ("incompatible features 0x2000", 188 + 1, &[0x23]),
        ("height of a tree", 198, &[8]),
        ("striped", 811 + 17 + 24, &[0xA]),
        ("unknown kind", 811 + 17 + 24, &[0]),
        ("beyond the device", 811 + 17 + 7, &[1]),
        ("within a node", 811 + 17, &[1]),
        ("not on each", 811 + 17 + 48, &[9; 40]),
    ] {
        let mut pieces = pieces.clone();
        change_superblock(&mut pieces, at, bytes);
        is_kept_whole(pieces, CAPACITY_BYTES, reason);
    }
    let mut pieces = pieces;
    pieces[0].1[100] ^= 1;
    is_kept_whole(pieces, CAPACITY_BYTES, "checksum is wrong");
}

/// Changes the superblock, which is an image's first piece, and its checksum.
fn change_superblock(pieces: &mut Pieces, at: usize, bytes: &[u8]) {
    let superblock = &mut pieces[0].1;
    superblock[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = crc32c::crc32c(&superblock[32..]);
    superblock[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// In the first chunk of data, behind the contents of an image without files to speak of.
const DATA_AT: u64 = (13 << 20) + (5 << 20);
/// In what belongs to no chunk yet.
const FREE_AT: u64 = 160 << 20;

/// A store with an empty file system, and the image's pieces.
fn empty() -> (SquashStore, Pieces) {
    let folder = image_folder();
    let path = folder.path().join("image");
    File::create(&path).unwrap().set_len(CAPACITY_BYTES).unwrap();
    let made = tool("mkfs.btrfs", &["-q", "-f", path.to_str().unwrap()]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let pieces = pieces_of(&path);
    (replay(pieces.clone(), CAPACITY_BYTES, Order::Ascending, 1), pieces)
}

/// Contents that no metadata look like.
fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|i| 0x80 | (i / 4096 * 31 + i * 7 % 127) as u8).collect()
}

fn read(store: &mut SquashStore, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    store.read(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn contents_pass_their_checksums_before_any_commit() {
    if !btrfsprogs_are_here() {
        return;
    }
    let (mut store, _) = empty();
    let written = contents(128 << 10);
    for at in [DATA_AT, FREE_AT] {
        let before = store.squash_statistics().generated_bytes;
        store.write(at, &written).unwrap();
        assert_eq!(store.squash_statistics().generated_bytes - before, written.len() as u64);
        let sums = |bytes: &[u8]| bytes.chunks(PIECE_BYTES).map(crc32c::crc32c).collect::<Vec<_>>();
        let found = read(&mut store, at, written.len());
        assert!(found != written);
        assert_eq!(sums(&found), sums(&written));
        // Overwritten, discarded, and written again in part.
        store.write(at, &written[PIECE_BYTES..3 * PIECE_BYTES]).unwrap();
        store.discard(at + 4 * PIECE_BYTES as u64, PIECE_BYTES as u64).unwrap();
        let found = sums(&read(&mut store, at, 5 * PIECE_BYTES));
        let expected = sums(&written);
        assert_eq!(found[..4], [expected[1], expected[2], expected[2], expected[3]]);
        assert_eq!(found[4], crc32c::crc32c(&[0; PIECE_BYTES]));
    }
}

#[test]
fn a_node_in_pieces_is_kept_whatever_their_order() {
    if !btrfsprogs_are_here() {
        return;
    }
    let (mut store, pieces) = empty();
    let uuid = pieces[0].1[32..48].to_vec();
    let at = pieces[1..].iter().find(|(_, bytes)| bytes[32..48] == uuid).unwrap().0;
    let mut node = read(&mut store, at, 4 * PIECE_BYTES);
    // None of its pieces is zero, and all but the first look like contents.
    node[PIECE_BYTES..].copy_from_slice(&contents(3 * PIECE_BYTES));
    for (index, order) in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]].iter().enumerate() {
        let at = FREE_AT + (index * node.len()) as u64;
        for piece in order {
            let from = piece * PIECE_BYTES;
            store.write(at + from as u64, &node[from..from + PIECE_BYTES]).unwrap();
        }
        assert!(read(&mut store, at, node.len()) == node, "{order:?}");
        store.flush().unwrap();
        assert!(read(&mut store, at, node.len()) == node, "{order:?}, flushed");
    }
    // Within contents, too, and where contents are expected.
    for at in [DATA_AT, FREE_AT + (1 << 20)] {
        let around = contents(8 * PIECE_BYTES);
        store.write(at, &[&around[..], &node, &around].concat()).unwrap();
        assert!(read(&mut store, at + around.len() as u64, node.len()) == node, "at {at}");
    }
}

#[test]
fn compressed_contents_are_kept() {
    if !btrfsprogs_are_here() {
        return;
    }
    for (flag, start) in [
        (Some(0x10), &[0x28, 0xB5, 0x2F, 0xFD][..]),
        (Some(0x8), &[0x20, 0x10, 0, 0, 0x11, 0, 0, 0]),
        (None, &[0x78, 0x5E]),
    ] {
        let (mut store, mut pieces) = empty();
        let mut extent = contents(128 << 10);
        extent[..start.len()].copy_from_slice(start);
        store.write(DATA_AT, &extent).unwrap();
        assert!(read(&mut store, DATA_AT, extent.len()) == extent, "{start:?}");
        let Some(flag) = flag else { continue };
        // The flag that the first compressed file sets.
        let features = pieces[0].1[188] | flag;
        change_superblock(&mut pieces, 188, &[features]);
        store.write(pieces[0].0, &pieces[0].1).unwrap();
        let later = contents(64 << 10);
        store.write(FREE_AT, &later).unwrap();
        store.flush().unwrap();
        store.close().unwrap();
        assert!(read(&mut store, DATA_AT, extent.len()) == extent, "{start:?}");
        assert!(read(&mut store, FREE_AT, later.len()) == later, "{start:?}");
        assert!(store.notices().iter().any(|notice| notice.contains("compressed")), "{:?}", store.notices());
    }
}

#[test]
fn nothing_is_dropped_while_another_program_writes() {
    if !btrfsprogs_are_here() {
        return;
    }
    let (mut store, pieces) = empty();
    let written = contents(64 << 10);
    // Where btrfs never writes.
    store.write(8192, &contents(PIECE_BYTES)).unwrap();
    store.write(DATA_AT, &written).unwrap();
    assert!(read(&mut store, DATA_AT, written.len()) == written);
    // A file system without a superblock is none.
    let (mut store, _) = empty();
    store.discard(pieces[0].0, PIECE_BYTES as u64).unwrap();
    store.write(DATA_AT, &written).unwrap();
    store.flush().unwrap();
    assert!(read(&mut store, DATA_AT, written.len()) == written);
}
