//! The emulator server: device models and their bytes for guests on other machines.
//!
//! A guest stands still while it waits for the server. So it asks once for everything up to its next wait: the next
//! completion if no request arrives before. To answer, the model must run ahead of the guest's time. It does so on a
//! fork, while the model itself stays at the last arrival. A new request that contradicts the prediction drops the fork
//! (a *rollback*, at most one per request); a confirmed fork becomes the model. Running ahead changes the number of
//! messages, but no due time.
//!
//! [`Session`] is one device and its bytes, sans-I/O: commands in, answers out. [`EmulatorServer`] puts it behind
//! sockets. A session outlives its connection for a while, so that a client can reconnect.
//!
//! Clients may be hostile. Limits on shared memory and processor time are in `limits`, admission and eviction in
//! [`listen`](crate::listen), a connection's deadlines and TLS in `socket`, and bounds of messages and the token in the
//! protocol.

mod connection;
mod identity;
mod limits;
mod pace;
mod server;
mod session;
mod sessions;
mod socket;
mod store;

pub use limits::{Held, MemoryPool, Workshop};
pub use server::EmulatorServer;
pub use session::{DeviceMaker, Devices, MadeDevice, Session, SessionEnd};
pub use sessions::{ServeOptions, ServeStatistics};
pub use socket::is_local;
pub use store::StorePlace;
