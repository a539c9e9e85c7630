//! The kernel's ublk driver: the device as a block device of this host, without a file system between.

mod ring;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::ThreadId;

use chronodisk_engine::{Departure, real_host};
use chronodisk_sim::{Nanos, RequestId, Status};
use chronodisk_store::{Store, StoreError};
use rustix::event::PollFlags;
use rustix::process::configure_io_flusher_behavior;

use self::ring::Ring;
use super::connection::{FAREWELL, Incoming, Io, Link, NotMoved, Outlet, Protocol, Wants, serve_connection};
use super::listen::{Counted, STACK_BYTES};
use super::peer::{Left, Moment, raise};
use super::work::{Lent, Work, WorkKind};
use super::{Acceptor, AttachPermissions, ListenError, Server, Shared, Totals};
use crate::ublk::{Payload, RESULT_DATA_LOST, UblkCommand, UblkDisk, UblkEvent, UblkReply, UblkRequest, UblkSession};

/// Ends the server's part of an attached block device.
pub struct UblkCut {
    shared: Arc<Shared>,
    connection: u32,
}

impl UblkCut {
    /// Makes all requests of the block device fail from now on: the kernel sees that its server is gone.
    pub fn cut(&self) {
        let peer = self.shared.peers().get(&self.connection).cloned();
        peer.iter().for_each(|peer| peer.abandon());
    }
}

impl Clone for UblkCut {
    fn clone(&self) -> Self {
        UblkCut { shared: self.shared.clone(), connection: self.connection }
    }
}

impl std::fmt::Debug for UblkCut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UblkCut").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl Server {
    /// Serves the device as `disk` to the ublk driver. `device` is an opened `/dev/ublkcN` with one queue of
    /// [`QUEUE_DEPTH`](crate::ublk::QUEUE_DEPTH) tags, requests of up to
    /// [`REQUEST_BYTES_MAX`](crate::ublk::REQUEST_BYTES_MAX) bytes, and user copy. When this returns, a command for
    /// each tag is at the kernel, and the caller can start the block device.
    ///
    /// It counts as a listener and as a connection: [`stop`](Self::stop) answers outstanding requests and closes the
    /// descriptor. The kernel then fails later requests and removes the block device, so the caller first stops it.
    ///
    /// No thread of the server is a real-time thread from here on, as by [`attach_fuse`](Self::attach_fuse). The
    /// process locks its memory, as far as permitted.
    ///
    /// # Errors
    /// [`ListenError`], if `disk` does not fit the store, or the host refuses io_uring, a descriptor or a thread.
    pub fn attach_ublk(
        &mut self,
        device: OwnedFd,
        disk: UblkDisk,
    ) -> Result<(AttachPermissions, UblkCut), ListenError> {
        let failed = |action| move |source| ListenError { address: "ublk".to_owned(), action, source };
        let invalid = |reason| failed("checking the disk")(io::Error::new(io::ErrorKind::InvalidInput, reason));
        disk.check().map_err(invalid)?;
        if disk.size_bytes != self.shared.store().capacity_bytes() {
            return Err(invalid("size_bytes: expected the size of the store"));
        }
        // Real-time threads change their priority when they are woken.
        self.shared.attached.store(true, Ordering::Relaxed);
        self.shared.peers().values().for_each(|peer| peer.nudge());
        let memory_locked = real_host::lock_touched_memory().is_ok();
        let transport = self.shared.core().clock.add_transport("ublk", self.shared.options.timing);
        self.shared.totals().connections += 1;
        self.shared.connection_count.fetch_add(1, Ordering::Relaxed);
        let connection = self.shared.new_connection();
        let shared = self.shared.clone();
        let (tell, told) = mpsc::channel();
        let serving = move || {
            let counted = Counted(&shared);
            // A helper that this thread starts inherits it.
            let io_flusher = configure_io_flusher_behavior(true).is_ok();
            let ring = Ring::start(device).and_then(|ring| ring.descriptor().map(|socket| (ring, socket)));
            match ring {
                Ok((ring, socket)) => {
                    let _ = tell.send(Ok(io_flusher));
                    let protocol = UblkConnection::new(ring, disk);
                    serve_connection(&shared, connection, transport, (socket, None), protocol);
                }
                Err(error) => drop(tell.send(Err(error))),
            }
            drop(counted);
        };
        let thread = std::thread::Builder::new().name("ublk".into()).stack_size(STACK_BYTES).spawn(serving);
        let thread = thread.map_err(|source| {
            self.shared.connection_count.fetch_sub(1, Ordering::Relaxed);
            failed("starting a thread")(source)
        })?;
        self.acceptors.push(Acceptor::of(thread));
        let started = told.recv().unwrap_or_else(|_| Err(io::Error::other("the serving thread has ended")));
        let io_flusher = started.map_err(failed("fetching requests"))?;
        let cut = UblkCut { shared: self.shared.clone(), connection };
        Ok((AttachPermissions { io_flusher, memory_locked }, cut))
    }
}

/// The queue's connection.
struct UblkConnection {
    session: UblkSession,
    ring: Ring,
    /// The thread that may send commands.
    owner: ThreadId,
    /// Completed commands and bytes to take before completions are looked at again.
    batch_commands: usize,
    batch_bytes: usize,
    /// Completions by other threads, whose results this thread has to send.
    unsent: Vec<Departure>,
    /// Deadline of outstanding requests after the server stops.
    farewell: Option<Nanos>,
    broken: bool,
}

/// Commands and bytes that are taken at once. Completions wait meanwhile.
const BATCH_COMMANDS_MAX: usize = 32;
const BATCH_BYTES_MAX: usize = 256 << 10;

impl UblkConnection {
    fn new(ring: Ring, disk: UblkDisk) -> Self {
        UblkConnection {
            session: UblkSession::new(disk),
            ring,
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

    /// Takes a completed command. The device's request, if it has one.
    fn take_command(&mut self, shared: &Shared) -> Option<UblkRequest> {
        let (tag, result) = self.ring.completed()?;
        match self.session.fetched(tag, result, self.ring.request(tag)) {
            Ok(Some(UblkEvent::Request(request))) => {
                if request.command == UblkCommand::Write {
                    self.batch_bytes += request.len_bytes as usize;
                    if let Err(error) = self.ring.copy_from_request(tag, self.session.room(tag)) {
                        // The block device is being removed, which fails the request anyway.
                        shared.note_violation(&format_args!("copying a write from the ublk driver: {error}"));
                        self.session.refuse(tag);
                        return None;
                    }
                }
                Some(request)
            }
            Ok(Some(UblkEvent::Ended) | None) => None,
            Err(violation) => {
                shared.note_violation(&violation);
                self.broken = true;
                None
            }
        }
    }

    /// Copies the data of completed reads, and prepares the results.
    fn prepare_replies(&mut self) {
        while let Some(reply) = self.session.next_reply() {
            let UblkReply { tag, result, data } = reply;
            let is_copied = data.is_empty() || self.ring.copy_to_request(tag, data).is_ok();
            self.broken |= self.ring.commit(tag, if is_copied { result } else { RESULT_DATA_LOST }).is_err();
            self.session.sent();
        }
    }

    /// Sends the prepared results with one call.
    fn submit(&mut self) {
        self.broken |= self.ring.submit().is_err();
    }
}

impl Protocol for UblkConnection {
    const NAME: &'static str = "ublk connection";
    const HELPER: &'static str = "a helper of a ublk connection";
    type Payload = Payload;

    fn next_request(&mut self, _link: &Link, shared: &Shared) -> Option<Incoming> {
        while self.batch_commands > 0 && self.batch_bytes < BATCH_BYTES_MAX && !self.broken {
            self.batch_commands -= 1;
            if let Some(request) = self.take_command(shared) {
                // The skeleton sets id and issuer.
                let for_device = request.device_request(RequestId(0), 0, 0);
                let slot = request.tag.into();
                return Some(Incoming::ToMove { slot, request: Some(for_device), work: work(&request), seen: None });
            }
        }
        None
    }

    fn execute(&mut self, slot: u32, store: &mut dyn Store) -> Result<(), NotMoved> {
        self.session.execute(tag_of(slot), store).map_err(|error| match error {
            StoreError::WouldWait => NotMoved::WouldWait,
            error => NotMoved::Failed(error.to_string()),
        })
    }

    fn lend(&mut self, slot: u32) -> Lent<Payload> {
        match self.session.lend(tag_of(slot)) {
            Some(room) => Lent::Read(room),
            None => self.session.take_payload(tag_of(slot)).map_or(Lent::Nothing, Lent::Write),
        }
    }

    fn give_back(&mut self, slot: u32, _work: &Work, lent: Lent<Payload>, moved: Result<(), StoreError>) {
        let tag = tag_of(slot);
        match lent {
            Lent::Read(buffer) => self.session.give_back(tag, buffer, moved.is_ok()),
            Lent::Write(payload) => self.session.give_payload(tag, payload),
            Lent::Nothing => {}
        }
        if let Err(error) = moved {
            self.session.failed(tag, &error);
        }
    }

    fn complete(&mut self, slot: u32, status: Status) {
        self.session.complete(tag_of(slot), status);
    }

    fn deliver(&mut self, link: &Link, departures: &[Departure], moment: &mut Moment<'_>, left: &mut Left) {
        for departure in departures {
            self.complete(departure.id.slot, departure.status);
        }
        // The driver accepts commands of one thread only.
        if !self.is_own_thread() {
            self.unsent.extend_from_slice(departures);
            raise(&link.event);
            return;
        }
        self.prepare_replies();
        let begun = moment.wait();
        self.submit();
        left.sent(departures, begun, moment.shared.now());
    }

    fn flush(&mut self, io: Io<'_>) {
        if !self.session.has_output() && self.unsent.is_empty() {
            return;
        }
        if !self.is_own_thread() {
            raise(&io.link.event);
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
        self.batch_commands = self.ring.completed_count().min(BATCH_COMMANDS_MAX);
        self.batch_bytes = 0;
        Some(received)
    }

    fn plan(&mut self, io: Io<'_>, moving: bool) -> Option<Wants> {
        let is_answered = self.session.outstanding() == 0 && !moving;
        if self.broken || (self.session.has_ended() && is_answered) {
            return None;
        }
        let stopping = io.shared.is_stopping();
        if stopping {
            let now = io.shared.now();
            if is_answered || now > *self.farewell.get_or_insert(now + FAREWELL) {
                return None;
            }
        }
        // The remaining commands of a removed block device need no answer.
        let listening = !stopping && !self.session.has_ended();
        let socket = if listening { PollFlags::IN } else { PollFlags::empty() };
        Some(Wants { socket, other: None, impatient: !listening })
    }

    fn outlet(&self) -> Outlet {
        if self.broken { Outlet::Closed } else { Outlet::Open }
    }

    /// The thread sees that the server stops.
    fn end_input(_link: &Link) {}

    /// The kernel's requests fail when the thread has closed the ring.
    fn cut(_link: &Link) {}

    fn finish(&mut self, left: &mut Left, totals: &mut Totals) {
        left.dropped(&self.unsent);
        totals.refused_requests += self.session.refused_requests();
    }
}

/// The session gave the slot, so it is a tag.
fn tag_of(slot: u32) -> u16 {
    slot as u16
}

/// A request's work on the store.
fn work(request: &UblkRequest) -> Work {
    let kind = match request.command {
        UblkCommand::Read => WorkKind::Read,
        UblkCommand::Write => WorkKind::Write,
        UblkCommand::Flush => WorkKind::Nothing,
        UblkCommand::Discard => WorkKind::Discard,
        UblkCommand::WriteZeroes => WorkKind::WriteZeroes,
    };
    let flush = request.command == UblkCommand::Flush || request.fua;
    Work { kind, offset_bytes: request.offset_bytes, len_bytes: request.len_bytes, flush }
}
