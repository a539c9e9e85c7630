//! A command's need for access, by which reservations permit or refuse it.

use super::Command;

/// Groups of commands that reservations treat alike; SPC-4, 5.13.1, SBC-3, 4.15, and SPC-2, 5.5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Permitted in the presence of every reservation.
    Any,
    /// Permitted in the presence of every persistent reservation.
    AnyPersistent,
    /// Persistent reservations themselves, which check their own rules.
    Reservations,
    /// Reads data or state that a writer could change.
    Read,
    /// Changes data or state.
    Write,
}

impl Command {
    /// The access that the command needs.
    pub(crate) fn access(&self) -> Access {
        match self {
            Command::RequestSense { .. }
            | Command::Inquiry { .. }
            | Command::ReportLuns { .. }
            | Command::ReadCapacity { .. }
            | Command::Reserve
            | Command::Release
            | Command::StartStop { start: true, .. } => Access::Any,
            Command::TestUnitReady => Access::AnyPersistent,
            Command::ReserveIn { .. } | Command::ReserveOut(_) => Access::Reservations,
            Command::ModeSense(_) | Command::ReportOpcodes(_) | Command::Read(_) | Command::Verify { .. } => {
                Access::Read
            }
            Command::ModeSelect { .. }
            | Command::Write { .. }
            | Command::WriteSame { .. }
            | Command::Unmap
            | Command::Synchronize
            | Command::StartStop { start: false, .. } => Access::Write,
        }
    }
}
