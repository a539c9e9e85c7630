//! A client that speaks NBD.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronodisk_engine::{Bytes, Departure, Found, RealId, TransportIndex};
use chronodisk_sim::{Nanos, Status};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};

use super::Shared;
use super::peer::{Left, Peer, raise};
use super::worker::{ASLEEP_MIN, ATTENTION, Woken, Worker};
use crate::nbd::{Event, NbdSession, Reason, RequestKey, ServerOffer};

/// A connection, shared with the threads that deliver to it.
struct NbdPeer {
    socket: OwnedFd,
    event: OwnedFd,
    state: Mutex<State>,
}

struct State {
    session: NbdSession,
    /// The keys of the outstanding requests by their slots.
    keys: Vec<Option<RequestKey>>,
    unsent: Unsent,
    /// Negotiation is over.
    negotiated: bool,
    /// The connection's thread waits for what the client sends. If not, it waits for replies to leave.
    listening: bool,
    /// The client does not read, or is gone.
    stuck: bool,
    broken: bool,
}

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
        session: NbdSession::new(offer),
        keys: Vec::new(),
        unsent: Unsent::default(),
        negotiated: false,
        listening: true,
        stuck: false,
        broken: false,
    };
    let peer = Arc::new(NbdPeer { socket, event, state: Mutex::new(state) });
    shared.peers().insert(connection, peer.clone());
    // Stopping raises the flag first and looks for peers then.
    if shared.is_stopping() {
        peer.end_input();
    }
    let mut worker = Worker::new(shared.clone(), connection, transport);
    peer.run(&mut worker, transport);
    shared.peers().remove(&connection);
    let mut state = peer.state();
    let dropped: Vec<Departure> = state.unsent.departures.drain(..).map(|(departure, _)| departure).collect();
    worker.left().dropped(&dropped);
    let refused_requests = state.session.state().refused_requests;
    drop(state);
    {
        let mut totals = shared.totals();
        totals.refused_requests += refused_requests;
        totals.dropped_completions += dropped.len() as u64;
    }
    worker.finish();
}

impl NbdPeer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, worker: &mut Worker, transport: TransportIndex) {
        let shared = worker.shared.clone();
        let (mut received, mut found) = (shared.now(), Found::Busy);
        let mut farewell = None;
        let handshake_end = shared.now().saturating_add(shared.options.handshake_max);
        loop {
            self.take_requests(worker, transport);
            worker.turn(self, received, found);
            let negotiated;
            let descriptor_flags = {
                let mut state = self.state();
                // Replies may have made room for requests that waited.
                if state.broken || state.session.is_finished() {
                    return;
                }
                if state.stuck {
                    self.flush(&shared, &mut state, worker.left());
                }
                negotiated = state.negotiated;
                let mut flags = PollFlags::empty();
                state.listening = state.session.state().wants_input;
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
            let alone = worker.waits_for_client_only() && descriptor_flags == PollFlags::IN && shared.is_alone();
            if alone {
                worker.relax();
                (received, found) = self.receive_alone(worker);
                continue;
            }
            // Who has nothing to wait for but its client is woken by nothing else: idle connections cost nothing.
            let impatient = !negotiated || shared.is_stopping();
            match worker.wait(&self.event, &[(self.socket.as_fd(), descriptor_flags)], impatient) {
                Woken::Look => (received, found) = (shared.now(), Found::Busy),
                Woken::Ready(how) => {
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

    /// Takes what the client asked for, and moves its bytes.
    fn take_requests(&self, worker: &mut Worker, transport: TransportIndex) {
        let shared = worker.shared.clone();
        let mut state = self.state();
        let state = &mut *state;
        let mut store = None;
        while let Some(event) = state.session.next_event() {
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
            let store = store.get_or_insert_with(|| shared.store());
            let begun = shared.now();
            let executed = state.session.execute(request.key, &mut ***store);
            let took = shared.now().saturating_sub(begun);
            let bytes = match executed {
                Ok(()) => Bytes::Moved { took },
                Err(error) => {
                    let mut totals = shared.totals();
                    totals.store_errors += 1;
                    totals.first_store_error.get_or_insert_with(|| error.to_string());
                    Bytes::Failed { took }
                }
            };
            let slot = request.key.slot();
            let id = RealId { transport, connection: worker.connection, slot: slot as u32 };
            match request.device_request(id.pack(), 0, worker.connection) {
                Some(device_request) => {
                    if state.keys.len() <= slot {
                        state.keys.resize(slot + 1, None);
                    }
                    state.keys[slot] = Some(request.key);
                    worker.arrived(device_request, bytes);
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
    fn receive_alone(&self, worker: &mut Worker) -> (Nanos, Found) {
        let mut buffer = [0; RECEIVE_ALONE_BYTES];
        let begun = worker.shared.now();
        let received = recv(&self.socket, &mut buffer, RecvFlags::empty());
        let now = worker.shared.now();
        let asleep = now.saturating_sub(begun);
        if asleep > ASLEEP_MIN {
            worker.slept(begun, now);
        }
        let mut state = self.state();
        match received {
            Ok((_, 0)) => state.session.input_ended(),
            Ok((_, len)) => {
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
        (now, if asleep > ASLEEP_MIN { Found::Woken { asleep } } else { Found::Busy })
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

impl Peer for NbdPeer {
    fn deliver(&self, shared: &Shared, departures: &[Departure], noticed: Nanos, foreign: bool, left: &mut Left) {
        let mut state = self.state();
        let state = &mut *state;
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
            let sent = sendmsg(&self.socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags);
            if let Ok(len) = sent {
                state.session.sent(len);
                if !state.session.has_output() {
                    left.sent(departures, noticed, shared.now());
                    // There may be room for what the client sent meanwhile, or nothing left to do.
                    if foreign && !state.listening {
                        raise(&self.event);
                    }
                    return;
                }
            }
        }
        state.unsent.queue(departures);
        if !was_stuck {
            self.flush(shared, state, left);
        }
        if foreign && (state.stuck || state.broken || !state.listening) {
            raise(&self.event);
        }
    }

    fn nudge(&self) {
        raise(&self.event);
    }

    fn end_input(&self) {
        let _ = shutdown(&self.socket, Shutdown::Read);
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

fn note_end(shared: &Shared, reason: Reason) {
    if let Reason::Violation(violation) = reason {
        let mut totals = shared.totals();
        totals.violations += 1;
        totals.first_violation.get_or_insert_with(|| violation.to_string());
    }
}

/// The time after which a receive that waits returns without data.
pub(super) const RECEIVE_TIMEOUT: std::time::Duration = std::time::Duration::from_nanos(ATTENTION.as_nanos());
