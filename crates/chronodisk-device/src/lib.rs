//! Device models: pure state machines that turn arrivals into completions.
//!
//! A model reads no clock, does no I/O, starts no thread and holds no global state; its time is
//! the instants at which it is told to be. That is why the same model can be slaved to the real
//! clock, to a guest's paused clock, or to nothing at all, and gives the same completions.
//!
//! ```
//! use chronodisk_device::{BuildOptions, Profile, advance};
//! use chronodisk_sim::{Nanos, Op, Request};
//!
//! let profile = Profile::find("constant-10ms")?;
//! let mut device = profile.build(&BuildOptions::default())?;
//! device.submit(Request::new(1, Op::Read, 0, 8));
//! let mut completed = Vec::new();
//! advance(device.as_mut(), Nanos::from_secs(1), &mut completed);
//! assert_eq!(completed[0].at, Nanos::from_millis(10));
//! # Ok::<(), chronodisk_device::ProfileError>(())
//! ```
//!
//! [`DeviceModel`] is the contract; [`Profile`] makes models from TOML; [`QueuedDevice`] is the common part of devices
//! that serve in order of arrival; the module `contract` (a feature of that name) checks that a model keeps the
//! contract's rules.
#![forbid(unsafe_code)]

mod catalog;
mod composite;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod cow_table;
mod extensions;
mod fields;
mod flat_table;
mod footprint;
mod load;
mod model;
mod models;
mod quantity;
mod queued;
pub mod rates;
mod sector_set;
mod zone_map;

pub use catalog::{BuiltinProfile, HeldOut, MOST_IN_A_ROW, Profile, Published, PublishedRate, Validation};
pub use extensions::{Background, BackgroundDone, BackgroundRead, BackgroundTime, PLACES_MAX};
pub use fields::{ProfileError, ProfileKey, nearest, toml_string};
pub use flat_table::TableMemory;
pub use model::{DeviceInfo, DeviceModel, LATEST_ARRIVAL, Probe, ZoneLayout, advance, probed};
pub use models::blueprint::BuildOptions;
pub use models::disk;
pub use models::placing_host::{Placing, PlacingHost, PlacingOptions};
pub use models::speed::Speed;
#[cfg(any(test, feature = "test-utils"))]
pub use models::ssd::reseal_state;
pub use models::ssd::{
    AgeingMethod, AgeingOptions, AgeingProgress, AgeingReport, AgeingStage, AgeingWorkload, FlashState, StateError,
    StateSource,
};
pub use quantity::{Bytes, Quantity, Rate, Rotation, number_and_unit, parse_capacity, parse_duration, parse_rate};
pub use queued::{QueuedDevice, Service};
pub use zone_map::{ZoneCondition, ZoneMap, ZoneReport};
