//! Records of a collection: its reason and urgency, its superblock, and the units that move.

use super::super::geometry::Slot;
use super::Unit;
use super::blocks::SuperblockIndex;

/// Urgency of the collector's work on a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// No work.
    None,
    /// Work for times when the host leaves the die idle.
    Background,
    /// Work that goes before the host's.
    Urgent,
}

/// Reason for a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectionReason {
    /// Space.
    Space,
    /// The superblock has few erases, because its data don't change.
    Wear,
    /// Room where cells have one bit.
    Cache,
    /// A log is to be emptied, and a logical block written as a whole for that.
    Merge,
}

/// A superblock whose valid units must be moved before it is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    /// The superblock.
    pub(crate) superblock: SuperblockIndex,
    /// Valid units at present.
    pub(crate) valid: u32,
    /// Reason of the collection.
    pub(crate) reason: CollectionReason,
}

/// A unit to be read from a slot and relocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// The unit.
    pub(crate) unit: Unit,
    /// Slot of the unit.
    pub(crate) from: Slot,
}
