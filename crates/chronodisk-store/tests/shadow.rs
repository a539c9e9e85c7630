//! Every store behaves like a plain vector of bytes.

use chronodisk_store::overflow::{OVERHEAD_BYTES, PAGE_BYTES};
use chronodisk_store::{AccessList, Durability, Extent, FileStore, OverflowStore, RamStore, Store, StoreError};
use proptest::prelude::*;

const CAPACITY_BYTES: u64 = (2 << 20) + 123_456;

#[derive(Clone, Debug)]
enum Step {
    Write { offset_bytes: u64, len_bytes: u64, byte: u8 },
    WriteZeroes { offset_bytes: u64, len_bytes: u64 },
    ReserveZeroes { offset_bytes: u64, len_bytes: u64 },
    Discard { offset_bytes: u64, len_bytes: u64 },
    Flush,
}

/// Ranges that like page and table boundaries, and sometimes reach beyond the end.
fn range() -> impl Strategy<Value = (u64, u64)> {
    let boundary = prop_oneof![Just(512u64), Just(4096), Just(2 << 20)];
    let offset =
        (boundary, 0..12u64, -2..3i64).prop_map(|(unit, count, delta)| (unit * count).saturating_add_signed(delta));
    let len = prop_oneof![0..9u64, 4090..4100u64, 0..20_000u64, Just(CAPACITY_BYTES), (2 << 20)..(2 << 20) + 9000u64];
    (offset, len)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (range(), prop_oneof![Just(0u8), any::<u8>()])
            .prop_map(|((offset_bytes, len_bytes), byte)| Step::Write { offset_bytes, len_bytes, byte }),
        1 => range().prop_map(|(offset_bytes, len_bytes)| Step::WriteZeroes { offset_bytes, len_bytes }),
        1 => range().prop_map(|(offset_bytes, len_bytes)| Step::ReserveZeroes { offset_bytes, len_bytes }),
        2 => range().prop_map(|(offset_bytes, len_bytes)| Step::Discard { offset_bytes, len_bytes }),
        1 => Just(Step::Flush),
    ]
}

/// Applies a step to the store, and to the shadow if the store accepted it.
fn apply(store: &mut dyn Store, shadow: &mut [u8], step: &Step) -> Result<(), StoreError> {
    let (offset_bytes, written, result) = match *step {
        Step::Write { offset_bytes, len_bytes, byte } => {
            // The bytes differ, so that a shifted copy is noticed.
            let bytes: Vec<u8> = (0..len_bytes).map(|i| if byte == 0 { 0 } else { byte ^ (i % 251) as u8 }).collect();
            let result = store.write(offset_bytes, &bytes);
            (offset_bytes, bytes, result)
        }
        Step::WriteZeroes { offset_bytes, len_bytes } => {
            (offset_bytes, vec![0; len_bytes as usize], store.write_zeroes(offset_bytes, len_bytes))
        }
        Step::ReserveZeroes { offset_bytes, len_bytes } => {
            (offset_bytes, vec![0; len_bytes as usize], store.reserve_zeroes(offset_bytes, len_bytes))
        }
        Step::Discard { offset_bytes, len_bytes } => {
            (offset_bytes, vec![0; len_bytes as usize], store.discard(offset_bytes, len_bytes))
        }
        Step::Flush => (0, Vec::new(), store.flush()),
    };
    let inside = offset_bytes + written.len() as u64 <= CAPACITY_BYTES;
    if let Err(error) = &result {
        assert_eq!(matches!(error, StoreError::OutOfRange { .. }), !inside, "{error}");
    } else {
        assert!(inside, "{step:?} was accepted");
        shadow[offset_bytes as usize..][..written.len()].copy_from_slice(&written);
    }
    result
}

fn contents(store: &mut dyn Store) -> Vec<u8> {
    let mut bytes = vec![0xAA; CAPACITY_BYTES as usize];
    // Odd pieces, so that reads cross pages at odd places.
    for (index, piece) in bytes.chunks_mut(100_003).enumerate() {
        store.read(index as u64 * 100_003, piece).unwrap();
    }
    bytes
}

/// Checks that the extents cover the device, have at least one byte each, and read as zeros if unallocated.
fn check_extents(store: &mut dyn Store, shadow: &[u8]) {
    let mut offset_bytes = 0;
    let mut previous = None;
    while offset_bytes < CAPACITY_BYTES {
        let rest_bytes = CAPACITY_BYTES - offset_bytes;
        let Extent { len_bytes, allocated } = store.extent(offset_bytes, rest_bytes).unwrap();
        assert!((1..=rest_bytes).contains(&len_bytes));
        let range = offset_bytes as usize..(offset_bytes + len_bytes) as usize;
        assert!(allocated || shadow[range.clone()].iter().all(|&byte| byte == 0), "{range:?} is no hole");
        // The device is too small for an extent to be cut short.
        assert_ne!(previous, Some(allocated), "{range:?} goes on as before");
        let middle = offset_bytes + len_bytes / 2;
        let from_middle = store.extent(middle, offset_bytes + len_bytes - middle).unwrap();
        assert_eq!(from_middle, Extent { len_bytes: offset_bytes + len_bytes - middle, allocated });
        previous = Some(allocated);
        offset_bytes += len_bytes;
    }
    assert!(store.extent(0, CAPACITY_BYTES + 1).is_err());
    assert!(store.extent(CAPACITY_BYTES, 0).is_err());
}

/// Pages of 4 KiB that hold something, and the tables of 2 MiB above them.
fn minimal_bytes(shadow: &[u8]) -> u64 {
    let used = |chunk: &[u8]| chunk.iter().any(|&byte| byte != 0);
    let pages = shadow.chunks(4096).filter(|page| used(page)).count() as u64;
    let tables = shadow.chunks(2 << 20).filter(|table| used(table)).count() as u64;
    (pages + tables) * 4096
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn ram_is_a_vector(steps in prop::collection::vec(step(), 1..20)) {
        let mut store = RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES);
        let mut shadow = vec![0; CAPACITY_BYTES as usize];
        for step in &steps {
            let _ = apply(&mut store, &mut shadow, step);
        }
        prop_assert!(contents(&mut store) == shadow);
        check_extents(&mut store, &shadow);
    }

    #[test]
    fn ram_keeps_its_budget_and_fails_whole(
        steps in prop::collection::vec(step(), 1..20),
        budget_bytes in 0..CAPACITY_BYTES,
    ) {
        let mut store = RamStore::new(CAPACITY_BYTES, budget_bytes);
        let mut shadow = vec![0; CAPACITY_BYTES as usize];
        for step in &steps {
            let before_bytes = store.allocated_bytes().unwrap();
            if apply(&mut store, &mut shadow, step).is_err() {
                prop_assert_eq!(store.allocated_bytes().unwrap(), before_bytes);
            }
            let allocated_bytes = store.allocated_bytes().unwrap();
            prop_assert!(allocated_bytes <= budget_bytes);
            prop_assert!(allocated_bytes >= minimal_bytes(&shadow));
        }
        prop_assert!(contents(&mut store) == shadow);
        check_extents(&mut store, &shadow);
        store.discard(0, CAPACITY_BYTES).unwrap();
        prop_assert_eq!(store.allocated_bytes().unwrap(), 0);
    }

    #[test]
    fn a_file_is_a_vector(steps in prop::collection::vec(step(), 1..20)) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = FileStore::create(directory.path().join("disk"), CAPACITY_BYTES, Durability::default()).unwrap();
        let mut shadow = vec![0; CAPACITY_BYTES as usize];
        for step in &steps {
            let _ = apply(&mut store, &mut shadow, step);
        }
        prop_assert!(contents(&mut store) == shadow);
        check_extents(&mut store, &shadow);
        store.discard(0, CAPACITY_BYTES).unwrap();
        prop_assert!(contents(&mut store).iter().all(|&byte| byte == 0));
    }
}

/// A step, or something that only an overflow store knows.
#[derive(Clone, Debug)]
enum OverflowStep {
    Common(Step),
    Read {
        offset_bytes: u64,
        len_bytes: u64,
    },
    /// Asks for a page to preload and reads it from the file.
    BeginPreload,
    /// Hands the oldest page in that was read.
    FinishPreload,
}

fn overflow_step() -> impl Strategy<Value = OverflowStep> {
    prop_oneof![
        4 => step().prop_map(OverflowStep::Common),
        3 => range().prop_map(|(offset_bytes, len_bytes)| OverflowStep::Read { offset_bytes, len_bytes }),
        2 => Just(OverflowStep::BeginPreload),
        2 => Just(OverflowStep::FinishPreload),
    ]
}

fn overflow(path: &std::path::Path, budget_bytes: u64, write_through: bool) -> OverflowStore {
    let durability = Durability { write_through, power_cut: true };
    OverflowStore::new(FileStore::create(path, CAPACITY_BYTES, durability).unwrap(), budget_bytes)
}

/// An overflow store, its expected contents, and preloaded pages.
struct Shadowed {
    store: OverflowStore,
    file: FileStore,
    path: std::path::PathBuf,
    shadow: Vec<u8>,
    on_its_way: Vec<(u64, Vec<u8>)>,
    write_through: bool,
}

impl Shadowed {
    fn step(&mut self, step: &OverflowStep) {
        match step {
            OverflowStep::Common(step) => {
                let _ = apply(&mut self.store, &mut self.shadow, step);
                if matches!(step, Step::Flush) || self.write_through {
                    // The file's contents after a kill at this instant.
                    assert!(std::fs::read(&self.path).unwrap() == self.shadow);
                }
            }
            OverflowStep::Read { offset_bytes, len_bytes } if offset_bytes + len_bytes <= CAPACITY_BYTES => {
                self.read(*offset_bytes, *len_bytes);
            }
            OverflowStep::Read { .. } => {}
            OverflowStep::BeginPreload => {
                if let Some(page) = self.store.next_preload() {
                    let start = page * PAGE_BYTES;
                    let mut bytes = vec![0; PAGE_BYTES.min(CAPACITY_BYTES - start) as usize];
                    self.file.read(start, &mut bytes).unwrap();
                    self.on_its_way.push((page, bytes));
                }
            }
            OverflowStep::FinishPreload => {
                if !self.on_its_way.is_empty() {
                    let (page, bytes) = self.on_its_way.remove(0);
                    self.store.finish_preload(page, Some(&bytes));
                }
            }
        }
    }

    fn read(&mut self, offset_bytes: u64, len_bytes: u64) {
        let mut bytes = vec![0xAA; len_bytes as usize];
        self.store.read(offset_bytes, &mut bytes).unwrap();
        assert!(bytes == self.shadow[offset_bytes as usize..][..bytes.len()]);
        if len_bytes > 0 {
            let extent = self.store.extent(offset_bytes, len_bytes).unwrap();
            let part = &bytes[..extent.len_bytes as usize];
            assert!(extent.allocated || part.iter().all(|&byte| byte == 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn overflow_is_a_vector_within_its_budget_and_flushed_bytes_are_in_the_file(
        steps in prop::collection::vec(overflow_step(), 1..40),
        planned in prop::collection::vec(range(), 0..20),
        budget_bytes in 0..CAPACITY_BYTES,
        write_through in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let mut store = overflow(&path, budget_bytes, write_through);
        store.set_preload(AccessList::new(planned.into_iter().filter(|(from, len)| from + len <= CAPACITY_BYTES)));
        let file = store.file_reader().unwrap();
        let shadow = vec![0; CAPACITY_BYTES as usize];
        let mut shadowed = Shadowed { store, file, path: path.clone(), shadow, on_its_way: Vec::new(), write_through };
        for step in &steps {
            shadowed.step(step);
            prop_assert!(shadowed.store.memory_bytes() <= budget_bytes + OVERHEAD_BYTES);
        }
        prop_assert!(contents(&mut shadowed.store) == shadowed.shadow);
        let Shadowed { store, shadow, .. } = shadowed;
        drop(store);
        prop_assert!(std::fs::read(&path).unwrap() == shadow, "an orderly end writes everything back");
    }
}

#[test]
fn a_second_run_finds_in_memory_what_the_list_of_the_first_brought() {
    let directory = tempfile::tempdir().unwrap();
    let budget_bytes = 100 * chronodisk_store::overflow::FRAME_BYTES;
    // 400 pages in an order without locality: four times the budget.
    let pages: Vec<u64> = (0..400u64).map(|index| index * 173 % 400).collect();
    let run = |preload: bool| {
        let mut store = overflow(&directory.path().join(preload.to_string()), budget_bytes, false);
        let mut file = store.file_reader().unwrap();
        if preload {
            store.set_preload(AccessList::new(pages.iter().map(|page| (page * PAGE_BYTES, PAGE_BYTES))));
        }
        let mut bytes = vec![0; PAGE_BYTES as usize];
        for page in &pages {
            while let Some(page) = store.next_preload() {
                file.read(page * PAGE_BYTES, &mut bytes).unwrap();
                store.finish_preload(page, Some(&bytes));
            }
            store.read(page * PAGE_BYTES, &mut bytes).unwrap();
        }
        store.statistics()
    };
    assert_eq!(run(false).misses, 400);
    let with = run(true);
    assert_eq!((with.misses, with.hits, with.preloaded), (0, 400, 400));
}
