//! The flash translation layer against a shadow model.

use std::collections::HashMap;
use std::ops::ControlFlow;

use chronodisk_sim::RandomStream;
use proptest::prelude::*;

use super::super::geometry::CellKind;
use super::super::testing::small_parameters;
use super::ageing::{AgeingOptions, AgeingWorkload, age};
use super::mapping_cache::{MappingAccess, TranslationUnit};
use super::state::Resting;
use super::*;
use crate::contract::cases;

/// Two channels of two dies with few small superblocks: 24 units in a superpage, 96 in a superblock.
pub(super) fn small_geometry() -> super::super::geometry::Geometry {
    super::super::geometry::Geometry { dies_per_chip: 2, ..small_parameters().geometry }
}

pub(super) fn parameters(policy: VictimPolicy) -> FtlParameters {
    let geometry = small_geometry();
    FtlParameters {
        geometry,
        logical_units: geometry.slots() / 100 * 66,
        collector: CollectorParameters { policy, ..small_parameters().collector },
        ..small_parameters()
    }
}

/// The parameters with a block map and logs.
pub(super) fn with_logs(mut parameters: FtlParameters, open_logs: u32) -> FtlParameters {
    parameters.allocation = Allocation::LogBlock { open_logs };
    parameters.collector.policy = VictimPolicy::Greedy;
    parameters.wear.move_at_difference = None;
    FtlParameters { mapping: Mapping::Ideal, slc_cache: None, ..parameters }
}

/// The parameters with as many units as the checks allow.
fn to_the_last_page(mut parameters: FtlParameters) -> FtlParameters {
    let fits = |units| FtlParameters { logical_units: units, ..parameters.clone() }.check().is_ok();
    parameters.logical_units = (1..parameters.geometry.slots()).rev().find(|&units| fits(units)).unwrap();
    parameters
}

fn any_parameters() -> impl Strategy<Value = FtlParameters> {
    let policy = prop_oneof![
        Just(VictimPolicy::Greedy),
        Just(VictimPolicy::CostBenefit),
        Just(VictimPolicy::Choices(5)),
        Just(VictimPolicy::RANDOM),
        Just(VictimPolicy::Fifo),
    ];
    let allocation = prop_oneof![
        Just(Allocation::Dynamic),
        prop_oneof![Just("CWDP"), Just("PDWC"), Just("WPCD")]
            .prop_map(|order| Allocation::Static(order.parse().unwrap())),
        (1u32..6).prop_map(|open_logs| Allocation::LogBlock { open_logs }),
    ];
    let mapping = prop_oneof![Just(Mapping::Ideal), Just(Mapping::DemandCached { entries: 64 })];
    let slc_cache =
        prop::option::of((2u32..6, 1u32..6).prop_map(|(superblocks, empty_below)| SlcCache {
            superblocks,
            empty_below: empty_below.min(superblocks),
        }));
    (policy, allocation, mapping, prop::option::of(2u32..6), any::<bool>(), 0..3, slc_cache).prop_map(
        |(policy, allocation, mapping, move_at_difference, dynamic, size, slc_cache)| {
            let wear = WearLevelling { dynamic, move_at_difference };
            let mut parameters = FtlParameters { allocation, mapping, wear, slc_cache, ..parameters(policy) };
            if slc_cache.is_some() {
                parameters.logical_units = parameters.logical_units / 66 * 40;
            }
            if let Allocation::LogBlock { open_logs } = allocation {
                parameters = with_logs(parameters, open_logs);
                parameters.logical_units = parameters.logical_units / 66 * 55;
            }
            match size {
                0 => to_the_last_page(parameters),
                // This small number of units lets a slot keep only a part of its unit's number.
                1 => FtlParameters { logical_units: parameters.logical_units / 4, ..parameters },
                _ => parameters,
            }
        },
    )
}

/// The drive after it was saved and loaded.
pub(super) fn saved_and_loaded(ftl: Ftl) -> Ftl {
    let parameters = Arc::clone(&ftl.parameters);
    let mut bytes = Vec::new();
    let written: Result<(), ()> = Resting::of(ftl).write(7, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    assert!(written.is_ok());
    Ftl::from_resting(Resting::read(&parameters, 7, bytes.as_slice()).unwrap().0, 5).unwrap()
}

/// Checks that the tables agree with each other and with the writes.
fn check(ftl: &Ftl, written: &HashMap<Unit, u32>) {
    let geometry = ftl.parameters().geometry;
    let mut valid = vec![0; geometry.superblocks() as usize];
    for unit in 0..ftl.parameters().addressed_units() {
        let slot = ftl.lookup(unit);
        if unit < ftl.parameters().logical_units {
            assert_eq!(slot.is_some(), written.contains_key(&unit), "unit {unit}");
        }
        if let Some(slot) = slot {
            assert_eq!(ftl.reverse.look(&ftl.map, slot), (unit, true), "slot {slot}");
            let superblock = geometry.superblock_of(slot);
            let in_use = if ftl.is_slc(superblock) { 32 } else { 96 };
            assert!(slot - geometry.first_slot(superblock) < in_use, "slot {slot}");
            valid[geometry.superblock_of(slot) as usize] += 1;
        }
    }
    for region in 0..ftl.regions.len() as u32 {
        let units = region * REGION_UNITS..((region + 1) * REGION_UNITS).min(ftl.parameters().addressed_units());
        let mapped = units.filter(|&unit| ftl.lookup(unit).is_some()).count() as u32;
        assert_eq!(ftl.regions.get(region), mapped, "region {region}");
    }
    for die in 0..geometry.dies() {
        let blocks = ftl.blocks.of_die(die);
        let count = |of: BlockUse| blocks.clone().filter(|&block| ftl.blocks.use_of(block) == of).count() as u32;
        assert_eq!(count(BlockUse::Free), ftl.free_superblocks(die) + ftl.free_slc_superblocks(die));
        let open = ftl.dies[die as usize].frontiers.iter().flatten().count() as u32;
        let others = ftl.logs.as_ref().map_or(0, |logs| logs.others(die));
        assert_eq!(count(BlockUse::Open), open + others);
        assert_eq!(blocks.clone().map(|block| ftl.valid_in(block)).sum::<u32>(), ftl.valid_units(die));
        check_logs(ftl, die);
        for block in blocks {
            assert_eq!(ftl.valid_in(block), valid[block as usize], "superblock {block}");
        }
    }
}

/// Checks that a logical block's data superblock holds its own units only, and that free superblocks are reserved for
/// logical blocks without one.
fn check_logs(ftl: &Ftl, die: DieIndex) {
    let (Some(logs), Some(logical_blocks)) = (&ftl.logs, ftl.parameters().logical_blocks()) else { return };
    let of_die = (0..logical_blocks).filter(|logical| logical % ftl.dies() == die);
    let without = of_die.filter(|&logical| match logs.data(logical) {
        Some(superblock) => {
            assert_eq!(logs.home(superblock), logical + 1);
            for slot in superblock * 96..(superblock + 1) * 96 {
                let (unit, valid) = ftl.reverse.look(&ftl.map, slot);
                assert!(!valid || unit / 96 == logical, "unit {unit} in the data of {logical}");
            }
            false
        }
        None => true,
    });
    assert_eq!(without.count() as u32, logs.set_aside(die));
    assert!(ftl.free_superblocks(die) > logs.set_aside(die), "a merge has nowhere to write to");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(16)))]

    #[test]
    fn each_unit_is_where_it_was_written_last(
        parameters in any_parameters(),
        seed in any::<u64>(),
        rounds in prop::collection::vec((0u8..5, 1u32..1_000), 1..6),
    ) {
        prop_assert_eq!(parameters.check(), Ok(()));
        let parameters = Arc::new(parameters);
        let units = parameters.logical_units;
        let mut random = RandomStream::new(seed, "test", "units");
        let workload = if seed.is_multiple_of(2) { AgeingWorkload::Sequential } else { AgeingWorkload::Random };
        let occupied = if seed.is_multiple_of(3) { 0.6 } else { 1.0 };
        let options = AgeingOptions { workload, occupied, seed, ..AgeingOptions::default() };
        let (ftl, _) = age(&parameters, &options, &mut |_| ControlFlow::Continue(())).unwrap();
        let mut drive = Untimed::new(ftl);
        let occupied = (f64::from(units) * occupied) as u32;
        let mut written: HashMap<Unit, u32> = (0..occupied).map(|unit| (unit, 0)).collect();
        check(drive.ftl(), &written);
        for (what, count) in rounds {
            let kept = drive.clone();
            let kept_written = written.clone();
            let first = random.below(u64::from(units)) as u32;
            if what == 4 {
                let end = units.min(first + count * 10);
                drive.trim(first..end);
                written.retain(|unit, _| !(first..end).contains(unit));
            }
            for step in 0..count {
                let unit = match what {
                    0 | 3 => random.below(u64::from(units)) as u32,
                    1 => (first + step) % units,
                    _ => (first + random.below(u64::from(units / 10 + 1)) as u32) % units,
                };
                if what == 3 {
                    drive.trim(unit..unit + 1);
                    written.remove(&unit);
                } else {
                    drive.write(unit);
                    written.insert(unit, step);
                }
            }
            check(drive.ftl(), &written);
            check(kept.ftl(), &kept_written);
            if random.chance(0.3) {
                (drive, written) = (kept, kept_written);
            } else if random.chance(0.3) {
                drive.settle();
                drop(kept);
                drive = Untimed::new(saved_and_loaded(drive.into_ftl()));
            }
        }
    }
}

#[test]
fn the_host_writes_where_cells_have_one_bit_until_that_is_full() {
    let slc_cache = Some(SlcCache { superblocks: 3, empty_below: 2 });
    let logical_units = small_geometry().slots() / 2;
    let parameters = Arc::new(FtlParameters { slc_cache, logical_units, ..parameters(VictimPolicy::Greedy) });
    let mut ftl = Ftl::new(Arc::clone(&parameters), 0);
    let mut streams = Vec::new();
    // No collection runs: three superblocks of a third of 96 units, then the others.
    for unit in 0..200 {
        let stream = ftl.host_stream(0).unwrap();
        let appended = ftl.append(stream, 0, unit).unwrap();
        assert_eq!(ftl.is_slc(parameters.geometry.superblock_of(appended.slot)), stream == Stream::Cache);
        if let Some(superpage) = appended.completed {
            ftl.programmed(superpage);
        }
        streams.push(stream);
    }
    assert_eq!(streams.iter().position(|&stream| stream == Stream::Host), Some(3 * 32));
    assert!(streams[96..].iter().all(|&stream| stream == Stream::Host));
    // The pool's oldest superblock is emptied first, then another; with two free, no more.
    for first in [0, 32] {
        assert_eq!(ftl.urgency(0), Urgency::Background);
        let collection = ftl.start_collection(0).unwrap();
        assert_eq!((collection.reason, collection.valid), (CollectionReason::Cache, 32));
        let mut moves = Vec::new();
        assert_eq!(ftl.next_moves(0, usize::MAX, &mut moves), 32);
        for unit_move in moves {
            assert!((first..first + 32).contains(&unit_move.unit));
            let appended = ftl.relocate(0, unit_move).unwrap();
            assert!(!ftl.is_slc(parameters.geometry.superblock_of(appended.slot)));
        }
        ftl.erased(0);
    }
    assert_eq!((ftl.urgency(0), ftl.host_stream(0)), (Urgency::None, Some(Stream::Host)), "a superpage is begun");
    ftl.pad(Stream::Host, 0);
    assert_eq!(ftl.host_stream(0), Some(Stream::Cache));
    let counters = ftl.counters();
    assert_eq!((counters.cached_units, counters.emptied_units, counters.emptyings), (96, 64, 2));
}

#[test]
fn regions_with_one_bit_in_a_cell_that_do_not_fit_are_refused() {
    let with = |superblocks, empty_below| FtlParameters {
        slc_cache: Some(SlcCache { superblocks, empty_below }),
        logical_units: 96,
        ..parameters(VictimPolicy::Greedy)
    };
    assert_eq!(with(5, 5).check(), Ok(()));
    let refused = |parameters: FtlParameters| parameters.check().unwrap_err();
    assert!(refused(with(24, 1)).1.contains("expected 2 to 23"));
    assert!(refused(with(5, 6)).1.contains("expected 1 to 5"));
    assert_eq!(refused(with(20, 1)).0, "capacity");
    let mut one_bit = with(5, 5);
    one_bit.geometry.cells = CellKind::Slc;
    one_bit.geometry.one_shot_pages = 1;
    assert!(refused(one_bit).1.contains("one bit anyway"));
    let mut collects_late = with(5, 5);
    collects_late.collector.start_below = 2;
    assert!(refused(collects_late).1.contains("expected 3 to 18"));
}

#[test]
fn a_block_written_from_its_beginning_to_its_end_is_not_copied() {
    let parameters = Arc::new(with_logs(parameters(VictimPolicy::Greedy), 2));
    let mut drive = Untimed::new(Ftl::new(Arc::clone(&parameters), 0));
    let blocks = parameters.logical_units / 96;
    for _ in 0..4 {
        (0..blocks * 96).for_each(|unit| drive.write(unit));
    }
    let counters = *drive.ftl().counters();
    assert_eq!((counters.switches, counters.merges, counters.moved_units), (u64::from(4 * blocks), 0, 0));
    assert_eq!((counters.write_amplification(), counters.padded_units), (1.0, 0));
    // The last replaced superblocks are erased when room is needed.
    assert!(counters.erases >= u64::from(2 * blocks), "{counters:?}");
}

#[test]
fn a_write_to_a_block_without_a_log_costs_the_copy_of_a_block() {
    let parameters = Arc::new(with_logs(parameters(VictimPolicy::Greedy), 2));
    let mut drive = Untimed::new(Ftl::new(Arc::clone(&parameters), 0));
    let blocks = parameters.logical_units / 96;
    (0..blocks * 96).for_each(|unit| drive.write(unit));
    // Writes to six blocks of die 0 in turn, with two open logs ..
    let written = |drive: &mut Untimed, among: u32| {
        let before = *drive.ftl().counters();
        for write in 0..600 {
            drive.write(write % among * 4 * 96 + write * 7 % 96);
        }
        drive.ftl().counters().since(&before)
    };
    let thrashing = written(&mut drive, 6);
    assert!((580..=600).contains(&thrashing.merges), "{thrashing:?}");
    let per_merge = thrashing.moved_units as f64 / thrashing.merges as f64;
    assert!(per_merge > 95.0, "{per_merge}");
    // .. and over two, where each write takes a superpage and four of them are a log; a merge empties several logs.
    let kept = written(&mut drive, 2);
    assert!((145..=155).contains(&(kept.erases - kept.merges)) && kept.merges < 100, "{kept:?}");
    // A single block alone fills superpages of 24 units, and logs.
    let alone = written(&mut drive, 1);
    assert!(alone.merges <= 600 / 96 + 2 && alone.padded_units <= 24, "{alone:?}");
}

#[test]
fn a_log_begun_in_order_is_completed_where_it_is() {
    let parameters = Arc::new(with_logs(parameters(VictimPolicy::Greedy), 1));
    let blocks = parameters.logical_units / 96;
    let mut drive = Untimed::new(Ftl::new(Arc::clone(&parameters), 0));
    (0..blocks * 96).for_each(|unit| drive.write(unit));
    // The first half of one block of die 0 after another, with one open log.
    let written = |drive: &mut Untimed, units: &[u32]| {
        let before = *drive.ftl().counters();
        for block in (0..blocks).step_by(4).cycle().take(60) {
            units.iter().for_each(|unit| drive.write(block * 96 + unit));
        }
        drive.ftl().counters().since(&before)
    };
    let half: Vec<u32> = (0..48).collect();
    let partial = written(&mut drive, &half);
    // The closed logs of the last few wait for their merges.
    assert!((50..=60).contains(&partial.merges), "{partial:?}");
    assert_eq!((partial.partial_merges, partial.padded_units), (partial.merges, 0));
    assert_eq!(partial.moved_units, partial.merges * 48, "the rest of the block, and nothing else");
    assert!(partial.erases <= partial.merges + 2, "the old data alone: {partial:?}");
    // The second half, or the first one out of order, has the whole block copied.
    let mut rest: Vec<u32> = (48..96).collect();
    let full = written(&mut drive, &rest);
    // Logs that waited from before are completed, of each block at most one.
    assert!(full.partial_merges <= 10 && full.merges >= 50, "{full:?}");
    let per_merge = (full.moved_units - full.partial_merges * 48) as f64 / (full.merges - full.partial_merges) as f64;
    assert!(per_merge > 95.0, "{per_merge}");
    rest = half.iter().rev().copied().collect();
    let unordered = written(&mut drive, &rest);
    assert_eq!(unordered.partial_merges, 0, "{unordered:?}");
}

#[test]
fn a_log_is_completed_after_saving_and_loading_too() {
    let parameters = Arc::new(with_logs(parameters(VictimPolicy::Greedy), 2));
    let blocks = parameters.logical_units / 96;
    let mut drive = Untimed::new(Ftl::new(Arc::clone(&parameters), 0));
    (0..blocks * 96).for_each(|unit| drive.write(unit));
    (0..24).for_each(|unit| drive.write(unit));
    drive.settle();
    let mut drive = Untimed::new(saved_and_loaded(drive.into_ftl()));
    // Others of the die are written until the log's turn has come.
    for block in (4..blocks).step_by(4) {
        (0..48).for_each(|unit| drive.write(block * 96 + unit));
        if drive.ftl().counters().merges > 0 {
            break;
        }
    }
    let counters = drive.ftl().counters();
    assert_eq!((counters.merges, counters.partial_merges, counters.moved_units), (1, 1, 72), "{counters:?}");
}

#[test]
fn logs_that_do_not_fit_are_refused() {
    let with = |units: u32| FtlParameters { logical_units: units, ..with_logs(parameters(VictimPolicy::Greedy), 2) };
    // 24 superblocks of a die: three kept free, two open, one for a merge, one closed log.
    assert_eq!(with(4 * 17 * 96).check(), Ok(()));
    let (key, problem) = with(4 * 17 * 96 + 1).check().unwrap_err();
    assert!(key == "capacity" && problem.contains("can hold 68"), "{problem}");
    let slc_cache = Some(SlcCache { superblocks: 2, empty_below: 1 });
    assert_eq!(FtlParameters { slc_cache, ..with(96) }.check().unwrap_err().0, "slc-cache");
    let mapping = Mapping::DemandCached { entries: 64 };
    assert_eq!(FtlParameters { mapping, ..with(96) }.check().unwrap_err().0, "mapping-cache-entries");
    assert_eq!(with_logs(parameters(VictimPolicy::Greedy), 0).check().unwrap_err().0, "open-logs");
}

#[test]
fn orders_of_allocation_are_those_of_their_letters() {
    let geometry = small_geometry();
    let dies = |order: &str| {
        let order: AllocationOrder = order.parse().unwrap();
        assert_eq!(order.to_string().len(), 4);
        (0..8).map(|page| order.die_of_page(&geometry, page)).collect::<Vec<_>>()
    };
    assert_eq!(dies("CWDP"), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(dies("PDWC"), [0, 0, 2, 2, 1, 1, 3, 3]);
    assert_eq!(dies("DPWC"), [0, 2, 0, 2, 1, 3, 1, 3]);
    for wrong in ["", "CWD", "CWDD", "CWDPP", "cwdp"] {
        assert!(wrong.parse::<AllocationOrder>().unwrap_err().contains("such as CWDP"), "{wrong}");
    }
}

#[test]
fn a_host_is_refused_only_until_the_collector_has_worked() {
    let parameters = Arc::new(to_the_last_page(parameters(VictimPolicy::Greedy)));
    let mut ftl = Ftl::new(Arc::clone(&parameters), 0);
    let mut random = RandomStream::new(3, "test", "units");
    let end = |appended: Option<Appended>, ftl: &mut Ftl| {
        if let Some(Appended { completed: Some(superpage), .. }) = appended {
            ftl.programmed(superpage);
        }
    };
    let mut refused = 0;
    for write in 0..3 * parameters.logical_units {
        let unit = if write < parameters.logical_units {
            write
        } else {
            random.below(u64::from(parameters.logical_units)) as u32
        };
        let die = match ftl.die_with_room(Stream::Host, write / 24 % 4) {
            Some(die) => die,
            None => {
                // No collection so far: one must suffice.
                refused += 1;
                let die = (0..4).max_by_key(|&die| ftl.parameters().geometry.slots() - ftl.valid_units(die)).unwrap();
                assert_eq!(ftl.urgency(die), Urgency::Urgent);
                let collection = ftl.start_collection(die).expect("something can be won");
                assert!(collection.valid < parameters.geometry.units_per_superblock());
                assert_eq!(ftl.start_collection(die), None, "one at a time");
                let mut moves = Vec::new();
                while ftl.next_moves(die, 7, &mut moves) == 7 {}
                for unit_move in moves {
                    let appended = ftl.relocate(die, unit_move);
                    end(appended, &mut ftl);
                }
                ftl.erased(die);
                continue;
            }
        };
        let appended = ftl.append(Stream::Host, die, unit);
        end(appended, &mut ftl);
    }
    assert!(refused > 0);
}

#[test]
fn what_is_overwritten_between_read_and_move_is_stale() {
    let parameters = Arc::new(parameters(VictimPolicy::Greedy));
    let mut drive = Untimed::new(Ftl::new(Arc::clone(&parameters), 0));
    (0..parameters.logical_units).for_each(|unit| drive.write(unit));
    drive.write(0);
    let mut ftl = drive.into_ftl();
    let die = parameters.geometry.die_of_superblock(0);
    let collection = ftl.start_collection(die).unwrap();
    let mut moves = Vec::new();
    ftl.next_moves(die, usize::MAX, &mut moves);
    assert_eq!(moves.len() as u32, collection.valid);
    let [overwritten, trimmed] = [moves[0], moves[1]];
    ftl.append(Stream::Host, die, overwritten.unit).unwrap();
    ftl.trim(trimmed.unit..trimmed.unit + 1);
    assert_eq!(ftl.relocate(die, overwritten), None);
    assert_eq!(ftl.relocate(die, trimmed), None);
    assert!(ftl.relocate(die, moves[2]).is_some());
}

#[test]
fn wear_is_levelled_where_data_never_change() {
    let spread = |move_at_difference| {
        let wear = WearLevelling { dynamic: true, move_at_difference };
        let parameters = Arc::new(FtlParameters { wear, ..parameters(VictimPolicy::Greedy) });
        let mut drive = Untimed::new(Ftl::new(Arc::clone(&parameters), 0));
        (0..parameters.logical_units).for_each(|unit| drive.write(unit));
        let mut random = RandomStream::new(1, "test", "units");
        for _ in 0..60 * parameters.logical_units / 10 {
            drive.write(random.below(u64::from(parameters.logical_units / 10)) as u32);
        }
        let erases: Vec<u32> = drive.ftl().blocks.of_die(0).map(|block| drive.ftl().erases(block)).collect();
        (erases.iter().max().unwrap() - erases.iter().min().unwrap(), drive.ftl().counters().levellings)
    };
    let (apart, none) = spread(None);
    let (together, some) = spread(Some(4));
    assert_eq!(none, 0);
    assert!(some > 0 && together <= 8 && apart > 2 * together, "{apart} without, {together} with {some} levellings");
}

#[test]
fn a_cached_mapping_costs_what_it_has_to() {
    let mapping = Mapping::DemandCached { entries: 16 };
    let parameters = Arc::new(FtlParameters { mapping, ..parameters(VictimPolicy::Greedy) });
    let mut ftl = Ftl::new(Arc::clone(&parameters), 0);
    let translation = |part: u32, slot| Some(TranslationUnit { unit: parameters.logical_units + part, slot });
    // A first access reads a part of the table that was never written; a second one is in memory.
    let first = ftl.access_mapping(5, true);
    assert_eq!(first, MappingAccess { write_back: None, read: translation(0, None) });
    assert_eq!(ftl.access_mapping(5, false), MappingAccess::default());
    // Fifteen more units fill the cache. The next one replaces the oldest, whose translation unit must be written.
    for unit in 1_024..1_039 {
        assert_eq!(ftl.access_mapping(unit, false).write_back, None);
    }
    let next = ftl.access_mapping(2_048, false);
    assert_eq!(next, MappingAccess { write_back: translation(0, None), read: translation(2, None) });
    let put = ftl.append(Stream::Mapping, 1, parameters.logical_units).unwrap();
    // A clean entry is evicted without a write; dirty data are read back.
    let back = ftl.access_mapping(5, false);
    assert_eq!(back, MappingAccess { write_back: None, read: translation(0, Some(put.slot)) });
}
