//! Structures of requests over io_uring, under their names in Linux's `include/uapi/linux/fuse.h` (version 7.42).
//!
//! An entry of a queue has two buffers: a header of [`RING_HEADER_BYTES`], and the payload, which has the data of reads
//! and writes, and the structures of replies. A command registers them; it completes when a request is in them. The
//! next command for the entry carries the reply, and completes with the entry's next request.

use super::wire::{Fields, IN_HEADER_BYTES, InHeader, OUT_HEADER_BYTES};

/// `FUSE_IO_URING_CMD_REGISTER`: registers an entry's buffers, and fetches its first request.
pub const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: replies to a request, and fetches the entry's next one.
pub const COMMIT_AND_FETCH: u32 = 2;

/// Size of `struct fuse_uring_req_header`.
pub const RING_HEADER_BYTES: usize = 288;
/// `FUSE_URING_IN_OUT_HEADER_SZ` and `FUSE_URING_OP_IN_OUT_SZ`.
const IN_OUT_BYTES: usize = 128;
const OP_IN_BYTES: usize = 128;
/// Offset of `fuse_uring_ent_in_out.payload_sz` in a header.
pub const PAYLOAD_SIZE_AT: usize = COMMIT_ID_AT + 8;
/// Offset of `fuse_uring_ent_in_out.commit_id`, after `flags`.
const COMMIT_ID_AT: usize = IN_OUT_BYTES + OP_IN_BYTES + 8;

/// Bytes of the area of a command in a submission of 128 bytes.
pub const COMMAND_AREA_BYTES: usize = 80;

/// A request in an entry's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingRequest<'a> {
    pub header: InHeader,
    /// The operation's structure. It is empty if the lengths contradict each other.
    pub structure: &'a [u8],
    pub payload_bytes: u32,
    /// Names the request in the command that replies to it.
    pub commit_id: u64,
}

impl<'a> RingRequest<'a> {
    /// Takes a header apart; `None` if the message would be longer than its parts.
    pub fn decode(header: &'a [u8; RING_HEADER_BYTES]) -> Option<Self> {
        let (in_out, rest) = header.split_at(IN_OUT_BYTES);
        let (op_in, entry) = rest.split_at(OP_IN_BYTES);
        let header = InHeader::decode(in_out)?;
        let mut fields = Fields(entry);
        let _flags = fields.u64()?;
        let (commit_id, payload_bytes) = (fields.u64()?, fields.u32()?);
        let structure_bytes = (header.len as usize).checked_sub(IN_HEADER_BYTES + payload_bytes as usize);
        let structure = op_in.get(..structure_bytes.unwrap_or(usize::MAX)).unwrap_or_default();
        Some(RingRequest { header, structure, payload_bytes, commit_id })
    }
}

/// Puts the header of a reply and the length of its payload into an entry's header.
pub(crate) fn put_reply(header: &mut [u8; RING_HEADER_BYTES], reply: [u8; OUT_HEADER_BYTES], payload_bytes: u32) {
    header[..OUT_HEADER_BYTES].copy_from_slice(&reply);
    header[PAYLOAD_SIZE_AT..PAYLOAD_SIZE_AT + 4].copy_from_slice(&payload_bytes.to_ne_bytes());
}

/// `struct fuse_uring_cmd_req` in the area of a command.
#[must_use]
pub fn ring_command(queue: u16, commit_id: u64) -> [u8; COMMAND_AREA_BYTES] {
    let mut area = [0; COMMAND_AREA_BYTES];
    // After `flags`, which are zero.
    area[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    area[16..18].copy_from_slice(&queue.to_ne_bytes());
    area
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_places_of_the_kernels_header() {
        // struct fuse_uring_req_header: in_out[128], op_in[128], flags, commit_id, payload_sz, padding, reserved.
        assert_eq!((COMMIT_ID_AT, PAYLOAD_SIZE_AT, RING_HEADER_BYTES), (264, 272, 256 + 32));
        let area = ring_command(0x0203, 0x0405);
        assert_eq!((area[8..10].to_vec(), area[16..18].to_vec()), (vec![5, 4], vec![3, 2]));
        let mut header = [0; RING_HEADER_BYTES];
        put_reply(&mut header, [7; OUT_HEADER_BYTES], 0x0102);
        assert_eq!((header[15], header[16], header[272], header[273]), (7, 0, 2, 1));
    }

    #[test]
    fn lengths_that_contradict_each_other_leave_no_structure() {
        let mut header = [0; RING_HEADER_BYTES];
        let mut structure_bytes = |len: u32, payload_bytes: u32| {
            header[..4].copy_from_slice(&len.to_ne_bytes());
            header[PAYLOAD_SIZE_AT..PAYLOAD_SIZE_AT + 4].copy_from_slice(&payload_bytes.to_ne_bytes());
            RingRequest::decode(&header).unwrap().structure.len()
        };
        assert_eq!(structure_bytes(40 + 40 + 4096, 4096), 40);
        assert_eq!(structure_bytes(40 + 128, 0), 128);
        assert_eq!(structure_bytes(40 + 129, 0), 0);
        assert_eq!(structure_bytes(39, 0), 0);
        assert_eq!(structure_bytes(80, u32::MAX), 0);
    }
}
