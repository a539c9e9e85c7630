//! The log of a run's requests.

use std::collections::VecDeque;

use chronodisk_sim::{Nanos, Request, RequestRecord, Status};

/// Every request of a run in order of arrival, whether it completed or not.
///
/// A record has a fixed size and owns nothing, so the number of requests bounds the log's memory. A server without end
/// takes the oldest finished records out ([`RealClock::take_settled`](crate::RealClock::take_settled)). A request that
/// the run's end cut off keeps [`Nanos::MAX`] as its completion. It stays in the log, because it may have delayed
/// others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestLog {
    /// Contiguous unless records were taken out.
    records: VecDeque<RequestRecord>,
    /// Order of the first of them.
    first_order: u64,
}

impl RequestLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        RequestLog::default()
    }

    /// The records in order of arrival; a record's `order` is its index.
    ///
    /// # Panics
    /// If some were taken out.
    #[must_use]
    pub fn records(&self) -> &[RequestRecord] {
        assert!(self.first_order == 0, "the oldest {} records were taken out", self.first_order);
        self.records.as_slices().0
    }

    /// The records that were not taken out, without a copy.
    #[must_use]
    pub fn into_records(self) -> Vec<RequestRecord> {
        self.records.into()
    }

    /// Number of records that were not taken out.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Appends an arrival and tells its order.
    pub(crate) fn arrived(&mut self, device: u16, arrival: Nanos, request: &Request) -> u64 {
        let order = self.first_order + self.records.len() as u64;
        self.records.push_back(new_record(device, order, arrival, request));
        order
    }

    /// A record by its order; `None` once it was taken out.
    pub(crate) fn get_mut(&mut self, order: u64) -> Option<&mut RequestRecord> {
        let index = order.checked_sub(self.first_order)?;
        self.records.get_mut(index as usize)
    }

    pub(crate) fn record_mut(&mut self, order: u64) -> &mut RequestRecord {
        self.get_mut(order).expect("the record of a request in flight stays in the log")
    }

    pub(crate) fn front(&self) -> Option<&RequestRecord> {
        self.records.front()
    }

    /// Takes the oldest record out.
    pub(crate) fn pop_front(&mut self) -> Option<RequestRecord> {
        let record = self.records.pop_front()?;
        self.first_order += 1;
        Some(record)
    }
}

/// The record of a request that has just arrived.
pub(crate) fn new_record(device: u16, order: u64, arrival: Nanos, request: &Request) -> RequestRecord {
    RequestRecord {
        device,
        order,
        op: request.op,
        fua: request.fua,
        priority: request.priority,
        lba: request.lba,
        sectors: request.sectors,
        queue: request.queue,
        issuer: request.issuer,
        arrival,
        due: Nanos::MAX,
        completed: Nanos::MAX,
        status: Status::Ok,
        store_failed: false,
        stolen: false,
        model_time: Nanos::ZERO,
        store_time: Nanos::ZERO,
    }
}
