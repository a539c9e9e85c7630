//! Maps the device's blocks to its parts.

use super::part::Part;
use super::runs::{RunMap, RunValue};
use super::units::{DeviceUnit, VolumeBytes, VolumeUnit};

/// Location of a block: index of its part, and block number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) index: usize,
    pub(crate) unit: VolumeUnit,
}

impl Location {
    /// The part's addresses for a range of the device's bytes. This location belongs to the device's block `from`.
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

/// Locations of the parts, by blocks of the device.
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
