//! The network block device protocol, server side.
//!
//! [`NbdSession`] is one client's connection without its socket: bytes in, requests out, completions in, bytes out. It
//! uses no clock, thread or socket. No input of a client makes it panic or grow without bound.
//!
//! It speaks the protocol's fixed newstyle (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>): all
//! options but extended headers, structured replies with holes, `base:allocation`, TLS with certificates. Not supported
//! are the oldstyle handshake, extended (64-bit) headers, `NBD_CMD_RESIZE` and metadata contexts other than
//! `base:allocation`.
//!
//! ```
//! use std::io::{IoSlice, Read, Write};
//! use std::sync::Arc;
//!
//! use chronodisk_front::nbd::{Event, Export, NbdSession, ServerOffer, Tls};
//! use chronodisk_sim::Status;
//! use chronodisk_store::{RamStore, Store};
//!
//! /// Answers everything at once. A server that emulates a device completes when it is due.
//! fn serve(mut socket: impl Read + Write, offer: Arc<ServerOffer>, store: &mut dyn Store) -> std::io::Result<()> {
//!     let mut session = NbdSession::new(offer);
//!     loop {
//!         while let Some(event) = session.next_event() {
//!             if let Event::Request(request) = event {
//!                 // The failure is kept and told to the client by `complete`.
//!                 let _ = session.execute(request.key, store);
//!                 session.complete(request.key, Status::Ok);
//!             }
//!         }
//!         if session.has_output() {
//!             let mut slices = [IoSlice::new(&[]); 64];
//!             let count = session.gather(&mut slices);
//!             let sent = socket.write_vectored(&slices[..count])?;
//!             session.sent(sent);
//!             // Sent replies may have made room for a waiting request.
//!             continue;
//!         }
//!         if session.is_finished() {
//!             return Ok(());
//!         }
//!         match socket.read(session.receive_room())? {
//!             0 => session.input_ended(),
//!             len => session.received(len),
//!         }
//!     }
//! }
//!
//! let offer = Arc::new(ServerOffer::new(vec![Export::new("", 1 << 20)], Tls::Off).unwrap());
//! let (mut client, server) = std::os::unix::net::UnixStream::pair().unwrap();
//! client.write_all(&[0, 0, 0, 3]).unwrap(); // client flags: fixed newstyle, no zeroes
//! client.write_all(b"IHAVEOPT\0\0\0\x02\0\0\0\0").unwrap(); // NBD_OPT_ABORT
//! serve(server, offer, &mut RamStore::new(1 << 20, 1 << 20)).unwrap();
//! let mut answer = Vec::new();
//! client.read_to_end(&mut answer).unwrap();
//! assert!(answer.starts_with(b"NBDMAGICIHAVEOPT"));
//! ```

mod ending;
mod execute;
mod export;
#[cfg(feature = "test-utils")]
pub mod mock;
mod negotiation;
mod reply;
mod request;
mod session;
mod slots;
pub mod tls;
pub mod wire;

pub use crate::memory::MemoryLimit;
pub use ending::{Reason, Violation};
pub use execute::ExecuteError;
pub use export::{EXPORT_COUNT_MAX, Export, ExportError, ExportErrorKind, ServerOffer, Tls};
pub use request::{Command, NbdRequest, RequestKey};
pub use session::{Event, NbdSession, SessionState};
pub use wire::NbdError;

/// Most outstanding requests of a connection, including those whose read data are not sent yet. Further requests wait
/// in the socket.
pub const IN_FLIGHT_COUNT_MAX: usize = 1024;
/// Most bytes of waiting read data of a connection; further requests wait in the socket.
pub const IN_FLIGHT_BYTES_MAX: u64 = 64 << 20;
