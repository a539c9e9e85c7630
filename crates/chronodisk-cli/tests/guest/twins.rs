//! One history on a squashing store and on a full one: a guest's writes to its device are recorded, replayed into both,
//! and cut off at many places, some inside commits.
//!
//! The file systems' own tools compare the two. ext2 to ext4: after recovery, every metadata block that e2image finds
//! is equal, and with them names, sizes, modes, link counts and attributes. e2fsck prints and does the same on both,
//! and after its repairs every metadata block is equal again. XFS: the metadata at the cut are equal, including the
//! log. The verdicts of xfs_repair are equal, also after it discarded the log, which only a kernel can replay. These
//! comparisons read contents of files, which may differ, as zeros. btrfs: at the cut, every node and superblock is
//! equal in each copy, and btrfs check gives the same verdict on metadata and on the checksums of contents.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chronodisk_sim::RandomStream;
use chronodisk_squash::{ContentKind, SquashOptions, SquashStore};
use chronodisk_store::{Change, RamStore, Recording, Store, StoreError};
use tempfile::TempDir;

use super::support::{Chronodisk, example, is_root, long, text};

#[path = "../../../chronodisk-squash/tests/squash/btrfsprogs.rs"]
pub(super) mod btrfsprogs;
#[path = "../../../chronodisk-squash/tests/squash/e2fsprogs.rs"]
pub(super) mod e2fsprogs;
#[path = "../../../chronodisk-squash/tests/squash/export.rs"]
mod export;
#[path = "../../../chronodisk-squash/tests/squash/f2fs_tools.rs"]
mod f2fs_tools;
#[path = "../../../chronodisk-squash/tests/squash/xfsprogs.rs"]
pub(super) mod xfsprogs;
use btrfsprogs::btrfsprogs_are_here;
use e2fsprogs::{e2fsprogs_are_here, tool};
use export::{export, image_folder};
use f2fs_tools::f2fs_tools_are_here;
use xfsprogs::xfsprogs_are_here;

/// Capacity near the smallest possible for each file system.
pub(super) fn capacity_bytes(file_system: &str) -> u64 {
    match file_system {
        "xfs" => 300 << 20,
        "btrfs" => 192 << 20,
        _ => 128 << 20,
    }
}

struct Twin {
    file_system: &'static str,
    full: RamStore,
    squashed: SquashStore,
}

impl Twin {
    fn new(file_system: &'static str, image: &Path, seed: u64) -> Self {
        let capacity_bytes = capacity_bytes(file_system);
        // A small limit of unclassified blocks, so that some of them are spilled.
        let unclassified_bytes = if seed.is_multiple_of(2) { 256 << 10 } else { 64 << 20 };
        let options =
            SquashOptions { content: ContentKind::Random, seed, unclassified_bytes, ..SquashOptions::default() };
        let squashed = if seed.is_multiple_of(3) {
            SquashStore::in_memory(capacity_bytes, capacity_bytes, &options)
        } else {
            SquashStore::create(image, capacity_bytes, &options).unwrap()
        };
        Twin { file_system, full: RamStore::new(capacity_bytes, 2 * capacity_bytes), squashed }
    }

    /// Exports both stores into files in a new folder.
    fn export(&mut self, folder: PathBuf, what: String) -> Cut {
        std::fs::create_dir(&folder).unwrap();
        export(&mut self.full, &folder.join("full"));
        export(&mut self.squashed, &folder.join("squashed"));
        Cut { file_system: self.file_system, folder, what }
    }
}

/// The contents of both stores at one moment, as files.
struct Cut {
    file_system: &'static str,
    folder: PathBuf,
    what: String,
}

impl Cut {
    /// Bytes of files' contents that the squashing store kept as written. Few are expected, except in a journal of
    /// contents and where every block is kept.
    fn kept_contents_bytes(&self) -> u64 {
        let [full, squashed] = ["full", "squashed"].map(|name| File::open(self.folder.join(name)).unwrap());
        let (mut units, mut others) = (vec![0; 256 * UNIT_BYTES], vec![0; 256 * UNIT_BYTES]);
        let (mut kept_bytes, mut at) = (0, 0);
        loop {
            let len = full.read_at(&mut units, at).unwrap();
            if len == 0 {
                return kept_bytes;
            }
            squashed.read_exact_at(&mut others[..len], at).unwrap();
            let pairs = units[..len].chunks(UNIT_BYTES).zip(others.chunks(UNIT_BYTES));
            let kept = pairs.filter(|(unit, other)| unit == &&other[..unit.len()] && are_contents(unit));
            kept_bytes += kept.map(|(unit, _)| unit.len() as u64).sum::<u64>();
            at += len as u64;
        }
    }

    /// Compares the two as they are, repairs them, and compares them again.
    fn compare(self) {
        let (full, squashed) = (self.folder.join("full"), self.folder.join("squashed"));
        match self.file_system {
            "xfs" => compare_xfs(&full, &squashed, &self.what),
            "btrfs" => compare_btrfs(&full, &squashed, &self.what),
            "f2fs" => compare_f2fs(&full, &squashed, &self.what),
            _ => compare_ext(&full, &squashed, &self.what),
        }
        std::fs::remove_dir_all(self.folder).unwrap();
    }
}

/// Compares cuts as they arrive, several at a time.
fn compare_all(cuts: Arc<Mutex<Receiver<Cut>>>) {
    loop {
        // The lock is not held during the comparison.
        let next = cuts.lock().unwrap().recv();
        match next {
            Ok(cut) => cut.compare(),
            Err(_) => return,
        }
    }
}

fn compare_ext(full: &Path, squashed: &Path, what: &str) {
    let header = tool("dumpe2fs", &["-h", full.to_str().unwrap()]);
    // Before the file system is made, there is nothing to compare.
    if !header.status.success() {
        return;
    }
    // Before recovery, metadata at their places are of several moments: a directory whose removal is committed may
    // still be there in one of the two.
    let header = text(&header.stdout);
    if header.contains("needs_recovery") {
        if header.contains("fast_commit") {
            assert!(journal_of(full) == journal_of(squashed), "{what}: the journals differ");
            [full, squashed].into_iter().for_each(|path| blank_fast_commits(path, &header));
        }
        for path in [full, squashed] {
            let recovered = tool("e2fsck", &["-E", "journal_only", "-y", path.to_str().unwrap()]);
            let said = text(&recovered.stdout) + &text(&recovered.stderr);
            // e2fsck continues after a failed recovery, with status 0.
            let whole = recovered.status.code() < Some(4) && !said.contains("while recovering journal");
            assert!(whole, "{what}: {said}");
        }
    }
    blank_contents(full, squashed);
    e2fsprogs::compare_files(full, squashed, what);
    let repair = |path: &Path| {
        let ran = tool("e2fsck", &["-f", "-y", path.to_str().unwrap()]);
        (ran.status.code(), text(&ran.stdout).replace(path.to_str().unwrap(), "IMAGE"))
    };
    assert_eq!(repair(full), repair(squashed), "{what}");
    e2fsprogs::compare_files(full, squashed, &format!("{what}, repaired"));
}

/// Blanks fast commits, so that the journal contains only whole commits.
///
/// A fast commit names blocks of directories and links that may not be written yet. A checker then reads an earlier
/// owner's bytes there, and these may differ. If fast commits belong to an earlier transaction than the last whole one,
/// e2fsck 1.47.0 aborts its recovery half way ("Invalid argument").
fn blank_fast_commits(image: &Path, header: &str) {
    let number = |label: &str| -> u64 {
        let line = header.lines().find(|line| line.starts_with(label)).expect(label);
        line[label.len()..].trim().parse().expect(label)
    };
    let (count, block_bytes) = (number("Fast commit length:"), number("Block size:"));
    let blocks = text(&tool("debugfs", &["-c", "-R", "blocks <8>", image.to_str().unwrap()]).stdout);
    let blocks: Vec<u64> = blocks.split_whitespace().map(|block| block.parse().unwrap()).collect();
    let file = File::options().write(true).open(image).unwrap();
    for block in &blocks[blocks.len() - count as usize..] {
        file.write_all_at(&vec![0; block_bytes as usize], block * block_bytes).unwrap();
    }
}

/// The bytes of the journal, including fast commits, independent of the bitmaps.
fn journal_of(image: &Path) -> Vec<u8> {
    let file = image.with_extension("journal");
    let dump = format!("dump <8> {}", file.display());
    let dumped = tool("debugfs", &["-c", "-R", &dump, image.to_str().unwrap()]);
    let bytes = std::fs::read(&file).unwrap();
    assert!(!bytes.is_empty(), "{}", text(&dumped.stderr));
    std::fs::remove_file(file).unwrap();
    bytes
}

fn compare_xfs(full: &Path, squashed: &Path, what: &str) {
    // Before the file system is made, there is nothing to compare.
    let mut magic = [0; 4];
    File::open(full).unwrap().read_exact(&mut magic).unwrap();
    if magic != *b"XFSB" {
        return;
    }
    blank_contents(full, squashed);
    xfsprogs::compare_files(full, squashed, what);
    // Recreated metadata contain the current time, so they can't be compared.
    let repair = |image: &Path| xfsprogs::tool("xfs_repair", &["-P", "-L", image.to_str().unwrap()]).status.code();
    assert_eq!(repair(full), repair(squashed), "{what}");
    xfsprogs::compare_verdicts(full, squashed, &format!("{what}, repaired"));
}

fn compare_btrfs(full: &Path, squashed: &Path, what: &str) {
    // Before the file system is made, there is nothing to compare.
    let mut magic = [0; 8];
    File::open(full).unwrap().read_exact_at(&mut magic, (64 << 10) + 64).unwrap();
    if magic == *b"_BHRfS_M" {
        btrfsprogs::compare_files(full, squashed, what);
    }
}

/// fsck.f2fs finds equal trees and equal faults, also after it repaired both.
fn compare_f2fs(full: &Path, squashed: &Path, what: &str) {
    blank_contents(full, squashed);
    assert_eq!(f2fs_tools::verdict(full), f2fs_tools::verdict(squashed), "{what}");
    for image in [full, squashed] {
        f2fs_tools::tool("fsck.f2fs", &["-f", image.to_str().unwrap()]);
    }
    assert_eq!(f2fs_tools::verdict(full), f2fs_tools::verdict(squashed), "{what}, repaired");
}

/// Opens an image that was just closed. A child process that another thread is starting may still hold its lock, until
/// it executes its own program.
fn open_again(image: &Path, capacity_bytes: u64) -> SquashStore {
    let mut tries = 1_000;
    loop {
        match SquashStore::open(image, capacity_bytes, &SquashOptions::default()) {
            Err(StoreError::InUse { .. }) if tries > 0 => tries -= 1,
            opened => return opened.unwrap(),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Replaces blocks of contents in the full store by zeros, at the same addresses in both.
///
/// If a block of metadata was not written before a cut, an earlier file's contents may be at its place. A checker that
/// follows the metadata around it reads them, and they may differ between the two.
fn blank_contents(full: &Path, squashed: &Path) {
    let open = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
    let files = [open(full), open(squashed)];
    let blank = |offset: u64, len: usize| {
        files.iter().for_each(|file| file.write_all_at(&[0; UNIT_BYTES][..len], offset).unwrap());
    };
    let mut units = vec![0; 256 * UNIT_BYTES];
    let mut at = 0;
    loop {
        let len = files[0].read_at(&mut units, at).unwrap();
        let nonzero = |unit: &&[u8]| unit != &&[0; UNIT_BYTES][..unit.len()];
        let in_units = units[..len].chunks(UNIT_BYTES).zip((at..).step_by(UNIT_BYTES));
        for (unit, offset) in in_units.filter(|(unit, _)| nonzero(unit)) {
            if are_contents(unit) {
                blank(offset, unit.len());
                continue;
            }
            let blocks = unit.chunks(BLOCK_BYTES_MIN).zip((offset..).step_by(BLOCK_BYTES_MIN));
            blocks.filter(|(block, _)| are_contents(block)).for_each(|(block, offset)| blank(offset, block.len()));
        }
        if len == 0 {
            return;
        }
        at += len as u64;
    }
}

/// A squashing store's unit, and the smallest block of a file system.
const UNIT_BYTES: usize = 4096;
const BLOCK_BYTES_MIN: usize = 1024;

/// Whether a block is contents as written by `file_history`: the highest bit of each byte is set. A bitmap may be like
/// that, too, but with few different bytes.
fn are_contents(block: &[u8]) -> bool {
    let contents = || block.iter().filter(|&&byte| byte != 0);
    contents().all(|&byte| byte >= 0x80) && contents().collect::<HashSet<_>>().len() >= 8
}

#[test]
fn contents_are_told_from_metadata() {
    let mut block = [0; UNIT_BYTES];
    block[..16].copy_from_slice(&std::array::from_fn::<u8, 16, _>(|at| 0x80 + 7 * at as u8));
    assert!(are_contents(&block));
    block[UNIT_BYTES - 1] = b'x';
    assert!(!are_contents(&block), "a name in it");
    assert!(!are_contents(&[0xF0; UNIT_BYTES]) && !are_contents(&[0; UNIT_BYTES]), "a bitmap");
}

/// The guest makes F2FS, because `run` does not.
const ON_F2FS: &str = "set -e
    mkdir -p /lib/modules
    ln -sfn /usr/lib/uml/modules/$(uname -r) /lib/modules/$(uname -r)
    modprobe f2fs
    mkfs.f2fs -q -f /dev/vda >&2
    mount -t f2fs /dev/vda /mnt
    \"$@\"
    umount /mnt
    fsck.f2fs --dry-run /dev/vda >&2";

/// A recorded history: a guest's changes to the device.
struct History {
    folder: TempDir,
    file_system: &'static str,
    seed: u64,
    what: String,
    recording: PathBuf,
}

/// Runs a history in a guest, and compares the two stores at this number of cuts.
fn history(chronodisk: &Chronodisk, file_system: &'static str, flags: &[&str], seed: u64, steps: u32, cuts: u64) {
    let folder = image_folder();
    let recording = folder.path().join("recording");
    let capacity = format!("{}MiB", capacity_bytes(file_system) >> 20);
    let what = format!("{file_system} {flags:?} seed {seed}");
    let made_by_run: &[&str] =
        if file_system == "f2fs" { &["--fs", "none"] } else { &["--fs", file_system, "--check"] };
    let flags = [
        made_by_run,
        &["--capacity", &capacity, "--squash", "--content", "random"],
        &["--record-store", recording.to_str().unwrap()],
        flags,
    ]
    .concat();
    let (seed_text, steps_text) = (seed.to_string(), steps.to_string());
    let program = [&*example("file_history"), "/mnt", &seed_text, &steps_text];
    let on_f2fs = [&["sh", "-c", ON_F2FS, "sh"], &program[..]].concat();
    let program = if file_system == "f2fs" { &on_f2fs[..] } else { &program };
    let output = chronodisk.run("constant-100us", &flags, program);
    assert!(output.status.success(), "{what}: {}", text(&output.stderr));
    History { folder, file_system, seed, what, recording }.replay(cuts);
}

impl History {
    /// Replays the history into both stores, and compares them at this number of cuts, and at the end.
    fn replay(self, cuts: u64) {
        let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
        // At most one cut waits, because each takes as much room as two devices.
        let (sender, receiver) = sync_channel(1);
        let receiver = Arc::new(Mutex::new(receiver));
        // Each thread owns its end of the channel, so that a panic of one ends the other.
        std::thread::scope(|scope| {
            let (sender, receiver) = (sender, receiver);
            for _ in 0..workers {
                let receiver = receiver.clone();
                scope.spawn(move || compare_all(receiver));
            }
            drop(receiver);
            self.cut(cuts, &sender);
        });
        std::fs::remove_file(&self.recording).unwrap();
    }

    fn cut(&self, cuts: u64, compared: &SyncSender<Cut>) {
        let count = Recording::open(&self.recording).unwrap().changes().count() as u64;
        let mut random = RandomStream::new(self.seed, "squash", "cuts");
        let mut cut_at: Vec<u64> = (1..cuts).map(|_| random.below(count)).collect();
        cut_at.sort_unstable();
        let image = self.folder.path().join("image");
        let mut twin = Twin::new(self.file_system, &image, self.seed);
        for (change, index) in Recording::open(&self.recording).unwrap().changes().zip(0u64..) {
            let change: Change = change.unwrap();
            change.apply(&mut twin.full).unwrap();
            change.apply(&mut twin.squashed).unwrap();
            if cut_at.binary_search(&index).is_ok() {
                let folder = self.folder.path().join(format!("cut-{index}"));
                compared.send(twin.export(folder, format!("{} cut at {index}", self.what))).unwrap();
            }
        }
        // Close the image, and open it again.
        twin.squashed.close().unwrap();
        let statistics = twin.squashed.squash_statistics();
        println!("{}, {count} changes: {statistics:?}", self.what);
        if image.exists() {
            // Only one store at a time can open the image.
            drop(twin.squashed);
            twin.squashed = open_again(&image, capacity_bytes(self.file_system));
        }
        let end = twin.export(self.folder.path().join("end"), format!("{} at its end", self.what));
        println!("{}: {} bytes of contents are kept", self.what, end.kept_contents_bytes());
        compared.send(end).unwrap();
        assert!(twin.squashed.squash_statistics().generated_bytes > 0);
        drop(twin);
        for path in [image.clone(), image.with_extension("map")] {
            let _ = std::fs::remove_file(path);
        }
    }
}

pub(super) fn here() -> Option<Chronodisk> {
    if e2fsprogs_are_here() { Chronodisk::new() } else { None }
}

/// A history of one seed, shorter and with fewer cuts than those of `twins_agree_for_long`.
fn short_history(chronodisk: &Chronodisk, file_system: &'static str, flags: &[&str], seed: u64) {
    let (steps, cuts) = if long() { (300, 6) } else { (150, 3) };
    history(chronodisk, file_system, flags, seed, steps, cuts);
}

#[test]
fn twins_agree_on_ext4() {
    let Some(chronodisk) = here() else { return };
    short_history(&chronodisk, "ext4", &[], 1);
}

#[test]
fn twins_agree_on_ext3_with_small_blocks() {
    let Some(chronodisk) = here() else { return };
    short_history(&chronodisk, "ext3", &["--mkfs-options", "-b 1024"], 2);
}

#[test]
fn twins_agree_on_ext2() {
    let Some(chronodisk) = here() else { return };
    short_history(&chronodisk, "ext2", &[], 3);
}

#[test]
fn twins_agree_on_xfs() {
    if !xfsprogs_are_here() {
        return;
    }
    let Some(chronodisk) = here() else { return };
    short_history(&chronodisk, "xfs", &[], 4);
}

#[test]
fn twins_agree_on_btrfs() {
    if !btrfsprogs_are_here() {
        return;
    }
    let Some(chronodisk) = here() else { return };
    short_history(&chronodisk, "btrfs", &[], 5);
}

#[test]
fn twins_agree_on_f2fs() {
    let Some(chronodisk) = here().filter(|_| f2fs_tools_are_here()) else { return };
    if !is_root() {
        return;
    }
    short_history(&chronodisk, "f2fs", &[], 6);
}

/// The ways in which each file system is made and mounted.
const SETTINGS: [(&str, &[&[&str]]); 6] = [
    (
        "ext4",
        &[
            &[],
            &["--mount-options", "data=journal"],
            &["--mount-options", "data=writeback,discard"],
            &["--mkfs-options", "-b 1024"],
            &["--mkfs-options", "-O fast_commit"],
            &["--mkfs-options", "-O ^metadata_csum,^64bit"],
            &["--mkfs-options", "-O ea_inode,inline_data,quota"],
            &["--mkfs-options", "-O ^has_journal"],
            &["--mount-options", "journal_async_commit,data=writeback"],
        ],
    ),
    ("ext3", &[&[], &["--mkfs-options", "-b 1024"]]),
    // Without a journal, a cut may fall between an inode and a block of its map. In place of the map block, the full
    // store has an earlier file's contents, and the squashing store has generated ones: e2fsck then names other blocks.
    // Blocks of 1 KiB make that frequent.
    ("ext2", &[&[]]),
    ("xfs", &[&[], &["--mkfs-options", "-m rmapbt=1,reflink=1 -i size=1024", "--mount-options", "uquota,discard"]]),
    (
        "btrfs",
        &[
            &[],
            &["--mkfs-options", "-n 4096", "--mount-options", "discard=sync"],
            &["--mkfs-options", "-R ^free-space-tree", "--mount-options", "space_cache=v1,commit=1"],
            &["--mount-options", "compress=zlib"],
        ],
    ),
    ("f2fs", &[&[]]),
];

/// Many histories of each file system in turn, or of one; the environment sets the number of cuts.
#[test]
#[ignore = "hours long; make squash-soak"]
fn twins_agree_for_long() {
    let tools = here().filter(|_| xfsprogs_are_here() && btrfsprogs_are_here() && f2fs_tools_are_here());
    let Some(chronodisk) = tools else { return };
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (first, histories) = (number("CHRONODISK_SOAK_FIRST", 1), number("CHRONODISK_SOAK_HISTORIES", 50));
    let cuts = number("CHRONODISK_SOAK_CUTS", 50);
    let only = std::env::var("CHRONODISK_SOAK_FILE_SYSTEM").unwrap_or_default();
    let wanted: Vec<_> = SETTINGS.iter().filter(|settings| only.is_empty() || settings.0 == only).collect();
    assert!(!wanted.is_empty(), "CHRONODISK_SOAK_FILE_SYSTEM={only}");
    // Takes the file systems in turn, so that an interrupted soak has tested all of them.
    for seed in first..first + histories {
        for &&(file_system, settings) in &wanted {
            history(&chronodisk, file_system, settings[seed as usize % settings.len()], seed, 400, cuts);
            println!("{file_system}: {} of {histories} histories, {cuts} cuts each", seed - first + 1);
        }
    }
}
