//! Where the parts of a device have its blocks.

use super::part::Part;
use super::runs::{RunMap, RunValue};
use super::units::{DeviceUnit, VolumeBytes, VolumeUnit};

/// Where a block lies: in which part, by its place in the list, and which of its blocks it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) index: usize,
    pub(crate) unit: VolumeUnit,
}

impl Location {
    /// A range of the device's bytes, whose first block `from` is here, as the part counts it.
    pub(crate) fn range(self, from: DeviceUnit, start_bytes: u64, end_bytes: u64) -> VolumeBytes {
        let offset_bytes = start_bytes - from.offset_bytes() + self.unit.offset_bytes();
        VolumeBytes { offset_bytes, len_bytes: end_bytes - start_bytes }
    }
}

impl RunValue for Location {
    fn advanced(self, by: u64) -> Self {
        Location { unit: self.unit + by, ..self }
    }
}

/// Where parts lie, by blocks of the device.
pub(crate) fn locations_of(parts: &[Part]) -> RunMap<Location> {
    let mut locations = RunMap::default();
    for (index, part) in parts.iter().enumerate() {
        let mut unit = part.first_unit();
        for (start, end) in part.volume().units() {
            locations.set(start.0, end.0, Location { index, unit });
            unit = unit + (end - start);
        }
    }
    locations
}
