//! Run time of a workload with punctual completions.

use chronodisk_device::DeviceModel;
use chronodisk_sim::{EventQueue, Nanos, RequestRecord};

use crate::engine::{DeviceIndex, Engine, Transfer};
use crate::guest::GuestClock;
use crate::step::LATEST_ARRIVAL;
use crate::verify::{VerifyError, check, request_of};

/// Simulates the workload of a log again, as a closed loop with punctual completions.
///
/// The cause of each request is assumed to be the last completion seen before its arrival, on any device. The gap
/// between the two is its think time and is kept. A request before the first completion keeps its instant. Lateness in
/// the log delayed later requests; here it is absent with its consequences, including a different order at the device.
///
/// The cause is a guess: a log does not record the dependences of processes. For a single stream it is exact. For
/// several streams it keeps the workload's pace, but may attach a request to another stream. Read the result as the
/// size of lateness' effect, not as a prediction.
///
/// `models` are fresh, one per device, as for [`verify`](crate::verify()). Requests that did not complete in the log
/// take part, but don't count in the times.
///
/// # Errors
/// If the log can't be replayed on these devices, or its think times lead beyond 18 years.
///
/// # Panics
/// If a model breaks its contract.
pub fn twin(models: Vec<Box<dyn DeviceModel>>, records: &[RequestRecord]) -> Result<Twin, TwinError> {
    check(&models, records)?;
    let causes = causes(records);
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); records.len()];
    let mut arrivals = EventQueue::new();
    for (index, cause) in causes.iter().enumerate() {
        match cause {
            Some(cause) => followers[*cause].push(index),
            None => arrivals.push(records[index].arrival, index),
        }
    }

    let mut engine = Engine::new();
    for model in models {
        engine.attach(model);
    }
    let mut clock = GuestClock::new(engine);
    let mut result = Twin::default();
    let Some(first) = records.first() else { return Ok(result) };
    for record in records.iter().filter(|record| record.is_completed()) {
        result.requests += 1;
        result.logged = result.logged.max(record.completed - first.arrival);
        result.logged_lateness_sum = result.logged_lateness_sum.saturating_add(record.lateness());
    }
    loop {
        let idle = clock.idle(clock.now(), arrivals.next_at());
        let Some(now) = idle.resume_at else { return Ok(result) };
        for due in idle.due {
            let index = due.id.0 as usize;
            if records[index].is_completed() {
                result.punctual = result.punctual.max(now - first.arrival);
            }
            for follower in &followers[index] {
                let think = records[*follower].arrival - records[index].completed;
                let arrival = now.checked_add(think).filter(|arrival| *arrival <= LATEST_ARRIVAL);
                arrivals.push(arrival.ok_or(TwinError::BeyondTime { index: *follower })?, *follower);
            }
        }
        while let Some((_, index)) = arrivals.pop_until(now) {
            clock.kick(now);
            clock.arrive(DeviceIndex(records[index].device), request_of(&records[index]), Transfer::MOVED);
        }
    }
}

/// The result of [`twin`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Twin {
    /// Requests that completed in the log.
    pub requests: u64,
    /// Time from the first arrival to the last completion as logged.
    pub logged: Nanos,
    /// Duration with punctual completions.
    pub punctual: Nanos,
    /// Sum of all lateness in the log.
    pub logged_lateness_sum: Nanos,
}

impl Twin {
    /// The extra time of the workload compared with punctual completions, as a share of the latter: 0.01 is one per
    /// cent. Negative if lateness happened to give a better order.
    #[must_use]
    pub fn stretch(&self) -> f64 {
        if self.punctual == Nanos::ZERO {
            return 0.0;
        }
        (self.logged.as_secs_f64() - self.punctual.as_secs_f64()) / self.punctual.as_secs_f64()
    }
}

/// Reason why a twin could not be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TwinError {
    /// The log does not fit the devices.
    #[error(transparent)]
    Log(#[from] VerifyError),
    /// The sum of think times exceeds the range of time.
    #[error("record {index} would arrive after more than 18 years")]
    BeyondTime {
        /// Index of the record.
        index: usize,
    },
}

/// For each record, the index of the one whose completion was seen last at or before its arrival.
///
/// A completion comes after its own arrival, so causes always point to earlier instants and no
/// request can wait for itself.
fn causes(records: &[RequestRecord]) -> Vec<Option<usize>> {
    let mut by_completion: Vec<usize> = (0..records.len()).filter(|index| records[*index].is_completed()).collect();
    by_completion.sort_by_key(|index| (records[*index].completed, *index));
    let mut by_arrival: Vec<usize> = (0..records.len()).collect();
    by_arrival.sort_by_key(|index| (records[*index].arrival, *index));

    let mut causes = vec![None; records.len()];
    let mut seen = by_completion.into_iter().peekable();
    let mut last = None;
    for index in by_arrival {
        while let Some(completed) = seen.next_if(|completed| records[*completed].completed <= records[index].arrival) {
            last = Some(completed);
        }
        causes[index] = last;
    }
    causes
}
