//! The kernel's side of the protocol for tests and fuzzers, without `/dev/fuse`.
//!
//! [`MockKernel`] encodes messages, including invalid ones, and passes them to a session. It takes replies as
//! `fuse_dev_do_write` and `copy_out_args` of Linux's `fs/fuse/dev.c` do, and panics at replies that these refuse.

use std::collections::BTreeMap;
use std::io::IoSlice;

use chronodisk_sim::Status;
use chronodisk_store::Store;

use super::ring_wire::RING_HEADER_BYTES;
use super::wire::{IN_HEADER_BYTES, OUT_HEADER_BYTES, OutHeader, ROOT_ID, init_flag, opcode};
use super::{FuseEvent, FuseFile, FuseRequest, FuseSession};

/// A mock kernel whose messages are chosen by the test, the session that serves it, and its store.
pub struct MockKernel {
    /// The session.
    pub session: FuseSession,
    /// The bytes of the device.
    pub store: Box<dyn Store>,
    /// Reported requests that are not completed, in order.
    pub outstanding: Vec<FuseRequest>,
    /// The file system was unmounted.
    pub destroyed: bool,
    /// Replies by the number of their message.
    pub replies: BTreeMap<u64, MockReply>,
    /// Messages that wait for a reply.
    waiting: BTreeMap<u64, Expected>,
    next_unique: u64,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MockReply {
    /// Zero, or an error as a negative number.
    pub error: i32,
    /// Bytes after the header.
    pub body: Vec<u8>,
}

/// Length of a reply without error.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Exactly(usize),
    AtMost(usize),
}

impl MockKernel {
    /// A connected kernel that has sent nothing yet.
    #[must_use]
    pub fn new(file: FuseFile, store: Box<dyn Store>) -> Self {
        MockKernel {
            session: FuseSession::new(file),
            store,
            outstanding: Vec::new(),
            destroyed: false,
            replies: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_unique: 2,
        }
    }

    /// Connects as Linux 6.2 and later do.
    ///
    /// # Panics
    /// If the session refuses that.
    #[must_use]
    pub fn initialised(file: FuseFile, store: Box<dyn Store>) -> Self {
        let mut kernel = MockKernel::new(file, store);
        let unique = kernel.init(7, 38, u32::MAX);
        assert_eq!(kernel.replies.remove(&unique).expect("a reply").error, 0);
        kernel
    }

    /// Sends the first message. Returns its number.
    pub fn init(&mut self, major: u32, minor: u32, flags: u32) -> u64 {
        let mut body = vec![0; 64];
        for (place, field) in body.chunks_exact_mut(4).zip([major, minor, 1 << 17, flags | init_flag::ASYNC_READ]) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
        self.send(opcode::INIT, ROOT_ID, &body)
    }

    /// Asks for data.
    pub fn read(&mut self, offset_bytes: u64, len_bytes: u32) -> u64 {
        self.send(opcode::READ, ROOT_ID, &range(offset_bytes, len_bytes))
    }

    /// Sends data.
    pub fn write(&mut self, offset_bytes: u64, data: &[u8]) -> u64 {
        let mut body = range(offset_bytes, data.len() as u32);
        body.extend(data);
        self.send(opcode::WRITE, ROOT_ID, &body)
    }

    /// Asks for a hole or zeros.
    pub fn fallocate(&mut self, mode: u32, offset_bytes: u64, len_bytes: u64) -> u64 {
        let mut body = vec![0; 32];
        body[8..16].copy_from_slice(&offset_bytes.to_ne_bytes());
        body[16..24].copy_from_slice(&len_bytes.to_ne_bytes());
        body[24..28].copy_from_slice(&mode.to_ne_bytes());
        self.send(opcode::FALLOCATE, ROOT_ID, &body)
    }

    /// Sends a message of an operation, and lets the session look at it. Returns its number.
    pub fn send(&mut self, operation: u32, nodeid: u64, body: &[u8]) -> u64 {
        while self.waiting.contains_key(&self.next_unique) {
            self.next_unique += 2;
        }
        let unique = self.next_unique;
        self.next_unique += 2;
        let message = message(operation, unique, nodeid, body);
        let expected = match operation {
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => None,
            // The third field of a read is its length.
            opcode::READ => {
                let len = body.get(16..20).map_or(0, |len| u32::from_ne_bytes([len[0], len[1], len[2], len[3]]));
                Some(Expected::AtMost(len as usize))
            }
            opcode::INIT => Some(Expected::AtMost(64)),
            opcode::GETATTR => Some(Expected::Exactly(104)),
            opcode::OPEN => Some(Expected::Exactly(16)),
            opcode::WRITE => Some(Expected::Exactly(8)),
            opcode::STATFS => Some(Expected::Exactly(80)),
            opcode::FSYNC | opcode::FLUSH | opcode::RELEASE | opcode::FALLOCATE | opcode::DESTROY => {
                Some(Expected::Exactly(0))
            }
            // Refused, so without a body.
            _ => Some(Expected::Exactly(usize::MAX)),
        };
        if let Some(expected) = expected {
            self.waiting.insert(unique, expected);
        }
        if !self.send_bytes(&message) {
            self.waiting.remove(&unique);
        }
        unique
    }

    /// Sends a message as it is, and takes the replies. Returns false if the session accepts no message or it is too
    /// long.
    pub fn send_bytes(&mut self, message: &[u8]) -> bool {
        if !self.session.wants_input() {
            return false;
        }
        let room = self.session.receive_room();
        let Some(room) = room.get_mut(..message.len()) else { return false };
        room.copy_from_slice(message);
        self.session.received(message.len());
        match self.session.next_event() {
            Some(FuseEvent::Request(request)) => {
                // Failures are reported to the kernel.
                let _ = self.session.execute(request.slot, &mut *self.store);
                self.outstanding.push(request);
            }
            Some(FuseEvent::Destroyed) => self.destroyed = true,
            None => {}
        }
        self.receive();
        true
    }

    /// Expects a reply to a message that the test encodes itself; false if another message of that number waits for
    /// one, which the kernel never lets happen.
    pub fn expect_any(&mut self, unique: u64) -> bool {
        !self.waiting.contains_key(&unique) && self.waiting.insert(unique, Expected::AtMost(usize::MAX)).is_none()
    }

    /// Completes all requests in order, and takes the replies.
    ///
    /// # Panics
    /// If the session does not know a request.
    pub fn complete_all(&mut self) {
        for request in std::mem::take(&mut self.outstanding) {
            assert!(self.session.complete(request.slot, Status::Ok));
        }
        self.receive();
    }

    /// The reply to a message.
    ///
    /// # Panics
    /// If there is no reply.
    pub fn reply(&mut self, unique: u64) -> MockReply {
        self.replies.remove(&unique).expect("a reply")
    }

    /// Takes replies as the kernel does.
    ///
    /// # Panics
    /// At replies that the kernel refuses.
    pub fn receive(&mut self) {
        while self.session.has_output() {
            let mut slices = [IoSlice::new(&[]); 3];
            let count = self.session.gather(&mut slices);
            let mut bytes = Vec::new();
            slices[..count].iter().for_each(|slice| bytes.extend_from_slice(slice));
            self.session.sent();
            let header = OutHeader::decode(&bytes).expect("a header");
            assert_eq!(header.len as usize, bytes.len());
            assert!(header.unique != 0 && (-999..=0).contains(&header.error));
            let body = bytes[OUT_HEADER_BYTES..].to_vec();
            let expected = self.waiting.remove(&header.unique).expect("the message waits for a reply");
            match expected {
                _ if header.error != 0 => assert!(body.is_empty()),
                Expected::Exactly(len) => assert_eq!(body.len(), len),
                Expected::AtMost(len) => assert!(body.len() <= len),
            }
            self.replies.insert(header.unique, MockReply { error: header.error, body });
        }
    }

    /// Messages that were not answered.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.waiting.len()
    }
}

/// `fuse_in_header` and its body.
#[must_use]
pub fn message(operation: u32, unique: u64, nodeid: u64, body: &[u8]) -> Vec<u8> {
    let len = IN_HEADER_BYTES + body.len();
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(operation.to_ne_bytes());
    message.extend(unique.to_ne_bytes());
    message.extend(nodeid.to_ne_bytes());
    message.extend([0; 16]);
    message.extend(body);
    message
}

/// The header of an entry with a request over io_uring: `fuse_in_header`, the operation's structure, and the sizes.
#[must_use]
pub fn ring_header(
    operation: u32,
    unique: u64,
    nodeid: u64,
    structure: &[u8],
    payload_bytes: u32,
) -> [u8; RING_HEADER_BYTES] {
    let mut header = [0; RING_HEADER_BYTES];
    let mut fields = message(operation, unique, nodeid, &[]);
    let len = (fields.len() as u32 + structure.len() as u32).wrapping_add(payload_bytes);
    fields[..4].copy_from_slice(&len.to_ne_bytes());
    header[..fields.len()].copy_from_slice(&fields);
    let structure = &structure[..structure.len().min(128)];
    header[128..128 + structure.len()].copy_from_slice(structure);
    header[264..272].copy_from_slice(&unique.to_ne_bytes());
    header[272..276].copy_from_slice(&payload_bytes.to_ne_bytes());
    header
}

/// `fuse_read_in` or `fuse_write_in`.
#[must_use]
pub fn range(offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
    let mut body = vec![0; 40];
    body[8..16].copy_from_slice(&offset_bytes.to_ne_bytes());
    body[16..20].copy_from_slice(&len_bytes.to_ne_bytes());
    body
}
