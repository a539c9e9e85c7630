//! The log of a run's requests.

use chronodisk_sim::{Nanos, Request, RequestRecord, Status};

/// Every request of a run in order of arrival, whether it completed or not.
///
/// A record has a fixed size and owns nothing, so the log's memory is bounded by the number of
/// requests. A request that the run's end cut off keeps [`Nanos::MAX`] as its completion: it
/// belongs in the log, because it may have held up others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestLog {
    records: Vec<RequestRecord>,
}

impl RequestLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        RequestLog::default()
    }

    /// The records in order of arrival; a record's `order` is its index.
    #[must_use]
    pub fn records(&self) -> &[RequestRecord] {
        &self.records
    }

    /// The records, without a copy.
    #[must_use]
    pub fn into_records(self) -> Vec<RequestRecord> {
        self.records
    }

    /// Appends an arrival and tells its order.
    pub(crate) fn arrived(&mut self, device: u16, arrival: Nanos, request: &Request) -> u64 {
        let order = self.records.len() as u64;
        self.records.push(new_record(device, order, arrival, request));
        order
    }

    pub(crate) fn record_mut(&mut self, order: u64) -> &mut RequestRecord {
        &mut self.records[order as usize]
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
