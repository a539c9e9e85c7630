//! Samples of the backend's use of the host, by component, during the guest's life.

use chronodisk_sim::Nanos;
use serde::{Deserialize, Serialize};

/// A component's use of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentSample {
    /// Name of the component; with several devices, prefixed by the device's name and a dot.
    pub name: String,
    /// Memory that it held, in bytes.
    pub memory_bytes: u64,
    /// Processor time that it took until then.
    pub cpu: Nanos,
}

/// The backend's use of the host up to an instant of the guest's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The instant.
    pub at: Nanos,
    /// The models first, then the stores' components.
    pub components: Vec<ComponentSample>,
    /// Unclassified bytes of the devices.
    pub undecided_bytes: u64,
    /// Bytes that the devices' contents took.
    pub stored_bytes: u64,
    /// Resident memory of the whole process, in bytes, including the guest's memory, which it shares.
    pub process_memory_bytes: u64,
    /// Processor time of the whole process.
    pub process_cpu: Nanos,
}
