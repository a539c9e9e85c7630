//! Models without a clock: from event to event, as fast as the host can.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use chronodisk_device::{DeviceInfo, DeviceModel};
use chronodisk_sim::{Completion, EventQueue, Nanos, Op, Request, RequestId, RequestRecord};

use crate::fault::ModelFault;
use crate::log::new_record;
use crate::port::{ModelPort, Port};
use crate::step::{LATEST_ARRIVAL, assert_later, fits};

mod issuers;

pub use issuers::{Issuer, issuers_loop_at};

/// A request of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The request. The loop replaces its id.
    pub request: Request,
    /// Pause between the completion that makes room for this request and its arrival.
    pub think: Nanos,
}

/// Reason for the end of a simulation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// Without depth, no request would ever arrive.
    #[error("a closed loop needs a depth of at least 1")]
    NoDepth,
    /// A request does not lie inside the device.
    #[error(
        "request {order} asks for {sectors} sectors at sector {lba}, but the device has {capacity_sectors} sectors"
    )]
    OutOfRange {
        /// Order of the request, counted from 0.
        order: u64,
        /// First sector of the request.
        lba: u64,
        /// Length of the request in sectors.
        sectors: u32,
        /// The device's capacity in sectors.
        capacity_sectors: u64,
    },
    /// A zone request on a device without zones.
    #[error("request {order} is a {op}, but the device has no zones")]
    NoZones {
        /// Order of the request, counted from 0.
        order: u64,
        /// The request's operation.
        op: Op,
    },
    /// An arrival beyond 18 years, half the range of the finest clock of a model.
    #[error("request {order} arrives after more than 18 years")]
    BeyondTime {
        /// Order of the request, counted from 0.
        order: u64,
    },
    /// More requests are outstanding at once than the caller allows.
    #[error("request {order} arrives while {most} requests are outstanding; expected fewer")]
    Outstanding {
        /// Order of the request, counted from 0.
        order: u64,
        /// The most that may be outstanding.
        most: usize,
    },
    /// The model is elsewhere, and was lost.
    #[error(transparent)]
    Model(#[from] ModelFault),
}

/// Keeps `depth` requests outstanding until `requests` ends and all have completed; returns their
/// log in order of arrival.
///
/// The first `depth` requests begin at the model's present instant; each completion makes room
/// for the next request, which arrives after its think time. Every completion is seen when it is
/// due.
///
/// # Errors
/// On a depth of zero, and on a request that leaves the device or time.
///
/// # Panics
/// If the model breaks its contract.
pub fn closed_loop(
    model: &mut dyn DeviceModel,
    requests: impl IntoIterator<Item = Issue>,
    depth: u32,
) -> Result<Vec<RequestRecord>, SimulationError> {
    let requests = requests.into_iter();
    let mut records = Vec::with_capacity(requests.size_hint().0.min(CAPACITY_HINT_MAX));
    closed_loop_streaming(model, requests, depth, |record| {
        records.push(*record);
        ControlFlow::Continue(())
    })?;
    Ok(records)
}

/// Like [`closed_loop`], but hands each record on once it and all earlier ones have completed, in order of arrival.
/// Memory so depends on the outstanding requests and not on the length of the run. After `seen` breaks, no further
/// request is taken, and the taken ones complete.
///
/// # Errors
/// Like [`closed_loop`].
///
/// # Panics
/// Like [`closed_loop`].
pub fn closed_loop_streaming(
    model: &mut dyn DeviceModel,
    requests: impl IntoIterator<Item = Issue>,
    depth: u32,
    seen: impl FnMut(&RequestRecord) -> ControlFlow<()>,
) -> Result<(), SimulationError> {
    run_closed_loop(Port::Local(model), requests, depth, seen)
}

/// Like [`closed_loop_streaming`], with a local or a remote model.
///
/// # Errors
/// Like [`closed_loop`], and if the model is lost.
///
/// # Panics
/// Like [`closed_loop`], for a local model.
pub fn closed_loop_streaming_at(
    port: &mut ModelPort,
    requests: impl IntoIterator<Item = Issue>,
    depth: u32,
    seen: impl FnMut(&RequestRecord) -> ControlFlow<()>,
) -> Result<(), SimulationError> {
    run_closed_loop(port.lend(), requests, depth, seen)
}

fn run_closed_loop(
    mut model: Port<'_>,
    requests: impl IntoIterator<Item = Issue>,
    depth: u32,
    mut seen: impl FnMut(&RequestRecord) -> ControlFlow<()>,
) -> Result<(), SimulationError> {
    if depth == 0 {
        return Err(SimulationError::NoDepth);
    }
    let mut requests = requests.into_iter().fuse();
    let mut window = Window::default();
    let mut arrivals = Arrivals::default();
    let mut completions = Vec::with_capacity(depth as usize);
    let mut room = depth;
    let mut stopped = false;
    loop {
        let now = model.now();
        while room > 0
            && !stopped
            && let Some(issue) = requests.next()
        {
            room -= 1;
            arrivals.push(now, issue, window.next_order())?;
        }
        while let Some(request) = arrivals.pop(now) {
            submit(&mut model, &mut window, request)?;
        }
        match arrivals.next_at() {
            None if model.outstanding() == 0 => return Ok(()),
            None => model.step_to_completion(&mut completions)?,
            // Events at an instant precede arrivals at it.
            Some(next) => model.step_whole_instant(next, &mut completions)?,
        }
        for completion in completions.drain(..) {
            window.complete(model.info(), completion);
            room += 1;
        }
        stopped |= window.hand_on(&mut seen).is_break();
    }
}

/// Submits each request at its instant and runs until all have completed. Returns their log in order of arrival. A
/// request with an instant before its predecessor's arrives with the predecessor.
///
/// # Errors
/// On a request beyond the device's end or beyond the range of time.
///
/// # Panics
/// If the model breaks its contract.
pub fn open_loop(
    model: &mut dyn DeviceModel,
    requests: impl IntoIterator<Item = (Nanos, Request)>,
) -> Result<Vec<RequestRecord>, SimulationError> {
    let mut records = Vec::new();
    run_open_loop(Port::Local(model), requests, usize::MAX, |record| {
        records.push(*record);
        ControlFlow::Continue(())
    })?;
    Ok(records)
}

/// Like [`open_loop`], but with a model that may be remote. It passes each record on as [`closed_loop_streaming`] does.
/// At most `outstanding_max` requests may be outstanding, which bounds the memory.
///
/// # Errors
/// Like [`open_loop`], if the model is lost, and if too many requests are outstanding.
///
/// # Panics
/// Like [`open_loop`], for a local model.
pub fn open_loop_streaming_at(
    port: &mut ModelPort,
    requests: impl IntoIterator<Item = (Nanos, Request)>,
    outstanding_max: usize,
    seen: impl FnMut(&RequestRecord) -> ControlFlow<()>,
) -> Result<(), SimulationError> {
    run_open_loop(port.lend(), requests, outstanding_max, seen)
}

fn run_open_loop(
    mut model: Port<'_>,
    requests: impl IntoIterator<Item = (Nanos, Request)>,
    outstanding_max: usize,
    mut seen: impl FnMut(&RequestRecord) -> ControlFlow<()>,
) -> Result<(), SimulationError> {
    let mut window = Window::default();
    let mut completions = Vec::new();
    for (at, request) in requests {
        let at = at.max(model.now());
        if at > LATEST_ARRIVAL {
            return Err(SimulationError::BeyondTime { order: window.next_order() });
        }
        model.advance(at, &mut completions)?;
        for completion in completions.drain(..) {
            window.complete(model.info(), completion);
        }
        if window.records.len() >= outstanding_max {
            return Err(SimulationError::Outstanding { order: window.next_order(), most: outstanding_max });
        }
        submit(&mut model, &mut window, request)?;
        if window.hand_on(&mut seen).is_break() {
            break;
        }
    }
    while model.outstanding() > 0 {
        model.step_to_completion(&mut completions)?;
        for completion in completions.drain(..) {
            window.complete(model.info(), completion);
        }
        let _ = window.hand_on(&mut seen);
    }
    Ok(())
}

/// A request that waits for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependent {
    /// The request. The loop replaces its id.
    pub request: Request,
    /// Index of the earlier request whose completion it waits for; `None`: it waits for none.
    pub after: Option<usize>,
    /// Pause between that and its arrival.
    pub gap: Nanos,
}

/// Lets each request arrive a pause after the completion of another one, and runs until all have completed; hands the
/// records on in order of arrival.
///
/// # Errors
/// Like [`open_loop`], and if the model is lost.
///
/// # Panics
/// Like [`open_loop`], for a local model; if a request waits for a later one.
pub fn dependent_loop_at(
    port: &mut ModelPort,
    requests: &[Dependent],
    mut seen: impl FnMut(&RequestRecord) -> ControlFlow<()>,
) -> Result<(), SimulationError> {
    let mut model = port.lend();
    let mut window = Window::default();
    let mut later: EventQueue<usize> = EventQueue::default();
    // The requests that wait for each, in order.
    let mut waiting: Vec<(usize, usize)> = Vec::new();
    let plan = |later: &mut EventQueue<usize>, index: usize, from: Nanos| {
        let at = from.checked_add(requests[index].gap).filter(|at| *at <= LATEST_ARRIVAL);
        let at = at.ok_or(SimulationError::BeyondTime { order: index as u64 })?;
        later.push(at, index);
        Ok::<(), SimulationError>(())
    };
    for (index, request) in requests.iter().enumerate() {
        match request.after {
            None => plan(&mut later, index, model.now())?,
            Some(after) => {
                assert!(after < index, "request {index} waits for request {after}, which is not before it");
                waiting.push((after, index));
            }
        }
    }
    waiting.sort_unstable();
    // Index of each request, in order of arrival.
    let mut places: Vec<usize> = Vec::with_capacity(requests.len());
    let mut completions = Vec::new();
    let mut stopped = false;
    loop {
        let now = model.now();
        while let Some((_, index)) = later.pop_until(now) {
            if stopped {
                continue;
            }
            places.push(index);
            submit(&mut model, &mut window, requests[index].request)?;
        }
        match later.next_at() {
            None if model.outstanding() == 0 => return Ok(()),
            None => model.step_to_completion(&mut completions)?,
            Some(next) => model.step_whole_instant(next, &mut completions)?,
        }
        for completion in completions.drain(..) {
            let index = places[completion.id.0 as usize];
            let from = waiting.partition_point(|&(after, _)| after < index);
            let dependents = waiting[from..].iter().take_while(|&&(after, _)| after == index);
            dependents.copied().try_for_each(|(_, dependent)| plan(&mut later, dependent, completion.at))?;
            window.complete(model.info(), completion);
        }
        stopped |= window.hand_on(&mut seen).is_break();
    }
}

/// Room reserved at the start at most, because a size hint is only a hint.
const CAPACITY_HINT_MAX: usize = 1 << 20;

/// Future arrivals. Arrivals at the present instant bypass the heap; without think time, these are all of them.
#[derive(Default)]
struct Arrivals {
    now: VecDeque<Request>,
    later: EventQueue<Request>,
}

impl Arrivals {
    fn push(&mut self, now: Nanos, issue: Issue, order: u64) -> Result<(), SimulationError> {
        if issue.think == Nanos::ZERO {
            self.now.push_back(issue.request);
        } else {
            let at = now.checked_add(issue.think).filter(|at| *at <= LATEST_ARRIVAL);
            let at = at.ok_or(SimulationError::BeyondTime { order })?;
            self.later.push(at, issue.request);
        }
        Ok(())
    }

    /// The next arrival after the present instant, all of whose arrivals have been taken.
    fn next_at(&self) -> Option<Nanos> {
        self.later.next_at()
    }

    /// At one instant, arrivals planned earlier precede those added without a pause.
    fn pop(&mut self, now: Nanos) -> Option<Request> {
        self.later.pop_until(now).map(|(_, request)| request).or_else(|| self.now.pop_front())
    }
}

/// The records from the oldest outstanding request to the newest, in order of arrival.
#[derive(Default)]
struct Window {
    records: VecDeque<RequestRecord>,
    first_order: u64,
}

impl Window {
    fn next_order(&self) -> u64 {
        self.first_order + self.records.len() as u64
    }

    fn complete(&mut self, info: &DeviceInfo, completion: Completion) {
        let index = completion.id.0.checked_sub(self.first_order);
        let record = index.and_then(|index| self.records.get_mut(index as usize));
        let Some(record) = record.filter(|record| !record.is_completed()) else {
            panic!("model {}: completed request {}, which it does not have", info.name, completion.id.0)
        };
        assert_later(info, record, completion);
        record.due = completion.at;
        record.completed = completion.at;
        record.status = completion.status;
    }

    /// Passes on the oldest records, up to the first request without a completion.
    fn hand_on(&mut self, seen: &mut impl FnMut(&RequestRecord) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        while let Some(record) = self.pop() {
            if seen(&record).is_break() {
                flow = ControlFlow::Break(());
            }
        }
        flow
    }

    /// Takes the oldest record if its request has completed.
    fn pop(&mut self) -> Option<RequestRecord> {
        self.records.front().filter(|record| record.is_completed())?;
        self.first_order += 1;
        self.records.pop_front()
    }
}

fn submit(model: &mut Port<'_>, window: &mut Window, mut request: Request) -> Result<(), SimulationError> {
    let order = window.next_order();
    let capacity_sectors = model.info().capacity_sectors;
    if !fits(capacity_sectors, request.lba.0, request.sectors) {
        let (lba, sectors) = (request.lba.0, request.sectors);
        return Err(SimulationError::OutOfRange { order, lba, sectors, capacity_sectors });
    }
    if request.op.is_for_zones() && model.info().zones.is_none() {
        return Err(SimulationError::NoZones { order, op: request.op });
    }
    request.id = RequestId(order);
    window.records.push_back(new_record(0, order, model.now(), &request));
    model.submit(request).map_err(SimulationError::Model)
}
