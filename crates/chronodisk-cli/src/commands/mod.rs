//! The commands, one per module.

pub mod age;
pub mod calibrate;
pub mod compare;
pub mod completions;
pub mod crash;
pub mod devices;
pub mod doctor;
pub mod emulator_server;
pub mod fit;
pub mod help;
pub mod image;
pub mod kernel;
pub mod man;
pub mod mount;
pub mod report;
pub mod rm;
pub mod run;
pub mod runs;
pub mod serve;
pub mod show;
pub mod simulate;
pub mod sweep;
pub mod trace;
pub mod validate;
pub mod verify;
pub mod whatif;
