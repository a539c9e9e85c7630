//! Device configuration shown to the driver.

use chronodisk_device::{DeviceInfo, ZoneLayout};
use chronodisk_sim::SECTOR_BYTES;
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY,
    VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_F_ZONED, VIRTIO_BLK_Z_HM,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

use super::{FILE_DATA_FEATURE, REQUEST_BYTES_MAX};

/// Data segments in a request unless something else is asked for: a ring of 256 holds two such requests of direct
/// descriptors, with a header and a status each.
pub const SEG_MAX_DEFAULT: u32 = 126;
/// Most data segments in a request: a chain is no longer than the ring, and header and status
/// take a descriptor each.
pub const SEG_MAX_LIMIT: u32 = crate::vhost_user::QUEUE_SIZE_MAX as u32 - 2;

/// A block device as its driver sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlkConfig {
    /// Capacity in sectors of 512 bytes; a multiple of the logical block.
    pub capacity_sectors: u64,
    /// Smallest addressable unit in bytes, a power of two from 512 to 4096.
    pub logical_block_bytes: u32,
    /// Unit that the medium writes without a read-modify-write, in bytes; a power of two, at
    /// least the logical block.
    pub physical_block_bytes: u32,
    /// Serial number; the first 20 bytes count.
    pub serial: String,
    /// Unit of discard in sectors, a multiple of the logical block; `None` if the device does not
    /// support discard.
    pub discard_unit_sectors: Option<u32>,
    /// Whether the device supports write-zeroes.
    pub write_zeroes: bool,
    /// Whether a completed write may be lost without a flush; without it the driver sends no
    /// flush.
    pub volatile_cache: bool,
    /// Most data segments in a request, 1 to [`SEG_MAX_LIMIT`].
    pub seg_max: u32,
    /// The zones of a host-managed device, whose size is a power of two. It supports neither discard nor write-zeroes.
    pub zones: Option<ZoneLayout>,
    /// Sectors at the beginning of a failed write that are written. `Some` means that requests can fail: their bytes
    /// then move at the completion.
    pub torn_write_sectors: Option<u32>,
    /// Whether the device takes file lists ([`FILE_DATA_FEATURE`]).
    pub file_data: bool,
}

impl BlkConfig {
    /// A device as its driver sees it, with [`SEG_MAX_DEFAULT`] segments, and with write-zeroes unless it is zoned.
    #[must_use]
    pub fn of(info: &DeviceInfo) -> Self {
        BlkConfig {
            capacity_sectors: info.capacity_sectors,
            logical_block_bytes: info.logical_block_bytes,
            physical_block_bytes: info.physical_block_bytes,
            serial: info.name.clone(),
            discard_unit_sectors: info.discard_unit_sectors.filter(|_| info.zones.is_none()),
            write_zeroes: info.zones.is_none(),
            volatile_cache: info.volatile_cache,
            seg_max: SEG_MAX_DEFAULT,
            zones: info.zones,
            torn_write_sectors: info.torn_write_sectors.filter(|_| info.zones.is_none()),
            file_data: false,
        }
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// [`ConfigError`] names the first wrong field.
    pub fn check(&self) -> Result<(), ConfigError> {
        let error = |field, value: u64, expected| Err(ConfigError { field, value, expected });
        let logical_block_bytes = self.logical_block_bytes;
        if !logical_block_bytes.is_power_of_two() || !(512..=4096).contains(&logical_block_bytes) {
            return error("logical_block_bytes", logical_block_bytes.into(), "a power of two from 512 to 4096");
        }
        let block_sectors = self.logical_block_sectors();
        if self.capacity_sectors == 0 || !self.capacity_sectors.is_multiple_of(block_sectors) {
            return error("capacity_sectors", self.capacity_sectors, "a positive multiple of the logical block");
        }
        if self.capacity_sectors > u64::MAX / SECTOR_BYTES {
            return error("capacity_sectors", self.capacity_sectors, "less than 2^64 bytes");
        }
        let physical_block_bytes = self.physical_block_bytes;
        if !physical_block_bytes.is_power_of_two() || physical_block_bytes < logical_block_bytes {
            return error(
                "physical_block_bytes",
                physical_block_bytes.into(),
                "a power of two, at least the logical block",
            );
        }
        if let Some(unit) = self.discard_unit_sectors
            && (unit == 0 || !u64::from(unit).is_multiple_of(block_sectors) || unit > RANGE_SECTORS_MAX)
        {
            return error("discard_unit_sectors", unit.into(), "a positive multiple of the logical block below 4 GiB");
        }
        if !(1..=SEG_MAX_LIMIT).contains(&self.seg_max) {
            return error("seg_max", self.seg_max.into(), "1 to 254");
        }
        match &self.zones {
            Some(zones) => self.check_zones(zones),
            None => Ok(()),
        }
    }

    fn check_zones(&self, zones: &ZoneLayout) -> Result<(), ConfigError> {
        let error = |field, value, expected| Err(ConfigError { field, value, expected });
        let size = zones.size_sectors;
        if !size.is_power_of_two() || u32::try_from(size).is_err() {
            return error("zones.size_sectors", size, "a power of two below 2 TiB");
        }
        if !self.capacity_sectors.is_multiple_of(size) {
            return error("capacity_sectors", self.capacity_sectors, "a multiple of the size of a zone");
        }
        let capacity = zones.capacity_sectors;
        if capacity == 0 || capacity > size || !capacity.is_multiple_of(self.logical_block_sectors()) {
            return error("zones.capacity_sectors", capacity, "whole logical blocks, at most the size of a zone");
        }
        if u64::from(zones.conventional) >= self.capacity_sectors / size {
            return error("zones.conventional", zones.conventional.into(), "fewer than there are zones");
        }
        if let Some(unit) = self.discard_unit_sectors {
            return error("discard_unit_sectors", unit.into(), "none for a device with zones");
        }
        if self.write_zeroes {
            return error("write_zeroes", 1, "0 for a device with zones");
        }
        Ok(())
    }

    /// Feature bits that the device offers.
    ///
    /// `VIRTIO_RING_F_EVENT_IDX` is not offered: with it a driver may omit kicks, and in-band kicks stop the guest's
    /// time. `VIRTIO_BLK_F_SIZE_MAX` is not offered either: it would cut large segments.
    #[must_use]
    pub fn features(&self) -> u64 {
        let mut bits = vec![
            VIRTIO_F_VERSION_1,
            VIRTIO_RING_F_INDIRECT_DESC,
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_TOPOLOGY,
        ];
        if self.volatile_cache {
            bits.push(VIRTIO_BLK_F_FLUSH);
        }
        if self.discard_unit_sectors.is_some() {
            bits.push(VIRTIO_BLK_F_DISCARD);
        }
        if self.write_zeroes {
            bits.push(VIRTIO_BLK_F_WRITE_ZEROES);
        }
        if self.zones.is_some() {
            bits.push(VIRTIO_BLK_F_ZONED);
        }
        if self.file_data {
            bits.push(FILE_DATA_FEATURE);
        }
        bits.into_iter().fold(0, |features, bit| features | 1 << bit)
    }

    /// The configuration space, little-endian: section 5.2.4, "Device configuration layout".
    #[must_use]
    pub fn space(&self) -> Vec<u8> {
        let mut space = vec![0; if self.zones.is_some() { ZONED_SPACE_BYTES } else { CONFIG_SPACE_BYTES }];
        let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
        put(offset::CAPACITY, &self.capacity_sectors.to_le_bytes());
        put(offset::SEG_MAX, &self.seg_max.to_le_bytes());
        put(offset::BLK_SIZE, &self.logical_block_bytes.to_le_bytes());
        let blocks_per_physical = self.physical_block_bytes / self.logical_block_bytes;
        put(offset::PHYSICAL_BLOCK_EXP, &[blocks_per_physical.trailing_zeros() as u8]);
        put(offset::NUM_QUEUES, &1u16.to_le_bytes());
        if let Some(unit) = self.discard_unit_sectors {
            put(offset::MAX_DISCARD_SECTORS, &self.range_sectors_max().to_le_bytes());
            put(offset::MAX_DISCARD_SEG, &1u32.to_le_bytes());
            put(offset::DISCARD_SECTOR_ALIGNMENT, &unit.to_le_bytes());
        }
        if self.write_zeroes {
            put(offset::MAX_WRITE_ZEROES_SECTORS, &self.range_sectors_max().to_le_bytes());
            put(offset::MAX_WRITE_ZEROES_SEG, &1u32.to_le_bytes());
            put(offset::WRITE_ZEROES_MAY_UNMAP, &[1]);
        }
        if let Some(zones) = &self.zones {
            let size_sectors = u32::try_from(zones.size_sectors).unwrap_or(u32::MAX);
            put(offset::ZONE_SECTORS, &size_sectors.to_le_bytes());
            put(offset::MAX_OPEN_ZONES, &zones.most_open.to_le_bytes());
            put(offset::MAX_ACTIVE_ZONES, &zones.most_active.to_le_bytes());
            put(offset::MAX_APPEND_SECTORS, &self.append_sectors_max().to_le_bytes());
            put(offset::WRITE_GRANULARITY, &self.logical_block_bytes.to_le_bytes());
            put(offset::ZONED_MODEL, &[VIRTIO_BLK_Z_HM as u8]);
        }
        space
    }

    /// Longest zone append: as long as a request, and no longer than a zone; zero without zones.
    #[must_use]
    pub fn append_sectors_max(&self) -> u32 {
        let of_zone = self.zones.map_or(0, |zones| zones.capacity_sectors);
        let sectors = of_zone.min(REQUEST_BYTES_MAX / SECTOR_BYTES);
        let block = self.logical_block_sectors();
        u32::try_from(sectors / block * block).expect("a request's sectors fit 32 bits")
    }

    /// Longest discard or write-zeroes: as long as its bytes fit 32 bits, in whole units.
    #[must_use]
    pub fn range_sectors_max(&self) -> u32 {
        let unit = self.discard_unit_sectors.unwrap_or(self.logical_block_bytes / SECTOR_BYTES as u32);
        RANGE_SECTORS_MAX / unit * unit
    }

    /// The logical block in sectors.
    #[must_use]
    pub fn logical_block_sectors(&self) -> u64 {
        u64::from(self.logical_block_bytes) / SECTOR_BYTES
    }
}

/// A wrong field of [`BlkConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, expected {expected}")]
pub struct ConfigError {
    /// Name of the field.
    pub field: &'static str,
    /// Value found.
    pub value: u64,
    /// Values expected.
    pub expected: &'static str,
}

/// Sectors of 512 bytes whose bytes fit 32 bits.
const RANGE_SECTORS_MAX: u32 = u32::MAX / SECTOR_BYTES as u32;
/// Up to the end of `write_zeroes_may_unmap` and its padding.
const CONFIG_SPACE_BYTES: usize = 60;
/// Up to the end of `zoned`.
const ZONED_SPACE_BYTES: usize = 96;

/// Where the fields of `struct virtio_blk_config` lie, in bytes.
mod offset {
    pub const CAPACITY: usize = 0;
    pub const SEG_MAX: usize = 12;
    pub const BLK_SIZE: usize = 20;
    pub const PHYSICAL_BLOCK_EXP: usize = 24;
    pub const NUM_QUEUES: usize = 34;
    pub const MAX_DISCARD_SECTORS: usize = 36;
    pub const MAX_DISCARD_SEG: usize = 40;
    pub const DISCARD_SECTOR_ALIGNMENT: usize = 44;
    pub const MAX_WRITE_ZEROES_SECTORS: usize = 48;
    pub const MAX_WRITE_ZEROES_SEG: usize = 52;
    pub const WRITE_ZEROES_MAY_UNMAP: usize = 56;
    pub const ZONE_SECTORS: usize = 72;
    pub const MAX_OPEN_ZONES: usize = 76;
    pub const MAX_ACTIVE_ZONES: usize = 80;
    pub const MAX_APPEND_SECTORS: usize = 84;
    pub const WRITE_GRANULARITY: usize = 88;
    pub const ZONED_MODEL: usize = 92;
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use virtio_bindings::bindings::virtio_blk::virtio_blk_config;

    use super::*;

    fn config() -> BlkConfig {
        BlkConfig {
            capacity_sectors: 1 << 21,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            serial: "chronodisk test".into(),
            discard_unit_sectors: Some(24),
            write_zeroes: true,
            volatile_cache: true,
            seg_max: SEG_MAX_DEFAULT,
            zones: None,
            torn_write_sectors: None,
            file_data: false,
        }
    }

    fn zoned() -> BlkConfig {
        let zones = ZoneLayout {
            size_sectors: 1 << 17,
            capacity_sectors: 100_000,
            most_open: 6,
            most_active: 8,
            conventional: 0,
        };
        let logical_block_bytes = 4096;
        BlkConfig {
            logical_block_bytes,
            discard_unit_sectors: None,
            write_zeroes: false,
            zones: Some(zones),
            ..config()
        }
    }

    #[test]
    fn offsets_are_those_of_the_kernel() {
        assert_eq!(offset::CAPACITY, offset_of!(virtio_blk_config, capacity));
        assert_eq!(offset::SEG_MAX, offset_of!(virtio_blk_config, seg_max));
        assert_eq!(offset::BLK_SIZE, offset_of!(virtio_blk_config, blk_size));
        assert_eq!(offset::PHYSICAL_BLOCK_EXP, offset_of!(virtio_blk_config, physical_block_exp));
        assert_eq!(offset::NUM_QUEUES, offset_of!(virtio_blk_config, num_queues));
        assert_eq!(offset::MAX_DISCARD_SECTORS, offset_of!(virtio_blk_config, max_discard_sectors));
        assert_eq!(offset::MAX_DISCARD_SEG, offset_of!(virtio_blk_config, max_discard_seg));
        assert_eq!(offset::DISCARD_SECTOR_ALIGNMENT, offset_of!(virtio_blk_config, discard_sector_alignment));
        assert_eq!(offset::MAX_WRITE_ZEROES_SECTORS, offset_of!(virtio_blk_config, max_write_zeroes_sectors));
        assert_eq!(offset::MAX_WRITE_ZEROES_SEG, offset_of!(virtio_blk_config, max_write_zeroes_seg));
        assert_eq!(offset::WRITE_ZEROES_MAY_UNMAP, offset_of!(virtio_blk_config, write_zeroes_may_unmap));
        assert_eq!(CONFIG_SPACE_BYTES, offset_of!(virtio_blk_config, max_secure_erase_sectors));
    }

    #[test]
    fn offsets_of_zones_are_those_of_the_kernel() {
        assert_eq!(offset::ZONE_SECTORS, offset_of!(virtio_blk_config, zoned.zone_sectors));
        assert_eq!(offset::MAX_OPEN_ZONES, offset_of!(virtio_blk_config, zoned.max_open_zones));
        assert_eq!(offset::MAX_ACTIVE_ZONES, offset_of!(virtio_blk_config, zoned.max_active_zones));
        assert_eq!(offset::MAX_APPEND_SECTORS, offset_of!(virtio_blk_config, zoned.max_append_sectors));
        assert_eq!(offset::WRITE_GRANULARITY, offset_of!(virtio_blk_config, zoned.write_granularity));
        assert_eq!(offset::ZONED_MODEL, offset_of!(virtio_blk_config, zoned.model));
        assert_eq!(ZONED_SPACE_BYTES, size_of::<virtio_blk_config>());
    }

    #[test]
    fn a_zoned_device_shows_its_zones_and_supports_no_discard() {
        zoned().check().unwrap();
        let features = zoned().features();
        assert_ne!(features & 1 << VIRTIO_BLK_F_ZONED, 0);
        assert_eq!(features & (1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES), 0);
        assert_eq!(config().features() & 1 << VIRTIO_BLK_F_ZONED, 0);
        let space = zoned().space();
        let field = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
        assert_eq!((field(offset::ZONE_SECTORS), field(offset::WRITE_GRANULARITY)), (1 << 17, 4096));
        assert_eq!((field(offset::MAX_OPEN_ZONES), field(offset::MAX_ACTIVE_ZONES)), (6, 8));
        assert_eq!((field(offset::MAX_APPEND_SECTORS), space[offset::ZONED_MODEL]), (65_536, 1));
        assert_eq!(config().space().len(), CONFIG_SPACE_BYTES);
    }

    #[test]
    fn features_follow_the_device() {
        let all = config().features();
        for bit in [VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_F_VERSION_1] {
            assert_ne!(all & 1 << bit, 0, "bit {bit}");
        }
        let plain = BlkConfig { discard_unit_sectors: None, write_zeroes: false, volatile_cache: false, ..config() };
        assert_eq!(
            all & !plain.features(),
            1 << VIRTIO_BLK_F_FLUSH | 1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES
        );
        assert_eq!(all & (1 << 29 | 1 << 1), 0, "EVENT_IDX or SIZE_MAX is offered");
        let notified = BlkConfig { file_data: true, ..config() };
        assert_eq!(notified.features() & !all, 1 << FILE_DATA_FEATURE);
    }

    #[test]
    fn the_longest_range_is_whole_units_and_fits_32_bits_of_bytes() {
        let sectors = config().range_sectors_max();
        assert_eq!(sectors % 24, 0);
        assert!(u64::from(sectors) * SECTOR_BYTES <= u64::from(u32::MAX));
        assert_eq!(config().space()[offset::MAX_DISCARD_SECTORS..][..4], sectors.to_le_bytes());
    }

    fn with_zones(change: impl FnOnce(&mut ZoneLayout)) -> BlkConfig {
        let mut config = zoned();
        change(config.zones.as_mut().unwrap());
        config
    }

    #[test]
    fn each_wrong_field_is_named() {
        let wrong = [
            (BlkConfig { capacity_sectors: 0, ..config() }, "capacity_sectors"),
            (BlkConfig { capacity_sectors: 9, logical_block_bytes: 4096, ..config() }, "capacity_sectors"),
            (BlkConfig { capacity_sectors: u64::MAX, ..config() }, "capacity_sectors"),
            (BlkConfig { logical_block_bytes: 1000, ..config() }, "logical_block_bytes"),
            (BlkConfig { physical_block_bytes: 256, ..config() }, "physical_block_bytes"),
            (BlkConfig { discard_unit_sectors: Some(0), ..config() }, "discard_unit_sectors"),
            (BlkConfig { seg_max: 0, ..config() }, "seg_max"),
            (BlkConfig { seg_max: 255, ..config() }, "seg_max"),
            (BlkConfig { discard_unit_sectors: Some(8), ..zoned() }, "discard_unit_sectors"),
            (BlkConfig { write_zeroes: true, ..zoned() }, "write_zeroes"),
            (BlkConfig { capacity_sectors: 1 << 16, ..zoned() }, "capacity_sectors"),
            (with_zones(|zones| zones.size_sectors = 1_000), "zones.size_sectors"),
            (with_zones(|zones| zones.size_sectors = 1 << 32), "zones.size_sectors"),
            (with_zones(|zones| zones.capacity_sectors = 4), "zones.capacity_sectors"),
            (with_zones(|zones| zones.conventional = 1 << 14), "zones.conventional"),
            (with_zones(|zones| zones.capacity_sectors = 1 << 18), "zones.capacity_sectors"),
        ];
        for (config, field) in wrong {
            assert_eq!(config.check().unwrap_err().field, field);
        }
        config().check().unwrap();
    }
}
