//! Arrays against the contract, their mapping, and the steps of rows with parity; `timing_tests` has the closed forms.

use std::collections::{BTreeMap, BTreeSet};

use chronodisk_sim::{Nanos, Op, Request};
use proptest::prelude::*;

use super::jobs::{BlockSize, Blocks, PAGE_SECTORS};
use super::layout::{CopyLayout, Layout, MemberSector, MemberSet, ParityLayout, Shape};
use super::parity::{Method, Row, next_step};
use crate::contract;
use crate::models::testing::build_text;

/// A profile of an array with these keys.
pub(super) fn text(keys: &str) -> String {
    format!(
        "name = \"a\"\nkind = \"array\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n{keys}\n"
    )
}

fn check(keys: &str) {
    contract::check(keys, contract::cases(12), &|seed| build_text(&text(keys), seed));
}

#[test]
fn contract_of_raid_0_and_linear() {
    check("level = \"raid0\"\nmember = \"first-disk\"\ncount = 3\nchunk = \"64 KiB\"");
    check("level = \"linear\"\nmembers = [\"first-disk\", \"battery-backed-ram\"]");
}

#[test]
fn contract_of_raid_1() {
    for policy in ["nearest", "round-robin", "fewest-outstanding", "primary"] {
        check(&format!("level = \"raid1\"\nmember = \"first-disk\"\ncount = 3\nread-policy = \"{policy}\""));
    }
    check("level = \"raid1\"\nmembers = [\"first-disk\", \"wu-tsai-ch2-x1\"]\nfailed = [0]\nfail-at = \"20 ms\"");
}

#[test]
fn contract_of_raid_5_of_eight_disks_with_a_failed_member() {
    check("level = \"raid5\"\nmember = \"cheetah-9lp\"\ncount = 8\nchunk = \"64 KiB\"\nfailed = [2]");
}

#[test]
fn contract_of_raid_4_and_5() {
    check("level = \"raid5\"\nmembers = [\"first-disk\", \"nearline-20tb-smr\", \"mems-g2\"]\nchunk = \"64 KiB\"");
    check("level = \"raid5\"\nmember = \"first-disk\"\ncount = 5\nchunk = \"64 KiB\"\nstripe-cache = 2");
    check("level = \"raid4\"\nmember = \"constant-1ms\"\ncount = 4\nfailed = [3]\nfail-at = \"30 ms\"");
}

#[test]
fn old_data_that_are_written_with_new_data_stay_durable() {
    let mut device = build_text(&text("level = \"raid5\"\nmember = \"cheetah-9lp\"\ncount = 4\nchunk = \"64 KiB\""), 1);
    let mut volatile_after = |id: u64, op: Op, lba: u64, sectors: u32| {
        device.submit(Request::new(id, op, lba, sectors));
        let mut completed = Vec::new();
        while completed.is_empty() {
            device.step(Nanos::MAX, &mut completed);
        }
        device.volatile().unwrap().iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
    };
    assert_eq!(volatile_after(1, Op::Write, 0, 16), [(0, 16)]);
    assert_eq!(volatile_after(2, Op::Flush, 0, 0), []);
    // The members get whole pages.
    assert_eq!(volatile_after(3, Op::Write, 3, 1), [(3, 4)]);
    assert_eq!(volatile_after(4, Op::Write, 9, 1), [(3, 4), (9, 10)]);
}

#[test]
fn contract_of_raid_6() {
    check("level = \"raid6\"\nmember = \"first-disk\"\ncount = 6\nchunk = \"16 KiB\"\nfailed = [1, 4]");
}

#[test]
fn contract_of_raid_10() {
    check("level = \"raid10\"\nmember = \"first-disk\"\ncount = 4\nfailed = [1]");
    check("level = \"raid10\"\nmember = \"battery-backed-ram\"\ncount = 5\nlayout = \"far\"\ncopies = 3");
    check("level = \"raid10\"\nmember = \"wu-tsai-ch3-x2\"\ncount = 3\nlayout = \"offset\"");
}

#[test]
fn contract_of_arrays_behind_a_bus() {
    let bus = "bus-rate = \"40 MB/s\"\nbus-overhead = \"20 us\"";
    check(&format!("level = \"raid5\"\nmember = \"first-disk\"\ncount = 4\nfailed = [0]\n{bus}"));
    check(&format!("level = \"raid0\"\nmember = \"null\"\ncount = 3\n{bus}\nbus-arbitration = \"highest-id\""));
}

#[test]
fn contract_of_raid_10_of_mems_sleds() {
    check("level = \"raid10\"\nmember = \"mems-g2\"\ncount = 4\nchunk = \"64 KiB\"");
}

#[test]
fn contract_of_arrays_of_arrays_and_of_queues() {
    let inner = text("level = \"raid1\"\nmember = \"first-disk\"\ncount = 2");
    check(&format!(
        "level = \"raid0\"\nmember = \"pair\"\ncount = 2\n[[member-profile]]\nname = \"pair\"\nprofile = '''\n{inner}'''"
    ));
    let queue = text("member = \"first-disk\"\nelevator = \"cfq\"").replace("\"array\"", "\"host-queue\"");
    check(&format!(
        "level = \"raid1\"\nmember = \"queue\"\ncount = 2\n[[member-profile]]\nname = \"queue\"\nprofile = '''\n{queue}'''"
    ));
}

/// All layouts of small arrays, by name.
fn layouts() -> Vec<(String, Layout)> {
    let mut all = vec![
        ("linear".to_owned(), Layout::linear(&[70, 33, 128])),
        ("raid0".to_owned(), Layout::striped(3, 70, 8, 1, CopyLayout::Near)),
        ("raid1".to_owned(), Layout::mirrored(3, 70)),
    ];
    for layout in [CopyLayout::Near, CopyLayout::Far, CopyLayout::Offset] {
        for (members, copies) in [(2, 2), (3, 2), (4, 2), (5, 3), (4, 4)] {
            let name = format!("raid10 {layout:?} {copies} of {members}");
            all.push((name, Layout::striped(members, 203, 8, copies, layout)));
        }
    }
    for layout in [
        ParityLayout::LeftAsymmetric,
        ParityLayout::RightAsymmetric,
        ParityLayout::LeftSymmetric,
        ParityLayout::RightSymmetric,
        ParityLayout::ParityFirst,
        ParityLayout::ParityLast,
    ] {
        for (members, parities) in [(3, 1), (5, 1), (8, 1), (4, 2), (6, 2), (7, 2)] {
            let name = format!("{layout:?} {parities} of {members}");
            all.push((name, Layout::with_parity(members, 100, 8, parities, layout)));
        }
    }
    all
}

/// The places of a sector, one per copy.
fn places(layout: &Layout, sector: u64) -> Vec<MemberSector> {
    let (chunk, offset) = (sector / layout.chunk_sectors, sector % layout.chunk_sectors);
    match layout.shape {
        Shape::Linear(_) => layout.linear_place(sector).into_iter().collect(),
        Shape::Copies { copies, .. } => {
            let copy =
                |copy| layout.copy(chunk, copy).map(|place| MemberSector { sector: place.sector + offset, ..place });
            (0..copies).filter_map(copy).collect()
        }
        Shape::Parity { .. } => {
            let (row, unit) = (chunk / layout.units() as u64, (chunk % layout.units() as u64) as usize);
            vec![MemberSector { member: layout.data(row, unit), sector: row * layout.chunk_sectors + offset }]
        }
    }
}

#[test]
fn every_sector_has_a_place_of_its_own_and_parity_another() {
    for (name, layout) in layouts() {
        let mut owners: BTreeMap<MemberSector, u64> = BTreeMap::new();
        for sector in 0..layout.capacity_sectors {
            let places = places(&layout, sector);
            let members: BTreeSet<usize> = places.iter().map(|place| place.member).collect();
            assert_eq!(members.len(), places.len(), "{name}: copies of sector {sector} share a member");
            for place in places {
                assert!(place.member < layout.members && place.sector < 203, "{name}: {place:?}");
                assert_eq!(layout.origin(place), Some(sector), "{name}: {place:?}");
                let before = owners.insert(place, sector);
                assert_eq!(before, None, "{name}: sectors {before:?} and {sector} share {place:?}");
            }
        }
        let Shape::Parity { parities, .. } = layout.shape else { continue };
        for row in 0..layout.capacity_sectors / layout.row_sectors() {
            let mut members: BTreeSet<usize> = (0..layout.units()).map(|unit| layout.data(row, unit)).collect();
            let held: BTreeSet<usize> = (0..2).filter_map(|which| layout.parity(row, which)).collect();
            assert_eq!(held.len(), parities, "{name}: row {row}");
            assert!(members.is_disjoint(&held), "{name}: row {row} has parity {held:?} among its data");
            for &member in &held {
                let place = MemberSector { member, sector: row * layout.chunk_sectors };
                assert_eq!(layout.origin(place), None, "{name}: {place:?} has parity");
            }
            members.extend(held);
            assert_eq!(members.len(), layout.members, "{name}: row {row} leaves a member out");
        }
    }
}

/// A row's layout in letters, as the manuals draw it.
fn drawn(layout: &Layout, row: u64) -> String {
    let mut letters = vec!['.'; layout.members];
    for unit in 0..layout.units() {
        letters[layout.data(row, unit)] = char::from(b'0' + unit as u8);
    }
    for (which, letter) in ['P', 'Q'].into_iter().enumerate() {
        if let Some(member) = layout.parity(row, which) {
            letters[member] = letter;
        }
    }
    letters.into_iter().collect()
}

#[test]
fn parity_rotates_as_in_md() {
    // raid5_compute_sector by hand for the first rows.
    for (parities, layout, rows) in [
        (1, ParityLayout::LeftSymmetric, ["0123P", "123P0", "23P01", "3P012", "P0123"]),
        (1, ParityLayout::LeftAsymmetric, ["0123P", "012P3", "01P23", "0P123", "P0123"]),
        (1, ParityLayout::RightSymmetric, ["P0123", "3P012", "23P01", "123P0", "0123P"]),
        (1, ParityLayout::RightAsymmetric, ["P0123", "0P123", "01P23", "012P3", "0123P"]),
        (1, ParityLayout::ParityLast, ["0123P"; 5]),
        (2, ParityLayout::LeftSymmetric, ["Q012P", "012PQ", "12PQ0", "2PQ01", "PQ012"]),
        (2, ParityLayout::LeftAsymmetric, ["Q012P", "012PQ", "01PQ2", "0PQ12", "PQ012"]),
        (2, ParityLayout::RightAsymmetric, ["PQ012", "0PQ12", "01PQ2", "012PQ", "Q012P"]),
        (2, ParityLayout::ParityFirst, ["PQ012"; 5]),
    ] {
        let array = Layout::with_parity(5, 1_000, 8, parities, layout);
        let seen: Vec<String> = (0..5).map(|row| drawn(&array, row)).collect();
        assert_eq!(seen, rows, "{layout:?} {parities}");
    }
}

/// Layouts with parity: parities, members, rotation.
fn parity_layout() -> impl Strategy<Value = (usize, usize, ParityLayout)> {
    let layout = prop_oneof![
        Just(ParityLayout::LeftAsymmetric),
        Just(ParityLayout::RightAsymmetric),
        Just(ParityLayout::LeftSymmetric),
        Just(ParityLayout::RightSymmetric),
        Just(ParityLayout::ParityFirst),
        Just(ParityLayout::ParityLast),
    ];
    (1usize..=2, 4usize..=8, layout)
}

fn set(members: impl IntoIterator<Item = usize>) -> MemberSet {
    let mut set = MemberSet::default();
    members.into_iter().for_each(|member| set.insert(member));
    set
}

/// A row in any state that the cache can have: parities first, and the failed members among `gone`.
fn row() -> impl Strategy<Value = Row> {
    let members = || prop::collection::vec(0usize..8, 0..6);
    (1usize..=2, 4usize..=8, prop::collection::vec(0usize..8, 0..=2), members(), members(), members(), members())
        .prop_map(|(parities, members, gone, present, wanted, written, covered)| {
            let all = MemberSet::first(members);
            let data = all.without(MemberSet::first(parities));
            let failed = set(gone.into_iter().take(parities).map(|member| member % members));
            let written = set(written).and(data);
            Row {
                members,
                parities: MemberSet::first(parities),
                failed,
                present: set(present).and(all),
                wanted: set(wanted).and(data),
                written,
                covered: set(covered).and(written),
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every row comes to an end in a few steps. Only live members are read, each once. Blocks are computed from all
    /// others, and a write begins when its parity follows from blocks in the cache.
    #[test]
    fn rows_are_read_and_written_to_the_end(start in row()) {
        let mut row = start;
        let all = MemberSet::first(row.members);
        let data = all.without(row.parities);
        let mut written = row.written.is_empty();
        for _ in 0..4 {
            let step = next_step(&row);
            prop_assert!(!step.reads.intersects(row.failed.union(row.present)), "{:?}: {:?}", row, step);
            if !step.computed.is_empty() {
                prop_assert!(row.failed.includes(step.computed));
                prop_assert!(step.computed.count() <= row.parities.count());
                prop_assert_eq!(row.present.union(step.computed), all, "computed from all others");
            }
            row.present = row.present.union(step.computed);
            if let Some(method) = step.write {
                prop_assert!(step.reads.is_empty(), "reads end before the write");
                let known = row.present.union(row.covered);
                let modified = row.present.includes(row.written.union(row.parities));
                prop_assert!(known.includes(data) || modified, "{:?}: {:?}", row, step);
                prop_assert!(known.includes(row.written), "the rest of a block is known");
                prop_assert_eq!(method == Method::Whole, row.covered == data);
                row.present = row.present.union(row.written).union(row.parities);
                (row.written, row.covered) = (MemberSet::default(), MemberSet::default());
                written = true;
            } else {
                row.present = row.present.union(step.reads);
            }
            row.wanted = row.wanted.without(row.present);
        }
        prop_assert!(written && row.wanted.is_empty(), "{:?} ends as {:?}", start, row);
    }

    /// The pieces of a request are its sectors, each once, and each stripe comes once.
    #[test]
    fn pieces_cover_a_request((parities, members, kind) in parity_layout(), start in 0u64..1_000, length in 1u64..300,
        (chunk, block) in prop_oneof![Just((16, 1)), Just((12, 1)), Just((24, 8)), Just((32, 16)), Just((5, 1))]) {
        let layout = Layout::with_parity(members, 192, chunk, parities, kind);
        let size = BlockSize::new(chunk, block);
        let start = start % layout.capacity_sectors / block * block;
        let end = (start + length.next_multiple_of(block)).min(layout.capacity_sectors);
        let mut expected: BTreeSet<MemberSector> = (start..end).flat_map(|sector| places(&layout, sector)).collect();
        let mut blocks = Blocks::new(start, end);
        let mut stripes = BTreeSet::new();
        while let Some(piece) = blocks.next(&layout, size) {
            prop_assert!(stripes.insert(piece.row), "stripe {} comes twice", piece.row);
            for (member, bits) in piece.blocks(&layout, size) {
                prop_assert!(piece.members(&layout).contains(member));
                let touched = |offset: &u64| size.sectors > PAGE_SECTORS || bits >> offset & 1 == 1;
                for offset in (0..size.sectors).filter(touched) {
                    let place = MemberSector { member, sector: piece.row * size.sectors + offset };
                    prop_assert!(expected.remove(&place), "{:?} is not asked for", place);
                }
            }
            blocks.advance();
        }
        prop_assert!(expected.is_empty(), "left out: {:?}", expected);
    }
}
