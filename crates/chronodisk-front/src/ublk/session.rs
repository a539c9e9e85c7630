//! The queue of the block device.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use chronodisk_sim::{Lba, Op, Priority, Request, RequestId, SECTOR_BYTES, Status};
use chronodisk_store::{Store, StoreError};

use super::wire::{Descriptor, FLAG_FUA, RESULT_ABORT, op};
use super::{QUEUE_DEPTH, REQUEST_BYTES_MAX, UblkDisk};
use crate::buffer_pool::BufferPool;
use crate::errno::Errno;

/// The queue without its descriptor and rings.
///
/// The owner has a command for each tag at the kernel. A completed command goes to [`fetched`](Self::fetched). A
/// request is [executed](Self::execute) at once, after the data of a write were copied to [`room`](Self::room), and
/// [completed](Self::complete) when it is due. The result of [`next_reply`](Self::next_reply) is sent with the tag's
/// next command, after the data of a read were copied to the kernel, and [acknowledged](Self::sent).
///
/// With a stable number and size of requests no memory is allocated.
#[derive(Debug)]
pub struct UblkSession {
    disk: UblkDisk,
    slots: Vec<Slot>,
    pool: BufferPool,
    outstanding: usize,
    /// Tags with a result that was not sent.
    replies: VecDeque<u16>,
    refused_requests: u64,
    has_ended: bool,
}

/// An event from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkEvent {
    /// A request for the device arrived.
    Request(UblkRequest),
    /// The block device was removed: this tag gets no further requests, and the other tags' commands end, too.
    Ended,
}

/// A request whose range lies inside the device and is aligned to its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkRequest {
    /// Number of the request until it is completed; below [`QUEUE_DEPTH`].
    pub tag: u16,
    /// The command.
    pub command: UblkCommand,
    /// First byte; zero for a flush.
    pub offset_bytes: u64,
    /// Length in bytes; zero for a flush, at least one block otherwise.
    pub len_bytes: u64,
    /// A write is durable when it completes (force unit access).
    pub fua: bool,
}

/// Command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UblkCommand {
    /// Data from the device.
    Read,
    /// Data to the device.
    Write,
    /// Make completed writes durable.
    Flush,
    /// The range is no longer needed.
    Discard,
    /// The range reads as zeros.
    WriteZeroes,
}

impl UblkCommand {
    fn op(self) -> Op {
        match self {
            UblkCommand::Read => Op::Read,
            UblkCommand::Write => Op::Write,
            UblkCommand::Flush => Op::Flush,
            UblkCommand::Discard => Op::Discard,
            UblkCommand::WriteZeroes => Op::WriteZeroes,
        }
    }

    fn moves_data(self) -> bool {
        matches!(self, UblkCommand::Read | UblkCommand::Write)
    }
}

impl UblkRequest {
    /// The device's request.
    #[must_use]
    pub fn device_request(&self, id: RequestId, queue: u16, issuer: u32) -> Request {
        Request {
            id,
            op: self.command.op(),
            lba: Lba(self.offset_bytes / SECTOR_BYTES),
            // Exact: the descriptor has the number of sectors in 32 bits.
            sectors: (self.len_bytes / SECTOR_BYTES) as u32,
            fua: self.fua,
            priority: Priority::Normal,
            queue,
            issuer,
        }
    }
}

/// A result for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UblkReply<'a> {
    /// The request's tag.
    pub tag: u16,
    /// Bytes that were read or written, zero for other commands, or a negative error number.
    pub result: i32,
    /// Data of a read, to be copied before the result is sent.
    pub data: &'a [u8],
}

/// The kernel broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkViolation {
    /// A command of an unknown tag completed.
    Tag(u16),
    /// A command completed whose tag had none at the kernel.
    NotFetched(u16),
    /// A command ended with this result.
    Result(u16, i32),
}

impl fmt::Display for UblkViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UblkViolation::Tag(tag) => write!(f, "ublk: found tag {tag}; expected at most {}", QUEUE_DEPTH - 1),
            UblkViolation::NotFetched(tag) => write!(f, "ublk: tag {tag} completed without a command"),
            UblkViolation::Result(tag, result) => {
                write!(f, "ublk: the command of tag {tag} ended with result {result}; expected 0 or {RESULT_ABORT}")
            }
        }
    }
}

/// Owner of a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Owner {
    /// A command is at the kernel.
    #[default]
    Kernel,
    /// A request is outstanding.
    Device,
    /// A result was not sent.
    Reply,
    /// The block device was removed.
    Ended,
}

/// A tag.
#[derive(Debug, Default)]
struct Slot {
    owner: Owner,
    request: Option<UblkRequest>,
    /// The data of a read or a write.
    buffer: Box<[u8]>,
    /// The buffer has the data.
    has_data: bool,
    failure: Option<Errno>,
    result: i32,
}

/// Result of a read whose data could not be copied to the kernel: `-EIO`.
pub(crate) const RESULT_DATA_LOST: i32 = -(Errno::Io as i32);

/// The data of a write while a helper has them.
#[derive(Debug)]
pub(crate) struct Payload {
    buffer: Box<[u8]>,
    len: usize,
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// Most memory kept for reuse.
const KEPT_BYTES_MAX: usize = QUEUE_DEPTH as usize * REQUEST_BYTES_MAX as usize;

impl UblkSession {
    /// A queue whose tags are at the kernel.
    #[must_use]
    pub fn new(disk: UblkDisk) -> Self {
        UblkSession {
            disk,
            slots: (0..QUEUE_DEPTH).map(|_| Slot::default()).collect(),
            // Depth and request size bound the memory, and the kernel must not wait for other clients.
            pool: BufferPool::new(&Arc::default(), KEPT_BYTES_MAX),
            outstanding: 0,
            replies: VecDeque::with_capacity(QUEUE_DEPTH.into()),
            refused_requests: 0,
            has_ended: false,
        }
    }

    /// Takes a completed command with its result, and the descriptor of its tag. Returns the request, or `None` if it
    /// was refused: then a reply is waiting.
    ///
    /// # Errors
    /// [`UblkViolation`]; the session can't continue.
    pub fn fetched(
        &mut self,
        tag: u16,
        result: i32,
        descriptor: Descriptor,
    ) -> Result<Option<UblkEvent>, UblkViolation> {
        let owner = self.slots.get(usize::from(tag)).ok_or(UblkViolation::Tag(tag))?.owner;
        if owner != Owner::Kernel {
            return Err(UblkViolation::NotFetched(tag));
        }
        match result {
            0 => {}
            RESULT_ABORT => {
                self.slots[usize::from(tag)].owner = Owner::Ended;
                self.has_ended = true;
                return Ok(Some(UblkEvent::Ended));
            }
            result => return Err(UblkViolation::Result(tag, result)),
        }
        match self.check(tag, descriptor) {
            Ok(request) => {
                let buffer = match request.command.moves_data() {
                    // The pool has no limit.
                    true => self.pool.take(request.len_bytes as usize).unwrap_or_default(),
                    false => Box::default(),
                };
                let owner = Owner::Device;
                let request = Some(request);
                self.slots[usize::from(tag)] = Slot { owner, request, buffer, ..Slot::default() };
                self.outstanding += 1;
                Ok(request.map(UblkEvent::Request))
            }
            Err(errno) => {
                self.refused_requests += 1;
                self.reply(tag, -(errno as i32));
                Ok(None)
            }
        }
    }

    fn check(&self, tag: u16, descriptor: Descriptor) -> Result<UblkRequest, Errno> {
        let command = match descriptor.op_flags & op::MASK {
            op::READ => UblkCommand::Read,
            op::WRITE => UblkCommand::Write,
            op::FLUSH => UblkCommand::Flush,
            op::DISCARD if self.disk.discard_unit_bytes.is_some() => UblkCommand::Discard,
            op::WRITE_ZEROES => UblkCommand::WriteZeroes,
            _ => return Err(Errno::NotSupported),
        };
        if command == UblkCommand::Flush {
            return Ok(UblkRequest { tag, command, offset_bytes: 0, len_bytes: 0, fua: false });
        }
        if command != UblkCommand::Read && self.disk.read_only {
            return Err(Errno::ReadOnly);
        }
        let len_bytes = u64::from(descriptor.sectors) * SECTOR_BYTES;
        let offset_bytes = descriptor.start_sector.checked_mul(SECTOR_BYTES).ok_or(Errno::Invalid)?;
        let end = offset_bytes.checked_add(len_bytes).ok_or(Errno::Invalid)?;
        let block_bytes = u64::from(self.disk.block_bytes);
        let is_whole = offset_bytes.is_multiple_of(block_bytes) && len_bytes.is_multiple_of(block_bytes);
        if len_bytes == 0 || !is_whole || end > self.disk.size_bytes {
            return Err(Errno::Invalid);
        }
        if command.moves_data() && len_bytes > REQUEST_BYTES_MAX.into() {
            return Err(Errno::Invalid);
        }
        let fua = command == UblkCommand::Write && descriptor.op_flags & FLAG_FUA != 0;
        Ok(UblkRequest { tag, command, offset_bytes, len_bytes, fua })
    }

    /// Room for the data of an outstanding write; empty for other requests.
    pub fn room(&mut self, tag: u16) -> &mut [u8] {
        match self.request(tag) {
            Some(request) if request.command == UblkCommand::Write => {
                let buffer = &mut self.slots[usize::from(tag)].buffer;
                // A helper may have the buffer.
                let len = buffer.len().min(request.len_bytes as usize);
                &mut buffer[..len]
            }
            _ => &mut [],
        }
    }

    /// Performs a request on `store`, and keeps the data read. Call it once per request, when the event is returned.
    /// After a failure [`complete`](Self::complete) reports it to the kernel.
    ///
    /// # Errors
    /// Errors of the store; the request stays outstanding. [`StoreError::WouldWait`] is no failure: the caller tries
    /// again.
    pub fn execute(&mut self, tag: u16, store: &mut dyn Store) -> Result<(), StoreError> {
        let gone = |what: &str| StoreError::Damaged { what: what.to_owned() };
        let request = self.request(tag).ok_or_else(|| gone("a request that is not outstanding"))?;
        let UblkRequest { command, offset_bytes, len_bytes, fua, .. } = request;
        let slot = &mut self.slots[usize::from(tag)];
        let data = slot.buffer.get_mut(..len_bytes as usize).filter(|_| command.moves_data());
        let executed = match (command, data) {
            (UblkCommand::Read, Some(data)) => store.read(offset_bytes, data),
            (UblkCommand::Write, Some(data)) => store.write(offset_bytes, data),
            (UblkCommand::Read | UblkCommand::Write, None) => Err(gone("the data of a request")),
            (UblkCommand::Flush, _) => store.flush(),
            (UblkCommand::Discard, _) => store.discard(offset_bytes, len_bytes),
            (UblkCommand::WriteZeroes, _) => store.write_zeroes(offset_bytes, len_bytes),
        };
        let executed = executed.and_then(|()| if fua { store.flush() } else { Ok(()) });
        match &executed {
            Ok(()) => slot.has_data = command == UblkCommand::Read,
            Err(StoreError::WouldWait) => {}
            Err(error) => slot.failure = Some(Errno::of_store(error)),
        }
        executed
    }

    /// Takes the data of a write, to be written elsewhere and [given back](Self::give_back).
    pub(crate) fn take_payload(&mut self, tag: u16) -> Option<Payload> {
        let request = self.request(tag).filter(|request| request.command == UblkCommand::Write)?;
        let buffer = std::mem::take(&mut self.slots[usize::from(tag)].buffer);
        let len = request.len_bytes as usize;
        (buffer.len() >= len).then_some(Payload { buffer, len })
    }

    /// Takes back the data of a write.
    pub(crate) fn give_payload(&mut self, tag: u16, payload: Payload) {
        self.give_back(tag, payload.buffer, false);
    }

    /// Takes the room for the data of a read, to be filled elsewhere and [given back](Self::give_back).
    pub(crate) fn lend(&mut self, tag: u16) -> Option<Box<[u8]>> {
        self.request(tag).filter(|request| request.command == UblkCommand::Read)?;
        Some(std::mem::take(&mut self.slots[usize::from(tag)].buffer))
    }

    /// Returns a lent buffer.
    pub(crate) fn give_back(&mut self, tag: u16, buffer: Box<[u8]>, has_data: bool) {
        match self.request(tag) {
            Some(request) => {
                let slot = &mut self.slots[usize::from(tag)];
                slot.buffer = buffer;
                slot.has_data = has_data && request.command == UblkCommand::Read;
            }
            None => self.pool.give(buffer),
        }
    }

    /// Records the failure of a store at an outstanding request; [`complete`](Self::complete) reports it to the kernel.
    pub fn failed(&mut self, tag: u16, error: &StoreError) {
        if self.request(tag).is_some() {
            self.slots[usize::from(tag)].failure = Some(Errno::of_store(error));
        }
    }

    /// Fails an outstanding request whose data could not be copied, before the device sees it.
    pub fn refuse(&mut self, tag: u16) {
        if self.request(tag).is_some() {
            self.refused_requests += 1;
            self.end(tag, -(Errno::Io as i32));
        }
    }

    /// Answers a request; returns false if it is not outstanding.
    pub fn complete(&mut self, tag: u16, status: Status) -> bool {
        let Some(request) = self.request(tag) else { return false };
        let slot = &self.slots[usize::from(tag)];
        let lacks_data = request.command == UblkCommand::Read && !slot.has_data;
        let failure = slot.failure.or(Errno::of_status(status)).or(lacks_data.then_some(Errno::Io));
        let result = match failure {
            Some(errno) => -(errno as i32),
            // The length is at most REQUEST_BYTES_MAX.
            None if request.command.moves_data() => request.len_bytes as i32,
            None => 0,
        };
        self.end(tag, result);
        true
    }

    fn end(&mut self, tag: u16, result: i32) {
        self.outstanding -= 1;
        self.reply(tag, result);
    }

    fn reply(&mut self, tag: u16, result: i32) {
        let slot = &mut self.slots[usize::from(tag)];
        (slot.owner, slot.result) = (Owner::Reply, result);
        self.replies.push_back(tag);
    }

    /// The oldest result that was not sent.
    #[must_use]
    pub fn next_reply(&self) -> Option<UblkReply<'_>> {
        let tag = *self.replies.front()?;
        let slot = &self.slots[usize::from(tag)];
        let is_read = slot.request.is_some_and(|request| request.command == UblkCommand::Read);
        let len = if is_read && slot.result > 0 { slot.result as usize } else { 0 };
        Some(UblkReply { tag, result: slot.result, data: &slot.buffer[..len] })
    }

    /// Acknowledges that the result of [`next_reply`](Self::next_reply) was sent: its tag is at the kernel again.
    pub fn sent(&mut self) {
        if let Some(tag) = self.replies.pop_front() {
            let slot = &mut self.slots[usize::from(tag)];
            let buffer = std::mem::take(&mut slot.buffer);
            *slot = Slot::default();
            self.pool.give(buffer);
        }
    }

    /// Whether a result is waiting to be sent.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Number of reported requests that are not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Whether the block device was removed.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Number of requests that were answered with an error before they were reported.
    #[must_use]
    pub fn refused_requests(&self) -> u64 {
        self.refused_requests
    }

    fn request(&self, tag: u16) -> Option<UblkRequest> {
        let slot = self.slots.get(usize::from(tag)).filter(|slot| slot.owner == Owner::Device)?;
        slot.request
    }
}
