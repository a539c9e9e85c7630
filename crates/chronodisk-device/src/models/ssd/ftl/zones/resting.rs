//! Zones at rest, as in a saved state.

use super::super::blocks::{BlockUse, RestingBlock};
use super::super::parameters::{FtlParameters, ZoneParameters};
use super::{RECORD_WORDS, Word, ZoneState, Zones};

/// The zones of a drive at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct RestingZones {
    parameters: ZoneParameters,
    zones: Vec<RestingZone>,
    /// Superblock plus one, by zone and index among its dies.
    superblocks: Vec<u32>,
}

/// A zone of a drive at rest: empty, closed or full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RestingZone {
    state: ZoneState,
    written: u32,
}

/// Words of a zone at rest before its superblocks: state and units written.
const RESTING_WORDS: u32 = 2;

impl RestingZones {
    /// Words of a kept state.
    pub(in super::super) fn word_count(zone: ZoneParameters, logical_units: u32) -> u64 {
        u64::from(logical_units / zone.size_units) * u64::from(RESTING_WORDS + zone.dies)
    }

    /// The words of each zone: its state, units written, and its superblocks by place, plus one.
    pub(in super::super) fn words(&self) -> impl Iterator<Item = u32> {
        let superblocks = self.superblocks.chunks(self.parameters.dies as usize);
        let zones = self.zones.iter().zip(superblocks);
        zones.flat_map(|(zone, superblocks)| {
            [zone.state as u32, zone.written].into_iter().chain(superblocks.iter().copied())
        })
    }

    /// Decodes zones from words.
    ///
    /// # Errors
    /// The invalid part.
    pub(in super::super) fn of_words(parameters: ZoneParameters, words: Vec<u32>) -> Result<Self, &'static str> {
        let (mut zones, mut superblocks) = (Vec::new(), Vec::new());
        for words in words.chunks_exact((RESTING_WORDS + parameters.dies) as usize) {
            let Some(&state) = ZoneState::ALL.get(words[0] as usize) else {
                return Err("a zone is in no known state");
            };
            zones.push(RestingZone { state, written: words[1] });
            superblocks.extend(&words[RESTING_WORDS as usize..]);
        }
        Ok(RestingZones { parameters, zones, superblocks })
    }

    /// Valid units of each superblock, where zones and superblocks agree.
    ///
    /// # Errors
    /// Where they don't.
    pub(in super::super) fn valid(
        &self,
        parameters: &FtlParameters,
        blocks: &[RestingBlock],
    ) -> Result<Vec<u32>, &'static str> {
        let geometry = &parameters.geometry;
        let ZoneParameters { capacity_units, dies, most_active, .. } = self.parameters;
        let per_superpage = geometry.units_per_superpage();
        let groups = geometry.dies() / dies;
        if self.zones.iter().filter(|zone| zone.state == ZoneState::Closed).count() > most_active as usize {
            return Err("more zones are active than can be");
        }
        let mut valid = vec![0; blocks.len()];
        let superblocks = self.superblocks.chunks(dies as usize);
        for ((number, zone), superblocks) in (0..).zip(&self.zones).zip(superblocks) {
            let written = zone.written;
            let sound = match zone.state {
                ZoneState::Empty => written == 0,
                ZoneState::Closed => (1..capacity_units).contains(&written) && written.is_multiple_of(per_superpage),
                ZoneState::Full => written <= capacity_units,
                ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen => false,
            };
            if !sound {
                return Err("a zone is in no state that it could be in at rest");
            }
            for (place, superblock) in (0..dies).zip(superblocks) {
                let (superpages, rest) = (written / per_superpage, written % per_superpage);
                let here = (superpages + dies - 1 - place) / dies;
                let units = here * per_superpage + if superpages % dies == place { rest } else { 0 };
                let Some(superblock) = superblock.checked_sub(1) else {
                    match units {
                        0 => continue,
                        _ => return Err("a zone has no superblock where it was written"),
                    }
                };
                // The place of its next program unit there.
                let ended = zone.state == ZoneState::Full || place + here * dies >= capacity_units / per_superpage;
                let expected = if ended { BlockUse::Closed } else { BlockUse::Open };
                let fits = units > 0
                    && superblock < geometry.superblocks()
                    && geometry.die_of_superblock(superblock) == number % groups * dies + place
                    && valid[superblock as usize] == 0
                    && blocks[superblock as usize].state == expected;
                if !fits {
                    return Err("a superblock is of no zone that it could be of");
                }
                valid[superblock as usize] = units;
            }
        }
        let of_nobody = |(block, valid): (&RestingBlock, &u32)| block.state == BlockUse::Open && *valid == 0;
        match blocks.iter().zip(&valid).any(of_nobody) {
            true => Err("a superblock is open for no zone"),
            false => Ok(valid),
        }
    }
}

impl Zones {
    /// The zones' persistent state; all accepted data have been programmed.
    ///
    /// # Panics
    /// If some have not.
    pub(in super::super) fn at_rest(&self) -> RestingZones {
        let count = self.records.len() as u32 / RECORD_WORDS;
        let zones = (0..count).map(|zone| {
            let written = self.get(zone, Word::Appended);
            assert_eq!(self.get(zone, Word::Pointer), written, "data of zone {zone} are on their way");
            assert_eq!(self.get(zone, Word::Begun), 0, "a program unit of zone {zone} is begun");
            let state = match (self.state(zone), written) {
                (ZoneState::Full, _) => ZoneState::Full,
                (_, 0) => ZoneState::Empty,
                _ => ZoneState::Closed,
            };
            RestingZone { state, written }
        });
        let superblocks = (0..self.superblocks.len() as u32).map(|place| self.superblocks.get(place));
        RestingZones { parameters: self.parameters, zones: zones.collect(), superblocks: superblocks.collect() }
    }

    /// The zones that go on from these, if the drive has zones.
    pub(in super::super) fn from_rest(parameters: &FtlParameters, resting: &RestingZones) -> Option<Self> {
        let mut zones = Zones::new(parameters)?;
        for (number, zone) in (0..).zip(&resting.zones) {
            zones.become_(number, zone.state);
            for word in [Word::Pointer, Word::Arrived, Word::Appended] {
                zones.set(number, word, zone.written);
            }
        }
        for (place, &superblock) in (0..).zip(&resting.superblocks) {
            zones.superblocks.set(place, superblock);
        }
        Some(zones)
    }
}
