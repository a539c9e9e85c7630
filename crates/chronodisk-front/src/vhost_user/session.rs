//! One guest's connection: the thin shell with the socket, the ring and the store.

mod late;
mod zones;

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use chronodisk_device::ZoneMap;
use chronodisk_engine::HostClock;
use chronodisk_sim::{Lba, Nanos, Op, Request, RequestId, SECTOR_BYTES, Status};
use chronodisk_store::{Store, ZoneFile};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send};
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use vm_memory::{Bytes, GuestAddress};

use self::late::Late;
use self::zones::Group;
use super::memory::{GuestMemory, Sharing};
use super::message::{self, FDS_MAX, Message, MessageDecoder, PAYLOAD_BYTES_MAX, ProtocolError, code};
use super::{Answer, Backend, Doorbell, QUEUE_SIZE_MAX, Refusal, RingError};
use crate::late::LateChanges;
use crate::virtio_blk::{
    BadRequest, BadRequestKind, BlkConfig, BlkRequest, BlkStatus, Bounce, ConfigError, Limits, Operation, Segment,
    answer_identify, answer_report, execute, write_sector,
};

/// Most data in requests that have arrived and are not completed; further reads and writes end
/// with an I/O error.
pub const IN_FLIGHT_BYTES_MAX: u64 = 1 << 30;
/// Most requests in flight, those of reset rings included; further ones end with an I/O error.
pub const IN_FLIGHT_COUNT_MAX: usize = 4 * QUEUE_SIZE_MAX as usize;

/// Serves one guest over one socket.
///
/// The caller waits until [`as_fd`](AsFd::as_fd) is readable and calls
/// [`readable`](Self::readable); when a request is due it calls [`complete`](Self::complete), and
/// [`notify`](Self::notify) after all that are due at one instant. No call blocks, and none
/// looks at the guest's ring but on a kick.
#[derive(Debug)]
pub struct VhostUserSession {
    socket: UnixStream,
    decoder: MessageDecoder,
    backend: Backend,
    device: Device,
    next_id: u64,
    in_flight: BTreeMap<RequestId, InFlight>,
    in_flight_bytes: u64,
    /// Resets of all zones, by the first of their requests to the device.
    groups: BTreeMap<RequestId, Group>,
    /// Completions that became due while their ring was disabled, in that order.
    held: Vec<(RequestId, Status)>,
    /// Whether the used ring got entries that the guest was not told of.
    call_pending: bool,
    stats: VhostUserStats,
}

/// Receives the session's requests.
pub trait RequestHandler {
    /// A request arrived; its bytes have moved. Requests of one kick come in the order of the
    /// ring.
    fn arrived(&mut self, arrival: Arrival);

    /// All requests of a kick have arrived. With in-band kicks the guest stands still until this
    /// returns and the kick is acknowledged.
    fn before_acknowledge(&mut self);
}

/// A request at the instant at which the device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The request; its range lies inside the device.
    pub request: Request,
    /// Host time that moving the bytes took.
    pub store_time: Nanos,
    /// The store failed: the guest gets an I/O error, regardless of the completion's status.
    pub failed: bool,
}

impl Arrival {
    /// The bytes as the engine knows them.
    #[must_use]
    pub fn bytes(&self) -> chronodisk_engine::Transfer {
        let took = self.store_time;
        match self.failed {
            true => chronodisk_engine::Transfer::Failed { took },
            false => chronodisk_engine::Transfer::Moved { took },
        }
    }
}

/// Whether there is more to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Wait for the socket again.
    Continue,
    /// The guest has closed the connection.
    Ended,
}

/// Counters of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VhostUserStats {
    /// Messages received.
    pub messages: u64,
    /// Kicks served.
    pub kicks: u64,
    /// Calls sent.
    pub calls: u64,
    /// Requests that arrived, by the position of their kind in [`Op::ALL`].
    pub requests: [u64; Op::ALL.len()],
    /// Bytes of the reads among them.
    pub read_bytes: u64,
    /// Bytes of the writes and zone appends among them.
    pub written_bytes: u64,
    /// Questions for the serial.
    pub identifications: u64,
    /// Reports of zones.
    pub zone_reports: u64,
    /// Requests that the zones refused, by the status that the guest got: writes off the pointer, and beyond limits.
    pub zone_refusals: BTreeMap<Status, u64>,
    /// Invalid chains, by kind of error.
    pub bad_requests: BTreeMap<BadRequestKind, u64>,
    /// Requests that the store could not do.
    pub store_errors: u64,
    /// The first of these errors.
    pub first_store_error: Option<String>,
    /// Completions of requests whose ring was reset meanwhile; the guest never sees them.
    pub dropped_completions: u64,
    /// Messages that were answered with a negative acknowledgement.
    pub refused_messages: u64,
    /// The first reason for one.
    pub first_refusal: Option<String>,
    /// Rings that had to be stopped because the guest broke the rules.
    pub ring_failures: u64,
    /// The first reason for one.
    pub first_ring_failure: Option<RingError>,
}

/// Why a session can't go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VhostUserError {
    /// The device's description is wrong.
    #[error("device: {0}")]
    Config(#[from] ConfigError),
    /// The store has another size than the device.
    #[error("the store has {store_bytes} bytes, expected {device_bytes} for the device")]
    StoreSize {
        /// Size of the store in bytes.
        store_bytes: u64,
        /// Size of the device in bytes.
        device_bytes: u64,
    },
    /// The guest broke the format of the protocol.
    #[error("vhost-user: {0}")]
    Protocol(#[from] ProtocolError),
    /// The guest asked for something that can't be, and did not ask to be told.
    #[error("vhost-user: {} (code {code}): {refusal}", code::name(*code))]
    Refused {
        /// Code of the message.
        code: u32,
        /// Why.
        refusal: Refusal,
    },
    /// The guest closed the connection in the middle of a message.
    #[error("vhost-user: the connection ended in the middle of a message")]
    Truncated,
    /// The guest has taken memory away that it had shared.
    #[error("vhost-user: {0}")]
    MemoryGone(String),
    /// The guest does not read our replies.
    #[error("vhost-user: the guest does not read the replies that it asked for")]
    NotReading,
    /// The host failed.
    #[error("vhost-user socket: {operation}: {source}")]
    Io {
        /// The attempted operation.
        operation: &'static str,
        /// The host's error.
        source: io::Error,
    },
}

impl VhostUserSession {
    /// Serves `config` with the bytes of `store` to the driver at the other end of `socket`. `clock` measures the time
    /// of moving bytes ([`Arrival::store_time`]).
    ///
    /// # Errors
    /// [`VhostUserError::Config`], [`VhostUserError::StoreSize`].
    pub fn new(
        socket: UnixStream,
        config: BlkConfig,
        store: Box<dyn Store>,
        clock: Box<dyn HostClock>,
    ) -> Result<Self, VhostUserError> {
        let features = config.features();
        VhostUserSession::with_features(socket, Device::new(config, store, clock), features, Sharing::OwnProcess)
    }

    /// As [`new`](Self::new), for a process that serves other clients, too: a guest that takes its memory away ends its
    /// own session only. And lets the guest leave out kicks and calls that tell nothing new
    /// (`VIRTIO_RING_F_EVENT_IDX`): for a guest whose time is not stopped by kicks.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_event_idx(
        socket: UnixStream,
        config: BlkConfig,
        store: Box<dyn Store>,
        clock: Box<dyn HostClock>,
    ) -> Result<Self, VhostUserError> {
        let features = config.features() | 1 << VIRTIO_RING_F_EVENT_IDX;
        VhostUserSession::with_features(socket, Device::new(config, store, clock), features, Sharing::Server)
    }

    fn with_features(
        socket: UnixStream,
        device: Device,
        features: u64,
        sharing: Sharing,
    ) -> Result<Self, VhostUserError> {
        device.config.check()?;
        let device_bytes = device.config.capacity_sectors * SECTOR_BYTES;
        let store_bytes = device.store.capacity_bytes();
        if store_bytes != device_bytes {
            return Err(VhostUserError::StoreSize { store_bytes, device_bytes });
        }
        Ok(VhostUserSession {
            socket,
            decoder: MessageDecoder::new(),
            backend: Backend::new(features, device.config.space(), sharing),
            device,
            next_id: 0,
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            groups: BTreeMap::new(),
            held: Vec::new(),
            call_pending: false,
            stats: VhostUserStats::default(),
        })
    }

    /// Receives and obeys one message, if it is there as a whole; to be called when the socket is
    /// readable. On a kick, all requests that are available arrive at `handler` before the kick
    /// is acknowledged.
    ///
    /// # Errors
    /// [`VhostUserError`] if the session can't go on.
    pub fn readable(&mut self, handler: &mut dyn RequestHandler) -> Result<Flow, VhostUserError> {
        loop {
            let mut buffer = [0; PAYLOAD_BYTES_MAX];
            let wanted = self.decoder.wanted_bytes();
            let (received, fds) = match receive(&self.socket, &mut buffer[..wanted]) {
                Ok(Received::Data { len, fds }) => (len, fds),
                Ok(Received::NothingYet) => return Ok(Flow::Continue),
                Ok(Received::End) if self.decoder.is_between_messages() => return Ok(Flow::Ended),
                Ok(Received::End) => return Err(VhostUserError::Truncated),
                Err(error) => return Err(error),
            };
            if let Some(message) = self.decoder.receive(&buffer[..received], fds)? {
                self.stats.messages += 1;
                return self.obey(message, handler);
            }
        }
    }

    /// The descriptor on which kicks come if the guest does not send them in band; `None` while
    /// the ring does not run.
    #[must_use]
    pub fn kick_fd(&self) -> Option<&Arc<OwnedFd>> {
        self.backend.vring(QUEUE).running_kick().map(Doorbell::fd)
    }

    /// Serves a kick that came on [`kick_fd`](Self::kick_fd); to be called when that is readable.
    /// The guest runs on meanwhile.
    ///
    /// # Errors
    /// [`VhostUserError::Io`] if the kick can't be read or the guest can't be notified.
    pub fn kicked(&mut self, handler: &mut dyn RequestHandler) -> Result<(), VhostUserError> {
        let Some(kick) = self.backend.vring(QUEUE).running_kick() else { return Ok(()) };
        let kicked =
            kick.take().map_err(|errno| VhostUserError::Io { operation: "reading a kick", source: errno.into() })?;
        if !kicked {
            return Ok(());
        }
        self.serve_kick(QUEUE, handler).map(|_served| ())
    }

    /// Gives a request back to the guest: status byte and used ring. The guest is told by the
    /// next [`notify`](Self::notify).
    ///
    /// While the ring is disabled the completion is kept until it is enabled again; if the ring
    /// was reset since the request arrived, the completion is dropped.
    pub fn complete(&mut self, id: RequestId, status: Status) {
        let Some(entry) = self.in_flight.get(&id) else { return };
        let vring = self.backend.vring(QUEUE);
        let is_current = entry.epoch == vring.epoch();
        if is_current && !vring.is_running() {
            self.held.push((id, status));
            return;
        }
        let Some(entry) = self.in_flight.remove(&id) else { return };
        self.in_flight_bytes -= entry.data_bytes;
        if let Some(zones) = &mut self.device.zones {
            zones.completed(entry.op, entry.sector);
        }
        let memory = self.backend.memory().filter(|_| is_current).cloned();
        let has_failed =
            entry.late.is_some() && self.timed(|device| device.move_late(&entry, status, memory.as_ref())).1;
        let status = if entry.failed || has_failed { BlkStatus::IoError } else { status.into() };
        let Some(status) = self.leave_group(&entry, status) else { return };
        let Some(memory) = memory else {
            self.stats.dropped_completions += 1;
            return;
        };
        if status == BlkStatus::Ok && !entry.written_at.is_empty() {
            // Memory may have moved since the address was checked.
            let _ = write_sector(entry.sector, &entry.written_at, &*memory);
        }
        let used = Used {
            head: entry.head,
            status_address: Some(entry.status_address),
            status,
            filled_bytes: if status == BlkStatus::Ok { entry.fills_bytes } else { 0 },
        };
        if let Err(error) = self.push_used(&memory, &used) {
            self.fail_ring(error);
        }
    }

    /// Notifies the guest of new entries in the used ring, if there are any; never blocks. A disconnected guest is no
    /// error here: [`readable`](Self::readable) reports it.
    ///
    /// # Errors
    /// The host's error otherwise.
    pub fn notify(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.call_pending) {
            return Ok(());
        }
        if let Some(memory) = self.backend.memory().cloned()
            && !self.backend.vring_mut(QUEUE).wants_call(&memory)
        {
            return Ok(());
        }
        self.stats.calls += 1;
        let called = if let Some(call) = &self.backend.vring(QUEUE).call {
            call.ring()
        } else if let Some(channel) = self.backend.call_channel() {
            let call = message::vring_call(QUEUE as u32);
            send(channel, &call, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(|_sent| ())
        } else {
            // Neither was set up: the guest polls.
            Ok(())
        };
        match called {
            // A full channel holds calls that the guest has not read: it will look at the ring.
            Ok(()) | Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Requests in flight, those of a reset ring included.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.in_flight.len()
    }

    /// Why the guest's memory can no longer be accessed, if so: the session has to end.
    #[must_use]
    pub fn memory_fault(&self) -> Option<&str> {
        self.backend.memory().and_then(|memory| memory.fault())
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> &VhostUserStats {
        &self.stats
    }

    /// The bytes of the device.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.device.store
    }

    /// Ends the session and gives the bytes of the device back.
    #[must_use]
    pub fn into_store(self) -> Box<dyn Store> {
        self.device.store
    }

    fn obey(&mut self, message: Message, handler: &mut dyn RequestHandler) -> Result<Flow, VhostUserError> {
        let code = message.code;
        let flow = match self.backend.handle(message).map_err(|refusal| VhostUserError::Refused { code, refusal })? {
            Answer::Silence => Flow::Continue,
            Answer::Reply(bytes) => self.send(&bytes)?,
            Answer::Refused { reply, refusal } => {
                self.refuse(|| format!("{}: {refusal}", code::name(code)));
                self.send(&reply)?
            }
            Answer::Kick { queue, acknowledge } => {
                let served = self.serve_kick(queue, handler)?;
                if acknowledge { self.send(&message::acknowledgement(code, served))? } else { Flow::Continue }
            }
        };
        self.release_held()?;
        Ok(flow)
    }

    fn send(&self, bytes: &[u8]) -> Result<Flow, VhostUserError> {
        match send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(len) if len == bytes.len() => Ok(Flow::Continue),
            Ok(_) | Err(Errno::AGAIN) => Err(VhostUserError::NotReading),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(Flow::Ended),
            Err(errno) => Err(VhostUserError::Io { operation: "sending a reply", source: errno.into() }),
        }
    }

    /// Takes all available requests; false if the ring could not be served.
    fn serve_kick(&mut self, queue: usize, handler: &mut dyn RequestHandler) -> Result<bool, VhostUserError> {
        self.stats.kicks += 1;
        let served = self.take_available(queue, handler);
        self.device.bounce.trim();
        match served {
            Ok(()) => {}
            // The ring is unchanged, and requests in flight may still be completed.
            Err(RingError::NotRunning) => {
                self.refuse(|| format!("{}: {}", code::name(code::VRING_KICK), RingError::NotRunning))
            }
            Err(error) => self.fail_ring(error),
        }
        // Requests answered at once are announced now, since the handler does not know of them.
        self.notify().map_err(notify_error)?;
        handler.before_acknowledge();
        if let Some(fault) = self.memory_fault() {
            return Err(VhostUserError::MemoryGone(fault.to_owned()));
        }
        Ok(served.is_ok())
    }

    fn take_available(&mut self, queue: usize, handler: &mut dyn RequestHandler) -> Result<(), RingError> {
        let memory = self.backend.memory().cloned().ok_or(RingError::NotRunning)?;
        let limits = Limits::new(&self.device.config, self.backend.features());
        // A guest that adds requests meanwhile must kick again.
        for _ in 0..LOOKS_MAX {
            let Some(chain) = self.backend.vring_mut(queue).pop(&memory)? else {
                if self.backend.vring_mut(queue).await_kick(&memory)? {
                    continue;
                }
                break;
            };
            let head = chain.head_index();
            let parsed = BlkRequest::parse(chain, &*memory, &limits).and_then(|request| self.admit(request));
            match parsed {
                Ok(request) => match request.operation {
                    Operation::Device(op) => self.arrive(request, op, &memory, queue, handler)?,
                    Operation::Identify | Operation::ReportZones => self.answer_at_once(&request, &memory)?,
                    Operation::ResetAllZones => self.reset_all_zones(&request, queue, handler),
                },
                Err(bad) => self.answer_bad(head, &bad, &memory)?,
            }
        }
        Ok(())
    }

    /// Bounds a guest's requests in flight.
    fn admit(&self, request: BlkRequest) -> Result<BlkRequest, BadRequest> {
        let further_parts: usize = self.groups.values().map(|group| group.left - 1).sum();
        let fits = self.in_flight.len() - further_parts < IN_FLIGHT_COUNT_MAX
            && self.in_flight_bytes + data_bytes(&request) <= IN_FLIGHT_BYTES_MAX;
        if fits {
            return Ok(request);
        }
        Err(BadRequest { status_address: Some(request.status_address), kind: BadRequestKind::TooMuchInFlight })
    }

    fn arrive(
        &mut self,
        request: BlkRequest,
        op: Op,
        memory: &Arc<GuestMemory>,
        queue: usize,
        handler: &mut dyn RequestHandler,
    ) -> Result<(), RingError> {
        let id = self.next_id();
        let device_request = request_of(&request, id, op, queue);
        let sector = match self.device.zones.as_mut().map(|zones| zones.admit(&device_request)) {
            None => request.sector,
            Some(Ok(sector)) => sector,
            // A drive refuses a command as soon as it has understood it; that takes no time here.
            Some(Err(status)) => {
                *self.stats.zone_refusals.entry(status).or_default() += 1;
                let status_address = Some(request.status_address);
                let used = Used { head: request.head, status_address, status: status.into(), filled_bytes: 0 };
                return self.push_used(memory, &used);
            }
        };
        let mut late = None;
        let (store_time, failed) = self.timed(|device| match op {
            _ if device.late.is_some() => device.keep_late(&request, op, memory).map(|kept| late = kept),
            Op::ZoneReset => device.empty_zone(sector).map_err(|error| error.to_string()),
            _ => {
                let Device { store, bounce, .. } = device;
                let executed = execute(&request, op, sector, &**memory, &mut **store, bounce);
                executed.map_err(|error| error.to_string())?;
                device.keep_zone(op, sector).map_err(|error| error.to_string())
            }
        });
        let data_bytes = data_bytes(&request);
        let fills_bytes = match op {
            Op::Read => data_bytes as u32,
            Op::ZoneAppend => SECTOR_NUMBER_BYTES,
            _ => 0,
        };
        let in_flight =
            InFlight { op, sector, data_bytes, fills_bytes, failed, late, ..self.in_flight_of(request, queue) };
        self.in_flight.insert(id, in_flight);
        self.in_flight_bytes += data_bytes;
        self.stats.count(op, data_bytes);
        handler.arrived(Arrival { request: device_request, store_time, failed });
        Ok(())
    }

    fn next_id(&mut self) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        id
    }

    /// The part of an entry that all requests have in common.
    fn in_flight_of(&self, request: BlkRequest, queue: usize) -> InFlight {
        InFlight {
            head: request.head,
            status_address: request.status_address,
            epoch: self.backend.vring(queue).epoch(),
            op: Op::Flush,
            sector: 0,
            data_bytes: 0,
            fills_bytes: 0,
            failed: false,
            late: None,
            written_at: request.written_at,
            group: None,
        }
    }

    /// Works with the device's bytes: the host time that it takes, and whether it fails.
    fn timed(&mut self, work: impl FnOnce(&mut Device) -> Result<(), String>) -> (Nanos, bool) {
        let begun = self.device.clock.now();
        let done = work(&mut self.device);
        let took = self.device.clock.now().saturating_sub(begun);
        let failed = done.is_err();
        if let Err(error) = done {
            self.stats.store_errors += 1;
            self.stats.first_store_error.get_or_insert(error);
        }
        (took, failed)
    }

    /// Answers a request that takes no time on the device.
    fn answer_at_once(&mut self, request: &BlkRequest, memory: &GuestMemory) -> Result<(), RingError> {
        let answered = match (request.operation, &self.device.zones) {
            (Operation::ReportZones, Some(zones)) => {
                self.stats.zone_reports += 1;
                answer_report(request, zones, memory)
            }
            _ => {
                self.stats.identifications += 1;
                answer_identify(request, &self.device.config.serial, memory)
            }
        };
        let (status, filled_bytes) = match answered {
            Ok(filled_bytes) => (BlkStatus::Ok, filled_bytes),
            Err(_) => (BlkStatus::IoError, 0),
        };
        let status_address = Some(request.status_address);
        self.push_used(memory, &Used { head: request.head, status_address, status, filled_bytes })
    }

    fn answer_bad(&mut self, head: u16, bad: &BadRequest, memory: &GuestMemory) -> Result<(), RingError> {
        *self.stats.bad_requests.entry(bad.kind).or_default() += 1;
        let used = Used { head, status_address: bad.status_address, status: bad.status(), filled_bytes: 0 };
        self.push_used(memory, &used)
    }

    fn push_used(&mut self, memory: &GuestMemory, used: &Used) -> Result<(), RingError> {
        let status_written = match used.status_address {
            // Memory may have moved since the address was checked.
            Some(address) => memory.write_obj(used.status as u8, address).is_ok(),
            None => false,
        };
        let written_bytes = if status_written { used.filled_bytes + 1 } else { 0 };
        self.backend.vring_mut(QUEUE).push_used(memory, used.head, written_bytes)?;
        self.call_pending = true;
        Ok(())
    }

    /// Completes requests that became due while the ring was disabled, once it runs again.
    fn release_held(&mut self) -> Result<(), VhostUserError> {
        let vring = self.backend.vring(QUEUE);
        let epoch = vring.epoch();
        let running = vring.is_running();
        let waits =
            |(id, _): &(RequestId, Status)| !running && self.in_flight.get(id).is_some_and(|e| e.epoch == epoch);
        if self.held.iter().all(waits) {
            return Ok(());
        }
        for (id, status) in std::mem::take(&mut self.held) {
            self.complete(id, status);
        }
        self.notify().map_err(notify_error)
    }

    fn refuse(&mut self, reason: impl FnOnce() -> String) {
        self.stats.refused_messages += 1;
        self.stats.first_refusal.get_or_insert_with(reason);
    }

    fn fail_ring(&mut self, error: RingError) {
        self.stats.ring_failures += 1;
        self.stats.first_ring_failure.get_or_insert(error);
        let vring = self.backend.vring_mut(QUEUE);
        vring.fail();
        if let Some(error) = &vring.error {
            // The channel may be closed; the ring has stopped anyway.
            let _ = error.ring();
        }
    }
}

impl AsFd for VhostUserSession {
    /// The socket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl VhostUserStats {
    fn count(&mut self, op: Op, data_bytes: u64) {
        let position = Op::ALL.iter().position(|&known| known == op).expect("all kinds are there");
        self.requests[position] += 1;
        match op {
            Op::Read => self.read_bytes += data_bytes,
            Op::Write | Op::ZoneAppend => self.written_bytes += data_bytes,
            _ => {}
        }
    }
}

/// Looks at the available ring after one kick: for each of its entries one, and one at its end
/// that may find another entry.
const LOOKS_MAX: u32 = 2 * QUEUE_SIZE_MAX as u32 + 1;

/// The only ring so far.
const QUEUE: usize = 0;

/// The served device.
struct Device {
    config: BlkConfig,
    store: Box<dyn Store>,
    bounce: Bounce,
    clock: Box<dyn HostClock>,
    /// Decides about requests if the device is zoned.
    zones: Option<ZoneMap>,
    /// Keeps the write pointers.
    zone_file: Option<ZoneFile>,
    /// The outstanding changes if the device may fail requests.
    late: Option<LateChanges>,
}

impl Device {
    fn new(config: BlkConfig, store: Box<dyn Store>, clock: Box<dyn HostClock>) -> Self {
        let zones = config.zones.map(|layout| ZoneMap::new(layout, config.capacity_sectors));
        let late = config.torn_write_sectors.map(LateChanges::new);
        Device { config, store, bounce: Bounce::default(), clock, zones, zone_file: None, late }
    }
}

/// The guest's request as the device gets it.
fn request_of(request: &BlkRequest, id: RequestId, op: Op, queue: usize) -> Request {
    Request {
        id,
        op,
        lba: Lba(request.sector),
        sectors: request.sectors,
        fua: false,
        priority: request.priority,
        queue: queue as u16,
        issuer: 0,
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Data needed to return a request to the ring.
#[derive(Clone, Debug)]
struct InFlight {
    head: u16,
    status_address: GuestAddress,
    /// Epoch of the ring at arrival; another one means that the ring was reset.
    epoch: u64,
    op: Op,
    /// First sector of the data; of an append, where they were written.
    sector: u64,
    /// Data of a read or write.
    data_bytes: u64,
    /// Guest memory that success has filled, but for the status byte.
    fills_bytes: u32,
    failed: bool,
    /// Its bytes, if they move at the completion.
    late: Option<Box<Late>>,
    /// Guest memory for the sector of an append.
    written_at: Vec<Segment>,
    /// The first request of a reset of all zones that it is a part of.
    group: Option<RequestId>,
}

/// Sector in the answer to a zone append.
const SECTOR_NUMBER_BYTES: u32 = 8;

/// An entry for the used ring.
struct Used {
    head: u16,
    status_address: Option<GuestAddress>,
    status: BlkStatus,
    filled_bytes: u32,
}

fn data_bytes(request: &BlkRequest) -> u64 {
    match request.operation {
        Operation::Device(op) if op.moves_data() => u64::from(request.sectors) * SECTOR_BYTES,
        _ => 0,
    }
}

fn notify_error(source: io::Error) -> VhostUserError {
    VhostUserError::Io { operation: "notifying the guest", source }
}

enum Received {
    Data { len: usize, fds: Vec<OwnedFd> },
    NothingYet,
    End,
}

/// Receives at most as many bytes as fit, with the file descriptors that come beside them.
fn receive(socket: &UnixStream, bytes: &mut [u8]) -> Result<Received, VhostUserError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::NothingYet),
        Err(Errno::CONNRESET) => return Ok(Received::End),
        Err(errno) => return Err(VhostUserError::Io { operation: "receiving", source: errno.into() }),
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(ProtocolError::TooManyFds.into());
    }
    if received.bytes == 0 {
        return Ok(Received::End);
    }
    Ok(Received::Data { len: received.bytes, fds })
}
