//! Zones against a shadow of them that keeps the specification's words.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chronodisk_sim::{Op, RandomStream, Status};
use proptest::prelude::*;

use super::tests::{parameters, saved_and_loaded, small_geometry};
use super::zones::ZoneState;
use super::*;
use crate::contract::cases;

/// Zones of 15 program units on two or four of the four dies, with limits of open and active zones.
pub(super) fn with_zones(dies: u32, most_open: u32, most_active: u32) -> FtlParameters {
    let zone = ZoneParameters { size_units: 512, capacity_units: 7 * 24, dies, most_open, most_active };
    FtlParameters {
        allocation: Allocation::Zones(zone),
        // Number of units for which there are superblocks.
        logical_units: small_geometry().blocks_per_plane * (4 / dies) * 512,
        ..parameters(VictimPolicy::Greedy)
    }
}

/// A drive with immediate programs, and erases that end when a write waits for one.
#[derive(Clone)]
pub(super) struct Drive(pub(super) Ftl);

impl Drive {
    pub(super) fn write(&mut self, first: Unit, units: u32, append: bool) -> Result<Unit, Status> {
        let place = self.0.zones_mut().write(first, units, append)?;
        self.0.zones_mut().arrived(place, units);
        for unit in place..place + units {
            let appended = match self.0.append_to_zone(unit) {
                Some(appended) => appended,
                None => {
                    let zone = self.0.zones().of(unit);
                    self.0.zones().dies(zone).for_each(|die| self.erase(die));
                    self.0.append_to_zone(unit).expect("a superblock was erased")
                }
            };
            if let Some(superpage) = appended.completed {
                self.0.programmed(superpage);
            }
        }
        Ok(place)
    }

    /// Executes the pending erases of a die.
    fn erase(&mut self, die: DieIndex) {
        while self.0.urgency(die) != Urgency::None {
            let collection = self.0.start_collection(die).expect("something is to be erased");
            assert_eq!(collection.valid, 0);
            assert_eq!(self.0.next_moves(die, usize::MAX, &mut Vec::new()), 0);
            self.0.erased(die);
        }
    }

    /// Puts the drive to rest, and saves and loads it. An active zone with a partly filled program unit is written to
    /// its end, or finished if it can't be.
    fn rest(&mut self, shadows: &mut Shadows) {
        for zone in 0..self.0.parameters().logical_units / 512 {
            let written = shadows.get(zone).written;
            let (begun, active) =
                (written % 24, !matches!(shadows.get(zone).state, ZoneState::Empty | ZoneState::Full));
            if begun > 0 && active {
                let outcome = self.write(zone * 512, 24 - begun, true);
                assert_eq!(outcome, shadows.write(zone, None, 24 - begun));
                if outcome.is_err() {
                    self.manage(zone, Op::ZoneFinish).unwrap();
                    shadows.manage(zone, Op::ZoneFinish).unwrap();
                }
            }
        }
        let before = self.0.clone();
        self.0 = saved_and_loaded(self.0.clone());
        let units = 0..before.parameters().logical_units;
        assert!(units.clone().all(|unit| before.lookup(unit) == self.0.lookup(unit)));
        assert!((0..before.dies()).all(|die| before.urgency(die) == self.0.urgency(die)));
        shadows.zones.retain(|_, zone| zone.state == ZoneState::Full || zone.written > 0);
        shadows.zones.values_mut().filter(|zone| zone.state != ZoneState::Full).for_each(|zone| {
            zone.state = ZoneState::Closed;
        });
        assert_eq!(self.0.zones().in_use(), (0, shadows.count(&[ZoneState::Closed])));
    }

    pub(super) fn manage(&mut self, zone: ZoneIndex, op: Op) -> Result<(), Status> {
        match op {
            Op::ZoneOpen => return self.0.zones_mut().open_by_host(zone),
            Op::ZoneClose => return self.0.zones_mut().close_by_host(zone),
            Op::ZoneReset => self.0.reset_zone(zone),
            _ => {
                if let Some(superpage) = self.0.finish_zone(zone) {
                    self.0.programmed(superpage);
                }
            }
        }
        Ok(())
    }
}

/// State of a zone according to the specification.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shadow {
    state: ZoneState,
    written: u32,
    /// Instant at which it was opened.
    opened: u32,
}

#[derive(Clone)]
struct Shadows {
    zones: HashMap<ZoneIndex, Shadow>,
    parameters: ZoneParameters,
    clock: u32,
}

impl Shadows {
    fn get(&self, zone: ZoneIndex) -> Shadow {
        self.zones.get(&zone).copied().unwrap_or(Shadow { state: ZoneState::Empty, written: 0, opened: 0 })
    }

    fn count(&self, states: &[ZoneState]) -> u32 {
        self.zones.values().filter(|zone| states.contains(&zone.state)).count() as u32
    }

    fn open(&mut self, zone: ZoneIndex, explicitly: bool) -> Result<(), Status> {
        use ZoneState::{Closed, Empty, ExplicitlyOpen, ImplicitlyOpen};
        let mut shadow = self.get(zone);
        if shadow.state == Empty && self.count(&[Closed, ExplicitlyOpen, ImplicitlyOpen]) == self.parameters.most_active
        {
            return Err(Status::TooManyActiveZones);
        }
        if matches!(shadow.state, Empty | Closed) {
            if self.count(&[ExplicitlyOpen, ImplicitlyOpen]) == self.parameters.most_open {
                let implicit = self.zones.values_mut().filter(|zone| zone.state == ImplicitlyOpen);
                let first = implicit.min_by_key(|zone| zone.opened).ok_or(Status::TooManyOpenZones)?;
                first.state = Closed;
            }
            self.clock += 1;
            shadow.opened = self.clock;
            shadow.state = ImplicitlyOpen;
        }
        if explicitly {
            shadow.state = ExplicitlyOpen;
        }
        self.zones.insert(zone, shadow);
        Ok(())
    }

    fn write(&mut self, zone: ZoneIndex, at: Option<u32>, units: u32) -> Result<Unit, Status> {
        let full = self.get(zone).state == ZoneState::Full;
        let written = self.get(zone).written;
        match at {
            None if full => return Err(Status::ZoneFull),
            None if written + units > self.parameters.capacity_units => return Err(Status::ZoneBoundary),
            Some(at) if at + units > self.parameters.capacity_units => return Err(Status::ZoneBoundary),
            Some(_) if full => return Err(Status::ZoneFull),
            Some(at) if at != written => return Err(Status::ZoneInvalidWrite),
            _ => {}
        }
        self.open(zone, false)?;
        let mut shadow = self.get(zone);
        shadow.written += units;
        if shadow.written == self.parameters.capacity_units {
            shadow.state = ZoneState::Full;
        }
        self.zones.insert(zone, shadow);
        Ok(zone * self.parameters.size_units + written)
    }

    fn manage(&mut self, zone: ZoneIndex, op: Op) -> Result<(), Status> {
        use ZoneState::{Closed, Empty, Full};
        let shadow = self.get(zone);
        let state = match (op, shadow.state) {
            (Op::ZoneReset, _) => {
                self.zones.remove(&zone);
                return Ok(());
            }
            (Op::ZoneOpen, Full) | (Op::ZoneClose, Empty | Full) => return Err(Status::ZoneInvalidTransition),
            (Op::ZoneOpen, _) => return self.open(zone, true),
            (Op::ZoneClose, _) => Closed,
            _ => Full,
        };
        self.zones.insert(zone, Shadow { state, ..shadow });
        Ok(())
    }
}

/// Checks that each written unit has its own slot, other units have none, and the counts are right.
fn check(ftl: &Ftl, shadows: &Shadows) {
    let geometry = ftl.parameters().geometry;
    let mut valid = vec![0; geometry.superblocks() as usize];
    let mut seen = HashSet::new();
    for zone in 0..ftl.parameters().logical_units / shadows.parameters.size_units {
        let shadow = shadows.get(zone);
        assert_eq!(ftl.zones().state(zone), shadow.state, "zone {zone}");
        for offset in 0..shadows.parameters.size_units {
            let slot = ftl.lookup(zone * shadows.parameters.size_units + offset);
            assert_eq!(slot.is_some(), offset < shadow.written, "zone {zone}, unit {offset}");
            if let Some(slot) = slot {
                assert!(seen.insert(slot), "slot {slot} is in use twice");
                let superblock = geometry.superblock_of(slot);
                valid[superblock as usize] += 1;
                assert!(ftl.zones().dies(zone).contains(&geometry.die_of_superblock(superblock)));
                let state = ftl.blocks.use_of(superblock);
                assert!(matches!(state, BlockUse::Open | BlockUse::Closed), "{state:?}");
            }
        }
    }
    for (superblock, valid) in (0..).zip(valid) {
        assert_eq!(ftl.valid_in(superblock), valid, "superblock {superblock}");
    }
    let (open, active) = ftl.zones().in_use();
    assert!(open <= shadows.parameters.most_open && active <= shadows.parameters.most_active);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn zones_are_what_the_specification_says_and_each_unit_is_where_it_was_written(
        (dies, most_open, closed) in (prop_oneof![Just(1u32), Just(2), Just(4)], 1u32..5, 0u32..4),
        seed in any::<u64>(),
        rounds in prop::collection::vec(1u32..200, 1..6),
    ) {
        // A zone is 7 program units; a superblock has 4.
        let dies = dies.max(2);
        let parameters = Arc::new(with_zones(dies, most_open, most_open + closed));
        prop_assert_eq!(parameters.check(), Ok(()));
        let zone_parameters = parameters.zones().unwrap();
        let mut random = RandomStream::new(seed, "test", "zones");
        let zones = [3, 8, parameters.logical_units / 512][random.below(3) as usize];
        let mut drive = Drive(Ftl::new(Arc::clone(&parameters), 0));
        let mut shadows = Shadows { zones: HashMap::new(), parameters: zone_parameters, clock: 0 };
        for steps in rounds {
            let kept = (drive.clone(), shadows.clone());
            for _ in 0..steps {
                let zone = random.below(u64::from(zones)) as u32;
                let units = 1 + random.below(60) as u32;
                match random.below(20) {
                    0..=6 => prop_assert_eq!(drive.write(zone * 512, units, true), shadows.write(zone, None, units)),
                    7..=14 => {
                        let off = if random.chance(0.1) { random.below(500) as u32 } else { 0 };
                        let at = (shadows.get(zone).written + off).min(511 - 60);
                        let expected = shadows.write(zone, Some(at), units);
                        prop_assert_eq!(drive.write(zone * 512 + at, units, false), expected);
                    }
                    what => {
                        let op = [Op::ZoneReset, Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose]
                            [what as usize - 15];
                        prop_assert_eq!(drive.manage(zone, op), shadows.manage(zone, op), "{:?} of zone {}", op, zone);
                    }
                }
                prop_assert_eq!(drive.0.zones().state(zone), shadows.get(zone).state);
            }
            check(&drive.0, &shadows);
            check(&kept.0.0, &kept.1);
            if random.chance(0.3) {
                (drive, shadows) = kept;
            } else if random.chance(0.4) {
                drive.rest(&mut shadows);
                check(&drive.0, &shadows);
            }
        }
    }
}

#[test]
fn an_append_names_the_zone_by_its_beginning() {
    let mut drive = Drive(Ftl::new(Arc::new(with_zones(4, 2, 2)), 0));
    assert_eq!(drive.write(512 + 8, 8, true), Err(Status::InvalidField));
    assert_eq!(drive.write(512, 8, true), Ok(512));
    assert_eq!(drive.write(512, 8, true), Ok(512 + 8));
}

#[test]
fn zones_are_worn_alike_and_cost_no_copies() {
    let parameters = Arc::new(FtlParameters { logical_units: 8 * 512, ..with_zones(4, 2, 2) });
    let mut drive = Drive(Ftl::new(Arc::clone(&parameters), 0));
    for round in 0..300 {
        // One of eight zones is rewritten, with 24 superblocks.
        let zone = if round < 8 { round } else { 3 };
        drive.manage(zone, Op::ZoneReset).unwrap();
        drive.write(zone * 512, 7 * 24, false).unwrap();
    }
    (0..4).for_each(|die| drive.erase(die));
    let counters = drive.0.counters();
    assert_eq!((counters.moved_units, counters.write_amplification()), (0, 1.0));
    // 292 resets of four superblocks, spread over the 17 free ones of each die.
    assert_eq!(counters.erases, 292 * 4);
    let most = (0..24).map(|superblock| drive.0.erases(superblock)).max().unwrap();
    assert!(most <= 292 / 17 + 2, "{most}");
}

#[test]
fn zones_that_do_not_fit_are_refused() {
    let change = |change: fn(&mut ZoneParameters)| {
        let mut parameters = with_zones(4, 2, 4);
        let Allocation::Zones(zone) = &mut parameters.allocation else { unreachable!("it has zones") };
        change(zone);
        parameters.check().map_err(|(key, _)| key)
    };
    assert_eq!(change(|_| {}), Ok(()));
    assert_eq!(change(|zone| zone.dies = 3), Err("zone-dies"));
    assert_eq!(change(|zone| zone.capacity_units = 7 * 24 + 1), Err("zone-capacity"));
    assert_eq!(change(|zone| zone.capacity_units = 17 * 24), Err("zone-capacity"));
    assert_eq!(change(|zone| zone.size_units = 24), Err("zone-size"));
    assert_eq!(change(|zone| zone.size_units = 511), Err("capacity"));
    assert_eq!(change(|zone| zone.size_units = 256), Err("capacity"));
    assert_eq!(change(|zone| zone.most_open = 5), Err("open-zones"));
    assert_eq!(change(|zone| zone.most_active = 0), Err("active-zones"));
    let mut levelled = with_zones(4, 2, 4);
    levelled.wear.move_at_difference = Some(4);
    assert_eq!(levelled.check().unwrap_err().0, "level-wear-at-difference");
}
