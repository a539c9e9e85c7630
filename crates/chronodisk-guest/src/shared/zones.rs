//! Zones of the guest's devices: their shape, and the state with which they began.

use chronodisk_device::DeviceInfo;
use chronodisk_store::{KeptZone, ZoneShape};
use serde::{Deserialize, Serialize};

/// The zones of a device, if it has zones.
#[must_use]
pub fn zone_shape(info: &DeviceInfo) -> Option<ZoneShape> {
    let zones = info.zones?;
    let count = u32::try_from(info.capacity_sectors / zones.size_sectors).ok()?;
    Some(ZoneShape {
        count,
        size_sectors: zones.size_sectors,
        capacity_sectors: zones.capacity_sectors,
        conventional: zones.conventional,
    })
}

/// The zones with which a device began, some of them written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZonesBegan {
    /// Number of the device.
    pub device: usize,
    size_sectors: u64,
    capacity_sectors: u64,
    conventional: u32,
    /// Sectors written, and whether it is full, by zone.
    zones: Vec<(u64, bool)>,
}

impl ZonesBegan {
    /// `None` if all zones are empty, as on a new device.
    pub(crate) fn of(device: usize, shape: &ZoneShape, kept: &[KeptZone]) -> Option<Self> {
        let zones = kept.iter().map(|zone| (zone.written_sectors, zone.full)).collect();
        kept.iter().any(|zone| *zone != KeptZone::default()).then_some(ZonesBegan {
            device,
            size_sectors: shape.size_sectors,
            capacity_sectors: shape.capacity_sectors,
            conventional: shape.conventional,
            zones,
        })
    }

    /// The contents of a file with their write pointers, in the form of the file beside a store.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        let count = u32::try_from(self.zones.len()).expect("a device has fewer zones");
        let ZonesBegan { size_sectors, capacity_sectors, conventional, .. } = *self;
        let shape = ZoneShape { count, size_sectors, capacity_sectors, conventional };
        let kept = |&(written_sectors, full): &(u64, bool)| KeptZone { written_sectors, full };
        shape.encode(&self.zones.iter().map(kept).collect::<Vec<_>>())
    }
}
