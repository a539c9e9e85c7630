//! The engine stands between the device models, which are pure, and the clocks, which are not.
//!
//! - [`Engine`] is the sans-I/O core: arrivals and instants go in, completions come out. It keeps
//!   one due queue over all devices of a run and logs every request.
//! - [`GuestClock`] drives it by a guest's own time, which stands still while the guest waits for
//!   us and jumps when the guest idles.
//! - [`RealClock`] drives it by the host's time, which waits for nobody.
//! - [`Shadow`] shows a model what a real device gets, and keeps both their answers.
//! - [`state_file`] makes devices that go on from a saved state.
//! - [`sim`] drives a model from event to event, with no clock at all.
//! - [`verify`] replays a log's arrivals in `sim` and compares what comes out: the same arrivals
//!   give the same completions under every clock.
//! - [`dilation`] says from what a program did how long it would have taken on a faster device.
//! - [`ending`] is the rule by which commands end programs that a signal asks to end.
//! - [`twin`] replays a log's think times with punctual completions: what lateness did to the
//!   workload.
//!
//! A [`ModelPort`] is a model in this process or a remote one. [`protocol`] connects the two sides: [`remote`] is the
//! client, and [`emulator`] the server.
//!
//! What is deliberately absent: bytes (the front end moves them through a store and tells the
//! engine when that is done). Only [`listen`], [`remote`] and [`emulator`] know of sockets and threads.
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
