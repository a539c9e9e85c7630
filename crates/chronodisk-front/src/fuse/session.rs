//! The kernel's connection.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use chronodisk_sim::{Lba, Op, Priority, Request, RequestId, SECTOR_BYTES, Status};
use chronodisk_store::{Store, StoreError};

use super::answers::{Answer, Answers, Operation};
use super::wire::{
    self, Body, IN_HEADER_BYTES, InHeader, InitIn, MESSAGE_BYTES_MAX, OUT_HEADER_BYTES, OutHeader, RangeIn,
    WRITE_IN_BYTES, opcode,
};
use super::{FuseFile, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_COUNT_MAX, REQUEST_BYTES_MAX};
use crate::buffer_pool::BufferPool;
use crate::errno::Errno;

/// The kernel's connection without its descriptor.
///
/// The descriptor's owner runs this loop: one message is read into [`receive_room`](Self::receive_room) and reported by
/// [`received`](Self::received); [`next_event`](Self::next_event) is called; a request is [executed](Self::execute) at
/// once and [completed](Self::complete) when it is due; the output of [`gather`](Self::gather) is written with one call
/// and [acknowledged](Self::sent). While [`wants_input`](Self::wants_input) is false no message is read.
///
/// With a stable number and size of requests no memory is allocated.
#[derive(Debug)]
pub struct FuseSession {
    answers: Answers,
    message: Box<[u8]>,
    /// Length of a received message that was not processed yet.
    message_len: Option<usize>,
    /// Slot of the write whose data are in the message.
    payload: Option<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    outstanding: usize,
    in_flight_bytes: u64,
    pool: BufferPool,
    replies: VecDeque<Reply>,
}

/// An event from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuseEvent {
    /// A request for the device arrived.
    Request(FuseRequest),
    /// The file system was unmounted: no further message follows.
    Destroyed,
}

/// A request whose range lies inside the file and is aligned to its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuseRequest {
    /// Number of the request in the session until it is completed: below [`IN_FLIGHT_COUNT_MAX`], or an entry of a
    /// ring.
    pub slot: u32,
    /// The command.
    pub command: FuseCommand,
    /// First byte; zero for a flush.
    pub offset_bytes: u64,
    /// Length in bytes; zero for a flush, at least one block otherwise.
    pub len_bytes: u64,
}

/// Command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FuseCommand {
    /// Data from the device.
    Read,
    /// Data to the device.
    Write,
    /// Make completed writes durable.
    Flush,
    /// The range is no longer needed, and reads as zeros.
    Discard,
    /// The range reads as zeros.
    WriteZeroes,
}

impl FuseCommand {
    fn op(self) -> Op {
        match self {
            FuseCommand::Read => Op::Read,
            FuseCommand::Write => Op::Write,
            FuseCommand::Flush => Op::Flush,
            FuseCommand::Discard => Op::Discard,
            FuseCommand::WriteZeroes => Op::WriteZeroes,
        }
    }
}

impl FuseRequest {
    /// Length of the data that go along.
    pub(super) fn payload_bytes(&self) -> usize {
        if matches!(self.command, FuseCommand::Read | FuseCommand::Write) { self.len_bytes as usize } else { 0 }
    }

    /// The device's request.
    #[must_use]
    pub fn device_request(&self, id: RequestId, queue: u16, issuer: u32) -> Request {
        Request {
            id,
            op: self.command.op(),
            lba: Lba(self.offset_bytes / SECTOR_BYTES),
            // Exact: a block is a whole number of sectors, and the length was checked.
            sectors: (self.len_bytes / SECTOR_BYTES) as u32,
            fua: false,
            priority: Priority::Normal,
            queue,
            issuer,
        }
    }
}

/// A request that is outstanding, or has unsent data.
#[derive(Debug, Default)]
struct Slot {
    /// `None` after its completion.
    request: Option<FuseRequest>,
    unique: u64,
    /// The request's share of `in_flight_bytes`.
    claimed_bytes: u64,
    /// Room for the data of a read.
    buffer: Box<[u8]>,
    /// The data of a read are there.
    has_data: bool,
    failure: Option<Errno>,
}

/// A reply that was not sent.
#[derive(Debug)]
struct Reply {
    header: [u8; OUT_HEADER_BYTES],
    body: Body,
    /// The slot of a read and the length of its data.
    data: Option<(u32, usize)>,
}

/// The data of a write, copied out of the message.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(super) buffer: Box<[u8]>,
    pub(super) len: usize,
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// Most unsent replies besides those to requests of the device.
const REPLIES_MAX: usize = 2 * IN_FLIGHT_COUNT_MAX;

impl FuseSession {
    /// A new connection.
    #[must_use]
    pub fn new(file: FuseFile) -> Self {
        FuseSession {
            answers: Answers::new(file),
            message: vec![0; MESSAGE_BYTES_MAX].into_boxed_slice(),
            message_len: None,
            payload: None,
            slots: Vec::new(),
            free: Vec::new(),
            outstanding: 0,
            in_flight_bytes: 0,
            // The kernel bounds its requests, and they must not wait for other clients' memory.
            pool: BufferPool::new(&Arc::default(), IN_FLIGHT_BYTES_MAX as usize),
            replies: VecDeque::new(),
        }
    }

    /// Whether a message may be read.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        !self.answers.has_ended()
            && self.message_len.is_none()
            && self.slots.len() - self.free.len() < IN_FLIGHT_COUNT_MAX
            && self.in_flight_bytes + u64::from(REQUEST_BYTES_MAX) <= IN_FLIGHT_BYTES_MAX
            && self.replies.len() < REPLIES_MAX
    }

    /// Room for one message. The data of the latest write are gone after this.
    pub fn receive_room(&mut self) -> &mut [u8] {
        self.payload = None;
        self.message_len = None;
        &mut self.message
    }

    /// Notes that a message of `len` bytes was read into [`receive_room`](Self::receive_room).
    ///
    /// # Panics
    /// If the room is smaller.
    pub fn received(&mut self, len: usize) {
        assert!(len <= self.message.len(), "more bytes than there was room for");
        self.message_len = Some(len);
    }

    /// Accepts requests over io_uring if the kernel offers them. The caller then registers a ring before it receives
    /// further messages.
    pub fn accept_io_uring(&mut self) {
        self.answers.accept_io_uring();
    }

    /// Whether the received message offers requests over io_uring.
    #[must_use]
    pub fn is_offered_io_uring(&self) -> bool {
        let message = self.message_len.and_then(|len| self.message.get(..len));
        let is_init = |message: &&[u8]| InHeader::decode(message).is_some_and(|header| header.opcode == opcode::INIT);
        let init = message.filter(is_init).and_then(|message| InitIn::decode(&message[IN_HEADER_BYTES..]));
        init.is_some_and(|init| init.offers_io_uring())
    }

    /// Whether requests over io_uring were agreed on.
    #[must_use]
    pub fn has_io_uring(&self) -> bool {
        self.answers.has_io_uring()
    }

    /// The request of the message, unless the message is answered already.
    pub fn next_event(&mut self) -> Option<FuseEvent> {
        let len = self.message_len.take()?;
        // Without a valid header no reply is possible, and a reply to number 0 would be a notification.
        let header = InHeader::decode(&self.message[..len]).filter(|header| header.unique != 0)?;
        let InHeader { opcode, nodeid, .. } = header;
        let body = &self.message[IN_HEADER_BYTES..len];
        // Only a write has data.
        let structure_bytes = if opcode == opcode::WRITE { body.len().min(WRITE_IN_BYTES) } else { body.len() };
        let (structure, data) = body.split_at(structure_bytes);
        let answer = match header.len as usize == len {
            true => self.answers.answer(&Operation { opcode, nodeid, structure, data_bytes: data.len() }),
            false => Err(self.answers.refuse(opcode, Errno::Invalid)),
        };
        match answer {
            Ok(Answer::Silence) => None,
            Ok(Answer::Body(body)) => {
                self.reply(header.unique, body);
                None
            }
            Ok(Answer::Request(command, range)) => {
                let request = self.begin(header.unique, command, range);
                if command == FuseCommand::Write {
                    self.payload = Some(request.slot);
                }
                Some(FuseEvent::Request(request))
            }
            Ok(Answer::Destroyed) => {
                self.reply(header.unique, Body::EMPTY);
                Some(FuseEvent::Destroyed)
            }
            Err(error) => {
                self.reply_error(header.unique, error);
                None
            }
        }
    }

    fn begin(&mut self, unique: u64, command: FuseCommand, range: RangeIn) -> FuseRequest {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let claimed_bytes = if command == FuseCommand::Read { range.len_bytes } else { 0 };
        let RangeIn { offset_bytes, len_bytes } = range;
        let request = FuseRequest { slot: index, command, offset_bytes, len_bytes };
        let buffer = match claimed_bytes {
            0 => Box::default(),
            // The pool has no limit.
            bytes => self.pool.take(bytes as usize).unwrap_or_default(),
        };
        let slot = &mut self.slots[index as usize];
        *slot = Slot { request: Some(request), unique, claimed_bytes, buffer, has_data: false, failure: None };
        self.in_flight_bytes += claimed_bytes;
        self.outstanding += 1;
        request
    }

    /// The data of a write, from its event until the next [`receive_room`](Self::receive_room).
    #[must_use]
    pub fn payload(&self, slot: u32) -> Option<&[u8]> {
        let request = self.request(slot).filter(|_| self.payload == Some(slot))?;
        let begin = IN_HEADER_BYTES + WRITE_IN_BYTES;
        self.message.get(begin..begin + request.len_bytes as usize)
    }

    /// Performs a request on `store`, and keeps the data read. Call it once per request, when the event is returned.
    /// After a failure [`complete`](Self::complete) reports it to the kernel.
    ///
    /// # Errors
    /// Errors of the store; the request stays outstanding. [`StoreError::WouldWait`] is no failure: the caller tries
    /// again.
    pub fn execute(&mut self, slot: u32, store: &mut dyn Store) -> Result<(), StoreError> {
        let gone = |what: &str| StoreError::Damaged { what: what.to_owned() };
        let request = self.request(slot).ok_or_else(|| gone("a request that is not outstanding"))?;
        let FuseRequest { command, offset_bytes, len_bytes, .. } = request;
        let executed = match command {
            FuseCommand::Read => {
                let room = self.slots[slot as usize].buffer.get_mut(..len_bytes as usize);
                room.ok_or_else(|| gone("the room for a read")).and_then(|room| store.read(offset_bytes, room))
            }
            FuseCommand::Write => {
                let payload = self.payload(slot).ok_or_else(|| gone("the data of a write: it was executed too late"));
                payload.and_then(|payload| store.write(offset_bytes, payload))
            }
            FuseCommand::Flush => store.flush(),
            FuseCommand::Discard => store.discard(offset_bytes, len_bytes),
            FuseCommand::WriteZeroes => store.write_zeroes(offset_bytes, len_bytes),
        };
        match &executed {
            Ok(()) => self.slots[slot as usize].has_data = command == FuseCommand::Read,
            Err(StoreError::WouldWait) => {}
            Err(error) => self.slots[slot as usize].failure = Some(Errno::of_store(error)),
        }
        executed
    }

    /// A copy of the data of a write, which stays.
    pub(crate) fn take_payload(&mut self, slot: u32) -> Option<Payload> {
        let len = self.payload(slot)?.len();
        let mut buffer = self.pool.take(len)?;
        let payload = self.payload(slot)?;
        buffer[..len].copy_from_slice(payload);
        Some(Payload { buffer, len })
    }

    /// Takes back the copy.
    pub(crate) fn give_payload(&mut self, payload: Payload) {
        self.pool.give(payload.buffer);
    }

    /// Takes the room for the data of a read, to be filled elsewhere and [given back](Self::give_back).
    pub(crate) fn lend(&mut self, slot: u32) -> Option<Box<[u8]>> {
        self.request(slot).filter(|request| request.command == FuseCommand::Read)?;
        Some(std::mem::take(&mut self.slots[slot as usize].buffer))
    }

    /// Returns a lent buffer.
    pub(crate) fn give_back(&mut self, slot: u32, buffer: Box<[u8]>, has_data: bool) {
        match self.request(slot) {
            Some(_) => {
                let slot = &mut self.slots[slot as usize];
                (slot.buffer, slot.has_data) = (buffer, has_data);
            }
            None => self.pool.give(buffer),
        }
    }

    /// Records the failure of a store at an outstanding request; [`complete`](Self::complete) reports it to the kernel.
    pub fn failed(&mut self, slot: u32, error: &StoreError) {
        if self.request(slot).is_some() {
            self.slots[slot as usize].failure = Some(Errno::of_store(error));
        }
    }

    /// Answers a request; returns false if it is not outstanding.
    pub fn complete(&mut self, slot: u32, status: Status) -> bool {
        let Some(request) = self.request(slot) else { return false };
        let known = &mut self.slots[slot as usize];
        known.request = None;
        self.outstanding -= 1;
        let (unique, has_data) = (known.unique, known.has_data);
        let lacks_data = request.command == FuseCommand::Read && !has_data;
        let failure = known.failure.or(Errno::of_status(status)).or(lacks_data.then_some(Errno::Io));
        match (failure, request.command) {
            (Some(error), _) => self.reply_error(unique, error),
            (None, FuseCommand::Read) => {
                let len = request.len_bytes as usize;
                let header = reply_header(unique, 0, len);
                self.replies.push_back(Reply { header, body: Body::EMPTY, data: Some((slot, len)) });
                return true;
            }
            // A write's length is bounded by the message's.
            (None, FuseCommand::Write) => self.reply(unique, wire::write_out(request.len_bytes as u32)),
            (None, _) => self.reply(unique, Body::EMPTY),
        }
        self.free(slot);
        true
    }

    /// Whether a reply is waiting to be sent.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Points `slices` to the next reply, which one call has to write; returns how many are in use.
    pub fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; 3]) -> usize {
        let Some(reply) = self.replies.front() else { return 0 };
        slices[0] = IoSlice::new(&reply.header);
        slices[1] = IoSlice::new(reply.body.bytes());
        let Some((slot, len)) = reply.data else { return 2 };
        slices[2] = IoSlice::new(&self.slots[slot as usize].buffer[..len]);
        3
    }

    /// Acknowledges that the reply of [`gather`](Self::gather) was sent, or that the kernel dropped its request.
    pub fn sent(&mut self) {
        if let Some(Reply { data: Some((slot, _)), .. }) = self.replies.pop_front() {
            self.free(slot);
        }
    }

    /// Number of reported requests that are not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Whether the file system was unmounted.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.answers.has_ended()
    }

    /// Number of requests for the device that were answered with an error before they were reported.
    #[must_use]
    pub fn refused_requests(&self) -> u64 {
        self.answers.refused_requests()
    }

    fn request(&self, slot: u32) -> Option<FuseRequest> {
        self.slots.get(slot as usize)?.request
    }

    fn free(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        self.in_flight_bytes -= slot.claimed_bytes;
        self.pool.give(std::mem::take(&mut slot.buffer));
        self.free.push(index);
    }

    fn reply(&mut self, unique: u64, body: Body) {
        let header = reply_header(unique, 0, body.bytes().len());
        self.replies.push_back(Reply { header, body, data: None });
    }

    fn reply_error(&mut self, unique: u64, error: Errno) {
        let header = reply_header(unique, -(error as i32), 0);
        self.replies.push_back(Reply { header, body: Body::EMPTY, data: None });
    }
}

/// `fuse_out_header` of a reply.
pub(super) fn reply_header(unique: u64, error: i32, body_bytes: usize) -> [u8; OUT_HEADER_BYTES] {
    OutHeader { len: (OUT_HEADER_BYTES + body_bytes) as u32, error, unique }.encode()
}
