//! A flash drive, kind `ssd`. `docs/ssd.md` describes the model, its formulae and the keys of a profile.
//!
//! ```text
//!  host ─► front: queues, link, processors ─► mapping, write buffer, reading ahead ─► translation layer: where
//!                                                      │                                 │
//!                                                      └──────────► flash: dies, buses ◄─┘ collector
//! ```
//!
//! Each part owns its state, takes events and returns plain data. Imports run one way:
//!
//! | layer | files |
//! |---|---|
//! | data | `geometry`, `parameters`, `units`, `records`, `command`, `events`, `pool`, `waiters`, `luck` |
//! | places and durations without state | `as_written`, `transactions` |
//! | parts of the host's side | `front`, `admission`, `buffer`, `flushes`, `destager` |
//! | parts of the flash's side | `mapping_reads`, `read_ahead`, `collector`, `ftl`, `flash` |
//! | the drive | `device` joins the parts and runs the events |
//! | its steps | `read`, `write`, `mapping`, `background`, `zones`; `durability`, `report` |
//!
//! `durability.rs` finds the data that a loss of power would lose. No request allocates memory once the number of
//! requests in the drive has reached its maximum.

mod admission;
mod aged;
mod as_written;
mod background;
mod buffer;
mod collector;
mod command;
mod destager;
mod device;
mod durability;
mod events;
mod flash;
mod flushes;
mod front;
pub(crate) mod ftl;
mod geometry;
mod luck;
mod mapping;
mod mapping_reads;
mod parameters;
mod pool;
mod read;
mod read_ahead;
mod records;
mod report;
mod statistics;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod toml;
mod transactions;
mod units;
mod waiters;
mod write;
mod zones;

pub(crate) use aged::FlashDrive;
pub use aged::FlashState;
pub(crate) use ftl::ageing::Report;
pub use ftl::ageing::{AgeingMethod, AgeingOptions, AgeingProgress, AgeingReport, AgeingStage, AgeingWorkload};
#[cfg(any(test, feature = "test-utils"))]
pub use ftl::state::reseal_state;
pub use ftl::state::{StateError, StateSource};
pub(crate) use ftl::{Ftl, FtlParameters};
