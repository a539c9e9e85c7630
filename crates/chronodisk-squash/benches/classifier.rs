//! CPU time of the classifiers, per byte written: writes of 128 KiB to a store in memory and to squashing stores, in
//! one run. `cargo bench -p chronodisk-squash --bench classifier`.
//!
//! Most writes are contents of files, so these are measured: of a file that ext4 has committed (dropped at once), of a
//! file that it has not committed (they wait, and are kept beyond the limit), of XFS (classified by their bytes), and
//! of btrfs (outside all chunks, with checksums). The same writes are measured with rules by name, with marker pages,
//! and with compression of all blocks, incompressible ones included. With `CHRONODISK_RECORDING=FILE`, the changes that
//! a guest made are measured, too, as recorded by `chronodisk run --record-store FILE`.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use chronodisk_sim::RandomStream;
use chronodisk_squash::{Mark, Notice, SquashMode, SquashOptions, SquashStore};
use chronodisk_store::{RamStore, Recording, Store};
use rustix::time::{ClockId, clock_gettime};

#[path = "../tests/squash/e2fsprogs.rs"]
#[expect(dead_code, reason = "tests compare with them, this only makes file systems")]
mod e2fsprogs;
#[path = "../tests/squash/replay.rs"]
#[expect(dead_code, reason = "tests write in other orders, too")]
mod replay;
use replay::{Pieces, pieces_of};

const CAPACITY_BYTES: u64 = 1 << 30;
const WRITE_BYTES: u64 = 128 << 10;
/// Behind the logs, which lie in the middle of both file systems.
const FILE_START_BYTES: u64 = 640 << 20;
const FILE_BYTES: u64 = 128 << 20;
/// Number of times that each block is written.
const ROUNDS: u64 = 16;

fn main() {
    let full = rate(&mut RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES), &contents());
    println!("full store in memory                          {full:6.2} GB/s");
    let show = |name: &str, options: &SquashOptions, pieces: Option<Pieces>, bytes: &[u8]| {
        let Some(pieces) = pieces else { return };
        let mut store = store_of(pieces, options);
        if options.notices {
            store.write(FILE_START_BYTES + FILE_BYTES, &notice()).expect("it fits");
        }
        let rate = rate(&mut store, bytes);
        let statistics = store.squash_statistics();
        let share = statistics.dropped_bytes as f64 / statistics.written_bytes as f64;
        println!("{name:45} {rate:6.2} GB/s, {:.2} times as fast; {:.0} % dropped at once", rate / full, 100.0 * share);
    };
    let plain = SquashOptions::default();
    show("ext4, mounted, contents of a file", &plain, ext4(true), &contents());
    show("ext4, mounted, not committed yet", &plain, ext4(false), &contents());
    show("XFS, contents of a file", &plain, made_by("mkfs.xfs"), &contents());
    show("btrfs, contents of a file", &plain, made_by("mkfs.btrfs"), &contents());
    let names = |rules: &[&str]| {
        let names = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        SquashOptions { names, ..SquashOptions::default() }
    };
    let (kept, made_up) = (names(&["*.db=keep", "/etc/**=keep"]), names(&["*.gz=gzip", "/docs/**=pdf"]));
    show("ext4, --keep, contents of a file", &kept, ext4(true), &contents());
    show("ext4, --keep, not committed yet", &kept, ext4(false), &contents());
    show("ext4, --content by name, contents of a file", &made_up, ext4(true), &contents());
    show("XFS, --keep, not at its place yet", &kept, made_by("mkfs.xfs"), &contents());
    show("btrfs, --keep, not committed yet", &kept, made_by("mkfs.btrfs"), &contents());
    let notices = SquashOptions { notices: true, ..SquashOptions::default() };
    show("ext4, --notices, contents of a file", &notices, ext4(true), &contents());
    show("ext4, --notices, not committed yet", &notices, ext4(false), &contents());
    show("XFS, --notices, contents of a file", &notices, made_by("mkfs.xfs"), &contents());
    let exact = SquashOptions { mode: SquashMode::Exact, ..SquashOptions::default() };
    show("everything compressed", &exact, Some(Pieces::new()), &contents());
    show("everything compressed, random bytes", &exact, Some(Pieces::new()), &random());
    if let Some(path) = std::env::var_os("CHRONODISK_RECORDING").map(PathBuf::from) {
        recorded(&path);
    }
}

/// Bytes without a zero block or any resemblance to metadata.
fn contents() -> Vec<u8> {
    (0..WRITE_BYTES).map(|at| 0x80 | (at % 127) as u8).collect()
}

/// Bytes that can't be compressed.
fn random() -> Vec<u8> {
    let mut random = RandomStream::new(1, "classifier", "bytes");
    (0..WRITE_BYTES).map(|_| random.below(256) as u8).collect()
}

/// A marker page with the most entries possible. No listed page was written, so the search for each one fails.
fn notice() -> Vec<u8> {
    let mut notice = Notice::new(Mark::Keep);
    for index in 0..Notice::PAGES_MAX {
        assert!(notice.add(&index.to_le_bytes()));
    }
    notice.page()
}

/// Bytes per second of CPU time, in billions.
fn rate(store: &mut dyn Store, bytes: &[u8]) -> f64 {
    let begun = cpu_seconds();
    for _ in 0..ROUNDS {
        for at in (FILE_START_BYTES..FILE_START_BYTES + FILE_BYTES).step_by(WRITE_BYTES as usize) {
            store.write(at, bytes).expect("it fits");
        }
    }
    (ROUNDS * FILE_BYTES) as f64 / (cpu_seconds() - begun) / 1e9
}

fn store_of(pieces: Pieces, options: &SquashOptions) -> SquashStore {
    let mut store = SquashStore::in_memory(CAPACITY_BYTES, CAPACITY_BYTES, options);
    for (offset_bytes, bytes) in pieces {
        store.write(offset_bytes, &bytes).expect("it fits");
    }
    store.flush().expect("it is memory");
    store
}

/// A mounted ext4 file system. If `filled`, one file has all its free blocks.
fn ext4(filled: bool) -> Option<Pieces> {
    if !e2fsprogs::e2fsprogs_are_here() {
        return None;
    }
    let (_folder, path) = image();
    let tool = |name, arguments: &[&str]| assert!(e2fsprogs::tool(name, arguments).status.success(), "{name}");
    // Without checksums, so that the superblock can be changed below.
    tool("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "^metadata_csum", &path]);
    let blocks = CAPACITY_BYTES / 4096 / 2;
    if filled {
        let file = format!("{path}.file");
        File::create(&file).expect("a temporary file");
        let script = format!("{path}.script");
        let lines = format!("write {file} /file\nfallocate /file 0 {}\nquit\n", blocks * 3 / 2);
        std::fs::write(&script, lines).expect("a temporary file");
        tool("debugfs", &["-w", "-f", &script, &path]);
    }
    let mut pieces = pieces_of(path.as_ref());
    // The flag of a journal in use (`INCOMPAT_RECOVER` in the superblock at 1,024).
    pieces[0].1[1024 + 0x60] |= 0x4;
    Some(pieces)
}

fn made_by(mkfs: &str) -> Option<Pieces> {
    let (_folder, path) = image();
    let made = Command::new(e2fsprogs::program(mkfs)?).args(["-q", "-f", &path]).status();
    made.is_ok_and(|status| status.success()).then(|| pieces_of(path.as_ref()))
}

fn image() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("image");
    File::create(&path).and_then(|file| file.set_len(CAPACITY_BYTES)).expect("a temporary file");
    (folder, path.to_str().expect("a temporary name").to_owned())
}

/// Measures the CPU time of each change that a guest made.
fn recorded(path: &std::path::Path) {
    let recording = Recording::open(path).expect("a recording");
    let changes: Vec<_> = recording.changes().map(|change| change.expect("whole")).collect();
    let options = SquashOptions::default();
    let replayed = |store: &mut dyn Store| {
        let begun = cpu_seconds();
        changes.iter().for_each(|change| change.apply(store).expect("it fits"));
        (cpu_seconds() - begun) / changes.len() as f64 * 1e6
    };
    let full = replayed(&mut RamStore::new(RECORDED_BYTES, 2 * RECORDED_BYTES));
    let squashed = replayed(&mut SquashStore::in_memory(RECORDED_BYTES, RECORDED_BYTES, &options));
    println!("{} recorded changes: {full:.2} µs each in a full store, {squashed:.2} squashed", changes.len());
}

/// Capacity of the device; larger than the device of any recording.
const RECORDED_BYTES: u64 = 1 << 40;

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
