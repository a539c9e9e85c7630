//! The device with faults.

use std::sync::Arc;

use chronodisk_sim::{Completion, EventQueue, Nanos, Op, Request, RequestId, Status};

use super::parameters::{Effect, Fault};
use super::state::{Arrived, State};
use crate::composite::Slab;
use crate::models::speed::{AtSpeed, Rate};
use crate::{DeviceInfo, DeviceModel, Probe, ZoneReport};

/// Unit of a factor.
const THOUSAND: u64 = 1_000;
/// Largest product of the factors of slow drives, in thousandths; it keeps the conversion of times in 128 bits.
const LARGEST_PRODUCT: u64 = 1 << 40;
/// The earliest completion that the contract allows.
const AT_ONCE: Nanos = Nanos::from_nanos(1);

/// A device with faults: the device itself in a time that may be slow or halted, and the errors of its requests.
pub(super) struct Faulty {
    device: AtSpeed,
    faults: Arc<[Fault]>,
    states: Vec<State>,
    arrived: Arrived,
    outstanding: u32,
    /// Requests in the device, by the device's numbers.
    inside: Slab<Inside>,
    /// Completions that wait for their instant.
    due: EventQueue<(RequestId, Status)>,
    /// The device's own time at its last completion.
    last_completion: Nanos,
    retry_time: Nanos,
    slow_time: Nanos,
    /// Empty between calls; kept for its capacity.
    done: Vec<Completion>,
}

/// A request in the device.
#[derive(Clone, Copy, Debug)]
struct Inside {
    /// With the host's id.
    request: Request,
    /// Arrival in the device's own time.
    arrival: Nanos,
    fate: Fate,
}

/// The effect of faults on a request that was chosen at its arrival.
#[derive(Clone, Copy, Debug)]
struct Fate {
    status: Status,
    retry_time: Nanos,
    /// In thousandths of the profile's times.
    factor: u64,
}

/// The answer to an arrival.
enum Verdict {
    /// The request completes at once, without the device.
    Answered(Status),
    Enters(Request, Fate),
}

impl Faulty {
    /// A new device with these faults.
    pub(super) fn new(device: Box<dyn DeviceModel>, faults: Arc<[Fault]>, seed: u64) -> Self {
        let capacity_sectors = device.info().capacity_sectors;
        let state = |(number, fault)| State::new(fault, number, capacity_sectors, seed);
        let mut faulty = Faulty {
            device: AtSpeed::new(device, Rate::AS_IT_IS),
            states: faults.iter().enumerate().map(state).collect(),
            faults,
            arrived: Arrived::default(),
            outstanding: 0,
            inside: Slab::new(),
            due: EventQueue::new(),
            last_completion: Nanos::ZERO,
            retry_time: Nanos::ZERO,
            slow_time: Nanos::ZERO,
            done: Vec::new(),
        };
        faulty.adjust_rate();
        faulty
    }

    /// Sets the rate of the device's time for the present instant.
    fn adjust_rate(&mut self) {
        let now = self.device.now();
        let mut rate = Rate::AS_IT_IS;
        for (fault, state) in self.faults.iter().zip(&self.states) {
            match fault.effect {
                Effect::Hang if state.is_on(now) => {
                    rate = Rate::HALTED;
                    break;
                }
                Effect::SlowDrive { factor } if state.is_on(now) => {
                    let outer = (rate.outer * factor).div_ceil(if rate.inner == 1 { 1 } else { THOUSAND });
                    rate = Rate { inner: THOUSAND, outer: outer.min(LARGEST_PRODUCT) };
                }
                _ => {}
            }
        }
        if rate != self.device.rate() {
            self.device.set_rate(rate);
        }
    }

    fn hangs(&self) -> bool {
        self.device.rate() == Rate::HALTED
    }

    /// The instant of the first completion that waits; [`Nanos::MAX`] if there is none, or while nothing completes.
    fn next_due(&self) -> Nanos {
        self.due.next_at().filter(|_| !self.hangs()).unwrap_or(Nanos::MAX)
    }

    /// The next instant at which a fault begins or ends; [`Nanos::MAX`] if there is none.
    fn next_boundary(&self) -> Nanos {
        let now = self.device.now();
        self.states.iter().filter_map(|state| state.next_boundary(now)).min().unwrap_or(Nanos::MAX)
    }

    fn arrive(&mut self, request: Request) -> Verdict {
        let now = self.device.now();
        let mut answer = None;
        let (mut passed, mut fate) = (request, Fate { status: Status::Ok, retry_time: Nanos::ZERO, factor: THOUSAND });
        for (fault, state) in self.faults.iter().zip(&mut self.states) {
            state.begin(fault, &self.arrived, now);
            if !state.is_on(now) {
                continue;
            }
            match fault.effect {
                Effect::Death => answer = Some(Status::Aborted),
                Effect::Latent { .. } => continue,
                Effect::SlowDrive { .. } | Effect::Hang => {}
                _ if !fault.may_hit(&request) || !state.chooses(fault) => continue,
                Effect::WearOut => answer = answer.or(Some(Status::Aborted)),
                Effect::Transient { retry_time } => {
                    fate.status = Status::MediaError;
                    fate.retry_time = fate.retry_time.saturating_add(retry_time);
                }
                Effect::Recovered { retry_time } => fate.retry_time = fate.retry_time.saturating_add(retry_time),
                Effect::SlowRegion { factor } => {
                    fate.factor = fate.factor.saturating_mul(factor).min(LARGEST_PRODUCT) / THOUSAND;
                }
                Effect::TornWrite { .. } => fate.status = Status::MediaError,
                Effect::LyingFlush if request.op == Op::Flush => answer = answer.or(Some(Status::Ok)),
                Effect::LyingFlush => passed.fua = false,
            }
            state.hits += 1;
        }
        self.arrived.requests += 1;
        if matches!(request.op, Op::Write | Op::ZoneAppend) {
            self.arrived.written_bytes += request.len_bytes();
        }
        self.adjust_rate();
        answer.map_or(Verdict::Enters(passed, fate), Verdict::Answered)
    }

    /// Takes the device's completions at the present instant.
    fn take_done(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        for completion in done.drain(..) {
            let number = u32::try_from(completion.id.0).expect("a number that the slab gave");
            let Inside { request, arrival, fate } = self.inside.take(number);
            let (status, retry_time) = self.end(&request, completion.status, &fate);
            let served = self.device.inner().now();
            let slow = served.saturating_sub(arrival.max(self.last_completion));
            let slow = u128::from(slow.as_nanos()) * u128::from(fate.factor - THOUSAND) / u128::from(THOUSAND);
            let slow = Nanos::from_nanos(u64::try_from(slow).unwrap_or(u64::MAX));
            self.last_completion = served;
            self.retry_time = self.retry_time.saturating_add(retry_time);
            self.slow_time = self.slow_time.saturating_add(slow);
            let further = retry_time.saturating_add(slow);
            let at = if further > Nanos::ZERO { self.device.halt(further) } else { self.device.now() };
            self.due.push(at, (request.id, status));
        }
        self.done = done;
    }

    /// The status of a request that the device has completed, and the time of its retries.
    fn end(&mut self, request: &Request, status: Status, fate: &Fate) -> (Status, Nanos) {
        let now = self.device.now();
        let (mut status, mut retry_time) = (if status == Status::Ok { fate.status } else { status }, fate.retry_time);
        for (fault, state) in self.faults.iter().zip(&mut self.states) {
            match fault.effect {
                Effect::Death if state.is_on(now) => {
                    state.hits += 1;
                    return (Status::Aborted, Nanos::ZERO);
                }
                Effect::Latent { retry_time: further, .. }
                    if state.is_on(now)
                        && request.op == Op::Read
                        && status == Status::Ok
                        && state.is_bad(fault, request) =>
                {
                    state.hits += 1;
                    status = Status::MediaError;
                    retry_time = retry_time.saturating_add(further);
                }
                _ => {}
            }
        }
        if status == Status::Ok && matches!(request.op, Op::Write | Op::WriteZeroes | Op::Discard) {
            for (fault, state) in self.faults.iter().zip(&mut self.states) {
                if matches!(fault.effect, Effect::Latent { .. }) {
                    state.heal(fault, request);
                }
            }
        }
        (status, retry_time)
    }

    /// Completes the requests whose instant has come.
    fn complete_due(&mut self, completed: &mut Vec<Completion>) {
        let now = self.device.now();
        while self.next_due() <= now
            && let Some((_, (id, status))) = self.due.pop_until(now)
        {
            self.outstanding -= 1;
            completed.push(Completion { id, at: now, status });
        }
    }
}

impl DeviceModel for Faulty {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn now(&self) -> Nanos {
        self.device.now()
    }

    fn outstanding(&self) -> u32 {
        self.outstanding
    }

    fn submit(&mut self, request: Request) {
        self.outstanding += 1;
        match self.arrive(request) {
            Verdict::Answered(status) => {
                self.due.push(self.device.now().saturating_add(AT_ONCE), (request.id, status));
            }
            Verdict::Enters(passed, fate) => {
                let arrival = self.device.inner().now();
                let number = self.inside.insert(Inside { request, arrival, fate });
                self.device.submit(Request { id: RequestId(number.into()), ..passed });
            }
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let device = self.device.next_event().unwrap_or(Nanos::MAX);
        Some(device.min(self.next_due()).min(self.next_boundary())).filter(|&at| at < Nanos::MAX)
    }

    fn completion_bound(&self) -> Option<Nanos> {
        if self.outstanding == 0 {
            return None;
        }
        let device = self.device.completion_bound().unwrap_or(Nanos::MAX);
        Some(device.min(self.next_due()).min(self.next_boundary()))
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let already = completed.len();
        loop {
            let until = limit.min(self.next_due()).min(self.next_boundary()).max(self.device.now());
            self.device.step(until, &mut self.done);
            self.take_done();
            // Before a hang that begins now, and after one that ends now.
            self.complete_due(completed);
            self.adjust_rate();
            self.complete_due(completed);
            if completed.len() > already || self.device.now() >= limit {
                return;
            }
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(Faulty {
            device: self.device.copy(),
            faults: Arc::clone(&self.faults),
            states: self.states.clone(),
            inside: self.inside.clone(),
            due: self.due.clone(),
            done: Vec::new(),
            ..*self
        })
    }

    fn begin_with_zones(&mut self, zones: &[ZoneReport]) -> bool {
        self.device.begin_with_zones(zones)
    }

    /// A flush that lies does not reach the device, so its sectors are still among the device's own.
    fn volatile(&self) -> Option<Vec<std::ops::Range<u64>>> {
        self.device.inner().volatile()
    }

    fn probe(&self, sink: &mut dyn Probe) {
        for (number, (fault, state)) in self.faults.iter().zip(&self.states).enumerate() {
            sink.counter(&format!("fault-{number}-{}", fault.effect.counter()), state.hits);
        }
        sink.counter("fault-retry-time-ns", self.retry_time.as_nanos());
        sink.counter("fault-slow-time-ns", self.slow_time.as_nanos());
        self.device.inner().probe(sink);
    }
}
