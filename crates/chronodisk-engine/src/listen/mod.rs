//! Where clients connect, and how many may: every listener of Chronodisk is made here, and every connection that one
//! accepts has a place among a bounded number, in all and per address. A test keeps other listeners out.

mod connections;
mod room;
mod socket;

pub use connections::{Connections, Place, Refusal};
pub use room::{Admission, Guest, Share, admit};
pub use socket::{Listener, Peer, Socket, tcp_pair};
