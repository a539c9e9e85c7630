//! The backend, a process of the host: serves the guest's devices. A guest has one backend, which ends with the guest.

mod holding;
pub(crate) mod process;
mod real_time;
mod sampler;
mod throttled;
mod zones;
