//! Checks a log against the models.

use std::collections::BTreeMap;

use chronodisk_device::DeviceModel;
use chronodisk_sim::{Completion, Nanos, Request, RequestId, RequestRecord, Status};

use crate::step::{LATEST_ARRIVAL, checked_advance, fits, step_to_completion};

/// Replays the arrivals of `records` in simulation, each device's into its own model, and compares due times and
/// statuses: equal arrivals must give equal completions under any clock.
///
/// `models` are fresh, in the initial state of the run, one per device. A request without a due time in the log was
/// outstanding when the run ended: it must not complete by `end`, the instant to which the run's models were advanced.
/// Without `end`, such a request is not compared.
///
/// # Errors
/// If the log does not fit the devices: an unknown device, a request outside the device, orders that do not count from
/// 0, arrivals that step back or are beyond 18 years, a completion before its arrival.
///
/// # Panics
/// If a model breaks its contract.
pub fn verify(
    models: &mut [Box<dyn DeviceModel>],
    records: &[RequestRecord],
    end: Option<Nanos>,
) -> Result<Verification, VerifyError> {
    let mut verifier = Verifier::new(models, end, usize::MAX);
    records.iter().try_for_each(|record| verifier.add(record))?;
    Ok(verifier.finish())
}

/// Verifies record by record, as [`verify`](verify()) does for a whole log, so that memory grows with the outstanding
/// requests and not with the length of the log.
pub struct Verifier<'a> {
    models: &'a mut [Box<dyn DeviceModel>],
    end: Option<Nanos>,
    outstanding_max: usize,
    checker: Checker,
    /// Records whose requests have not completed in the replay, by order.
    pending: BTreeMap<u64, RequestRecord>,
    completions: Vec<Completion>,
    found: Verification,
}

impl<'a> Verifier<'a> {
    /// Compares with fresh models and the end of the run, as [`verify`](verify()) does. At most `outstanding_max`
    /// requests may be outstanding.
    #[must_use]
    pub fn new(models: &'a mut [Box<dyn DeviceModel>], end: Option<Nanos>, outstanding_max: usize) -> Self {
        let checker = Checker::new(models);
        let (pending, completions) = (BTreeMap::new(), Vec::new());
        Verifier { models, end, outstanding_max, checker, pending, completions, found: Verification::default() }
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// Like [`verify`](verify()), and if too many requests are outstanding.
    ///
    /// # Panics
    /// If a model breaks its contract.
    pub fn add(&mut self, record: &RequestRecord) -> Result<(), VerifyError> {
        self.checker.check(self.models, record)?;
        let device = usize::from(record.device);
        checked_advance(&mut *self.models[device], record.arrival, &mut self.completions);
        self.compare(record.device);
        if self.pending.len() >= self.outstanding_max {
            return Err(VerifyError::Outstanding { index: record.order as usize, most: self.outstanding_max });
        }
        self.pending.insert(record.order, *record);
        self.models[device].submit(request_of(record));
        Ok(())
    }

    /// Lets the outstanding requests complete.
    ///
    /// # Panics
    /// If a model breaks its contract.
    #[must_use]
    pub fn finish(mut self) -> Verification {
        for device in 0..self.models.len() {
            while self.models[device].outstanding() > 0 {
                step_to_completion(&mut *self.models[device], &mut self.completions);
                self.compare(device as u16);
            }
        }
        self.found
    }

    /// Compares a device's completions with the log.
    fn compare(&mut self, device: u16) {
        for completion in self.completions.drain(..) {
            let Some(record) = self.pending.remove(&completion.id.0).filter(|record| record.device == device) else {
                let name = &self.models[usize::from(device)].info().name;
                panic!("model {name}: completed a request that it does not have");
            };
            let logged_due = (record.due != Nanos::MAX).then_some(record.due);
            let status = expected_status(&record, completion.status);
            let same = match (logged_due, self.end) {
                (None, None) => {
                    self.found.not_compared += 1;
                    continue;
                }
                (None, Some(end)) => completion.at > end,
                (Some(due), _) => due == completion.at && record.status == status,
            };
            self.found.compared += 1;
            if same {
                continue;
            }
            self.found.differences += 1;
            let is_first = self.found.first_difference.as_ref().is_none_or(|first| record.order < first.order);
            if is_first {
                self.found.first_difference = Some(Difference {
                    order: record.order,
                    device: record.device,
                    arrival: record.arrival,
                    logged_due,
                    replayed_due: completion.at,
                    logged_status: record.status,
                    replayed_status: status,
                });
            }
        }
    }
}

/// The result of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Requests compared.
    pub compared: u64,
    /// Requests that were outstanding when the run ended, and could not be compared because the instant of that end is
    /// unknown.
    pub not_compared: u64,
    /// Requests whose completions differ.
    pub differences: u64,
    /// The first difference in order of arrival.
    pub first_difference: Option<Difference>,
}

impl Verification {
    /// Returns whether the replay equals the log.
    #[must_use]
    pub fn identical(&self) -> bool {
        self.differences == 0
    }
}

/// A request whose completion in the replay differs from its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Order of arrival.
    pub order: u64,
    /// Device of the run.
    pub device: u16,
    /// Logged due time; `None` if the run ended before.
    pub arrival: Nanos,
    /// Due time in the replay.
    pub logged_due: Option<Nanos>,
    /// Logged status.
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

/// Reason why a log can't be replayed on these devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// A record names a device beyond the models.
    #[error("record {index} is of device {device}, but the run has {devices} device(s)")]
    UnknownDevice {
        /// Index of the record.
        index: usize,
        /// Device of the record.
        device: u16,
        /// Number of models given.
        devices: usize,
    },
    /// The request's range exceeds the device.
    #[error(
        "record {index}: {sectors} sectors at sector {lba} do not fit into the device's {capacity_sectors} sectors"
    )]
    OutOfRange {
        /// Index of the record.
        index: usize,
        /// First sector of the record.
        lba: u64,
        /// Length of the record in sectors.
        sectors: u32,
        /// The device's capacity in sectors.
        capacity_sectors: u64,
    },
    /// Records are missing, repeated or out of order.
    #[error("record {index} has order {order}; expected {index}, because a log has every request in order of arrival")]
    Order {
        /// Index of the record.
        index: usize,
        /// Order in the record.
        order: u64,
    },
    /// An arrival before an earlier one on the same device, or before the start of its model.
    #[error("record {index} arrives at {} ns, before {} ns, where its device already was", .arrival.as_nanos(), .previous.as_nanos())]
    ArrivalStepsBack {
        /// Index of the record.
        index: usize,
        /// Arrival in the record.
        arrival: Nanos,
        /// The arrival before.
        previous: Nanos,
    },
    /// More requests are outstanding at once than the caller allows.
    #[error("record {index} arrives while {most} requests are outstanding; expected fewer")]
    Outstanding {
        /// Index of the record.
        index: usize,
        /// The most that may be outstanding.
        most: usize,
    },
    /// An arrival beyond 18 years, half of the range of a model's finest clock.
    #[error("record {index} arrives after more than 18 years")]
    BeyondTime {
        /// Index of the record.
        index: usize,
    },
    /// A due time or a completion not after the arrival, or a completion without a due time.
    #[error("record {index}: arrival at {} ns, due at {} ns and completion at {} ns are not in order", .arrival.as_nanos(), .due.as_nanos(), .completed.as_nanos())]
    InstantsOutOfOrder {
        /// Index of the record.
        index: usize,
        /// Arrival in the record.
        arrival: Nanos,
        /// Due time in the record.
        due: Nanos,
        /// Completion in the record.
        completed: Nanos,
    },
}

/// A request whose bytes could not be moved is a media error regardless of the model.
fn expected_status(record: &RequestRecord, replayed: Status) -> Status {
    if record.store_failed { Status::MediaError } else { replayed }
}

/// Checks that records fit the models at all, since they may come from a file.
struct Checker {
    /// The last arrival on each device, or the start of its model.
    previous: Vec<Nanos>,
    index: usize,
}

impl Checker {
    fn new(models: &[Box<dyn DeviceModel>]) -> Self {
        Checker { previous: models.iter().map(|model| model.now()).collect(), index: 0 }
    }

    fn check(&mut self, models: &[Box<dyn DeviceModel>], record: &RequestRecord) -> Result<(), VerifyError> {
        let (index, device) = (self.index, usize::from(record.device));
        self.index += 1;
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
        let previous = std::mem::replace(&mut self.previous[device], arrival);
        if arrival < previous {
            return Err(VerifyError::ArrivalStepsBack { index, arrival, previous });
        }
        if arrival > LATEST_ARRIVAL {
            return Err(VerifyError::BeyondTime { index });
        }
        if due <= arrival || completed <= arrival || (due == Nanos::MAX && completed != Nanos::MAX) {
            return Err(VerifyError::InstantsOutOfOrder { index, arrival, due, completed });
        }
        Ok(())
    }
}

/// Checks all records.
pub(crate) fn check(models: &[Box<dyn DeviceModel>], records: &[RequestRecord]) -> Result<(), VerifyError> {
    let mut checker = Checker::new(models);
    records.iter().try_for_each(|record| checker.check(models, record))
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
