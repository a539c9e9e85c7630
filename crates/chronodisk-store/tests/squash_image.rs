//! Squashed images: what was flushed is there after a kill, nothing reads as something else, and damage is
//! refused with a reason.

use std::fs;
use std::path::{Path, PathBuf};

use chronodisk_sim::RandomStream;
use chronodisk_store::squash::{ContentKind, ImageInfo, JointMemory, SquashMode, SquashOptions, SquashStore};
use chronodisk_store::{Store, StoreError};
use proptest::prelude::*;

const CAPACITY_BYTES: u64 = (4 << 20) + 1234;

fn options(mode: SquashMode) -> SquashOptions {
    SquashOptions { mode, content: ContentKind::Text, seed: 3, ..SquashOptions::default() }
}

fn map_of(image: &Path) -> PathBuf {
    PathBuf::from(format!("{}.map", image.display()))
}

/// Compressible, and never the same twice.
fn bytes(random: &mut RandomStream, len: usize) -> Vec<u8> {
    let (word, step) = (random.next_u64(), random.below(60) + 1);
    (0..len as u64).map(|i| (word.wrapping_mul(i / step + 1) >> 40) as u8).collect()
}

/// Writes, zeroes and discards at random; returns what the device must read as.
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

/// A kill leaves the files as they are at any moment; they are copied at such moments.
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
        // What comes after the flush is lost or not, block by block.
        scribble(&mut store, &mut shadow, &mut random, 10);
        fs::copy(&path, &copy).unwrap();
        fs::copy(map_of(&path), map_of(&copy)).unwrap();
        let mut killed = SquashStore::open(&copy, CAPACITY_BYTES, &options(SquashMode::Exact)).unwrap();
        let found = contents(&mut killed);
        for (index, block) in found.chunks(4096).enumerate() {
            let at = index * 4096..index * 4096 + block.len();
            let changed = flushed[at.clone()] != shadow[at.clone()];
            assert!(changed || block == &flushed[at], "block {index}");
        }
    }
}

#[test]
fn every_damaged_byte_of_the_map_is_noticed_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut shadow = vec![0; CAPACITY_BYTES as usize];
    let mut random = RandomStream::new(3, "test", "damage");
    let mut store = SquashStore::create(&path, CAPACITY_BYTES, &options(SquashMode::Exact)).unwrap();
    for _ in 0..4 {
        scribble(&mut store, &mut shadow, &mut random, 6);
        store.flush().unwrap();
    }
    drop(store);
    let whole = fs::read(map_of(&path)).unwrap();
    let count_at = |at: usize| u32::from_le_bytes(whole[at + 4..at + 8].try_into().unwrap()) as usize;
    let mut last_record = 64;
    while last_record + 32 + 32 * count_at(last_record) < whole.len() {
        last_record += 32 + 32 * count_at(last_record);
    }
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(map_of(&path), &damaged).unwrap();
        match ImageInfo::read(&path) {
            Err(StoreError::Image { reason, .. }) => assert!(!reason.is_empty()),
            Err(error) => panic!("byte {at}: {error}"),
            // Bytes 36 to 63 of the header mean nothing; the last record counts as never written.
            Ok(_) => assert!((36..64).contains(&at) || at >= last_record, "byte {at}"),
        }
    }
    // Cut off anywhere, it is what a kill may leave, unless a record is gone that made the image smaller.
    for len in (64..whole.len()).step_by(131) {
        fs::write(map_of(&path), &whole[..len]).unwrap();
        if let Err(error) = ImageInfo::read(&path) {
            assert!(error.to_string().ends_with("shorter than its map says"), "{len}: {error}");
        }
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
    assert!(open(CAPACITY_BYTES).contains("opening"));
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
                // Now and then one device gets what the other one does not.
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
        // Made equal again, as an array does that was degraded.
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
