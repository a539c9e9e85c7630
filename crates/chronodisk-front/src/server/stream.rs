//! A client on a byte stream: NBD and iSCSI over a socket.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use chronodisk_engine::listen::{Place, Socket};
use chronodisk_engine::{Departure, Found, TransportIndex};
use chronodisk_sim::{Nanos, Request, Status};
use chronodisk_store::{Store, StoreError};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_quickack;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, getsockname, recv, sendmsg, shutdown,
};

use super::connection::{
    Connection, FAREWELL, Incoming, Io, Link, NotMoved, Outlet, Protocol, Wants, serve_connection,
};
use super::peer::{Left, Moment};
use super::rehearsal::Way;
use super::work::{Lent, Work};
use super::worker::{ASLEEP_MIN, ATTENTION, Lingering, Seen, Worker};
use super::{Shared, Totals};

/// A front end's session on a byte stream, without its socket.
pub(super) trait StreamSession: Send + Sized + 'static {
    /// Name for panics of the connection's thread, followed by the connection's number.
    const NAME: &'static str;
    /// Name for panics of a helper.
    const HELPER: &'static str;
    /// The data of a write, while a helper moves them.
    type Payload: AsRef<[u8]> + Send;

    /// The client's next event in the received bytes.
    fn next_event(&mut self) -> Option<StreamEvent>;

    /// Moves a request's bytes. A failure is remembered, and reported to the client when the request is completed.
    fn execute(&mut self, slot: u32, store: &mut dyn Store) -> Result<(), NotMoved>;

    /// Lends a request's data, or the buffer for them, to a helper.
    fn lend(&mut self, slot: u32) -> Lent<Self::Payload>;

    /// Returns a lent buffer, with the result of the work.
    fn give_back(&mut self, slot: u32, work: &Work, lent: Lent<Self::Payload>, moved: Result<(), StoreError>);

    /// Answers a request.
    fn complete(&mut self, slot: u32, status: Status);

    /// Buffer for the client's next bytes.
    fn receive_room(&mut self) -> &mut [u8];

    /// Notes that `len` bytes of the [`receive_room`](Self::receive_room) were filled.
    fn received(&mut self, len: usize);

    /// Notes the end of the client's input.
    fn input_ended(&mut self);

    /// Whether output is waiting to be sent.
    fn has_output(&self) -> bool;

    /// Points `slices` to the next output; returns the number used.
    fn gather<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize;

    /// Acknowledges that `len` bytes of the output were sent.
    fn sent(&mut self, len: usize);

    /// Whether all output was sent, so that the connection can be closed.
    fn is_finished(&self) -> bool;

    /// State of the session.
    fn state(&self) -> StreamState;

    /// Frees memory kept for reuse.
    fn release_idle_memory(&mut self);
}

/// An event caused by the client.
pub(super) enum StreamEvent {
    /// Negotiation is over; requests follow.
    Negotiated,
    /// A request, whose bytes must be moved. Without a `request`, the work takes no time on the device.
    Request { slot: u32, request: Option<Request>, work: Work },
    /// The client broke its protocol, for this reason, and its connection ends.
    Violation(String),
}

/// State of a session.
pub(super) struct StreamState {
    pub refused_requests: u64,
    pub wants_input: bool,
    /// Whether a message was received in part.
    pub is_midway: bool,
    /// Whether a request waits for memory that other sessions hold.
    pub waits_for_memory: bool,
    /// Memory that the session holds for requests, and for reuse.
    pub held_bytes: u64,
}

/// A client's connection.
struct StreamConnection<S> {
    session: S,
    unsent: Unsent,
    negotiated: bool,
    /// Instant at which a client that has not negotiated is disconnected.
    handshake_end: Nanos,
    /// Instant at which a client that does not take its last replies is disconnected, once the server stops.
    farewell: Option<Nanos>,
    idleness: Idleness,
    /// The client does not read.
    stuck: bool,
    broken: bool,
}

/// Result of the receiving call: the bytes in the buffer, and their number.
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
/// Bytes that the only connection receives at once, without its session's lock: a client's 32 read requests, or a small
/// write.
const RECEIVE_ALONE_BYTES: usize = 8 << 10;

/// Serves a client until it disconnects or the server stops.
pub(super) fn serve<S: StreamSession>(
    shared: &Arc<Shared>,
    connection: u32,
    transport: TransportIndex,
    (socket, place): (Socket, Place),
    session: S,
) {
    let now = shared.now();
    let protocol = StreamConnection {
        session,
        unsent: Unsent::default(),
        negotiated: false,
        handshake_end: now.saturating_add(shared.options.handshake_max),
        farewell: None,
        idleness: Idleness { since: now },
        stuck: false,
        broken: false,
    };
    serve_connection(shared, connection, transport, (socket.into(), Some(place)), protocol);
}

impl<S: StreamSession> Protocol for StreamConnection<S> {
    const NAME: &'static str = S::NAME;
    const HELPER: &'static str = S::HELPER;
    type Payload = S::Payload;

    fn next_request(&mut self, link: &Link, shared: &Shared) -> Option<Incoming> {
        loop {
            match self.session.next_event()? {
                StreamEvent::Request { slot, request, work } => {
                    return Some(Incoming::ToMove { slot, request, work, seen: None });
                }
                StreamEvent::Negotiated => {
                    self.negotiated = true;
                    link.greeted();
                }
                StreamEvent::Violation(violation) => shared.note_violation(&violation),
            }
        }
    }

    fn execute(&mut self, slot: u32, store: &mut dyn Store) -> Result<(), NotMoved> {
        self.session.execute(slot, store)
    }

    fn lend(&mut self, slot: u32) -> Lent<S::Payload> {
        self.session.lend(slot)
    }

    fn give_back(&mut self, slot: u32, work: &Work, lent: Lent<S::Payload>, moved: Result<(), StoreError>) {
        self.session.give_back(slot, work, lent, moved);
    }

    fn complete(&mut self, slot: u32, status: Status) {
        self.session.complete(slot, status);
    }

    fn deliver(&mut self, link: &Link, departures: &[Departure], moment: &mut Moment<'_>, left: &mut Left) {
        let shared = moment.shared;
        for departure in departures {
            self.complete(departure.id.slot, departure.status);
        }
        let was_stuck = self.stuck;
        if !was_stuck && self.unsent.departures.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.session.gather(&mut slices);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let begun = moment.wait();
            let sent = sendmsg(&link.socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags);
            if let Ok(len) = sent {
                self.session.sent(len);
                if !self.session.has_output() {
                    left.sent(departures, begun, shared.now());
                    return;
                }
            }
        }
        self.unsent.queue(departures);
        moment.wait();
        if !was_stuck {
            self.flush(Io { link, shared, left });
        }
    }

    fn flush(&mut self, io: Io<'_>) {
        self.stuck = false;
        while self.session.has_output() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.session.gather(&mut slices);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = sendmsg(&io.link.socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags);
            match sent {
                Ok(len) => {
                    self.session.sent(len);
                    self.unsent.sent(len as u64);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.stuck = true;
                    break;
                }
                Err(_) => {
                    self.broken = true;
                    return;
                }
            }
        }
        if !self.unsent.departures.is_empty() {
            self.unsent.settle(!self.stuck, io.shared.now(), io.left);
        }
    }

    fn receive(&mut self, io: Io<'_>, listening: bool) -> Option<Nanos> {
        self.idleness.ended(io.shared.now());
        if listening {
            self.receive_into_session(io.link);
        }
        let received = io.shared.now();
        if self.stuck {
            self.flush(io);
        }
        Some(received)
    }

    fn plan(&mut self, io: Io<'_>, _moving: bool) -> Option<Wants> {
        let Io { link, shared, left } = io;
        let is_midway = self.is_midway();
        if is_midway {
            // The client's kernel may wait for it with the rest; only TCP knows this.
            let _ = set_tcp_quickack(&link.socket, true);
        }
        // Replies may have made room for requests that waited.
        if self.broken || self.session.is_finished() {
            return None;
        }
        if self.stuck {
            self.flush(Io { link, shared, left });
        }
        let holds_memory = match self.look_at_memory(shared, is_midway) {
            Held::Nothing => false,
            Held::Memory => true,
            Held::TooLong => {
                shared.totals().stalled += 1;
                return None;
            }
        };
        if !self.negotiated && shared.now() > self.handshake_end {
            shared.totals().handshakes_given_up += 1;
            return None;
        }
        let stopping = shared.is_stopping();
        if stopping {
            let now = shared.now();
            if now > *self.farewell.get_or_insert(now + FAREWELL) {
                return None;
            }
        }
        let mut socket = PollFlags::empty();
        socket.set(PollFlags::IN, self.session.state().wants_input);
        socket.set(PollFlags::OUT, self.stuck);
        // A thread that only waits for its client has no other wake-ups, so idle connections cost nothing.
        Some(Wants { socket, other: None, impatient: !self.negotiated || stopping || holds_memory })
    }

    /// Waits in the receiving call itself, for at most [`ATTENTION`].
    fn receive_alone(connection: &Connection<Self>, worker: &mut Worker) -> Option<Seen> {
        let mut buffer = [0; RECEIVE_ALONE_BYTES];
        let socket = &connection.link.socket;
        let begun = worker.shared.now();
        let mut look = None;
        if let Some(lingering) = worker.begin_linger(begun) {
            look = look_alone(socket, &lingering, &mut buffer, begun);
            if look.is_none() {
                worker.end_linger();
            }
        }
        let (received, found, now) = look.unwrap_or_else(|| {
            let begun = worker.shared.now();
            let received = recv(socket, &mut buffer, RecvFlags::empty());
            let now = worker.shared.now();
            let asleep = now.saturating_sub(begun);
            if asleep > ASLEEP_MIN {
                worker.slept(begun, now);
                (received, Found::Woken { asleep }, now)
            } else {
                (received, Found::Busy, now)
            }
        });
        connection.state().protocol.take_in(&connection.link, &buffer, received, now);
        Some(Seen { at: now, found })
    }

    fn is_midway(&self) -> bool {
        self.session.state().is_midway
    }

    fn outlet(&self) -> Outlet {
        match (self.broken, self.stuck) {
            (true, _) => Outlet::Closed,
            (false, true) => Outlet::Full,
            (false, false) => Outlet::Open,
        }
    }

    fn end_input(link: &Link) {
        let _ = shutdown(&link.socket, Shutdown::Read);
    }

    fn cut(link: &Link) {
        let _ = shutdown(&link.socket, Shutdown::Both);
    }

    fn way(link: &Link) -> Option<Way> {
        let address = getsockname(&link.socket);
        let is_local = matches!(address, Ok(address) if address.address_family() == AddressFamily::UNIX);
        Some(if is_local { Way::Local } else { Way::Tcp })
    }

    fn finish(&mut self, left: &mut Left, totals: &mut Totals) {
        let dropped: Vec<Departure> = self.unsent.departures.drain(..).map(|(departure, _)| departure).collect();
        left.dropped(&dropped);
        totals.refused_requests += self.session.state().refused_requests;
        totals.dropped_completions += dropped.len() as u64;
    }
}

impl<S: StreamSession> StreamConnection<S> {
    /// Receives available bytes.
    fn receive_into_session(&mut self, link: &Link) {
        let room = self.session.receive_room();
        if room.is_empty() {
            return;
        }
        match recv(&link.socket, room, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => self.session.input_ended(),
            Ok((_, len)) => self.session.received(len),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.session.input_ended(),
        }
    }

    /// Takes bytes received outside the session, and later ones.
    fn take_in(&mut self, link: &Link, buffer: &[u8], received: Received, now: Nanos) {
        match received {
            Ok((_, 0)) => self.session.input_ended(),
            Ok((_, len)) => {
                self.idleness.ended(now);
                let mut rest = &buffer[..len];
                while !rest.is_empty() {
                    let room = self.session.receive_room();
                    let taken = room.len().min(rest.len());
                    room[..taken].copy_from_slice(&rest[..taken]);
                    self.session.received(taken);
                    rest = &rest[taken..];
                }
                if len == buffer.len() {
                    self.receive_into_session(link);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.session.input_ended(),
        }
    }

    /// Frees memory that is not needed now, at once if others wait for it.
    fn look_at_memory(&mut self, shared: &Shared, is_midway: bool) -> Held {
        let session = self.session.state();
        if session.waits_for_memory && !self.stuck {
            // The client can't make progress, so this is not idleness.
            self.idleness.ended(shared.now());
        }
        if session.held_bytes <= KEPT_BYTES {
            return if session.waits_for_memory { Held::Memory } else { Held::Nothing };
        }
        let (idle, is_short) = (shared.now().saturating_sub(self.idleness.since), shared.client_memory.is_short());
        if is_short && (is_midway || self.stuck) && idle > shared.options.handshake_max {
            return Held::TooLong;
        }
        if is_short || idle > KEPT_IDLE {
            self.session.release_idle_memory();
        }
        let session = self.session.state();
        if session.held_bytes > KEPT_BYTES || session.waits_for_memory { Held::Memory } else { Held::Nothing }
    }
}

/// Receives by polling, without sleeping; `None` if nothing came in time.
fn look_alone(
    socket: &OwnedFd,
    lingering: &Lingering,
    buffer: &mut [u8],
    begun: Nanos,
) -> Option<(Received, Found, Nanos)> {
    let mut last_look = begun;
    loop {
        let received = recv(socket, &mut *buffer, RecvFlags::DONTWAIT);
        let now = lingering.now();
        match received {
            Err(Errno::AGAIN) if now < lingering.until => last_look = now,
            Err(Errno::AGAIN) => return None,
            received => return Some((received, Found::Polled { since: now.saturating_sub(last_look) }, now)),
        }
    }
}

/// Begin of the time without input from a client and without output that it accepted.
struct Idleness {
    since: Nanos,
}

/// Resources held by a connection.
enum Held {
    /// No memory that could be freed.
    Nothing,
    Memory,
    /// Memory for which others wait, held by a client without progress.
    TooLong,
}

/// Time for which an idle connection keeps its buffers; most clients send again before.
const KEPT_IDLE: Nanos = Nanos::from_secs(1);
/// Memory that a connection keeps even when idle.
const KEPT_BYTES: u64 = 4 << 10;

impl Idleness {
    fn ended(&mut self, now: Nanos) {
        self.since = now;
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

    /// Reports sent departures: all if `all`, otherwise those within the bytes sent, without heads.
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

/// The time after which a receive that waits returns without data.
pub(super) const RECEIVE_TIMEOUT: std::time::Duration = std::time::Duration::from_nanos(ATTENTION.as_nanos());
