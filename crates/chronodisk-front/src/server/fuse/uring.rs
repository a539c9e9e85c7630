//! The kernel's connection over io_uring.

use std::os::fd::OwnedFd;
use std::thread::ThreadId;

use chronodisk_engine::{Departure, Found};
use chronodisk_sim::{Nanos, RequestId, Status};
use chronodisk_store::{Store, StoreError};
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::messages::{work, write_replies};
use super::ring::{Completed, Ring};
use crate::fuse::ring_wire::put_reply;
use crate::fuse::{FuseEvent, FuseFile, FuseRequest, FuseRingReply, FuseRingSession, FuseSession, Payload};
use crate::server::connection::{Connection, FAREWELL, Incoming, Io, Link, NotMoved, Outlet, Protocol, Wants};
use crate::server::peer::{Left, Moment, raise};
use crate::server::work::{Lent, Work};
use crate::server::worker::{Seen, Worker};
use crate::server::{Shared, Totals};

/// The connection's entries, and its messages besides.
pub(super) struct RingConnection {
    session: FuseRingSession,
    ring: Ring,
    /// Messages that still come by `/dev/fuse`: the first, dropped references and interrupts.
    messages: FuseSession,
    fuse: OwnedFd,
    /// The thread that may send commands.
    owner: ThreadId,
    /// Completed commands and bytes to take before completions are looked at again.
    batch_commands: usize,
    batch_bytes: u64,
    /// Completions by other threads, whose replies this thread has to send.
    unsent: Vec<Departure>,
    /// Deadline of outstanding requests after the server stops.
    farewell: Option<Nanos>,
    broken: bool,
}

/// Commands and bytes that are taken at once. Completions wait meanwhile.
const BATCH_COMMANDS_MAX: usize = 32;
const BATCH_BYTES_MAX: u64 = 256 << 10;
/// Messages that are read at once.
const BATCH_MESSAGES_MAX: usize = 32;

impl RingConnection {
    /// A connection on a ring whose entries are registered.
    pub fn new(ring: Ring, messages: FuseSession, fuse: OwnedFd, file: FuseFile) -> Self {
        RingConnection {
            session: FuseRingSession::new(file, ring.entries()),
            ring,
            messages,
            fuse,
            owner: std::thread::current().id(),
            batch_commands: 0,
            batch_bytes: 0,
            unsent: Vec::new(),
            farewell: None,
            broken: false,
        }
    }

    fn is_own_thread(&self) -> bool {
        std::thread::current().id() == self.owner
    }

    /// Lets the kernel complete commands, and begins a batch of them.
    fn fetch(&mut self) {
        self.broken |= self.ring.fetch().is_err();
        self.batch_commands = self.ring.completed_count().min(BATCH_COMMANDS_MAX);
        self.batch_bytes = 0;
    }

    /// Takes a completed command. The device's request, if it has one.
    fn take_command(&mut self, shared: &Shared) -> Option<FuseRequest> {
        let (entry, result) = match self.ring.completed()? {
            Completed::Entry(entry, result) => (entry, result),
            Completed::Messages => {
                self.read_messages(shared);
                return None;
            }
        };
        match self.session.fetched(entry, result, &self.ring.header(entry)) {
            Ok(Some(FuseEvent::Request(request))) => Some(request),
            Ok(Some(FuseEvent::Destroyed) | None) => None,
            Err(violation) => {
                shared.note_violation(&violation);
                self.broken = true;
                None
            }
        }
    }

    /// Reads and answers messages. None of them is a request for the device.
    fn read_messages(&mut self, shared: &Shared) {
        for _ in 0..BATCH_MESSAGES_MAX {
            match rustix::io::read(&self.fuse, self.messages.receive_room()) {
                Ok(len) => {
                    self.messages.received(len);
                    if let Some(FuseEvent::Request(request)) = self.messages.next_event() {
                        shared.note_violation(&"FUSE over io_uring: a request came by /dev/fuse");
                        self.messages.complete(request.slot, Status::Aborted);
                    }
                    self.broken |= !write_replies(&mut self.messages, &self.fuse);
                }
                // The issuer was killed between the announcement and the read.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // Unmounted, or aborted by the administrator.
                Err(_) => {
                    self.broken = true;
                    return;
                }
            }
        }
        self.broken |= self.ring.expect_messages().is_err();
    }

    /// Puts replies into their entries' buffers, and prepares their commands.
    fn prepare_replies(&mut self) {
        while let Some(reply) = self.session.next_reply() {
            let FuseRingReply { entry, commit_id, header, body, payload_bytes } = reply;
            let mut bytes = self.ring.header(entry);
            put_reply(&mut bytes, header, payload_bytes);
            self.ring.put_header(entry, &bytes);
            self.ring.payload(entry, body.len()).copy_from_slice(body);
            self.broken |= self.ring.commit(entry, commit_id).is_err();
            self.session.sent();
        }
    }

    /// Sends the prepared replies with one call.
    fn submit(&mut self) {
        self.broken |= self.ring.submit().is_err();
    }
}

impl Protocol for RingConnection {
    const NAME: &'static str = "FUSE connection over io_uring";
    const HELPER: &'static str = "a helper of a FUSE connection over io_uring";
    type Payload = Payload;

    fn next_request(&mut self, _link: &Link, shared: &Shared) -> Option<Incoming> {
        while self.batch_commands > 0 && self.batch_bytes < BATCH_BYTES_MAX && !self.broken {
            self.batch_commands -= 1;
            if let Some(request) = self.take_command(shared) {
                self.batch_bytes += self.session.payload_bytes(request.slot) as u64;
                // The skeleton sets id and issuer.
                let for_device = request.device_request(RequestId(0), 0, 0);
                let (slot, work) = (request.slot, work(&request));
                return Some(Incoming::ToMove { slot, request: Some(for_device), work, seen: None });
            }
        }
        None
    }

    fn execute(&mut self, slot: u32, store: &mut dyn Store) -> Result<(), NotMoved> {
        let payload = self.ring.payload(slot, self.session.payload_bytes(slot));
        self.session.execute(slot, store, payload).map_err(|error| match error {
            StoreError::WouldWait => NotMoved::WouldWait,
            error => NotMoved::Failed(error.to_string()),
        })
    }

    fn lend(&mut self, slot: u32) -> Lent<Payload> {
        if let Some(room) = self.session.lend(slot) {
            return Lent::Read(room);
        }
        let payload = self.ring.payload(slot, self.session.payload_bytes(slot));
        self.session.take_payload(slot, payload).map_or(Lent::Nothing, Lent::Write)
    }

    fn give_back(&mut self, slot: u32, _work: &Work, lent: Lent<Payload>, moved: Result<(), StoreError>) {
        match lent {
            Lent::Read(buffer) => {
                let payload = self.ring.payload(slot, self.session.payload_bytes(slot));
                self.session.give_back(slot, buffer, moved.is_ok(), payload);
            }
            Lent::Write(payload) => self.session.give_payload(payload),
            Lent::Nothing => {}
        }
        if let Err(error) = moved {
            self.session.failed(slot, &error);
        }
    }

    fn complete(&mut self, slot: u32, status: Status) {
        self.session.complete(slot, status);
    }

    fn deliver(&mut self, link: &Link, departures: &[Departure], moment: &mut Moment<'_>, left: &mut Left) {
        for departure in departures {
            self.complete(departure.id.slot, departure.status);
        }
        // The kernel accepts commands of one thread only.
        if !self.is_own_thread() {
            self.unsent.extend_from_slice(departures);
            raise(&link.event);
            return;
        }
        self.prepare_replies();
        let begun = moment.wait();
        self.submit();
        let returned = moment.shared.now();
        // The kernel completes the replies of a call one after the other. Only the duration of a call with one reply is
        // a reply's lead.
        match departures {
            [_] => left.sent(departures, begun, returned),
            several => left.seen(several, returned),
        }
    }

    fn flush(&mut self, io: Io<'_>) {
        if !self.is_own_thread() {
            if self.session.has_output() {
                raise(&io.link.event);
            }
            return;
        }
        if !self.session.has_output() && self.unsent.is_empty() && !self.ring.has_prepared() {
            return;
        }
        self.prepare_replies();
        self.submit();
        io.left.seen(&self.unsent, io.shared.now());
        self.unsent.clear();
    }

    fn receive(&mut self, io: Io<'_>, listening: bool) -> Option<Nanos> {
        let received = io.shared.now();
        if !listening {
            // The call did not block, so this is an error: the ring is gone.
            self.broken = true;
            return None;
        }
        self.fetch();
        Some(received)
    }

    fn plan(&mut self, io: Io<'_>, moving: bool) -> Option<Wants> {
        let is_answered = self.session.outstanding() == 0 && !moving;
        let has_ended = self.session.has_ended() || self.messages.has_ended();
        if self.broken || (has_ended && is_answered) {
            return None;
        }
        let stopping = io.shared.is_stopping();
        if stopping {
            let now = io.shared.now();
            if is_answered || now > *self.farewell.get_or_insert(now + FAREWELL) {
                return None;
            }
        }
        // The remaining commands of an unmounted file system need no answer.
        let listening = !stopping && !has_ended;
        // The rest of a batch is not announced again.
        if listening && self.ring.completed_count() > 0 {
            self.ring.announce();
        }
        let socket = if listening { PollFlags::IN } else { PollFlags::empty() };
        Some(Wants { socket, other: None, impatient: !listening })
    }

    /// Looks for the kernel's next request without a system call.
    fn receive_alone(connection: &Connection<Self>, worker: &mut Worker) -> Option<Seen> {
        let mut last_look = worker.shared.now();
        let lingering = worker.begin_linger(last_look)?;
        while !connection.state().protocol.ring.is_announced() {
            let now = lingering.now();
            if now >= lingering.until {
                worker.end_linger();
                return None;
            }
            last_look = now;
            std::hint::spin_loop();
        }
        let at = lingering.now();
        connection.state().protocol.fetch();
        Some(Seen { at, found: Found::Polled { since: at.saturating_sub(last_look) } })
    }

    fn outlet(&self) -> Outlet {
        if self.broken { Outlet::Closed } else { Outlet::Open }
    }

    /// The thread sees that the server stops.
    fn end_input(_link: &Link) {}

    /// The kernel's requests fail when the thread has closed the ring and the descriptor.
    fn cut(_link: &Link) {}

    fn finish(&mut self, left: &mut Left, totals: &mut Totals) {
        left.dropped(&self.unsent);
        totals.refused_requests += self.session.refused_requests() + self.messages.refused_requests();
    }
}
