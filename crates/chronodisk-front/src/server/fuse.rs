//! The kernel as a client, by FUSE.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use chronodisk_engine::{Departure, Found, TransportIndex, real_host};
use chronodisk_sim::{Nanos, RequestId, Status};
use chronodisk_store::{Store, StoreError};
use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::configure_io_flusher_behavior;

use super::connection::{FAREWELL, Incoming, Io, Link, NotMoved, Outlet, Protocol, Wants, serve_connection};
use super::listen::{Counted, STACK_BYTES};
use super::moving::{Lent, Work, WorkKind};
use super::peer::{Left, Moment};
use super::worker::Seen;
use super::{ListenError, Server, Shared, Totals};
use crate::fuse::{FuseCommand, FuseEvent, FuseFile, FuseRequest, FuseSession, Payload};

/// Permissions granted by the host for a device attached by FUSE. Without them, writing dirty pages to the device may
/// wait for memory that only this writing would free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachPermissions {
    /// The serving thread does not wait for the device's own write-back when it needs memory (`PR_SET_IO_FLUSHER`;
    /// needs `CAP_SYS_RESOURCE`).
    pub io_flusher: bool,
    /// The process is not paged out (`mlockall`; needs `CAP_IPC_LOCK` or no limit on locked memory).
    pub memory_locked: bool,
}

impl Server {
    /// Serves the device as `file`, the root of a FUSE file system. `descriptor` is `/dev/fuse`, opened for reading and
    /// writing and mounted by the caller with the option `rootmode=` [`FILE_ROOT_MODE`](crate::fuse::FILE_ROOT_MODE).
    /// The kernel learns its size at the first request for the file's attributes, as by fstat(2).
    ///
    /// It counts as a listener and as a connection: [`stop`](Self::stop) answers outstanding requests and closes the
    /// descriptor. The kernel fails later requests once no duplicate of the descriptor is left, so the caller keeps
    /// none, and first detaches every user of the file.
    ///
    /// From here on no thread of the server is a real-time thread: the kernel's workers that bring a loop device's
    /// requests would not run. The process locks its memory, as far as permitted. With a stable number and size of
    /// requests, a store in memory, and blocks that were written before, serving allocates only entries of the request
    /// log.
    ///
    /// # Errors
    /// [`ListenError`], if `file` does not fit the store, or the host refuses a descriptor or a thread.
    pub fn attach_fuse(&mut self, descriptor: OwnedFd, file: FuseFile) -> Result<AttachPermissions, ListenError> {
        let failed = |action| move |source| ListenError { address: "FUSE".to_owned(), action, source };
        let invalid = |reason| failed("checking the file")(io::Error::new(io::ErrorKind::InvalidInput, reason));
        file.check(self.shared.store().capacity_bytes()).map_err(invalid)?;
        let flags = fcntl_getfl(&descriptor).map_err(io::Error::from).map_err(failed("reading its flags"))?;
        let set = fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK);
        set.map_err(io::Error::from).map_err(failed("setting its flags"))?;
        // Real-time threads change their priority when they are woken.
        self.shared.attached.store(true, Ordering::Relaxed);
        self.shared.peers().values().for_each(|peer| peer.nudge());
        let memory_locked = real_host::lock_touched_memory().is_ok();
        let transport = self.shared.core().clock.add_transport("FUSE", self.shared.options.timing);
        self.shared.totals().connections += 1;
        self.shared.connection_count.fetch_add(1, Ordering::Relaxed);
        let connection = self.shared.new_connection();
        let shared = self.shared.clone();
        let (tell, told) = mpsc::channel();
        let serving = move || {
            // A helper that this thread starts inherits it.
            let _ = tell.send(configure_io_flusher_behavior(true).is_ok());
            let counted = Counted(&shared);
            serve(&shared, connection, transport, descriptor, file);
            drop(counted);
        };
        let thread = std::thread::Builder::new().name("fuse".into()).stack_size(STACK_BYTES).spawn(serving);
        let thread = thread.map_err(|source| {
            self.shared.connection_count.fetch_sub(1, Ordering::Relaxed);
            failed("starting a thread")(source)
        })?;
        self.acceptors.push(thread);
        Ok(AttachPermissions { io_flusher: told.recv().unwrap_or(false), memory_locked })
    }
}

/// The kernel's connection.
struct FuseConnection {
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

/// Serves the kernel until the file system is unmounted or the server stops.
fn serve(shared: &Arc<Shared>, connection: u32, transport: TransportIndex, descriptor: OwnedFd, file: FuseFile) {
    let protocol = FuseConnection {
        session: FuseSession::new(file),
        readable: false,
        batch_messages: 0,
        batch_bytes: 0,
        farewell: None,
        broken: false,
    };
    serve_connection(shared, connection, transport, (descriptor, None), protocol);
}

impl Protocol for FuseConnection {
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
            self.write_reply(link);
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

impl FuseConnection {
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
        while self.session.has_output() {
            self.write_reply(link);
        }
    }

    fn write_reply(&mut self, link: &Link) {
        let mut slices = [IoSlice::new(&[]); 3];
        let count = self.session.gather(&mut slices);
        if count == 0 {
            return;
        }
        let written = rustix::io::retry_on_intr(|| rustix::io::writev(&link.socket, &slices[..count]));
        // The kernel dropped the request if its issuer was killed.
        self.broken |= !matches!(written, Ok(_) | Err(Errno::NOENT));
        self.session.sent();
    }
}

/// A request's work on the store.
fn work(request: &FuseRequest) -> Work {
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
