//! Images of several devices: each device reads back its writes, also after a kill, and equal blocks of devices are
//! stored once.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use chronodisk_squash::{ImageInfo, SquashMode, SquashOptions, SquashStore};
use chronodisk_store::{Store, StoreError};
use proptest::prelude::*;

const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u64 = 24;
const DEVICES: usize = 3;
const CAPACITIES_BYTES: [u64; DEVICES] = [BLOCKS * BLOCK_BYTES; DEVICES];

fn options(mode: SquashMode) -> SquashOptions {
    SquashOptions { mode, unclassified_bytes: 0, ..SquashOptions::default() }
}

/// A few blocks, so that devices often have equal ones. The first is zeros, and every second one is compressible.
static BLOCKS_KNOWN: LazyLock<[Vec<u8>; 6]> = LazyLock::new(|| [0, 1, 2, 3, 4, 5].map(make_block));

fn block(value: u8) -> &'static [u8] {
    &BLOCKS_KNOWN[usize::from(value)]
}

fn make_block(value: u8) -> Vec<u8> {
    let mut state = u64::from(value) << 32;
    let mut byte = |at: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at | 1);
        if value == 0 { 0 } else { (state >> if value.is_multiple_of(2) { 63 } else { 56 }) as u8 }
    };
    (0..BLOCK_BYTES).map(|at| byte(at).wrapping_add(value)).collect()
}

fn map_of(image: &Path, device: usize) -> PathBuf {
    PathBuf::from(format!("{}.{device}.map", image.display()))
}

#[derive(Clone, Debug)]
enum Step {
    /// Writes equal blocks to the devices whose bits are set: the first block, their number, and their contents.
    Write {
        devices: u8,
        from: u64,
        count: u64,
        value: u8,
    },
    Discard {
        device: usize,
        from: u64,
        count: u64,
    },
    Flush {
        devices: u8,
    },
    /// Opens a copy of the image's files, as a kill would leave them now.
    Kill,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let some = || 1..1u8 << DEVICES;
    let step = prop_oneof![
        8 => (some(), 0..BLOCKS, 1..6u64, 0..6u8).prop_map(|(devices, from, count, value)| {
            Step::Write { devices, from, count, value }
        }),
        1 => (0..DEVICES, 0..BLOCKS, 1..8u64).prop_map(|(device, from, count)| Step::Discard { device, from, count }),
        3 => some().prop_map(|devices| Step::Flush { devices }),
        2 => Just(Step::Kill),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..80)
}

/// Each block of a device, and the set of contents that it may have after a kill: those at the last flush, and all
/// later ones.
#[derive(Clone)]
struct Shadow {
    now: [u8; BLOCKS as usize],
    possible: [u64; BLOCKS as usize],
}

impl Shadow {
    fn write(&mut self, from: u64, count: u64, value: u8) {
        for at in from as usize..(from + count) as usize {
            self.now[at] = value;
            self.possible[at] |= 1 << value;
        }
    }

    fn flush(&mut self) {
        self.possible = self.now.map(|value| 1 << value);
    }
}

/// The index of the known block at each address of a device.
fn values(store: &mut SquashStore) -> Vec<u8> {
    let mut bytes = vec![1; BLOCK_BYTES as usize];
    let value = |at: u64| {
        store.read(at * BLOCK_BYTES, &mut bytes).unwrap();
        BLOCKS_KNOWN.iter().position(|block| *block == bytes).expect("a block that was written") as u8
    };
    (0..BLOCKS).map(value).collect()
}

fn chosen(devices: u8) -> impl Iterator<Item = usize> {
    (0..DEVICES).filter(move |device| devices >> device & 1 == 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_device_reads_as_itself_also_after_a_kill(steps in steps(), exact: bool) {
        let options = options(if exact { SquashMode::Exact } else { SquashMode::Classified });
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("image"), folder.path().join("copy"));
        let mut stores = SquashStore::create_joint(&path, &CAPACITIES_BYTES, &options).unwrap();
        let shadow = Shadow { now: [0; BLOCKS as usize], possible: [1; BLOCKS as usize] };
        let mut shadows = vec![shadow; DEVICES];
        for step in steps {
            match step {
                Step::Write { devices, from, count, value } => {
                    let count = count.min(BLOCKS - from);
                    for device in chosen(devices) {
                        stores[device].write(from * BLOCK_BYTES, &block(value).repeat(count as usize)).unwrap();
                        shadows[device].write(from, count, value);
                    }
                }
                Step::Discard { device, from, count } => {
                    let count = count.min(BLOCKS - from);
                    stores[device].discard(from * BLOCK_BYTES, count * BLOCK_BYTES).unwrap();
                    shadows[device].write(from, count, 0);
                }
                Step::Flush { devices } => {
                    for device in chosen(devices) {
                        stores[device].flush().unwrap();
                        shadows[device].flush();
                    }
                }
                Step::Kill => {
                    fs::copy(&path, &copy).unwrap();
                    fs::copy(folder.path().join("image.sums"), folder.path().join("copy.sums")).unwrap();
                    (0..DEVICES).for_each(|device| {
                        fs::copy(map_of(&path, device), map_of(&copy, device)).unwrap();
                    });
                    let killed = SquashStore::open_joint(&copy, &CAPACITIES_BYTES, &options).unwrap();
                    for (mut store, shadow) in killed.into_iter().zip(&shadows) {
                        for (value, possible) in values(&mut store).into_iter().zip(shadow.possible) {
                            prop_assert!(possible >> value & 1 == 1, "{value} of {possible:b}");
                        }
                    }
                }
                Step::Reopen => {
                    drop(stores);
                    stores = SquashStore::open_joint(&path, &CAPACITIES_BYTES, &options).unwrap();
                    shadows.iter_mut().for_each(Shadow::flush);
                }
            }
            for (store, shadow) in stores.iter_mut().zip(&shadows) {
                prop_assert_eq!(values(store), shadow.now.to_vec());
            }
        }
        // Make the devices equal: each block is then stored once.
        for at in 0..BLOCKS {
            let bytes = block(shadows[0].now[at as usize]);
            stores.iter_mut().for_each(|store| store.write(at * BLOCK_BYTES, bytes).unwrap());
        }
        drop(stores);
        let infos = ImageInfo::read(&path).unwrap();
        let kept = shadows[0].now.iter().filter(|value| **value > 0).count() as u64 * BLOCK_BYTES;
        prop_assert!(infos.iter().all(|info| info.kept_bytes.iter().map(|kept| kept.1).sum::<u64>() == kept));
        prop_assert!(fs::metadata(&path).unwrap().len() <= BLOCK_BYTES * (1 + DEVICES as u64 * BLOCKS));
        let alone = folder.path().join("alone");
        let mut single = SquashStore::create(&alone, CAPACITIES_BYTES[0], &options).unwrap();
        for (at, value) in (0..).zip(shadows[0].now) {
            single.write(at * BLOCK_BYTES, block(value)).unwrap();
        }
        drop(single);
        let blocks_of = |info: &ImageInfo, map: &Path| info.stored_bytes - fs::metadata(map).unwrap().len();
        let single = &ImageInfo::read(&alone).unwrap()[0];
        let single_bytes = blocks_of(single, &folder.path().join("alone.map"));
        let parts = infos.iter().zip(0..).map(|(info, device)| blocks_of(info, &map_of(&path, device)));
        let parts: Vec<_> = parts.collect();
        // Shares are rounded, so their sum may differ by one per block and device.
        prop_assert!(parts.iter().sum::<u64>().abs_diff(single_bytes) <= BLOCKS * DEVICES as u64, "{parts:?}");
        prop_assert!(infos.iter().all(|info| info.shared_bytes == single_bytes));
    }
}

#[test]
fn an_image_is_of_its_devices_and_damage_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let options = options(SquashMode::Classified);
    let open = |capacities_bytes: &[u64]| {
        SquashStore::open_joint(&path, capacities_bytes, &options).map(|_| ()).unwrap_err().to_string()
    };
    let few = SquashStore::create_joint(&path, &[], &options).unwrap_err().to_string();
    assert!(few.ends_with("an image of 0 devices, expected 1 to 64"), "{few}");
    let mut stores = SquashStore::create_joint(&path, &CAPACITIES_BYTES[..2], &options).unwrap();
    assert!(matches!(ImageInfo::read(&path), Err(StoreError::InUse { .. })));
    stores.iter_mut().for_each(|store| store.write(0, block(1)).unwrap());
    stores[1].write(BLOCK_BYTES, block(3)).unwrap();
    drop(stores);
    assert!(open(&CAPACITIES_BYTES).ends_with("the image is of 2 devices, expected 3 devices"));
    let one = SquashStore::open(&path, CAPACITIES_BYTES[0], &options).unwrap_err().to_string();
    assert!(one.ends_with("the image is of 2 devices, expected one device"), "{one}");
    assert!(open(&[1 << 20, CAPACITIES_BYTES[1]]).contains("of a device of 98304 bytes, expected 1048576"));

    // Rename block 0 of the first device to block 1, so that its place belongs to another block of the second device.
    let (map, whole) = (map_of(&path, 0), fs::read(map_of(&path, 0)).unwrap());
    let mut moved = whole.clone();
    moved[64 + 32 + 8] = 1;
    let checksum = crc32c::crc32c(&moved[64 + 32..64 + 64]);
    moved[64 + 24..64 + 28].copy_from_slice(&checksum.to_le_bytes());
    let checksum = crc32c::crc32c(&moved[64..64 + 28]);
    moved[64 + 28..64 + 32].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&map, &moved).unwrap();
    let said = open(&CAPACITIES_BYTES[..2]);
    assert!(said.ends_with("a place of block 0 of device 1 is another block's on another device"), "{said}");
    fs::write(&map, &whole).unwrap();
    fs::remove_file(map_of(&path, 1)).unwrap();
    assert!(open(&CAPACITIES_BYTES[..2]).contains("image.1.map"));

    let header = fs::read(&path).unwrap();
    for at in (8..56).chain(64..80) {
        let mut damaged = header.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        assert!(open(&CAPACITIES_BYTES[..2]).contains("damaged"), "byte {at}");
    }
}
