//! Squashed images: flushed blocks survive a kill, no block reads as another, and damage is refused with a reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronodisk_sim::RandomStream;
use chronodisk_squash::{ContentKind, ImageInfo, JointMemory, SquashMode, SquashOptions, SquashStore};
use chronodisk_store::host::{Host, RealHost};
use chronodisk_store::{Durability, Store, StoreError};
use proptest::prelude::*;

const CAPACITY_BYTES: u64 = (4 << 20) + 1234;

fn options(mode: SquashMode) -> SquashOptions {
    SquashOptions { mode, content: ContentKind::Text, seed: 3, ..SquashOptions::default() }
}

fn map_of(image: &Path) -> PathBuf {
    PathBuf::from(format!("{}.map", image.display()))
}

fn sums_of(image: &Path) -> PathBuf {
    PathBuf::from(format!("{}.sums", image.display()))
}

/// Copies the files of an image, as a kill would leave them now.
fn copy_image(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
    fs::copy(map_of(from), map_of(to)).unwrap();
    fs::copy(sums_of(from), sums_of(to)).unwrap();
}

fn write_through(mode: SquashMode) -> SquashOptions {
    let durability = Durability { write_through: true, power_cut: false };
    SquashOptions { durability, ..options(mode) }
}

/// Compressible bytes, different in each call.
fn bytes(random: &mut RandomStream, len: usize) -> Vec<u8> {
    let (word, step) = (random.next_u64(), random.below(60) + 1);
    (0..len as u64).map(|i| (word.wrapping_mul(i / step + 1) >> 40) as u8).collect()
}

/// Writes, zeroes and discards at random, and does the same to `shadow`.
fn scribble(store: &mut dyn Store, shadow: &mut [u8], random: &mut RandomStream, count: u32) {
    for _ in 0..count {
        let at = random.below(CAPACITY_BYTES - 70_000);
        let len = if random.chance(0.5) { 4096 * (1 + random.below(16)) } else { 1 + random.below(9000) };
        let at = if random.chance(0.5) { at / 4096 * 4096 } else { at };
        let range = at as usize..(at + len) as usize;
        match random.below(6) {
            0 => store.discard(at, len).map(|()| shadow[range].fill(0)).unwrap(),
            1 => store.write_zeroes(at, len).map(|()| shadow[range].fill(0)).unwrap(),
            _ => {
                let written = bytes(random, len as usize);
                store.write(at, &written).unwrap();
                shadow[range].copy_from_slice(&written);
            }
        }
    }
}

fn contents(store: &mut dyn Store) -> Vec<u8> {
    let mut read = vec![1; CAPACITY_BYTES as usize];
    store.read(0, &mut read).unwrap();
    read
}

#[test]
fn without_a_file_system_everything_is_kept_and_comes_back() {
    for mode in [SquashMode::Classified, SquashMode::Exact] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut shadow = vec![0; CAPACITY_BYTES as usize];
        let mut random = RandomStream::new(1, "test", mode.name());
        let mut store = SquashStore::create(&path, CAPACITY_BYTES, &options(mode)).unwrap();
        for round in 0..12 {
            scribble(&mut store, &mut shadow, &mut random, 40);
            assert!(contents(&mut store) == shadow, "{mode:?}, round {round}");
            store.flush().unwrap();
            if round % 3 == 2 {
                drop(store);
                store = SquashStore::open(&path, CAPACITY_BYTES, &options(mode)).unwrap();
                assert!(contents(&mut store) == shadow, "{mode:?}, opened in round {round}");
            }
        }
        drop(store);
        let info = ImageInfo::read(&path).unwrap().remove(0);
        assert_eq!((info.capacity_bytes, info.mode, info.generated_bytes), (CAPACITY_BYTES, mode, 0));
        let kept: u64 = info.kept_bytes.iter().map(|(_, bytes)| bytes).sum();
        let smaller = info.stored_bytes < kept;
        assert!(smaller || mode == SquashMode::Classified, "{info:?}");
    }
}

/// A kill may leave any state of the files, so they are copied at several moments.
#[test]
fn what_was_flushed_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    let mut shadow = vec![0; CAPACITY_BYTES as usize];
    let mut random = RandomStream::new(2, "test", "kill");
    let mut store = SquashStore::create(&path, CAPACITY_BYTES, &options(SquashMode::Exact)).unwrap();
    for _ in 0..50 {
        scribble(&mut store, &mut shadow, &mut random, 10);
        store.flush().unwrap();
        let flushed = shadow.clone();
        // Each block written after the flush is lost or not.
        scribble(&mut store, &mut shadow, &mut random, 10);
        copy_image(&path, &copy);
        let mut killed = SquashStore::open(&copy, CAPACITY_BYTES, &options(SquashMode::Exact)).unwrap();
        let found = contents(&mut killed);
        for (index, block) in found.chunks(4096).enumerate() {
            let at = index * 4096..index * 4096 + block.len();
            let changed = flushed[at.clone()] != shadow[at.clone()];
            assert!(changed || block == &flushed[at], "block {index}");
        }
    }
}

/// A device without a volatile cache gets no flush.
#[test]
fn what_was_written_through_survives_a_kill_without_a_flush() {
    for mode in [SquashMode::Classified, SquashMode::Exact] {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
        let mut shadow = vec![0; CAPACITY_BYTES as usize];
        let mut random = RandomStream::new(4, "test", "write-through");
        let mut store = SquashStore::create(&path, CAPACITY_BYTES, &write_through(mode)).unwrap();
        for round in 0..40 {
            scribble(&mut store, &mut shadow, &mut random, 1 + round % 5);
            copy_image(&path, &copy);
            let mut killed = SquashStore::open(&copy, CAPACITY_BYTES, &options(mode)).unwrap();
            assert!(contents(&mut killed) == shadow, "{mode:?}, round {round}");
        }
    }
}

/// An image with a few records, and its contents.
fn small_image(path: &Path) -> Vec<u8> {
    let mut shadow = vec![0; CAPACITY_BYTES as usize];
    let mut random = RandomStream::new(3, "test", "damage");
    let mut store = SquashStore::create(path, CAPACITY_BYTES, &options(SquashMode::Exact)).unwrap();
    for _ in 0..4 {
        scribble(&mut store, &mut shadow, &mut random, 6);
        store.flush().unwrap();
    }
    shadow
}

#[test]
fn every_damaged_byte_of_the_map_and_every_cut_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    small_image(&path);
    let whole = fs::read(map_of(&path)).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(map_of(&path), &damaged).unwrap();
        match ImageInfo::read(&path) {
            Err(StoreError::Image { reason, .. }) => assert!(!reason.is_empty()),
            Err(error) => panic!("byte {at}: {error}"),
            // Bytes 36 to 63 of the header are unused.
            Ok(_) => assert!((36..64).contains(&at), "byte {at}"),
        }
    }
    for len in (64..whole.len()).step_by(131) {
        fs::write(map_of(&path), &whole[..len]).unwrap();
        let error = ImageInfo::read(&path).unwrap_err().to_string();
        assert!(error.contains("was committed") && error.contains("image repair"), "{len}: {error}");
    }
}

#[test]
fn a_damaged_block_is_never_read_as_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    let shadow = small_image(&path);
    let mut refused = 0;
    for (file, first) in [(path.clone(), 4096), (sums_of(&path), 4096)] {
        let whole = fs::read(&file).unwrap();
        for at in (first..whole.len()).step_by(whole.len() / 97) {
            copy_image(&path, &copy);
            let damaged = if file == path { copy.clone() } else { sums_of(&copy) };
            let mut bytes = whole.clone();
            bytes[at] ^= 0x04;
            fs::write(&damaged, &bytes).unwrap();
            let mut store = SquashStore::open(&copy, CAPACITY_BYTES, &options(SquashMode::Exact)).unwrap();
            let mut block = [0; 4096];
            for (index, expected) in shadow.chunks_exact(4096).enumerate() {
                match store.read(index as u64 * 4096, &mut block) {
                    Ok(()) => assert!(block == expected, "byte {at}, block {index}"),
                    Err(StoreError::Damaged { .. }) => refused += 1,
                    Err(error) => panic!("byte {at}: {error}"),
                }
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn a_damaged_image_says_what_is_lost_and_opens_what_is_good() {
    let host: Arc<dyn Host> = Arc::new(RealHost);
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
    let shadow = small_image(&path);
    let examine = |path: &Path| chronodisk_squash::examine(&host, path, &mut |_, _| {}).unwrap();
    assert!(examine(&path).is_sound());

    // A flipped bit in a block: only that block is lost.
    copy_image(&path, &copy);
    let mut bytes = fs::read(&copy).unwrap();
    bytes[4096] ^= 1;
    fs::write(&copy, &bytes).unwrap();
    let found = examine(&copy);
    assert_eq!(found.devices[0].damaged.iter().map(|range| range.1).sum::<u64>(), 1, "{found:?}");
    let lost = found.devices[0].damaged[0].0;
    chronodisk_squash::repair(&host, &copy, &mut |_, _| {}).unwrap();
    let found = examine(&copy);
    assert!(found.is_sound() && found.devices[0].lost_blocks == 1, "{found:?}");
    assert_eq!(ImageInfo::read(&copy).unwrap()[0].damaged_bytes, 4096);
    let mut store = SquashStore::open(&copy, CAPACITY_BYTES, &options(SquashMode::Exact)).unwrap();
    let mut block = [0; 4096];
    for (index, expected) in (0..).zip(shadow.chunks_exact(4096)) {
        let read = store.read(index * 4096, &mut block);
        assert!(if index == lost { read.is_err() } else { read.is_ok() && block == expected }, "block {index}");
    }
    // After an overwrite, the lost block is valid again.
    store.write(lost * 4096, &[5; 4096]).unwrap();
    store.read(lost * 4096, &mut block).unwrap();
    assert_eq!(block, [5; 4096]);
    drop(store);

    // A map cut in half: the remaining records apply, each block in its state then or later.
    copy_image(&path, &copy);
    let map = fs::read(map_of(&copy)).unwrap();
    fs::write(map_of(&copy), &map[..map.len() / 2]).unwrap();
    let found = chronodisk_squash::repair(&host, &copy, &mut |_, _| {}).unwrap();
    let (records, committed) = found.devices[0].records;
    assert!(records < committed && found.devices[0].map_error.is_some(), "{found:?}");
    assert!(examine(&copy).is_sound());
    SquashStore::open(&copy, CAPACITY_BYTES, &options(SquashMode::Exact)).unwrap();

    // Missing checksums are computed again.
    copy_image(&path, &copy);
    fs::remove_file(sums_of(&copy)).unwrap();
    assert!(SquashStore::open(&copy, CAPACITY_BYTES, &options(SquashMode::Exact)).is_err());
    assert!(chronodisk_squash::repair(&host, &copy, &mut |_, _| {}).unwrap().unchecked.is_some());
    let mut store = SquashStore::open(&copy, CAPACITY_BYTES, &options(SquashMode::Exact)).unwrap();
    assert!(contents(&mut store) == shadow);
}

/// Images of one device and of two, made by a version without checksums: `tests/images/README.md`.
#[test]
fn images_of_older_versions_are_converted_also_after_a_kill() {
    let host: Arc<dyn Host> = Arc::new(RealHost);
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
    for (name, maps) in [("version-1", &["map"][..]), ("version-2", &["0.map", "1.map"][..])] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        fs::copy(images.join(name), &path).unwrap();
        for map in maps {
            fs::copy(images.join(format!("{name}.{map}")), folder.path().join(format!("image.{map}"))).unwrap();
        }
        let before = ImageInfo::read(&path).unwrap();
        let capacities: Vec<u64> = before.iter().map(|info| info.capacity_bytes).collect();
        let open = |path: &Path| match capacities[..] {
            [capacity_bytes] => SquashStore::open(path, capacity_bytes, &SquashOptions::default()).map(|one| vec![one]),
            _ => SquashStore::open_joint(path, &capacities, &SquashOptions::default()),
        };
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("chronodisk image upgrade"), "{error}");
        // A kill left a part of the new checksums behind.
        fs::write(format!("{}.new", sums_of(&path).display()), b"CDSQSUM").unwrap();
        assert!(chronodisk_squash::upgrade(&host, &path, &mut |_, _| {}).unwrap());
        assert!(!chronodisk_squash::upgrade(&host, &path, &mut |_, _| {}).unwrap(), "it is converted");
        let after = ImageInfo::read(&path).unwrap();
        for ((before, after), store) in before.iter().zip(&after).zip(&mut open(&path).unwrap()) {
            assert_eq!((after.version, &after.kept_bytes), (3, &before.kept_bytes));
            let mut read = vec![0; 64 << 10];
            store.read(1 << 20, &mut read).unwrap();
            let pattern: Vec<u8> = (0..read.len()).map(|at| (at / 512 % 251) as u8 + 1).collect();
            assert!(read == pattern, "{name}");
        }
    }
}

/// Blocks freed in the middle of the file return to the host, as do those at its end.
#[test]
fn what_is_freed_takes_no_space_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut random = RandomStream::new(9, "test", "space");
    let mut store = SquashStore::create(&path, 64 << 20, &options(SquashMode::Exact)).unwrap();
    let incompressible: Vec<u8> = (0..16 << 20).map(|_| random.next_u64() as u8).collect();
    store.write(0, &incompressible).unwrap();
    store.write(32 << 20, &incompressible[..4096]).unwrap();
    store.flush().unwrap();
    store.discard(0, 16 << 20).unwrap();
    store.close().unwrap();
    drop(store);
    let info = ImageInfo::read(&path).unwrap().remove(0);
    assert_eq!(info.kept_bytes.iter().map(|kept| kept.1).sum::<u64>(), 4096);
    assert!(info.host_bytes < 256 << 10, "{info:?}");
}

/// All checksums are valid, so only the bounds check stands between this map and a panic.
#[test]
fn a_place_beyond_all_files_is_refused() {
    for (place, count) in [(u64::MAX, 1_u64), (u64::MAX - 7, 1), ((1 << 53) - 1, 1), (1 << 40, 1 << 62)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        small_image(&path);
        let mut map = fs::read(map_of(&path)).unwrap();
        // The first entry of the first record is a kept block.
        let entry = 64 + 32;
        map[entry] = 3;
        map[entry + 16..entry + 24].copy_from_slice(&count.to_le_bytes());
        map[entry + 24..entry + 32].copy_from_slice(&place.to_le_bytes());
        let entries = u32::from_le_bytes(map[64 + 4..64 + 8].try_into().unwrap()) as usize;
        let checksum = crc32c::crc32c(&map[entry..entry + 32 * entries]);
        map[64 + 24..64 + 28].copy_from_slice(&checksum.to_le_bytes());
        let checksum = crc32c::crc32c(&map[64..64 + 28]);
        map[64 + 28..64 + 32].copy_from_slice(&checksum.to_le_bytes());
        fs::write(map_of(&path), &map).unwrap();
        let error = ImageInfo::read(&path).unwrap_err().to_string();
        assert!(error.contains("says what can't be"), "place {place}: {error}");
    }
}

#[test]
fn what_is_no_image_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let open =
        |capacity_bytes| SquashStore::open(&path, capacity_bytes, &options(SquashMode::Exact)).unwrap_err().to_string();
    fs::write(&path, vec![7; 10_000]).unwrap();
    assert!(open(CAPACITY_BYTES).ends_with("this is no squashed image"));
    fs::remove_file(&path).unwrap();
    let mut store = SquashStore::create(&path, CAPACITY_BYTES, &options(SquashMode::Exact)).unwrap();
    assert!(matches!(ImageInfo::read(&path), Err(StoreError::InUse { .. })));
    store.write(0, &[9; 100_000]).unwrap();
    drop(store);
    assert!(open(1 << 20).contains("of a device of 4195538 bytes, expected 1048576"));
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(4100).unwrap();
    assert!(open(CAPACITY_BYTES).ends_with("the file is shorter than its map says"));
    fs::remove_file(map_of(&path)).unwrap();
    assert!(open(CAPACITY_BYTES).contains("missing"));
}

#[test]
fn beyond_its_budget_a_store_refuses_and_changes_nothing() {
    let wait_for_nothing = SquashOptions { unclassified_bytes: 0, ..SquashOptions::default() };
    let mut store = SquashStore::in_memory(1 << 40, 1 << 20, &wait_for_nothing);
    store.write(1 << 30, &[5; 1 << 19]).unwrap();
    let error = store.write((1 << 30) + (1 << 18), &vec![6; 1 << 20]).unwrap_err();
    assert!(matches!(error, StoreError::BudgetExceeded { .. }), "{error}");
    let mut read = vec![0; 1 << 19];
    store.read(1 << 30, &mut read).unwrap();
    assert!(read.iter().all(|&byte| byte == 5));
    store.write(0, &vec![0; 8 << 20]).unwrap();
    store.discard(0, 1 << 40).unwrap();
    assert_eq!(store.allocated_bytes().unwrap(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn mirrors_in_joint_memory_are_there_once(seed: u64, exact: bool, alone in prop::collection::vec(0..4u32, 6)) {
        let mode = if exact { SquashMode::Exact } else { SquashMode::Classified };
        let options = SquashOptions { unclassified_bytes: 0, ..options(mode) };
        let memory = JointMemory::new(6 * CAPACITY_BYTES);
        let mut devices = [0, 1].map(|_| {
            let store = SquashStore::in_joint_memory(CAPACITY_BYTES, &memory, &options);
            (store, vec![0; CAPACITY_BYTES as usize])
        });
        for (step, alone) in alone.into_iter().enumerate() {
            for (index, (store, shadow)) in devices.iter_mut().enumerate() {
                // Sometimes a write goes to one device only.
                if alone < 2 && alone as usize != index {
                    continue;
                }
                let mut random = RandomStream::new(seed, "mirrors", &step.to_string());
                scribble(store, shadow, &mut random, 20);
                store.flush().unwrap();
            }
            for (store, shadow) in &mut devices {
                prop_assert!(contents(store) == *shadow);
            }
        }
        // Make the devices equal again, as an array does after a rebuild.
        let [(first, shadow), (second, _)] = &mut devices;
        for (at, bytes) in (0..).step_by(4096).zip(shadow.chunks(4096)) {
            second.write(at, bytes).unwrap();
        }
        prop_assert!(contents(second) == *shadow);
        let mut plain = SquashStore::in_memory(CAPACITY_BYTES, 2 * CAPACITY_BYTES, &options);
        plain.write(0, shadow).unwrap();
        let allocated: u64 = [&*first, second].map(|store| store.allocated_bytes().unwrap()).iter().sum();
        prop_assert_eq!(allocated, plain.allocated_bytes().unwrap());
        prop_assert_eq!(second.squash_statistics().stored_bytes, allocated / 2);
        second.discard(0, CAPACITY_BYTES).unwrap();
        prop_assert_eq!(second.allocated_bytes().unwrap(), 0);
        prop_assert_eq!(first.allocated_bytes().unwrap(), allocated);
        prop_assert_eq!(first.squash_statistics().shared_bytes, 0);
        prop_assert!(contents(first) == *shadow);
    }

    #[test]
    fn a_store_in_memory_is_a_plain_array(seed: u64, exact: bool, waiting in 0..3u64) {
        let mode = if exact { SquashMode::Exact } else { SquashMode::Classified };
        let options = SquashOptions { unclassified_bytes: waiting * (64 << 10), ..options(mode) };
        let mut store = SquashStore::in_memory(CAPACITY_BYTES, 2 * CAPACITY_BYTES, &options);
        let mut shadow = vec![0; CAPACITY_BYTES as usize];
        let mut random = RandomStream::new(seed, "test", "memory");
        for _ in 0..3 {
            scribble(&mut store, &mut shadow, &mut random, 20);
            prop_assert!(contents(&mut store) == shadow);
            store.flush().unwrap();
        }
        prop_assert!(contents(&mut store) == shadow);
    }
}
