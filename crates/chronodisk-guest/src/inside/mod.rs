//! Processes inside of the guest: its first process, and the commands of the guest that are this executable again.
//!
//! The first process prepares the guest, runs the command and powers the guest off. Further ones replay system calls
//! ([`replay`]) or check states after a power cut ([`states`]).

mod acknowledge;
mod command;
mod dropped;
mod generic_code;
pub(crate) mod init;
mod kernel_log;
mod learning;
mod leftovers;
mod machine;
mod modules;
mod recording;
mod relay;
pub(crate) mod replay;
mod root;
mod settle;
pub(crate) mod states;
mod trap_probe;
mod zonefs;
