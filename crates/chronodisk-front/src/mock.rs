//! The driver's side of the protocol, shared by tests and fuzzers.
//!
//! [`MockDriver`] plays User Mode Linux's `virtio_uml` and `virtio_blk`: it owns the other end of the socket and a file
//! with the guest's memory. It follows valid and invalid instructions, and never waits. [`TestBench`] puts a
//! [`VhostUserSession`] at the other end and lets the two alternate in one thread.
//!
//! It is made for tests: an impossible condition panics.

use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use chronodisk_engine::MonotonicClock;
use chronodisk_sim::Status;
use chronodisk_store::Store;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use virtio_bindings::bindings::virtio_blk::VIRTIO_BLK_T_ZONE_APPEND;
use virtio_bindings::bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

use crate::BlkConfig;
use crate::vhost_user::message::{
    CONFIG_HEADER_BYTES, F_PROTOCOL_FEATURES, HEADER_BYTES, Header, backend_code, code, encode, flag, protocol_feature,
    vring_state,
};
use crate::vhost_user::{Arrival, Flow, RequestHandler, VhostUserError, VhostUserSession};

/// Address of the first memory region in the guest's physical memory.
pub const MEMORY_BASE: u64 = 0x10_0000;
/// Size of the first region; the rings lie at its beginning, one page each.
pub const MEMORY_BYTES: u64 = 4 << 20;
/// Address of the second region; there is a gap between the two.
pub const HIGH_MEMORY_BASE: u64 = 0x8000_0000;
/// Size of the second region.
pub const HIGH_MEMORY_BYTES: u64 = 64 << 10;
/// Distance of the driver's own addresses from guest addresses; not zero, so that the two can't be confused.
pub const USER_OFFSET: u64 = 0x7f00_0000_0000;
/// Descriptor table.
pub const DESCRIPTORS: u64 = MEMORY_BASE;
/// Available ring.
pub const AVAILABLE: u64 = MEMORY_BASE + 0x1000;
/// Used ring.
pub const USED: u64 = MEMORY_BASE + 0x2000;
/// Address of headers, data, status bytes and indirect tables.
pub const BUFFERS: u64 = MEMORY_BASE + 0x4000;
/// Size of the ring.
pub const RING_SIZE: u16 = 256;
/// Address of the used entry at which the driver requests a call, with `VIRTIO_RING_F_EVENT_IDX`.
pub const USED_EVENT: u64 = AVAILABLE + 4 + 2 * RING_SIZE as u64;
/// Address of the available entry at which the device requests a kick, with the same feature.
pub const AVAILABLE_EVENT: u64 = USED + 4 + 8 * RING_SIZE as u64;

/// Flag of a descriptor: another one follows.
pub const NEXT: u16 = VRING_DESC_F_NEXT as u16;
/// Flag of a descriptor: the device writes it.
pub const WRITE: u16 = VRING_DESC_F_WRITE as u16;
/// Flag of a descriptor that refers to a table of descriptors.
pub const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;

/// A descriptor as it lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Guest address of the buffer.
    pub address: u64,
    /// Length of the buffer in bytes.
    pub len_bytes: u32,
    /// [`NEXT`], [`WRITE`], [`INDIRECT`].
    pub flags: u16,
    /// Index of the next one.
    pub next: u16,
}

/// An entry of the used ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedEntry {
    /// Head of the chain.
    pub head: u32,
    /// Bytes that the device wrote.
    pub len_bytes: u32,
}

/// A request that was put into guest memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MockRequest {
    /// Head of its chain.
    pub head: u16,
    /// Address and length of its data segments.
    pub segments: Vec<(u64, u32)>,
    /// Address of its status byte, which is `0xff` until the device has written it.
    pub status_address: u64,
}

/// Layout of a request's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In the ring's own table.
    Direct,
    /// In a separate table, to which one descriptor of the ring refers.
    Indirect,
}

/// The driver.
#[derive(Debug)]
pub struct MockDriver {
    socket: UnixStream,
    channel: Option<UnixStream>,
    memory_file: File,
    memory: GuestMemoryMmap,
    next_descriptor: u16,
    next_buffer: u64,
    available: u16,
    used: u16,
}

impl MockDriver {
    /// A driver, and the socket of the other side.
    #[must_use]
    pub fn new() -> (MockDriver, UnixStream) {
        let (socket, backend) = UnixStream::pair().expect("a socket pair");
        (MockDriver::over(socket), backend)
    }

    /// A driver at this end of a connection.
    #[must_use]
    pub fn over(socket: UnixStream) -> MockDriver {
        MockDriver::with_memory(socket, memory_file())
    }

    /// A driver with this file as the guest's memory.
    #[must_use]
    pub fn with_memory(socket: UnixStream, memory_file: File) -> MockDriver {
        memory_file.set_len(MEMORY_BYTES + HIGH_MEMORY_BYTES).expect("memory");
        let part = |address, len: u64, offset| {
            let file = memory_file.try_clone().expect("another descriptor");
            (GuestAddress(address), len as usize, Some(FileOffset::new(file, offset)))
        };
        let memory = GuestMemoryMmap::from_ranges_with_files([
            part(MEMORY_BASE, MEMORY_BYTES, 0),
            part(HIGH_MEMORY_BASE, HIGH_MEMORY_BYTES, MEMORY_BYTES),
        ])
        .expect("a mapping");
        MockDriver {
            socket,
            channel: None,
            memory_file,
            memory,
            next_descriptor: 0,
            next_buffer: BUFFERS,
            available: 0,
            used: 0,
        }
    }

    /// The driver's end of the socket.
    #[must_use]
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// The guest's memory.
    #[must_use]
    pub fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// The file that is the guest's memory.
    #[must_use]
    pub fn memory_file(&self) -> &File {
        &self.memory_file
    }

    /// Sends bytes as they are, with file descriptors beside them.
    ///
    /// # Errors
    /// The host's error, for instance when the backend is gone.
    pub fn send_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "room for 64 descriptors");
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags)?;
        assert_eq!(sent, bytes.len(), "the socket has room for a message");
        Ok(())
    }

    /// The next message from the backend on the socket; `None` if there is none.
    pub fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        receive_message(&self.socket)
    }

    /// Reads all calls from the backend channel and returns their number.
    ///
    /// # Panics
    /// If another message came, or a call that asks for a reply.
    pub fn take_calls(&mut self) -> usize {
        let mut count = 0;
        while let Some((header, payload)) = self.channel.as_ref().and_then(receive_message) {
            let expected = Header { request: backend_code::VRING_CALL, flags: flag::VERSION, size: 8 };
            assert_eq!(header, expected);
            assert_eq!(payload, vring_state(0, 0));
            count += 1;
        }
        count
    }

    /// Payload of SET_MEM_TABLE, in the size that User Mode Linux sends, and its files.
    #[must_use]
    pub fn memory_table(&self) -> (Vec<u8>, [BorrowedFd<'_>; 2]) {
        let mut payload = Vec::new();
        payload.extend_from_slice(&2u32.to_ne_bytes());
        payload.extend_from_slice(&0u32.to_ne_bytes());
        for (address, len, offset) in
            [(MEMORY_BASE, MEMORY_BYTES, 0), (HIGH_MEMORY_BASE, HIGH_MEMORY_BYTES, MEMORY_BYTES)]
        {
            for word in [address, len, address + USER_OFFSET, offset] {
                payload.extend_from_slice(&word.to_ne_bytes());
            }
        }
        (payload, [self.memory_file.as_fd(), self.memory_file.as_fd()])
    }

    /// Payload of SET_VRING_ADDR.
    #[must_use]
    pub fn ring_addresses() -> Vec<u8> {
        let mut payload = vring_state(0, 0).to_vec();
        for address in [DESCRIPTORS + USER_OFFSET, USED + USER_OFFSET, AVAILABLE + USER_OFFSET, u64::MAX] {
            payload.extend_from_slice(&address.to_ne_bytes());
        }
        payload
    }

    /// Makes the backend channel and returns the end that the backend gets.
    pub fn open_channel(&mut self) -> UnixStream {
        let (channel, backend) = UnixStream::pair().expect("a socket pair");
        self.channel = Some(channel);
        backend
    }

    /// Forgets all requests and clears the rings, as a driver does that begins again.
    pub fn reset_ring(&mut self) {
        self.next_descriptor = 0;
        self.next_buffer = BUFFERS;
        self.available = 0;
        self.used = 0;
        self.write(AVAILABLE, &[0; 0x1000]);
        self.write(USED, &[0; 0x1000]);
    }

    /// Writes guest memory.
    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(address)).expect("guest memory");
    }

    /// Reads guest memory.
    #[must_use]
    pub fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(address)).expect("guest memory");
        bytes
    }

    /// Allocates unused guest memory; starts over when all of it was used.
    pub fn allocate(&mut self, len_bytes: u64) -> u64 {
        if self.next_buffer + len_bytes > MEMORY_BASE + MEMORY_BYTES {
            self.next_buffer = BUFFERS;
        }
        let address = self.next_buffer;
        self.next_buffer = (address + len_bytes).next_multiple_of(16);
        address
    }

    /// Writes a descriptor into a table.
    pub fn write_descriptor(&self, table: u64, index: u16, descriptor: Descriptor) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&descriptor.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&descriptor.len_bytes.to_le_bytes());
        bytes[12..14].copy_from_slice(&descriptor.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&descriptor.next.to_le_bytes());
        self.write(table + u64::from(index) * 16, &bytes);
    }

    /// Writes a chain of descriptors into the ring's table, linked in this order unless a
    /// descriptor brings a link of its own; returns its head.
    pub fn add_chain(&mut self, descriptors: &[Descriptor]) -> u16 {
        let head = self.next_descriptor;
        for (position, descriptor) in descriptors.iter().enumerate() {
            let index = (head + position as u16) % RING_SIZE;
            let last = position + 1 == descriptors.len();
            let linked = if last || descriptor.flags & NEXT != 0 {
                *descriptor
            } else {
                Descriptor { flags: descriptor.flags | NEXT, next: (index + 1) % RING_SIZE, ..*descriptor }
            };
            self.write_descriptor(DESCRIPTORS, index, linked);
        }
        self.next_descriptor = (head + descriptors.len() as u16) % RING_SIZE;
        head
    }

    /// Makes a chain available to the device.
    pub fn make_available(&mut self, head: u16) {
        let slot = AVAILABLE + 4 + u64::from(self.available % RING_SIZE) * 2;
        self.write(slot, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.set_available_index(self.available);
    }

    /// Writes any available index.
    pub fn set_available_index(&self, index: u16) {
        self.memory.store(index.to_le(), GuestAddress(AVAILABLE + 2), Ordering::Release).expect("guest memory");
    }

    /// New entries in the used ring.
    pub fn take_used(&mut self) -> Vec<UsedEntry> {
        let index: u16 = self.memory.load(GuestAddress(USED + 2), Ordering::Acquire).expect("guest memory");
        let mut entries = Vec::new();
        while self.used != u16::from_le(index) {
            let entry = self.read(USED + 4 + u64::from(self.used % RING_SIZE) * 8, 8);
            let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes"));
            entries.push(UsedEntry { head: word(0), len_bytes: word(4) });
            self.used = self.used.wrapping_add(1);
        }
        entries
    }

    /// Puts a request into guest memory and makes it available: a header, data segments of the
    /// given lengths that the device reads (`data` fills them) or writes, a status byte.
    pub fn submit(
        &mut self,
        kind: u32,
        sector: u64,
        segment_bytes: &[u32],
        data: Option<&[u8]>,
        layout: Layout,
    ) -> MockRequest {
        let header_address = self.allocate(16);
        self.write(header_address, &blk_header(kind, 0, sector));
        let segments: Vec<_> = segment_bytes.iter().map(|&len| (self.allocate(len.into()), len)).collect();
        let mut rest = data.unwrap_or_default();
        for &(address, len) in &segments {
            let (now, later) = rest.split_at(rest.len().min(len as usize));
            self.write(address, now);
            rest = later;
        }
        let status_address = self.allocate(1);
        self.write(status_address, &[0xff]);
        let direction = if data.is_some() { 0 } else { WRITE };
        let mut chain = vec![Descriptor { address: header_address, len_bytes: 16, flags: 0, next: 0 }];
        chain.extend(segments.iter().map(|&(address, len_bytes)| Descriptor {
            address,
            len_bytes,
            flags: direction,
            next: 0,
        }));
        chain.push(Descriptor { address: status_address, len_bytes: 1, flags: WRITE, next: 0 });
        let head = match layout {
            Layout::Direct => self.add_chain(&chain),
            Layout::Indirect => {
                let table = self.indirect_table(&chain);
                let len_bytes = chain.len() as u32 * 16;
                self.add_chain(&[Descriptor { address: table, len_bytes, flags: INDIRECT, next: 0 }])
            }
        };
        self.make_available(head);
        MockRequest { head, segments, status_address }
    }

    /// As [`submit`](Self::submit), a zone append: also returns where the device writes its sector, the first eight
    /// bytes of a descriptor whose last one is the status. It has 9 bytes; Linux 6.12 sends 16.
    pub fn append(&mut self, sector: u64, data: &[u8], answer_bytes: u32) -> (MockRequest, u64) {
        let header_address = self.allocate(16);
        self.write(header_address, &blk_header(VIRTIO_BLK_T_ZONE_APPEND, 0, sector));
        let len_bytes = data.len() as u32;
        let address = self.allocate(len_bytes.into());
        self.write(address, data);
        let answer = self.allocate(answer_bytes.into());
        self.write(answer, &vec![0xff; answer_bytes as usize]);
        let head = self.add_chain(&[
            Descriptor { address: header_address, len_bytes: 16, flags: 0, next: 0 },
            Descriptor { address, len_bytes, flags: 0, next: 0 },
            Descriptor { address: answer, len_bytes: answer_bytes, flags: WRITE, next: 0 },
        ]);
        self.make_available(head);
        let status_address = answer + u64::from(answer_bytes) - 1;
        (MockRequest { head, segments: vec![(address, len_bytes)], status_address }, answer)
    }

    /// The status byte of a request.
    #[must_use]
    pub fn status(&self, request: &MockRequest) -> u8 {
        self.read(request.status_address, 1)[0]
    }

    /// The data of a request.
    #[must_use]
    pub fn data(&self, request: &MockRequest) -> Vec<u8> {
        request.segments.iter().flat_map(|&(address, len)| self.read(address, len as usize)).collect()
    }

    fn indirect_table(&mut self, chain: &[Descriptor]) -> u64 {
        let table = self.allocate(chain.len() as u64 * 16);
        for (position, descriptor) in chain.iter().enumerate() {
            let last = position + 1 == chain.len();
            let flags = if last { descriptor.flags } else { descriptor.flags | NEXT };
            let next = position as u16 + 1;
            self.write_descriptor(table, position as u16, Descriptor { flags, next, ..*descriptor });
        }
        table
    }
}

/// An empty file in memory, of the kind that a guest's memory is.
#[must_use]
pub fn memory_file() -> File {
    memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memory file").into()
}

/// Like [`memory_file`], but permits seals, as QEMU's `memory-backend-memfd` does.
#[must_use]
pub fn sealable_memory_file() -> File {
    memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memory file").into()
}

/// A request's header as it lies in memory.
#[must_use]
pub fn blk_header(kind: u32, ioprio: u32, sector: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    bytes[4..8].copy_from_slice(&ioprio.to_le_bytes());
    bytes[8..].copy_from_slice(&sector.to_le_bytes());
    bytes
}

/// The range of a discard or write-zeroes as it lies in memory.
#[must_use]
pub fn blk_range(sector: u64, sectors: u32, flags: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&sector.to_le_bytes());
    bytes[8..12].copy_from_slice(&sectors.to_le_bytes());
    bytes[12..].copy_from_slice(&flags.to_le_bytes());
    bytes
}

/// Records arrivals and their order.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Arrivals that were not completed yet.
    pub arrivals: Vec<Arrival>,
    /// Number of kicks that were about to be acknowledged.
    pub acknowledgements: usize,
}

impl RequestHandler for Recorder {
    fn arrived(&mut self, arrival: Arrival) {
        self.arrivals.push(arrival);
    }

    fn before_acknowledge(&mut self) {
        self.acknowledgements += 1;
    }
}

/// A driver and a session that take turns.
#[derive(Debug)]
pub struct TestBench {
    /// The guest.
    pub driver: MockDriver,
    /// The session under test.
    pub session: VhostUserSession,
    /// Recorded events.
    pub recorder: Recorder,
}

impl TestBench {
    /// A bench that is only connected.
    #[must_use]
    pub fn new(config: BlkConfig, store: Box<dyn Store>) -> Self {
        let (driver, socket) = MockDriver::new();
        let clock = Box::new(MonotonicClock::new());
        let session = VhostUserSession::new(socket, config, store, clock).expect("a right configuration");
        TestBench { driver, session, recorder: Recorder::default() }
    }

    /// Runs the session until it waits for the guest.
    ///
    /// # Errors
    /// The error that ended the session.
    pub fn pump(&mut self) -> Result<Flow, VhostUserError> {
        loop {
            let before = self.session.stats().messages;
            let flow = self.session.readable(&mut self.recorder)?;
            if flow == Flow::Ended || self.session.stats().messages == before {
                return Ok(flow);
            }
        }
    }

    /// Sends a message and runs the session; returns the reply, if there is one.
    ///
    /// # Errors
    /// The error that ended the session.
    pub fn exchange(
        &mut self,
        code: u32,
        flags: u32,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Option<(Header, Vec<u8>)>, VhostUserError> {
        self.driver.send_bytes(&encode(code, flags, payload), fds).expect("the session is there");
        self.pump()?;
        Ok(self.driver.receive())
    }

    /// Sends a message that requests an acknowledgement; returns whether it was positive.
    ///
    /// # Panics
    /// If the session ends or does not acknowledge it.
    pub fn acknowledged(&mut self, code: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let reply = self.exchange(code, flag::NEED_REPLY, payload, fds).expect("the session goes on");
        let (header, payload) = reply.expect("an acknowledgement");
        assert_eq!(header, Header { request: code, flags: flag::VERSION | flag::REPLY, size: 8 });
        payload == 0u64.to_ne_bytes()
    }

    /// Sends a message whose reply is a number.
    ///
    /// # Panics
    /// If the session ends or the reply is not a number.
    pub fn number(&mut self, code: u32) -> u64 {
        let reply = self.exchange(code, 0, &[], &[]).expect("the session goes on");
        let (header, payload) = reply.expect("a reply");
        assert_eq!(header, Header { request: code, flags: flag::VERSION | flag::REPLY, size: 8 });
        u64::from_ne_bytes(payload.try_into().expect("eight bytes"))
    }

    /// Negotiates all offered features and sets the ring up, with the messages of User Mode Linux.
    ///
    /// # Panics
    /// If the session refuses a message.
    pub fn set_up(&mut self) {
        self.negotiate();
        self.set_up_ring();
    }

    /// Sends the messages before the memory table.
    ///
    /// # Panics
    /// If the session refuses a message.
    pub fn negotiate(&mut self) {
        assert!(self.exchange(code::SET_OWNER, 0, &[], &[]).expect("the session goes on").is_none());
        let features = self.number(code::GET_FEATURES);
        assert_ne!(features & 1 << F_PROTOCOL_FEATURES, 0);
        let known = 1 << protocol_feature::REPLY_ACK
            | 1 << protocol_feature::BACKEND_REQ
            | 1 << protocol_feature::CONFIG
            | 1 << protocol_feature::INBAND_NOTIFICATIONS;
        let protocol_features = self.number(code::GET_PROTOCOL_FEATURES) & known;
        assert_eq!(protocol_features, known);
        assert!(self.acknowledged(code::SET_PROTOCOL_FEATURES, &protocol_features.to_ne_bytes(), &[]));
        let channel = self.driver.open_channel();
        assert!(self.acknowledged(code::SET_BACKEND_REQ_FD, &[], &[channel.as_fd()]));
        assert!(self.acknowledged(code::SET_FEATURES, &features.to_ne_bytes(), &[]));
    }

    /// Sends the memory table, sets the ring up, and starts it.
    ///
    /// # Panics
    /// If the session refuses a message.
    pub fn set_up_ring(&mut self) {
        self.driver.reset_ring();
        let file = self.driver.memory_file().try_clone().expect("another descriptor");
        let (table, _) = self.driver.memory_table();
        assert!(self.acknowledged(code::SET_MEM_TABLE, &table, &[file.as_fd(), file.as_fd()]));
        assert!(self.acknowledged(code::SET_VRING_NUM, &vring_state(0, RING_SIZE.into()), &[]));
        assert!(self.acknowledged(code::SET_VRING_BASE, &vring_state(0, 0), &[]));
        assert!(self.acknowledged(code::SET_VRING_ADDR, &MockDriver::ring_addresses(), &[]));
        assert!(self.enable(true));
    }

    /// Enables or disables the ring.
    pub fn enable(&mut self, enabled: bool) -> bool {
        self.acknowledged(code::SET_VRING_ENABLE, &vring_state(0, enabled.into()), &[])
    }

    /// Kicks in band; returns whether the acknowledgement was good.
    pub fn kick(&mut self) -> bool {
        self.acknowledged(code::VRING_KICK, &vring_state(0, 0), &[])
    }

    /// The configuration space from `offset` on.
    ///
    /// # Panics
    /// If the session ends or does not reply.
    pub fn config(&mut self, offset: u32, size: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        for word in [offset, size, 0] {
            payload.extend_from_slice(&word.to_ne_bytes());
        }
        payload.resize(CONFIG_HEADER_BYTES + size as usize, 0);
        let reply = self.exchange(code::GET_CONFIG, 0, &payload, &[]).expect("the session goes on");
        let (_, mut payload) = reply.expect("a reply");
        payload.drain(..payload.len().min(CONFIG_HEADER_BYTES));
        payload
    }

    /// Completes all that arrived, in order, and notifies once.
    pub fn complete_all(&mut self, status: Status) {
        for arrival in std::mem::take(&mut self.recorder.arrivals) {
            self.session.complete(arrival.request.id, status);
        }
        self.session.notify().expect("the guest is there");
    }
}

fn receive_message(mut socket: &UnixStream) -> Option<(Header, Vec<u8>)> {
    socket.set_nonblocking(true).expect("a socket");
    let mut header = [0; HEADER_BYTES];
    match socket.read(&mut header) {
        Ok(HEADER_BYTES) => {}
        Ok(0) => return None,
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionReset) => {
            return None;
        }
        other => panic!("part of a header: {other:?}"),
    }
    let header = Header::from_bytes(&header);
    let mut payload = vec![0; header.size as usize];
    socket.read_exact(&mut payload).expect("a whole message");
    Some((header, payload))
}
