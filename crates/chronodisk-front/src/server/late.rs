//! Requests whose bytes move at their completion, because the device may fail them.
//!
//! The thread that sends the reply moves the bytes just before. It waits for the store, so other completions may be
//! late if the store is slow.

use std::ops::Range;

use chronodisk_engine::Departure;
use chronodisk_sim::{Op, Status};
use chronodisk_store::{Store, StoreError};

use super::Shared;
use super::connection::{Protocol, State};
use super::work::{Late, Lent, Work, WorkKind};

impl<P: Protocol> State<P> {
    /// Keeps the work of a request that has just arrived, if the device may fail requests.
    pub fn keep_late(&mut self, shared: &Shared, slot: u32, work: Work) -> bool {
        let Some(changes) = &shared.late else { return false };
        let range = work.offset_bytes..work.offset_bytes + work.len_bytes;
        let order = work.kind.changes_contents().then(|| changes.lock().arrived(range));
        let lent = if work.kind == WorkKind::Write { self.protocol.lend(slot) } else { Lent::Nothing };
        self.late.insert(slot, Late { work, order, lent });
        true
    }

    /// Moves the bytes of completed requests.
    pub fn move_late(&mut self, shared: &Shared, departures: &[Departure]) {
        if self.late.is_empty() {
            return;
        }
        for departure in departures {
            let (slot, status) = (departure.id.slot, departure.status);
            let Some(mut late) = self.late.remove(&slot) else { continue };
            if late.work.kind == WorkKind::Read && status == Status::Ok {
                late.lent = self.protocol.lend(slot);
            }
            let moved = late.perform(shared, status);
            if let Err(error) = &moved {
                shared.note_store_error(error);
            }
            let has_data = late.work.kind != WorkKind::Read || status == Status::Ok;
            if has_data || moved.is_err() {
                self.protocol.give_back(slot, &late.work, late.lent, moved);
            }
        }
    }

    /// Forgets the requests of a connection that has ended.
    pub fn drop_late(&mut self, shared: &Shared) {
        let Some(changes) = &shared.late else { return };
        let orders = std::mem::take(&mut self.late).into_values().filter_map(|late| late.order);
        orders.for_each(|order| changes.lock().dropped(order));
    }
}

impl<T: AsRef<[u8]>> Late<T> {
    fn perform(&mut self, shared: &Shared, status: Status) -> Result<(), StoreError> {
        if let (Some(order), Some(changes)) = (self.order, &shared.late) {
            let op = if self.work.kind == WorkKind::Write { Op::Write } else { Op::WriteZeroes };
            // The changes stay locked, so that a later one can't overtake this one on its way to the store.
            let mut changes = changes.lock();
            let parts = changes.completed(order, op, status);
            let mut store = shared.store();
            parts.into_iter().try_for_each(|part| self.change(&mut **store, part))?;
            return if self.work.flush && status == Status::Ok { store.flush() } else { Ok(()) };
        }
        match status {
            Status::Ok => self.work.perform(&mut self.lent, &mut **shared.store()),
            _ => Ok(()),
        }
    }

    /// Changes a part of the range.
    fn change(&self, store: &mut dyn Store, part: Range<u64>) -> Result<(), StoreError> {
        let (begin, len_bytes) = (self.work.offset_bytes, part.end - part.start);
        match self.work.kind {
            WorkKind::Write => {
                let bytes = self.lent.bytes()?.get((part.start - begin) as usize..(part.end - begin) as usize);
                let bytes = bytes.ok_or_else(|| StoreError::Damaged { what: "the payload of a write".to_owned() })?;
                store.write(part.start, bytes)
            }
            WorkKind::Discard => store.discard(part.start, len_bytes),
            WorkKind::ReserveZeroes => store.reserve_zeroes(part.start, len_bytes),
            WorkKind::WriteZeroes => store.write_zeroes(part.start, len_bytes),
            WorkKind::Nothing | WorkKind::Read => Ok(()),
        }
    }
}
