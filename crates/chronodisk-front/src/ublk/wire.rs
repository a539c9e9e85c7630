//! Numbers and structures of the ublk driver, under their names in Linux's `include/uapi/linux/ublk_cmd.h`.
//!
//! All numbers are in the host's byte order.

/// Commands to `/dev/ublk-control`, in the encoding of `_IOR('u', number, struct ublksrv_ctrl_cmd)` and `_IOWR`
/// (`UBLK_F_CMD_IOCTL_ENCODE`).
pub mod control {
    use super::{CONTROL_COMMAND_BYTES, io_read, io_read_write};

    /// `UBLK_U_CMD_ADD_DEV`: makes a device and its node `/dev/ublkcN`.
    pub const ADD_DEV: u32 = io_read_write(0x04, CONTROL_COMMAND_BYTES);
    /// `UBLK_U_CMD_DEL_DEV`: removes it, and waits until neither the node nor the block device has a user.
    pub const DEL_DEV: u32 = io_read_write(0x05, CONTROL_COMMAND_BYTES);
    /// `UBLK_U_CMD_START_DEV`: makes the block device, once each tag has a command.
    pub const START_DEV: u32 = io_read_write(0x06, CONTROL_COMMAND_BYTES);
    /// `UBLK_U_CMD_STOP_DEV`: removes the block device, and ends the commands of all tags.
    pub const STOP_DEV: u32 = io_read_write(0x07, CONTROL_COMMAND_BYTES);
    /// `UBLK_U_CMD_SET_PARAMS`: sets the properties of a block device that is not started.
    pub const SET_PARAMS: u32 = io_read_write(0x08, CONTROL_COMMAND_BYTES);
    /// `UBLK_U_CMD_GET_DEV_INFO`: describes a device.
    pub const GET_DEV_INFO: u32 = io_read(0x02, CONTROL_COMMAND_BYTES);
    /// `UBLK_U_CMD_DEL_DEV_ASYNC`: removes it, without waiting for its users (Linux 6.9).
    pub const DEL_DEV_ASYNC: u32 = io_read(0x14, CONTROL_COMMAND_BYTES);
    /// `UBLK_U_CMD_GET_FEATURES`: flags that the driver knows (Linux 6.5).
    pub const GET_FEATURES: u32 = io_read(0x13, CONTROL_COMMAND_BYTES);
}

/// `UBLK_U_IO_FETCH_REQ`: fetches a tag's first request.
pub const FETCH_REQ: u32 = io_read_write(0x20, IO_COMMAND_BYTES);
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ`: ends a request, and fetches the tag's next one.
pub const COMMIT_AND_FETCH_REQ: u32 = io_read_write(0x21, IO_COMMAND_BYTES);

/// Size of `struct ublksrv_ctrl_cmd`.
pub const CONTROL_COMMAND_BYTES: usize = 32;
/// Size of `struct ublksrv_ctrl_dev_info`.
pub const DEVICE_INFO_BYTES: usize = 64;
/// Size of the part of `struct ublk_params` with `basic` and `discard`.
pub const PARAMETERS_BYTES: usize = 60;
/// Size of `struct ublksrv_io_cmd`.
pub const IO_COMMAND_BYTES: usize = 16;
/// Size of `struct ublksrv_io_desc`.
pub const DESCRIPTOR_BYTES: usize = 24;

/// `UBLK_MAX_QUEUE_DEPTH`.
pub const QUEUE_DEPTH_MAX: u16 = 4096;
/// `UBLK_IO_RES_ABORT`, `-ENODEV`: the command has ended, and the tag gets no further requests.
pub const RESULT_ABORT: i32 = -19;

/// Flags of a device.
pub mod feature {
    /// `UBLK_F_CMD_IOCTL_ENCODE`: commands in the encoding of ioctl(2).
    pub const CMD_IOCTL_ENCODE: u64 = 1 << 6;
    /// `UBLK_F_USER_COPY`: data are copied by pread(2) and pwrite(2).
    pub const USER_COPY: u64 = 1 << 7;
}

/// Operations in the lowest eight bits of [`Descriptor::op_flags`].
pub mod op {
    /// `UBLK_IO_OP_READ`.
    pub const READ: u32 = 0;
    /// `UBLK_IO_OP_WRITE`.
    pub const WRITE: u32 = 1;
    /// `UBLK_IO_OP_FLUSH`.
    pub const FLUSH: u32 = 2;
    /// `UBLK_IO_OP_DISCARD`.
    pub const DISCARD: u32 = 3;
    /// `UBLK_IO_OP_WRITE_ZEROES`.
    pub const WRITE_ZEROES: u32 = 5;
    /// Mask of the operation.
    pub const MASK: u32 = 0xff;
}

/// `UBLK_IO_F_FUA` in [`Descriptor::op_flags`]: the write is durable when it completes.
pub const FLAG_FUA: u32 = 1 << 13;

/// Attributes of a block device (`ublk_param_basic.attrs`).
pub mod attribute {
    /// `UBLK_ATTR_READ_ONLY`.
    pub const READ_ONLY: u32 = 1 << 0;
    /// `UBLK_ATTR_ROTATIONAL`.
    pub const ROTATIONAL: u32 = 1 << 1;
    /// `UBLK_ATTR_VOLATILE_CACHE`: the kernel sends flushes.
    pub const VOLATILE_CACHE: u32 = 1 << 2;
    /// `UBLK_ATTR_FUA`: the kernel sends writes with [`FLAG_FUA`](super::FLAG_FUA), else a flush behind the write.
    pub const FUA: u32 = 1 << 3;
}

/// `UBLK_PARAM_TYPE_BASIC` and `UBLK_PARAM_TYPE_DISCARD`.
const TYPE_BASIC: u32 = 1 << 0;
const TYPE_DISCARD: u32 = 1 << 1;

/// `UBLKSRV_IO_BUF_OFFSET`: start of the requests' data in `/dev/ublkcN`.
const DATA_OFFSET: u64 = 0x8000_0000;
/// `UBLK_TAG_OFF`: bits of an offset into a request's data.
const TAG_SHIFT: u32 = 25;

/// `_IOR('u', number, bytes)` of `asm-generic/ioctl.h`.
const fn io_read(number: u32, bytes: usize) -> u32 {
    (2 << 30) | ((bytes as u32) << 16) | ((b'u' as u32) << 8) | number
}

/// `_IOWR('u', number, bytes)` of `asm-generic/ioctl.h`.
const fn io_read_write(number: u32, bytes: usize) -> u32 {
    (3 << 30) | ((bytes as u32) << 16) | ((b'u' as u32) << 8) | number
}

/// Offset in `/dev/ublkcN` of the data of queue 0's request with this tag.
#[must_use]
pub fn data_offset(tag: u16) -> u64 {
    DATA_OFFSET + (u64::from(tag) << TAG_SHIFT)
}

/// Length of the shared memory with `depth` descriptors: whole pages.
#[must_use]
pub fn descriptors_bytes(depth: u16, page_bytes: usize) -> usize {
    (usize::from(depth) * DESCRIPTOR_BYTES).next_multiple_of(page_bytes)
}

/// `struct ublksrv_io_desc`: a request. `addr` is unused with user copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Operation and flags.
    pub op_flags: u32,
    /// Length in sectors.
    pub sectors: u32,
    /// First sector.
    pub start_sector: u64,
}

impl Descriptor {
    /// Reads a descriptor.
    #[must_use]
    pub fn decode(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let (op_flags, rest) = bytes.split_first_chunk().expect("the array is longer");
        let (sectors, rest) = rest.split_first_chunk().expect("the array is longer");
        let (start_sector, _) = rest.split_first_chunk().expect("the array is longer");
        Descriptor {
            op_flags: u32::from_ne_bytes(*op_flags),
            sectors: u32::from_ne_bytes(*sectors),
            start_sector: u64::from_ne_bytes(*start_sector),
        }
    }
}

/// Bytes of a structure, filled from the front.
struct Fields<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Fields<N> {
    fn new() -> Self {
        Fields { bytes: [0; N], len: 0 }
    }

    fn put<const M: usize>(&mut self, field: [u8; M]) -> &mut Self {
        self.bytes[self.len..self.len + M].copy_from_slice(&field);
        self.len += M;
        self
    }
}

/// `struct ublksrv_io_cmd` of queue 0.
#[must_use]
pub fn io_command(tag: u16, result: i32) -> [u8; IO_COMMAND_BYTES] {
    let mut fields = Fields::new();
    fields.put(0_u16.to_ne_bytes()).put(tag.to_ne_bytes()).put(result.to_ne_bytes()).put(0_u64.to_ne_bytes());
    fields.bytes
}

/// `struct ublksrv_ctrl_cmd`, for a whole device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlCommand {
    /// Number of the device; `u32::MAX` lets the driver choose one.
    pub device: u32,
    /// Length of the buffer.
    pub len: u16,
    /// Address of the buffer.
    pub address: u64,
    /// Argument of the command.
    pub data: u64,
}

impl ControlCommand {
    /// The structure's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; CONTROL_COMMAND_BYTES] {
        // "queue_id: must be -1 if the cmd isn't for queue".
        let queue = u16::MAX;
        let mut fields = Fields::new();
        fields.put(self.device.to_ne_bytes()).put(queue.to_ne_bytes()).put(self.len.to_ne_bytes());
        fields.put(self.address.to_ne_bytes()).put(self.data.to_ne_bytes());
        fields.bytes
    }
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Number of queues.
    pub queues: u16,
    /// Tags of each queue.
    pub queue_depth: u16,
    /// `UBLK_S_DEV_DEAD` (0) without a block device.
    pub state: u16,
    /// Largest request in bytes.
    pub request_bytes_max: u32,
    /// Number of the device.
    pub device: u32,
    /// The serving process once the block device exists.
    pub server_pid: i32,
    /// Flags of [`feature`].
    pub flags: u64,
    /// For the server's own use.
    pub server_flags: u64,
}

impl DeviceInfo {
    /// The structure's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; DEVICE_INFO_BYTES] {
        let mut fields = Fields::new();
        fields.put(self.queues.to_ne_bytes()).put(self.queue_depth.to_ne_bytes()).put(self.state.to_ne_bytes());
        fields.put([0; 2]).put(self.request_bytes_max.to_ne_bytes()).put(self.device.to_ne_bytes());
        fields.put(self.server_pid.to_ne_bytes()).put([0; 4]).put(self.flags.to_ne_bytes());
        fields.put(self.server_flags.to_ne_bytes());
        fields.bytes
    }

    /// Reads the structure.
    #[must_use]
    pub fn decode(bytes: &[u8; DEVICE_INFO_BYTES]) -> Self {
        let two = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let four = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("the fields are inside"));
        let eight = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("the fields are inside"));
        DeviceInfo {
            queues: two(0),
            queue_depth: two(2),
            state: two(4),
            request_bytes_max: four(8),
            device: four(12),
            server_pid: four(16).cast_signed(),
            flags: eight(24),
            server_flags: eight(32),
        }
    }
}

/// `struct ublk_params` with `basic` and `discard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Flags of [`attribute`].
    pub attributes: u32,
    /// Binary logarithm of the logical block in bytes.
    pub logical_block_shift: u8,
    /// Binary logarithm of the physical block in bytes.
    pub physical_block_shift: u8,
    /// Largest read or write in sectors.
    pub sectors_max: u32,
    /// Capacity in sectors.
    pub capacity_sectors: u64,
    /// Unit of discards in bytes.
    pub discard_granularity: u32,
    /// Longest discard in sectors; zero if there is none.
    pub discard_sectors_max: u32,
    /// Longest write of zeros in sectors.
    pub write_zeroes_sectors_max: u32,
}

impl Parameters {
    /// The structure's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; PARAMETERS_BYTES] {
        let mut fields = Fields::new();
        fields.put((PARAMETERS_BYTES as u32).to_ne_bytes()).put((TYPE_BASIC | TYPE_DISCARD).to_ne_bytes());
        let (logical, physical) = (self.logical_block_shift, self.physical_block_shift);
        // The optimal size of requests is the physical block, the smallest one the logical block.
        fields.put(self.attributes.to_ne_bytes()).put([logical, physical, physical, logical]);
        // No chunks, no boundary.
        fields.put(self.sectors_max.to_ne_bytes()).put([0; 4]).put(self.capacity_sectors.to_ne_bytes()).put([0; 8]);
        // "So far, only support single segment discard": `ublk_validate_params` of the driver.
        let segments = u16::from(self.discard_sectors_max > 0);
        fields.put([0; 4]).put(self.discard_granularity.to_ne_bytes()).put(self.discard_sectors_max.to_ne_bytes());
        fields.put(self.write_zeroes_sectors_max.to_ne_bytes()).put(segments.to_ne_bytes()).put([0; 2]);
        fields.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_kernels_header() {
        // As printed by a C program that includes linux/ublk_cmd.h of Linux 6.12.
        assert_eq!((control::ADD_DEV, control::GET_DEV_INFO), (0xc020_7504, 0x8020_7502));
        assert_eq!((control::GET_FEATURES, control::DEL_DEV), (0x8020_7513, 0xc020_7505));
        assert_eq!((FETCH_REQ, COMMIT_AND_FETCH_REQ), (0xc010_7520, 0xc010_7521));
        assert_eq!(data_offset(3), 0x8600_0000);
    }

    #[test]
    fn structures_have_their_fields_in_place() {
        let info = DeviceInfo {
            queues: 1,
            queue_depth: 256,
            state: 1,
            request_bytes_max: 1 << 19,
            device: 7,
            server_pid: -1,
            flags: feature::USER_COPY,
            server_flags: u64::MAX - 1,
        };
        assert_eq!(DeviceInfo::decode(&info.encode()), info);
        let command = ControlCommand { device: 1, len: 2, address: 3, data: 4 }.encode();
        assert_eq!((command[0], command[4], command[6], command[8], command[16]), (1, 255, 2, 3, 4));
        assert_eq!(io_command(0x0102, -5)[2..8], [2, 1, 0xfb, 0xff, 0xff, 0xff]);
        let parameters = Parameters {
            attributes: 1,
            logical_block_shift: 9,
            physical_block_shift: 12,
            sectors_max: 1024,
            capacity_sectors: 2048,
            discard_granularity: 4096,
            discard_sectors_max: 8,
            write_zeroes_sectors_max: 9,
        };
        let bytes = parameters.encode();
        assert_eq!(
            (bytes[8], bytes[12], bytes[13], bytes[25], bytes[48], bytes[52], bytes[56]),
            (1, 9, 12, 8, 8, 9, 1)
        );
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        (descriptor[0], descriptor[4], descriptor[8]) = (1, 2, 3);
        assert_eq!(Descriptor::decode(&descriptor), Descriptor { op_flags: 1, sectors: 2, start_sector: 3 });
        assert_eq!(descriptors_bytes(256, 4096), 8192);
    }
}
