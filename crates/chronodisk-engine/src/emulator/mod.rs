//! The emulator server: device models and their bytes for guests on other machines.
//!
//! A guest stands still while it waits for us, so it wants to know everything until its next wait at once: not "what
//! completes now" but "what completes next if I ask for nothing else". To tell, the model must run ahead of the
//! guest's time. It does so on a fork: the model itself stays where the last request arrived, a prediction that a new
//! request contradicts is dropped with its fork (a *rollback*, at most one per request), and one that came true becomes
//! the model. Due times are the same as without running ahead; only the number of questions differs.
//!
//! [`Session`] is one device and its bytes, sans-I/O: commands in, answers out. [`EmulatorServer`] puts it behind
//! sockets: a session outlives its connection for a while, so that a client whose connection broke can go on.
//!
//! Clients may be hostile. `limits` has what they share (memory, processor time), [`listen`](crate::listen) who is let
//! in and who makes room, `socket` the deadlines of a connection and TLS, and the protocol its bounds and the token.

mod connection;
mod limits;
mod pace;
mod server;
mod session;
mod socket;
mod store;

pub use limits::{Held, MemoryPool, Workshop};
pub use server::{EmulatorServer, ServeOptions, ServeStatistics};
pub use session::{DeviceMaker, Devices, MadeDevice, Session, SessionEnd};
pub use socket::is_local;
pub use store::StorePlace;
