//! iSCSI, the target's side (RFC 7143).
//!
//! [`IscsiSession`] is one initiator's connection without its socket: bytes in, requests out, completions in, bytes
//! out. It uses no clock, thread or socket. No input of an initiator makes it panic or grow without bound.
//!
//! It speaks login with CHAP, discovery (`SendTargets`), commands with immediate, unsolicited and solicited data, task
//! management, and digests of headers and data. A connection is a session of its own (`MaxConnections=1`), and ends
//! with the first damaged PDU (`ErrorRecoveryLevel=0`). Not supported are mutual CHAP, and the reinstatement of a
//! session, which is a new session here. Data of an aborted command may have been written.
//!
//! ```
//! use std::sync::Arc;
//!
//! use chronodisk_front::iscsi::{Event, IscsiSession, IscsiTarget, Reason, target_name};
//! use chronodisk_front::scsi::{LogicalUnit, UnitDescription};
//!
//! let unit = LogicalUnit::new(UnitDescription::new("disk", 1 << 20));
//! let target = Arc::new(IscsiTarget::new(target_name("disk"), unit, None));
//! let mut session = IscsiSession::new(target, "127.0.0.1:3260".to_owned(), Arc::default());
//! assert_eq!(session.next_event(), None);
//! // A PDU that is no login.
//! session.receive_room()[..48].fill(0);
//! session.received(48);
//! assert!(matches!(session.next_event(), Some(Event::Closing(Reason::Violation(_)))));
//! assert!(session.is_finished());
//! ```

mod chap;
mod commands;
mod login;
mod management;
#[cfg(feature = "test-utils")]
pub mod mock;
mod sender;
mod session;
mod target;
mod tasks;
mod text;
pub mod wire;

pub(crate) use session::Outgoing;
pub use session::{Event, IscsiRequest, IscsiSession, Reason, SessionState, Violation};
pub use target::{Credentials, IscsiTarget, SECRET_BYTES_MAX, SECRET_BYTES_MIN, target_name};

/// Most commands that an initiator may have outstanding, including answers that are not sent yet.
pub const WINDOW_COUNT: u32 = 128;
/// Most outstanding commands of a session with those for immediate delivery, which the window does not bound.
pub const TASK_COUNT_MAX: usize = WINDOW_COUNT as usize + 16;
/// Most bytes of the data of a session's outstanding commands. A further command finds the task set full.
pub const IN_FLIGHT_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of data in a PDU to the target.
pub const RECEIVE_DATA_BYTES_MAX: u32 = 128 << 10;
/// Most bytes of a sequence of PDUs.
pub const BURST_BYTES_MAX: u32 = 1 << 20;
/// Most bytes of a write that come unasked.
pub const FIRST_BURST_BYTES_MAX: u32 = 128 << 10;
