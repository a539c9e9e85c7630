//! A client that speaks iSCSI.

use std::io::IoSlice;
use std::sync::Arc;

use chronodisk_device::DeviceInfo;
use chronodisk_engine::TransportIndex;
use chronodisk_engine::listen::{Place, Socket};
use chronodisk_sim::{Lba, Request, RequestId, SECTOR_BYTES, Status};
use chronodisk_store::{Store, StoreError};

use super::connection::NotMoved;
use super::listen::{self, Address, ListenError};
use super::stream::{self, StreamEvent, StreamSession, StreamState};
use super::work::{Lent, Work, WorkKind};
use super::{Acceptor, Server, Shared};
use crate::iscsi::{Credentials, Event, IscsiRequest, IscsiSession, IscsiTarget, Outgoing, Reason, target_name};
use crate::scsi::{LogicalUnit, StoreWork, UnitDescription};

/// A device as the target of iSCSI initiators.
#[derive(Clone, Debug)]
pub struct IscsiOptions {
    /// Name of the device.
    pub device: String,
    /// Properties of the logical unit; the server sets its target's name and its identity.
    pub unit: UnitDescription,
    /// Expected credentials; without them every initiator is served.
    pub credentials: Option<Credentials>,
}

impl IscsiOptions {
    /// The target of a device with a capacity of `capacity_bytes`, without credentials.
    #[must_use]
    pub fn of(info: &DeviceInfo, capacity_bytes: u64) -> Self {
        let block_bytes = info.logical_block_bytes;
        let unit = UnitDescription {
            block_bytes,
            physical_block_bytes: info.physical_block_bytes.max(block_bytes),
            rotational: info.rotational,
            volatile_cache: info.volatile_cache,
            // A unit of discard has fewer than 2^32 bytes, as far as initiators are told.
            discard_bytes: info
                .discard_unit_sectors
                .map(|sectors| u32::try_from(u64::from(sectors) * SECTOR_BYTES).unwrap_or(u32::MAX)),
            ..UnitDescription::new(&info.name, capacity_bytes)
        };
        IscsiOptions { device: info.name.clone(), unit, credentials: None }
    }
}

impl Server {
    /// Begins to accept iSCSI initiators at an address. Returns the address with the port that the host chose, and the
    /// target's name.
    ///
    /// # Errors
    /// [`ListenError`].
    ///
    /// # Panics
    /// If the address is a Unix domain socket.
    pub fn listen_iscsi(&mut self, address: &Address, options: IscsiOptions) -> Result<(Address, String), ListenError> {
        assert!(!matches!(address, Address::Unix(_)), "initiators connect by TCP");
        let (listener, bound) = listen::bind(address)?;
        let name = target_name(&options.device);
        let host = rustix::system::uname();
        let identity = identity(&[name.as_bytes(), bound.to_string().as_bytes(), host.nodename().to_bytes()]);
        let unit = UnitDescription { target_name: name.clone(), identity, ..options.unit };
        let target = Arc::new(IscsiTarget::new(name.clone(), LogicalUnit::new(unit), options.credentials));
        let label = format!("iSCSI {bound}");
        let transport = self.shared.core().clock.add_transport(&label, self.shared.options.timing);
        let shared = self.shared.clone();
        let accept = move || {
            listen::accept(&shared, &listener, |shared, connection, socket, place| {
                serve(shared, connection, transport, (socket, place), target.clone());
            });
        };
        let acceptor = std::thread::Builder::new().name("accept".into()).spawn(accept);
        let acceptor = acceptor.map_err(|source| ListenError::new(&bound, "starting a thread", source))?;
        self.acceptors.push(Acceptor::of(acceptor));
        Ok((bound, name))
    }
}

/// A number by which initiators tell units apart: devices of one name on several hosts or ports differ (FNV-1a).
fn identity(pieces: &[&[u8]]) -> u64 {
    let bytes = pieces.iter().flat_map(|piece| piece.iter().chain(&[0]));
    bytes.fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// An initiator's session.
struct IscsiStream(IscsiSession);

/// Serves an initiator until it disconnects or the server stops.
fn serve(
    shared: &Arc<Shared>,
    connection: u32,
    transport: TransportIndex,
    (socket, place): (Socket, Place),
    target: Arc<IscsiTarget>,
) {
    let local = match &socket {
        Socket::Tcp(stream) => stream.local_addr().ok(),
        Socket::Unix(_) => None,
    };
    let address = local.map_or_else(String::new, |address| address.to_string());
    let session = IscsiSession::new(target, address, shared.client_memory.clone());
    stream::serve(shared, connection, transport, (socket, place), IscsiStream(session));
}

impl StreamSession for IscsiStream {
    const NAME: &'static str = "iSCSI connection";
    const HELPER: &'static str = "a helper of an iSCSI connection";
    type Payload = Outgoing;

    fn next_event(&mut self) -> Option<StreamEvent> {
        loop {
            return Some(match self.0.next_event()? {
                Event::LoggedIn { .. } => StreamEvent::Negotiated,
                Event::Request(request) => StreamEvent::Request {
                    slot: request.slot,
                    request: Some(for_device(&request)),
                    work: work(&request),
                },
                Event::Closing(Reason::Violation(violation)) => StreamEvent::Violation(violation.to_string()),
                Event::Closing(_) => continue,
            });
        }
    }

    fn execute(&mut self, slot: u32, store: &mut dyn Store) -> Result<(), NotMoved> {
        self.0.execute(slot, store).map_err(|error| match error {
            StoreError::WouldWait => NotMoved::WouldWait,
            error => NotMoved::Failed(error.to_string()),
        })
    }

    fn lend(&mut self, slot: u32) -> Lent<Outgoing> {
        match self.0.lend_room(slot) {
            Some(room) => Lent::Read(room),
            None => self.0.lend_data(slot).map_or(Lent::Nothing, Lent::Write),
        }
    }

    fn give_back(&mut self, slot: u32, _work: &Work, lent: Lent<Outgoing>, moved: Result<(), StoreError>) {
        match lent {
            Lent::Read(room) => self.0.give_room(slot, room),
            Lent::Write(data) => self.0.give_data(slot, data),
            Lent::Nothing => {}
        }
        if let Err(error) = moved {
            self.0.failed(slot, &error);
        }
    }

    fn complete(&mut self, slot: u32, status: Status) {
        self.0.complete(slot, status);
    }

    fn receive_room(&mut self) -> &mut [u8] {
        self.0.receive_room()
    }

    fn received(&mut self, len: usize) {
        self.0.received(len);
    }

    fn input_ended(&mut self) {
        self.0.input_ended();
    }

    fn has_output(&self) -> bool {
        self.0.has_output()
    }

    fn gather<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.0.gather(slices)
    }

    fn sent(&mut self, len: usize) {
        self.0.sent(len);
    }

    fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    fn state(&self) -> StreamState {
        let state = self.0.state();
        StreamState {
            refused_requests: state.refused_commands,
            wants_input: state.wants_input,
            is_midway: state.is_midway,
            // A command without memory is refused for now.
            waits_for_memory: false,
            held_bytes: state.held_bytes,
        }
    }

    fn release_idle_memory(&mut self) {
        self.0.release_idle_memory();
    }
}

/// The device's request. The skeleton sets its id and its issuer.
fn for_device(request: &IscsiRequest) -> Request {
    let work = &request.work;
    Request {
        id: RequestId(0),
        op: work.operation,
        lba: Lba(work.offset_bytes / SECTOR_BYTES),
        // Exact: a block is a whole number of sectors.
        sectors: work.len_bytes / SECTOR_BYTES as u32,
        fua: work.fua,
        priority: request.priority,
        queue: 0,
        issuer: 0,
    }
}

/// A request's work on the store.
fn work(request: &IscsiRequest) -> Work {
    let work = &request.work;
    let kind = match work.store {
        StoreWork::Nothing | StoreWork::Flush => WorkKind::Nothing,
        StoreWork::Read => WorkKind::Read,
        StoreWork::Write | StoreWork::WriteRepeatedly => WorkKind::Write,
        StoreWork::Discard => WorkKind::Discard,
        StoreWork::WriteZeroes => WorkKind::WriteZeroes,
    };
    let flush = work.store == StoreWork::Flush || work.fua;
    Work { kind, offset_bytes: work.offset_bytes, len_bytes: work.len_bytes.into(), flush }
}
