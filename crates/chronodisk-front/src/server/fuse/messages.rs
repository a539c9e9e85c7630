//! The kernel's connection by reading and writing messages on `/dev/fuse`.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use chronodisk_engine::{Departure, Found};
use chronodisk_sim::{Nanos, RequestId, Status};
use chronodisk_store::{Store, StoreError};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::fuse::{FuseCommand, FuseEvent, FuseRequest, FuseSession, Payload};
use crate::server::connection::{FAREWELL, Incoming, Io, Link, NotMoved, Outlet, Protocol, Wants};
use crate::server::peer::{Left, Moment};
use crate::server::work::{Lent, Work, WorkKind};
use crate::server::worker::Seen;
use crate::server::{Shared, Totals};

/// The kernel's connection.
pub(super) struct MessageConnection {
    session: FuseSession,
    /// Messages may be there.
    readable: bool,
    /// Messages and bytes that were read since the descriptor was ready.
    batch_messages: usize,
    batch_bytes: usize,
    /// Deadline of outstanding requests after the server stops.
    farewell: Option<Nanos>,
    broken: bool,
}

/// Messages and bytes that are read at once. Completions wait meanwhile.
const BATCH_MESSAGES_MAX: usize = 32;
const BATCH_BYTES_MAX: usize = 256 << 10;

impl MessageConnection {
    /// A connection whose session may have answered the first message.
    pub fn new(session: FuseSession) -> Self {
        MessageConnection { session, readable: false, batch_messages: 0, batch_bytes: 0, farewell: None, broken: false }
    }
}

impl Protocol for MessageConnection {
    const NAME: &'static str = "FUSE connection";
    const HELPER: &'static str = "a helper of a FUSE connection";
    type Payload = Payload;

    fn next_request(&mut self, link: &Link, shared: &Shared) -> Option<Incoming> {
        while self.readable {
            let is_first = self.batch_messages == 0;
            match self.read_message(link, shared) {
                Some(FuseEvent::Request(request)) => {
                    // Later requests came while the first was served, at unknown instants.
                    let seen = (!is_first).then(|| Seen { at: shared.now(), found: Found::Busy });
                    // The skeleton sets id and issuer.
                    let for_device = request.device_request(RequestId(0), 0, 0);
                    let work = work(&request);
                    return Some(Incoming::ToMove { slot: request.slot, request: Some(for_device), work, seen });
                }
                Some(FuseEvent::Destroyed) => self.readable = false,
                None => {}
            }
        }
        None
    }

    fn execute(&mut self, slot: u32, store: &mut dyn Store) -> Result<(), NotMoved> {
        self.session.execute(slot, store).map_err(|error| match error {
            StoreError::WouldWait => NotMoved::WouldWait,
            error => NotMoved::Failed(error.to_string()),
        })
    }

    fn lend(&mut self, slot: u32) -> Lent<Payload> {
        match self.session.lend(slot) {
            Some(room) => Lent::Read(room),
            None => self.session.take_payload(slot).map_or(Lent::Nothing, Lent::Write),
        }
    }

    fn give_back(&mut self, slot: u32, _work: &Work, lent: Lent<Payload>, moved: Result<(), StoreError>) {
        match lent {
            Lent::Read(buffer) => self.session.give_back(slot, buffer, moved.is_ok()),
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
        let mut begun = moment.wait();
        // A call for each: all others were sent before.
        for departure in departures {
            self.broken |= !write_reply(&mut self.session, &link.socket);
            let returned = moment.shared.now();
            left.sent(std::slice::from_ref(departure), begun, returned);
            begun = returned;
        }
        self.write_replies(link);
    }

    fn flush(&mut self, io: Io<'_>) {
        self.write_replies(io.link);
    }

    fn receive(&mut self, io: Io<'_>, listening: bool) -> Option<Nanos> {
        if !listening {
            // The call did not block, so this is an error: the kernel has ended the connection.
            self.broken = true;
            return None;
        }
        (self.batch_messages, self.batch_bytes) = (0, 0);
        self.readable = true;
        Some(io.shared.now())
    }

    fn plan(&mut self, io: Io<'_>, moving: bool) -> Option<Wants> {
        if self.broken || self.session.has_ended() {
            return None;
        }
        let stopping = io.shared.is_stopping();
        if stopping {
            let now = io.shared.now();
            let is_answered = self.session.outstanding() == 0 && !moving;
            if is_answered || now > *self.farewell.get_or_insert(now + FAREWELL) {
                return None;
            }
        }
        let mut socket = PollFlags::empty();
        socket.set(PollFlags::IN, !stopping && self.session.wants_input());
        Some(Wants { socket, other: None, impatient: stopping })
    }

    fn outlet(&self) -> Outlet {
        if self.broken { Outlet::Closed } else { Outlet::Open }
    }

    /// The thread sees that the server stops.
    fn end_input(_link: &Link) {}

    /// The kernel's requests fail when the thread has closed the descriptor.
    fn cut(_link: &Link) {}

    fn finish(&mut self, _left: &mut Left, totals: &mut Totals) {
        totals.refused_requests += self.session.refused_requests();
    }
}

impl MessageConnection {
    /// Reads a message, and answers it if the device is not asked.
    fn read_message(&mut self, link: &Link, shared: &Shared) -> Option<FuseEvent> {
        let is_enough = self.batch_messages >= BATCH_MESSAGES_MAX || self.batch_bytes >= BATCH_BYTES_MAX;
        if is_enough || !self.session.wants_input() {
            self.readable = false;
            return None;
        }
        match rustix::io::read(&link.socket, self.session.receive_room()) {
            // A test plays the kernel with a socket, which was closed.
            Ok(0) => {
                (self.readable, self.broken) = (false, true);
                None
            }
            Ok(len) => {
                self.batch_messages += 1;
                self.batch_bytes += len;
                self.session.received(len);
                self.session.next_event()
            }
            // The issuer was killed between the announcement and the read.
            Err(Errno::NOENT | Errno::INTR) => None,
            Err(Errno::AGAIN) => {
                self.readable = false;
                None
            }
            Err(errno) => {
                // Unmounted, or aborted by the administrator.
                if !matches!(errno, Errno::NODEV | Errno::CONNABORTED) {
                    shared.note_violation(&format_args!("reading /dev/fuse: {errno}"));
                }
                (self.readable, self.broken) = (false, true);
                None
            }
        }
    }

    fn write_replies(&mut self, link: &Link) {
        self.broken |= !write_replies(&mut self.session, &link.socket);
    }
}

/// Writes all replies; returns false if the connection is broken.
pub(super) fn write_replies(session: &mut FuseSession, fuse: &OwnedFd) -> bool {
    let mut is_intact = true;
    while session.has_output() {
        is_intact &= write_reply(session, fuse);
    }
    is_intact
}

fn write_reply(session: &mut FuseSession, fuse: &OwnedFd) -> bool {
    let mut slices = [IoSlice::new(&[]); 3];
    let count = session.gather(&mut slices);
    if count == 0 {
        return true;
    }
    let written = rustix::io::retry_on_intr(|| rustix::io::writev(fuse, &slices[..count]));
    session.sent();
    // The kernel dropped the request if its issuer was killed.
    matches!(written, Ok(_) | Err(Errno::NOENT))
}

/// A request's work on the store.
pub(super) fn work(request: &FuseRequest) -> Work {
    let kind = match request.command {
        FuseCommand::Read => WorkKind::Read,
        FuseCommand::Write => WorkKind::Write,
        FuseCommand::Flush => WorkKind::Nothing,
        FuseCommand::Discard => WorkKind::Discard,
        FuseCommand::WriteZeroes => WorkKind::WriteZeroes,
    };
    let flush = request.command == FuseCommand::Flush;
    Work { kind, offset_bytes: request.offset_bytes, len_bytes: request.len_bytes, flush }
}
