//! File systems made by e2fsprogs, replayed into a squashing store in varied orders: all metadata are there,
//! as e2fsprogs read them, and the data are not.

use super::e2fsprogs::tool;
use super::e2fsprogs::{compare_files, e2fsprogs_are_here, metadata_of};
use super::export::export;
use super::ext4_image;
use super::image::is_fine;
use super::replay::{Order, PIECE_BYTES, is_kept_whole, long, pieces_of, replay, replay_with, shuffle, write_all};
use chronodisk_squash::{Class, ContentKind, NameRule, SquashOptions, SquashStore, Treatment};
use chronodisk_store::Store;
use std::fs;
use std::path::Path;

/// Layouts that differ in where metadata are and how they are found: options of mke2fs.
const LAYOUTS: [(&str, &[&str]); 9] = [
    ("ext4", &["-t", "ext4"]),
    ("ext3", &["-t", "ext3"]),
    ("ext2", &["-t", "ext2"]),
    ("1k", &["-t", "ext4", "-b", "1024"]),
    ("1k-ext2", &["-t", "ext2", "-b", "1024"]),
    ("meta-bg", &["-t", "ext4", "-O", "meta_bg,^resize_inode"]),
    ("quota", &["-t", "ext4", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"]),
    ("ea-inode", &["-t", "ext4", "-O", "ea_inode,large_dir,inline_data,mmp"]),
    ("no-journal", &["-t", "ext4", "-O", "^has_journal,sparse_super2,^resize_inode"]),
];

#[test]
fn metadata_survive_whatever_the_order() {
    if !e2fsprogs_are_here() {
        return;
    }
    for (index, (name, options)) in LAYOUTS.iter().enumerate() {
        let image = ext4_image::make(options, 24 << 20);
        for order in Order::of_layout(index) {
            let mut store = replay(pieces_of(&image.path), image.capacity_bytes, *order, index as u64);
            let statistics = store.squash_statistics();
            let squashed = image.path.with_extension("squashed");
            export(&mut store, &squashed);
            compare_files(&image.path, &squashed, &format!("{name} {order:?}"));
            assert!(statistics.generated_bytes > image.data_bytes / 2, "{name} {order:?}: {statistics:?}");
            println!("{name} {order:?}: {statistics:?}");
        }
    }
}

/// File systems without a journal, where a block that was contents can become metadata at any moment.
const WITHOUT_JOURNAL: [(&str, &[&str]); 5] = [
    ("ext2", &["-t", "ext2"]),
    ("4k-ext2", &["-t", "ext2", "-b", "4096"]),
    ("quota", &["-t", "ext2", "-O", "quota", "-E", "quotatype=usrquota:grpquota"]),
    ("extents", &["-t", "ext4", "-O", "^has_journal"]),
    ("extents without checksums", &["-t", "ext4", "-b", "4096", "-O", "^has_journal,^metadata_csum"]),
];

#[test]
fn metadata_of_a_mounted_file_system_without_journal_survive_whatever_the_order() {
    if !e2fsprogs_are_here() {
        return;
    }
    for (name, options) in WITHOUT_JOURNAL {
        let image = ext4_image::make(options, 24 << 20);
        let mounted = ext4_image::mounted(&image);
        assert!(mounted.pieces.len() > 200, "{name}: {}", mounted.pieces.len());
        for seed in 0..if long() { 100 } else { 6 } {
            let mut store = replay(pieces_of(&image.path), image.capacity_bytes, Order::Ascending, seed);
            let last = fs::read(&mounted.path).unwrap()[..PIECE_BYTES].to_vec();
            let mut pieces = mounted.pieces.clone();
            match seed {
                0 => {}
                1 => pieces.reverse(),
                _ => shuffle(&mut pieces, seed),
            }
            store.write(0, &mounted.superblock).unwrap();
            write_all(&mut store, &pieces);
            store.write(0, &last).unwrap();
            let squashed = image.path.with_extension("squashed");
            export(&mut store, &squashed);
            compare_files(&mounted.path, &squashed, &format!("{name}, seed {seed}"));
        }
    }
}

/// Indirect blocks reach the device before their inode if the kernel writes them back in the order of their blocks.
#[test]
fn contents_on_ext2_are_dropped_when_their_inode_is_written() {
    if !e2fsprogs_are_here() {
        return;
    }
    for (name, options) in &WITHOUT_JOURNAL[..2] {
        let image = ext4_image::make(options, 24 << 20);
        let mounted = ext4_image::mounted(&image);
        let mut store = replay(pieces_of(&image.path), image.capacity_bytes, Order::Ascending, 1);
        store.write(0, &mounted.superblock).unwrap();
        let tables = inode_tables(&mounted.path);
        let is_table = |(at, _): &&(u64, Vec<u8>)| tables.iter().any(|table| table.contains(at));
        let (inodes, others): (Vec<_>, Vec<_>) = mounted.pieces.iter().partition(is_table);
        others.iter().for_each(|(at, bytes)| store.write(*at, bytes).unwrap());
        let before = store.squash_statistics().waiting_bytes;
        inodes.iter().for_each(|(at, bytes)| store.write(*at, bytes).unwrap());
        let after = store.squash_statistics().waiting_bytes;
        assert!(before > 2_000_000 && after < before / 10, "{name}: {before} and {after} bytes wait");
    }
}

/// Places of the inode tables in bytes.
fn inode_tables(image: &Path) -> Vec<std::ops::Range<u64>> {
    let said = String::from_utf8(tool("dumpe2fs", &[image.to_str().unwrap()]).stdout).unwrap();
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    let block_bytes = number(said.lines().find_map(|line| line.strip_prefix("Block size:")).unwrap());
    let tables = said.lines().filter_map(|line| line.trim().strip_prefix("Inode table at "));
    let range = |table: &str| {
        let (from, to) = table.split([' ', ',']).next().unwrap().split_once('-').unwrap();
        number(from) * block_bytes..(number(to) + 1) * block_bytes
    };
    let tables: Vec<_> = tables.map(range).collect();
    assert!(!tables.is_empty(), "{said}");
    tables
}

#[test]
fn metadata_are_compressed_although_too_much_waited_for_them() {
    if !e2fsprogs_are_here() {
        return;
    }
    let image = ext4_image::make(&["-t", "ext4"], 24 << 20);
    let pieces = pieces_of(&image.path);
    let sizes = [0, 1 << 20, 240 << 20].map(|unclassified_bytes| {
        let options = SquashOptions { unclassified_bytes, ..SquashOptions::default() };
        let mut store = SquashStore::in_memory(image.capacity_bytes, image.capacity_bytes, &options);
        let (first, others) = pieces.split_first().unwrap();
        others.iter().chain([first]).for_each(|(at, bytes)| store.write(*at, bytes).unwrap());
        store.close().unwrap();
        let statistics = store.squash_statistics();
        assert_eq!(statistics.spilled_bytes > 0, unclassified_bytes < 240 << 20, "{statistics:?}");
        let squashed = image.path.with_extension("squashed");
        export(&mut store, &squashed);
        compare_files(&image.path, &squashed, &format!("{unclassified_bytes}"));
        assert!(statistics.stored_bytes < statistics.kept_bytes.iter().map(|kept| kept.1).sum::<u64>() / 4);
        (statistics.stored_bytes, statistics.kept_bytes)
    });
    let ample = &sizes[2];
    // Superblocks are not compressed, except those kept before they were recognised.
    assert!(sizes[..2].iter().all(|sizes| sizes.0 <= ample.0 && sizes.1 == ample.1), "{sizes:?}");
}

/// A file's contents, as debugfs reads them.
fn contents(image: &Path, file: &str) -> Vec<u8> {
    let ran = tool("debugfs", &["-R", &format!("cat {file}"), image.to_str().unwrap()]);
    assert!(!ran.stdout.is_empty(), "{file}: {}", String::from_utf8_lossy(&ran.stderr));
    ran.stdout
}

#[test]
fn files_are_kept_by_their_names() {
    if !e2fsprogs_are_here() {
        return;
    }
    let names = ["bigger", "/many/*-number-2?"].map(|names| names.parse().unwrap());
    let names = names.map(|names| NameRule { names, treatment: Treatment::Keep }).into();
    let options = SquashOptions { content: ContentKind::Random, names, ..SquashOptions::default() };
    for (index, (name, layout)) in LAYOUTS.iter().enumerate() {
        let image = ext4_image::make(layout, 24 << 20);
        let order = Order::ALL[index % Order::ALL.len()];
        let mut store = replay_with(&options, pieces_of(&image.path), image.capacity_bytes, order, index as u64);
        store.close().unwrap();
        let statistics = store.squash_statistics();
        if *name == "ea-inode" {
            let notices = store.notices();
            assert!(notices.iter().any(|notice| notice.contains("inline_data")), "{notices:?}");
            assert_eq!(statistics.generated_bytes, 0);
            continue;
        }
        let squashed = image.path.with_extension("squashed");
        export(&mut store, &squashed);
        compare_files(&image.path, &squashed, &format!("{name} {order:?}"));
        let is_kept = |file: &str| contents(&image.path, file) == contents(&squashed, file);
        assert!(is_kept("/bigger"), "{name} {order:?}");
        assert!(is_kept("/many/a-rather-long-name-of-a-file-number-27"), "{name} {order:?}");
        assert!(!is_kept("/many/a-rather-long-name-of-a-file-number-127"), "{name} {order:?}");
        assert!(!is_kept("/holes"), "{name} {order:?}");
        assert_eq!(statistics.late_bytes, 0, "{name} {order:?}");
        let raw = statistics.kept_bytes.iter().find(|(class, _)| *class == Class::Raw).map_or(0, |kept| kept.1);
        assert!((6_000_000..7_000_000).contains(&raw), "{name} {order:?}: {statistics:?}");
        assert!(statistics.generated_bytes > image.data_bytes / 4, "{name} {order:?}: {statistics:?}");
    }
}

#[test]
fn squashed_files_have_the_kind_that_their_names_say() {
    if !e2fsprogs_are_here() {
        return;
    }
    let names = ["/bigger=pdf", "/many/*-number-[12]*=gzip", "/many/*=text"].map(|rule| rule.parse().unwrap()).into();
    let options = SquashOptions { content: ContentKind::Random, names, ..SquashOptions::default() };
    let layouts = LAYOUTS.iter().filter(|(name, layout)| *name != "ea-inode" && !layout.contains(&"-b"));
    for (index, (name, layout)) in layouts.enumerate() {
        // Smaller blocks are kept if they share 4 KiB with metadata.
        let image = ext4_image::make(&[layout, &["-b", "4096"][..]].concat(), 24 << 20);
        let order = Order::ALL[index % Order::ALL.len()];
        let mut store = replay_with(&options, pieces_of(&image.path), image.capacity_bytes, order, index as u64);
        store.close().unwrap();
        let squashed = image.path.with_extension("squashed");
        export(&mut store, &squashed);
        compare_files(&image.path, &squashed, &format!("{name} {order:?}"));
        let file = squashed.with_extension("file");
        let fine = |program: &str, arguments: &[&str], contents: &[u8]| {
            is_fine(program, arguments, contents, &file, &format!("{name} {order:?}"));
        };
        fine("qpdf", &["--check"], &contents(&squashed, "/bigger"));
        for number in [10, 19, 123, 239] {
            let member = contents(&squashed, &format!("/many/a-rather-long-name-of-a-file-number-{number}"));
            assert_eq!(member.len(), number % 40 * 150 + 7);

            fine("gzip", &["-t", "-S", ".file"], &member);
        }
        assert!(contents(&squashed, "/many/a-rather-long-name-of-a-file-number-31").is_ascii(), "{name} {order:?}");
        // Reads of a part return the same bytes as reads of the whole.
        let mut whole = vec![0; 64 << 10];
        let at = image.capacity_bytes / 2;
        store.read(at, &mut whole).unwrap();
        for (from, len) in [(1, 1), (511, 4098), (4096, 4096), (10_000, 30_000)] {
            let mut part = vec![0; len];
            store.read(at + from as u64, &mut part).unwrap();
            assert!(part == whole[from..from + len], "{name} {order:?}");
        }
    }
}

#[test]
fn what_is_not_understood_is_kept_whole() {
    if !e2fsprogs_are_here() {
        return;
    }
    for (reason, options) in
        [("bigalloc", ["-t", "ext4", "-O", "bigalloc"]), ("encryption", ["-t", "ext4", "-O", "encrypt"])]
    {
        let image = ext4_image::make(&options, 24 << 20);
        is_kept_whole(pieces_of(&image.path), image.capacity_bytes, reason);
    }
}

/// e2image refuses a tree that is damaged, as one is that a cut left without a block.
#[test]
fn what_e2image_refuses_is_compared_as_far_as_e2fsck_tells() {
    if !e2fsprogs_are_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, twin, input) = (folder.path().join("image"), folder.path().join("twin"), folder.path().join("input"));
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    fs::write(&input, [7; 40 << 10]).unwrap();
    let path = image.to_str().unwrap();
    assert!(tool("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "1024", path]).status.success());
    let debugfs = |request: &str| {
        let ran = tool("debugfs", &["-w", "-R", request, path]);
        String::from_utf8(ran.stdout).unwrap()
    };
    debugfs(&format!("write {} file", input.display()));
    // Holes, so that the extents fill a block.
    (1..12).step_by(2).for_each(|at| drop(debugfs(&format!("punch file {at} {at}"))));
    let extents = debugfs("extents file");
    let node: usize = extents.lines().nth(1).unwrap().split_whitespace().nth(7).unwrap().parse().unwrap();
    let mut bytes = fs::read(&image).unwrap();
    bytes[node * 1024..][..1024].fill(0);
    fs::write(&image, &bytes).unwrap();
    fs::write(&twin, &bytes).unwrap();
    assert!(metadata_of(&image).unwrap_err().contains("Corrupt extent header"));
    compare_files(&image, &twin, "equally damaged");
}

#[test]
fn contents_that_no_file_has_stay_kept_until_an_unmount() {
    if !e2fsprogs_are_here() {
        return;
    }
    let image = ext4_image::make(&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"], 64 << 20);
    let names = vec![NameRule { names: "*.db".parse().unwrap(), treatment: Treatment::Keep }];
    let options = SquashOptions { names, ..SquashOptions::default() };
    let mut store = replay_with(&options, pieces_of(&image.path), image.capacity_bytes, Order::Ascending, 1);
    // A flag in `s_feature_incompat` requires a recovery of the journal; a kernel sets it when it mounts.
    let mark = |store: &mut SquashStore, needs_recovery: bool| {
        let mut features = [0; 512];
        store.read(1024, &mut features).unwrap();
        features[0x60] = features[0x60] & !4 | if needs_recovery { 4 } else { 0 };
        store.write(1024, &features).unwrap();
        store.flush().unwrap();
    };
    let (at, contents) = (60 << 20, vec![0x9D; 256 << 10]);
    store.close().unwrap();
    mark(&mut store, true);
    store.write(at, &contents).unwrap();
    store.close().unwrap();
    let read = |store: &mut SquashStore| {
        let mut bytes = vec![0; contents.len()];
        store.read(at, &mut bytes).unwrap();
        bytes
    };
    assert!(read(&mut store) == contents, "a kernel died");
    assert_eq!(store.squash_statistics().waiting_bytes, 0, "they are kept, not waiting");
    let told = |store: &SquashStore| store.notices().iter().any(|notice| notice.contains(" 262144 bytes that no file"));
    assert!(told(&store), "{:?}", store.notices());
    mark(&mut store, false);
    store.close().unwrap();
    assert!(read(&mut store) != contents, "it was unmounted");
}
