//! Future events of the drive, in order of time.

use chronodisk_sim::EventQueue;

/// Something that happens at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The firmware has understood a command.
    Decoded(u32),
    /// The mapping that a command needs is in the controller.
    Known(u32),
    /// So many units of a write have crossed the link.
    Arrived { command: u32, units: u32 },
    /// A command is answered.
    Completed(u32),
    /// A die's array operation ends, unless its generation has changed.
    Array { die: u32, generation: u32 },
    /// A page of a program has crossed the bus.
    PageIn { die: u32 },
    /// A die whose data have crossed the bus can take another command.
    DieFree { die: u32 },
    /// A die has suspended its operation.
    Suspended { die: u32 },
    /// A bus over which nothing is to pass any more, where commands wait for that.
    BusFree { channel: u32 },
}

/// Future events; those at one instant in the order of scheduling.
pub(crate) type Events = EventQueue<Event>;
