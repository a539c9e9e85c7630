//! The same history on a squashing store and on a full one: what the guest did to its device is recorded,
//! replayed into both, and cut off at many places, some inside commits.
//!
//! e2fsprogs are the oracle: after recovery every metadata block that e2image finds is equal, and with them
//! names, sizes, modes, link counts and attributes; e2fsck says and does the same; and after its repairs
//! every metadata block is equal again.

use std::path::Path;

use chronodisk_sim::RandomStream;
use chronodisk_store::squash::{ContentKind, SquashOptions, SquashStore};
use chronodisk_store::{Change, RamStore, Recording, Store};

use super::support::{Chronodisk, example, text};

#[path = "../../../chronodisk-store/tests/squash/e2fsprogs.rs"]
mod e2fsprogs;
#[path = "../../../chronodisk-store/tests/squash/export.rs"]
mod export;
use e2fsprogs::{compare_files, e2fsprogs_are_here, tool};
use export::export;

const CAPACITY_BYTES: u64 = 128 << 20;

struct Twin {
    full: RamStore,
    squashed: SquashStore,
}

impl Twin {
    fn new(image: &Path, seed: u64) -> Self {
        // Little room for what waits, so that some of it spills.
        let unclassified_bytes = if seed.is_multiple_of(2) { 256 << 10 } else { 64 << 20 };
        let options =
            SquashOptions { content: ContentKind::Random, seed, unclassified_bytes, ..SquashOptions::default() };
        let squashed = if seed.is_multiple_of(3) {
            SquashStore::in_memory(CAPACITY_BYTES, CAPACITY_BYTES, &options)
        } else {
            SquashStore::create(image, CAPACITY_BYTES, &options).unwrap()
        };
        Twin { full: RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES), squashed }
    }

    /// Both as files, read as they are, compared, repaired, and compared again.
    fn compare(&mut self, folder: &Path, what: &str) {
        let (full, squashed) = (folder.join("full"), folder.join("squashed"));
        export(&mut self.full, &full);
        export(&mut self.squashed, &squashed);
        let header = tool("dumpe2fs", &["-h", full.to_str().unwrap()]);
        // Before there is a file system there is nothing to compare.
        if !header.status.success() {
            return;
        }
        // What is at its place before recovery is of several moments: a directory whose removal is committed may
        // be there still, and need not be.
        if text(&header.stdout).contains("needs_recovery") {
            for path in [&full, &squashed] {
                let recovered = tool("e2fsck", &["-E", "journal_only", "-y", path.to_str().unwrap()]);
                assert!(recovered.status.code() < Some(4), "{what}: {}", text(&recovered.stdout));
            }
        }
        compare_files(&full, &squashed, what);
        let repair = |path: &Path| {
            let ran = tool("e2fsck", &["-f", "-y", path.to_str().unwrap()]);
            (ran.status.code(), text(&ran.stdout).replace(path.to_str().unwrap(), "IMAGE"))
        };
        assert_eq!(repair(&full), repair(&squashed), "{what}");
        compare_files(&full, &squashed, &format!("{what}, repaired"));
    }
}

/// Runs a history in a guest, and compares the twins at so many cuts.
fn history(chronodisk: &Chronodisk, file_system: &str, flags: &[&str], seed: u64, steps: u32, cuts: u64) {
    let (recording, image) = (chronodisk.path("recording"), chronodisk.path("image"));
    let flags = [
        &["--fs", file_system, "--capacity", "128MiB", "--squash", "--content", "random", "--check"][..],
        &["--record-store", recording.to_str().unwrap()],
        flags,
    ]
    .concat();
    let (seed_text, steps_text) = (seed.to_string(), steps.to_string());
    let program = [&*example("file_history"), "/mnt", &seed_text, &steps_text];
    let output = chronodisk.run("constant-100us", &flags, &program);
    assert!(output.status.success(), "{file_system} {seed}: {}", text(&output.stderr));

    let count = Recording::open(&recording).unwrap().count() as u64;
    let mut random = RandomStream::new(seed, "squash", "cuts");
    let mut cut_at: Vec<u64> = (1..cuts).map(|_| random.below(count)).collect();
    cut_at.sort_unstable();
    let mut twin = Twin::new(&image, seed);
    for (change, index) in Recording::open(&recording).unwrap().zip(0u64..) {
        let change: Change = change.unwrap();
        change.apply(&mut twin.full).unwrap();
        change.apply(&mut twin.squashed).unwrap();
        if cut_at.binary_search(&index).is_ok() {
            twin.compare(chronodisk.results.path(), &format!("{file_system} {flags:?} seed {seed} cut at {index}"));
        }
    }
    // Closed, and opened again.
    twin.squashed.close().unwrap();
    let statistics = twin.squashed.squash_statistics();
    println!("{file_system} {flags:?} seed {seed}, {count} changes: {statistics:?}");
    let Twin { full, squashed } = twin;
    let mut squashed = if image.exists() {
        drop(squashed);
        SquashStore::open(&image, CAPACITY_BYTES, &SquashOptions::default()).unwrap()
    } else {
        squashed
    };
    let mut end = Twin { full, squashed };
    end.compare(chronodisk.results.path(), &format!("{file_system} {flags:?} seed {seed} at its end"));
    squashed = end.squashed;
    assert!(squashed.squash_statistics().generated_bytes > 0);
    drop(squashed);
    for path in [recording, image.clone(), image.with_extension("map")] {
        let _ = std::fs::remove_file(path);
    }
}

fn here() -> Option<Chronodisk> {
    if e2fsprogs_are_here() { Chronodisk::new() } else { None }
}

#[test]
fn twins_agree_on_ext4() {
    let Some(chronodisk) = here() else { return };
    history(&chronodisk, "ext4", &[], 1, 300, 6);
}

#[test]
fn twins_agree_on_ext3_with_small_blocks() {
    let Some(chronodisk) = here() else { return };
    history(&chronodisk, "ext3", &["--mkfs-options", "-b 1024"], 2, 200, 4);
}

#[test]
fn twins_agree_on_ext2() {
    let Some(chronodisk) = here() else { return };
    history(&chronodisk, "ext2", &[], 3, 200, 4);
}

/// Many histories on every layout, with as many cuts as the environment asks for.
#[test]
#[ignore = "hours long; make squash-soak"]
fn twins_agree_for_long() {
    let Some(chronodisk) = here() else { return };
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (first, histories) = (number("CHRONODISK_SOAK_FIRST", 1), number("CHRONODISK_SOAK_HISTORIES", 50));
    let cuts = number("CHRONODISK_SOAK_CUTS", 50);
    const SETTINGS: [(&str, &[&str]); 12] = [
        ("ext4", &[]),
        ("ext4", &["--mount-options", "data=journal"]),
        ("ext4", &["--mount-options", "data=writeback,discard"]),
        ("ext4", &["--mkfs-options", "-b 1024"]),
        ("ext4", &["--mkfs-options", "-O fast_commit"]),
        ("ext4", &["--mkfs-options", "-O ^metadata_csum,^64bit"]),
        ("ext4", &["--mkfs-options", "-O ea_inode,inline_data,quota"]),
        ("ext4", &["--mkfs-options", "-O ^has_journal"]),
        ("ext4", &["--mount-options", "journal_async_commit"]),
        ("ext3", &[]),
        ("ext3", &["--mkfs-options", "-b 1024"]),
        ("ext2", &[]),
    ];
    for seed in first..first + histories {
        let (file_system, flags) = SETTINGS[seed as usize % SETTINGS.len()];
        history(&chronodisk, file_system, flags, seed, 400, cuts);
    }
}
