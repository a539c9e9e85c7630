//! Future events of the drive, in order of time.

use chronodisk_sim::EventQueue;

/// An event at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The firmware has understood a command.
    Decoded(u32),
    /// The mapping that a command needs is in the controller.
    Known(u32),
    /// This number of units of a write have crossed the link.
    Arrived { command: u32, units: u32 },
    /// A command is answered.
    Completed(u32),
    /// A die's array operation ends, unless its generation has changed.
    Array { die: u32, generation: u32 },
    /// A page of a program has crossed the bus.
    PageIn { die: u32 },
    /// A die can take another command, because its data have crossed the bus.
    DieFree { die: u32 },
    /// A die has suspended its operation.
    Suspended { die: u32 },
    /// A bus has no further data, so waiting commands may pass.
    BusFree { channel: u32 },
}

/// Future events. Events at the same instant keep the order of their scheduling.
pub(crate) type Events = EventQueue<Event>;
