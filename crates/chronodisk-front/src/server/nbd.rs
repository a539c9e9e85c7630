//! A client that speaks NBD.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronodisk_engine::{Bytes, Departure, Found, InheritingGuard, RealId, TransportIndex};
use chronodisk_sim::{Nanos, Request, Status};
use chronodisk_store::{Store, StoreError, forward_to_store};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_quickack;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, getsockname, recv, sendmsg, shutdown,
};

use super::Shared;
use super::helpers::Job;
use super::peer::{Guarded, Left, Moment, Peer, raise};
use super::rehearsal::Way;
use super::shadowing::Shadowing;
use super::vhost::SharedStore;
use super::worker::{ASLEEP_MIN, ATTENTION, Lingering, Seen, Woken, Worker};
use crate::nbd::{Command, Detached, Event, ExecuteError, NbdRequest, NbdSession, Reason, RequestKey, ServerOffer};

/// A connection, shared with the threads that deliver to it.
struct NbdPeer {
    socket: OwnedFd,
    event: OwnedFd,
    state: Guarded<State>,
}

struct State {
    session: NbdSession,
    /// The keys of the outstanding requests by their slots.
    keys: Vec<Option<RequestKey>>,
    unsent: Unsent,
    /// Requests at the helpers, and the data of theirs that wait there.
    moving: usize,
    moving_bytes: u64,
    /// Negotiation is over.
    negotiated: bool,
    /// The connection's thread waits for what the client sends. If not, it waits for replies to leave.
    listening: bool,
    /// The client does not read, or is gone.
    stuck: bool,
    broken: bool,
}

/// What the receiving call returns: the bytes in the buffer, and how many there were.
type Received = Result<(usize, usize), Errno>;

/// Completions that were queued and not sent, in order.
#[derive(Default)]
struct Unsent {
    departures: VecDeque<(Departure, u64)>,
    queued_bytes: u64,
    sent_bytes: u64,
}

/// Slices that one call sends: 64 replies without data or 32 with.
const SLICES: usize = 64;
/// What a thread that is alone receives at once, without holding its session: a client's 32
/// requests for reads, or a small write.
const RECEIVE_ALONE_BYTES: usize = 8 << 10;
/// Most data of a connection's requests that wait for the host's disk; further requests wait in the
/// socket.
const MOVING_BYTES_MAX: u64 = 64 << 20;
/// Data of requests received together that the connection's thread copies itself while others are
/// connected, who wait for the store and perhaps for this thread meanwhile; helpers copy the rest.
const COPIED_BYTES_MAX: u64 = 256 << 10;
/// What a request without data counts for among them.
const MOVING_BYTES_MIN: u64 = 4 << 10;
/// How long a client has for reading its last replies when the server stops.
const FAREWELL: Nanos = Nanos::from_secs(2);

/// Serves a client until it is gone or the server stops.
pub(super) fn serve(
    shared: &Arc<Shared>,
    connection: u32,
    transport: TransportIndex,
    socket: OwnedFd,
    offer: Arc<ServerOffer>,
) {
    let Ok(event) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else { return };
    let state = State {
        session: NbdSession::with_memory(offer, shared.client_memory.clone()),
        keys: Vec::new(),
        unsent: Unsent::default(),
        moving: 0,
        moving_bytes: 0,
        negotiated: false,
        listening: true,
        stuck: false,
        broken: false,
    };
    let peer = Arc::new(NbdPeer { socket, event, state: Guarded::new(state) });
    shared.peers().insert(connection, peer.clone());
    // Stopping raises the flag first and looks for peers then.
    if shared.is_stopping() {
        peer.end_input();
    }
    let mut worker = Worker::new(shared.clone(), connection, transport);
    let is_local = matches!(getsockname(&peer.socket), Ok(address) if address.address_family() == AddressFamily::UNIX);
    worker.rehearse(if is_local { Way::Local } else { Way::Tcp });
    shared.catch(|| format!("NBD connection {connection}"), || peer.run(&mut worker, transport));
    shared.peers().remove(&connection);
    let mut state = peer.state();
    let dropped: Vec<Departure> = state.unsent.departures.drain(..).map(|(departure, _)| departure).collect();
    worker.left().dropped(&dropped);
    let refused_requests = state.session.state().refused_requests;
    drop(state);
    // Whoever comes now finds the state free.
    let handed_over = peer.state.take_handed_over().map_or_else(Vec::new, |(departures, _)| departures);
    worker.left().dropped(&handed_over);
    {
        let mut totals = shared.totals();
        totals.refused_requests += refused_requests;
        totals.dropped_completions += (dropped.len() + handed_over.len()) as u64;
    }
    worker.finish();
}

impl NbdPeer {
    fn state(&self) -> InheritingGuard<'_, State> {
        self.state.lock()
    }

    fn run(self: &Arc<Self>, worker: &mut Worker, transport: TransportIndex) {
        let shared = worker.shared.clone();
        let (mut received, mut found) = (shared.now(), Found::Busy);
        let mut farewell = None;
        let handshake_end = shared.now().saturating_add(shared.options.handshake_max);
        let mut slow = Vec::new();
        let mut idleness = Idleness::new(shared.now());
        // When the first bytes came of a request whose last ones did not.
        let mut begun = None;
        loop {
            let is_midway = self.take_requests(worker, transport, &mut begun, &mut slow);
            worker.turn(&**self, received, found);
            // Not before the clock knows them.
            slow.drain(..).for_each(|slow| self.have_moved(&shared, slow));
            begun = begun.or(Some(Seen { at: received, found })).filter(|_| is_midway);
            if is_midway {
                // The client's kernel may wait for it with the rest; only TCP knows this.
                let _ = set_tcp_quickack(&self.socket, true);
            }
            // Before it is decided what to wait for: they may not fit into the socket.
            worker.deliver_handed_over(&**self, &self.state);
            let (negotiated, moving, holds_memory);
            let descriptor_flags = {
                let mut state = self.state();
                // Replies may have made room for requests that waited.
                if state.broken || state.session.is_finished() {
                    return;
                }
                if state.stuck {
                    self.flush(&shared, &mut state, worker.left());
                }
                (negotiated, moving) = (state.negotiated, state.moving > 0);
                holds_memory = match idleness.look(&shared, &mut state, is_midway) {
                    Held::Nothing => false,
                    Held::Memory => true,
                    Held::TooLong => {
                        shared.totals().stalled += 1;
                        return;
                    }
                };
                let mut flags = PollFlags::empty();
                state.listening = state.session.state().wants_input && state.moving_bytes < MOVING_BYTES_MAX;
                flags.set(PollFlags::IN, state.listening);
                flags.set(PollFlags::OUT, state.stuck);
                flags
            };
            if !negotiated && shared.now() > handshake_end {
                shared.totals().handshakes_given_up += 1;
                return;
            }
            if shared.is_stopping() {
                let now = shared.now();
                if now > *farewell.get_or_insert(now + FAREWELL) {
                    return;
                }
            }
            let only_client = worker.waits_for_client_only() && !moving;
            let alone = only_client && descriptor_flags == PollFlags::IN && shared.is_alone();
            if alone {
                (received, found) = self.receive_alone(worker, &mut idleness);
                continue;
            }
            // Who has nothing to wait for but its client is woken by nothing else: idle connections cost nothing.
            let impatient = !negotiated || shared.is_stopping() || holds_memory;
            match worker.wait(&self.event, &[(self.socket.as_fd(), descriptor_flags)], impatient) {
                Woken::Look => (received, found) = (shared.now(), Found::Busy),
                Woken::Ready(how) => {
                    idleness.ended(shared.now());
                    if descriptor_flags.contains(PollFlags::IN) {
                        self.receive(&mut self.state());
                    }
                    (received, found) = (shared.now(), how);
                    let mut state = self.state();
                    if state.stuck {
                        self.flush(&shared, &mut state, worker.left());
                    }
                }
            }
        }
    }

    /// Takes what the client asked for, and moves its bytes, unless that means to wait for the
    /// host's disk; then it is told as slow. The first request began to come at `begun`, which it
    /// takes. Tells whether a part of another one is there.
    fn take_requests(
        &self,
        worker: &mut Worker,
        transport: TransportIndex,
        begun: &mut Option<Seen>,
        slow: &mut Vec<Slow>,
    ) -> bool {
        let shared = worker.shared.clone();
        let mut state = self.state();
        let state = &mut *state;
        let mut store = None;
        let is_alone = shared.is_alone();
        let mut copied_bytes = 0;
        while state.moving_bytes < MOVING_BYTES_MAX
            && (state.moving == 0 || !shared.client_memory.is_exceeded())
            && let Some(event) = state.session.next_event()
        {
            let request = match event {
                Event::Request(request) => request,
                Event::Negotiated { .. } => {
                    state.negotiated = true;
                    continue;
                }
                Event::Closing(reason) => {
                    note_end(&shared, reason);
                    continue;
                }
            };
            let slot = request.key.slot();
            let id = RealId { transport, connection: worker.connection, slot: slot as u32 };
            let device_request = request.device_request(id.pack(), 0, worker.connection);
            if let (Some(device_request), Some(_)) = (device_request, &shared.shadowing)
                && request.command != Command::Cache
            {
                slow.push(state.begin_moving(request, device_request));
                continue;
            }
            let store = store.get_or_insert_with(|| shared.store());
            let asked = shared.now();
            if request.moves_data() {
                copied_bytes += u64::from(request.len_bytes);
            }
            let is_long = !is_alone && request.moves_data() && copied_bytes > COPIED_BYTES_MAX;
            let waits = (store.flush_waits() && flushes(&request))
                || (store.write_waits() && request.command.changes_contents());
            let executed = match is_long || waits {
                true => Err(ExecuteError::Store(StoreError::WouldWait)),
                false => state.session.execute(request.key, &mut Attempt(&mut ***store)),
            };
            let took = shared.now().saturating_sub(asked);
            let bytes = match (executed, device_request) {
                (Ok(()), _) => Bytes::Moved { took },
                (Err(ExecuteError::Store(StoreError::WouldWait)), Some(device_request)) => {
                    slow.push(state.begin_moving(request, device_request));
                    Bytes::Moving
                }
                (Err(error), _) => {
                    note_store_error(&shared, &error);
                    Bytes::Failed { took }
                }
            };
            match device_request.filter(|_| shared.shadowing.is_none()) {
                Some(device_request) => {
                    if state.keys.len() <= slot {
                        state.keys.resize(slot + 1, None);
                    }
                    state.keys[slot] = Some(request.key);
                    worker.arrived(device_request, bytes, begun.take());
                }
                None => {
                    state.session.complete(request.key, Status::Ok);
                }
            }
        }
        drop(store);
        if state.session.has_output() && !state.stuck {
            self.flush(&shared, state, worker.left());
        }
        state.session.state().is_midway
    }

    /// Has a helper move a request's bytes; does it here if there is none.
    fn have_moved(self: &Arc<Self>, shared: &Arc<Shared>, slow: Slow) {
        let (peer, owner) = (self.clone(), shared.clone());
        let job: Job = Box::new(move |store| {
            let moved = || match owner.shadowing.as_ref() {
                Some(shadowing) => peer.serve_really(&owner, shadowing, slow, store),
                None => peer.move_bytes(&owner, slow, store),
            };
            if owner.catch(|| "a helper of an NBD connection".to_owned(), moved).is_none() {
                peer.abandon();
            }
        });
        let way = || {
            let own = shared.store().second_way()?;
            Ok(Some(own.unwrap_or_else(|| Box::new(SharedStore(shared.clone())))))
        };
        if let Err(job) = shared.helpers.submit(job, way) {
            job(&mut SharedStore(shared.clone()));
        }
    }

    /// Moves the bytes of a request whose completion the clock holds until then.
    fn move_bytes(&self, shared: &Shared, mut slow: Slow, store: &mut dyn Store) {
        let begun = shared.now();
        let moved = self.perform(shared, &mut slow, store);
        let took = shared.now().saturating_sub(begun);
        let bytes = if moved.is_ok() { Bytes::Moved { took } } else { Bytes::Failed { took } };
        let id = RealId::unpack(slow.device_request.id);
        self.state().end_moving(shared, slow, moved);
        {
            let mut core = shared.core();
            core.clock.store_done(shared.now(), shared.device, id, bytes);
            let wake_at = core.clock.wake_at();
            shared.wake_at.store(wake_at.map_or(u64::MAX, Nanos::as_nanos), Ordering::Release);
        }
        // The completion may have to leave at once.
        raise(&self.event);
    }

    /// Does what was asked for. After a panic the request has failed, so that the clock and the log go on, and the
    /// connection ends.
    fn perform(&self, shared: &Shared, slow: &mut Slow, store: &mut dyn Store) -> Result<(), StoreError> {
        let performed = shared.catch(|| "a helper of an NBD connection".to_owned(), || slow.perform(store));
        performed.unwrap_or_else(|| {
            self.abandon();
            Err(StoreError::Damaged { what: "the store, whose code panicked,".to_owned() })
        })
    }

    /// Lets the real device serve a request, and answers it.
    fn serve_really(&self, shared: &Shared, shadowing: &Shadowing, mut slow: Slow, store: &mut dyn Store) {
        let order = shadowing.arrives(&shared.host, slow.device_request);
        let served = self.perform(shared, &mut slow, store);
        shadowing.served(order, shared.now(), served.is_err());
        let mut state = self.state();
        let state = &mut *state;
        let key = slow.request.key;
        state.end_moving(shared, slow, served);
        state.session.complete(key, Status::Ok);
        if !state.stuck {
            self.flush(shared, state, &mut Left::default());
        }
        if state.stuck || state.broken || !state.listening {
            raise(&self.event);
        }
    }

    /// Receives what is there.
    fn receive(&self, state: &mut State) {
        let room = state.session.receive_room();
        if room.is_empty() {
            return;
        }
        match recv(&self.socket, room, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => state.session.input_ended(),
            Ok((_, len)) => state.session.received(len),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => state.session.input_ended(),
        }
    }

    /// Waits in the receiving call itself, for at most [`ATTENTION`]. The session is not held
    /// meanwhile, because a connection that comes now may have something to deliver.
    fn receive_alone(&self, worker: &mut Worker, idleness: &mut Idleness) -> (Nanos, Found) {
        let mut buffer = [0; RECEIVE_ALONE_BYTES];
        let begun = worker.shared.now();
        let mut look = None;
        if let Some(lingering) = worker.begin_linger(begun) {
            look = self.look_alone(&lingering, &mut buffer, begun);
            if look.is_none() {
                worker.end_linger();
            }
        }
        let (received, found, now) = look.unwrap_or_else(|| {
            let begun = worker.shared.now();
            let received = recv(&self.socket, &mut buffer, RecvFlags::empty());
            let now = worker.shared.now();
            let asleep = now.saturating_sub(begun);
            if asleep > ASLEEP_MIN {
                worker.slept(begun, now);
                (received, Found::Woken { asleep }, now)
            } else {
                (received, Found::Busy, now)
            }
        });
        let mut state = self.state();
        match received {
            Ok((_, 0)) => state.session.input_ended(),
            Ok((_, len)) => {
                idleness.ended(now);
                let mut rest = &buffer[..len];
                while !rest.is_empty() {
                    let room = state.session.receive_room();
                    let taken = room.len().min(rest.len());
                    room[..taken].copy_from_slice(&rest[..taken]);
                    state.session.received(taken);
                    rest = &rest[taken..];
                }
                if len == buffer.len() {
                    self.receive(&mut state);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => state.session.input_ended(),
        }
        (now, found)
    }

    /// Receives as soon as something is there, without sleeping; `None` if nothing came in time.
    fn look_alone(&self, lingering: &Lingering, buffer: &mut [u8], begun: Nanos) -> Option<(Received, Found, Nanos)> {
        let mut last_look = begun;
        loop {
            let received = recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT);
            let now = lingering.now();
            match received {
                Err(Errno::AGAIN) if now < lingering.until => last_look = now,
                Err(Errno::AGAIN) => return None,
                received => return Some((received, Found::Polled { since: now.saturating_sub(last_look) }, now)),
            }
        }
    }

    /// Sends the completions at that moment, as far as the socket takes them at once.
    fn send(
        &self,
        state: &mut State,
        departures: &[Departure],
        moment: &mut Moment<'_>,
        foreign: bool,
        left: &mut Left,
    ) {
        let shared = moment.shared;
        for departure in departures {
            let key = state.keys.get_mut(departure.id.slot as usize).and_then(Option::take);
            if let Some(key) = key {
                state.session.complete(key, departure.status);
            }
        }
        let was_stuck = state.stuck;
        let fresh = !was_stuck && state.unsent.departures.is_empty();
        if fresh {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = state.session.gather(&mut slices);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let begun = moment.wait();
            let sent = sendmsg(&self.socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags);
            if let Ok(len) = sent {
                state.session.sent(len);
                if !state.session.has_output() {
                    left.sent(departures, begun, shared.now());
                    // There may be room for what the client sent meanwhile, or nothing left to do.
                    if foreign && !state.listening {
                        raise(&self.event);
                    }
                    return;
                }
            }
        }
        state.unsent.queue(departures);
        moment.wait();
        if !was_stuck {
            self.flush(shared, state, left);
        }
        if foreign && (state.stuck || state.broken || !state.listening) {
            raise(&self.event);
        }
    }

    /// Sends as much as the socket takes at once.
    fn flush(&self, shared: &Shared, state: &mut State, left: &mut Left) {
        state.stuck = false;
        while state.session.has_output() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = state.session.gather(&mut slices);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = sendmsg(&self.socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags);
            match sent {
                Ok(len) => {
                    state.session.sent(len);
                    state.unsent.sent(len as u64);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    state.stuck = true;
                    break;
                }
                Err(_) => {
                    state.broken = true;
                    return;
                }
            }
        }
        state.unsent.settle(!state.stuck, shared.now(), left);
    }
}

/// A request that may wait for the host's disk.
struct Slow {
    request: NbdRequest,
    device_request: Request,
    data: Moved,
    counted_bytes: u64,
}

/// The data of a request while a helper moves them.
enum Moved {
    Nothing,
    /// Those of a write.
    Write(Detached),
    /// Room for those of a read.
    Read(Box<[u8]>),
}

impl Moved {
    fn room(&mut self, len: usize) -> Result<&mut [u8], StoreError> {
        match self {
            Moved::Read(buffer) if buffer.len() >= len => Ok(&mut buffer[..len]),
            _ => Err(StoreError::Damaged { what: "the room for a read".to_owned() }),
        }
    }

    fn bytes(&self) -> Result<&[u8], StoreError> {
        match self {
            Moved::Write(payload) => Ok(payload.bytes()),
            _ => Err(StoreError::Damaged { what: "the payload of a write".to_owned() }),
        }
    }
}

/// Since when nothing came from a client, and nothing could be sent to it.
struct Idleness {
    since: Nanos,
}

/// What a connection holds.
enum Held {
    /// Nothing that would be given back.
    Nothing,
    Memory,
    /// Memory for which others wait, and for which its client does nothing.
    TooLong,
}

/// An idle connection keeps its buffers for so long: most clients come again before.
const KEPT_IDLE: Nanos = Nanos::from_secs(1);
/// Memory that a connection keeps however long it is idle.
const KEPT_BYTES: u64 = 4 << 10;

impl Idleness {
    fn new(now: Nanos) -> Self {
        Idleness { since: now }
    }

    fn ended(&mut self, now: Nanos) {
        self.since = now;
    }

    /// Gives memory back that is not needed now, at once if others wait for it.
    fn look(&mut self, shared: &Shared, state: &mut State, is_midway: bool) -> Held {
        let session = state.session.state();
        if session.waits_for_memory && !state.stuck {
            // It is not for the client to go on.
            self.ended(shared.now());
        }
        if session.held_bytes <= KEPT_BYTES {
            return if session.waits_for_memory { Held::Memory } else { Held::Nothing };
        }
        let (idle, is_short) = (shared.now().saturating_sub(self.since), shared.client_memory.is_short());
        if is_short && (is_midway || state.stuck) && idle > shared.options.handshake_max {
            return Held::TooLong;
        }
        if is_short || idle > KEPT_IDLE {
            state.session.release_idle_memory();
        }
        let session = state.session.state();
        if session.held_bytes > KEPT_BYTES || session.waits_for_memory { Held::Memory } else { Held::Nothing }
    }
}

impl Slow {
    /// Does what was asked for.
    fn perform(&mut self, store: &mut dyn Store) -> Result<(), StoreError> {
        let request = &self.request;
        let (offset_bytes, len_bytes) = (request.offset_bytes, u64::from(request.len_bytes));
        match request.command {
            Command::Read => store.read(offset_bytes, self.data.room(request.len_bytes as usize)?)?,
            Command::Write => store.write(offset_bytes, self.data.bytes()?)?,
            Command::Trim => store.discard(offset_bytes, len_bytes)?,
            Command::WriteZeroes if request.no_hole => store.reserve_zeroes(offset_bytes, len_bytes)?,
            Command::WriteZeroes => store.write_zeroes(offset_bytes, len_bytes)?,
            Command::Flush | Command::Cache | Command::BlockStatus => {}
        }
        if flushes(request) { store.flush() } else { Ok(()) }
    }
}

/// Whether a request ends with what was written being kept.
fn flushes(request: &NbdRequest) -> bool {
    request.command == Command::Flush || (request.fua && request.command.changes_contents())
}

impl State {
    fn begin_moving(&mut self, request: NbdRequest, device_request: Request) -> Slow {
        let data = match request.command {
            Command::Read => self.session.lend(request.key).map_or(Moved::Nothing, Moved::Read),
            _ => self.session.take_payload(request.key).map_or(Moved::Nothing, Moved::Write),
        };
        let len_bytes = if request.moves_data() { u64::from(request.len_bytes) } else { 0 };
        let counted_bytes = len_bytes.max(MOVING_BYTES_MIN);
        self.moving += 1;
        self.moving_bytes += counted_bytes;
        Slow { request, device_request, data, counted_bytes }
    }

    fn end_moving(&mut self, shared: &Shared, slow: Slow, moved: Result<(), StoreError>) {
        self.moving -= 1;
        self.moving_bytes -= slow.counted_bytes;
        if let Moved::Read(buffer) = slow.data {
            let data_len = moved.is_ok().then_some(slow.request.len_bytes as usize);
            self.session.give_back(slow.request.key, buffer, data_len);
        }
        if let Err(error) = moved {
            note_store_error(shared, &error);
            self.session.failed(slow.request.key, error);
        }
    }
}

/// A store that is asked not to wait for a disk.
struct Attempt<'a>(&'a mut dyn Store);

impl Store for Attempt<'_> {
    forward_to_store!(self => self.0; capacity_bytes, write_zeroes, reserve_zeroes, discard, extent, flush);
    forward_to_store!(self => self.0; allocated_bytes, budget_bytes);

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.0.try_read(offset_bytes, bytes)
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.0.try_write(offset_bytes, bytes)
    }
}

impl Peer for NbdPeer {
    fn deliver(&self, departures: &[Departure], moment: &mut Moment<'_>, foreign: bool, left: &mut Left) {
        self.state.deliver(departures, moment, foreign.then_some(&self.event), |state, departures, moment| {
            self.send(state, departures, moment, foreign, left);
        });
    }

    fn nudge(&self) {
        raise(&self.event);
    }

    fn end_input(&self) {
        let _ = shutdown(&self.socket, Shutdown::Read);
        raise(&self.event);
    }

    fn abandon(&self) {
        self.state().broken = true;
        let _ = shutdown(&self.socket, Shutdown::Both);
        raise(&self.event);
    }
}

impl Unsent {
    fn queue(&mut self, departures: &[Departure]) {
        for departure in departures {
            self.queued_bytes += departure.reply_bytes;
            self.departures.push_back((*departure, self.queued_bytes));
        }
    }

    fn sent(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }

    /// What was sent has been seen: everything if nothing is left, else what the bytes sent since
    /// then reach to, heads not counted.
    fn settle(&mut self, all: bool, now: Nanos, left: &mut Left) {
        while let Some((departure, end_bytes)) = self.departures.front()
            && (all || *end_bytes <= self.sent_bytes)
        {
            left.seen(std::slice::from_ref(departure), now);
            self.departures.pop_front();
        }
        if self.departures.is_empty() {
            (self.queued_bytes, self.sent_bytes) = (0, 0);
        }
    }
}

fn note_store_error(shared: &Shared, error: &dyn std::fmt::Display) {
    let mut totals = shared.totals();
    totals.store_errors += 1;
    totals.first_store_error.get_or_insert_with(|| error.to_string());
}

fn note_end(shared: &Shared, reason: Reason) {
    if let Reason::Violation(violation) = reason {
        let mut totals = shared.totals();
        totals.violations += 1;
        totals.first_violation.get_or_insert_with(|| violation.to_string());
    }
}

/// The time after which a receive that waits returns without data.
pub(super) const RECEIVE_TIMEOUT: std::time::Duration = std::time::Duration::from_nanos(ATTENTION.as_nanos());
