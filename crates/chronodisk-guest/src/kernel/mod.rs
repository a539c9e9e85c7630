//! Kernels for guests, in the process of the user's command: finds the installed ones, builds others from the
//! distribution's source, and chooses the kernel of a run.

pub mod built;
mod choice;
pub(crate) mod installed;
pub(crate) mod programs;
