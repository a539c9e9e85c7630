//! Records a served device's requests during its service.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronodisk_front::server::Recorder;
use chronodisk_report::{LogWriter, ReportError, StreamedSummary};
use chronodisk_sim::{Nanos, Op, RequestRecord, SECTOR_BYTES, Status};

use crate::failure::Failure;
use crate::notes::note;

/// Log and figures, shared with their readers. Its memory does not grow with the requests.
#[derive(Clone)]
pub struct Gathered(Arc<Mutex<State>>);

/// The log and the figures until now.
pub struct State {
    log: Option<LogWriter>,
    /// Reason why the log ended early.
    failure: Option<ReportError>,
    /// Figures of all requests.
    pub summary: StreamedSummary,
    /// Their counters.
    pub counters: Counters,
    /// Lateness of the requests since the last look, at most [`RECENT_MAX`] of them.
    recent: Vec<Nanos>,
    recent_requests: u64,
    recent_bytes: u64,
}

/// Number of the latest requests whose median is shown.
const RECENT_MAX: usize = 1 << 16;

/// Monotonic counters, for readers that poll.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Requests and their bytes, by operation.
    pub by_op: [(u64, u64); Op::ALL.len()],
    /// Requests that ended in an error.
    pub failed: u64,
    /// Requests without a seen completion.
    pub unfinished: u64,
    /// Service times.
    pub service_time: Buckets,
    /// Lateness.
    pub lateness: Buckets,
}

/// A histogram with fixed bounds, as a scraper wants it.
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    /// Values up to each of [`BOUNDS_US`] and above the bound before; the last is for all beyond.
    counts: [u64; BOUNDS_US.len() + 1],
    sum_ns: u128,
}

/// Upper bounds in microseconds: from the delay of a spinning thread to the worst case of a disk.
pub const BOUNDS_US: [f64; 19] =
    [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6];

impl Buckets {
    /// Adds a value.
    pub fn add(&mut self, value: Nanos) {
        let micros = value.as_micros_f64();
        self.counts[BOUNDS_US.partition_point(|bound| *bound < micros)] += 1;
        self.sum_ns += u128::from(value.as_nanos());
    }

    /// For each bound, the number of values up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut count = 0;
        BOUNDS_US.iter().zip(&self.counts).map(move |(bound, here)| {
            count += here;
            (*bound, count)
        })
    }

    /// Their number.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }
}

impl Gathered {
    /// Writes the log to `log`.
    pub fn new(log: &Path) -> Result<Self, Failure> {
        let log = LogWriter::create(log).map_err(Failure::host)?;
        Ok(Gathered(Arc::new(Mutex::new(State {
            log: Some(log),
            failure: None,
            summary: StreamedSummary::default(),
            counters: Counters::default(),
            recent: Vec::new(),
            recent_requests: 0,
            recent_bytes: 0,
        }))))
    }

    /// The state, locked.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A recorder for the server.
    pub fn recorder(&self) -> Box<dyn Recorder> {
        Box::new(self.clone())
    }

    /// Finishes the log, which is complete.
    pub fn finish_log(&self) -> Result<(), Failure> {
        let mut state = self.state();
        if let Some(failure) = state.failure.take() {
            return Err(Failure::host(failure));
        }
        match state.log.take() {
            Some(log) => log.finish().map_err(Failure::host),
            None => Ok(()),
        }
    }

    /// Requests, bytes and median lateness since the last look.
    pub fn recent(&self) -> (u64, u64, Option<Nanos>) {
        let mut state = self.state();
        let mut lateness = std::mem::take(&mut state.recent);
        let middle = lateness.len() / 2;
        let median = (!lateness.is_empty()).then(|| *lateness.select_nth_unstable(middle).1);
        (std::mem::take(&mut state.recent_requests), std::mem::take(&mut state.recent_bytes), median)
    }
}

impl Recorder for Gathered {
    fn record(&mut self, records: &[RequestRecord]) {
        let mut state = self.state();
        let state = &mut *state;
        for record in records {
            state.summary.add(record);
            state.counters.add(record);
            state.recent_requests += 1;
            state.recent_bytes += u64::from(record.sectors) * SECTOR_BYTES;
            if record.is_completed() && state.recent.len() < RECENT_MAX {
                state.recent.push(record.lateness());
            }
        }
        if let Some(log) = &mut state.log
            && let Err(error) = log.append(records)
        {
            // The error does not concern the clients, so serving continues.
            note(format_args!("warning: the request log can't be written: {error}"));
            state.failure = Some(error);
            state.log = None;
        }
    }
}

impl Counters {
    fn add(&mut self, record: &RequestRecord) {
        let (requests, bytes) = &mut self.by_op[record.op as usize];
        *requests += 1;
        *bytes += u64::from(record.sectors) * SECTOR_BYTES;
        if !record.is_completed() {
            self.unfinished += 1;
            return;
        }
        self.failed += u64::from(record.status != Status::Ok);
        self.service_time.add(record.service_time());
        self.lateness.add(record.lateness());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_is_not_above_their_bound() {
        let mut buckets = Buckets::default();
        for nanos in [0, 200, 201, 1_000_000, 2_000_000_000] {
            buckets.add(Nanos::from_nanos(nanos));
        }
        let up_to = |bound: f64| buckets.cumulative().find(|(other, _)| *other == bound).unwrap().1;
        assert_eq!((up_to(0.2), up_to(0.5), up_to(500.0), up_to(1e3), up_to(1e6)), (2, 3, 3, 4, 4));
        assert_eq!(buckets.count(), 5);
        assert!((buckets.sum_seconds() - 2.001_000_401).abs() < 1e-9);
    }
}
