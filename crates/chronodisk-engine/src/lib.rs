//! The engine stands between the device models, which are pure, and the clocks, which are not.
//!
//! - [`Engine`] is the sans-I/O core: arrivals and instants go in, completions come out. It keeps one due queue over
//!   all devices of a run and logs every request.
//! - [`GuestClock`] drives it by a guest's own time, which stands still while the guest waits for the engine and jumps
//!   when the guest idles.
//! - [`RealClock`] drives it by the host's time, which never waits.
//! - [`Shadow`] feeds a real device's requests to a model, and keeps both completions.
//! - [`state_file`] makes devices from saved states.
//! - [`sim`] drives a model from event to event, without a clock.
//! - [`verify`] replays a log's arrivals in `sim` and compares completions: equal arrivals give equal completions under
//!   every clock.
//! - [`dilation`] predicts a program's run time on a faster device from its events.
//! - [`twin`] replays a log's think times with punctual completions, which shows the effect of lateness on the
//!   workload.
//!
//! A [`ModelPort`] is a model in this process or a remote one. [`protocol`] connects the two sides: [`remote`] is the
//! client, and [`emulator`] the server.
//!
//! The engine moves no bytes: the front end moves them through a store and reports when that is done. Only [`remote`]
//! and [`emulator`] use sockets and threads.
#![deny(unsafe_code)]

pub mod dilation;
pub mod emulator;
mod engine;
mod fault;
mod guest;
mod host;
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
pub use verify::{Difference, Verification, VerifyError, verify};
