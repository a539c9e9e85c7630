//! A store's use of the host's memory and processor time, by component.

use std::fmt::Debug;

/// A clock of the processor time of the thread that asks, handed in from outside so that a store reads none by itself.
pub trait CpuClock: Debug + Send {
    /// Nanoseconds since an origin of the clock's own; never steps back.
    fn cpu_ns(&self) -> u64;
}

/// A part of a store, with its use of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name in results.
    pub name: &'static str,
    /// Memory that it holds, in bytes: buffers as they are, tables by the number of their entries.
    pub memory_bytes: u64,
    /// Processor time that it took since [`Store::measure_cpu`](crate::Store::measure_cpu), in nanoseconds.
    pub cpu_ns: u64,
}

/// A store's use of the host at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Its components; none if the store is of one piece.
    pub components: Vec<Component>,
    /// Unclassified bytes of the device, in memory or in a file.
    pub undecided_bytes: u64,
    /// Bytes that the contents take, in memory or in a file.
    pub stored_bytes: u64,
}
