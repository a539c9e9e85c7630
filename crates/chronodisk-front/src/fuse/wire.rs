//! Numbers and structures of the FUSE protocol, version 7, under their names in Linux's `include/uapi/linux/fuse.h`.
//!
//! All numbers are in the host's byte order. A message from the kernel is an [`InHeader`] and the structure of its
//! operation, a reply an [`OutHeader`] and another structure. Structures that end with fields of a later version are
//! read as far as version 7.23 has them.

/// `FUSE_KERNEL_VERSION`.
pub const MAJOR: u32 = 7;
/// The latest minor version whose changes were reviewed.
pub const MINOR: u32 = 38;
/// The oldest minor version that is served (Linux 3.15): structures have their present sizes since then.
pub const MINOR_MIN: u32 = 23;
/// `FUSE_ROOT_ID`: the node of the root.
pub const ROOT_ID: u64 = 1;

/// Supported operations of `enum fuse_opcode`.
pub mod opcode {
    /// `FUSE_LOOKUP`: a name in a folder.
    pub const LOOKUP: u32 = 1;
    /// `FUSE_FORGET`: the kernel has dropped references to a node; no reply.
    pub const FORGET: u32 = 2;
    /// `FUSE_GETATTR`: attributes of a node.
    pub const GETATTR: u32 = 3;
    /// `FUSE_OPEN`: open a file.
    pub const OPEN: u32 = 14;
    /// `FUSE_READ`: data from a file.
    pub const READ: u32 = 15;
    /// `FUSE_WRITE`: data to a file.
    pub const WRITE: u32 = 16;
    /// `FUSE_STATFS`: about the file system.
    pub const STATFS: u32 = 17;
    /// `FUSE_RELEASE`: the last close of an open file.
    pub const RELEASE: u32 = 18;
    /// `FUSE_FSYNC`: makes written data durable.
    pub const FSYNC: u32 = 20;
    /// `FUSE_FLUSH`: a close of an open file.
    pub const FLUSH: u32 = 25;
    /// `FUSE_INIT`: the first message.
    pub const INIT: u32 = 26;
    /// `FUSE_INTERRUPT`: the issuer of a request got a signal; a reply is optional.
    pub const INTERRUPT: u32 = 36;
    /// `FUSE_DESTROY`: the file system was unmounted.
    pub const DESTROY: u32 = 38;
    /// `FUSE_BATCH_FORGET`: several of `FUSE_FORGET`; no reply.
    pub const BATCH_FORGET: u32 = 42;
    /// `FUSE_FALLOCATE`: holes and zeros.
    pub const FALLOCATE: u32 = 43;
}

/// Flags of `fuse_init_in` and `fuse_init_out`.
pub mod init_flag {
    /// `FUSE_ASYNC_READ`: several reads of one file at a time.
    pub const ASYNC_READ: u32 = 1 << 0;
    /// `FUSE_BIG_WRITES`: writes of more than 4 KiB.
    pub const BIG_WRITES: u32 = 1 << 5;
    /// `FUSE_ASYNC_DIO`: direct I/O does not wait in the call that issues it.
    pub const ASYNC_DIO: u32 = 1 << 15;
    /// `FUSE_MAX_PAGES`: [`InitOut::max_pages`](super::InitOut::max_pages) counts.
    pub const MAX_PAGES: u32 = 1 << 22;
    /// `FUSE_INIT_EXT`: the structure goes on with `flags2` (version 7.36).
    pub const INIT_EXT: u32 = 1 << 30;
}

/// Flags of the second word, `flags2`.
pub mod init_flag2 {
    /// `FUSE_OVER_IO_URING`: requests go over io_uring (version 7.42, Linux 6.14).
    pub const OVER_IO_URING: u32 = 1 << (41 - 32);
}

/// Flags of `fuse_open_out`.
pub mod open_flag {
    /// `FOPEN_DIRECT_IO`: past the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// `FOPEN_NOFLUSH`: a close sends no `FLUSH`. Otherwise, a killed process with an open `/dev/fuse` would wait for
    /// the answer; if it is the process that answers, it would wait for ever (version 7.35).
    pub const NO_FLUSH: u32 = 1 << 5;
    /// `FOPEN_PARALLEL_DIRECT_WRITES`: several writes at a time (version 7.38).
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Modes of `fuse_fallocate_in` (`linux/falloc.h`).
pub mod fallocate_mode {
    /// `FALLOC_FL_KEEP_SIZE`: the file does not grow.
    pub const KEEP_SIZE: u32 = 0x01;
    /// `FALLOC_FL_PUNCH_HOLE`: the range is no longer needed, and reads as zeros.
    pub const PUNCH_HOLE: u32 = 0x02;
    /// `FALLOC_FL_ZERO_RANGE`: the range reads as zeros.
    pub const ZERO_RANGE: u32 = 0x10;
}

/// Size of [`InHeader`] in bytes.
pub const IN_HEADER_BYTES: usize = 40;
/// Size of [`OutHeader`] in bytes.
pub const OUT_HEADER_BYTES: usize = 16;
/// Size of `fuse_write_in` in bytes.
pub const WRITE_IN_BYTES: usize = 40;
/// Room for the largest message in bytes: the kernel's reserve of a page for the header, and the data of a write.
pub const MESSAGE_BYTES_MAX: usize = 4096 + super::REQUEST_BYTES_MAX as usize;
/// Size of the longest structure in a reply, `fuse_attr_out`.
pub const BODY_BYTES_MAX: usize = 104;

/// Takes a message apart.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_ne_bytes)
    }
}

/// A structure of a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    bytes: [u8; BODY_BYTES_MAX],
    len: usize,
}

impl Body {
    pub const EMPTY: Body = Body { bytes: [0; BODY_BYTES_MAX], len: 0 };

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put<const N: usize>(mut self, field: [u8; N]) -> Self {
        self.bytes[self.len..self.len + N].copy_from_slice(&field);
        self.len += N;
        self
    }

    fn u16(self, field: u16) -> Self {
        self.put(field.to_ne_bytes())
    }

    pub fn u32(self, field: u32) -> Self {
        self.put(field.to_ne_bytes())
    }

    pub fn u64(self, field: u64) -> Self {
        self.put(field.to_ne_bytes())
    }

    fn zeros<const N: usize>(self) -> Self {
        self.put([0; N])
    }
}

/// `fuse_in_header`: precedes every message from the kernel. The issuer's identity is ignored: the mount decides on
/// access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InHeader {
    /// Size of the whole message in bytes.
    pub len: u32,
    /// Operation.
    pub opcode: u32,
    /// Names the message in its reply; never zero.
    pub unique: u64,
    /// Node to which the operation applies.
    pub nodeid: u64,
}

impl InHeader {
    /// Decodes the header of a message; `None` if the message is too short.
    #[must_use]
    pub fn decode(message: &[u8]) -> Option<Self> {
        let mut fields = Fields(message.get(..IN_HEADER_BYTES)?);
        Some(InHeader { len: fields.u32()?, opcode: fields.u32()?, unique: fields.u64()?, nodeid: fields.u64()? })
    }
}

/// `fuse_out_header`: before every reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutHeader {
    /// Size of the whole reply in bytes.
    pub len: u32,
    /// Zero, or an error as a negative number.
    pub error: i32,
    /// The message that is answered.
    pub unique: u64,
}

impl OutHeader {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; OUT_HEADER_BYTES] {
        let mut bytes = [0; OUT_HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.len.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.unique.to_ne_bytes());
        bytes
    }

    /// Decodes the header; `None` if the reply is too short.
    #[must_use]
    pub fn decode(reply: &[u8]) -> Option<Self> {
        let mut fields = Fields(reply.get(..OUT_HEADER_BYTES)?);
        Some(OutHeader { len: fields.u32()?, error: fields.u32()?.cast_signed(), unique: fields.u64()? })
    }
}

/// `fuse_init_in`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitIn {
    /// Major version of the kernel.
    pub major: u32,
    /// Minor version of the kernel.
    pub minor: u32,
    /// Largest read-ahead in bytes.
    pub max_readahead: u32,
    /// Flags offered by the kernel ([`init_flag`]).
    pub flags: u32,
    /// Further flags ([`init_flag2`]); zero from a kernel that does not send them.
    pub flags2: u32,
}

impl InitIn {
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let (major, minor, max_readahead) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let flags = fields.u32()?;
        let flags2 = if flags & init_flag::INIT_EXT == 0 { 0 } else { fields.u32().unwrap_or(0) };
        Some(InitIn { major, minor, max_readahead, flags, flags2 })
    }

    /// Whether the kernel can send its requests over io_uring.
    pub(crate) fn offers_io_uring(&self) -> bool {
        self.flags2 & init_flag2::OVER_IO_URING != 0
    }
}

/// `fuse_init_out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitOut {
    /// Major version to speak.
    pub major: u32,
    /// Minor version to speak.
    pub minor: u32,
    /// Largest read-ahead in bytes.
    pub max_readahead: u32,
    /// Flags accepted ([`init_flag`]).
    pub flags: u32,
    /// Most asynchronous requests at a time; the kernel's default is 12.
    pub max_background: u16,
    /// Number of asynchronous requests at which the file system counts as congested.
    pub congestion_threshold: u16,
    /// Largest write in bytes.
    pub max_write: u32,
    /// Granularity of times in nanoseconds.
    pub time_gran: u32,
    /// Most pages of a request.
    pub max_pages: u16,
    /// Further flags accepted ([`init_flag2`]), with [`init_flag::INIT_EXT`].
    pub flags2: u32,
}

impl InitOut {
    pub(crate) fn encode(&self) -> Body {
        Body::EMPTY
            .u32(self.major)
            .u32(self.minor)
            .u32(self.max_readahead)
            .u32(self.flags)
            .u16(self.max_background)
            .u16(self.congestion_threshold)
            .u32(self.max_write)
            .u32(self.time_gran)
            .u16(self.max_pages)
            // map_alignment.
            .zeros::<2>()
            .u32(self.flags2)
            // unused[7].
            .zeros::<28>()
    }
}

/// `fuse_attr_out` of a regular file with one link.
pub(crate) struct AttrOut {
    /// Seconds for which the kernel may cache the attributes.
    pub attr_valid_s: u64,
    pub ino: u64,
    pub size_bytes: u64,
    pub mode: u32,
    pub blksize: u32,
}

impl AttrOut {
    pub fn encode(&self) -> Body {
        Body::EMPTY
            .u64(self.attr_valid_s)
            // attr_valid_nsec, dummy.
            .zeros::<8>()
            .u64(self.ino)
            .u64(self.size_bytes)
            .u64(self.size_bytes / 512)
            // atime, mtime, ctime and their nanoseconds.
            .zeros::<36>()
            .u32(self.mode)
            // nlink.
            .u32(1)
            // uid, gid, rdev.
            .zeros::<12>()
            .u32(self.blksize)
            // flags.
            .zeros::<4>()
    }
}

/// `fuse_open_in`: the flags of open(2).
pub(crate) fn open_in(body: &[u8]) -> Option<u32> {
    Fields(body).u32()
}

/// `fuse_open_out`.
pub(crate) fn open_out(flags: u32) -> Body {
    // fh, open_flags, padding.
    Body::EMPTY.u64(0).u32(flags).u32(0)
}

/// The common fields of `fuse_read_in` and `fuse_write_in`: offset and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeIn {
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

impl RangeIn {
    pub fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let _fh = fields.u64()?;
        Some(RangeIn { offset_bytes: fields.u64()?, len_bytes: fields.u32()?.into() })
    }
}

/// `fuse_write_out`.
pub(crate) fn write_out(len_bytes: u32) -> Body {
    Body::EMPTY.u32(len_bytes).u32(0)
}

/// `fuse_fallocate_in`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FallocateIn {
    pub range: RangeIn,
    pub mode: u32,
}

impl FallocateIn {
    pub fn decode(body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let _fh = fields.u64()?;
        let range = RangeIn { offset_bytes: fields.u64()?, len_bytes: fields.u64()? };
        Some(FallocateIn { range, mode: fields.u32()? })
    }
}

/// `fuse_statfs_out` of a file system that is full, with one file.
pub(crate) fn statfs_out(size_bytes: u64, block_bytes: u32) -> Body {
    Body::EMPTY
        .u64(size_bytes / u64::from(block_bytes))
        // bfree, bavail.
        .zeros::<16>()
        // files, ffree.
        .u64(1)
        .u64(0)
        // bsize, namelen, frsize.
        .u32(block_bytes)
        .u32(255)
        .u32(block_bytes)
        // padding, spare[6].
        .zeros::<28>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_header_file() {
        let init = InitOut {
            major: MAJOR,
            minor: MINOR,
            max_readahead: 0,
            flags: 0,
            max_background: 1,
            congestion_threshold: 1,
            max_write: 1,
            time_gran: 1,
            max_pages: 1,
            flags2: 0,
        };
        assert_eq!(init.encode().bytes().len(), 64);
        let attributes = AttrOut { attr_valid_s: 1, ino: 1, size_bytes: 512, mode: 0, blksize: 512 };
        assert_eq!(attributes.encode().bytes().len(), 104);
        assert_eq!(open_out(0).bytes().len(), 16);
        assert_eq!(write_out(1).bytes().len(), 8);
        assert_eq!(statfs_out(512, 512).bytes().len(), 80);
    }

    #[test]
    fn what_is_too_short_is_no_structure() {
        for len in 0..IN_HEADER_BYTES {
            assert_eq!(InHeader::decode(&vec![0; len]), None);
        }
        assert!(InitIn::decode(&[0; 15]).is_none() && InitIn::decode(&[0; 16]).is_some());
        assert!(RangeIn::decode(&[0; 19]).is_none() && RangeIn::decode(&[0; 20]).is_some());
        assert!(FallocateIn::decode(&[0; 27]).is_none() && FallocateIn::decode(&[0; 28]).is_some());
        let header = OutHeader { len: 16, error: -5, unique: 7 };
        assert_eq!(OutHeader::decode(&header.encode()), Some(header));
    }
}
