//! The backend's side of vhost-user, version 1, for a block device with one queue.
//!
//! The protocol is QEMU's "Vhost-user Protocol" (`docs/interop/vhost-user.rst`). Three layers do not touch the socket:
//!
//! * [`message`]: bytes and file descriptors in, checked messages out; replies as bytes.
//! * [`memory`]: the guest's memory as described by its table.
//! * [`Backend`]: negotiated state, and the rings. It takes messages and returns answers.
//!
//! [`VhostUserSession`] is the shell around them: it owns the socket, the ring's requests and the store.
//!
//! In-band notifications are supported and preferred: a kick is then a message with a reply that the guest awaits, so
//! the guest's whole kernel stands still while the kick is served. Kicks and calls over file descriptors work too.

mod backend;
mod doorbell;
pub mod memory;
mod memory_error;
pub mod message;
mod session;
mod vring;
mod window;

pub use backend::{Answer, Backend, Refusal};
pub(crate) use doorbell::Doorbell;
pub use session::{
    Arrival, Flow, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_COUNT_MAX, RequestHandler, VhostUserError, VhostUserSession,
    VhostUserStats,
};
pub(crate) use vring::Vring;
pub use vring::{QUEUE_SIZE_MAX, RingError};
