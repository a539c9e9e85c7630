//! States that a device may be in after a power cut.
//!
//! A [`History`] has the requests of a run. A [`Cut`] is an instant at which the power fails. A [`State`] is a cut and
//! the writes that the device loses there, block by block. [`any`] draws states that the rules of the block layer
//! allow; [`of_model`] asks a device model. [`Shrink`] reduces the lost writes of a state that fails a check.
//!
//! Everything is pure: no I/O, no clock, and random numbers from a seed. Not modelled: bytes that rot, misdirected
//! writes, and physical blocks that are written in part.
#![forbid(unsafe_code)]

mod history;
mod model;
mod newest;
mod shrink;
mod states;

pub use history::{Content, DeviceFacts, Effect, History, HistoryBuilder, RecordedRequest};
pub use model::{ModelError, of_model};
pub use shrink::Shrink;
pub use states::{Cut, Draw, Lost, State, any, cuts, distinct};
