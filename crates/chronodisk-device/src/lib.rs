//! Device models: pure state machines that turn arrivals into completions.
//!
//! A model reads no clock, does no I/O, starts no thread and holds no global state; its time is
//! the instants at which it is told to be. That is why the same model can be slaved to the real
//! clock, to a guest's paused clock, or to nothing at all, and gives the same completions.
#![forbid(unsafe_code)]

mod model;

pub use model::{DeviceInfo, DeviceModel, Probe, advance};
