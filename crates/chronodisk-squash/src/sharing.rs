//! Places that several devices share: the count of further devices at each place, and its reconstruction from maps.

use std::path::Path;

use chronodisk_store::StoreError;

use super::block::{Block, slots_of};
use super::runs::{RunMap, RunValue};
use super::slot_file::SlotFile;
use super::{UNIT_SLOTS, image_error};

/// Number of devices beyond the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Others(pub(super) u32);

impl RunValue for Others {
    fn advanced(self, _by: u64) -> Self {
        self
    }
}

/// Builds the sharing of places from several devices' maps; a place with different blocks is an error. The places
/// become used.
pub(super) fn claim_all<'a>(
    path: &Path,
    file: &mut SlotFile,
    maps: impl Iterator<Item = &'a RunMap<Block>>,
) -> Result<RunMap<Others>, StoreError> {
    let (mut slots, mut others) = (RunMap::default(), RunMap::default());
    for (index, map) in maps.enumerate() {
        file.check(map)?;
        claim(map, &mut slots, &mut others).map_err(|unit| {
            let reason = format!("a place of block {unit} of device {index} is another block's on another device");
            image_error(path, reason)
        })?;
    }
    file.use_places(slots.all().map(|(start, end, _)| (start, end - start)))?;
    Ok(others)
}

/// Use of a slot: an eighth of a block, or a slot of a compressed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtSlot {
    Of(u64),
    OfPacked { unit: u64, stored_bytes: u16, slot: u64 },
}

impl RunValue for AtSlot {
    fn advanced(self, by: u64) -> Self {
        match self {
            AtSlot::Of(eighth) => AtSlot::Of(eighth.wrapping_add(by)),
            AtSlot::OfPacked { unit, stored_bytes, slot } => AtSlot::OfPacked { unit, stored_bytes, slot: slot + by },
        }
    }
}

/// Adds a device's map. A block at places of a different block of an earlier device is the error.
fn claim(map: &RunMap<Block>, slots: &mut RunMap<AtSlot>, others: &mut RunMap<Others>) -> Result<(), u64> {
    for (start, end, block) in map.all() {
        let Some((place, len)) = slots_of(block, end - start) else { continue };
        let at_slot = match block {
            Block::Packed { stored_bytes, .. } => AtSlot::OfPacked { unit: start, stored_bytes, slot: 0 },
            _ => AtSlot::Of(start.wrapping_mul(UNIT_SLOTS)),
        };
        for (from, to, there) in slots.pieces(place, place + len) {
            // Devices share whole blocks only.
            let whole = match block {
                Block::Packed { .. } => (from, to) == (place, place + len),
                _ => (from - place).is_multiple_of(UNIT_SLOTS) && (to - place).is_multiple_of(UNIT_SLOTS),
            };
            if there != at_slot.advanced(from - place) || !whole {
                return Err(start);
            }
            let counts: Vec<_> = others.pieces(from, to).collect();
            others.set(from, to, Others(1));
            counts.into_iter().for_each(|(from, to, Others(count))| others.set(from, to, Others(count + 1)));
        }
        slots.set(place, place + len, at_slot);
    }
    Ok(())
}
