//! The engine connects the device models, which are pure, with the clocks, which are not.
//!
//! - [`Engine`] is the sans-I/O core: arrivals and instants go in, completions come out. It keeps one due queue over
//!   all devices of a run and logs every request.
//! - [`GuestClock`] drives it by a guest's own time, which stands still while the guest waits for the emulator and
//!   jumps while the guest is idle.
//! - [`RealClock`] drives it by the host's time.
//! - [`Shadow`] passes a real device's requests to a model as well, and keeps the completions of both.
//! - [`state_file`] makes devices that continue from a saved state.
//! - [`sim`] drives a model from event to event, with no clock at all.
//! - [`verify`] replays a log's arrivals in `sim` and compares the completions: equal arrivals give equal completions
//!   under every clock.
//! - [`dilation`] predicts a program's running time on a faster device from a run on the slower one.
//! - [`ending`] is the rule by which commands end programs after a signal.
//! - [`twin`] replays a log's think times with punctual completions, to show the effect of lateness on the workload.
//!
//! A [`ModelPort`] is a model in this process or a remote one. [`protocol`] connects the two sides: [`remote`] is the
//! client, and [`emulator`] the server.
//!
//! Bytes are deliberately absent: the front end moves them through a store and tells the engine when they have moved.
//! Only [`listen`], [`remote`] and [`emulator`] use sockets and threads.
#![deny(unsafe_code)]

pub mod dilation;
pub mod emulator;
pub mod ending;
mod engine;
mod fault;
mod guest;
mod host;
pub mod listen;
mod log;
mod port;
pub mod protocol;
mod real;
pub mod remote;
mod shadow;
pub mod sim;
pub mod state_file;
mod step;
mod twin;
mod verify;

pub use engine::{DeviceIndex, Due, Engine, EngineStatistics, Transfer};
pub use fault::{FaultKind, ModelFault};
pub use guest::{GuestClock, Idle};
pub use host::{HostClock, MonotonicClock};
pub use log::RequestLog;
pub use port::ModelPort;
pub use real::{
    ASLEEP_SHARE_PERCENT, Departure, Found, Gap, InheritingGuard, InheritingMutex, Linger, Pace, PaceStatistics,
    RealClock, RealId, RealOptions, RealStatistics, Tracked, TransportIndex, TransportStatistics, Wait,
    host as real_host,
};
pub use shadow::Shadow;
pub use twin::{Twin, TwinError, twin};
pub use verify::{Difference, Verification, Verifier, VerifyError, verify};
