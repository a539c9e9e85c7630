//! The log of XFS, as written by a kernel and with impossible contents: committed changes decide about waiting blocks.

use chronodisk_squash::{Class, SquashOptions, SquashStatistics, SquashStore};
use chronodisk_store::Store;
use proptest::prelude::*;

use super::export::image_folder;

const CAPACITY_BYTES: u64 = 300 << 20;
const BLOCK_BYTES: u64 = 4096;
const SECTOR_BYTES: usize = 512;
const LOG_AT_BYTES: u64 = 38_406 * BLOCK_BYTES;
/// Sectors of the unmount record that mkfs writes, which marks a clean log.
const UNMOUNT_SECTORS: usize = 2;
/// Blocks of the fixture's files, and some blocks between them.
const CONTENTS: std::ops::Range<u64> = 10..131;
/// One block of `b.db`, 40 of `tree.db`, three of `renamed.db`.
const KEPT_BLOCKS: u64 = 44;

const FIXTURE: &[u8] = include_bytes!("../logs/xfs");

fn log() -> &'static [u8] {
    &FIXTURE[SECTOR_BYTES..]
}

/// A store with the file system's superblock and its empty log, and with a rule that keeps `*.db`.
fn store(rule: &str) -> SquashStore {
    let options = SquashOptions { names: vec![rule.parse().unwrap()], ..SquashOptions::default() };
    let mut store = SquashStore::in_memory(CAPACITY_BYTES, CAPACITY_BYTES, &options);
    store.write(0, &FIXTURE[..SECTOR_BYTES]).unwrap();
    store.write(LOG_AT_BYTES, &log()[..UNMOUNT_SECTORS * SECTOR_BYTES]).unwrap();
    store
}

/// First sectors of the log's records.
fn records() -> Vec<usize> {
    let is_record = |sector: &[u8]| sector[..4] == [0xFE, 0xED, 0xBA, 0xBE] && sector[40..44] != [0; 4];
    let sectors = log().chunks_exact(SECTOR_BYTES).enumerate();
    sectors.filter(|(_, sector)| is_record(sector)).map(|(index, _)| index).skip(1).collect()
}

/// Writes records `from` to `to`, with the sectors behind the last one.
fn write_records(store: &mut SquashStore, from: usize, to: usize) {
    let records = records();
    let end = log().len() / SECTOR_BYTES;
    let (from, to) = (records[from], records.get(to).copied().unwrap_or(end));
    let bytes = &log()[from * SECTOR_BYTES..to * SECTOR_BYTES];
    store.write(LOG_AT_BYTES + (from * SECTOR_BYTES) as u64, bytes).unwrap();
}

fn write_contents(store: &mut SquashStore) {
    for block in CONTENTS {
        store.write(block * BLOCK_BYTES, &[block as u8 | 1; BLOCK_BYTES as usize]).unwrap();
    }
}

fn raw_bytes(statistics: &SquashStatistics) -> u64 {
    statistics.kept_bytes.iter().find(|(class, _)| *class == Class::Raw).map_or(0, |kept| kept.1)
}

#[test]
fn what_is_committed_is_kept_and_the_rest_is_not_spilled() {
    let mut store = store("*.db=keep");
    // The first record of a mount shows that no tool is at work.
    write_records(&mut store, 0, 1);
    write_contents(&mut store);
    store.flush().unwrap();
    let before = store.squash_statistics();
    assert_eq!((before.spilled_bytes, raw_bytes(&before)), (0, BLOCK_BYTES), "only a.db is committed");
    write_records(&mut store, 1, records().len());
    store.flush().unwrap();
    let after = store.squash_statistics();
    assert_eq!((after.spilled_bytes, after.late_bytes), (0, 0), "{after:?}");
    assert_eq!(raw_bytes(&after), KEPT_BLOCKS * BLOCK_BYTES, "{after:?}");
    assert!(after.commits >= 5, "{after:?}");
    // A write to a kept file's block is kept at once.
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    store.write(128 * BLOCK_BYTES, &vec![7; BLOCK_BYTES as usize]).unwrap();
    let waiting_bytes = store.squash_statistics().waiting_bytes;
    assert_eq!(waiting_bytes, (CONTENTS.end - CONTENTS.start - KEPT_BLOCKS) * BLOCK_BYTES);
    store.read(128 * BLOCK_BYTES, &mut bytes).unwrap();
    assert_eq!(bytes, [7; BLOCK_BYTES as usize]);
}

#[test]
fn at_rest_a_flush_keeps_what_waits() {
    let mut store = store("*.db=keep");
    write_contents(&mut store);
    store.flush().unwrap();
    assert_eq!(store.squash_statistics().spilled_bytes, (CONTENTS.end - CONTENTS.start) * BLOCK_BYTES);
}

#[test]
fn a_record_that_is_missing_or_damaged_ends_the_following() {
    for damaged in [false, true] {
        let mut store = store("*.db=keep");
        write_records(&mut store, 0, 1);
        write_contents(&mut store);
        if damaged {
            let at = records()[1] * SECTOR_BYTES;
            let mut bytes = log()[at..records()[2] * SECTOR_BYTES].to_vec();
            *bytes.last_mut().unwrap() ^= 1;
            store.write(LOG_AT_BYTES + at as u64, &bytes).unwrap();
        }
        write_records(&mut store, 2, records().len());
        store.flush().unwrap();
        let statistics = store.squash_statistics();
        let waiting = CONTENTS.end - CONTENTS.start - 1;
        assert_eq!(statistics.spilled_bytes, waiting * BLOCK_BYTES, "{statistics:?}");
        // The missing record arrives, and with it all missed changes.
        write_records(&mut store, 1, 2);
        store.flush().unwrap();
        assert_eq!(raw_bytes(&store.squash_statistics()), KEPT_BLOCKS * BLOCK_BYTES);
    }
}

#[test]
fn records_may_come_in_any_order() {
    let mut store = store("*.db=keep");
    write_contents(&mut store);
    for record in (0..records().len()).rev() {
        write_records(&mut store, record, record + 1);
    }
    store.flush().unwrap();
    let statistics = store.squash_statistics();
    assert_eq!((statistics.spilled_bytes, raw_bytes(&statistics)), (0, KEPT_BLOCKS * BLOCK_BYTES));
}

#[test]
fn a_store_that_is_opened_again_reads_the_log_first() {
    let folder = image_folder();
    let path = folder.path().join("image");
    let options = SquashOptions { names: vec!["*.db=keep".parse().unwrap()], ..SquashOptions::default() };
    let mut store = SquashStore::create(&path, CAPACITY_BYTES, &options).unwrap();
    store.write(0, &FIXTURE[..SECTOR_BYTES]).unwrap();
    store.write(LOG_AT_BYTES, log()).unwrap();
    store.close().unwrap();
    drop(store);
    let mut store = SquashStore::open(&path, CAPACITY_BYTES, &options).unwrap();
    // No inode is at its place yet, but the log names the blocks' files.
    write_contents(&mut store);
    let statistics = store.squash_statistics();
    assert_eq!(raw_bytes(&statistics), KEPT_BLOCKS * BLOCK_BYTES, "{statistics:?}");
    store.flush().unwrap();
    assert_eq!(store.squash_statistics().spilled_bytes, 0);
}

/// A record at a sector, with a correct checksum.
fn record(sector: usize, operations: u32, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    payload.resize(payload.len().next_multiple_of(SECTOR_BYTES).max(SECTOR_BYTES), 0);
    let mut header = vec![0; SECTOR_BYTES];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xFE, 0xED, 0xBA, 0xBE, 0, 0, 0, 1, 0, 0, 0, 2]);
    put(12, &(payload.len() as u32).to_be_bytes());
    put(16, &(1u64 << 32 | sector as u64).to_be_bytes());
    put(24, &(1u64 << 32).to_be_bytes());
    put(40, &operations.to_be_bytes());
    put(300, &1u32.to_be_bytes());
    put(320, &(32u32 << 10).to_be_bytes());
    for (index, sector) in payload.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        header[44 + 4 * index..48 + 4 * index].copy_from_slice(&sector[..4]);
        sector[..4].copy_from_slice(&[0, 0, 0, 1]);
    }
    let sum = crc32c::crc32c_append(crc32c::crc32c(&header[..328]), &payload);
    header[32..36].copy_from_slice(&sum.to_le_bytes());
    [header, payload].concat()
}

/// An operation: one of a few transactions, flags, and bytes.
fn operation() -> impl Strategy<Value = Vec<u8>> {
    let kinds = [0x1236u16, 0x123B, 0x123C, 0x123F, 0x1244, 0x1245, 0x1248, 0x1249, 0x1300];
    let region = (prop::sample::select(kinds.to_vec()), 0..4u16, prop::collection::vec(0..4u8, 0..64))
        .prop_map(|(kind, count, rest)| [&kind.to_le_bytes()[..], &count.to_le_bytes(), &rest].concat());
    let bytes = prop_oneof![
        3 => region,
        1 => prop::collection::vec(any::<u8>(), 0..200),
        2 => prop::collection::vec(any::<u8>(), 176),
        2 => Just([&b"NART"[..], &[0; 12]].concat()),
    ];
    let flags = prop::sample::select(vec![0u8, 0, 0, 0, 1, 1, 2, 2, 4, 8, 12, 24, 32, 255]);
    (0..2u8, flags, bytes).prop_map(|(id, flags, bytes)| {
        let bytes = if flags & 3 == 0 { bytes } else { Vec::new() };
        [&[0, 0, 0, id][..], &(bytes.len() as u32).to_be_bytes(), &[0x69, flags, 0, 0], &bytes].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_in_the_log_is_too_strange(
        records in prop::collection::vec(prop::collection::vec(operation(), 0..20), 1..8),
        noise in prop::collection::vec(any::<u8>(), SECTOR_BYTES * 4),
        noise_at in 0..64usize,
    ) {
        let mut store = store("/**/*.db=keep");
        write_contents(&mut store);
        let mut at = UNMOUNT_SECTORS;
        for operations in records {
            let record = record(at, operations.len() as u32, &operations.concat());
            store.write(LOG_AT_BYTES + (at * SECTOR_BYTES) as u64, &record).unwrap();
            at += record.len() / SECTOR_BYTES;
            store.flush().unwrap();
        }
        store.write(LOG_AT_BYTES + (noise_at * SECTOR_BYTES) as u64, &noise).unwrap();
        store.close().unwrap();
    }

    /// However the log is damaged, no byte of a file to be kept is lost: either its name keeps it, or its block is
    /// spilled, or its commit is ignored.
    #[test]
    fn a_damaged_log_loses_nothing_that_counts(at in 0..56_832usize, bit in 0..8u8) {
        let mut store = store("*.db=keep");
        write_contents(&mut store);
        let mut bytes = log().to_vec();
        bytes[at] ^= 1 << bit;
        let from = UNMOUNT_SECTORS * SECTOR_BYTES;
        store.write(LOG_AT_BYTES + from as u64, &bytes[from..]).unwrap();
        store.flush().unwrap();
        let statistics = store.squash_statistics();
        prop_assert_eq!(statistics.late_bytes, 0);
        // Either all commits are known, or no block is dropped.
        let all = (CONTENTS.end - CONTENTS.start) * BLOCK_BYTES;
        prop_assert!(
            raw_bytes(&statistics) == KEPT_BLOCKS * BLOCK_BYTES
                || raw_bytes(&statistics) + statistics.spilled_bytes == all
                || at / SECTOR_BYTES >= *records().last().unwrap(),
            "{:?}", statistics
        );
    }
}
