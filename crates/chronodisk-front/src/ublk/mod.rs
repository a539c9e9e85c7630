//! The device as a block device of Linux's `ublk` driver, served from user space over io_uring.
//!
//! The protocol is the one of `include/uapi/linux/ublk_cmd.h` and `Documentation/block/ublk.rst` of the kernel. The
//! device has one queue of [`QUEUE_DEPTH`] tags. For each tag the server has a command at the kernel, which completes
//! when a request has that tag. A [descriptor](wire::Descriptor) in shared memory then describes the request. The
//! server's next command for the tag carries the result, and fetches the tag's next request.
//!
//! Data are copied by pread(2) and pwrite(2) on `/dev/ublkcN` (`UBLK_F_USER_COPY`, Linux 6.5). So no memory of this
//! process is exposed to the kernel between requests, and buffers are shared by all tags. Kernels without it are not
//! served. Neither are zoned devices (`UBLK_F_ZONED`), recovery of a dead server, and devices of unprivileged users.
//!
//! [`UblkSession`] is the queue without its descriptors and rings: completed commands in, requests out, completions in,
//! results out. The kernel's side is not trusted: every tag, operation, length and range is checked.
//!
//! ```
//! use chronodisk_front::ublk::wire::{Descriptor, op};
//! use chronodisk_front::ublk::{UblkDisk, UblkEvent, UblkSession};
//! use chronodisk_sim::Status;
//! use chronodisk_store::{RamStore, Store};
//!
//! let disk = UblkDisk {
//!     size_bytes: 1 << 20,
//!     block_bytes: 512,
//!     physical_block_bytes: 4096,
//!     read_only: false,
//!     discard_unit_bytes: None,
//!     volatile_cache: true,
//!     rotational: false,
//! };
//! let mut store = RamStore::new(disk.size_bytes, disk.size_bytes);
//! let mut session = UblkSession::new(disk);
//! // The command of tag 3 completes: the kernel writes a sector.
//! let descriptor = Descriptor { op_flags: op::WRITE, sectors: 1, start_sector: 8 };
//! let Ok(Some(UblkEvent::Request(request))) = session.fetched(3, 0, descriptor) else { panic!("a valid request") };
//! // A server reads these from `/dev/ublkcN`.
//! session.room(request.tag).fill(7);
//! session.execute(request.tag, &mut store)?;
//! session.complete(request.tag, Status::Ok);
//! let reply = session.next_reply().expect("the request is completed");
//! assert_eq!((reply.tag, reply.result), (3, 512));
//! session.sent();
//! # let mut sector = [0; 512];
//! # store.read(8 * 512, &mut sector)?;
//! # assert_eq!(sector, [7; 512]);
//! # Ok::<(), chronodisk_store::StoreError>(())
//! ```

mod disk;
mod session;
pub mod wire;

pub use disk::UblkDisk;
pub(crate) use session::{Payload, RESULT_DATA_LOST};
pub use session::{UblkCommand, UblkEvent, UblkReply, UblkRequest, UblkSession, UblkViolation};

/// Requests that the kernel may have outstanding. A power of two, at most
/// [`UBLK_MAX_QUEUE_DEPTH`](wire::QUEUE_DEPTH_MAX).
pub const QUEUE_DEPTH: u16 = 256;
/// Largest read or write in bytes (`queue/max_hw_sectors_kb`), the same as through FUSE and a loop device.
pub const REQUEST_BYTES_MAX: u32 = 512 << 10;
