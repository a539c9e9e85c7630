//! The client's side of the protocol for tests and fuzzers, without a socket.
//!
//! [`MockClient`] encodes options and requests, including invalid ones, and passes them to a session. [`Reply::decode`]
//! decodes the answers and accepts only valid ones.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use chronodisk_sim::Status;
use chronodisk_store::Store;

use super::wire::{
    BASE_ALLOCATION, CHUNK_FLAG_DONE, CHUNK_HEADER_BYTES, Fields, OPTION_MAGIC, OPTION_REPLY_HEADER_BYTES,
    OPTION_REPLY_MAGIC, REQUEST_MAGIC, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk,
    client_flag, command, info, option,
};
use super::{Event, NbdRequest, NbdSession, ServerOffer};

/// A mock client whose bytes are chosen by the test, the session that serves it, and its store.
pub struct MockClient {
    /// The session.
    pub session: NbdSession,
    /// The bytes of the device.
    pub store: Box<dyn Store>,
    /// Reported requests that are not completed, in order.
    pub outstanding: Vec<NbdRequest>,
    /// Events other than requests.
    pub events: Vec<Event>,
    /// Output of the session that was not processed yet.
    pub said: Vec<u8>,
    /// Bytes handed over at once.
    pub piece_bytes: usize,
}

impl MockClient {
    /// Connects.
    #[must_use]
    pub fn new(offer: Arc<ServerOffer>, store: Box<dyn Store>) -> Self {
        MockClient {
            session: NbdSession::new(offer),
            store,
            outstanding: Vec::new(),
            events: Vec::new(),
            said: Vec::new(),
            piece_bytes: usize::MAX,
        }
    }

    /// Connects and negotiates the default export, with everything that can be negotiated.
    #[must_use]
    pub fn negotiated(offer: Arc<ServerOffer>, store: Box<dyn Store>) -> Self {
        let mut client = MockClient::new(offer, store);
        client.send(&client_flags());
        client.send(&option_request(option::STRUCTURED_REPLY, &[]));
        client.send(&option_request(option::SET_META_CONTEXT, &meta_context("", &[BASE_ALLOCATION])));
        client.send(&option_request(option::GO, &info_data("", &[info::BLOCK_SIZE])));
        client.receive();
        client.said.clear();
        client
    }

    /// Passes bytes to the session, and executes each reported request at once. Stops when the session accepts no more,
    /// and returns the number of accepted bytes.
    pub fn send(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        self.take_events();
        while !rest.is_empty() && self.session.wants_input() {
            let room = self.session.receive_room();
            let len = rest.len().min(room.len()).min(self.piece_bytes);
            room[..len].copy_from_slice(&rest[..len]);
            self.session.received(len);
            rest = &rest[len..];
            self.take_events();
        }
        bytes.len() - rest.len()
    }

    /// Takes the session's events.
    pub fn take_events(&mut self) {
        while let Some(event) = self.session.next_event() {
            match event {
                Event::Request(request) => {
                    let _ = self.session.execute(request.key, &mut *self.store);
                    self.outstanding.push(request);
                }
                Event::Negotiated { .. } | Event::Closing(_) => self.events.push(event),
            }
        }
    }

    /// Completes all outstanding requests, and the arrivals that follow.
    pub fn complete_all(&mut self) {
        loop {
            for request in std::mem::take(&mut self.outstanding) {
                assert!(self.session.complete(request.key, Status::Ok), "{request:?} is outstanding");
            }
            self.receive();
            self.take_events();
            if self.outstanding.is_empty() {
                return;
            }
        }
    }

    /// Takes all output.
    pub fn receive(&mut self) {
        while self.session.has_output() {
            let mut slices = [IoSlice::new(&[]); 16];
            let count = self.session.gather(&mut slices);
            let before = self.said.len();
            for slice in &slices[..count] {
                self.said.extend_from_slice(slice);
            }
            let len = self.said.len() - before;
            assert!(len > 0, "output without bytes");
            self.session.sent(len);
        }
    }

    /// Sends a request, completes everything, and returns the answers.
    ///
    /// # Panics
    /// If the session does not answer as the protocol wants.
    pub fn ask(&mut self, request: RequestBytes<'_>) -> Vec<Reply> {
        self.send(&request.encode());
        self.complete_all();
        Reply::decode_all(&std::mem::take(&mut self.said), &BTreeMap::from([(request.cookie, request.read_bytes())]))
            .expect("the session keeps to the protocol")
    }
}

/// The client's flags: all known ones.
#[must_use]
pub fn client_flags() -> [u8; 4] {
    (client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES).to_be_bytes()
}

/// An option and its data.
#[must_use]
pub fn option_request(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[must_use]
pub fn info_data(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut bytes = string(name);
    bytes.extend((wanted.len() as u16).to_be_bytes());
    bytes.extend(wanted.iter().flat_map(|kind| kind.to_be_bytes()));
    bytes
}

/// Data of the metadata options.
#[must_use]
pub fn meta_context(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = string(name);
    bytes.extend((queries.len() as u32).to_be_bytes());
    bytes.extend(queries.iter().flat_map(|query| string(query)));
    bytes
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// A request as a client writes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestBytes<'a> {
    /// Command flags.
    pub flags: u16,
    /// A number of [`command`].
    pub command: u16,
    /// Value that the reply repeats.
    pub cookie: u64,
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u32,
    /// Bytes after the header.
    pub data: &'a [u8],
}

impl RequestBytes<'_> {
    /// The bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(self.command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset_bytes.to_be_bytes());
        bytes.extend(self.len_bytes.to_be_bytes());
        bytes.extend(self.data);
        bytes
    }

    /// Data that a successful simple reply has.
    fn read_bytes(&self) -> usize {
        if self.command == command::READ { self.len_bytes as usize } else { 0 }
    }
}

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A simple reply.
    Simple {
        /// Cookie of the request.
        cookie: u64,
        /// Zero for success.
        error: u32,
        /// Data read.
        data: Vec<u8>,
    },
    /// A chunk of a structured reply.
    Chunk {
        /// Cookie of the request.
        cookie: u64,
        /// Whether it is the last chunk.
        done: bool,
        /// Content of the chunk.
        content: Content,
    },
}

/// Content of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The reply has no content.
    None,
    /// Bytes from an offset on.
    Data {
        /// First byte.
        offset_bytes: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Zeros.
    Hole {
        /// First byte.
        offset_bytes: u64,
        /// Their number.
        len_bytes: u32,
    },
    /// Lengths and states.
    Extents(Vec<(u32, u32)>),
    /// A failure, and where.
    Error {
        /// Error number, never zero.
        error: u32,
        /// First byte that failed.
        offset_bytes: Option<u64>,
    },
}

impl Reply {
    /// The error, zero for success.
    #[must_use]
    pub fn error(&self) -> u32 {
        match self {
            Reply::Simple { error, .. } | Reply::Chunk { content: Content::Error { error, .. }, .. } => *error,
            Reply::Chunk { .. } => 0,
        }
    }

    /// Decodes a reply at the front; `None` if it is incomplete. Simple replies to reads have the length that
    /// `read_bytes` gives for their cookie.
    ///
    /// # Errors
    /// If the reply violates the protocol.
    pub fn decode(bytes: &[u8], read_bytes: &BTreeMap<u64, usize>) -> Result<Option<(Reply, usize)>, String> {
        let mut fields = Fields(bytes);
        let reply = match fields.u32() {
            Some(SIMPLE_REPLY_MAGIC) => {
                let (Some(error), Some(cookie)) = (fields.u32(), fields.u64()) else { return Ok(None) };
                let len = if error == 0 { read_bytes.get(&cookie).copied().unwrap_or(0) } else { 0 };
                let Some(data) = fields.take(len) else { return Ok(None) };
                Reply::Simple { cookie, error, data: data.to_vec() }
            }
            Some(STRUCTURED_REPLY_MAGIC) if bytes.len() >= CHUNK_HEADER_BYTES => {
                let flags = fields.u16().ok_or("flags")?;
                let kind = fields.u16().ok_or("type")?;
                let cookie = fields.u64().ok_or("cookie")?;
                let len = fields.u32().ok_or("length")?;
                if flags & !CHUNK_FLAG_DONE != 0 {
                    return Err(format!("chunk flags {flags:#x}"));
                }
                let Some(payload) = fields.take(len as usize) else { return Ok(None) };
                let content = Content::decode(kind, payload).ok_or_else(|| format!("chunk {kind} of {len} bytes"))?;
                Reply::Chunk { cookie, done: flags == CHUNK_FLAG_DONE, content }
            }
            None => return Ok(None),
            Some(STRUCTURED_REPLY_MAGIC) => return Ok(None),
            Some(magic) => return Err(format!("magic number {magic:#x} of a reply")),
        };
        debug_assert!(bytes.len() - fields.0.len() >= SIMPLE_REPLY_BYTES);
        Ok(Some((reply, bytes.len() - fields.0.len())))
    }

    /// Decodes replies that fill `bytes`.
    ///
    /// # Errors
    /// A violation of the protocol.
    pub fn decode_all(bytes: &[u8], read_bytes: &BTreeMap<u64, usize>) -> Result<Vec<Reply>, String> {
        let mut replies = Vec::new();
        let mut rest = bytes;
        while let Some((reply, len)) = Reply::decode(rest, read_bytes)? {
            replies.push(reply);
            rest = &rest[len..];
        }
        if rest.is_empty() { Ok(replies) } else { Err(format!("{} bytes of an incomplete reply", rest.len())) }
    }
}

impl Content {
    fn decode(kind: u16, payload: &[u8]) -> Option<Content> {
        let mut fields = Fields(payload);
        let content = match kind {
            chunk::NONE => Content::None,
            chunk::OFFSET_DATA => {
                let offset_bytes = fields.u64()?;
                let data = fields.take(fields.0.len()).filter(|data| !data.is_empty())?;
                Content::Data { offset_bytes, data: data.to_vec() }
            }
            chunk::OFFSET_HOLE => {
                Content::Hole { offset_bytes: fields.u64()?, len_bytes: fields.u32().filter(|&len| len > 0)? }
            }
            chunk::BLOCK_STATUS => {
                fields.u32()?;
                let mut extents = Vec::new();
                while !fields.is_empty() {
                    extents.push((fields.u32().filter(|&len| len > 0)?, fields.u32()?));
                }
                Content::Extents(Some(extents).filter(|extents| !extents.is_empty())?)
            }
            chunk::ERROR | chunk::ERROR_OFFSET => {
                let error = fields.u32().filter(|&error| error != 0)?;
                let message_bytes = fields.u16()?;
                std::str::from_utf8(fields.take(message_bytes.into())?).ok()?;
                let offset_bytes = if kind == chunk::ERROR_OFFSET { Some(fields.u64()?) } else { None };
                Content::Error { error, offset_bytes }
            }
            _ => return None,
        };
        fields.is_empty().then_some(content)
    }
}

/// An answer to an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// The option.
    pub option: u32,
    /// A number of [`option_reply`](super::wire::option_reply).
    pub kind: u32,
    /// Data of the option reply.
    pub data: Vec<u8>,
}

impl OptionReply {
    /// Takes option replies off `bytes` until other bytes come; returns these, too.
    #[must_use]
    pub fn decode_all(bytes: &[u8]) -> (Vec<OptionReply>, &[u8]) {
        let mut replies = Vec::new();
        let mut rest = bytes;
        while rest.len() >= OPTION_REPLY_HEADER_BYTES {
            let mut fields = Fields(rest);
            if fields.u64() != Some(OPTION_REPLY_MAGIC) {
                break;
            }
            let (Some(option), Some(kind), Some(data)) = (fields.u32(), fields.u32(), fields.string()) else { break };
            replies.push(OptionReply { option, kind, data: data.to_vec() });
            rest = fields.0;
        }
        (replies, rest)
    }
}
