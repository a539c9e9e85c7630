//! The vocabulary of all crates: time in integer nanoseconds, addresses, requests and completions, a deterministic
//! event queue, seeded random streams, the log record of a request, and limits on the contents of files.
//!
//! Nothing in here reads a clock, opens a file, or holds global state.
#![forbid(unsafe_code)]

mod event_queue;
mod memory;
mod random;
mod ranges;
mod record;
mod request;
mod text;
mod time;

pub use event_queue::{EventOrder, EventQueue};
pub use memory::{ContentsBudget, ContentsLimit, MeteredRead, OverLimit};
pub use random::RandomStream;
pub use ranges::RangeSet;
pub use record::RequestRecord;
pub use request::{Completion, Lba, Op, Priority, Request, RequestId, SECTOR_BYTES, Status};
pub use text::{TextError, TextFile};
pub use time::Nanos;
