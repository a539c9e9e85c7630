//! Checks states that a device may be in after a power cut: each device of the guest holds one.
//!
//! The command of the guest is this executable, as root. It takes the devices in turn: it mounts the file system, which
//! recovers, unmounts it, runs the file system's checker, mounts it again, and runs the user's check as the calling
//! user. It reports each step through the pipe for acknowledgements, so that a panic costs only the present state.

mod checker;
mod steps;

pub use self::checker::guest_states;
