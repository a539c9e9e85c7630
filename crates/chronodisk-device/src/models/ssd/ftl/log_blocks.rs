//! A block map with log blocks, as in cheap cards (BAST: Kim, Kim, Noh, Min, Cho, "A space-efficient flash translation
//! layer for CompactFlash systems", IEEE Transactions on Consumer Electronics 48(2), 2002).
//!
//! The host's units are divided into *logical blocks*, each as large as a superblock and bound to a die. A logical
//! block has at most one *data* superblock, which holds no other data. All writes go to *logs*, and each log belongs to
//! one logical block. A die has a limited number of open logs. A further one closes the least recently written.
//!
//! - A log filled in order from the logical block's beginning to its end becomes its data superblock (*switch*); no
//!   unit is copied.
//! - When space is short, the log closed first is taken, and all units of its logical block are written to a new data
//!   superblock (*merge*). The superblocks that it replaces then hold nothing valid, and are erased.
//! - If that log was begun in order from the logical block's beginning and none of its units was overwritten, the rest
//!   is appended to it, and it becomes the data superblock (*partial merge*).
//!
//! So a small write to a logical block without an open log costs the copy of a whole block, which makes small writes on
//! such cards slow. A merge omits units that were never written.
//!
//! Space for merges never runs out: a logical block without a data superblock has a free one reserved. A merge uses one
//! superblock and frees one; a partial merge uses none. At rest no log is open.

use super::super::geometry::{DieIndex, Slot};
use super::blocks::{BlockUse, Field, SuperblockIndex};
use super::collection::Move;
use super::{Frontier, Ftl, FtlParameters, Stream, Superpage, Unit};
use crate::flat_table::FlatTable;
use crate::footprint;

/// Number of a logical block.
pub(super) type LogicalBlock = u32;

/// Roles of the superblocks.
#[derive(Clone, Debug)]
pub(super) struct LogBlocks {
    /// The data superblock of each logical block, plus one.
    data: FlatTable,
    /// By superblock: the logical block whose data superblock it is, plus one; zero for logs and free superblocks.
    home: FlatTable,
    /// By superblock: the units of a log that was closed before it was full, if they were then in order from its
    /// logical block's beginning; otherwise zero.
    in_order: FlatTable,
    /// By die: logical blocks without a data superblock.
    without: Vec<u32>,
    /// By die: the logical block whose log is the host's open superblock.
    current: Vec<LogicalBlock>,
    /// By die: the other open logs, the most recently written at the end.
    others: Vec<Vec<Log>>,
}

/// An open log to which the host does not write at the moment.
#[derive(Clone, Copy, Debug)]
struct Log {
    logical: LogicalBlock,
    frontier: Frontier,
}

impl LogBlocks {
    /// The initial state, in which no logical block has data; `None` if the drive has no block map.
    pub(super) fn new(parameters: &FtlParameters) -> Option<Self> {
        let dies = parameters.geometry.dies();
        let logical = parameters.logical_blocks()?;
        Some(LogBlocks {
            data: FlatTable::new(u64::from(logical)),
            home: FlatTable::new(u64::from(parameters.geometry.superblocks())),
            in_order: FlatTable::new(u64::from(parameters.geometry.superblocks())),
            without: (0..dies).map(|die| logical / dies + u32::from(die < logical % dies)).collect(),
            current: vec![0; dies as usize],
            others: vec![Vec::with_capacity(parameters.open_logs() as usize); dies as usize],
        })
    }

    /// Most memory for the logs of a drive; zero if the drive has no block map.
    pub(super) fn bytes_max(parameters: &FtlParameters) -> u64 {
        let Some(logical) = parameters.logical_blocks() else { return 0 };
        let dies = u64::from(parameters.geometry.dies());
        let superblocks = FlatTable::bytes(parameters.geometry.superblocks().into());
        let logs = footprint::allocations_bytes(dies, 64 + 8 * u64::from(parameters.open_logs()));
        footprint::sum([FlatTable::bytes(logical.into()), superblocks, superblocks, logs])
    }

    /// The logical block whose data superblock this is, plus one; zero if it is none.
    pub(super) fn home(&self, superblock: SuperblockIndex) -> u32 {
        self.home.get(superblock)
    }

    /// The units that a closed log held in order before it was full; zero for other superblocks.
    pub(super) fn in_order(&self, superblock: SuperblockIndex) -> u32 {
        self.in_order.get(superblock)
    }

    /// Makes a superblock the data of a logical block. The former data superblock becomes a log without valid units as
    /// soon as the caller has updated the map.
    pub(super) fn assign(&mut self, die: DieIndex, logical: LogicalBlock, superblock: SuperblockIndex) {
        match self.data.get(logical).checked_sub(1) {
            Some(before) => self.home.set(before, 0),
            None => self.without[die as usize] -= 1,
        }
        self.data.set(logical, superblock + 1);
        self.home.set(superblock, logical + 1);
    }

    /// A logical block's data superblock, if it has one; for checks of a state.
    pub(super) fn data(&self, logical: LogicalBlock) -> Option<SuperblockIndex> {
        self.data.get(logical).checked_sub(1)
    }

    /// Free superblocks of a die that logical blocks without data will need.
    pub(super) fn set_aside(&self, die: DieIndex) -> u32 {
        self.without[die as usize]
    }

    /// Open logs of a die besides the host's current one.
    #[cfg(test)]
    pub(super) fn others(&self, die: DieIndex) -> u32 {
        self.others[die as usize].len() as u32
    }

    /// Notes the erase of a superblock.
    pub(super) fn erased(&mut self, die: DieIndex, superblock: SuperblockIndex) {
        self.in_order.set(superblock, 0);
        if let Some(logical) = self.home.get(superblock).checked_sub(1) {
            self.home.set(superblock, 0);
            self.data.set(logical, 0);
            self.without[die as usize] += 1;
        }
    }
}

/// A logical block being merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge {
    logical: LogicalBlock,
    /// Units visited so far.
    passed: u32,
    /// The superblock written.
    into: Option<SuperblockIndex>,
}

impl Merge {
    pub(super) fn of(logical: LogicalBlock) -> Self {
        Merge { logical, passed: 0, into: None }
    }

    /// A merge that appends to a log, which holds the first `units` units already.
    fn behind(logical: LogicalBlock, log: SuperblockIndex, units: u32) -> Self {
        Merge { logical, passed: units, into: Some(log) }
    }

    /// Notes that a unit was written to a superblock.
    pub(super) fn wrote(&mut self, superblock: SuperblockIndex) {
        self.into = Some(superblock);
    }
}

impl Ftl {
    /// Free superblocks of a die that are not set aside for logical blocks without data.
    pub(super) fn spare_superblocks(&self, die: DieIndex) -> u32 {
        let set_aside = self.logs.as_ref().map_or(0, |logs| logs.set_aside(die));
        self.blocks.free(die).saturating_sub(set_aside)
    }

    /// The stream of a host's unit on a die; `None` if there is no room. It depends on the unit only with logs.
    #[inline]
    pub(crate) fn host_stream_for(&self, die: DieIndex, unit: Unit) -> Option<Stream> {
        if self.logs.is_none() {
            return self.host_stream(die);
        }
        let room = self.has_log(die, self.logical_block(unit)) || self.spare_superblocks(die) > self.sizes.reserve();
        room.then_some(Stream::Host)
    }

    /// Whether a host's unit may join the partly filled superpage of a die, if there is one; if not, that superpage
    /// must be [padded](Self::pad) first.
    #[inline]
    pub(crate) fn joins_begun(&self, die: DieIndex, unit: Unit) -> bool {
        match &self.logs {
            Some(logs) => self.begun(Stream::Host, die) == 0 || logs.current[die as usize] == self.logical_block(unit),
            None => true,
        }
    }

    fn logical_block(&self, unit: Unit) -> LogicalBlock {
        unit / self.sizes.units_per_superblock
    }

    /// Whether a logical block has an open log.
    fn has_log(&self, die: DieIndex, logical: LogicalBlock) -> bool {
        let Some(logs) = &self.logs else { return false };
        let open = self.dies[die as usize].frontiers[Stream::Host as usize].is_some();
        (open && logs.current[die as usize] == logical)
            || logs.others[die as usize].iter().any(|log| log.logical == logical)
    }

    /// Selects the log for the host's next write to a logical block: its open log, or a new one.
    #[inline]
    pub(super) fn choose_log(&mut self, die: DieIndex, unit: Unit) {
        let logical = self.logical_block(unit);
        let Some(logs) = &mut self.logs else { return };
        let current = std::mem::replace(&mut logs.current[die as usize], logical);
        if current == logical {
            return;
        }
        let others = &mut logs.others[die as usize];
        let wanted = others.iter().position(|log| log.logical == logical).map(|place| others.remove(place).frontier);
        let before = std::mem::replace(&mut self.dies[die as usize].frontiers[Stream::Host as usize], wanted);
        if let Some(frontier) = before {
            debug_assert!(frontier.appended.is_multiple_of(self.sizes.units_per_superpage), "a superpage is begun");
            others.push(Log { logical: current, frontier });
        }
        // The host's current log is one of the open logs, too.
        let oldest = (others.len() as u32 >= self.parameters.open_logs()).then(|| others.remove(0));
        if let Some(log) = oldest {
            self.close_log(die, log);
        }
    }

    /// Closes all logs of a die. None of them may have a partly filled superpage.
    pub(crate) fn close_logs(&mut self, die: DieIndex) {
        while let Some(log) = self.logs.as_mut().and_then(|logs| logs.others[die as usize].pop()) {
            self.close_log(die, log);
        }
        let Some(logical) = self.logs.as_ref().map(|logs| logs.current[die as usize]) else { return };
        if let Some(frontier) = self.dies[die as usize].frontiers[Stream::Host as usize].take() {
            self.close_log(die, Log { logical, frontier });
        }
    }

    /// Closes a log before it is full. It must not have a partly filled superpage.
    fn close_log(&mut self, die: DieIndex, log: Log) {
        let Frontier { superblock, appended } = log.frontier;
        let in_order = if self.is_in_order(log.logical, superblock, appended) { appended } else { 0 };
        if let Some(logs) = &mut self.logs {
            logs.in_order.set(superblock, in_order);
        }
        self.close(die, log.frontier, Stream::Host);
    }

    /// Whether a superblock holds exactly the first `units` units of a logical block, in order.
    fn is_in_order(&self, logical: LogicalBlock, superblock: SuperblockIndex, units: u32) -> bool {
        let (first_unit, first_slot) = (logical * self.sizes.units_per_superblock, self.first_slot(superblock));
        let end = self.parameters.logical_units - first_unit;
        self.blocks.get(superblock, Field::Valid) == units
            && units <= end
            && (0..units).all(|place| self.lookup(first_unit + place) == Some(first_slot + place))
    }

    fn first_slot(&self, superblock: SuperblockIndex) -> Slot {
        superblock * self.sizes.units_per_superblock
    }

    /// Handles a full log: if all of it is valid and in order, it becomes the data of its logical block.
    pub(super) fn log_filled(&mut self, die: DieIndex, superblock: SuperblockIndex) {
        let full = self.sizes.units_per_superblock;
        let Some(logical) = self.logs.as_ref().map(|logs| logs.current[die as usize]) else { return };
        let (first_unit, first_slot) = (logical * full, self.first_slot(superblock));
        let mut places = 0..full.min(self.parameters.logical_units - first_unit);
        if places.len() as u32 == full
            && places.all(|place| self.lookup(first_unit + place) == Some(first_slot + place))
        {
            self.logs.as_mut().expect("there are logs").assign(die, logical, superblock);
            self.counters.switches += 1;
        }
    }

    /// Closes a stream's open superblock on a die before it is full. It must not have a partly filled superpage.
    pub(super) fn close_early(&mut self, stream: Stream, die: DieIndex) {
        if let Some(frontier) = self.dies[die as usize].frontiers[stream as usize].take() {
            self.close(die, frontier, stream);
        }
    }

    fn close(&mut self, die: DieIndex, frontier: Frontier, stream: Stream) {
        debug_assert!(frontier.appended.is_multiple_of(self.sizes.superpage(stream)), "a superpage is begun");
        let left = self.sizes.superblock(stream) - frontier.appended;
        self.counters.unused_units += u64::from(left);
        self.blocks.close(die, frontier.superblock);
        if self.blocks.is_candidate(frontier.superblock) {
            self.victims.add(&mut self.blocks, die, frontier.superblock);
        }
    }

    /// The log of a die that was closed first, with its logical block.
    pub(super) fn choose_merge(&self, die: DieIndex) -> Option<(SuperblockIndex, LogicalBlock)> {
        let logs = self.logs.as_ref()?;
        let first = die * self.sizes.blocks_per_die;
        let is_log = |superblock: &SuperblockIndex| {
            self.blocks.is_candidate(*superblock)
                && logs.home(*superblock) == 0
                && self.blocks.get(*superblock, Field::Valid) > 0
        };
        let all = (first..first + self.sizes.blocks_per_die).filter(is_log);
        let oldest = all.max_by_key(|&superblock| (self.blocks.age(die, superblock), superblock))?;
        let slots = self.first_slot(oldest)..self.first_slot(oldest + 1);
        let mut held = slots.map(|slot| self.reverse.look(&self.map, slot)).filter(|(_, valid)| *valid);
        held.next().map(|(unit, _)| (oldest, self.logical_block(unit)))
    }

    /// Begins to merge a logical block with one of its logs: into a new superblock, or by appending to the log if
    /// possible.
    pub(super) fn begin_merge(&mut self, die: DieIndex, log: SuperblockIndex, logical: LogicalBlock) -> Merge {
        self.counters.merges += 1;
        let units = self.logs.as_ref().map_or(0, |logs| logs.in_order(log));
        let behind = (1..self.sizes.units_per_superblock).contains(&units)
            && units.is_multiple_of(self.sizes.units_per_superpage)
            && self.is_in_order(logical, log, units);
        if !behind {
            return Merge::of(logical);
        }
        self.victims.remove(&mut self.blocks, die, log);
        self.blocks.set_use(log, BlockUse::Open);
        self.dies[die as usize].frontiers[Stream::Collector as usize] =
            Some(Frontier { superblock: log, appended: units });
        self.counters.partial_merges += 1;
        // The unused rest of the log is in use again.
        let left = u64::from(self.sizes.units_per_superblock - units);
        self.counters.unused_units = self.counters.unused_units.saturating_sub(left);
        Merge::behind(logical, log, units)
    }

    /// Appends the next units of a merge to `moves`, at most `most`. Units still being programmed stay in their log.
    pub(super) fn next_of_merge(&mut self, merge: &mut Merge, most: usize, moves: &mut Vec<Move>) -> usize {
        let full = self.sizes.units_per_superblock;
        let first = merge.logical * full;
        let count = full.min(self.parameters.logical_units - first);
        let mut found = 0;
        while merge.passed < count && found < most {
            let unit = first + merge.passed;
            merge.passed += 1;
            if let Some(from) = self.lookup(unit).filter(|from| self.blocks.is_candidate(from / full)) {
                moves.push(Move { unit, from });
                found += 1;
            }
        }
        found
    }

    /// Returns whether a die's collection is a merge, which ends without an erase.
    pub(crate) fn is_merging(&self, die: DieIndex) -> bool {
        self.dies[die as usize].victim.is_some_and(|victim| victim.merge.is_some())
    }

    /// Ends a merge whose units are all relocated. Returns the superpage that must be programmed.
    ///
    /// # Panics
    /// If no merge is in progress on the die.
    pub(crate) fn end_merge(&mut self, die: DieIndex) -> Option<Superpage> {
        let victim = self.dies[die as usize].victim.take().expect("a logical block is being merged");
        let merge = victim.merge.expect("a logical block is being merged");
        let completed = self.pad(Stream::Collector, die);
        self.close_early(Stream::Collector, die);
        // Later writes may have invalidated all its units.
        let into = merge.into.filter(|&into| self.blocks.get(into, Field::Valid) > 0);
        if let (Some(into), Some(logs)) = (into, &mut self.logs) {
            logs.assign(die, merge.logical, into);
        }
        completed
    }
}

/// Assigns the data superblocks of a saved state, each with its logical block plus one and the number of units that it
/// held in order when it was closed as a log.
///
/// # Errors
/// The inconsistency.
pub(super) fn with_homes(
    parameters: &FtlParameters,
    homes: impl Iterator<Item = (BlockUse, u32, u32)>,
    map: &FlatTable,
) -> Result<Option<LogBlocks>, &'static str> {
    let Some(mut logs) = LogBlocks::new(parameters) else {
        return match homes.into_iter().any(|(_, home, in_order)| home != 0 || in_order != 0) {
            true => Err("a superblock belongs to a logical block that the drive does not have"),
            false => Ok(None),
        };
    };
    let geometry = &parameters.geometry;
    let logical_blocks = logs.data.len() as u32;
    for (superblock, (state, home, in_order)) in (0..).zip(homes) {
        if in_order > 0 && (state != BlockUse::Closed || in_order > geometry.units_per_superblock()) {
            return Err("a superblock that is no closed log has units in order");
        }
        logs.in_order.set(superblock, in_order);
        let Some(logical) = home.checked_sub(1) else { continue };
        let die = geometry.die_of_superblock(superblock);
        let fits = state == BlockUse::Closed
            && logical < logical_blocks
            && logical % geometry.dies() == die
            && logs.data(logical).is_none();
        if !fits {
            return Err("a superblock is of no logical block that it could be of");
        }
        logs.assign(die, logical, superblock);
    }
    let full = geometry.units_per_superblock();
    for unit in 0..parameters.logical_units {
        let Some(slot) = map.get(unit).checked_sub(1) else { continue };
        let superblock = geometry.superblock_of(slot);
        let home = logs.home(superblock);
        let logical = unit / full;
        if geometry.die_of_superblock(superblock) != logical % geometry.dies() || (home != 0 && home - 1 != logical) {
            return Err("a unit is in a superblock of another logical block");
        }
    }
    Ok(Some(logs))
}
