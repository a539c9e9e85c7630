//! Answers to the kernel's operations, from messages and from a ring.

use chronodisk_sim::SECTOR_BYTES;

use super::wire::{
    self, AttrOut, Body, FallocateIn, InitIn, InitOut, ROOT_ID, RangeIn, fallocate_mode, init_flag, init_flag2, opcode,
    open_flag,
};
use super::{BACKGROUND_MAX, FuseCommand, FuseFile, REQUEST_BYTES_MAX};
use crate::errno::Errno;

/// The file, and the state of the connection on which it is served.
#[derive(Debug)]
pub(super) struct Answers {
    file: FuseFile,
    phase: Phase,
    /// Whether requests over io_uring are accepted if the kernel offers them.
    accepts_io_uring: bool,
    /// Whether they were agreed on.
    has_io_uring: bool,
    refused_requests: u64,
}

/// An operation of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation<'a> {
    pub opcode: u32,
    pub nodeid: u64,
    /// The operation's own structure.
    pub structure: &'a [u8],
    /// Length of the data that follow it.
    pub data_bytes: usize,
}

/// Answer to an operation.
pub(super) enum Answer {
    Silence,
    Body(Body),
    /// A request for the device, whose range lies inside the file and is aligned to its blocks.
    Request(FuseCommand, RangeIn),
    Destroyed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the first message.
    Start,
    Serving,
    Ended,
}

/// Time for which the kernel may cache the attributes, which never change.
const ATTR_VALID_S: u64 = 86_400;
/// `S_IFREG` with the owner's permissions to read and write, or to read.
const MODE: u32 = 0o100_600;
const MODE_READ_ONLY: u32 = 0o100_400;
/// `O_ACCMODE` and `O_RDONLY` of open(2).
const ACCESS_MODE: u32 = 0o3;
const READ_ONLY: u32 = 0;
/// Longest range of one request, which counts its sectors in 32 bits.
const RANGE_BYTES_MAX: u64 = u32::MAX as u64 * SECTOR_BYTES;
/// Bytes of a page, the unit of [`InitOut::max_pages`]. If the kernel's pages are larger, its requests would be larger,
/// too; `max_write` limits them.
const PAGE_BYTES: u32 = 4096;

impl Answers {
    /// Answers to a new connection.
    pub fn new(file: FuseFile) -> Self {
        let phase = Phase::Start;
        Answers { file, phase, accepts_io_uring: false, has_io_uring: false, refused_requests: 0 }
    }

    /// Answers to a connection that is established.
    pub fn serving(file: FuseFile) -> Self {
        Answers { phase: Phase::Serving, ..Answers::new(file) }
    }

    /// Whether the file system was unmounted.
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Accepts requests over io_uring if the kernel offers them.
    pub fn accept_io_uring(&mut self) {
        self.accepts_io_uring = true;
    }

    /// Whether the kernel sends its requests over io_uring.
    pub fn has_io_uring(&self) -> bool {
        self.has_io_uring
    }

    /// Number of requests for the device that were answered with an error.
    pub fn refused_requests(&self) -> u64 {
        self.refused_requests
    }

    /// The answer to an operation, or its error.
    pub fn answer(&mut self, operation: &Operation<'_>) -> Result<Answer, Errno> {
        self.judge(operation).map_err(|error| self.refuse(operation.opcode, error))
    }

    /// Counts a refused operation. Returns its error.
    pub fn refuse(&mut self, opcode: u32, error: Errno) -> Errno {
        let is_for_device = matches!(opcode, opcode::READ | opcode::WRITE | opcode::FALLOCATE | opcode::FSYNC);
        self.refused_requests += u64::from(is_for_device);
        error
    }

    fn judge(&mut self, operation: &Operation<'_>) -> Result<Answer, Errno> {
        match operation.opcode {
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => return Ok(Answer::Silence),
            opcode::INIT => return self.initialise(operation.structure).map(Answer::Body),
            _ if self.phase != Phase::Serving => return Err(Errno::Protocol),
            opcode::DESTROY => {
                self.phase = Phase::Ended;
                return Ok(Answer::Destroyed);
            }
            // Without an answer to this request, a loop device announces neither discards nor writes of zeroes, which
            // its driver offers together (`loop_get_discard_config` of Linux). With an answer it announces both. If
            // discards are switched off later, it then refuses both, with a line in the kernel's log for each.
            opcode::STATFS if !self.file.discard => return Err(Errno::NotSupported),
            opcode::STATFS => {
                return Ok(Answer::Body(wire::statfs_out(self.file.size_bytes, self.file.block_bytes_min)));
            }
            _ if operation.nodeid != ROOT_ID => return Err(Errno::NoEntry),
            _ => {}
        }
        let structure = operation.structure;
        Ok(match operation.opcode {
            opcode::LOOKUP => return Err(Errno::NotDirectory),
            opcode::GETATTR => Answer::Body(self.attributes()),
            opcode::OPEN => {
                let flags = wire::open_in(structure).ok_or(Errno::Invalid)?;
                if self.file.read_only && flags & ACCESS_MODE != READ_ONLY {
                    return Err(Errno::ReadOnly);
                }
                let flags = open_flag::DIRECT_IO | open_flag::NO_FLUSH | open_flag::PARALLEL_DIRECT_WRITES;
                Answer::Body(wire::open_out(flags))
            }
            // A close makes nothing durable: `FLUSH` is not a flush of the device.
            opcode::RELEASE | opcode::FLUSH => Answer::Body(Body::EMPTY),
            opcode::READ => {
                let range = RangeIn::decode(structure).ok_or(Errno::Invalid)?;
                return self.read(range);
            }
            opcode::WRITE => {
                let range = RangeIn::decode(structure).ok_or(Errno::Invalid)?;
                if range.len_bytes != operation.data_bytes as u64 {
                    return Err(Errno::Invalid);
                }
                self.change(FuseCommand::Write, range)?
            }
            opcode::FSYNC => Answer::Request(FuseCommand::Flush, RangeIn { offset_bytes: 0, len_bytes: 0 }),
            opcode::FALLOCATE => {
                let FallocateIn { range, mode } = FallocateIn::decode(structure).ok_or(Errno::Invalid)?;
                let command = match mode & !fallocate_mode::KEEP_SIZE {
                    fallocate_mode::PUNCH_HOLE if self.file.discard => FuseCommand::Discard,
                    fallocate_mode::PUNCH_HOLE | fallocate_mode::ZERO_RANGE => FuseCommand::WriteZeroes,
                    _ => return Err(Errno::NotSupported),
                };
                self.change(command, range)?
            }
            _ => return Err(Errno::NotServed),
        })
    }

    fn initialise(&mut self, structure: &[u8]) -> Result<Body, Errno> {
        let init = InitIn::decode(structure).ok_or(Errno::Invalid)?;
        let is_old = init.major < wire::MAJOR || (init.major == wire::MAJOR && init.minor < wire::MINOR_MIN);
        if self.phase != Phase::Start || is_old {
            return Err(Errno::Protocol);
        }
        if init.major == wire::MAJOR {
            self.phase = Phase::Serving;
        }
        // A later major version than ours is answered with ours, and the kernel begins again.
        let takes_ring = self.accepts_io_uring && init.offers_io_uring();
        self.has_io_uring = takes_ring && self.phase == Phase::Serving;
        let extended = if self.has_io_uring { init_flag::INIT_EXT } else { 0 };
        let used = init_flag::ASYNC_READ | init_flag::BIG_WRITES | init_flag::ASYNC_DIO | init_flag::MAX_PAGES;
        let out = InitOut {
            major: wire::MAJOR,
            minor: init.minor.min(wire::MINOR),
            max_readahead: init.max_readahead,
            flags: (init.flags & used) | extended,
            max_background: BACKGROUND_MAX,
            congestion_threshold: BACKGROUND_MAX,
            max_write: REQUEST_BYTES_MAX,
            time_gran: 1,
            max_pages: (REQUEST_BYTES_MAX / PAGE_BYTES) as u16,
            flags2: if self.has_io_uring { init_flag2::OVER_IO_URING } else { 0 },
        };
        Ok(out.encode())
    }

    fn attributes(&self) -> Body {
        let attributes = AttrOut {
            attr_valid_s: ATTR_VALID_S,
            ino: ROOT_ID,
            size_bytes: self.file.size_bytes,
            mode: if self.file.read_only { MODE_READ_ONLY } else { MODE },
            blksize: self.file.block_bytes_preferred,
        };
        attributes.encode()
    }

    /// A read that ends behind the end of the file is shortened, as by read(2).
    fn read(&self, range: RangeIn) -> Result<Answer, Errno> {
        if range.len_bytes > REQUEST_BYTES_MAX.into() {
            return Err(Errno::TooBig);
        }
        let left_bytes = self.file.size_bytes.saturating_sub(range.offset_bytes);
        let range = RangeIn { len_bytes: range.len_bytes.min(left_bytes), ..range };
        if range.len_bytes == 0 {
            return Ok(Answer::Body(Body::EMPTY));
        }
        self.expect_blocks(range)?;
        Ok(Answer::Request(FuseCommand::Read, range))
    }

    fn change(&self, command: FuseCommand, range: RangeIn) -> Result<Answer, Errno> {
        if self.file.read_only {
            return Err(Errno::ReadOnly);
        }
        if range.len_bytes == 0 {
            return Err(Errno::Invalid);
        }
        if range.len_bytes > RANGE_BYTES_MAX {
            return Err(Errno::TooBig);
        }
        let end = range.offset_bytes.checked_add(range.len_bytes);
        if end.is_none_or(|end| end > self.file.size_bytes) {
            return Err(Errno::NoSpace);
        }
        self.expect_blocks(range)?;
        Ok(Answer::Request(command, range))
    }

    fn expect_blocks(&self, range: RangeIn) -> Result<(), Errno> {
        let block_bytes = u64::from(self.file.block_bytes_min);
        let whole = range.offset_bytes.is_multiple_of(block_bytes) && range.len_bytes.is_multiple_of(block_bytes);
        if whole { Ok(()) } else { Err(Errno::Invalid) }
    }
}
