//! What the launcher and the backend process say to each other: JSON messages, each after its
//! length as four bytes.

use std::io::{self, Read, Write};

use chronodisk_sim::Nanos;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::launch::StoreChoice;

/// What the backend is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BackendSpec {
    /// Text of the profile, and the name under which errors mention it.
    pub profile: String,
    pub profile_label: String,
    pub capacity_bytes: Option<u64>,
    pub seed: u64,
    pub store: StoreChoice,
    /// Bounds of what every call of the model sleeps.
    pub model_delay: (Nanos, Nanos),
}

/// First message of the backend: it is ready, or why not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Readiness {
    Ready,
    Refused(String),
}

/// Last message of the backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendReport {
    /// Bytes that the store keeps.
    pub store_bytes: u64,
    /// Requests whose bytes could not be moved, and were answered with an I/O error.
    pub store_errors: u64,
    /// The first of these errors.
    pub first_store_error: Option<String>,
    /// Requests that the guest's driver put malformed on the ring.
    pub malformed_requests: u64,
    /// Arrivals moved to the model's present instant.
    pub clamped_arrivals: u64,
    /// Times that the guest's clock stepped back; always zero unless the clock is broken.
    pub backward_steps: u64,
    /// The device's clock when the guest ended, in virtual nanoseconds.
    pub end: Nanos,
    /// The model's own statistics, by name.
    pub statistics: Vec<(String, f64)>,
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
