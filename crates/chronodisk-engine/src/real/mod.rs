//! The host's time as a clock for the engine.
//!
//! [`RealClock`] works on instants alone, so tests can run it on a simulated clock. The owner of sockets and threads
//! reads the host's clock, waits as [`Pace`] says, and asks for due completions.
//! [`host`] holds the requests to the operating system: priority, CPU, memory.

pub mod host;
mod linger;
mod lock;
pub(crate) mod median;
mod pace;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use chronodisk_sim::{Nanos, Op, Request, RequestId, RequestRecord, Status};

pub use self::linger::Linger;
pub use self::lock::{InheritingGuard, InheritingMutex};
use self::median::{LeadTable, RunningQuantile, SIZE_CLASSES, size_class};
pub use self::pace::{ASLEEP_SHARE_PERCENT, Gap, Pace, PaceStatistics, Wait};
use crate::engine::{DeviceIndex, Due, Engine, Transfer};
use crate::log::RequestLog;
use crate::step::LATEST_ARRIVAL;

/// Drives an [`Engine`] by the host's time.
///
/// A server sees a request some time after the client sent it, the *arrival skew*. A reply leaves some time after the
/// decision to send it, the *completion lead*. Both drift with the host's load, so both are medians of recent
/// measurements, kept per transport, unless they were fixed. A request arrives at its received instant minus the skew,
/// or at the model's present instant if that is later. Its completion leaves at its due instant minus the lead. The
/// model runs ahead of the host's clock by at most the lead plus the caller's time for preparation.
///
/// ```
/// use chronodisk_engine::{Transfer, DeviceIndex, Engine, Found, RealClock, RealId, RealOptions};
/// use chronodisk_sim::{Nanos, Op, Request};
/// # fn run(model: Box<dyn chronodisk_device::DeviceModel>) {
/// let mut engine = Engine::new();
/// let device = engine.attach(model);
/// let mut clock = RealClock::new(engine);
/// let transport = clock.add_transport("nbd over a unix socket", RealOptions::default());
///
/// let mut request = Request::new(0, Op::Read, 0, 8);
/// request.id = RealId { transport, connection: 1, slot: 0 }.pack();
/// let received = Nanos::from_micros(500);
/// let asleep = Nanos::from_micros(400);
/// clock.arrive(received, Found::Woken { asleep }, device, request, Transfer::MOVED);
///
/// let mut leaving = Vec::new();
/// let wake_at = clock.wake_at().expect("something is outstanding");
/// // Here the caller waits until `wake_at`.
/// clock.take(wake_at, Nanos::ZERO, &mut leaving);
/// // Here it sends the replies with one system call.
/// clock.sent(&leaving, wake_at, wake_at + Nanos::from_micros(3));
/// # }
/// ```
pub struct RealClock {
    engine: Engine,
    transports: Vec<Transport>,
    departing: BinaryHeap<Reverse<Departing>>,
    gap: Gap,
    stolen_requests: u64,
    early_max: Nanos,
    /// For each record in the log, whether it is final.
    settled: VecDeque<bool>,
    unseen: u64,
    /// Reused between calls, to avoid allocations.
    due: Vec<Due>,
}

/// Most finished records that wait in the log behind a request whose client does not take its reply. Beyond that, the
/// request is logged as it is.
const UNSEEN_WINDOW: usize = 1 << 16;

/// Overrides for the arrival skew and the completion lead. `None`: the measured value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RealOptions {
    /// Time from a client's request to its reception.
    pub arrival_skew: Tracked,
    /// From the decision to reply to the instant at which the reply has left, or at which the
    /// client sees it if that was measured.
    pub completion_lead: Tracked,
}

/// Source of an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracked {
    /// The median of the last measurements.
    #[default]
    Auto,
    /// Fixed by hand.
    Fixed(Nanos),
}

impl Tracked {
    fn or(self, measured: Nanos) -> Nanos {
        match self {
            Tracked::Auto => measured,
            Tracked::Fixed(fixed) => fixed,
        }
    }
}

/// A way on which requests come, counted from 0 in the order of [`RealClock::add_transport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransportIndex(u8);

/// A request's name under this clock: where its completion has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealId {
    /// The request's transport.
    pub transport: TransportIndex,
    /// The connection, below 2²⁴; unique among those with requests outstanding.
    pub connection: u32,
    /// Unique among the connection's outstanding requests.
    pub slot: u32,
}

impl RealId {
    /// In one word.
    ///
    /// # Panics
    /// If the connection's number has more than 24 bits.
    #[must_use]
    pub fn pack(self) -> RequestId {
        assert!(self.connection < 1 << 24, "a connection's number has 24 bits");
        RequestId(u64::from(self.transport.0) << 56 | u64::from(self.connection) << 32 | u64::from(self.slot))
    }

    /// Inverse of [`pack`](Self::pack).
    #[must_use]
    pub fn unpack(id: RequestId) -> Self {
        let connection = (id.0 >> 32) as u32 & 0x00ff_ffff;
        RealId { transport: TransportIndex((id.0 >> 56) as u8), connection, slot: id.0 as u32 }
    }
}

/// Way in which a receiver noticed a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The receiver slept, and was woken.
    Woken {
        /// Duration of the sleep; the request can't have waited longer.
        asleep: Nanos,
    },
    /// The receiver was polling; its previous poll was `since` ago.
    Polled {
        /// Time since the previous poll, which found no request.
        since: Nanos,
    },
    /// The thread was busy with other work when the request came, so its true arrival is unknown.
    Busy,
}

/// A completion that must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Destination of the reply.
    pub id: RealId,
    /// Status of the request.
    pub status: Status,
    /// Due instant of the completion.
    pub due: Nanos,
    /// Bytes of data in the reply.
    pub reply_bytes: u64,
    /// Order of the request's arrival, its place in the log.
    order: u64,
    stolen: bool,
}

/// Counters and present estimates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RealStatistics {
    /// Requests whose completion was due in a gap.
    pub stolen_requests: u64,
    /// Largest time by which a completion left before it was due.
    pub early_max: Nanos,
    /// Requests logged without a seen completion, because too many later records waited for clients to take their
    /// replies.
    pub unseen: u64,
    /// Per transport, in their order.
    pub transports: Vec<TransportStatistics>,
}

/// Present estimates of a transport.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransportStatistics {
    /// Name of the transport.
    pub name: String,
    /// Arrival skew where the receiver slept.
    pub skew_woken: Nanos,
    /// Arrival skew where it was awake.
    pub skew_polled: Nanos,
    /// Completion lead of the size that is sent most.
    pub lead: Nanos,
}

impl RealClock {
    /// A clock over `engine`, whose models must be at the clock's origin.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        RealClock {
            engine,
            transports: Vec::new(),
            departing: BinaryHeap::new(),
            gap: Gap::default(),
            stolen_requests: 0,
            early_max: Nanos::ZERO,
            settled: VecDeque::new(),
            unseen: 0,
            due: Vec::new(),
        }
    }

    /// Adds a transport.
    ///
    /// # Panics
    /// Beyond 256 of them.
    pub fn add_transport(&mut self, name: &str, options: RealOptions) -> TransportIndex {
        let index = u8::try_from(self.transports.len()).expect("at most 256 transports");
        self.transports.push(Transport::new(name, options));
        TransportIndex(index)
    }

    /// Notes that a request, whose id is a packed [`RealId`], was received at `received`. Returns its effective
    /// arrival.
    ///
    /// # Panics
    /// Like [`Engine::arrive`] does, and if there is no such transport.
    pub fn arrive(
        &mut self,
        received: Nanos,
        found: Found,
        device: DeviceIndex,
        request: Request,
        bytes: Transfer,
    ) -> Nanos {
        let transport = &mut self.transports[usize::from(RealId::unpack(request.id).transport.0)];
        let skew = transport.skew(found);
        transport.begin(size_class(reply_bytes(request.op, request.len_bytes())));
        let at = received.saturating_sub(skew).min(LATEST_ARRIVAL);
        self.settled.push_back(false);
        self.engine.arrive(at, device, request, bytes)
    }

    /// The bytes of a request that arrived with [`Transfer::Moving`] have moved.
    ///
    /// # Panics
    /// Like [`Engine::store_done`] does.
    pub fn store_done(&mut self, at: Nanos, device: DeviceIndex, id: RealId, bytes: Transfer) {
        self.engine.store_done(at, device, id.pack(), bytes);
    }

    /// Takes the completions that must leave at `now`, in the order of (due, sequence): each with a due instant, minus
    /// the lead, that has been reached. If there are none, takes the next completion if it must leave within `ahead`,
    /// so that it can be prepared; the model runs further ahead by as much. Returns the instant at which to send.
    pub fn take(&mut self, now: Nanos, ahead: Nanos, leaving: &mut Vec<Departure>) -> Nanos {
        let limit = now.saturating_add(ahead).saturating_add(self.lead_max());
        let mut due = std::mem::take(&mut self.due);
        while let Some(at) = self.engine.run_to_first_due(limit) {
            self.engine.take_due(at, &mut due);
            for due in due.drain(..) {
                self.prepare(due);
            }
        }
        self.due = due;
        let first_leaves = self.departing.peek().map(|Reverse(first)| first.leave_at);
        let leave_at = first_leaves.filter(|at| *at <= now.saturating_add(ahead)).map_or(now, |at| at.max(now));
        while let Some(Reverse(first)) = self.departing.peek()
            && first.leave_at <= leave_at
        {
            let mut departure = first.departure;
            departure.stolen = self.gap.contains(first.leave_at);
            self.stolen_requests += u64::from(departure.stolen);
            leaving.push(departure);
            self.departing.pop();
        }
        leave_at
    }

    /// The instant of the next [`take`](Self::take), if no request arrives and no bytes finish moving; may be early,
    /// never late. `None` if no request is outstanding.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        let departing = self.departing.peek().map(|Reverse(first)| first.leave_at);
        let possible = self.engine.completion_bound().map(|bound| bound.saturating_sub(self.lead_max()));
        [departing, possible].into_iter().flatten().min()
    }

    /// Records that these completions left with one system call, which began at `begun` and returned at `returned`. If
    /// it took far longer than usual, or began at the end of a gap, another program had the CPU meanwhile, and the
    /// completions are marked.
    ///
    /// # Panics
    /// If a completion is not of this clock.
    pub fn sent(&mut self, left: &[Departure], begun: Nanos, returned: Nanos) {
        let Some(first) = left.first() else { return };
        let reply_bytes = left.iter().map(|departure| departure.reply_bytes).sum();
        let transport = &mut self.transports[usize::from(first.id.transport.0)];
        let took = returned.saturating_sub(begun);
        let usual = transport.leads.of_class(size_class(reply_bytes));
        let took_long = took > usual.saturating_add(usual).saturating_add(pace::WORK_GAP_MIN);
        let was_stolen = returned < Nanos::MAX && (took_long || self.gap.contains(begun));
        transport.leads.add(reply_bytes, took);
        for departure in left {
            self.stolen_requests += u64::from(was_stolen && !departure.stolen);
            let departure = Departure { stolen: departure.stolen || was_stolen, ..*departure };
            self.seen(&departure, returned);
        }
    }

    /// Notes that a completion left at `at`, or was given up then. Its duration is not measured.
    ///
    /// # Panics
    /// If it does not belong to this clock.
    pub fn seen(&mut self, departure: &Departure, at: Nanos) {
        let early = self.engine.seen(departure.order, at, departure.stolen);
        self.early_max = self.early_max.max(early);
        let first_order = self.engine.log_mut().front().map_or(0, |first| first.order);
        let settled = departure.order.checked_sub(first_order).and_then(|index| self.settled.get_mut(index as usize));
        if let Some(settled) = settled {
            *settled = true;
        }
    }

    /// Takes the oldest settled records out of the log, at most `count_max`, in order of arrival. A record is settled
    /// once its request completed and the completion was seen or given up.
    ///
    /// A request with a reply that its client does not take delays later records until 65,536 of them wait. Then it is
    /// logged without a seen completion.
    pub fn take_settled(&mut self, count_max: usize, records: &mut Vec<RequestRecord>) {
        for _ in 0..count_max {
            let Some(settled) = self.settled.front() else { return };
            let log = self.engine.log_mut();
            let given_up =
                !settled && log.len() > UNSEEN_WINDOW && log.front().is_some_and(RequestRecord::is_completed);
            if !settled && !given_up {
                return;
            }
            self.settled.pop_front();
            let mut record = log.pop_front().expect("the log has a record of each");
            if given_up {
                record.completed = Nanos::MAX;
                self.unseen += 1;
            }
            records.push(record);
        }
    }

    /// Lets idle devices finish their background work, such as writing their caches: until no event follows, or to
    /// `limit`. Returns the reached instant, at least `now`. No request may arrive before the host's clock has reached
    /// it.
    ///
    /// # Panics
    /// If a model breaks its contract.
    pub fn finish_background_work(&mut self, now: Nanos, limit: Nanos) -> Nanos {
        match self.outstanding() {
            0 => self.engine.finish_background_work(now.min(LATEST_ARRIVAL), limit.min(LATEST_ARRIVAL)),
            _ => now,
        }
    }

    /// Notes that a waiting thread was kept from its CPU: completions due meanwhile are marked.
    pub fn note_gap(&mut self, gap: Gap) {
        self.gap = gap;
    }

    /// Notes that a timer woke a thread that serves this transport late. A request would have been noticed as late.
    pub fn woken_late(&mut self, transport: TransportIndex, late: Nanos) {
        self.transports[usize::from(transport.0)].woken.add(late);
    }

    /// The engine: devices, log, counters.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Requests that arrived and did not leave, over all devices.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.engine.outstanding() + self.departing.len()
    }

    /// Counters and present estimates.
    #[must_use]
    pub fn statistics(&self) -> RealStatistics {
        let of = |transport: &Transport| TransportStatistics {
            name: transport.name.clone(),
            skew_woken: transport.options.arrival_skew.or(transport.woken.value()),
            skew_polled: transport.options.arrival_skew.or(transport.polled.value()),
            lead: transport.options.completion_lead.or(transport.leads.usual()),
        };
        RealStatistics {
            stolen_requests: self.stolen_requests,
            early_max: self.early_max,
            unseen: self.unseen,
            transports: self.transports.iter().map(of).collect(),
        }
    }

    /// Ends the run at `now`: advances the models to this instant and logs the due completions. Returns the log and the
    /// instant of the end.
    #[must_use]
    pub fn finish(mut self, now: Nanos) -> (RequestLog, Nanos) {
        let end = now.min(LATEST_ARRIVAL);
        self.engine.time(end);
        (self.engine.into_log(), end)
    }

    /// A completion that the engine let go waits for its own lead.
    fn prepare(&mut self, due: Due) {
        let record = self.engine.log_mut().record_mut(due.order);
        let reply_bytes = reply_bytes(record.op, u64::from(record.sectors) * chronodisk_sim::SECTOR_BYTES);
        let id = RealId::unpack(due.id);
        let transport = &mut self.transports[usize::from(id.transport.0)];
        let class = size_class(reply_bytes);
        transport.end(class);
        let leave_at = due.due.saturating_sub(transport.lead(class));
        let departure =
            Departure { id, status: due.status, due: due.due, reply_bytes, order: due.order, stolen: false };
        self.departing.push(Reverse(Departing { leave_at, departure }));
    }

    /// Longest lead of the outstanding requests: the model must not run further ahead.
    fn lead_max(&self) -> Nanos {
        self.transports.iter().map(Transport::lead_max).max().unwrap_or_default()
    }
}

struct Transport {
    name: String,
    options: RealOptions,
    woken: RunningQuantile,
    polled: RunningQuantile,
    leads: LeadTable,
    outstanding: [u32; SIZE_CLASSES],
}

/// Cost of a cross-CPU wake-up on a virtual machine, until it is measured.
const WOKEN_INITIAL: Nanos = Nanos::from_micros(20);
/// A look at a socket that finds something.
const POLLED_INITIAL: Nanos = Nanos::from_micros(1);

impl Transport {
    fn new(name: &str, options: RealOptions) -> Self {
        Transport {
            name: name.to_owned(),
            options,
            woken: RunningQuantile::median(WOKEN_INITIAL),
            polled: RunningQuantile::median(POLLED_INITIAL),
            leads: LeadTable::new(),
            outstanding: [0; SIZE_CLASSES],
        }
    }

    fn skew(&mut self, found: Found) -> Nanos {
        if let Found::Polled { since } = found {
            // It may have come at any time since the previous poll; half of that is the expected value.
            self.polled.add(Nanos::from_nanos(since.as_nanos() / 2));
        }
        self.options.arrival_skew.or(match found {
            // A wake-up after a short sleep is faster, because the CPU was not far away.
            Found::Woken { asleep } => self.woken.value().min(Nanos::from_nanos(asleep.as_nanos() / 2)),
            Found::Polled { .. } | Found::Busy => self.polled.value(),
        })
    }

    fn lead(&self, class: usize) -> Nanos {
        self.options.completion_lead.or(self.leads.of_class(class))
    }

    fn lead_max(&self) -> Nanos {
        let largest = self.outstanding.iter().rposition(|count| *count > 0);
        largest.map_or(Nanos::ZERO, |class| self.lead(class))
    }

    fn begin(&mut self, class: usize) {
        self.outstanding[class] += 1;
    }

    fn end(&mut self, class: usize) {
        self.outstanding[class] -= 1;
    }
}

/// Ordered by the instant at which it must leave, then by due time and order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Departing {
    leave_at: Nanos,
    departure: Departure,
}

impl Departing {
    fn key(&self) -> (Nanos, Nanos, u64) {
        (self.leave_at, self.departure.due, self.departure.order)
    }
}

impl PartialOrd for Departing {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Departing {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Data that a reply carries.
fn reply_bytes(op: Op, len_bytes: u64) -> u64 {
    if op == Op::Read { len_bytes } else { 0 }
}
