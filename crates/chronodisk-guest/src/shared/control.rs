//! Messages between the launcher and the backend process: JSON, each after its length as four bytes.

use std::io::{self, Read, Write};
use std::time::Duration;

use chronodisk_sim::Nanos;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::device_options::DeviceOptions;
use super::filesystem::FileSystem;
use super::samples::Sample;
use super::zones::ZonesBegan;

/// Description of the backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BackendSpec {
    /// In the order of the guest's names for them.
    pub devices: Vec<DeviceOptions>,
    pub seed: u64,
    /// File system to make or mount on the first device.
    pub file_system: FileSystem,
    /// Whether it may be made on a store that holds something.
    pub overwrite: bool,
    /// Bounds of the sleep in every call of the model.
    pub model_delay: (Nanos, Nanos),
    /// Timeouts of remote models: for an answer, and for a lost connection.
    pub patience: (Duration, Duration),
    /// Interval of the guest's time between samples of the backend's use of the host.
    pub sample_every: Option<Nanos>,
}

/// First message of the backend: it is ready, or the reason why it is not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Readiness {
    Ready {
        /// The file system that is to be mounted.
        file_system: FileSystem,
        /// Whether each device turns.
        rotational: Vec<bool>,
    },
    Refused(String),
    /// A remote model is not available.
    ModelLost(String),
}

/// Last message of the backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LastWord {
    /// The guest has ended.
    Report(BackendReport),
    /// A model that is elsewhere was lost.
    ModelLost(String),
}

/// The backend's report of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendReport {
    /// Bytes that the store keeps.
    pub store_bytes: u64,
    /// Requests answered with an I/O error because their bytes could not be moved.
    pub store_errors: u64,
    /// The first of these errors.
    pub first_store_error: Option<String>,
    /// Reasons why stores could not be closed, so that acknowledged bytes may be lost.
    pub close_errors: Vec<String>,
    /// Requests that the guest's driver put malformed on the ring.
    pub malformed_requests: u64,
    /// Arrivals moved to the model's present instant.
    pub clamped_arrivals: u64,
    /// Times that the guest's clock stepped back; always zero unless the clock is broken.
    pub backward_steps: u64,
    /// The device's clock when the guest ended, in virtual nanoseconds.
    pub end: Nanos,
    /// The models' own statistics, by name; with several devices, each name after its device's and a dot.
    pub statistics: Vec<(String, f64)>,
    /// Warnings about the bytes that the stores keep.
    pub store_notices: Vec<String>,
    /// The backend's use of the host, in the order of the instants.
    pub samples: Vec<Sample>,
    /// The zones of each device that began with some of them written.
    pub zones_began: Vec<ZonesBegan>,
}

const MESSAGE_BYTES_MAX: u32 = 64 << 20;

pub(crate) fn send(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message).expect("plain data");
    to.write_all(&(json.len() as u32).to_le_bytes())?;
    to.write_all(&json)
}

pub(crate) fn receive<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len);
    if len > MESSAGE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of impossible length"));
    }
    let mut json = vec![0; len as usize];
    from.read_exact(&mut json)?;
    serde_json::from_slice(&json).map_err(io::Error::from)
}
