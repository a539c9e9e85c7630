//! Protocols through which a system reaches an emulated device.
//!
//! - [`vhost_user::VhostUserSession`] is a guest's connection by vhost-user-blk: it owns the socket and the store. It
//!   takes requests off the guest's ring, moves their bytes at arrival, passes them to a
//!   [`RequestHandler`](vhost_user::RequestHandler), and puts completions into the ring when its owner says that they
//!   are due.
//! - [`nbd::NbdSession`] is a client's connection by the network block device protocol, without its socket: bytes in,
//!   requests out, completions in, bytes out.
//! - [`iscsi::IscsiSession`] is an initiator's connection by iSCSI, without its socket. [`scsi`] has the commands of
//!   its logical unit.
//! - [`fuse::FuseSession`] is the kernel's connection by FUSE, without its descriptor: the device is a file, and a loop
//!   device makes a native block device of it.
//! - [`server`] serves these protocols to real clients, in real time: sockets, threads, and the engine on the host's
//!   clock.
//!
//! A session's owner decides when completions are due. The clock of a vhost-user session only measures the moving of
//! bytes. Input from clients is hostile: bounded, checked, never a panic.
//!
//! ```no_run
//! use chronodisk_engine::MonotonicClock;
//! use chronodisk_front::vhost_user::{Arrival, Flow, RequestHandler, VhostUserSession};
//! use chronodisk_front::{BlkConfig, SEG_MAX_DEFAULT};
//! use chronodisk_sim::{RequestId, Status};
//! use chronodisk_store::RamStore;
//!
//! #[derive(Default)]
//! struct Immediately(Vec<RequestId>);
//!
//! impl RequestHandler for Immediately {
//!     fn arrived(&mut self, arrival: Arrival) {
//!         self.0.push(arrival.request.id);
//!     }
//!     fn before_acknowledge(&mut self) {}
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = BlkConfig {
//!     capacity_sectors: 1 << 21,
//!     logical_block_bytes: 512,
//!     physical_block_bytes: 4096,
//!     serial: "chronodisk null".into(),
//!     discard_unit_sectors: Some(8),
//!     write_zeroes: true,
//!     volatile_cache: false,
//!     seg_max: SEG_MAX_DEFAULT,
//!     zones: None,
//!     torn_write_sectors: None,
//!     file_data: false,
//! };
//! let listener = std::os::unix::net::UnixListener::bind("disk.sock")?;
//! let store = Box::new(RamStore::new(1 << 30, 64 << 20));
//! let clock = Box::new(MonotonicClock::new());
//! let mut session = VhostUserSession::new(listener.accept()?.0, config, store, clock)?;
//! let mut handler = Immediately::default();
//! // A real caller waits for the socket to become readable and for completions to become due.
//! while session.readable(&mut handler)? == Flow::Continue {
//!     for id in handler.0.drain(..) {
//!         session.complete(id, Status::Ok);
//!     }
//!     session.notify()?;
//! }
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod buffer_pool;
mod errno;
pub mod fuse;
pub mod iscsi;
mod late;
mod memory;
pub mod nbd;
pub mod scsi;
pub mod server;
mod stream;
pub mod ublk;
pub mod vhost_user;
pub mod virtio_blk;

#[cfg(feature = "test-utils")]
pub mod mock;

pub use errno::Errno;
pub use virtio_blk::{BlkConfig, ConfigError, SEG_MAX_DEFAULT, SEG_MAX_LIMIT};
