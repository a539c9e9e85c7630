//! What is remembered of each request.

use crate::{Lba, Nanos, Op, Status};

/// One line of a run's request log.
///
/// All instants are in the run's own clock: the guest's, the host's or the simulation's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// Device of the run, counted from 0.
    pub device: u16,
    /// Global order of arrival over all devices, counted from 0.
    pub order: u64,
    /// What was asked.
    pub op: Op,
    /// Force unit access.
    pub fua: bool,
    /// First sector.
    pub lba: Lba,
    /// Length in sectors of 512 bytes.
    pub sectors: u32,
    /// Hardware queue.
    pub queue: u16,
    /// Process, stream or client; 0 where unknown.
    pub issuer: u32,
    /// Instant at which the device saw the request (the effective arrival).
    pub arrival: Nanos,
    /// Instant at which the model completed it.
    pub due: Nanos,
    /// Instant at which the completion was seen.
    pub completed: Nanos,
    /// How it ended.
    pub status: Status,
    /// Host time that the model's calls took for this request, in nanoseconds of the host's clock.
    pub model_time: Nanos,
    /// Host time that moving the bytes took, in nanoseconds of the host's clock.
    pub store_time: Nanos,
}

impl RequestRecord {
    /// Model completion minus arrival.
    #[must_use]
    pub fn service_time(&self) -> Nanos {
        self.due - self.arrival
    }

    /// Actual completion minus due; a completion is never early.
    #[must_use]
    pub fn lateness(&self) -> Nanos {
        self.completed.saturating_sub(self.due)
    }
}
