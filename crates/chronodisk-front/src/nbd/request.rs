//! The check of a request's header.

use chronodisk_sim::{Lba, Op, Priority, Request, RequestId, SECTOR_BYTES};

use super::export::Export;
use super::wire::{Fields, NbdError, REQUEST_HEADER_BYTES, REQUEST_MAGIC, command, command_flag as flag};

/// Key of an outstanding request in a session.
///
/// A key is not reused for a long time, because it contains a counter of its slot's uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl RequestKey {
    /// Position among the session's slots, below
    /// [`IN_FLIGHT_COUNT_MAX`](super::IN_FLIGHT_COUNT_MAX); no two outstanding requests share it.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Data from the device.
    Read,
    /// Data to the device.
    Write,
    /// Make completed writes durable.
    Flush,
    /// The range is no longer needed.
    Trim,
    /// The range will be needed soon.
    Cache,
    /// The range reads as zeros afterwards.
    WriteZeroes,
    /// Queries which parts of the range are allocated.
    BlockStatus,
}

impl Command {
    fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            command::READ => Command::Read,
            command::WRITE => Command::Write,
            command::FLUSH => Command::Flush,
            command::TRIM => Command::Trim,
            command::CACHE => Command::Cache,
            command::WRITE_ZEROES => Command::WriteZeroes,
            command::BLOCK_STATUS => Command::BlockStatus,
            _ => return None,
        })
    }

    /// Flags permitted with the command; `NBD_CMD_FLAG_FUA` is permitted with all.
    fn flags(self) -> u16 {
        flag::FUA
            | match self {
                Command::Read => flag::DF,
                Command::WriteZeroes => flag::NO_HOLE | flag::FAST_ZERO,
                Command::BlockStatus => flag::REQ_ONE,
                Command::Write | Command::Flush | Command::Trim | Command::Cache => 0,
            }
    }

    pub(crate) fn changes_contents(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }

    /// Whether an error may name an offset. "`NBD_REPLY_TYPE_ERROR_OFFSET`".
    pub(crate) fn error_has_offset(self) -> bool {
        matches!(self, Command::Read | Command::Write | Command::Trim | Command::BlockStatus)
    }
}

/// A request whose range lies inside the export and is aligned to its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdRequest {
    /// Names it towards the session.
    pub key: RequestKey,
    /// Names it towards the client.
    pub cookie: u64,
    /// The command.
    pub command: Command,
    /// First byte; zero for a flush.
    pub offset_bytes: u64,
    /// Length in bytes; zero for a flush, at least one block otherwise.
    pub len_bytes: u32,
    /// Durable before the reply.
    pub fua: bool,
    /// Write zeros that take space.
    pub no_hole: bool,
    /// Fail rather than write zeros at length.
    pub fast_zero: bool,
    /// Answer a read in one piece.
    pub unfragmented: bool,
    /// Tell of one extent only.
    pub one_extent: bool,
}

impl NbdRequest {
    /// The device's request, by an issuer (such as a connection) on a hardware queue. `None` for allocation
    /// information, which takes no time on a device.
    ///
    /// A cache request is a read without a transfer of its data.
    #[must_use]
    pub fn device_request(&self, id: RequestId, queue: u16, issuer: u32) -> Option<Request> {
        let op = match self.command {
            Command::Read | Command::Cache => Op::Read,
            Command::Write => Op::Write,
            Command::Flush => Op::Flush,
            Command::Trim => Op::Discard,
            Command::WriteZeroes => Op::WriteZeroes,
            Command::BlockStatus => return None,
        };
        Some(Request {
            id,
            op,
            lba: Lba(self.offset_bytes / SECTOR_BYTES),
            // Exact: the smallest block of an export is a whole number of sectors.
            sectors: self.len_bytes / SECTOR_BYTES as u32,
            fua: self.fua && self.command.changes_contents(),
            priority: Priority::Normal,
            queue,
            issuer,
        })
    }

    /// Whether the request or its reply has data.
    #[must_use]
    pub fn moves_data(&self) -> bool {
        matches!(self.command, Command::Read | Command::Write)
    }
}

/// A request in its form on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub flags: u16,
    pub command: u16,
    pub cookie: u64,
    pub offset_bytes: u64,
    pub len_bytes: u32,
}

impl Header {
    /// Decodes a request; `None` if the magic number is wrong.
    pub fn decode(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Header {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset_bytes: fields.u64()?,
            len_bytes: fields.u32()?,
        })
    }

    /// Bytes that follow the header.
    pub fn payload_bytes(&self) -> u32 {
        if self.command == command::WRITE { self.len_bytes } else { 0 }
    }

    /// Checks everything that can be checked without the device.
    pub fn check(&self, export: &Export, negotiated: Negotiated, key: RequestKey) -> Result<NbdRequest, Refusal> {
        let command = Command::from_code(self.command).ok_or(Refusal::UNKNOWN_COMMAND)?;
        self.check_offered(command, export, negotiated)?;
        self.check_range(command, export)?;
        let has = |bit: u16| self.flags & bit != 0;
        Ok(NbdRequest {
            key,
            cookie: self.cookie,
            command,
            offset_bytes: self.offset_bytes,
            len_bytes: self.len_bytes,
            fua: has(flag::FUA),
            no_hole: has(flag::NO_HOLE),
            fast_zero: has(flag::FAST_ZERO),
            unfragmented: has(flag::DF),
            one_extent: has(flag::REQ_ONE),
        })
    }

    fn check_offered(&self, command: Command, export: &Export, negotiated: Negotiated) -> Result<(), Refusal> {
        if export.read_only && command.changes_contents() {
            return Err(Refusal::READ_ONLY);
        }
        let offered = match command {
            Command::Trim => export.trim,
            Command::WriteZeroes => export.write_zeroes,
            Command::BlockStatus => negotiated.allocation,
            Command::Read | Command::Write | Command::Flush | Command::Cache => true,
        };
        if !offered {
            return Err(Refusal::NOT_OFFERED);
        }
        let without_structure = if negotiated.structured { 0 } else { flag::DF };
        if self.flags & (!command.flags() | without_structure) != 0 {
            return Err(Refusal::FLAGS);
        }
        Ok(())
    }

    fn check_range(&self, command: Command, export: &Export) -> Result<(), Refusal> {
        if command == Command::Flush {
            let empty = self.offset_bytes == 0 && self.len_bytes == 0;
            return if empty { Ok(()) } else { Err(Refusal::FLUSH_RANGE) };
        }
        if self.len_bytes == 0 {
            return Err(Refusal::EMPTY);
        }
        let carries_data = matches!(command, Command::Read | Command::Write);
        if carries_data && self.len_bytes > export.payload_bytes_max {
            let unfragmented = self.flags & flag::DF != 0;
            return Err(if unfragmented { Refusal::TOO_LONG_UNFRAGMENTED } else { Refusal::TOO_LONG });
        }
        match self.offset_bytes.checked_add(self.len_bytes.into()) {
            Some(end) if end <= export.size_bytes => {}
            _ if matches!(command, Command::Write | Command::WriteZeroes) => return Err(Refusal::WRITE_BEYOND_END),
            _ => return Err(Refusal::BEYOND_END),
        }
        let block = u64::from(export.block_bytes_min);
        if !self.offset_bytes.is_multiple_of(block) || !u64::from(self.len_bytes).is_multiple_of(block) {
            return Err(Refusal::MISALIGNED);
        }
        Ok(())
    }
}

/// Agreements beyond the export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub structured: bool,
    pub allocation: bool,
}

/// A refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub error: NbdError,
    /// Message for people, sent in structured replies.
    pub message: &'static str,
}

impl Refusal {
    const fn new(error: NbdError, message: &'static str) -> Self {
        Refusal { error, message }
    }

    const UNKNOWN_COMMAND: Refusal = Refusal::new(NbdError::Inval, "unknown command");
    const NOT_OFFERED: Refusal = Refusal::new(NbdError::Inval, "the export does not offer this command");
    const FLAGS: Refusal = Refusal::new(NbdError::Inval, "a flag does not go with the command");
    const READ_ONLY: Refusal = Refusal::new(NbdError::Perm, "the export is read-only");
    const FLUSH_RANGE: Refusal = Refusal::new(NbdError::Inval, "a flush has no offset and no length");
    const EMPTY: Refusal = Refusal::new(NbdError::Inval, "a length of zero");
    const TOO_LONG: Refusal = Refusal::new(NbdError::Inval, "longer than the largest payload");
    const TOO_LONG_UNFRAGMENTED: Refusal = Refusal::new(NbdError::Overflow, "too long for one piece");
    const WRITE_BEYOND_END: Refusal = Refusal::new(NbdError::NoSpace, "beyond the end of the export");
    const BEYOND_END: Refusal = Refusal::new(NbdError::Inval, "beyond the end of the export");
    const MISALIGNED: Refusal =
        Refusal::new(NbdError::Inval, "offset and length must be multiples of the minimum block size");
    pub const SHUTDOWN: Refusal = Refusal::new(NbdError::Shutdown, "the server is shutting down");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_its_code() {
        let codes = [
            (command::READ, Command::Read),
            (command::WRITE, Command::Write),
            (command::FLUSH, Command::Flush),
            (command::TRIM, Command::Trim),
            (command::CACHE, Command::Cache),
            (command::WRITE_ZEROES, Command::WriteZeroes),
            (command::BLOCK_STATUS, Command::BlockStatus),
        ];
        for code in 0..=u16::MAX {
            let known = codes.iter().find(|(known, _)| *known == code).map(|&(_, command)| command);
            assert_eq!(Command::from_code(code), known, "{code}");
        }
    }
}
