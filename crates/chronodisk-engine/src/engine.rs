//! The sans-I/O core of every run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::RangeInclusive;

use chronodisk_device::{BackgroundRead, DeviceInfo, DeviceModel};
use chronodisk_sim::{Completion, Lba, Nanos, RandomStream, Request, RequestId, RequestRecord, Status};

use crate::fault::ModelFault;
use crate::host::HostClock;
use crate::log::RequestLog;
use crate::port::{ModelPort, Port};
use crate::protocol::BackgroundReads;
use crate::step::{assert_inside, assert_later};

/// Feeds arrivals to device models, holds completions until they may leave, and logs all requests.
///
/// ```
/// use chronodisk_engine::{Transfer, Engine};
/// use chronodisk_sim::{Nanos, Op, Request};
/// # fn run(model: Box<dyn chronodisk_device::DeviceModel>) {
/// let mut engine = Engine::new();
/// let device = engine.attach(model);
/// let arrival = engine.arrive(Nanos::ZERO, device, Request::new(7, Op::Read, 0, 8), Transfer::MOVED);
///
/// let bound = engine.completion_bound().expect("something is outstanding");
/// engine.time(bound);
/// let mut due = Vec::new();
/// engine.take_due(bound, &mut due);
/// # }
/// ```
///
/// Completions leave in the order of (instant, device, sequence of completion). All instants are of the run's clock.
/// The host's clock is only measured, never used.
///
/// A remote model can be lost. Then nothing completes any more, and [`fault`](Self::fault) gives the reason. Check it
/// before you conclude that nothing is due.
pub struct Engine {
    devices: Vec<Device>,
    due_queue: BinaryHeap<Reverse<Waiting>>,
    next_sequence: u64,
    log: RequestLog,
    host: Option<Box<dyn HostClock>>,
    model_delay: Option<ModelDelay>,
    statistics: EngineStatistics,
    fault: Option<ModelFault>,
    /// Reused between calls, to avoid allocations.
    completions: Vec<Completion>,
}

/// A device of a run, counted from 0 in the order of [`Engine::attach`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

/// State of a request's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The bytes have moved. The store took this long by the host's clock.
    Moved {
        /// Host time.
        took: Nanos,
    },
    /// The bytes could not be moved: the request takes its usual time and then ends as a media error.
    Failed {
        /// Host time.
        took: Nanos,
    },
    /// The bytes are still moving: the completion waits for [`Engine::store_done`].
    Moving,
}

impl Transfer {
    /// Bytes that moved in no time: requests without bytes, or stores whose time is not measured.
    pub const MOVED: Transfer = Transfer::Moved { took: Nanos::ZERO };
}

/// A completion that may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The device.
    pub device: DeviceIndex,
    /// The request's id, as set by its front end.
    pub id: RequestId,
    /// Status of the completion.
    pub status: Status,
    /// The instant at which the host should have seen it.
    pub due: Nanos,
    /// Order of the request's arrival, its place in the log.
    pub order: u64,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStatistics {
    /// Requests that arrived.
    pub arrivals: u64,
    /// Arrivals whose instant was before the model's present one, and which were moved to it.
    pub clamped_arrivals: u64,
    /// The largest such move.
    pub clamp_max: Nanos,
    /// Completions that were taken.
    pub completions: u64,
    /// Most requests that were outstanding at once, over all devices.
    pub outstanding_max: usize,
    /// Host time of all calls into the models; zero without a host clock.
    pub model_time: Nanos,
    /// Calls into the models.
    pub model_calls: u64,
}

impl Engine {
    /// An engine without devices that does not measure the host's time.
    #[must_use]
    pub fn new() -> Self {
        Engine {
            devices: Vec::new(),
            due_queue: BinaryHeap::new(),
            next_sequence: 0,
            log: RequestLog::new(),
            host: None,
            model_delay: None,
            statistics: EngineStatistics::default(),
            fault: None,
            completions: Vec::new(),
        }
    }

    /// Measures the host time of the models' calls from now on.
    pub fn set_host_clock(&mut self, host: Box<dyn HostClock>) {
        self.host = Some(host);
    }

    /// Makes every call into a model take longer by the host's clock, for experiments on slow models: by a random time
    /// from `delay`, from a random stream of `seed`.
    ///
    /// # Panics
    /// If the bounds are in the wrong order, or if `delay` is not zero and no host clock was set.
    pub fn set_model_delay(&mut self, delay: RangeInclusive<Nanos>, seed: u64) {
        let (min, max) = delay.into_inner();
        assert!(min <= max, "a model delay from {min} to {max} has no values");
        assert!(max == Nanos::ZERO || self.host.is_some(), "a model delay needs a host clock to sleep by");
        let random = RandomStream::new(seed, "engine", "model delay");
        self.model_delay = (max > Nanos::ZERO).then_some(ModelDelay { min, max, random });
    }

    /// Adds a device.
    ///
    /// # Panics
    /// Beyond 65,536 devices, or if the model already has requests outstanding.
    pub fn attach(&mut self, model: Box<dyn DeviceModel>) -> DeviceIndex {
        self.attach_port(ModelPort::Local(model))
    }

    /// Adds a device whose model may be remote.
    ///
    /// # Panics
    /// Like [`attach`](Self::attach) does.
    pub fn attach_port(&mut self, port: ModelPort) -> DeviceIndex {
        assert!(port.outstanding() == 0, "model {}: attached with requests outstanding", port.info().name);
        let index = u16::try_from(self.devices.len()).expect("at most 65,536 devices in a run");
        self.devices.push(Device { port, in_flight: HashMap::default(), unspent_model_time: Nanos::ZERO });
        DeviceIndex(index)
    }

    /// The fault of a lost model.
    #[must_use]
    pub fn fault(&self) -> Option<&ModelFault> {
        self.fault.as_ref()
    }

    /// A device's properties.
    ///
    /// # Panics
    /// If there is no such device.
    #[must_use]
    pub fn info(&self, device: DeviceIndex) -> &DeviceInfo {
        self.port(device).info()
    }

    /// A device's model, for its statistics.
    ///
    /// # Panics
    /// If there is no such device.
    #[must_use]
    pub fn port(&self, device: DeviceIndex) -> &ModelPort {
        &self.devices[usize::from(device.0)].port
    }

    /// Fetches the statistics of remote models, for [`port`](Self::port).
    pub fn fetch_statistics(&mut self) {
        for device in &mut self.devices {
            if let ModelPort::Remote(model) = &mut device.port
                && let Err(fault) = model.fetch_statistics()
            {
                self.fault.get_or_insert(fault);
            }
        }
    }

    /// Passes a request to a device at `at`, or at the model's present instant if that is later, after all events due
    /// there. The effective instant is logged and returned.
    ///
    /// # Panics
    /// If there is no such device, if the request's id is outstanding there, if its range leaves
    /// the device, or if the model breaks its contract. The front end has checked the request, and
    /// chooses ids of its own instead of passing a guest's through.
    pub fn arrive(&mut self, at: Nanos, device: DeviceIndex, request: Request, bytes: Transfer) -> Nanos {
        self.arrive_at_place(at, device, request, &[], bytes).0
    }

    /// As [`arrive`](Self::arrive), for a write to any of 1 to [`PLACES_MAX`](chronodisk_device::PLACES_MAX) places.
    /// `request.lba` is ignored. Also returns the place that the model chose.
    ///
    /// # Panics
    /// As `arrive` does, and without a place.
    pub fn arrive_anywhere(
        &mut self,
        at: Nanos,
        device: DeviceIndex,
        request: Request,
        places: &[Lba],
        bytes: Transfer,
    ) -> (Nanos, Lba) {
        assert!(!places.is_empty(), "a write without a place");
        self.arrive_at_place(at, device, request, places, bytes)
    }

    /// A background request arrives at a device. Returns whether its model serves such requests.
    pub fn want(&mut self, device: DeviceIndex, request: &BackgroundRead) -> bool {
        let served = self.devices[usize::from(device.0)].port.want(request);
        self.unless_fault(served).unwrap_or(false)
    }

    /// A device's reads of background requests that were not taken before; none without such requests.
    pub fn take_background(&mut self, device: DeviceIndex) -> BackgroundReads {
        let reads = self.devices[usize::from(device.0)].port.take_background();
        self.unless_fault(reads).unwrap_or_default()
    }

    fn unless_fault<T>(&mut self, result: Result<T, ModelFault>) -> Option<T> {
        result.map_err(|fault| note_fault(&mut self.fault, Err(fault))).ok()
    }

    /// Without places, a request arrives for its own.
    fn arrive_at_place(
        &mut self,
        at: Nanos,
        device: DeviceIndex,
        mut request: Request,
        places: &[Lba],
        bytes: Transfer,
    ) -> (Nanos, Lba) {
        let index = usize::from(device.0);
        let call = self.begin_model_call();
        let mut model = self.devices[index].port.lend();
        match places {
            [] => assert_inside(model.info(), &request),
            _ => places.iter().for_each(|&lba| assert_inside(model.info(), &Request { lba, ..request })),
        }
        let effective = at.max(model.now());
        if effective > at {
            self.statistics.clamped_arrivals += 1;
            self.statistics.clamp_max = self.statistics.clamp_max.max(effective - at);
        }
        let mut completions = std::mem::take(&mut self.completions);
        let submitted = model.advance(effective, &mut completions).and_then(|()| {
            if places.is_empty() {
                return model.submit(request);
            }
            request.lba = places[0];
            request.lba = model.submit_anywhere(request, places)?;
            Ok(())
        });
        note_fault(&mut self.fault, submitted);
        let model_time = self.end_model_call(call);
        self.accept(device, &mut completions);
        self.completions = completions;

        let order = self.log.arrived(device.0, effective, &request);
        let record = self.log.record_mut(order);
        record.model_time = model_time;
        let store_done = note_bytes(record, bytes, effective);
        let in_flight = InFlight { order, store_done, model_done: false };
        let previous = self.devices[index].in_flight.insert(request.id, in_flight);
        assert!(previous.is_none(), "request {} arrived at device {} while outstanding there", request.id.0, device.0);
        self.statistics.arrivals += 1;
        self.statistics.outstanding_max = self.statistics.outstanding_max.max(self.outstanding());
        (effective, request.lba)
    }

    /// Notes that the bytes of a request that arrived with [`Transfer::Moving`] have moved, or failed to move, at `at`.
    /// Its completion leaves at its due time or at `at`, whichever is later.
    ///
    /// # Panics
    /// If no such request waits for its bytes, or if `bytes` is [`Transfer::Moving`].
    pub fn store_done(&mut self, at: Nanos, device: DeviceIndex, id: RequestId, bytes: Transfer) {
        assert!(bytes != Transfer::Moving, "bytes that still move are not done");
        let in_flight = self.devices[usize::from(device.0)]
            .in_flight
            .get_mut(&id)
            .unwrap_or_else(|| panic!("request {} of device {} is not outstanding", id.0, device.0));
        assert!(in_flight.store_done.is_none(), "the bytes of request {} of device {} moved twice", id.0, device.0);
        let record = self.log.record_mut(in_flight.order);
        in_flight.store_done = note_bytes(record, bytes, at);
        if in_flight.model_done {
            let ready = record.due.max(at);
            self.enqueue(ready, device, id);
        }
    }

    /// Runs the models to `now`, an instant that all their guests and clients have reached.
    ///
    /// # Panics
    /// If a model breaks its contract.
    pub fn time(&mut self, now: Nanos) {
        for index in 0..self.devices.len() {
            self.run_device(index, now);
        }
    }

    /// Runs the models, with nothing outstanding, until they have finished their background work, or to `limit`.
    /// Returns the instant that was reached, at least `now`.
    ///
    /// # Panics
    /// If a model breaks its contract, or if requests are outstanding.
    pub fn finish_background_work(&mut self, now: Nanos, limit: Nanos) -> Nanos {
        assert!(self.outstanding() == 0, "{} requests are outstanding", self.outstanding());
        let mut reached = now;
        self.time(reached);
        for _ in 0..ROUNDS_MAX {
            let next = self.devices.iter().filter_map(|device| device.port.next_event()).min();
            let Some(next) = next.filter(|next| *next <= limit && self.fault.is_none()) else { break };
            reached = reached.max(next);
            self.time(reached);
        }
        reached
    }

    /// Runs the models to the first instant at which a completion can leave, or at most to `limit`, and returns that
    /// instant if there is one. A model may stay behind it, but none goes further. No request may arrive before the
    /// returned instant, or before `limit` if there is none.
    ///
    /// Does not wait for requests that lack only their bytes.
    ///
    /// # Panics
    /// If a model breaks its contract.
    pub fn run_to_first_due(&mut self, limit: Nanos) -> Option<Nanos> {
        for _ in 0..ROUNDS_MAX {
            if self.fault.is_some() {
                return None;
            }
            let queued = self.next_queued();
            let bound = self.first_possible_completion();
            // Completions of one instant leave together, so each model that may complete a request there must run
            // first.
            if let Some(queued) = queued
                && bound.is_none_or(|bound| bound > queued)
            {
                return Some(queued).filter(|queued| *queued <= limit);
            }
            let bound = bound.filter(|bound| *bound <= limit)?;
            let mut busy = (0..self.devices.len()).filter(|index| self.devices[*index].port.outstanding() > 0);
            match (busy.next(), busy.next()) {
                // A single model stops by itself at its first completion.
                (Some(only), None) if queued.is_none() => self.step_device(only, limit),
                _ => self.time(bound),
            }
        }
        panic!("{ROUNDS_MAX} events in a row completed nothing, with {} requests outstanding", self.outstanding());
    }

    /// Takes the completions that may leave at or before `now`, in order, and logs them as seen at `now`. Only
    /// completions up to the instant reached by [`time`](Self::time) or [`run_to_first_due`](Self::run_to_first_due)
    /// are known.
    pub fn take_due(&mut self, now: Nanos, due: &mut Vec<Due>) {
        while let Some(Reverse(first)) = self.due_queue.peek()
            && first.ready <= now
        {
            let Waiting { device, id, .. } = *first;
            self.due_queue.pop();
            let in_flight =
                self.devices[usize::from(device.0)].in_flight.remove(&id).expect("what is queued is in flight");
            let record = self.log.record_mut(in_flight.order);
            record.completed = now;
            self.statistics.completions += 1;
            due.push(Due { device, id, status: record.status, due: record.due, order: in_flight.order });
        }
    }

    /// Notes that a completion taken earlier was seen at `at`, and whether the host had taken the CPU away while it was
    /// due (`stolen`). Returns by how much it was early.
    ///
    /// Does nothing if the record has been moved out of the log.
    ///
    /// # Panics
    /// If no request of this order was taken.
    pub fn seen(&mut self, order: u64, at: Nanos, stolen: bool) -> Nanos {
        let Some(record) = self.log.get_mut(order) else { return Nanos::ZERO };
        assert!(record.is_completed(), "request {order} was not taken");
        // A completion is seen after the arrival, even if the lead was overestimated.
        record.completed = at.max(record.arrival.saturating_add(Nanos::from_nanos(1)));
        record.stolen = stolen;
        record.earliness()
    }

    /// No completion can leave before this instant if no request arrives and no bytes finish moving. May be too early,
    /// never too late. `None` if no completion can leave at all.
    ///
    /// Repeating [`time`](Self::time) to this instant and asking again always makes progress. For a remote model, it is
    /// as late as possible only after [`settle`](Self::settle).
    #[must_use]
    pub fn completion_bound(&self) -> Option<Nanos> {
        [self.next_queued(), self.first_possible_completion()].into_iter().flatten().min()
    }

    /// Asks the remote models for their next completions.
    pub fn settle(&mut self) {
        for device in &mut self.devices {
            if let ModelPort::Remote(model) = &mut device.port {
                note_fault(&mut self.fault, model.settle());
            }
        }
    }

    /// Requests that have arrived and whose completions were not taken yet, over all devices.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.devices.iter().map(|device| device.in_flight.len()).sum()
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> &RequestLog {
        &self.log
    }

    /// The log's records so far, in order of arrival.
    #[must_use]
    pub fn records(&self) -> &[RequestRecord] {
        self.log.records()
    }

    /// The log, for its owner's clock to take records out.
    pub(crate) fn log_mut(&mut self) -> &mut RequestLog {
        &mut self.log
    }

    /// The log, at the end of a run.
    #[must_use]
    pub fn into_log(self) -> RequestLog {
        self.log
    }

    /// Counters so far.
    #[must_use]
    pub fn statistics(&self) -> EngineStatistics {
        self.statistics
    }

    fn next_queued(&self) -> Option<Nanos> {
        self.due_queue.peek().map(|Reverse(first)| first.ready)
    }

    fn first_possible_completion(&self) -> Option<Nanos> {
        self.devices.iter().filter_map(|device| device.port.first_possible_completion()).min()
    }

    /// Runs one model to `until` if it has outstanding requests. An idle model catches up at its next arrival.
    fn run_device(&mut self, index: usize, until: Nanos) {
        let port = &self.devices[index].port;
        let nothing_to_do = self.fault.is_some()
            || port.outstanding() == 0
            || port.now() > until
            || port.first_possible_completion().is_some_and(|first| first > until);
        if nothing_to_do {
            return;
        }
        self.call_model(index, |model, completions| model.advance(until, completions));
    }

    fn step_device(&mut self, index: usize, limit: Nanos) {
        // All completions at one instant leave together.
        self.call_model(index, |model, completions| model.step_whole_instant(limit, completions));
    }

    fn call_model(
        &mut self,
        index: usize,
        call: impl FnOnce(&mut Port<'_>, &mut Vec<Completion>) -> Result<(), ModelFault>,
    ) {
        let mut completions = std::mem::take(&mut self.completions);
        let begun = self.begin_model_call();
        let called = call(&mut self.devices[index].port.lend(), &mut completions);
        note_fault(&mut self.fault, called);
        let model_time = self.end_model_call(begun);
        self.devices[index].unspent_model_time += model_time;
        self.accept(DeviceIndex(index as u16), &mut completions);
        self.completions = completions;
    }

    /// Logs a model's completions, and queues those that need not wait for their bytes.
    fn accept(&mut self, device: DeviceIndex, completions: &mut Vec<Completion>) {
        for completion in completions.drain(..) {
            let entry = &mut self.devices[usize::from(device.0)];
            let in_flight = entry.in_flight.get_mut(&completion.id).filter(|in_flight| !in_flight.model_done);
            let Some(in_flight) = in_flight else {
                panic!(
                    "model {}: completed request {}, which it does not have",
                    entry.port.info().name,
                    completion.id.0
                )
            };
            in_flight.model_done = true;
            let record = self.log.record_mut(in_flight.order);
            assert_later(entry.port.info(), record, completion);
            record.due = completion.at;
            record.status = if record.store_failed { Status::MediaError } else { completion.status };
            record.model_time += std::mem::take(&mut entry.unspent_model_time);
            if let Some(store_done) = in_flight.store_done {
                self.enqueue(completion.at.max(store_done), device, completion.id);
            }
        }
    }

    fn enqueue(&mut self, ready: Nanos, device: DeviceIndex, id: RequestId) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.due_queue.push(Reverse(Waiting { ready, device, sequence, id }));
    }

    fn begin_model_call(&mut self) -> Nanos {
        self.statistics.model_calls += 1;
        let Some(host) = &self.host else { return Nanos::ZERO };
        let begun = host.now();
        if let Some(delay) = &mut self.model_delay {
            host.sleep(delay.draw());
        }
        begun
    }

    fn end_model_call(&mut self, begun: Nanos) -> Nanos {
        let Some(host) = &self.host else { return Nanos::ZERO };
        let model_time = host.now().saturating_sub(begun);
        self.statistics.model_time += model_time;
        model_time
    }
}

impl Default for Engine {
    fn default() -> Self {
        Engine::new()
    }
}

/// Events without a completion after which a model counts as broken. The longest legitimate chain seen, a garbage
/// collection between two completions, has thousands.
const ROUNDS_MAX: u64 = 100_000_000;

struct ModelDelay {
    min: Nanos,
    max: Nanos,
    random: RandomStream,
}

impl ModelDelay {
    fn draw(&mut self) -> Nanos {
        // Saturated: the largest span lacks one of 2⁶⁴ values.
        let values = (self.max - self.min).as_nanos().saturating_add(1);
        self.min + Nanos::from_nanos(self.random.below(values))
    }
}

struct Device {
    port: ModelPort,
    /// Looked up by id only, never iterated.
    in_flight: HashMap<RequestId, InFlight, BuildHasherDefault<IdHasher>>,
    /// Host time of calls without a completion so far; charged to the next request that completes.
    unspent_model_time: Nanos,
}

/// Spreads ids by a multiplication (Knuth, The Art of Computer Programming, volume 3, section 6.4), since each request
/// needs a lookup. Front ends choose the ids, not clients, so collisions can't be provoked.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        let product = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The table takes its index from the low bits, which a product mixes least.
        self.0 = product ^ (product >> 32);
    }
}

struct InFlight {
    order: u64,
    /// Instant at which the bytes had moved; `None` while they move.
    store_done: Option<Nanos>,
    model_done: bool,
}

/// An entry of the due queue. Entries are ordered by their fields as declared; sequences are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    ready: Nanos,
    device: DeviceIndex,
    sequence: u64,
    id: RequestId,
}

/// Keeps the first failure.
fn note_fault(fault: &mut Option<ModelFault>, result: Result<(), ModelFault>) {
    if let Err(new) = result {
        fault.get_or_insert(new);
    }
}

/// Logs the state of the bytes. Returns the instant at which they had moved, if they have.
fn note_bytes(record: &mut RequestRecord, bytes: Transfer, at: Nanos) -> Option<Nanos> {
    let (took, failed) = match bytes {
        Transfer::Moved { took } => (took, false),
        Transfer::Failed { took } => (took, true),
        Transfer::Moving => return None,
    };
    record.store_time = took;
    record.store_failed = failed;
    if failed {
        record.status = Status::MediaError;
    }
    Some(at)
}
