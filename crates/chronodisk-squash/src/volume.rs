//! Volumes: the ranges of the device that file systems lie in.

use std::sync::Arc;

use super::UNIT_BYTES;
use super::runs::RunMap;
use super::units::DeviceUnit;

/// Blocks of the device by blocks of a volume.
pub(crate) type Lens = RunMap<DeviceUnit>;

/// The place of a volume: ranges of the device's bytes, in the volume's order.
///
/// A single range keeps the device's addresses, wherever it begins. Several ranges, as made by a volume manager, begin
/// and end at blocks of the device, and the volume has addresses of its own from 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Volume {
    extents: Vec<(u64, u64)>,
}

impl Volume {
    /// The bytes from one up to another.
    pub(crate) fn one(start_bytes: u64, end_bytes: u64) -> Self {
        Volume { extents: vec![(start_bytes, end_bytes)] }
    }

    /// A volume of consecutive ranges; `None` if there are none, or they don't begin and end at blocks.
    pub(crate) fn joined(ranges: impl IntoIterator<Item = (u64, u64)>) -> Option<Self> {
        let mut extents: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            if start >= end || !start.is_multiple_of(UNIT_BYTES) || !end.is_multiple_of(UNIT_BYTES) {
                return None;
            }
            match extents.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => extents.push((start, end)),
            }
        }
        (!extents.is_empty()).then_some(Volume { extents })
    }

    /// Its ranges of the device, in the volume's order.
    pub(crate) fn extents(&self) -> &[(u64, u64)] {
        &self.extents
    }

    /// Its first byte and its end, in its own addresses.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        match self.extents[..] {
            [one] => one,
            _ => (0, self.extents.iter().map(|(start, end)| end - start).sum()),
        }
    }

    /// Mapping of its blocks to the device's, unless they have equal addresses.
    pub(crate) fn lens(&self) -> Option<Arc<Lens>> {
        if self.extents.len() == 1 {
            return None;
        }
        let mut lens = Lens::default();
        let mut at = 0;
        for (start, end) in self.units() {
            lens.set(at, at + (end - start), start);
            at += end - start;
        }
        Some(Arc::new(lens))
    }

    /// The device's blocks that begin in its ranges: first and end of each range.
    pub(crate) fn units(&self) -> impl Iterator<Item = (DeviceUnit, DeviceUnit)> + '_ {
        let unit = |bytes: &u64| DeviceUnit(bytes.div_ceil(UNIT_BYTES));
        self.extents.iter().map(move |(start, end)| (unit(start), unit(end)))
    }
}
