//! The words that every part of Chronodisk shares: time in integer nanoseconds, addresses,
//! requests and completions, a deterministic event queue, seeded random streams, and the record
//! that is logged for each request.
//!
//! Nothing in here reads a clock, does I/O, or holds global state.
#![forbid(unsafe_code)]

mod event_queue;
mod random;
mod record;
mod request;
mod time;

pub use event_queue::EventQueue;
pub use random::RandomStream;
pub use record::RequestRecord;
pub use request::{Completion, Lba, Op, Priority, Request, RequestId, SECTOR_BYTES, Status};
pub use time::Nanos;
