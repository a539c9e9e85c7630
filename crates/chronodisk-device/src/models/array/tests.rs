//! Arrays against the contract and their mapping against a byte-level shadow; `timing_tests` has the closed forms.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::layout::{CopyLayout, Layout, MemberSector, MemberSet, ParityLayout, Shape};
use super::parity::{RowWrite, row_read};
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

/// Contents that are one byte a sector: enough to tell whether a read can be answered and parity is right.
struct Shadow<'a> {
    layout: &'a Layout,
    failed: MemberSet,
    /// Stored bytes by member and sector.
    stored: BTreeMap<(usize, u64), u8>,
}

impl Shadow<'_> {
    /// The sum of powers that Q is: any invertible weights do, since only equality is asked for.
    fn weight(unit: usize) -> u8 {
        (2 * unit + 1) as u8
    }

    /// Expected parities of a sector of a row, from the expected data.
    fn parities(&self, data: &BTreeMap<u64, u8>, row: u64, offset: u64) -> [u8; 2] {
        let at = |unit: usize| {
            let sector = (row * self.layout.units() as u64 + unit as u64) * self.layout.chunk_sectors + offset;
            data.get(&sector).copied().unwrap_or(0)
        };
        let p = (0..self.layout.units()).fold(0, |sum, unit| sum ^ at(unit));
        let q =
            (0..self.layout.units()).fold(0u8, |sum, unit| sum.wrapping_add(at(unit).wrapping_mul(Self::weight(unit))));
        [p, q]
    }
}

/// A write: where it begins and ends in the array, and its bytes.
type WriteCase = (u64, u64, u8);

/// Failed members that the layout survives, and writes.
fn parity_case() -> impl Strategy<Value = (usize, usize, ParityLayout, Vec<usize>, Vec<WriteCase>)> {
    let layout = prop_oneof![
        Just(ParityLayout::LeftAsymmetric),
        Just(ParityLayout::RightAsymmetric),
        Just(ParityLayout::LeftSymmetric),
        Just(ParityLayout::RightSymmetric),
        Just(ParityLayout::ParityFirst),
        Just(ParityLayout::ParityLast),
    ];
    (1usize..=2, 4usize..=8, layout).prop_flat_map(|(parities, members, layout)| {
        let failed = prop::collection::vec(0..members, 0..=parities);
        let writes = prop::collection::vec((0u64..400, 1u64..120, any::<u8>()), 1..12);
        (Just(parities), Just(members), Just(layout), failed, writes)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Writes touch live members only, all the data and all the parity that they change, and read enough to compute it;
    /// every sector can be reconstructed from the sectors that a read touches, and no sector is touched twice.
    #[test]
    fn rows_keep_their_parity_and_can_be_read(case in parity_case()) {
        let (parities, members, kind, gone, writes) = case;
        let layout = Layout::with_parity(members, 200, 16, parities, kind);
        let mut failed = MemberSet::default();
        gone.iter().for_each(|&member| failed.insert(member));
        let mut shadow = Shadow { layout: &layout, failed, stored: BTreeMap::new() };
        let mut data: BTreeMap<u64, u8> = BTreeMap::new();
        let (chunk, row_sectors) = (layout.chunk_sectors, layout.row_sectors());
        for (start, length, byte) in writes {
            let start = start % layout.capacity_sectors;
            let end = (start + length).min(layout.capacity_sectors);
            for row in start / row_sectors..end.div_ceil(row_sectors) {
                let base = row * row_sectors;
                let span = (start.max(base) - base, end.min(base + row_sectors) - base);
                write_row(&mut shadow, &mut data, row, span, byte)?;
            }
        }
        // All data and parity are in place, except on failed members.
        for row in 0..layout.capacity_sectors / row_sectors {
            for offset in 0..chunk {
                let sector = row * chunk + offset;
                for (which, expected) in shadow.parities(&data, row, offset).into_iter().enumerate() {
                    let member = layout.parity(row, which).filter(|&member| !failed.contains(member));
                    let Some(member) = member else { continue };
                    prop_assert_eq!(shadow.stored.get(&(member, sector)).copied().unwrap_or(0), expected);
                }
                for unit in (0..layout.units()).filter(|&unit| !failed.contains(layout.data(row, unit))) {
                    let logical = row * row_sectors + unit as u64 * chunk + offset;
                    let stored = shadow.stored.get(&(layout.data(row, unit), sector)).copied().unwrap_or(0);
                    prop_assert_eq!(stored, data.get(&logical).copied().unwrap_or(0));
                }
            }
        }
    }

    #[test]
    fn reads_touch_enough_and_nothing_twice(case in parity_case()) {
        let (parities, members, kind, gone, reads) = case;
        let layout = Layout::with_parity(members, 200, 16, parities, kind);
        let mut failed = MemberSet::default();
        gone.iter().for_each(|&member| failed.insert(member));
        for (start, length, _) in reads {
            let (row, start) = (start / 50 % 12, start % layout.row_sectors());
            let span = (start, (start + length).min(layout.row_sectors()));
            let mut touched: BTreeSet<(usize, u64)> = BTreeSet::new();
            let mut twice = None;
            row_read(&layout, failed, row, span, |member, from, to| {
                for sector in from..to {
                    if !touched.insert((member, sector)) {
                        twice = Some((member, sector));
                    }
                }
            });
            prop_assert_eq!(twice, None);
            prop_assert!(touched.iter().all(|&(member, _)| !failed.contains(member)), "a failed member is read");
            for sector in span.0..span.1 {
                let (unit, offset) = ((sector / layout.chunk_sectors) as usize, sector % layout.chunk_sectors);
                let member = layout.data(row, unit);
                // A missing chunk can be computed if no more chunks of its row are unknown than parities were read.
                let unknown = (0..layout.units()).filter(|&unit| !touched.contains(&(layout.data(row, unit), offset)));
                let known = (0..2).filter_map(|which| layout.parity(row, which));
                let known = known.filter(|&member| touched.contains(&(member, offset)));
                prop_assert!(touched.contains(&(member, offset)) || unknown.count() <= known.count());
            }
        }
    }
}

/// Writes a part of a row as planned and checks the planned reads.
fn write_row(
    shadow: &mut Shadow<'_>,
    data: &mut BTreeMap<u64, u8>,
    row: u64,
    span: (u64, u64),
    byte: u8,
) -> Result<(), TestCaseError> {
    let layout = shadow.layout;
    let plan = RowWrite::new(layout, shadow.failed, (row, row + 1), span);
    let mut read: BTreeSet<(usize, u64)> = BTreeSet::new();
    plan.reads(layout, |member, from, to| read.extend((from..to).map(|sector| (member, sector))));
    let mut written: BTreeSet<(usize, u64)> = BTreeSet::new();
    plan.writes(layout, |member, from, to, _| written.extend((from..to).map(|sector| (member, sector))));
    prop_assert!(read.iter().chain(&written).all(|&(member, _)| !shadow.failed.contains(member)), "a failed member");

    let base = row * layout.row_sectors();
    (span.0..span.1).for_each(|sector| {
        data.insert(base + sector, byte ^ sector as u8);
    });
    let mut expected: BTreeSet<(usize, u64)> = BTreeSet::new();
    for sector in span.0..span.1 {
        let (unit, offset) = ((sector / layout.chunk_sectors) as usize, sector % layout.chunk_sectors);
        let (member, place) = (layout.data(row, unit), row * layout.chunk_sectors + offset);
        let live = |member: &usize| !shadow.failed.contains(*member);
        if live(&member) {
            expected.insert((member, place));
            shadow.stored.insert((member, place), byte ^ sector as u8);
        }
        let parities = shadow.parities(data, row, offset);
        let held: Vec<usize> = (0..2).filter_map(|which| layout.parity(row, which)).filter(live).collect();
        for (which, value) in parities.into_iter().enumerate() {
            if let Some(member) = layout.parity(row, which).filter(live) {
                expected.insert((member, place));
                shadow.stored.insert((member, place), value);
            }
        }
        if !held.is_empty() {
            can_compute(layout, &read, held.len(), (row, offset), span)?;
        }
    }
    prop_assert_eq!(written, expected);
    Ok(())
}

/// Returns whether the new parity of a sector follows from the sectors read and written.
fn can_compute(
    layout: &Layout,
    read: &BTreeSet<(usize, u64)>,
    live_parities: usize,
    (row, offset): (u64, u64),
    span: (u64, u64),
) -> Result<(), TestCaseError> {
    let place = row * layout.chunk_sectors + offset;
    let has = |member: usize| read.contains(&(member, place));
    let logical = |unit: usize| unit as u64 * layout.chunk_sectors + offset;
    let written = |unit: usize| (span.0..span.1).contains(&logical(unit));
    let units = || 0..layout.units();
    let others_known = units().all(|unit| written(unit) || has(layout.data(row, unit)));
    let old_parities = (0..2).filter_map(|which| layout.parity(row, which)).filter(|&member| has(member)).count();
    let old_known = units().filter(|&unit| written(unit)).all(|unit| has(layout.data(row, unit)));
    let unknown = units().filter(|&unit| !has(layout.data(row, unit))).count();
    let computable = others_known || (old_known && old_parities == live_parities) || unknown <= old_parities;
    prop_assert!(computable, "row {}, offset {}: read {:?}", row, offset, read);
    Ok(())
}
