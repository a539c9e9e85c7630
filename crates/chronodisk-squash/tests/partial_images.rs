//! Incomplete images: if files of an image are missing, nothing is opened, created or changed. A failed creation leaves
//! nothing behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronodisk_squash::{SquashMode, SquashOptions, SquashStore, examine, repair, upgrade};
use chronodisk_store::host::{Host, OpenMode};
use chronodisk_store::image_files::{map_path, sums_path};
use chronodisk_store::simulated::{Call, Fault, SimulatedHost, SimulatedOptions};
use chronodisk_store::{Durability, FileStore, Store, StoreError};

const IMAGE: &str = "/folder/e.img";
/// Index of the file of checksums among an image's files.
const SUMS: usize = 1;
const CAPACITY_BYTES: u64 = 1 << 20;
const DURABLE: Durability = Durability { write_through: true, power_cut: true };

/// A host without spontaneous faults.
fn quiet_host() -> SimulatedHost {
    let quiet = SimulatedOptions::new(1);
    SimulatedHost::new(&SimulatedOptions {
        short_per_mille: 0,
        interrupted_per_mille: 0,
        write_back_per_mille: 0,
        ..quiet
    })
}

fn options(host: &SimulatedHost, mode: SquashMode) -> SquashOptions {
    SquashOptions { mode, durability: DURABLE, host: Arc::new(host.clone()), ..SquashOptions::default() }
}

fn files_of(devices: usize) -> Vec<PathBuf> {
    let image = Path::new(IMAGE);
    let maps = (0..devices).map(|index| map_path(image, devices, index));
    [image.to_owned(), sums_path(image)].into_iter().chain(maps).collect()
}

/// Every file of a host with its bytes.
fn contents(host: &SimulatedHost) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| {
        let file = host.open(&path, OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.size().unwrap().len_bytes as usize];
        let mut done = 0;
        while done < bytes.len() {
            done += file.read_at(&mut bytes[done..], done as u64, false).unwrap();
        }
        (path, bytes)
    };
    host.names().into_iter().map(read).collect()
}

fn fill(host: &SimulatedHost, bytes: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, bytes) in bytes {
        let file = host.open(path, OpenMode::CreateNew).unwrap();
        assert!(bytes.is_empty() || file.write_at(bytes, 0).unwrap() == bytes.len());
    }
}

/// The files of an image of this number of devices, each with `written`.
fn image_of(mode: SquashMode, devices: usize, written: &[u8]) -> BTreeMap<PathBuf, Vec<u8>> {
    let host = quiet_host();
    let capacities = vec![CAPACITY_BYTES; devices];
    let mut stores = SquashStore::create_joint(IMAGE, &capacities, &options(&host, mode)).unwrap();
    for store in &mut stores {
        store.write(8192, written).unwrap();
        store.close().unwrap();
    }
    drop(stores);
    contents(&host)
}

/// A way to open an image, and whether it may change the files; an `Err` holds the refusal.
type Opening = (&'static str, fn(&SimulatedHost, SquashMode, usize) -> Result<(), StoreError>);

const OPENINGS: [Opening; 8] = [
    ("open or create", |host, mode, devices| {
        let capacities = vec![CAPACITY_BYTES; devices];
        SquashStore::open_or_create_joint(IMAGE, &capacities, &options(host, mode)).map(drop)
    }),
    ("create", |host, mode, devices| {
        SquashStore::create_joint(IMAGE, &vec![CAPACITY_BYTES; devices], &options(host, mode)).map(drop)
    }),
    ("open", |host, mode, devices| {
        SquashStore::open_joint(IMAGE, &vec![CAPACITY_BYTES; devices], &options(host, mode)).map(drop)
    }),
    ("create of another count", |host, mode, devices| {
        SquashStore::create_joint(IMAGE, &vec![CAPACITY_BYTES; devices + 1], &options(host, mode)).map(drop)
    }),
    ("create a file", |host, _, _| {
        let host: Arc<dyn Host> = Arc::new(host.clone());
        FileStore::create_on(&host, IMAGE, CAPACITY_BYTES, DURABLE).map(drop)
    }),
    ("check", |host, _, _| examine(&as_host(host), Path::new(IMAGE), &mut |_, _| {}).map(drop)),
    ("repair", |host, _, _| repair(&as_host(host), Path::new(IMAGE), &mut |_, _| {}).map(drop)),
    ("upgrade", |host, _, _| upgrade(&as_host(host), Path::new(IMAGE), &mut |_, _| {}).map(drop)),
];

fn as_host(host: &SimulatedHost) -> Arc<dyn Host> {
    Arc::new(host.clone())
}

#[test]
fn every_part_of_an_image_without_the_others_is_refused_untouched() {
    let mut refused = 0;
    for (mode, devices) in [(SquashMode::Exact, 1), (SquashMode::Classified, 1), (SquashMode::Exact, 3)] {
        // An image that was never written to behaves equally.
        for written in [&[7; 20_000][..], &[]] {
            let whole = image_of(mode, devices, written);
            let files = files_of(devices);
            assert!(whole.keys().eq(files.iter().collect::<BTreeSet<_>>()), "{:?}", whole.keys());
            for subset in 1..(1_u32 << files.len()) - 1 {
                let has = |index: usize| subset >> index & 1 == 1;
                let (there, missing): (Vec<usize>, Vec<usize>) = (0..files.len()).partition(|index| has(*index));
                let parts: BTreeMap<_, _> =
                    there.iter().map(|index| (files[*index].clone(), whole[&files[*index]].clone())).collect();
                for (name, opening) in OPENINGS {
                    // An image without checksums can be examined and repaired.
                    let needs_sums = !matches!(name, "check" | "repair");
                    if missing == [SUMS] && !needs_sums {
                        continue;
                    }
                    let host = quiet_host();
                    fill(&host, &parts);
                    let error = opening(&host, mode, devices).expect_err(name);
                    let case = format!("{name}, {devices} devices, {there:?}: {error}");
                    assert_eq!(contents(&host), parts, "{case}");
                    refused += 1;
                    if there.contains(&0) && name.starts_with("create") {
                        continue;
                    }
                    let told = |index: &&usize| match there.contains(&0) {
                        true => **index != SUMS || needs_sums,
                        false => **index == 0,
                    };
                    let expected: Vec<&PathBuf> = missing.iter().filter(told).map(|index| &files[*index]).collect();
                    let StoreError::Incomplete { missing, .. } = &error else { panic!("{case}") };
                    assert!(missing.iter().eq(expected), "{case}");
                    assert!(error.to_string().contains("put the missing files back"), "{case}");
                }
            }
        }
    }
    assert!(refused > 500, "{refused}");
}

/// A killed start leaves such a file; so does a truncation by another program.
#[test]
fn an_image_that_was_cut_off_is_not_made_anew_over_its_map() {
    for devices in [1, 2] {
        let whole = image_of(SquashMode::Exact, devices, &[7; 20_000]);
        for zeros in [0, 100, 4096] {
            let mut parts = whole.clone();
            parts.insert(PathBuf::from(IMAGE), vec![0; zeros]);
            for (name, opening) in OPENINGS.iter().filter(|opening| opening.0 != "create a file") {
                let host = quiet_host();
                fill(&host, &parts);
                let error = opening(&host, SquashMode::Exact, devices).expect_err(name);
                assert_eq!(contents(&host), parts, "{name}, {zeros}: {error}");
            }
        }
    }
    // A plain file of no length is made as long as the device, but not beside an image's map.
    let mut parts = image_of(SquashMode::Exact, 1, &[7; 20_000]);
    parts.insert(PathBuf::from(IMAGE), Vec::new());
    let host = quiet_host();
    fill(&host, &parts);
    let error = FileStore::open_on(&as_host(&host), IMAGE, CAPACITY_BYTES, DURABLE).unwrap_err();
    assert!(matches!(error, StoreError::Incomplete { .. }), "{error}");
    assert_eq!(contents(&host), parts);
}

#[test]
fn a_creation_that_fails_at_any_call_leaves_nothing_and_touches_nothing() {
    let others: BTreeMap<PathBuf, Vec<u8>> =
        [("/folder/e.img.map.old", 10), ("/folder/e.imgx", 4096)].map(|(path, len)| (path.into(), vec![1; len])).into();
    // A killed start left an empty file at one of the names.
    let mut with_leftover = others.clone();
    with_leftover.insert(PathBuf::from(IMAGE), Vec::new());
    let mut failures = 0;
    for (devices, before) in [(1, &others), (3, &others), (1, &with_leftover)] {
        for fault in [Fault::Error, Fault::FullFromNowOn] {
            for nth in 1.. {
                let host = quiet_host();
                fill(&host, before);
                let call = if fault == Fault::Error { Call::Any } else { Call::TakesSpace };
                host.inject(call, nth, fault);
                let made = SquashStore::open_or_create_joint(
                    IMAGE,
                    &vec![CAPACITY_BYTES; devices],
                    &options(&host, SquashMode::Exact),
                );
                if made.is_ok() {
                    break;
                }
                drop(made);
                host.repair();
                assert_eq!(contents(&host), *before, "{devices} devices, {fault:?} at call {nth}");
                failures += 1;
            }
        }
    }
    assert!(failures > 60, "{failures}");
}

#[test]
fn a_creation_that_is_cut_short_at_any_call_is_begun_again_by_the_next_start() {
    for devices in [1, 3] {
        for (fault, seeds) in [(Fault::Kill, 1), (Fault::PowerCut, 20)] {
            for seed in 0..seeds {
                for nth in 1.. {
                    let host = SimulatedHost::new(&SimulatedOptions::new(seed));
                    let open = || {
                        let capacities = vec![CAPACITY_BYTES; devices];
                        SquashStore::open_or_create_joint(IMAGE, &capacities, &options(&host, SquashMode::Exact))
                    };
                    host.inject(Call::Any, nth, fault);
                    let made = open();
                    if made.is_ok() {
                        break;
                    }
                    drop(made);
                    host.repair();
                    host.restart();
                    let case = format!("{devices} devices, {fault:?} at call {nth}, seed {seed}");
                    open().unwrap_or_else(|error| panic!("{case}: {error}"));
                }
            }
        }
    }
}

/// Two concurrent starts: the one with the lock makes the image, and the other one removes no file.
#[test]
fn a_creation_beside_another_one_is_refused_and_takes_nothing_away() {
    let host = quiet_host();
    let mut first = SquashStore::create(IMAGE, CAPACITY_BYTES, &options(&host, SquashMode::Exact)).unwrap();
    first.write(4096, &[3; 4096]).unwrap();
    let before = contents(&host);
    for (name, opening) in OPENINGS {
        let error = opening(&host, SquashMode::Exact, 1).expect_err(name);
        assert_eq!(contents(&host), before, "{name}: {error}");
    }
    // A second start has opened the file, and waits for its lock.
    host.open(Path::new("/folder/other"), OpenMode::CreateNew).unwrap();
    let held = host.open(Path::new("/folder/other"), OpenMode::ReadWrite).unwrap();
    assert!(held.lock(true).unwrap());
    let before = contents(&host);
    let error = SquashStore::create("/folder/other", CAPACITY_BYTES, &options(&host, SquashMode::Exact)).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    let error = FileStore::open_on(&as_host(&host), "/folder/other", CAPACITY_BYTES, DURABLE).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert_eq!(contents(&host), before);
}
