//! Zones in a session: a reset of all of them, which is several requests to the device.

use chronodisk_device::ZoneReport;
use chronodisk_sim::{Op, RequestId, SECTOR_BYTES};
use chronodisk_store::{KeptZone, StoreError, ZoneFile};

use super::{Arrival, Device, InFlight, RequestHandler, VhostUserSession, request_of};
use crate::virtio_blk::{BlkRequest, BlkStatus};

/// A request of the guest that is several requests to the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) left: usize,
    /// The first that was not good.
    pub(super) status: BlkStatus,
}

impl VhostUserSession {
    /// Resets each zone that is not empty, or one if all are: a drive has no command for all that takes no time.
    pub(super) fn reset_all_zones(&mut self, request: &BlkRequest, queue: usize, handler: &mut dyn RequestHandler) {
        let Some(zones) = &self.device.zones else { return };
        let mut sectors: Vec<u64> = zones.begun().collect();
        if sectors.is_empty() {
            sectors.push(zones.layout().conventional_sectors());
        }
        let first = RequestId(self.next_id);
        let block_sectors = self.device.config.logical_block_sectors() as u32;
        self.groups.insert(first, Group { left: sectors.len(), status: BlkStatus::Ok });
        for sector in sectors {
            let id = self.next_id();
            let part = BlkRequest { sector, sectors: block_sectors, ..request.clone() };
            let device_request = request_of(&part, id, Op::ZoneReset, queue);
            let (store_time, failed) = self.timed(|device| {
                if let Some(zones) = &mut device.zones {
                    zones.admit(&device_request).expect("a zone can always be reset");
                }
                device.empty_zone(sector).map_err(|error| error.to_string())
            });
            let op = Op::ZoneReset;
            let in_flight = InFlight { op, sector, failed, group: Some(first), ..self.in_flight_of(part, queue) };
            self.in_flight.insert(id, in_flight);
            self.stats.count(op, 0);
            handler.arrived(Arrival { request: device_request, store_time, failed });
        }
    }

    /// The status of the guest's request if it has ended with this part of it: the first that is not good.
    pub(super) fn leave_group(&mut self, entry: &InFlight, status: BlkStatus) -> Option<BlkStatus> {
        let Some(first) = entry.group else { return Some(status) };
        let group = self.groups.get_mut(&first)?;
        if group.status == BlkStatus::Ok {
            group.status = status;
        }
        group.left -= 1;
        let ended = (group.left == 0).then_some(group.status);
        if ended.is_some() {
            self.groups.remove(&first);
        }
        ended
    }
}

impl VhostUserSession {
    /// The zones begin as these, and `file` keeps their pointers from now on. Returns them as reports show them.
    ///
    /// # Errors
    /// The first zone that can't be.
    pub fn keep_zones(&mut self, zones: &[KeptZone], file: ZoneFile) -> Result<Vec<ZoneReport>, String> {
        let block_sectors = self.device.config.logical_block_sectors();
        let map = self.device.zones.as_mut().ok_or("the device is not zoned")?;
        let kept: Vec<_> = zones.iter().map(|zone| (zone.written_sectors, zone.full)).collect();
        map.begin_with(&kept, block_sectors)?;
        self.device.zone_file = Some(file);
        Ok(map.reports().collect())
    }
}

impl Device {
    /// The zone's data are gone. The pointer comes first: data beyond it are discarded when the store is opened.
    pub(super) fn empty_zone(&mut self, sector: u64) -> Result<(), StoreError> {
        let len_bytes = self.config.zones.map_or(0, |zones| zones.capacity_sectors) * SECTOR_BYTES;
        self.keep_pointer(sector)?;
        self.store.discard(sector * SECTOR_BYTES, len_bytes)
    }

    /// Keeps the pointer of the zone that an accepted request has changed.
    pub(super) fn keep_pointer(&self, sector: u64) -> Result<(), StoreError> {
        let (Some(zones), Some(file)) = (&self.zones, &self.zone_file) else { return Ok(()) };
        let zone = zones.zone_of(sector);
        if zones.is_conventional(zone) {
            return Ok(());
        }
        let (written_sectors, full) = zones.at_rest(zone);
        file.keep(zone, KeptZone { written_sectors, full })
    }

    /// Keeps the change of a zone by an executed request, or makes earlier changes durable.
    pub(super) fn keep_zone(&self, op: Op, sector: u64) -> Result<(), StoreError> {
        match op {
            Op::Write | Op::WriteZeroes | Op::ZoneAppend | Op::ZoneFinish => self.keep_pointer(sector),
            Op::Flush => self.zone_file.as_ref().map_or(Ok(()), ZoneFile::flush),
            Op::Read | Op::Discard | Op::ZoneReset | Op::ZoneOpen | Op::ZoneClose => Ok(()),
        }
    }
}
