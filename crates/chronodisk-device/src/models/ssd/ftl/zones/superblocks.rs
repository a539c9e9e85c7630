//! The superblocks of zones: allocated as a zone is written, erased after its reset.

use std::ops::Range;

use super::super::super::geometry::{DieIndex, Slot};
use super::super::blocks::{BlockUse, Field, SuperblockIndex};
use super::super::collection::{Collection, CollectionReason, Urgency};
use super::super::collector::Victim;
use super::super::{Appended, Ftl, Stream, Superpage, Unit};
use super::{Placed, ZoneIndex, Zones};

impl Ftl {
    /// Whether the drive has zones.
    #[inline]
    pub(crate) fn has_zones(&self) -> bool {
        self.zones.is_some()
    }

    /// The zones of a zoned drive.
    ///
    /// # Panics
    /// If the drive has none.
    #[inline]
    pub(crate) fn zones(&self) -> &Zones {
        self.zones.as_ref().expect("the drive has zones")
    }

    /// As [`zones`](Self::zones), for commands and data of the host.
    #[inline]
    pub(crate) fn zones_mut(&mut self) -> &mut Zones {
        self.zones.as_mut().expect("the drive has zones")
    }

    /// The slot of a unit that was appended to its zone.
    pub(in super::super) fn look_up_in_zone(&self, unit: Unit) -> Option<Slot> {
        let (superblock, in_superblock) = self.zones().look_up(unit)?;
        Some(superblock * self.sizes.units_per_superblock + in_superblock)
    }

    /// The slot of a unit if all zones had been written once in the order of their numbers; `None` for a unit that
    /// can't be written.
    pub(crate) fn slot_in_zone_as_written(&self, unit: Unit) -> Option<Slot> {
        let (die, of_die, in_superblock) = self.zones().place_as_written(unit)?;
        let superblock = die * self.sizes.blocks_per_die + of_die;
        Some(superblock * self.sizes.units_per_superblock + in_superblock)
    }

    /// Puts an arrived unit into its slot; `None` if the zone needs a superblock of a die without free ones, until one
    /// is erased there.
    ///
    /// # Panics
    /// If earlier units of the zone were not appended.
    pub(crate) fn append_to_zone(&mut self, unit: Unit) -> Option<Appended> {
        let Ftl { zones, blocks, .. } = self;
        let zones = zones.as_mut().expect("the drive has zones");
        let Placed { superblock, die, in_superblock, is_last } = zones.append(unit, |die| {
            let superblock = blocks.take_free(die, false)?;
            blocks.set_use(superblock, BlockUse::Open);
            Some(superblock)
        })?;
        let valid = blocks.get(superblock, Field::Valid);
        blocks.set(superblock, Field::Valid, valid + 1);
        self.dies[die as usize].valid += 1;
        self.counters.count(Stream::Host);
        let per_superpage = self.sizes.units_per_superpage;
        let completed = (in_superblock + 1).is_multiple_of(per_superpage).then(|| {
            self.blocks.begin_program(superblock);
            if is_last {
                self.blocks.close(die, superblock);
            }
            Superpage { superblock, index: in_superblock / per_superpage }
        });
        Some(Appended { slot: superblock * self.sizes.units_per_superblock + in_superblock, completed })
    }

    /// So many units of an empty zone of a new drive are written, and it is closed, or full: programs end at once.
    /// Returns the last units of a closed zone, which begin a program unit: their writes are let in, and have not
    /// arrived.
    ///
    /// # Panics
    /// If the zone is not empty, or one more can't be active.
    pub(crate) fn fill_zone(&mut self, zone: ZoneIndex, units: u32, full: bool) -> Range<Unit> {
        let first = self.zones().units(zone).start;
        let per_superpage = self.sizes.units_per_superpage;
        let capacity_units = self.zones().parameters.capacity_units;
        // A finish completes a begun program unit with nothing.
        let programmed = match full {
            true => units.next_multiple_of(per_superpage).min(capacity_units),
            false => units / per_superpage * per_superpage,
        };
        if programmed > 0 {
            self.zones_mut().write(first, programmed, false).expect("the zone is empty, and can be active");
            self.zones_mut().arrived(first, programmed);
            for unit in first..first + programmed {
                let appended = self.append_to_zone(unit).expect("a new drive has free superblocks");
                if let Some(superpage) = appended.completed {
                    self.programmed(superpage);
                }
            }
        }
        if full {
            let begun = self.finish_zone(zone);
            debug_assert!(begun.is_none(), "only whole program units were written");
            return first..first;
        }
        let rest = first + programmed..first + units;
        if !rest.is_empty() {
            self.zones_mut().write(rest.start, rest.end - rest.start, false).expect("it fits, and can be active");
        }
        self.zones_mut().close_by_host(zone).expect("it is open");
        rest
    }

    /// Finishes a zone for the host: pads a partly filled program unit, which must then be programmed.
    ///
    /// # Panics
    /// If the zone is not [settled](Zones::is_settled).
    pub(crate) fn finish_zone(&mut self, zone: ZoneIndex) -> Option<Superpage> {
        let padding = self.zones_mut().finish(zone)?;
        let completed = (padding > 0).then(|| {
            let last = self.zones().last_appended(zone);
            let (superblock, in_superblock) = self.zones().look_up(last).expect("it was appended");
            self.blocks.begin_program(superblock);
            Superpage { superblock, index: in_superblock / self.sizes.units_per_superpage }
        });
        self.counters.padded_units += u64::from(padding);
        let Ftl { zones, blocks, sizes, .. } = self;
        let superblocks = zones.iter().flat_map(|zones| zones.superblocks(zone));
        for superblock in superblocks {
            if blocks.use_of(superblock) == BlockUse::Open {
                blocks.close(superblock / sizes.blocks_per_die, superblock);
            }
        }
        completed
    }

    /// Resets a zone; its superblocks are then to be erased.
    ///
    /// # Panics
    /// If the zone is not [settled](Zones::is_settled).
    pub(crate) fn reset_zone(&mut self, zone: ZoneIndex) {
        let Ftl { zones, blocks, victims, sizes, .. } = self;
        let zones = zones.as_mut().expect("the drive has zones");
        for superblock in zones.superblocks(zone) {
            let die = superblock / sizes.blocks_per_die;
            let valid = blocks.get(superblock, Field::Valid);
            blocks.set(superblock, Field::Valid, 0);
            self.dies[die as usize].valid -= valid;
            self.counters.trimmed_units += u64::from(valid);
            if blocks.use_of(superblock) == BlockUse::Open {
                blocks.close(die, superblock);
            }
            // Superblocks with programs in progress follow at the programs' end.
            if blocks.is_candidate(superblock) {
                victims.add(blocks, die, superblock);
            }
        }
        zones.reset(zone);
    }

    /// With zones, pending erases of a die matter only while it has no free superblock.
    pub(in super::super) fn urgency_of_erases(&self, die: DieIndex) -> Urgency {
        let waiting = self.victims.candidates(die) > 0 || self.dies[die as usize].victim.is_some();
        match self.blocks.free(die) {
            _ if !waiting => Urgency::None,
            0 => Urgency::Urgent,
            _ => Urgency::Background,
        }
    }

    /// With zones: chooses a superblock to be erased.
    pub(in super::super) fn start_erase(&mut self, die: DieIndex) -> Option<Collection> {
        let superblock = self.victims.choose(&mut self.blocks, die)?;
        self.victims.remove(&mut self.blocks, die, superblock);
        self.blocks.set_use(superblock, BlockUse::Victim);
        let reason = CollectionReason::Space;
        self.dies[die as usize].victim = Some(Victim::to_erase(superblock));
        Some(Collection { superblock, valid: 0, reason })
    }

    /// Whether a superblock holds data of a zone, so that it can't be erased.
    #[inline]
    pub(in super::super) fn is_of_zone(&self, superblock: SuperblockIndex) -> bool {
        self.zones.is_some() && self.blocks.get(superblock, Field::Valid) > 0
    }
}
