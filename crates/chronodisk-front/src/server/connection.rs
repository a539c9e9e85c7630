//! A connection of any protocol: the loop of its thread, and delivery by other threads.
//!
//! A front end is a [`Protocol`]: received bytes go in, requests come out; completions go in, replies come out. The
//! skeleton in [`serve_connection`] does the rest: it submits requests to the device's clock, moves their bytes or lets
//! a helper move them, waits, delivers completions at their instants, and ends a connection after a panic.
//!
//! Three things differ between protocols. *Receiving and sending*: a byte stream is sent in pieces by one gathered
//! call, vhost-user passes descriptors and writes into the guest's memory, FUSE has one call per message. *Time of
//! moving bytes*: a vhost-user guest whose time stands still needs its bytes before its kick is acknowledged, so its
//! session moves them itself and passes on requests that are [done](Incoming::Moved). *Resources of a client*: a
//! stream's client can stop reading, negotiate endlessly and claim memory; the others can't.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use chronodisk_engine::listen::Place;
use chronodisk_engine::{Departure, Found, InheritingGuard, RealId, Transfer, TransportIndex};
use chronodisk_sim::{Nanos, Request, Status};
use chronodisk_store::{Store, StoreError};
use rustix::event::{EventfdFlags, PollFlags, eventfd};

use super::peer::{Guarded, Left, Moment, Peer, raise};
use super::rehearsal::Way;
use super::work::{Attempt, Late, Lent, Slow, Work};
use super::worker::{Seen, Woken, Worker};
use super::{Shared, Totals};

/// A front end's side of one connection. No call blocks.
pub(super) trait Protocol: Send + Sized + 'static {
    /// Name for panics of the connection's thread, followed by the connection's number.
    const NAME: &'static str;
    /// Name for panics of a helper.
    const HELPER: &'static str;
    /// The data of a write, while a helper moves them.
    type Payload: AsRef<[u8]> + Send;

    /// The next completely received request. A protocol with one call per message receives it here.
    fn next_request(&mut self, link: &Link, shared: &Shared) -> Option<Incoming>;

    /// Moves the bytes of the last request of [`next_request`](Self::next_request). A failure is remembered, and
    /// reported to the client when the request is completed. Not called for requests whose bytes have moved.
    fn execute(&mut self, _slot: u32, _store: &mut dyn Store) -> Result<(), NotMoved> {
        Err(NotMoved::Failed("the protocol moves no bytes".to_owned()))
    }

    /// Lends a request's data, or the buffer for them, to a helper. Not called for requests whose bytes have moved.
    fn lend(&mut self, _slot: u32) -> Lent<Self::Payload> {
        Lent::Nothing
    }

    /// Returns a lent buffer, with the result of the work.
    fn give_back(&mut self, _slot: u32, _work: &Work, _lent: Lent<Self::Payload>, _moved: Result<(), StoreError>) {}

    /// Prepares the reply to a request.
    fn complete(&mut self, slot: u32, status: Status);

    /// Sends the replies to these requests at that moment, as far as the socket accepts them.
    fn deliver(&mut self, link: &Link, departures: &[Departure], moment: &mut Moment<'_>, left: &mut Left);

    /// Sends pending output until the socket is full.
    fn flush(&mut self, io: Io<'_>);

    /// Receives available input after a descriptor became ready. `listening` is true if input was awaited. Returns the
    /// received instant, or `None` if the connection ends.
    fn receive(&mut self, io: Io<'_>, listening: bool) -> Option<Nanos>;

    /// Returns the events to wait for; `None` if the connection ends. `moving` is true while helpers use some of its
    /// data.
    fn plan(&mut self, io: Io<'_>, moving: bool) -> Option<Wants>;

    /// Waits in the receiving call itself, if that is cheaper: the connection is the only one, and waits for nothing
    /// but [`Wants::input`]. The connection's state stays unlocked meanwhile, since a new connection's thread may
    /// deliver to it. `None` if the protocol has no such call.
    fn receive_alone(_connection: &Connection<Self>, _worker: &mut Worker) -> Option<Seen> {
        None
    }

    /// Whether a request was received in part.
    fn is_midway(&self) -> bool {
        false
    }

    /// State of sending.
    fn outlet(&self) -> Outlet;

    /// Ends the connection's input, because the server stops.
    fn end_input(link: &Link);

    /// Cuts the connection at once.
    fn cut(link: &Link);

    /// The path of its replies, if sending can be rehearsed.
    fn way(_link: &Link) -> Option<Way> {
        None
    }

    /// Ends the connection: reports its counters, and its replies that were never sent.
    fn finish(&mut self, left: &mut Left, totals: &mut Totals);
}

/// A received request. Its slot is unique among the connection's outstanding requests.
pub(super) enum Incoming {
    /// The bytes have moved. The skeleton sets the request's id and issuer.
    Moved { slot: u32, request: Request, bytes: Transfer },
    /// The bytes must be moved. Without a `request`, the work takes no time on the device. `seen` is the instant of
    /// arrival, if it differs from the last [receive](Protocol::receive).
    ToMove { slot: u32, request: Option<Request>, work: Work, seen: Option<Seen> },
}

/// Reason why bytes did not move.
pub(super) enum NotMoved {
    /// The store would block on the host's disk. No bytes have moved.
    WouldWait,
    /// The move failed, for this reason.
    Failed(String),
}

/// Events that a connection waits for.
pub(super) struct Wants {
    /// Events of the connection's own descriptor.
    pub socket: PollFlags,
    /// Another descriptor to be readable.
    pub other: Option<Arc<OwnedFd>>,
    /// An event comes without notification, so poll soon.
    pub impatient: bool,
}

/// State of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlet {
    Open,
    /// The socket is full because the client does not read. The rest is sent once it has room.
    Full,
    /// The client is gone.
    Closed,
}

/// A connection's descriptors, which need no lock.
pub(super) struct Link {
    pub socket: OwnedFd,
    /// Wakes the connection's thread.
    pub event: OwnedFd,
    /// The connection's place in the limit of connections, if a listener accepted it.
    pub place: Option<Place>,
}

impl Link {
    /// Marks the connection as greeted: it is then evicted only after those without a greeting.
    pub fn greeted(&self) {
        self.place.iter().for_each(Place::greeted);
    }
}

/// Resources that a protocol uses besides its own state.
pub(super) struct Io<'a> {
    pub link: &'a Link,
    pub shared: &'a Shared,
    pub left: &'a mut Left,
}

/// A connection, shared with the threads that deliver to it and the helpers.
pub(super) struct Connection<P: Protocol> {
    pub link: Link,
    state: Guarded<State<P>>,
}

/// A connection's state.
pub(super) struct State<P: Protocol> {
    pub protocol: P,
    /// Requests at the helpers, and their waiting data.
    pub moving: usize,
    pub moving_bytes: u64,
    /// Requests whose bytes move at the completion, by slot; never iterated in an order that matters.
    pub late: HashMap<u32, Late<P::Payload>>,
    /// Whether the connection's thread waits for input. Otherwise it waits until replies are sent.
    listening: bool,
    broken: bool,
}

/// Time for a client's last replies when the server stops.
pub(super) const FAREWELL: Nanos = Nanos::from_secs(2);
/// Most data of a connection's requests that wait for the host's disk; further requests wait in the socket.
const MOVING_BYTES_MAX: u64 = 64 << 20;
/// Data of a batch of requests that the connection's thread copies itself while other clients are connected. Helpers
/// copy the rest, because the others wait for the store and perhaps for this thread meanwhile.
const COPIED_BYTES_MAX: u64 = 256 << 10;

/// Serves a client until it disconnects or the server stops.
pub(super) fn serve_connection<P: Protocol>(
    shared: &Arc<Shared>,
    connection: u32,
    transport: TransportIndex,
    (socket, place): (OwnedFd, Option<Place>),
    protocol: P,
) {
    let Ok(event) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else { return };
    let late = HashMap::new();
    let state = State { protocol, moving: 0, moving_bytes: 0, late, listening: true, broken: false };
    let peer = Arc::new(Connection { link: Link { socket, event, place }, state: Guarded::new(state) });
    shared.peers().insert(connection, peer.clone());
    // The stopping thread sets the flag first, and then ends the input of all peers.
    if shared.is_stopping() {
        peer.end_input();
    }
    let mut worker = Worker::new(shared.clone(), connection, transport);
    if let Some(way) = P::way(&peer.link) {
        worker.rehearse(way);
    }
    shared.catch(|| format!("{} {connection}", P::NAME), || peer.run(&mut worker));
    shared.peers().remove(&connection);
    let finish = || {
        let mut state = peer.state();
        state.drop_late(shared);
        state.protocol.finish(worker.left(), &mut shared.totals());
    };
    shared.catch(|| format!("{} {connection}", P::NAME), finish);
    // From here on, other threads may lock the state.
    let handed_over = peer.state.take_handed_over().map_or_else(Vec::new, |(departures, _)| departures);
    worker.left().dropped(&handed_over);
    shared.totals().dropped_completions += handed_over.len() as u64;
    worker.finish();
}

impl<P: Protocol> Connection<P> {
    pub fn state(&self) -> InheritingGuard<'_, State<P>> {
        self.state.lock()
    }

    fn run(self: &Arc<Self>, worker: &mut Worker) {
        let shared = worker.shared.clone();
        let mut seen = Seen { at: shared.now(), found: Found::Busy };
        let mut slow = Vec::new();
        // Arrival of the first bytes of a partly received request.
        let mut begun = None;
        loop {
            let is_midway = self.take_requests(worker, seen.at, &mut begun, &mut slow);
            worker.turn(&**self, seen);
            // The clock must know the requests first.
            slow.drain(..).for_each(|slow| self.have_moved(&shared, slow));
            begun = begun.or(Some(seen)).filter(|_| is_midway);
            // Must precede the plan for waiting: the replies may not fit into the socket.
            worker.deliver_handed_over(&**self, &self.state);
            let Some((wants, moving)) = self.plan(&shared, worker.left()) else { return };
            let only_input = wants.socket == PollFlags::IN && wants.other.is_none();
            if only_input
                && !moving
                && worker.waits_for_client_only()
                // A helper may have finished a request since the last turn.
                && shared.wake_at() == Nanos::MAX
                && shared.is_alone()
                && let Some(received) = P::receive_alone(self, worker)
            {
                seen = received;
                continue;
            }
            seen = match self.wait(worker, &wants) {
                Woken::Look => Seen { at: shared.now(), found: Found::Busy },
                Woken::Ready(found) => {
                    let io = Io { link: &self.link, shared: &shared, left: worker.left() };
                    let state = &mut *self.state();
                    match state.protocol.receive(io, state.listening) {
                        Some(at) => Seen { at, found },
                        None => return,
                    }
                }
            };
        }
    }

    fn plan(&self, shared: &Shared, left: &mut Left) -> Option<(Wants, bool)> {
        let mut state = self.state();
        let state = &mut *state;
        if state.broken {
            return None;
        }
        let moving = state.moving > 0;
        let mut wants = state.protocol.plan(Io { link: &self.link, shared, left }, moving)?;
        if state.moving_bytes >= MOVING_BYTES_MAX {
            wants.socket.remove(PollFlags::IN);
        }
        state.listening = wants.socket.contains(PollFlags::IN);
        Some((wants, moving))
    }

    fn wait(&self, worker: &mut Worker, wants: &Wants) -> Woken {
        let socket = (self.link.socket.as_fd(), wants.socket);
        match &wants.other {
            Some(other) => worker.wait(&self.link.event, &[socket, (other.as_fd(), PollFlags::IN)], wants.impatient),
            None => worker.wait(&self.link.event, &[socket], wants.impatient),
        }
    }

    /// Takes the client's requests received until `at`, and moves their bytes. A request that would block on the host's
    /// disk is returned as slow. The first request began to arrive at `begun`, which is then cleared. Returns whether a
    /// further request was received in part.
    fn take_requests(
        &self,
        worker: &mut Worker,
        at: Nanos,
        begun: &mut Option<Seen>,
        slow: &mut Vec<Slow<P::Payload>>,
    ) -> bool {
        let shared = worker.shared.clone();
        let mut state = self.state();
        let state = &mut *state;
        let mut store = None;
        let is_alone = shared.is_alone();
        let mut copied_bytes = 0;
        let (transport, connection) = (worker.transport, worker.connection);
        let named = |slot: u32, request: Request| {
            let id = RealId { transport, connection, slot }.pack();
            Request { id, issuer: connection, ..request }
        };
        while state.moving_bytes < MOVING_BYTES_MAX
            && (state.moving == 0 || !shared.client_memory.is_exceeded())
            && let Some(incoming) = state.protocol.next_request(&self.link, &shared)
        {
            self.link.place.iter().for_each(|place| place.asked(at));
            let (slot, request, work, seen) = match incoming {
                Incoming::Moved { slot, request, bytes } => {
                    worker.arrived(named(slot, request), bytes, begun.take());
                    continue;
                }
                Incoming::ToMove { slot, request, work, seen } => {
                    (slot, request.map(|request| named(slot, request)), work, seen)
                }
            };
            if let (Some(request), Some(_)) = (request, &shared.shadowing)
                && work.reaches_store()
            {
                slow.push(state.begin_moving(slot, request, work));
                continue;
            }
            if let Some(request) = request.filter(|_| shared.late.is_some())
                && {
                    // The changes are locked before the store.
                    store = None;
                    state.keep_late(&shared, slot, work)
                }
            {
                worker.arrived(request, Transfer::MOVED, seen.or(begun.take()));
                continue;
            }
            let store = store.get_or_insert_with(|| shared.store());
            let asked = shared.now();
            if work.kind.moves_data() {
                copied_bytes += work.len_bytes;
            }
            let is_long = !is_alone && work.kind.moves_data() && copied_bytes > COPIED_BYTES_MAX;
            let waits = (store.flush_waits() && work.flush) || (store.write_waits() && work.kind.changes_contents());
            let executed = match is_long || waits {
                true => Err(NotMoved::WouldWait),
                false => state.protocol.execute(slot, &mut Attempt(&mut ***store)),
            };
            let took = shared.now().saturating_sub(asked);
            let bytes = state.transferred(&shared, executed, took, (slot, request, work), slow);
            match request.filter(|_| shared.shadowing.is_none()) {
                Some(request) => worker.arrived(request, bytes, seen.or(begun.take())),
                None => state.protocol.complete(slot, Status::Ok),
            }
        }
        drop(store);
        if state.protocol.outlet() == Outlet::Open {
            state.protocol.flush(Io { link: &self.link, shared: &shared, left: worker.left() });
        }
        state.protocol.is_midway()
    }
}

impl<P: Protocol> State<P> {
    /// The transfer of a request after the attempt to move its bytes. If the store would wait, the request is slow.
    fn transferred(
        &mut self,
        shared: &Shared,
        executed: Result<(), NotMoved>,
        took: Nanos,
        (slot, request, work): (u32, Option<Request>, Work),
        slow: &mut Vec<Slow<P::Payload>>,
    ) -> Transfer {
        match (executed, request) {
            (Ok(()), _) => Transfer::Moved { took },
            (Err(NotMoved::WouldWait), Some(request)) => {
                slow.push(self.begin_moving(slot, request, work));
                Transfer::Moving
            }
            (Err(NotMoved::WouldWait), None) => {
                shared.note_store_error(&StoreError::WouldWait);
                Transfer::Failed { took }
            }
            (Err(NotMoved::Failed(reason)), _) => {
                shared.note_store_error(&reason);
                Transfer::Failed { took }
            }
        }
    }

    /// Whether the connection's own thread must act: it does not poll for input, or can't send.
    pub fn needs_attention(&self) -> bool {
        self.broken || !self.listening || self.protocol.outlet() != Outlet::Open
    }
}

impl<P: Protocol> Peer for Connection<P> {
    fn deliver(&self, departures: &[Departure], moment: &mut Moment<'_>, foreign: bool, left: &mut Left) {
        self.state.deliver(departures, moment, foreign.then_some(&self.link.event), |state, departures, moment| {
            state.move_late(moment.shared, departures);
            state.protocol.deliver(&self.link, departures, moment, left);
            // The thread may have room for further input, or may be done.
            if foreign && state.needs_attention() {
                raise(&self.link.event);
            }
        });
    }

    fn nudge(&self) {
        raise(&self.link.event);
    }

    fn end_input(&self) {
        P::end_input(&self.link);
        raise(&self.link.event);
    }

    fn abandon(&self) {
        self.state().broken = true;
        P::cut(&self.link);
        raise(&self.link.event);
    }
}
