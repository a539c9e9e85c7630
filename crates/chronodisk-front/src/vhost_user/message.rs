//! Messages of vhost-user: the wire format only.
//!
//! [`MessageDecoder`] takes bytes and file descriptors as received and returns checked [`Message`]s. A stream that
//! breaks the format ends with a [`ProtocolError`]; its file descriptors are closed.
//!
//! A message is a header of three 32-bit words (request, flags, payload size) in the host's byte order, then the
//! payload. File descriptors travel beside the bytes, and belong to the message being received. So a reader must never
//! read across the end of a message: [`MessageDecoder::wanted_bytes`] gives the bytes to read.

use std::os::fd::OwnedFd;

/// Request codes of the front end (the guest) to the backend. "Front-end message types" in the specification.
pub mod code {
    /// Feature bits of the device and the transport.
    pub const GET_FEATURES: u32 = 1;
    /// Enables feature bits.
    pub const SET_FEATURES: u32 = 2;
    /// This front end owns the session.
    pub const SET_OWNER: u32 = 3;
    /// Deprecated; disables all rings.
    pub const RESET_OWNER: u32 = 4;
    /// Regions of guest memory, each with a file descriptor.
    pub const SET_MEM_TABLE: u32 = 5;
    /// Size of a ring.
    pub const SET_VRING_NUM: u32 = 8;
    /// Addresses of a ring's parts, in the front end's address space.
    pub const SET_VRING_ADDR: u32 = 9;
    /// Index in the available ring to go on from.
    pub const SET_VRING_BASE: u32 = 10;
    /// Stops a ring and tells the index that it would go on from.
    pub const GET_VRING_BASE: u32 = 11;
    /// File descriptor on which kicks come.
    pub const SET_VRING_KICK: u32 = 12;
    /// File descriptor on which calls go.
    pub const SET_VRING_CALL: u32 = 13;
    /// File descriptor on which errors go.
    pub const SET_VRING_ERR: u32 = 14;
    /// Feature bits of the protocol.
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    /// Enables feature bits of the protocol.
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    /// How many queues there may be.
    pub const GET_QUEUE_NUM: u32 = 17;
    /// Enables or disables a ring.
    pub const SET_VRING_ENABLE: u32 = 18;
    /// Socket on which the backend sends requests of its own.
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    /// Reads the device's configuration space.
    pub const GET_CONFIG: u32 = 24;
    /// Writes the device's configuration space.
    pub const SET_CONFIG: u32 = 25;
    /// An in-band kick.
    pub const VRING_KICK: u32 = 35;

    /// The name of a request in the specification.
    #[must_use]
    pub const fn name(code: u32) -> &'static str {
        match code {
            GET_FEATURES => "GET_FEATURES",
            SET_FEATURES => "SET_FEATURES",
            SET_OWNER => "SET_OWNER",
            RESET_OWNER => "RESET_OWNER",
            SET_MEM_TABLE => "SET_MEM_TABLE",
            SET_VRING_NUM => "SET_VRING_NUM",
            SET_VRING_ADDR => "SET_VRING_ADDR",
            SET_VRING_BASE => "SET_VRING_BASE",
            GET_VRING_BASE => "GET_VRING_BASE",
            SET_VRING_KICK => "SET_VRING_KICK",
            SET_VRING_CALL => "SET_VRING_CALL",
            SET_VRING_ERR => "SET_VRING_ERR",
            GET_PROTOCOL_FEATURES => "GET_PROTOCOL_FEATURES",
            SET_PROTOCOL_FEATURES => "SET_PROTOCOL_FEATURES",
            GET_QUEUE_NUM => "GET_QUEUE_NUM",
            SET_VRING_ENABLE => "SET_VRING_ENABLE",
            SET_BACKEND_REQ_FD => "SET_BACKEND_REQ_FD",
            GET_CONFIG => "GET_CONFIG",
            SET_CONFIG => "SET_CONFIG",
            VRING_KICK => "VRING_KICK",
            _ => "an unknown request",
        }
    }
}

/// Request codes of the backend to the front end on the backend channel. "Back-end message types" in the specification.
pub mod backend_code {
    /// An in-band call: entries were added to a used ring.
    pub const VRING_CALL: u32 = 4;
}

/// Bits of a header's flags. "Header" in the specification.
pub mod flag {
    /// The two bits that hold the version.
    pub const VERSION_MASK: u32 = 0x3;
    /// The only version.
    pub const VERSION: u32 = 0x1;
    /// The message is a reply.
    pub const REPLY: u32 = 1 << 2;
    /// The sender wants an acknowledgement; valid once [`super::protocol_feature::REPLY_ACK`] is
    /// negotiated.
    pub const NEED_REPLY: u32 = 1 << 3;
}

/// Numbers of the protocol's feature bits. "Protocol features" in the specification.
pub mod protocol_feature {
    /// Several queues; the backend answers GET_QUEUE_NUM.
    pub const MQ: u32 = 0;
    /// Requests may ask for an acknowledgement.
    pub const REPLY_ACK: u32 = 3;
    /// The backend may send requests of its own.
    pub const BACKEND_REQ: u32 = 5;
    /// The configuration space is read through the backend.
    pub const CONFIG: u32 = 9;
    /// Kicks and calls may be messages.
    pub const INBAND_NOTIFICATIONS: u32 = 14;
}

/// Bit of the device's features that says that the backend knows protocol features.
pub const F_PROTOCOL_FEATURES: u32 = 30;

/// Size of a header: three 32-bit words.
pub const HEADER_BYTES: usize = 12;
/// Most regions in a memory table without the protocol feature that raises it.
pub const REGIONS_MAX: usize = 8;
/// Most file descriptors in one message: one for each memory region.
pub const FDS_MAX: usize = REGIONS_MAX;
/// Largest piece of the configuration space that can be asked for.
pub const CONFIG_SPACE_BYTES_MAX: usize = 256;
/// Size of the description before the bytes of the configuration space: offset, size, flags.
pub const CONFIG_HEADER_BYTES: usize = 12;
/// Largest payload of any message that we know: configuration space with its description.
pub const PAYLOAD_BYTES_MAX: usize = CONFIG_HEADER_BYTES + CONFIG_SPACE_BYTES_MAX;

/// Size of a ring's index and number.
const VRING_STATE_BYTES: usize = 8;
/// Size of a ring's addresses: index, flags, descriptor table, used, available, log.
const VRING_ADDRESS_BYTES: usize = 40;
/// Size of a memory table before its regions: count and padding.
const MEMORY_TABLE_HEADER_BYTES: usize = 8;
/// Size of a memory region: guest address, size, user address, offset.
const MEMORY_REGION_BYTES: usize = 32;
/// Bits of SET_VRING_KICK, _CALL and _ERR that hold the ring's index.
const VRING_INDEX_MASK: u64 = 0xff;
/// Bit of SET_VRING_KICK, _CALL and _ERR that says that no file descriptor comes.
const VRING_NO_FD: u64 = 1 << 8;

/// A request of the front end, its form checked.
#[derive(Debug)]
pub struct Message {
    /// The code that it came with, one of [`code`] or unknown.
    pub code: u32,
    /// Whether the front end asked for an acknowledgement.
    pub needs_reply: bool,
    /// The request.
    pub request: Request,
}

/// A request of the front end; `index` is a ring's index.
#[derive(Debug)]
pub enum Request {
    /// See [`code::GET_FEATURES`].
    GetFeatures,
    /// See [`code::SET_FEATURES`]; the bits to enable.
    SetFeatures(u64),
    /// See [`code::SET_OWNER`].
    SetOwner,
    /// See [`code::RESET_OWNER`].
    ResetOwner,
    /// See [`code::SET_MEM_TABLE`]; each region with the file that holds it.
    SetMemTable(Vec<(MemoryRegion, OwnedFd)>),
    /// See [`code::SET_VRING_NUM`]; the size in entries.
    #[allow(missing_docs, reason = "the fields are those of the message")]
    SetVringNum { index: u32, size: u32 },
    /// See [`code::SET_VRING_ADDR`].
    #[allow(missing_docs, reason = "the fields are those of the message")]
    SetVringAddr { index: u32, addresses: VringAddresses },
    /// See [`code::SET_VRING_BASE`].
    #[allow(missing_docs, reason = "the fields are those of the message")]
    SetVringBase { index: u32, base: u32 },
    /// See [`code::GET_VRING_BASE`].
    #[allow(missing_docs, reason = "the fields are those of the message")]
    GetVringBase { index: u32 },
    /// See [`code::SET_VRING_KICK`]; without a file descriptor the ring would be polled.
    #[allow(missing_docs, reason = "the fields are those of the message")]
    SetVringKick { index: u32, fd: Option<OwnedFd> },
    /// See [`code::SET_VRING_CALL`]; without a file descriptor calls go in band, or not at all.
    #[allow(missing_docs, reason = "the fields are those of the message")]
    SetVringCall { index: u32, fd: Option<OwnedFd> },
    /// See [`code::SET_VRING_ERR`].
    #[allow(missing_docs, reason = "the fields are those of the message")]
    SetVringErr { index: u32, fd: Option<OwnedFd> },
    /// See [`code::GET_PROTOCOL_FEATURES`].
    GetProtocolFeatures,
    /// See [`code::SET_PROTOCOL_FEATURES`]; the bits to enable.
    SetProtocolFeatures(u64),
    /// See [`code::GET_QUEUE_NUM`].
    GetQueueNum,
    /// See [`code::SET_VRING_ENABLE`].
    #[allow(missing_docs, reason = "the fields are those of the message")]
    SetVringEnable { index: u32, enabled: bool },
    /// See [`code::SET_BACKEND_REQ_FD`].
    SetBackendReqFd(OwnedFd),
    /// See [`code::GET_CONFIG`]; `size` bytes from `offset` on.
    #[allow(missing_docs, reason = "the fields are those of the message")]
    GetConfig { offset: u32, size: u32, flags: u32 },
    /// See [`code::SET_CONFIG`].
    SetConfig,
    /// See [`code::VRING_KICK`].
    #[allow(missing_docs, reason = "the fields are those of the message")]
    VringKick { index: u32 },
    /// A code that is not in [`code`].
    Unknown,
}

/// A region of guest memory. "Memory region description" in the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// Address in the guest's physical memory, which descriptors use.
    pub guest_address: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Address in the front end's address space, which ring addresses use.
    pub user_address: u64,
    /// Where the region begins in its file, in bytes.
    pub offset_bytes: u64,
}

/// Where the parts of a ring lie, in the front end's address space. "A vring address
/// description" in the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VringAddresses {
    /// Bit 0: writes to the used ring are to be logged.
    pub flags: u32,
    /// Descriptor table.
    pub descriptors: u64,
    /// Used ring.
    pub used: u64,
    /// Available ring.
    pub available: u64,
}

/// Collects bytes and file descriptors until a message is whole.
#[derive(Debug)]
pub struct MessageDecoder {
    header: Option<Header>,
    buffer: [u8; PAYLOAD_BYTES_MAX],
    filled_bytes: usize,
    fds: Vec<OwnedFd>,
}

impl MessageDecoder {
    /// A decoder at the beginning of a message.
    #[must_use]
    pub fn new() -> Self {
        MessageDecoder { header: None, buffer: [0; PAYLOAD_BYTES_MAX], filled_bytes: 0, fds: Vec::new() }
    }

    /// How many bytes may be received next; never zero.
    #[must_use]
    pub fn wanted_bytes(&self) -> usize {
        match self.header {
            None => HEADER_BYTES - self.filled_bytes,
            Some(header) => header.size as usize - self.filled_bytes,
        }
    }

    /// Whether the last message is complete and nothing of the next has come.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.header.is_none() && self.filled_bytes == 0 && self.fds.is_empty()
    }

    /// Takes received bytes; returns the message once it is complete.
    ///
    /// # Errors
    /// A [`ProtocolError`] if the stream breaks the format; the stream is unusable after that.
    ///
    /// # Panics
    /// If there are more bytes than [`wanted_bytes`](Self::wanted_bytes).
    pub fn receive(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Option<Message>, ProtocolError> {
        assert!(bytes.len() <= self.wanted_bytes(), "read beyond the end of a message");
        self.buffer[self.filled_bytes..][..bytes.len()].copy_from_slice(bytes);
        self.filled_bytes += bytes.len();
        self.fds.extend(fds);
        if self.fds.len() > FDS_MAX {
            return Err(ProtocolError::TooManyFds);
        }
        let header = match self.header {
            Some(header) => header,
            None if self.filled_bytes < HEADER_BYTES => return Ok(None),
            None => {
                let header = Header::from_bytes(&self.buffer[..HEADER_BYTES]);
                header.check()?;
                self.filled_bytes = 0;
                *self.header.insert(header)
            }
        };
        if self.filled_bytes < header.size as usize {
            return Ok(None);
        }
        self.header = None;
        self.filled_bytes = 0;
        let payload = Payload { code: header.request, bytes: &self.buffer[..header.size as usize] };
        let request = payload.parse(std::mem::take(&mut self.fds))?;
        let needs_reply = header.flags & flag::NEED_REPLY != 0;
        Ok(Some(Message { code: header.request, needs_reply, request }))
    }
}

impl Default for MessageDecoder {
    fn default() -> Self {
        MessageDecoder::new()
    }
}

/// Precedes every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One of [`code`] or [`backend_code`].
    pub request: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Size of the payload, in bytes.
    pub size: u32,
}

impl Header {
    /// The header at the beginning of `bytes`.
    ///
    /// # Panics
    /// If there are fewer than [`HEADER_BYTES`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Header { request: u32_at(bytes, 0), flags: u32_at(bytes, 4), size: u32_at(bytes, 8) }
    }

    fn check(&self) -> Result<(), ProtocolError> {
        let Header { request: code, flags, size } = *self;
        if flags & flag::VERSION_MASK != flag::VERSION {
            return Err(ProtocolError::Version { code, flags });
        }
        if flags & flag::REPLY != 0 {
            return Err(ProtocolError::UnexpectedReply { code, flags });
        }
        if size as usize > PAYLOAD_BYTES_MAX {
            return Err(ProtocolError::PayloadTooLarge { code, size_bytes: size });
        }
        Ok(())
    }
}

/// A whole message as bytes.
///
/// # Panics
/// If the payload is larger than [`PAYLOAD_BYTES_MAX`].
#[must_use]
pub fn encode(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "no message has so large a payload");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    for word in [request, flags | flag::VERSION, payload.len() as u32] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// The reply to a request.
#[must_use]
pub fn reply(code: u32, payload: &[u8]) -> Vec<u8> {
    encode(code, flag::REPLY, payload)
}

/// The reply to a request that asked for an acknowledgement: zero for success.
#[must_use]
pub fn acknowledgement(code: u32, success: bool) -> Vec<u8> {
    reply(code, &u64::from(!success).to_ne_bytes())
}

/// The backend's request that tells the guest of new entries in a used ring. It asks for no
/// reply: a guest that is stopped in a kick could not give it.
#[must_use]
pub fn vring_call(index: u32) -> Vec<u8> {
    encode(backend_code::VRING_CALL, 0, &vring_state(index, 0))
}

/// The payload that names a ring and a number.
#[must_use]
pub fn vring_state(index: u32, number: u32) -> [u8; 8] {
    let mut bytes = [0; VRING_STATE_BYTES];
    bytes[..4].copy_from_slice(&index.to_ne_bytes());
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// How a stream can break the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant says what it means")]
pub enum ProtocolError {
    #[error("{} (code {code}) has flags {flags:#x}, expected version 1 in the two lowest bits", code::name(*code))]
    Version { code: u32, flags: u32 },
    #[error("{} (code {code}) has flags {flags:#x}, a reply where a request was expected", code::name(*code))]
    UnexpectedReply { code: u32, flags: u32 },
    #[error("{} (code {code}) announces {size_bytes} bytes of payload, expected at most {PAYLOAD_BYTES_MAX}", code::name(*code))]
    PayloadTooLarge { code: u32, size_bytes: u32 },
    #[error("{} has {size_bytes} bytes of payload, expected {expected_bytes}", code::name(*code))]
    PayloadSize { code: u32, size_bytes: usize, expected_bytes: usize },
    #[error("{} has a memory table of {count} regions, expected at most {REGIONS_MAX}", code::name(*code))]
    TooManyRegions { code: u32, count: u32 },
    #[error("{} (code {code}) came with {count} file descriptors, expected {expected}", code::name(*code))]
    FdCount { code: u32, count: usize, expected: usize },
    #[error("a message came with more than {FDS_MAX} file descriptors")]
    TooManyFds,
    #[error("{} has a ring index and flags of {value:#x}, expected bits 0 to 8 only", code::name(*code))]
    VringIndexBits { code: u32, value: u64 },
}

/// A payload on its way to a [`Request`].
struct Payload<'a> {
    code: u32,
    bytes: &'a [u8],
}

impl Payload<'_> {
    fn parse(&self, fds: Vec<OwnedFd>) -> Result<Request, ProtocolError> {
        match self.code {
            code::SET_MEM_TABLE => self.memory_table(fds),
            code::SET_VRING_KICK => self.vring_fd(fds).map(|(index, fd)| Request::SetVringKick { index, fd }),
            code::SET_VRING_CALL => self.vring_fd(fds).map(|(index, fd)| Request::SetVringCall { index, fd }),
            code::SET_VRING_ERR => self.vring_fd(fds).map(|(index, fd)| Request::SetVringErr { index, fd }),
            code::SET_BACKEND_REQ_FD => self.backend_channel(fds),
            _ => {
                self.expect_fds(fds.len(), 0)?;
                self.parse_plain()
            }
        }
    }

    /// Requests that never bring file descriptors.
    fn parse_plain(&self) -> Result<Request, ProtocolError> {
        match self.code {
            code::GET_FEATURES => self.empty(Request::GetFeatures),
            code::SET_FEATURES => self.number().map(Request::SetFeatures),
            code::SET_OWNER => self.empty(Request::SetOwner),
            code::RESET_OWNER => self.empty(Request::ResetOwner),
            code::SET_VRING_NUM => self.state().map(|(index, size)| Request::SetVringNum { index, size }),
            code::SET_VRING_ADDR => self.vring_addresses(),
            code::SET_VRING_BASE => self.state().map(|(index, base)| Request::SetVringBase { index, base }),
            code::GET_VRING_BASE => self.state().map(|(index, _)| Request::GetVringBase { index }),
            code::GET_PROTOCOL_FEATURES => self.empty(Request::GetProtocolFeatures),
            code::SET_PROTOCOL_FEATURES => self.number().map(Request::SetProtocolFeatures),
            code::GET_QUEUE_NUM => self.empty(Request::GetQueueNum),
            code::SET_VRING_ENABLE => {
                self.state().map(|(index, number)| Request::SetVringEnable { index, enabled: number != 0 })
            }
            code::GET_CONFIG => self.get_config(),
            code::SET_CONFIG => Ok(Request::SetConfig),
            code::VRING_KICK => self.state().map(|(index, _)| Request::VringKick { index }),
            _ => Ok(Request::Unknown),
        }
    }

    fn expect_bytes(&self, expected_bytes: usize) -> Result<(), ProtocolError> {
        if self.bytes.len() == expected_bytes {
            return Ok(());
        }
        Err(ProtocolError::PayloadSize { code: self.code, size_bytes: self.bytes.len(), expected_bytes })
    }

    fn expect_fds(&self, count: usize, expected: usize) -> Result<(), ProtocolError> {
        if count == expected {
            return Ok(());
        }
        Err(ProtocolError::FdCount { code: self.code, count, expected })
    }

    fn empty(&self, request: Request) -> Result<Request, ProtocolError> {
        self.expect_bytes(0)?;
        Ok(request)
    }

    fn number(&self) -> Result<u64, ProtocolError> {
        self.expect_bytes(size_of::<u64>())?;
        Ok(u64_at(self.bytes, 0))
    }

    fn state(&self) -> Result<(u32, u32), ProtocolError> {
        self.expect_bytes(VRING_STATE_BYTES)?;
        Ok((u32_at(self.bytes, 0), u32_at(self.bytes, 4)))
    }

    fn vring_addresses(&self) -> Result<Request, ProtocolError> {
        self.expect_bytes(VRING_ADDRESS_BYTES)?;
        let addresses = VringAddresses {
            flags: u32_at(self.bytes, 4),
            descriptors: u64_at(self.bytes, 8),
            used: u64_at(self.bytes, 16),
            available: u64_at(self.bytes, 24),
        };
        Ok(Request::SetVringAddr { index: u32_at(self.bytes, 0), addresses })
    }

    fn vring_fd(&self, fds: Vec<OwnedFd>) -> Result<(u32, Option<OwnedFd>), ProtocolError> {
        let value = self.number()?;
        if value & !(VRING_INDEX_MASK | VRING_NO_FD) != 0 {
            return Err(ProtocolError::VringIndexBits { code: self.code, value });
        }
        self.expect_fds(fds.len(), usize::from(value & VRING_NO_FD == 0))?;
        Ok(((value & VRING_INDEX_MASK) as u32, fds.into_iter().next()))
    }

    fn backend_channel(&self, fds: Vec<OwnedFd>) -> Result<Request, ProtocolError> {
        self.expect_bytes(0)?;
        self.expect_fds(fds.len(), 1)?;
        let [fd] = <[OwnedFd; 1]>::try_from(fds).expect("the count was checked");
        Ok(Request::SetBackendReqFd(fd))
    }

    /// The payload may be longer than its regions: User Mode Linux always sends room for two.
    fn memory_table(&self, fds: Vec<OwnedFd>) -> Result<Request, ProtocolError> {
        let size_error = |expected_bytes| ProtocolError::PayloadSize {
            code: self.code,
            size_bytes: self.bytes.len(),
            expected_bytes,
        };
        if self.bytes.len() < MEMORY_TABLE_HEADER_BYTES {
            return Err(size_error(MEMORY_TABLE_HEADER_BYTES));
        }
        let count = u32_at(self.bytes, 0);
        if count as usize > REGIONS_MAX {
            return Err(ProtocolError::TooManyRegions { code: self.code, count });
        }
        let expected_bytes = MEMORY_TABLE_HEADER_BYTES + count as usize * MEMORY_REGION_BYTES;
        if self.bytes.len() < expected_bytes {
            return Err(size_error(expected_bytes));
        }
        self.expect_fds(fds.len(), count as usize)?;
        let regions = self.bytes[MEMORY_TABLE_HEADER_BYTES..expected_bytes].chunks_exact(MEMORY_REGION_BYTES);
        Ok(Request::SetMemTable(regions.map(MemoryRegion::from_bytes).zip(fds).collect()))
    }

    fn get_config(&self) -> Result<Request, ProtocolError> {
        if self.bytes.len() < CONFIG_HEADER_BYTES {
            self.expect_bytes(CONFIG_HEADER_BYTES)?;
        }
        let (offset, size, flags) = (u32_at(self.bytes, 0), u32_at(self.bytes, 4), u32_at(self.bytes, 8));
        self.expect_bytes(CONFIG_HEADER_BYTES.saturating_add(size as usize))?;
        Ok(Request::GetConfig { offset, size, flags })
    }
}

impl MemoryRegion {
    fn from_bytes(bytes: &[u8]) -> Self {
        MemoryRegion {
            guest_address: u64_at(bytes, 0),
            size_bytes: u64_at(bytes, 8),
            user_address: u64_at(bytes, 16),
            offset_bytes: u64_at(bytes, 24),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
