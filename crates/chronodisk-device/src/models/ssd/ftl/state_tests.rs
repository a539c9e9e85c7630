//! Saved states: an accepted state behaves like the saved one, and an unsound one is refused.

use std::ops::ControlFlow;
use std::sync::Arc;

use chronodisk_sim::{Op, RandomStream};
use proptest::prelude::*;

use super::ageing::{AgeingOptions, AgeingWorkload, age};
use super::state::{Resting, StateError, reseal_state};
use super::tests::{parameters, saved_and_loaded, with_logs};
use super::zones::ZoneState;
use super::zones_tests::{Drive, with_zones};
use super::*;
use crate::contract::cases;

fn aged(parameters: &Arc<FtlParameters>) -> Ftl {
    age(parameters, &AgeingOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap().0
}

fn bytes_of(ftl: &Ftl) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written: Result<(), ()> = Resting::of(ftl.clone()).write(7, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    assert!(written.is_ok());
    bytes
}

fn load(parameters: &Arc<FtlParameters>, bytes: &[u8]) -> Result<Ftl, StateError> {
    Ftl::from_resting(Resting::read(parameters, 7, bytes)?.0, 5)
}

/// Writes a little, so that every table is used.
fn exercise(ftl: Ftl) -> Untimed {
    let units = u64::from(ftl.parameters().logical_units);
    let mut drive = Untimed::new(ftl);
    let mut random = RandomStream::new(11, "test", "units");
    for write in 0..3_000 {
        let unit = random.below(units) as Unit;
        if write % 10 == 0 { drive.trim(unit..unit + 1) } else { drive.write(unit) }
    }
    drive
}

#[test]
fn a_loaded_state_goes_on_as_the_saved_one() {
    for policy in [VictimPolicy::Greedy, VictimPolicy::Fifo, VictimPolicy::CostBenefit, VictimPolicy::Choices(3)] {
        let mapping = Mapping::DemandCached { entries: 64 };
        let slc_cache = Some(SlcCache { superblocks: 3, empty_below: 2 });
        let logical_units = parameters(policy).logical_units / 2;
        let parameters = Arc::new(FtlParameters { mapping, slc_cache, logical_units, ..parameters(policy) });
        let mut drive = exercise(aged(&parameters));
        drive.settle();
        let ftl = drive.into_ftl();
        let resting = exercise(Ftl::from_resting(Resting::of(ftl.clone()), 5).unwrap());
        let loaded = exercise(saved_and_loaded(ftl));
        assert_eq!(resting.ftl().counters(), loaded.ftl().counters(), "{policy:?}");
        let units = 0..parameters.addressed_units();
        assert!(units.clone().all(|unit| resting.ftl().lookup(unit) == loaded.ftl().lookup(unit)), "{policy:?}");
    }
}

#[test]
fn what_is_not_a_state_of_this_drive_is_refused_with_the_reason() {
    let parameters = Arc::new(parameters(VictimPolicy::Greedy));
    let bytes = bytes_of(&aged(&parameters));
    assert!(load(&parameters, &bytes).is_ok());
    let refused = |bytes: &[u8]| load(&parameters, bytes).unwrap_err();
    assert_eq!(Resting::read(&parameters, 8, bytes.as_slice()).err(), Some(StateError::OtherDevice));
    assert!(refused(&bytes[..100]).to_string().contains("ends too early"));
    assert!(refused(&bytes[..bytes.len() - 5_000]).to_string().contains("ends too early"));
    let mut other = bytes.clone();
    other[0] ^= 1;
    assert!(refused(&other).to_string().contains("does not begin as one"));
    let mut other = bytes.clone();
    other[16] = 9;
    assert_eq!(refused(&other), StateError::Version(9));
    assert!(StateError::Version(9).to_string().contains("expected version 5"));
    for place in [40, 4_096, 8_192, bytes.len() / 2] {
        let mut other = bytes.clone();
        other[place] ^= 0x10;
        assert!(refused(&other).to_string().contains("not the written one"), "byte {place}");
    }
    // Even with valid checksums, a unit mapped to another unit's slot is detected.
    let mut other = bytes.clone();
    let map = 4_096 * 3;
    other.copy_within(map..map + 4, map + 4);
    reseal_state(&mut other);
    assert!(refused(&other).to_string().contains("a unit is mapped to a slot that does not hold it"));
}

#[test]
fn two_units_of_one_slot_are_found_where_a_slot_keeps_only_a_part_of_its_units_number() {
    let mut parameters = parameters(VictimPolicy::Greedy);
    // Five slots for a unit leave 6 of 10 bits.
    parameters.logical_units = parameters.geometry.slots() / 5;
    let parameters = Arc::new(parameters);
    let bytes = bytes_of(&aged(&parameters));
    assert!(load(&parameters, &bytes).is_ok());
    let mut other = bytes.clone();
    let map = 4_096 * 3;
    other.copy_within(map..map + 4, map + 4 * 64);
    reseal_state(&mut other);
    let reason = load(&parameters, &other).unwrap_err().to_string();
    assert!(reason.contains("two units are mapped to one slot"), "{reason}");
}

#[test]
fn units_beyond_what_was_written_to_an_open_superblock_are_refused() {
    let parameters = Arc::new(parameters(VictimPolicy::Greedy));
    let resting = || Resting::of(aged(&parameters));
    assert!(Ftl::from_resting(resting(), 5).is_ok());
    let mut changed = resting();
    let open = changed.frontiers.iter_mut().flatten().flatten().find(|open| open.appended > 24);
    open.expect("a superblock is open").appended = 24;
    let reason = Ftl::from_resting(changed, 5).unwrap_err().to_string();
    assert!(reason.contains("a unit is mapped to a slot that was not written"), "{reason}");
}

#[test]
fn a_loaded_state_with_logs_goes_on_as_the_saved_one() {
    let parameters = Arc::new(with_logs(parameters(VictimPolicy::Greedy), 3));
    let mut drive = exercise(aged(&parameters));
    drive.settle();
    let ftl = drive.into_ftl();
    let unsaved = exercise(ftl.clone());
    let loaded = exercise(saved_and_loaded(ftl));
    let (unsaved, loaded) = (unsaved.ftl(), loaded.ftl());
    assert_eq!(unsaved.counters(), loaded.counters());
    assert!((0..parameters.logical_units).all(|unit| unsaved.lookup(unit).is_some() == loaded.lookup(unit).is_some()));
}

#[test]
fn homes_that_no_logical_block_has_are_refused() {
    let parameters = Arc::new(with_logs(parameters(VictimPolicy::Greedy), 3));
    let mut drive = exercise(aged(&parameters));
    drive.settle();
    let resting = || Resting::of(drive.ftl().clone());
    let home = resting().blocks.iter().position(|block| block.home != 0).unwrap();
    for wrong in [1_000_000, resting().blocks[home].home + 1] {
        let mut changed = resting();
        changed.blocks[home].home = wrong;
        let reason = Ftl::from_resting(changed, 5).unwrap_err().to_string();
        assert!(reason.contains("no logical block that it could be of"), "{reason}");
    }
    let mut open = resting();
    let free = open.blocks.iter().position(|block| block.state == BlockUse::Free).unwrap();
    open.blocks[free].state = BlockUse::Open;
    open.frontiers[free / 24][Stream::Mapping as usize] = Some(Frontier { superblock: free as u32, appended: 24 });
    let reason = Ftl::from_resting(open, 5).unwrap_err().to_string();
    assert!(reason.contains("a log is open in a drive at rest"), "{reason}");
    let mut changed = resting();
    let unit = changed.blocks[home].home - 1;
    let other = (0..changed.map.len() as u32).find(|other| other / 96 % 4 == unit % 4 && other / 96 != unit).unwrap();
    let (slots, others) = (changed.map.get(unit * 96 + 5), changed.map.get(other));
    changed.map.set(unit * 96 + 5, others);
    changed.map.set(other, slots);
    changed.reverse.set(others - 1, unit * 96 + 5);
    changed.reverse.set(slots - 1, other);
    let reason = Ftl::from_resting(changed, 5).unwrap_err().to_string();
    assert!(reason.contains("a superblock of another logical block"), "{reason}");
}

#[test]
fn units_in_order_are_believed_only_where_they_are() {
    let parameters = Arc::new(with_logs(parameters(VictimPolicy::Greedy), 3));
    let mut drive = exercise(aged(&parameters));
    drive.settle();
    let resting = || Resting::of(drive.ftl().clone());
    assert!(resting().blocks.iter().any(|block| block.state == BlockUse::Closed && block.home == 0), "there are logs");
    for wrong in [24, 48, 72, 95, 96] {
        let mut changed = resting();
        let closed = changed.blocks.iter_mut().filter(|block| block.state == BlockUse::Closed);
        closed.for_each(|block| block.in_order = wrong);
        exercise(Ftl::from_resting(changed, 5).unwrap());
    }
    for (state, units) in [(BlockUse::Free, 24), (BlockUse::Closed, 97)] {
        let mut changed = resting();
        let place = changed.blocks.iter().position(|block| block.state == state).unwrap();
        changed.blocks[place].in_order = units;
        let reason = Ftl::from_resting(changed, 5).unwrap_err().to_string();
        assert!(reason.contains("no closed log has units in order"), "{reason}");
    }
}

/// A drive with empty, closed and full zones, one of them finished early, and a superblock to be erased.
fn zones_in_use(parameters: &Arc<FtlParameters>) -> Ftl {
    let mut drive = Drive(Ftl::new(Arc::clone(parameters), 0));
    drive.write(5 * 512, 7 * 24, false).unwrap();
    drive.manage(5, Op::ZoneReset).unwrap();
    drive.write(0, 7 * 24, false).unwrap();
    drive.write(512, 5 * 24, false).unwrap();
    drive.write(2 * 512, 24, false).unwrap();
    drive.write(3 * 512, 30, false).unwrap();
    drive.manage(3, Op::ZoneFinish).unwrap();
    drive.manage(4, Op::ZoneOpen).unwrap();
    drive.0
}

/// Appends to zones, resets and finishes them.
fn exercise_zones(ftl: Ftl, zones: u32) -> Vec<Option<u32>> {
    let mut drive = Drive(ftl);
    let mut random = RandomStream::new(3, "test", "zones");
    let mut outcomes = Vec::new();
    for _ in 0..400 {
        let zone = random.below(u64::from(zones)) as u32;
        match random.below(8) {
            0 => drive.manage(zone, Op::ZoneReset).unwrap(),
            1 => drive.manage(zone, Op::ZoneFinish).unwrap(),
            _ => {
                let place = drive.write(zone * 512, 1 + random.below(60) as u32, true).ok();
                outcomes.push(place.and_then(|place| drive.0.lookup(place)));
            }
        }
    }
    outcomes
}

#[test]
fn a_loaded_state_with_zones_goes_on_as_the_saved_one() {
    for dies in [2, 4] {
        let parameters = Arc::new(with_zones(dies, 2, 4));
        let ftl = zones_in_use(&parameters);
        let rested = Ftl::from_resting(Resting::of(ftl.clone()), 5).unwrap();
        let loaded = saved_and_loaded(ftl);
        assert_eq!(loaded.zones().in_use(), (0, 2), "zones 1 and 2 are closed, and zone 4 is empty again");
        let outcomes = exercise_zones(rested, 12);
        assert!(outcomes.iter().flatten().count() > 60, "{outcomes:?}");
        assert_eq!(outcomes, exercise_zones(loaded, 12));
    }
}

#[test]
fn an_aged_drive_with_zones_has_written_whole_ones() {
    let parameters = Arc::new(with_zones(4, 2, 4));
    let by = |workload| {
        let options = AgeingOptions { workload, occupied: 0.5, ..AgeingOptions::default() };
        age(&parameters, &options, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    for (workload, written, rounds) in [
        (AgeingWorkload::Sequential, 12, 0),
        (AgeingWorkload::SequentialTwice, 24, 0),
        (AgeingWorkload::Random, 12 + 5 * 3, 5),
        (AgeingWorkload::HotCold { hot_units: 0.2, hot_writes: 0.9 }, 12 + 5 * 3, 5),
    ] {
        let (ftl, report) = by(workload);
        assert_eq!((report.steady, report.write_amplification, report.rounds.len()), (true, 1.0, rounds));
        assert_eq!(ftl.counters().host_units, written * 7 * 24);
        assert_eq!(ftl.counters().erases, (written - 12) * 4);
        let full = (0..24).filter(|&zone| ftl.zones().state(zone) == ZoneState::Full).count();
        assert_eq!(full, 12);
        assert!((0..24).all(|zone| ftl.lookup(zone * 512 + 167).is_some() == (zone < 12)));
    }
    let mut told = 0;
    let ended = age(&parameters, &AgeingOptions::default(), &mut |progress| {
        told += 1;
        assert!(progress.done < progress.total, "{progress:?}");
        if told == 30 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(ended.is_none());
}

#[test]
fn zones_that_superblocks_do_not_bear_out_are_refused() {
    let parameters = Arc::new(with_zones(4, 2, 3));
    let bytes = bytes_of(&zones_in_use(&parameters));
    assert!(load(&parameters, &bytes).is_ok());
    let fewer = load(&Arc::new(with_zones(4, 1, 1)), &bytes).map(drop).unwrap_err().to_string();
    assert!(fewer.contains("more zones are active than can be"), "{fewer}");
    const ZONES: usize = 3 * 4_096;
    const ZONE_BYTES: usize = 6 * 4;
    let of_zone = |zone: usize, word: usize| ZONES + zone * ZONE_BYTES + word * 4;
    let of_block = |word: usize| 2 * 4_096 + word * 4;
    let word_at = |place: usize| u32::from_le_bytes(bytes[place..place + 4].try_into().unwrap());
    let used_by_zone_1 = word_at(of_zone(1, 2)) as usize - 1;
    for (place, word, expected) in [
        (of_zone(0, 0), 9, "no known state"),
        (of_zone(1, 0), ZoneState::ImplicitlyOpen as u32, "no state that it could be in at rest"),
        (of_zone(1, 1), 5 * 24 + 1, "no state that it could be in at rest"),
        (of_zone(1, 1), 7 * 24, "no state that it could be in at rest"),
        (of_zone(0, 1), 7 * 24 + 1, "no state that it could be in at rest"),
        (of_zone(6, 1), 24, "no state that it could be in at rest"),
        (of_zone(6, 0), ZoneState::Closed as u32, "no state that it could be in at rest"),
        (of_zone(0, 2), 0, "no superblock where it was written"),
        (of_zone(0, 2), word_at(of_zone(1, 2)), "no zone that it could be of"),
        (of_zone(0, 2), word_at(of_zone(0, 3)), "no zone that it could be of"),
        (of_zone(0, 2), u32::MAX, "no zone that it could be of"),
        (of_zone(2, 3), 24 + 20, "no zone that it could be of"),
        (of_block(used_by_zone_1 * 5), BlockUse::Free as u32, "no zone that it could be of"),
        (of_block(20 * 5), BlockUse::Open as u32, "open for no zone"),
        (of_block(20 * 5), BlockUse::Victim as u32, "being collected"),
        (4_096, 21, "open for no zone"),
    ] {
        let mut changed = bytes.clone();
        changed[place..place + 4].copy_from_slice(&word.to_le_bytes());
        reseal_state(&mut changed);
        let reason = load(&parameters, &changed).map(drop).unwrap_err().to_string();
        assert!(reason.contains(expected), "word {word} at {place}: {reason}; expected {expected}");
    }
}

#[test]
fn units_beyond_the_cells_of_a_superblock_with_one_bit_are_refused() {
    let slc_cache = Some(SlcCache { superblocks: 3, empty_below: 1 });
    let half = parameters(VictimPolicy::Greedy).logical_units / 2;
    let parameters = Arc::new(FtlParameters { slc_cache, logical_units: half, ..parameters(VictimPolicy::Greedy) });
    let mut drive = exercise(aged(&parameters));
    drive.settle();
    let ftl = drive.into_ftl();
    let unit = (0..half).find(|&unit| ftl.lookup(unit).is_some_and(|slot| ftl.is_slc(slot / 96))).unwrap();
    let slot = ftl.lookup(unit).unwrap();
    let mut resting = Resting::of(ftl);
    resting.reverse.set(slot / 96 * 96 + 32, unit);
    resting.map.set(unit, slot / 96 * 96 + 32 + 1);
    let reason = Ftl::from_resting(resting, 5).unwrap_err().to_string();
    assert!(reason.contains("no cells of its own"), "{reason}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]

    #[test]
    fn a_changed_state_is_refused_or_works(changes in prop::collection::vec((any::<u32>(), any::<u8>()), 1..6)) {
        thread_local!(static BYTES: (Arc<FtlParameters>, Vec<u8>) = {
            let mut small = parameters(VictimPolicy::Greedy);
            small.logical_units /= 4;
            small.slc_cache = Some(SlcCache { superblocks: 2, empty_below: 1 });
            small.geometry.blocks_per_plane /= 2;
            let small = Arc::new(small);
            let bytes = bytes_of(&aged(&small));
            (small, bytes)
        });
        BYTES.with(|(parameters, bytes)| {
            let mut changed = bytes.clone();
            for (place, byte) in changes {
                // Half of the changes go where the small sections are.
                let within = if place % 2 == 0 { changed.len() } else { 12_288 };
                changed[(place / 2) as usize % within] = byte;
            }
            reseal_state(&mut changed);
            if let Ok(ftl) = load(parameters, &changed) {
                exercise(ftl);
            }
        });
    }

    #[test]
    fn a_changed_state_with_zones_is_refused_or_works(
        changes in prop::collection::vec((any::<u32>(), 0u32..200), 1..4)
    ) {
        thread_local!(static BYTES: (Arc<FtlParameters>, Vec<u8>) = {
            let parameters = Arc::new(with_zones(4, 2, 4));
            let bytes = bytes_of(&zones_in_use(&parameters));
            (parameters, bytes)
        });
        BYTES.with(|(parameters, bytes)| {
            let mut changed = bytes.clone();
            for (place, word) in changes {
                // Superblocks, and zones: the two sections that have to agree.
                let first = [2 * 4_096, 3 * 4_096][place as usize % 2];
                let place = first + place as usize / 2 % 144 * 4;
                changed[place..place + 4].copy_from_slice(&word.to_le_bytes());
            }
            reseal_state(&mut changed);
            if let Ok(ftl) = load(parameters, &changed) {
                exercise_zones(ftl, 24);
            }
        });
    }
}
