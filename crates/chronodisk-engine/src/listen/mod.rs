//! Listening, and limits on connections. Every listener of Chronodisk is made here, and every accepted connection
//! counts against a limit in total and per address. A test forbids other listeners.

mod connections;
mod room;
mod socket;

pub use connections::{Connections, Place, Refusal};
pub use room::{Admission, Guest, Share, admit};
pub use socket::{Listener, Peer, Socket, tcp_pair};
