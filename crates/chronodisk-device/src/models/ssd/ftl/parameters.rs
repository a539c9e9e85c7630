//! Parameters of a flash translation layer.

use std::fmt;
use std::str::FromStr;

use super::super::geometry::{DieIndex, Geometry};

/// The choices of a flash translation layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FtlParameters {
    /// The flash.
    pub(crate) geometry: Geometry,
    /// Units that a host can address, numbered from 0.
    pub(crate) logical_units: u32,
    /// Allocation of units to dies.
    pub(crate) allocation: Allocation,
    /// Parameters of the garbage collection.
    pub(crate) collector: CollectorParameters,
    /// Wear levelling.
    pub(crate) wear: WearLevelling,
    /// Place of the mapping table.
    pub(crate) mapping: Mapping,
    /// A region of each die with one bit per cell, into which the host writes first.
    pub(crate) slc_cache: Option<SlcCache>,
}

/// The first superblocks of each die store one bit per cell: fewer units, programmed quickly. The host's data go there
/// while there is room, and otherwise to the other superblocks. In the background the collector moves the valid data of
/// the oldest one to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlcCache {
    /// Superblocks of each die.
    pub(crate) superblocks: u32,
    /// Number of its free superblocks below which some are emptied.
    pub(crate) empty_below: u32,
}

/// Allocation of a host's unit to a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// Fixed by the unit's number.
    Static(AllocationOrder),
    /// Any die with room; the caller chooses, a superpage at a time.
    Dynamic,
    /// Blocks as large as a superblock, distributed over the dies; writes go to logs first.
    LogBlock {
        /// Logs of a die that can be written at a time.
        open_logs: u32,
    },
    /// By the zone, which the host writes in order and resets.
    Zones(ZoneParameters),
}

/// Order in which neighbouring pages are distributed over the parts of the flash: the first letter varies fastest.
///
/// The letters are those of MQSim (Tavakkol et al., FAST 2018): `C` channel, `W` chip ("way"), `D` die, `P` plane. The
/// planes of a die are written together, so `P` only sets the number of neighbours on one die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocationOrder([Level; 4]);

/// A level of the flash below which pages are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Channel,
    Chip,
    Die,
    Plane,
}

impl Level {
    const ALL: [(char, Level); 4] = [('C', Level::Channel), ('W', Level::Chip), ('D', Level::Die), ('P', Level::Plane)];
}

impl AllocationOrder {
    /// The die of page `page` of the logical space.
    pub(crate) fn die_of_page(self, geometry: &Geometry, page: u32) -> DieIndex {
        let (mut rest, mut channel, mut chip, mut die_in_chip) = (page, 0, 0, 0);
        for level in self.0 {
            let (place, count) = match level {
                Level::Channel => (&mut channel, geometry.channels),
                Level::Chip => (&mut chip, geometry.chips_per_channel),
                Level::Die => (&mut die_in_chip, geometry.dies_per_chip),
                Level::Plane => {
                    rest /= geometry.planes_per_die;
                    continue;
                }
            };
            *place = rest % count;
            rest /= count;
        }
        geometry.die(channel, chip, die_in_chip)
    }
}

impl FromStr for AllocationOrder {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}'; expected each of the letters C, W, D and P once, such as CWDP");
        let mut order = [Level::Plane; 4];
        let mut letters = text.chars();
        for place in &mut order {
            let letter = letters.next().ok_or_else(wrong)?;
            *place = Level::ALL.into_iter().find(|(known, _)| *known == letter).ok_or_else(wrong)?.1;
        }
        let each_once = Level::ALL.iter().all(|(_, level)| order.contains(level));
        if each_once && letters.next().is_none() { Ok(AllocationOrder(order)) } else { Err(wrong()) }
    }
}

impl fmt::Display for AllocationOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter =
            |level: Level| Level::ALL.into_iter().find(|(_, known)| *known == level).map_or(' ', |pair| pair.0);
        f.pad(&self.0.map(letter).iter().collect::<String>())
    }
}

/// Garbage collection. Free blocks are counted in superblocks of one die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CollectorParameters {
    /// Policy for choosing the victim.
    pub(crate) policy: VictimPolicy,
    /// The collector works while fewer are free (the soft threshold).
    pub(crate) start_below: u32,
    /// Number of free superblocks below which the collector goes before the host (the hard threshold).
    pub(crate) urgent_below: u32,
    /// Whether the host's work precedes the collector's until the collector is urgent.
    pub(crate) preemptible: bool,
}

/// Choice of the closed superblock of a die to collect. Ties go to the one closed first, or to the smaller number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VictimPolicy {
    /// The one with the fewest valid units.
    Greedy,
    /// The one with the largest (1 - u) / 2u · age, u the valid share and age counted in superblocks closed since
    /// (Kawaguchi, Nishioka, Motoda, USENIX 1995).
    CostBenefit,
    /// The one with the fewest valid units of this number of random candidates (Van Houdt, SIGMETRICS 2013; Li, Lee,
    /// Lui, SIGMETRICS 2013; MQSim's RGA).
    Choices(u32),
    /// The one closed first that has anything to win.
    Fifo,
}

impl VictimPolicy {
    /// Any one at random.
    pub(crate) const RANDOM: VictimPolicy = VictimPolicy::Choices(1);
}

/// Distribution of erases over the superblocks of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WearLevelling {
    /// Whether the least erased free superblock is used first; otherwise the one freed last.
    pub(crate) dynamic: bool,
    /// Difference of erase counts in a die at which a superblock with few erases, whose data don't change, is moved to
    /// the most erased free one; `None` for never.
    pub(crate) move_at_difference: Option<u32>,
}

/// Place of the mapping table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Completely in the controller's memory.
    Ideal,
    /// In flash, with this number of entries in memory (DFTL: Gupta, Kim, Urgaonkar, ASPLOS 2009).
    DemandCached {
        /// Entries in memory.
        entries: u32,
    },
}

/// Bytes of an entry of the mapping table in flash.
pub(crate) const ENTRY_BYTES: u32 = 4;

/// Parameters of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneParameters {
    /// Distance between the beginnings of neighbouring zones, in units.
    pub(crate) size_units: u32,
    /// Units of a zone that can be written.
    pub(crate) capacity_units: u32,
    /// Dies that a zone is on.
    pub(crate) dies: u32,
    /// Zones that can be open.
    pub(crate) most_open: u32,
    /// Zones that can be open or closed.
    pub(crate) most_active: u32,
}

impl FtlParameters {
    /// Units that hold the mapping table; zero if it is in memory. Their addresses follow the host's.
    pub(crate) fn translation_units(&self) -> u32 {
        match self.mapping {
            Mapping::Ideal => 0,
            Mapping::DemandCached { .. } => self.logical_units.div_ceil(self.entries_per_unit()),
        }
    }

    /// Entries of the mapping table in a unit.
    pub(crate) fn entries_per_unit(&self) -> u32 {
        self.geometry.unit_bytes / ENTRY_BYTES
    }

    /// All addressed units.
    pub(crate) fn addressed_units(&self) -> u32 {
        self.logical_units + self.translation_units()
    }

    /// Units in the mapping tables; zero with zones, whose units have fixed places.
    pub(crate) fn mapped_units(&self) -> u32 {
        if self.zones().is_some() { 0 } else { self.addressed_units() }
    }

    /// Parameters of its zones, if it has any.
    pub(crate) fn zones(&self) -> Option<ZoneParameters> {
        match self.allocation {
            Allocation::Zones(zones) => Some(zones),
            _ => None,
        }
    }

    /// Blocks of the host's units that are mapped as a whole, where that is how they are mapped.
    pub(crate) fn logical_blocks(&self) -> Option<u32> {
        match self.allocation {
            Allocation::LogBlock { .. } => Some(self.logical_units.div_ceil(self.geometry.units_per_superblock())),
            _ => None,
        }
    }

    /// Logs of a die that can be open at a time; zero without a block map.
    pub(crate) fn open_logs(&self) -> u32 {
        match self.allocation {
            Allocation::LogBlock { open_logs } => open_logs,
            _ => 0,
        }
    }

    /// Superblocks of a die with one bit in a cell.
    pub(crate) fn slc_superblocks(&self) -> u32 {
        self.slc_cache.map_or(0, |cache| cache.superblocks)
    }

    /// Whether a superblock has one bit in a cell.
    #[inline]
    pub(crate) fn is_slc(&self, superblock: u32) -> bool {
        self.slc_cache.is_some_and(|cache| superblock % self.geometry.blocks_per_plane < cache.superblocks)
    }

    /// Most valid units of a die with which the collector can always gain space: without a superblock each for the open
    /// ones and the collector's reserve, and without one superpage's worth. Data in SLC superblocks must also fit into
    /// the others, besides one that is open for their move, and one that can be opened.
    pub(crate) fn valid_units_per_die_limit(&self) -> u32 {
        if self.open_logs() > 0 || self.zones().is_some() {
            // Logical blocks or zones limit a die.
            return self.geometry.blocks_per_plane * self.geometry.units_per_superblock();
        }
        let usable = self.geometry.blocks_per_plane.saturating_sub(self.kept_back() + self.slc_superblocks());
        (usable * self.geometry.units_per_superblock()).saturating_sub(self.geometry.units_per_superpage())
    }

    /// The die to which allocation binds an addressed unit, if any. Translation units are never bound.
    pub(crate) fn bound_die(&self, unit: u32) -> Option<DieIndex> {
        match self.allocation {
            Allocation::Static(order) if unit < self.logical_units => {
                Some(order.die_of_page(&self.geometry, unit / self.geometry.units_per_page()))
            }
            Allocation::LogBlock { .. } => Some(unit / self.geometry.units_per_superblock() % self.geometry.dies()),
            _ => None,
        }
    }

    /// Parameters of a drive that exposes fewer units. Its flash is smaller in proportion: spare, SLC superblocks, and
    /// the free superblocks at which the collector begins. The minimum that any drive needs stays, so the spare beyond
    /// it keeps its share. Each die has a whole number of superblocks.
    pub(crate) fn scaled_to(&self, logical_units: u32) -> FtlParameters {
        let part = |count: u32| scaled(count, logical_units, self.logical_units);
        let slc_cache = self.slc_cache.map(|cache| {
            let superblocks = part(cache.superblocks).clamp(2, cache.superblocks);
            SlcCache { superblocks, empty_below: part(cache.empty_below).min(superblocks) }
        });
        let start_below = match self.open_logs() {
            0 => part(self.collector.start_below).max(self.least_start_below()).min(self.collector.start_below),
            _ => self.collector.start_below,
        };
        let urgent_below = self.collector.urgent_below.min(start_below);
        let collector = CollectorParameters { start_below, urgent_below, ..self.collector };
        let scaled = FtlParameters { logical_units, slc_cache, collector, ..self.clone() };
        let with_blocks = |blocks_per_plane: u32| {
            let geometry = Geometry { blocks_per_plane, ..self.geometry };
            FtlParameters { geometry, ..scaled.clone() }
        };
        let whole = self.geometry.blocks_per_plane;
        let least = (part(self.superblocks_in_use()) + scaled.superblocks_kept()).min(whole);
        // Allocation that is uneven may take a superblock more.
        (least..whole).map(with_blocks).find(|scaled| scaled.check().is_ok()).unwrap_or_else(|| with_blocks(whole))
    }

    /// Superblocks of a die that hold data and spare.
    pub(crate) fn superblocks_in_use(&self) -> u32 {
        self.geometry.blocks_per_plane.saturating_sub(self.superblocks_kept())
    }

    /// Superblocks of a die that are no spare: open ones, the collector's reserve, SLC superblocks.
    fn superblocks_kept(&self) -> u32 {
        if self.zones().is_some() {
            return 0;
        }
        match self.open_logs() {
            0 => self.kept_back() + self.slc_superblocks() + self.collector.start_below - self.least_start_below(),
            logs => self.collector.start_below + logs + MERGED_AND_CLOSED,
        }
    }

    /// Free superblocks of a die at which any collector begins.
    fn least_start_below(&self) -> u32 {
        if self.slc_cache.is_some() { 3 } else { 2 }
    }

    /// Superblocks of a die without data: the open ones and the collector's reserve; with SLC superblocks also one that
    /// is open for data that leave them, and one that can be opened.
    fn kept_back(&self) -> u32 {
        let mapping = u32::from(self.mapping != Mapping::Ideal);
        let levelling = u32::from(self.wear.move_at_difference.is_some());
        let emptying = 2 * u32::from(self.slc_cache.is_some());
        3 + mapping + levelling + emptying
    }

    /// Checks that the parameters are consistent.
    ///
    /// # Errors
    /// The inconsistent key of the profile, and a sentence that gives the reason.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        let geometry = &self.geometry;
        geometry.check()?;
        self.check_slc_cache()?;
        if let Some(zones) = self.zones() {
            return self.check_zones(zones);
        }
        if let Some(logical_blocks) = self.logical_blocks() {
            return self.check_log_blocks(logical_blocks);
        }
        let per_die = self.valid_units_per_die_limit();
        // Static allocation may be uneven by a round over all planes, and translation units go anywhere.
        let uneven = match self.allocation {
            Allocation::Static(_) => geometry.units_per_superpage() + self.translation_units(),
            _ => geometry.units_per_superpage(),
        };
        let most = u64::from(geometry.dies()) * u64::from(per_die.saturating_sub(uneven));
        if self.logical_units == 0 || u64::from(self.addressed_units()) > most {
            return Err((
                "capacity",
                format!(
                    "{} mapping units, but the flash less the collector's reserve can hold {most}",
                    self.addressed_units()
                ),
            ));
        }
        let collector = &self.collector;
        let blocks = geometry.blocks_per_plane - self.slc_superblocks();
        let least = self.least_start_below();
        if !(least..blocks).contains(&collector.start_below) {
            return Err((
                "collect-below",
                format!("{} free superblocks; expected {least} to {}", collector.start_below, blocks - 1),
            ));
        }
        // Besides this reserve, there must be room for the data and for collection; one superblock is reserved in any
        // case.
        let kept_free = u64::from(collector.start_below - 2) * u64::from(geometry.dies());
        if u64::from(self.addressed_units()) + kept_free * u64::from(geometry.units_per_superblock()) > most {
            return Err(("collect-below", "keeps more superblocks free than the capacity leaves".to_owned()));
        }
        if collector.urgent_below > collector.start_below {
            return Err(("collect-urgently-below", "expected at most what starts the collector".to_owned()));
        }
        if collector.policy == VictimPolicy::Choices(0) {
            return Err(("collector", "expected at least one choice".to_owned()));
        }
        if let Mapping::DemandCached { entries } = self.mapping
            && !(16..=MOST_CACHED_ENTRIES).contains(&entries)
        {
            return Err(("mapping-cache", format!("{entries} entries; expected 16 to {MOST_CACHED_ENTRIES}")));
        }
        Ok(())
    }
}

impl FtlParameters {
    /// Each die has a superblock for each of its logical blocks, the open logs, one for a merge, the collector's
    /// reserve, and one for a closed log.
    fn check_log_blocks(&self, logical_blocks: u32) -> Result<(), (&'static str, String)> {
        let (dies, collector) = (self.geometry.dies(), &self.collector);
        if !(1..=MOST_OPEN_LOGS).contains(&self.open_logs()) {
            return Err(("open-logs", format!("{}; expected 1 to {MOST_OPEN_LOGS}", self.open_logs())));
        }
        if collector.start_below < 2 || collector.start_below > self.geometry.blocks_per_plane {
            let message = format!("{} free superblocks; expected 2 or more", collector.start_below);
            return Err(("collect-below", message));
        }
        let of_a_die =
            self.geometry.blocks_per_plane.saturating_sub(collector.start_below + self.open_logs() + MERGED_AND_CLOSED);
        let most = u64::from(of_a_die) * u64::from(dies);
        if logical_blocks == 0 || u64::from(logical_blocks) > most {
            let message = format!("{logical_blocks} blocks, but the flash less the space for logs can hold {most}");
            return Err(("capacity", message));
        }
        let excluded = [
            (self.slc_cache.is_some(), "slc-cache"),
            (self.mapping != Mapping::Ideal, "mapping-cache-entries"),
            (self.wear.move_at_difference.is_some(), "level-wear-at-difference"),
        ];
        if let Some((_, key)) = excluded.into_iter().find(|(given, _)| *given) {
            return Err((key, "expected none where blocks are mapped".to_owned()));
        }
        if collector.policy != VictimPolicy::Greedy {
            return Err(("collector", "expected none where blocks are mapped".to_owned()));
        }
        if collector.urgent_below > collector.start_below {
            return Err(("collect-urgently-below", "expected at most what starts the collector".to_owned()));
        }
        Ok(())
    }

    fn check_slc_cache(&self) -> Result<(), (&'static str, String)> {
        let Some(cache) = self.slc_cache else { return Ok(()) };
        let geometry = &self.geometry;
        let bits = geometry.cells.pages_per_word_line();
        if bits == 1 {
            return Err(("slc-cache", "the cells have one bit anyway".to_owned()));
        }
        if !geometry.pages_per_block.is_multiple_of(bits) {
            let message =
                format!("a block has {} pages, no multiple of a word line's {bits}", geometry.pages_per_block);
            return Err(("slc-cache", message));
        }
        if !(2..geometry.blocks_per_plane).contains(&cache.superblocks) {
            let most = geometry.blocks_per_plane - 1;
            return Err(("slc-cache", format!("{} blocks of a plane; expected 2 to {most}", cache.superblocks)));
        }
        if !(1..=cache.superblocks).contains(&cache.empty_below) {
            let message = format!("{} free superblocks; expected 1 to {}", cache.empty_below, cache.superblocks);
            return Err(("slc-cache", message));
        }
        Ok(())
    }
}

/// `count` times `part` of `whole`, rounded up.
fn scaled(count: u32, part: u32, whole: u32) -> u32 {
    (u64::from(count) * u64::from(part)).div_ceil(u64::from(whole)).min(u64::from(count)) as u32
}

/// Superblocks of a die where blocks are mapped: one for a merge, and one that is a closed log.
const MERGED_AND_CLOSED: u32 = 2;

/// More open logs than any card has; each lookup searches all of them.
const MOST_OPEN_LOGS: u32 = 64;

/// A cache as large as the largest mapping table is no cache any more.
const MOST_CACHED_ENTRIES: u32 = 1 << 28;
