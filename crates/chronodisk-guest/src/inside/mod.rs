//! Processes inside of the guest: its first process, and the commands of the guest that are this executable again.
//!
//! The first process prepares the guest, runs the command and powers the guest off. Further ones replay system calls
//! ([`replay`]) or check states after a power cut ([`states`]).

mod dropped;
pub(crate) mod generic_code;
pub(crate) mod init;
mod kernel_log;
mod leftovers;
mod machine;
mod relay;
pub(crate) mod replay;
pub(crate) mod root;
pub(crate) mod settle;
pub(crate) mod states;
mod trap_probe;
mod zonefs;
