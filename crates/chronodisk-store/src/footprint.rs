//! A store's use of the host's memory and processor time, by component.

use std::fmt::Debug;

/// A clock of the calling thread's processor time, passed in so that a store reads no clock itself.
pub trait CpuClock: Debug + Send {
    /// Nanoseconds since an origin of the clock's own; never steps back.
    fn cpu_ns(&self) -> u64;
}

/// A part of a store, with its memory and processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// Name of the component in results.
    pub name: &'static str,
    /// Memory that it holds, in bytes: buffers as they are, tables by the number of their entries.
    pub memory_bytes: u64,
    /// Processor time that it took since [`Store::measure_cpu`](crate::Store::measure_cpu), in nanoseconds.
    pub cpu_ns: u64,
}

/// A store's use of the host at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Components of the store; empty if it has a single one.
    pub components: Vec<Component>,
    /// Unclassified bytes of the device, in memory or in a file.
    pub undecided_bytes: u64,
    /// Bytes that the contents take, in memory or in a file.
    pub stored_bytes: u64,
}
