//! Replays a block trace on a device model.

use std::ops::ControlFlow;

use chronodisk_device::DeviceInfo;
use chronodisk_engine::ModelPort;
use chronodisk_engine::sim::{
    Dependent, Issue, SimulationError, closed_loop_streaming_at, dependent_loop_at, open_loop_streaming_at,
};
use chronodisk_sim::{ContentsBudget, ContentsLimit, Lba, Nanos, Op, Request, RequestRecord};
use chronodisk_trace::block::dependences;
use serde_json::Value;

use crate::{BlockTrace, SweepError};

/// Memory of an outstanding request in a model and in the engine.
pub(crate) const OUTSTANDING_BYTES: u64 = 640;

/// Arrivals and addresses of a trace's requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOptions {
    /// Arrivals of the requests.
    pub arrivals: TraceArrivals,
    /// Times between arrivals are divided by this.
    pub speed: f64,
    /// Whether requests beyond the end of the device wrap to its beginning; otherwise they are refused.
    pub wraps: bool,
}

/// Arrivals of a trace's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceArrivals {
    /// At their time stamps.
    Open,
    /// A pause after the completion that the same issuer saw last, as in the trace.
    Closed,
    /// In a closed loop, with this number outstanding.
    Depth(u32),
}

impl Default for ReplayOptions {
    fn default() -> Self {
        ReplayOptions { arrivals: TraceArrivals::Open, speed: 1.0, wraps: false }
    }
}

impl ReplayOptions {
    /// The options as they took effect, for the result.
    #[must_use]
    pub fn options(&self) -> [(&'static str, Value); 3] {
        let arrivals = match self.arrivals {
            TraceArrivals::Open => "open".to_owned(),
            TraceArrivals::Closed => "closed".to_owned(),
            TraceArrivals::Depth(depth) => format!("depth={depth}"),
        };
        let beyond = if self.wraps { "wrap" } else { "refuse" };
        [("arrivals", arrivals.into()), ("arrival_speed", self.speed.into()), ("beyond", beyond.into())]
    }
}

/// A trace's requests as the device gets them.
pub struct Replayed {
    trace: BlockTrace,
    how: ReplayOptions,
    capacity_sectors: u64,
    block_sectors: u64,
    /// The first request's device, and the instant at which the replay's time begins.
    first: Option<(u16, Nanos)>,
    wrapped: u64,
    aligned: u64,
    /// Error that ended the trace early.
    failure: Option<SweepError>,
}

impl Replayed {
    /// A replay of a trace on a device.
    #[must_use]
    pub fn new(trace: BlockTrace, info: &DeviceInfo, how: ReplayOptions) -> Self {
        Replayed {
            trace,
            how,
            capacity_sectors: info.capacity_sectors,
            block_sectors: u64::from(info.logical_block_bytes) / chronodisk_sim::SECTOR_BYTES,
            first: None,
            wrapped: 0,
            aligned: 0,
            failure: None,
        }
    }

    /// The next record; its arrival is the one in the replay.
    fn next_record(&mut self) -> Option<RequestRecord> {
        match self.try_next() {
            Ok(record) => record,
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }

    fn try_next(&mut self) -> Result<Option<RequestRecord>, SweepError> {
        let Some(mut record) = self.trace.next_record()? else { return Ok(None) };
        // A run's log has the instants of the device itself, on which the state of its model depends.
        let is_foreign = self.trace.info().format.is_some();
        let begin = if is_foreign { record.arrival } else { Nanos::ZERO };
        let (device, begin) = *self.first.get_or_insert((record.device, begin));
        self.trace.expect_one_volume(device, record.device)?;
        let scaled = |at: Nanos| {
            let since = at.saturating_sub(begin);
            if self.how.speed == 1.0 {
                since
            } else {
                Nanos::from_nanos((since.as_nanos() as f64 / self.how.speed) as u64)
            }
        };
        record.arrival = scaled(record.arrival);
        if record.is_completed() {
            record.completed = scaled(record.completed);
        }
        self.place(&mut record)?;
        Ok(Some(record))
    }

    /// Puts a request on the device, in whole blocks.
    fn place(&mut self, record: &mut RequestRecord) -> Result<(), SweepError> {
        if record.op == Op::Flush {
            return Ok(());
        }
        let (first, end) = (record.lba.0, record.lba.0 + u64::from(record.sectors));
        let (mut aligned, aligned_end) =
            (first / self.block_sectors * self.block_sectors, end.next_multiple_of(self.block_sectors));
        self.aligned += u64::from((aligned, aligned_end) != (first, end));
        let sectors = aligned_end - aligned;
        if aligned_end > self.capacity_sectors {
            if !self.how.wraps || sectors > self.capacity_sectors {
                return Err(SweepError::Usage(format!(
                    "{}: request {}: {sectors} sectors at sector {aligned}; expected them within the {} of the device",
                    self.trace.path().display(),
                    record.order + 1,
                    self.capacity_sectors
                ))
                .help("--beyond wrap puts it at the beginning of the device; --capacity makes the device larger"));
            }
            self.wrapped += 1;
            aligned = (aligned % self.capacity_sectors).min(self.capacity_sectors - sectors);
        }
        (record.lba, record.sectors) = (Lba(aligned), sectors as u32);
        Ok(())
    }

    /// The file that is replayed.
    pub(crate) fn file(&self) -> String {
        self.trace.path().display().to_string()
    }

    /// The error that ended the trace early, if one did.
    pub(crate) fn take_failure(&mut self) -> Option<SweepError> {
        self.failure.take()
    }

    /// Notes for the user on changed requests.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let counts = self.trace.counts();
        let counted = [
            (self.wrapped, "requests beyond the end of the device were wrapped"),
            (self.aligned, "requests were widened to the device's blocks"),
            (counts.widened, "requests were widened to whole sectors"),
            (counts.unordered, "requests arrive before the one that precedes them"),
            (counts.bad, "wrong lines were passed over"),
            (
                counts.unissued,
                "requests of devices without a request queue (dm, md) were left out; --event Q reads those",
            ),
        ];
        counted.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }
}

/// Memory of a request that waits for another one: its record and its result, in vectors that grow.
const DEPENDENT_BYTES: u64 = 512;

/// Lets a trace's requests arrive as asked. The outer error is the trace's, the inner one the simulation's.
pub(crate) fn replay(
    port: &mut ModelPort,
    replayed: &mut Replayed,
    limit: ContentsLimit,
    seen: &mut impl FnMut(&RequestRecord) -> ControlFlow<()>,
) -> Result<Result<(), SimulationError>, SweepError> {
    match replayed.how.arrivals {
        TraceArrivals::Open => {
            let requests = std::iter::from_fn(|| replayed.next_record());
            let requests = requests.map(|record| (record.arrival, request_of(&record)));
            let outstanding_max = (limit.bytes() / OUTSTANDING_BYTES) as usize;
            Ok(open_loop_streaming_at(port, requests, outstanding_max, seen))
        }
        TraceArrivals::Depth(depth) => {
            let requests = std::iter::from_fn(|| replayed.next_record());
            let requests = requests.map(|record| Issue { request: request_of(&record), think: Nanos::ZERO });
            Ok(closed_loop_streaming_at(port, requests, depth, seen))
        }
        TraceArrivals::Closed => {
            let mut records = Vec::new();
            let mut budget = ContentsBudget::new(limit);
            let shown = replayed.trace.path().display().to_string();
            let exceeded = |over| {
                SweepError::Usage(format!("{shown}: {over}"))
                    .help("--arrivals open or depth=N needs less; --memory-limit sets another limit")
            };
            let claimed = replayed.trace.claimed_requests().unwrap_or(0);
            limit.allow(claimed.saturating_mul(DEPENDENT_BYTES)).map_err(exceeded)?;
            while let Some(record) = replayed.next_record() {
                budget.take(DEPENDENT_BYTES).map_err(exceeded)?;
                records.push(record);
            }
            if replayed.failure.is_none() && !records.iter().any(RequestRecord::is_completed) {
                let shown = replayed.trace.path().display();
                return Err(SweepError::Usage(format!(
                    "{shown}: the trace has no completions; --arrivals closed needs them"
                ))
                .help("use --arrivals open, or depth=N"));
            }
            records.sort_by_key(|record| record.arrival);
            let requests: Vec<Dependent> = dependences(&records)
                .into_iter()
                .zip(&records)
                .map(|((after, gap), record)| Dependent { request: request_of(record), after, gap })
                .collect();
            Ok(dependent_loop_at(port, &requests, seen))
        }
    }
}

/// A record as a request.
fn request_of(record: &RequestRecord) -> Request {
    Request {
        fua: record.fua,
        priority: record.priority,
        queue: record.queue,
        issuer: record.issuer,
        ..Request::new(0, record.op, record.lba.0, record.sectors)
    }
}
