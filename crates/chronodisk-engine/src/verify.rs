//! Checks a log against the models.

use chronodisk_device::DeviceModel;
use chronodisk_sim::{Completion, Nanos, Request, RequestId, RequestRecord, Status};

use crate::step::{LATEST_ARRIVAL, checked_advance, fits, step_to_completion};

/// Replays the arrivals of `records` in simulation, each device's into its own model, and compares due times and
/// statuses: equal arrivals must give equal completions under any clock.
///
/// `models` are fresh, in the initial state of the run, one per device. A request without a due time in the log (the
/// run ended before) must not complete by `end`, the instant to which the run's models were advanced. Without `end` it
/// is not compared.
///
/// # Errors
/// If the log can't be of these devices: an unknown device, a request outside the device, an order that is not counted
/// from 0, arrivals that step back or are beyond 18 years, a completion before its arrival.
///
/// # Panics
/// If a model breaks its contract.
pub fn verify(
    models: &mut [Box<dyn DeviceModel>],
    records: &[RequestRecord],
    end: Option<Nanos>,
) -> Result<Verification, VerifyError> {
    check(models, records)?;
    let replayed = replay(models, records);
    let mut verification = Verification::default();
    for (record, replayed) in records.iter().zip(&replayed) {
        let logged_due = (record.due != Nanos::MAX).then_some(record.due);
        let same = match (logged_due, end) {
            (None, None) => {
                verification.not_compared += 1;
                continue;
            }
            (None, Some(end)) => replayed.at > end,
            (Some(due), _) => due == replayed.at && record.status == expected_status(record, replayed),
        };
        verification.compared += 1;
        if same {
            continue;
        }
        verification.differences += 1;
        verification.first_difference.get_or_insert(Difference {
            order: record.order,
            device: record.device,
            arrival: record.arrival,
            logged_due,
            replayed_due: replayed.at,
            logged_status: record.status,
            replayed_status: expected_status(record, replayed),
        });
    }
    Ok(verification)
}

/// The result of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Requests compared.
    pub compared: u64,
    /// Requests that had not completed when the run ended, and could not be compared for want of
    /// the instant of that end.
    pub not_compared: u64,
    /// Requests that came out differently.
    pub differences: u64,
    /// The first of them in order of arrival.
    pub first_difference: Option<Difference>,
}

impl Verification {
    /// Returns whether the replay equals the log.
    #[must_use]
    pub fn identical(&self) -> bool {
        self.differences == 0
    }
}

/// A request that a replay completes otherwise than its log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Order of arrival.
    pub order: u64,
    /// Device of the run.
    pub device: u16,
    /// Instant of arrival.
    pub arrival: Nanos,
    /// Due as logged; `None` if the run ended before.
    pub logged_due: Option<Nanos>,
    /// Due in the replay.
    pub replayed_due: Nanos,
    /// Status as logged.
    pub logged_status: Status,
    /// Status in the replay.
    pub replayed_status: Status,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "request {} of device {}, arrived at {} ns: the log says ",
            self.order,
            self.device,
            self.arrival.as_nanos()
        )?;
        match self.logged_due {
            Some(due) => write!(f, "due at {} ns, {}", due.as_nanos(), self.logged_status.name())?,
            None => f.write_str("not due before the end")?,
        }
        write!(f, "; the replay says due at {} ns, {}", self.replayed_due.as_nanos(), self.replayed_status.name())
    }
}

/// Why a log can't be replayed on these devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// There are fewer models.
    #[error("record {index} is of device {device}, but the run has {devices} device(s)")]
    UnknownDevice {
        /// Index of the record.
        index: usize,
        /// Its device.
        device: u16,
        /// Number of models given.
        devices: usize,
    },
    /// The range does not lie inside the device.
    #[error(
        "record {index}: {sectors} sectors at sector {lba} do not fit into the device's {capacity_sectors} sectors"
    )]
    OutOfRange {
        /// Index of the record.
        index: usize,
        /// Its first sector.
        lba: u64,
        /// Its length in sectors.
        sectors: u32,
        /// The device's capacity in sectors.
        capacity_sectors: u64,
    },
    /// Records are missing, repeated or out of order.
    #[error("record {index} has order {order}; expected {index}, because a log has every request in order of arrival")]
    Order {
        /// Index of the record.
        index: usize,
        /// Its order.
        order: u64,
    },
    /// An arrival on a device before an earlier one on the same device, or before the model's start.
    #[error("record {index} arrives at {} ns, before {} ns, where its device already was", .arrival.as_nanos(), .previous.as_nanos())]
    ArrivalStepsBack {
        /// Index of the record.
        index: usize,
        /// Its arrival.
        arrival: Nanos,
        /// The arrival before.
        previous: Nanos,
    },
    /// An arrival beyond 18 years, half the range of the finest clock of a model.
    #[error("record {index} arrives after more than 18 years")]
    BeyondTime {
        /// Index of the record.
        index: usize,
    },
    /// A due time or a completion at or before the arrival, or a completion without a due time.
    #[error("record {index}: arrival at {} ns, due at {} ns and completion at {} ns are not in order", .arrival.as_nanos(), .due.as_nanos(), .completed.as_nanos())]
    InstantsOutOfOrder {
        /// Index of the record.
        index: usize,
        /// Its arrival.
        arrival: Nanos,
        /// Its due time.
        due: Nanos,
        /// Its completion.
        completed: Nanos,
    },
}

/// Result of a request's replay.
#[derive(Clone, Copy)]
struct Replayed {
    at: Nanos,
    status: Status,
}

/// A failure of the store makes any request a media error.
fn expected_status(record: &RequestRecord, replayed: &Replayed) -> Status {
    if record.store_failed { Status::MediaError } else { replayed.status }
}

/// Checks that the records can be replayed on the models at all; they may come from a file.
pub(crate) fn check(models: &[Box<dyn DeviceModel>], records: &[RequestRecord]) -> Result<(), VerifyError> {
    let mut previous: Vec<Nanos> = models.iter().map(|model| model.now()).collect();
    for (index, record) in records.iter().enumerate() {
        let device = usize::from(record.device);
        let Some(model) = models.get(device) else {
            return Err(VerifyError::UnknownDevice { index, device: record.device, devices: models.len() });
        };
        let capacity_sectors = model.info().capacity_sectors;
        if !fits(capacity_sectors, record.lba.0, record.sectors) {
            let (lba, sectors) = (record.lba.0, record.sectors);
            return Err(VerifyError::OutOfRange { index, lba, sectors, capacity_sectors });
        }
        if record.order != index as u64 {
            return Err(VerifyError::Order { index, order: record.order });
        }
        let (arrival, due, completed) = (record.arrival, record.due, record.completed);
        if arrival < previous[device] {
            return Err(VerifyError::ArrivalStepsBack { index, arrival, previous: previous[device] });
        }
        if arrival > LATEST_ARRIVAL {
            return Err(VerifyError::BeyondTime { index });
        }
        previous[device] = arrival;
        if due <= arrival || completed <= arrival || (due == Nanos::MAX && completed != Nanos::MAX) {
            return Err(VerifyError::InstantsOutOfOrder { index, arrival, due, completed });
        }
    }
    Ok(())
}

/// The request of a record; its order is its id.
pub(crate) fn request_of(record: &RequestRecord) -> Request {
    Request {
        id: RequestId(record.order),
        op: record.op,
        lba: record.lba,
        sectors: record.sectors,
        fua: record.fua,
        priority: record.priority,
        queue: record.queue,
        issuer: record.issuer,
    }
}

fn replay(models: &mut [Box<dyn DeviceModel>], records: &[RequestRecord]) -> Vec<Replayed> {
    let mut replayed = vec![Replayed { at: Nanos::MAX, status: Status::Ok }; records.len()];
    let mut completions = Vec::new();
    let mut note = |model: &dyn DeviceModel, device: u16, completions: &mut Vec<Completion>| {
        for completion in completions.drain(..) {
            let of_this_device = records.get(completion.id.0 as usize).is_some_and(|record| record.device == device);
            assert!(of_this_device, "model {}: completed a request that it does not have", model.info().name);
            replayed[completion.id.0 as usize] = Replayed { at: completion.at, status: completion.status };
        }
    };
    for record in records {
        let model = &mut *models[usize::from(record.device)];
        checked_advance(model, record.arrival, &mut completions);
        note(model, record.device, &mut completions);
        model.submit(request_of(record));
    }
    for (device, model) in models.iter_mut().enumerate() {
        while model.outstanding() > 0 {
            step_to_completion(&mut **model, &mut completions);
            note(&**model, device as u16, &mut completions);
        }
    }
    replayed
}
