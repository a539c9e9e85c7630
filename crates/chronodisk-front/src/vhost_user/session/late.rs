//! Requests whose bytes move at their completion, because the device may fail them.

use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Op, SECTOR_BYTES, Status};
use chronodisk_store::{FileData, Store};

use super::{Device, InFlight};
use crate::vhost_user::memory::GuestMemory;
use crate::virtio_blk::{BlkRequest, execute, gather};

/// The bytes of a request until its completion.
#[derive(Clone, Debug)]
pub(super) struct Late {
    request: BlkRequest,
    /// The place among the changes, if it is one.
    order: Option<u64>,
    /// The data of a write, as they were at its arrival.
    bytes: Vec<u8>,
}

impl Device {
    /// Keeps a request whose bytes move later; `None` if the device fails no requests.
    ///
    /// # Errors
    /// If the guest's memory can't be read.
    pub(super) fn keep_late(
        &mut self,
        request: &BlkRequest,
        op: Op,
        memory: &GuestMemory,
    ) -> Result<Option<Box<Late>>, String> {
        let Some(changes) = &mut self.late else { return Ok(None) };
        let mut bytes = Vec::new();
        if op == Op::Write {
            bytes.resize(request.sectors as usize * SECTOR_BYTES as usize, 0);
            gather(&mut bytes, &request.segments, memory).map_err(|error| error.to_string())?;
        }
        let order = matches!(op, Op::Write | Op::Discard | Op::WriteZeroes).then(|| changes.arrived(range_of(request)));
        Ok(Some(Box::new(Late { request: request.clone(), order, bytes })))
    }

    /// Moves the bytes of a request that ended with this status. Without `memory` a read has no place for its data.
    pub(super) fn move_late(
        &mut self,
        entry: &InFlight,
        status: Status,
        memory: Option<&Arc<GuestMemory>>,
    ) -> Result<(), String> {
        let (Some(late), Some(changes)) = (&entry.late, &mut self.late) else { return Ok(()) };
        if let Some(order) = late.order {
            let parts = changes.completed(order, entry.op, status);
            return parts.into_iter().try_for_each(|part| change(&mut *self.store, entry.op, late, part));
        }
        match (status, memory) {
            (Status::Ok, Some(memory)) => {
                let Device { store, bounce, .. } = self;
                let executed = execute(&late.request, entry.op, entry.sector, &**memory, &mut **store, bounce);
                bounce.trim();
                executed.map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }
}

fn range_of(request: &BlkRequest) -> Range<u64> {
    let start = request.sector * SECTOR_BYTES;
    start..start + u64::from(request.sectors) * SECTOR_BYTES
}

/// Changes a part of the request's range.
fn change(store: &mut dyn Store, op: Op, late: &Late, part: Range<u64>) -> Result<(), String> {
    let (begin, len_bytes) = (range_of(&late.request).start, part.end - part.start);
    let changed = match op {
        Op::Write => {
            let within = part.start - begin..part.end - begin;
            let bytes = &late.bytes[within.start as usize..within.end as usize];
            store.write_with_file_data(part.start, bytes, &FileData::of_part(&late.request.file_data, &within))
        }
        Op::Discard => store.discard(part.start, len_bytes),
        _ => store.write_zeroes(part.start, len_bytes),
    };
    changed.map_err(|error| error.to_string())
}
