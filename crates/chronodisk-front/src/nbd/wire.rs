//! The numbers of the NBD protocol.
//!
//! All from the protocol's description, `doc/proto.md` of the NBD project
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>), whose names stand in
//! each line. Everything on the wire is big-endian.

/// First eight bytes of the server's greeting, the string `NBDMAGIC`. "Newstyle negotiation".
pub const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Before each option of a client, and second in the greeting of a newstyle server, the string
/// `IHAVEOPT`. "Newstyle negotiation".
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Before each reply to an option. "Fixed newstyle negotiation".
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_REQUEST_MAGIC`.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// `NBD_SIMPLE_REPLY_MAGIC`.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Greeting: two magic numbers and the handshake flags.
pub const GREETING_BYTES: usize = 8 + 8 + 2;
/// The client's answer to the greeting: its flags.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Head of an option: magic, option, length of its data.
pub const OPTION_HEADER_BYTES: usize = 8 + 4 + 4;
/// Head of a reply to an option: magic, option, reply type, length of its data.
pub const OPTION_REPLY_HEADER_BYTES: usize = 8 + 4 + 4 + 4;
/// Head of a request: magic, command flags, command, cookie, offset, length.
pub const REQUEST_HEADER_BYTES: usize = 4 + 2 + 2 + 8 + 8 + 4;
/// A simple reply without its data: magic, error, cookie.
pub const SIMPLE_REPLY_BYTES: usize = 4 + 4 + 8;
/// Head of a chunk of a structured reply: magic, flags, type, cookie, length of the payload.
pub const CHUNK_HEADER_BYTES: usize = 4 + 2 + 2 + 8 + 4;
/// Zeros at the end of an answer to `NBD_OPT_EXPORT_NAME`, unless both sides set `NO_ZEROES`.
pub const EXPORT_NAME_ZEROES_BYTES: usize = 124;
/// Longest string that the protocol knows. "Values", on strings.
pub const STRING_BYTES_MAX: usize = 4096;
/// The payload that a client which asked for no limits may expect to be allowed. "Block size
/// constraints".
pub const PAYLOAD_BYTES_DEFAULT: u32 = 32 << 20;
/// A read of this length must be answered in one piece if the client asks for that:
/// `NBD_CMD_FLAG_DF`.
pub const UNFRAGMENTED_BYTES_MIN: u32 = 65_536;

/// Handshake flags, from the server. "Handshake flags".
pub mod handshake_flag {
    /// `NBD_FLAG_FIXED_NEWSTYLE`: unknown options are answered, not the end.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// `NBD_FLAG_NO_ZEROES`: the 124 zeros may be left out.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Client flags, the answer to the greeting. "Client flags".
pub mod client_flag {
    /// `NBD_FLAG_C_FIXED_NEWSTYLE`.
    pub const FIXED_NEWSTYLE: u32 = 1 << 0;
    /// `NBD_FLAG_C_NO_ZEROES`.
    pub const NO_ZEROES: u32 = 1 << 1;
}

/// Capabilities of an export. "Transmission flags".
pub mod transmission_flag {
    /// `NBD_FLAG_HAS_FLAGS`: always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// `NBD_FLAG_READ_ONLY`.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `NBD_FLAG_SEND_FLUSH`.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// `NBD_FLAG_SEND_FUA`.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `NBD_FLAG_ROTATIONAL`.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// `NBD_FLAG_SEND_TRIM`.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `NBD_FLAG_SEND_WRITE_ZEROES`.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// `NBD_FLAG_SEND_DF`: only with structured replies.
    pub const SEND_DF: u16 = 1 << 7;
    /// `NBD_FLAG_CAN_MULTI_CONN`.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `NBD_FLAG_SEND_CACHE`.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// `NBD_FLAG_SEND_FAST_ZERO`.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options of a client during negotiation. "Option types".
pub mod option {
    /// `NBD_OPT_EXPORT_NAME`: choose an export and begin, without an error reply.
    pub const EXPORT_NAME: u32 = 1;
    /// `NBD_OPT_ABORT`: end.
    pub const ABORT: u32 = 2;
    /// `NBD_OPT_LIST`: name the exports.
    pub const LIST: u32 = 3;
    /// `NBD_OPT_STARTTLS`: encrypt from here on.
    pub const STARTTLS: u32 = 5;
    /// `NBD_OPT_INFO`: describe an export.
    pub const INFO: u32 = 6;
    /// `NBD_OPT_GO`: describe an export and begin.
    pub const GO: u32 = 7;
    /// `NBD_OPT_STRUCTURED_REPLY`: replies in chunks.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// `NBD_OPT_LIST_META_CONTEXT`: list the available metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// `NBD_OPT_SET_META_CONTEXT`: select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// `NBD_OPT_EXTENDED_HEADERS`: 64-bit lengths; not served.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// A server's replies to an option. "Option reply types".
pub mod option_reply {
    /// `NBD_REP_ACK`: success, without further replies.
    pub const ACK: u32 = 1;
    /// `NBD_REP_SERVER`: an export's name.
    pub const SERVER: u32 = 2;
    /// `NBD_REP_INFO`: a fact about an export.
    pub const INFO: u32 = 3;
    /// `NBD_REP_META_CONTEXT`: a metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// `NBD_REP_ERR_UNSUP`: an option that this server does not know.
    pub const ERR_UNSUP: u32 = ERROR_BIT | 1;
    /// `NBD_REP_ERR_POLICY`: known, and not allowed here.
    pub const ERR_POLICY: u32 = ERROR_BIT | 2;
    /// `NBD_REP_ERR_INVALID`: malformed, or sent at the wrong time.
    pub const ERR_INVALID: u32 = ERROR_BIT | 3;
    /// `NBD_REP_ERR_TLS_REQD`: TLS first.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT | 5;
    /// `NBD_REP_ERR_UNKNOWN`: no such export.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    /// `NBD_REP_ERR_SHUTDOWN`: the server is going away.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT | 7;
    /// `NBD_REP_ERR_TOO_BIG`: more data than the server takes.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT | 9;
}

/// Facts about an export. "`NBD_REP_INFO`".
pub mod info {
    /// `NBD_INFO_EXPORT`: size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// `NBD_INFO_NAME`: the canonical name.
    pub const NAME: u16 = 1;
    /// `NBD_INFO_DESCRIPTION`: for people.
    pub const DESCRIPTION: u16 = 2;
    /// `NBD_INFO_BLOCK_SIZE`: smallest, preferred and largest request.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Commands of a client during transmission. "Request types".
pub mod command {
    /// `NBD_CMD_READ`.
    pub const READ: u16 = 0;
    /// `NBD_CMD_WRITE`.
    pub const WRITE: u16 = 1;
    /// `NBD_CMD_DISC`.
    pub const DISC: u16 = 2;
    /// `NBD_CMD_FLUSH`.
    pub const FLUSH: u16 = 3;
    /// `NBD_CMD_TRIM`.
    pub const TRIM: u16 = 4;
    /// `NBD_CMD_CACHE`.
    pub const CACHE: u16 = 5;
    /// `NBD_CMD_WRITE_ZEROES`.
    pub const WRITE_ZEROES: u16 = 6;
    /// `NBD_CMD_BLOCK_STATUS`.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Modifies a command. "Command flags".
pub mod command_flag {
    /// `NBD_CMD_FLAG_FUA`: durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// `NBD_CMD_FLAG_NO_HOLE`: zeros, and no hole.
    pub const NO_HOLE: u16 = 1 << 1;
    /// `NBD_CMD_FLAG_DF`: one content chunk only.
    pub const DF: u16 = 1 << 2;
    /// `NBD_CMD_FLAG_REQ_ONE`: one extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// `NBD_CMD_FLAG_FAST_ZERO`: fail rather than write zeros at length.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Flag of a chunk: `NBD_REPLY_FLAG_DONE`, the last one. "Structured reply flags".
pub const CHUNK_FLAG_DONE: u16 = 1 << 0;

/// Kinds of chunks. "Structured reply types".
pub mod chunk {
    /// `NBD_REPLY_TYPE_NONE`.
    pub const NONE: u16 = 0;
    /// `NBD_REPLY_TYPE_OFFSET_DATA`.
    pub const OFFSET_DATA: u16 = 1;
    /// `NBD_REPLY_TYPE_OFFSET_HOLE`.
    pub const OFFSET_HOLE: u16 = 2;
    /// `NBD_REPLY_TYPE_BLOCK_STATUS`.
    pub const BLOCK_STATUS: u16 = 5;
    /// `NBD_REPLY_TYPE_ERROR`.
    pub const ERROR: u16 = (1 << 15) | 1;
    /// `NBD_REPLY_TYPE_ERROR_OFFSET`.
    pub const ERROR_OFFSET: u16 = (1 << 15) | 2;
}

/// The metadata context that the protocol itself defines. "Metadata contexts".
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The number that this server gives to [`BASE_ALLOCATION`].
pub const BASE_ALLOCATION_ID: u32 = 1;
/// States in [`BASE_ALLOCATION`].
pub mod allocation_state {
    /// `NBD_STATE_HOLE`: takes no space.
    pub const HOLE: u32 = 1 << 0;
    /// `NBD_STATE_ZERO`: reads as zeros.
    pub const ZERO: u32 = 1 << 1;
}

/// Error number of a failed request. "Error values".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum NbdError {
    /// `NBD_EPERM`: a write to a read-only export.
    Perm = 1,
    /// `NBD_EIO`: the medium or the host failed.
    Io = 5,
    /// `NBD_EINVAL`: malformed, unknown, misaligned, or beyond the end and no write.
    Inval = 22,
    /// `NBD_ENOSPC`: a write beyond the end, or no room for it.
    NoSpace = 28,
    /// `NBD_EOVERFLOW`: too long for one piece.
    Overflow = 75,
    /// `NBD_ENOTSUP`: not offered, or not fast.
    NotSupported = 95,
    /// `NBD_ESHUTDOWN`: the server is going away.
    Shutdown = 108,
}

impl NbdError {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// Takes big-endian numbers and strings off the front of bytes that a client sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string preceded by its length in 32 bits.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
