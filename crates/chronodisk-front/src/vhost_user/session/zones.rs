//! Zones in a session: a reset of all of them, which is several requests to the device.

use chronodisk_sim::{Op, RequestId, SECTOR_BYTES};
use chronodisk_store::StoreError;

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
            sectors.push(0);
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

impl Device {
    /// The zone's data are gone.
    pub(super) fn empty_zone(&mut self, sector: u64) -> Result<(), StoreError> {
        let len_bytes = self.config.zones.map_or(0, |zones| zones.capacity_sectors) * SECTOR_BYTES;
        self.store.discard(sector * SECTOR_BYTES, len_bytes)
    }
}
