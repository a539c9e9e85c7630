//! The kernel's connection, if its requests come over io_uring.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use chronodisk_sim::Status;
use chronodisk_store::{Store, StoreError};

use super::answers::{Answer, Answers, Operation};
use super::ring_wire::{RING_HEADER_BYTES, RingRequest};
use super::session::{FuseCommand, FuseEvent, FuseRequest, Payload, reply_header};
use super::wire::{self, Body, OUT_HEADER_BYTES};
use super::{FuseFile, IN_FLIGHT_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::buffer_pool::BufferPool;
use crate::errno::Errno;

/// The kernel's connection without its ring, after the first message.
///
/// It has a fixed number of *entries*. The ring's owner reports an entry's completed command by
/// [`fetched`](Self::fetched). A request is [executed](Self::execute) on the entry's payload at once, and
/// [completed](Self::complete) when it is due. The reply of [`next_reply`](Self::next_reply) is put into the entry's
/// buffers and sent by its next command, and [acknowledged](Self::sent). Then the entry is at the kernel again.
///
/// Messages that still come by `/dev/fuse` are for a [`FuseSession`](super::FuseSession). With a stable number and size
/// of requests no memory is allocated.
#[derive(Debug)]
pub struct FuseRingSession {
    answers: Answers,
    entries: Box<[Entry]>,
    /// Buffers for data that are moved by helpers.
    pool: BufferPool,
    outstanding: usize,
    /// Entries with a reply that was not sent.
    replies: VecDeque<u32>,
    has_ended: bool,
}

/// A reply for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuseRingReply<'a> {
    /// The entry.
    pub entry: u32,
    /// Names the request in the command.
    pub commit_id: u64,
    /// `fuse_out_header`.
    pub header: [u8; OUT_HEADER_BYTES],
    /// Structure to be copied to the start of the payload.
    pub body: &'a [u8],
    /// Length of the reply's payload: of the body, or of the data of a read, which are in the payload.
    pub payload_bytes: u32,
}

/// The kernel broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuseRingViolation {
    /// A command of an unknown entry completed.
    Entry(u32),
    /// A command completed whose entry had none at the kernel.
    NotFetched(u32),
    /// A command ended with this result.
    Result(u32, i32),
    /// A request has number 0, so no reply is possible.
    Unnamed(u32),
}

impl fmt::Display for FuseRingViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAME: &str = "FUSE over io_uring";
        match self {
            FuseRingViolation::Entry(entry) => write!(f, "{NAME}: entry {entry} does not exist"),
            FuseRingViolation::NotFetched(entry) => write!(f, "{NAME}: entry {entry} completed without a command"),
            FuseRingViolation::Result(entry, result) => {
                write!(f, "{NAME}: the command of entry {entry} ended with result {result}; expected 0")
            }
            FuseRingViolation::Unnamed(entry) => write!(f, "{NAME}: found request number 0 in entry {entry}"),
        }
    }
}

/// Results of commands after the end of the connection: `-ENOTCONN`, `-ECONNABORTED`, `-ENODEV`, `-ECANCELED`; and
/// `-ENOENT`, because an abort may remove a request while its reply is on the way.
const RESULTS_OF_THE_END: [i32; 5] = [-107, -103, -19, -125, -2];

/// Owner of an entry's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Owner {
    /// A command is at the kernel.
    #[default]
    Kernel,
    /// A request is outstanding.
    Device,
    /// A reply was not sent.
    Reply,
    /// The connection has ended.
    Ended,
}

/// An entry.
#[derive(Debug)]
struct Entry {
    owner: Owner,
    request: Option<FuseRequest>,
    unique: u64,
    commit_id: u64,
    /// The payload has the data of a read.
    has_data: bool,
    failure: Option<Errno>,
    /// The reply.
    header: [u8; OUT_HEADER_BYTES],
    body: Body,
    payload_bytes: u32,
}

impl Default for Entry {
    fn default() -> Self {
        Entry {
            owner: Owner::Kernel,
            request: None,
            unique: 0,
            commit_id: 0,
            has_data: false,
            failure: None,
            header: [0; OUT_HEADER_BYTES],
            body: Body::EMPTY,
            payload_bytes: 0,
        }
    }
}

impl FuseRingSession {
    /// A connection whose first message was answered, with this number of entries at the kernel.
    #[must_use]
    pub fn new(file: FuseFile, entries: u32) -> Self {
        FuseRingSession {
            answers: Answers::serving(file),
            entries: (0..entries).map(|_| Entry::default()).collect(),
            // The entries bound the memory, and the kernel must not wait for other clients.
            pool: BufferPool::new(&Arc::default(), IN_FLIGHT_BYTES_MAX as usize),
            outstanding: 0,
            replies: VecDeque::with_capacity(entries as usize),
            has_ended: false,
        }
    }

    /// Takes a completed command with its result and the entry's header. Returns the event, or `None` if the request
    /// was answered: then a reply is waiting. [`FuseEvent::Destroyed`] stands for the end of the connection.
    ///
    /// # Errors
    /// [`FuseRingViolation`]; the session can't continue.
    pub fn fetched(
        &mut self,
        entry: u32,
        result: i32,
        header: &[u8; RING_HEADER_BYTES],
    ) -> Result<Option<FuseEvent>, FuseRingViolation> {
        let slot = self.entries.get_mut(entry as usize).ok_or(FuseRingViolation::Entry(entry))?;
        if slot.owner != Owner::Kernel {
            return Err(FuseRingViolation::NotFetched(entry));
        }
        if RESULTS_OF_THE_END.contains(&result) {
            slot.owner = Owner::Ended;
            self.has_ended = true;
            return Ok(Some(FuseEvent::Destroyed));
        }
        if result != 0 {
            return Err(FuseRingViolation::Result(entry, result));
        }
        let request = RingRequest::decode(header).filter(|request| request.header.unique != 0);
        let request = request.ok_or(FuseRingViolation::Unnamed(entry))?;
        *slot = Entry { unique: request.header.unique, commit_id: request.commit_id, ..Entry::default() };
        match self.answer(&request) {
            Ok(Answer::Request(command, range)) => {
                let wire::RangeIn { offset_bytes, len_bytes } = range;
                let request = FuseRequest { slot: entry, command, offset_bytes, len_bytes };
                let slot = &mut self.entries[entry as usize];
                (slot.owner, slot.request) = (Owner::Device, Some(request));
                self.outstanding += 1;
                Ok(Some(FuseEvent::Request(request)))
            }
            Ok(Answer::Body(body)) => {
                self.reply(entry, body);
                Ok(None)
            }
            Ok(Answer::Destroyed) => {
                self.has_ended = true;
                self.reply(entry, Body::EMPTY);
                Ok(Some(FuseEvent::Destroyed))
            }
            // Linux sends these by `/dev/fuse`. The reply returns the entry.
            Ok(Answer::Silence) => {
                self.reply(entry, Body::EMPTY);
                Ok(None)
            }
            Err(error) => {
                self.reply_error(entry, error);
                Ok(None)
            }
        }
    }

    fn answer(&mut self, request: &RingRequest<'_>) -> Result<Answer, Errno> {
        let wire::InHeader { opcode, nodeid, .. } = request.header;
        if request.payload_bytes > REQUEST_BYTES_MAX {
            return Err(self.answers.refuse(opcode, Errno::TooBig));
        }
        let data_bytes = request.payload_bytes as usize;
        match opcode {
            // The first message has come by `/dev/fuse`.
            wire::opcode::INIT => Err(Errno::Protocol),
            _ => self.answers.answer(&Operation { opcode, nodeid, structure: request.structure, data_bytes }),
        }
    }

    /// Performs a request on `store`; `payload` is the entry's. Call it once per request, when the event is returned.
    /// After a failure [`complete`](Self::complete) reports it to the kernel.
    ///
    /// # Errors
    /// Errors of the store; the request stays outstanding. [`StoreError::WouldWait`] is no failure: the caller tries
    /// again.
    pub fn execute(&mut self, entry: u32, store: &mut dyn Store, payload: &mut [u8]) -> Result<(), StoreError> {
        let gone = |what: &str| StoreError::Damaged { what: what.to_owned() };
        let request = self.request(entry).ok_or_else(|| gone("a request that is not outstanding"))?;
        let FuseRequest { command, offset_bytes, len_bytes, .. } = request;
        let data = payload.get_mut(..request.payload_bytes()).ok_or_else(|| gone("the payload of a request"))?;
        let executed = match command {
            FuseCommand::Read => store.read(offset_bytes, data),
            FuseCommand::Write => store.write(offset_bytes, data),
            FuseCommand::Flush => store.flush(),
            FuseCommand::Discard => store.discard(offset_bytes, len_bytes),
            FuseCommand::WriteZeroes => store.write_zeroes(offset_bytes, len_bytes),
        };
        let slot = &mut self.entries[entry as usize];
        match &executed {
            Ok(()) => slot.has_data = command == FuseCommand::Read,
            Err(StoreError::WouldWait) => {}
            Err(error) => slot.failure = Some(Errno::of_store(error)),
        }
        executed
    }

    /// A copy of the data of an outstanding write; `payload` is the entry's.
    pub(crate) fn take_payload(&mut self, entry: u32, payload: &[u8]) -> Option<Payload> {
        let request = self.request(entry).filter(|request| request.command == FuseCommand::Write)?;
        let data = payload.get(..request.payload_bytes())?;
        let mut buffer = self.pool.take(data.len())?;
        buffer[..data.len()].copy_from_slice(data);
        Some(Payload { buffer, len: data.len() })
    }

    /// Takes back the copy.
    pub(crate) fn give_payload(&mut self, payload: Payload) {
        self.pool.give(payload.buffer);
    }

    /// A buffer for the data of an outstanding read, to be filled elsewhere and [given back](Self::give_back).
    pub(crate) fn lend(&mut self, entry: u32) -> Option<Box<[u8]>> {
        let request = self.request(entry).filter(|request| request.command == FuseCommand::Read)?;
        // The pool has no limit.
        self.pool.take(request.payload_bytes())
    }

    /// Returns a lent buffer, and copies its data to the entry's payload.
    pub(crate) fn give_back(&mut self, entry: u32, buffer: Box<[u8]>, has_data: bool, payload: &mut [u8]) {
        if let Some(request) = self.request(entry).filter(|_| has_data) {
            let len = request.payload_bytes();
            if let (Some(room), Some(data)) = (payload.get_mut(..len), buffer.get(..len)) {
                room.copy_from_slice(data);
                self.entries[entry as usize].has_data = request.command == FuseCommand::Read;
            }
        }
        self.pool.give(buffer);
    }

    /// Length of the data in an outstanding request's payload.
    #[must_use]
    pub fn payload_bytes(&self, entry: u32) -> usize {
        self.request(entry).map_or(0, |request| request.payload_bytes())
    }

    /// Records the failure of a store at an outstanding request; [`complete`](Self::complete) reports it to the kernel.
    pub fn failed(&mut self, entry: u32, error: &StoreError) {
        if self.request(entry).is_some() {
            self.entries[entry as usize].failure = Some(Errno::of_store(error));
        }
    }

    /// Answers a request; returns false if it is not outstanding.
    pub fn complete(&mut self, entry: u32, status: Status) -> bool {
        let Some(request) = self.request(entry) else { return false };
        let slot = &mut self.entries[entry as usize];
        self.outstanding -= 1;
        let lacks_data = request.command == FuseCommand::Read && !slot.has_data;
        let failure = slot.failure.or(Errno::of_status(status)).or(lacks_data.then_some(Errno::Io));
        match (failure, request.command) {
            (Some(error), _) => self.reply_error(entry, error),
            (None, FuseCommand::Read) => {
                self.reply(entry, Body::EMPTY);
                let len = request.payload_bytes();
                let slot = &mut self.entries[entry as usize];
                (slot.header, slot.payload_bytes) = (reply_header(slot.unique, 0, len), len as u32);
            }
            // The payload bounds a write's length.
            (None, FuseCommand::Write) => self.reply(entry, wire::write_out(request.len_bytes as u32)),
            (None, _) => self.reply(entry, Body::EMPTY),
        }
        true
    }

    fn reply(&mut self, entry: u32, body: Body) {
        let slot = &mut self.entries[entry as usize];
        let len = body.bytes().len();
        slot.owner = Owner::Reply;
        slot.header = reply_header(slot.unique, 0, len);
        (slot.body, slot.payload_bytes) = (body, len as u32);
        self.replies.push_back(entry);
    }

    fn reply_error(&mut self, entry: u32, error: Errno) {
        self.reply(entry, Body::EMPTY);
        let slot = &mut self.entries[entry as usize];
        slot.header = reply_header(slot.unique, -(error as i32), 0);
    }

    /// The oldest reply that was not sent.
    #[must_use]
    pub fn next_reply(&self) -> Option<FuseRingReply<'_>> {
        let entry = *self.replies.front()?;
        let Entry { commit_id, header, body, payload_bytes, .. } = &self.entries[entry as usize];
        let (commit_id, header, payload_bytes) = (*commit_id, *header, *payload_bytes);
        Some(FuseRingReply { entry, commit_id, header, body: body.bytes(), payload_bytes })
    }

    /// Acknowledges that the reply of [`next_reply`](Self::next_reply) was sent: its entry is at the kernel again.
    pub fn sent(&mut self) {
        if let Some(entry) = self.replies.pop_front() {
            self.entries[entry as usize] = Entry::default();
        }
    }

    /// Whether a reply is waiting to be sent.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Number of reported requests that are not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Number of requests for the device that were answered with an error before they were reported.
    #[must_use]
    pub fn refused_requests(&self) -> u64 {
        self.answers.refused_requests()
    }

    fn request(&self, entry: u32) -> Option<FuseRequest> {
        let slot = self.entries.get(entry as usize).filter(|slot| slot.owner == Owner::Device)?;
        slot.request
    }
}
