//! Kernels for guests, in the process of the user's command: the kernels that this program builds from the
//! distribution's source.

pub mod built;
