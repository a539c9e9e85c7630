//! The launcher, the process of the user's command: starts the backend and the guest, relays the command's input and
//! output, and collects the results.

pub(crate) mod host;
mod instructions;
pub(crate) mod launch;
pub(crate) mod modules;
pub(crate) mod outcome;
mod output;
mod own_commands;
pub(crate) mod processes;
pub(crate) mod progress;
pub(crate) mod replay;
pub(crate) mod run_options;
pub(crate) mod signals;
mod sweeper;
