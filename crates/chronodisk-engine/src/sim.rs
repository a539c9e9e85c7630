//! Models without a clock: from event to event, as fast as the host can.

use std::collections::VecDeque;

use chronodisk_device::DeviceModel;
use chronodisk_sim::{Completion, EventQueue, Nanos, Request, RequestId, RequestRecord};

use crate::log::RequestLog;
use crate::step::{checked_advance, checked_step, fits};

/// A request of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// What to do; the id is chosen by the loop.
    pub request: Request,
    /// Pause between the completion that makes room for this request and its arrival.
    pub think: Nanos,
}

/// Why a simulation could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// Nothing would ever arrive.
    #[error("a closed loop needs a depth of at least 1")]
    NoDepth,
    /// A request does not lie inside the device.
    #[error(
        "request {order} asks for {sectors} sectors at sector {lba}, but the device has {capacity_sectors} sectors"
    )]
    OutOfRange {
        /// Order of the request, counted from 0.
        order: u64,
        /// Its first sector.
        lba: u64,
        /// Its length in sectors.
        sectors: u32,
        /// The device's capacity in sectors.
        capacity_sectors: u64,
    },
    /// A request's instant lies beyond 584 years.
    #[error("request {order} arrives beyond the end of time (584 years)")]
    BeyondTime {
        /// Order of the request, counted from 0.
        order: u64,
    },
}

/// Keeps `depth` requests outstanding until `requests` ends and all have completed; returns their
/// log in order of arrival.
///
/// The first `depth` requests begin at the model's present instant; each completion makes room
/// for the next request, which arrives after its think time. Every completion is seen when it is
/// due.
///
/// # Errors
/// On a depth of zero, and on a request that leaves the device.
///
/// # Panics
/// If the model breaks its contract.
pub fn closed_loop(
    model: &mut dyn DeviceModel,
    requests: impl IntoIterator<Item = Issue>,
    depth: u32,
) -> Result<Vec<RequestRecord>, SimulationError> {
    if depth == 0 {
        return Err(SimulationError::NoDepth);
    }
    let mut requests = requests.into_iter();
    let mut arrivals = Arrivals::default();
    let mut log = RequestLog::with_capacity(requests.size_hint().0.min(CAPACITY_HINT_MAX));
    let mut completions = Vec::with_capacity(depth as usize);
    let start = model.now();
    for issue in requests.by_ref().take(depth as usize) {
        arrivals.push(start, issue, log.records().len())?;
    }
    loop {
        while let Some(request) = arrivals.pop(model.now()) {
            submit(model, &mut log, request)?;
        }
        match arrivals.next_at() {
            None if model.outstanding() == 0 => return Ok(log.into_records()),
            None => checked_step(model, Nanos::MAX, &mut completions),
            Some(next) => checked_step(model, next, &mut completions),
        }
        let now = model.now();
        // What still happens at this instant happens before anything arrives at it.
        checked_advance(model, now, &mut completions);
        assert_completes(model, &completions);
        for completion in completions.drain(..) {
            note_completion(model, &mut log, completion);
            if let Some(issue) = requests.next() {
                arrivals.push(now, issue, log.records().len())?;
            }
        }
    }
}

/// Submits each request at its instant and runs until all have completed; returns their log in
/// order of arrival. An instant before that of its predecessor counts as the predecessor's.
///
/// # Errors
/// On a request that leaves the device.
///
/// # Panics
/// If the model breaks its contract.
pub fn open_loop(
    model: &mut dyn DeviceModel,
    requests: impl IntoIterator<Item = (Nanos, Request)>,
) -> Result<Vec<RequestRecord>, SimulationError> {
    let mut log = RequestLog::new();
    let mut completions = Vec::new();
    for (at, request) in requests {
        let at = at.max(model.now());
        checked_advance(model, at, &mut completions);
        for completion in completions.drain(..) {
            note_completion(model, &mut log, completion);
        }
        submit(model, &mut log, request)?;
    }
    while model.outstanding() > 0 {
        checked_step(model, Nanos::MAX, &mut completions);
        assert_completes(model, &completions);
        for completion in completions.drain(..) {
            note_completion(model, &mut log, completion);
        }
    }
    Ok(log.into_records())
}

/// Room reserved at the start at most, because a size hint is only a hint.
const CAPACITY_HINT_MAX: usize = 1 << 20;

/// Arrivals ahead; those of the present instant, which are all of them without think time, stay
/// out of the heap.
#[derive(Default)]
struct Arrivals {
    now: VecDeque<(Nanos, Request)>,
    later: EventQueue<Request>,
}

impl Arrivals {
    fn push(&mut self, now: Nanos, issue: Issue, order: usize) -> Result<(), SimulationError> {
        let at = now.checked_add(issue.think).ok_or(SimulationError::BeyondTime { order: order as u64 })?;
        if at == now {
            self.now.push_back((at, issue.request));
        } else {
            self.later.push(at, issue.request);
        }
        Ok(())
    }

    fn next_at(&self) -> Option<Nanos> {
        let now = self.now.front().map(|(at, _)| *at);
        [now, self.later.next_at()].into_iter().flatten().min()
    }

    /// What was planned earlier for an instant arrives before what was added there without pause.
    fn pop(&mut self, now: Nanos) -> Option<Request> {
        if let Some((_, request)) = self.later.pop_until(now) {
            return Some(request);
        }
        self.now.pop_front().map(|(_, request)| request)
    }
}

fn submit(model: &mut dyn DeviceModel, log: &mut RequestLog, mut request: Request) -> Result<(), SimulationError> {
    let order = log.records().len() as u64;
    let capacity_sectors = model.info().capacity_sectors;
    if !fits(capacity_sectors, request.lba.0, request.sectors) {
        let (lba, sectors) = (request.lba.0, request.sectors);
        return Err(SimulationError::OutOfRange { order, lba, sectors, capacity_sectors });
    }
    request.id = RequestId(order);
    log.arrived(0, model.now(), &request);
    model.submit(request);
    Ok(())
}

/// Panics if a model went to the end of time without completing anything.
fn assert_completes(model: &dyn DeviceModel, completions: &[Completion]) {
    assert!(
        !completions.is_empty() || model.now() < Nanos::MAX,
        "model {}: {} requests never complete",
        model.info().name,
        model.outstanding()
    );
}

fn note_completion(model: &dyn DeviceModel, log: &mut RequestLog, completion: Completion) {
    let known = (completion.id.0 as usize) < log.records().len();
    assert!(known, "model {}: completed request {}, which it was never given", model.info().name, completion.id.0);
    let record = log.record_mut(completion.id.0);
    assert!(
        !record.is_completed() && completion.at > record.arrival,
        "model {}: request {} that arrived at {} completed at {} {}",
        model.info().name,
        completion.id.0,
        record.arrival,
        completion.at,
        if record.is_completed() { "once more" } else { "and not later" }
    );
    record.due = completion.at;
    record.completed = completion.at;
    record.status = completion.status;
}
