//! The record of a request.

use crate::{Lba, Nanos, Op, Priority, Status};

/// One line of a run's request log.
///
/// All instants are in the run's own clock: the guest's, the host's or the simulation's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// Device of the run, counted from 0.
    pub device: u16,
    /// Global order of arrival over all devices, counted from 0.
    pub order: u64,
    /// The operation.
    pub op: Op,
    /// Force unit access.
    pub fua: bool,
    /// Urgency, which a replay must repeat.
    pub priority: Priority,
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
    /// Instant at which the model completed it; [`Nanos::MAX`] if the run ended before.
    pub due: Nanos,
    /// Instant at which the completion was seen; [`Nanos::MAX`] if the run ended before. Under the host's clock it may
    /// lie slightly before [`due`](Self::due), because sending begins early by its usual duration.
    pub completed: Nanos,
    /// Status, as reported to the host.
    pub status: Status,
    /// Whether the bytes could not be moved: [`status`](Self::status) is then a media error, instead of the model's
    /// status.
    pub store_failed: bool,
    /// Whether the host took the CPU away while the completion was due, which explains its lateness. Detected under the
    /// host's clock only.
    pub stolen: bool,
    /// Host time that the model's calls took for this request, in nanoseconds of the host's clock.
    pub model_time: Nanos,
    /// Host time that moving the bytes took, in nanoseconds of the host's clock.
    pub store_time: Nanos,
}

impl RequestRecord {
    /// Whether the host saw it complete before the run ended.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.completed != Nanos::MAX
    }

    /// Model completion minus arrival; meaningless unless [`is_completed`](Self::is_completed).
    #[must_use]
    pub fn service_time(&self) -> Nanos {
        self.due - self.arrival
    }

    /// Actual completion minus due, zero for one that was early. Meaningless unless
    /// [`is_completed`](Self::is_completed).
    #[must_use]
    pub fn lateness(&self) -> Nanos {
        self.completed.saturating_sub(self.due)
    }

    /// Due minus actual completion, zero for one that was late. Meaningless unless
    /// [`is_completed`](Self::is_completed).
    #[must_use]
    pub fn earliness(&self) -> Nanos {
        self.due.saturating_sub(self.completed)
    }
}
