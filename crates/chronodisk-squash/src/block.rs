//! State of a block of the device.

use super::class::Class;
use super::runs::RunValue;
use super::{SLOT_BYTES, UNIT_SLOTS};

/// Content of a block; a block without an entry was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Zeros that take no space.
    Zeroed,
    /// Generated at each read.
    Generated,
    /// Kept at a place of the backing.
    Kept { place: u64, class: Class },
    /// Lost: a repaired image had an unknown content there. Reads fail until it is overwritten.
    Damaged,
    /// Compressed, at a place of the backing; always a run of its own.
    Packed { place: u64, stored_bytes: u16, class: Class },
}

impl Block {
    /// The block that is `by` blocks later in the same run.
    pub(crate) fn at_offset(self, by: u64) -> Self {
        self.advanced(by)
    }

    /// Whether it is kept only because its use is unknown.
    pub(crate) fn is_unclassified(self) -> bool {
        matches!(
            self,
            Block::Kept { class: Class::Unclassified, .. } | Block::Packed { class: Class::Unclassified, .. }
        )
    }
}

impl RunValue for Block {
    fn advanced(self, by: u64) -> Self {
        match self {
            Block::Kept { place, class } => {
                Block::Kept { place: place.wrapping_add(by.wrapping_mul(UNIT_SLOTS)), class }
            }
            // No compressed block continues another one.
            Block::Packed { stored_bytes, class, .. } if by > 0 => {
                Block::Packed { place: u64::MAX, stored_bytes, class }
            }
            other => other,
        }
    }
}

/// The slots that a run of `len` blocks takes in the backing.
pub(crate) fn slots_of(block: Block, len: u64) -> Option<(u64, u64)> {
    match block {
        Block::Zeroed | Block::Generated | Block::Damaged => None,
        Block::Kept { place, .. } => Some((place, len.saturating_mul(UNIT_SLOTS))),
        Block::Packed { place, stored_bytes, .. } => Some((place, u64::from(stored_bytes).div_ceil(SLOT_BYTES))),
    }
}
