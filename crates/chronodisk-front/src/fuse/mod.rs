//! The device as the one file of a FUSE file system. A loop device makes a native block device of it.
//!
//! The protocol is that of Linux's `/dev/fuse` (`include/uapi/linux/fuse.h`, and `Documentation/filesystems/fuse.rst`
//! of the kernel), version 7. The root of the file system is a regular file ([`FILE_ROOT_MODE`]) of the device's
//! capacity. It is read and written past the page cache, many requests at a time. Holes and zeroed ranges become
//! discards and writes of zeros. Operations without a meaning for a disk, such as names, changes of attributes and
//! locks, are answered with `ENOSYS`.
//!
//! # A loop device on the file
//!
//! - The kernel learns the file's size at the first request for its attributes, as by fstat(2); a loop device
//!   configured before that has no size.
//! - With direct I/O (`LO_FLAGS_DIRECT_IO`) each of its requests becomes one FUSE request, if it is not longer than
//!   [`DEVICE_REQUEST_BYTES_MAX`] (`queue/max_sectors_kb`) and the logical block is [`FuseFile::block_bytes_min`].
//! - A flush becomes `FSYNC`. A discard becomes a hole, and so does a write of zeros that permits deallocation
//!   (`REQ_OP_WRITE_ZEROES` without `REQ_NOUNMAP`): both are discards here, and both read as zeros.
//!
//! # The session
//!
//! [`FuseSession`] is the connection without its descriptor: messages in, requests out, completions in, replies out.
//! The kernel's side is not trusted: every length and range is checked.
//!
//! ```
//! use chronodisk_front::fuse::{FuseEvent, FuseFile, FuseSession};
//! use chronodisk_sim::Status;
//! use chronodisk_store::Store;
//! use std::fs::File;
//! use std::io::{self, IoSlice, Read, Write};
//!
//! /// Serves `/dev/fuse`, opened and mounted, with a device that takes no time.
//! fn serve(mut kernel: File, file: FuseFile, store: &mut dyn Store) -> io::Result<()> {
//!     let mut session = FuseSession::new(file);
//!     loop {
//!         let len = kernel.read(session.receive_room())?;
//!         session.received(len);
//!         match session.next_event() {
//!             Some(FuseEvent::Request(request)) => {
//!                 // What fails is told to the kernel.
//!                 let _ = session.execute(request.slot, store);
//!                 session.complete(request.slot, Status::Ok);
//!             }
//!             Some(FuseEvent::Destroyed) => return Ok(()),
//!             None => {}
//!         }
//!         while session.has_output() {
//!             let mut slices = [IoSlice::new(&[]); 3];
//!             let count = session.gather(&mut slices);
//!             kernel.write_vectored(&slices[..count])?;
//!             session.sent();
//!         }
//!     }
//! }
//! ```

mod answers;
mod file;
#[cfg(feature = "test-utils")]
pub mod mock;
mod ring_session;
pub mod ring_wire;
mod session;
pub mod wire;

pub use file::{DEVICE_REQUEST_BYTES_MAX, FILE_ROOT_MODE, FuseFile, REQUEST_BYTES_MAX};
pub use ring_session::{FuseRingReply, FuseRingSession, FuseRingViolation};
pub(crate) use session::Payload;
pub use session::{FuseCommand, FuseEvent, FuseRequest, FuseSession};

/// Asynchronous requests that the kernel may have outstanding (`max_background`). A loop device has 128 at a time.
pub const BACKGROUND_MAX: u16 = 256;
/// Most requests that are outstanding or have an unsent reply; further requests wait in the kernel.
pub const IN_FLIGHT_COUNT_MAX: usize = 1024;
/// Most bytes of read data that are outstanding or were not sent; further requests wait in the kernel. As much memory
/// is kept for reuse.
pub const IN_FLIGHT_BYTES_MAX: u64 = 256 << 20;
