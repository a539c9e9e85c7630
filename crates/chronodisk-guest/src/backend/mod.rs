//! The backend, a process of the host: serves the guest's devices. A guest has one backend, which ends with the guest.

mod holding;
mod models;
pub(crate) mod process;
mod real_time;
mod request_pages;
mod sampler;
mod sessions;
mod stores;
mod throttled;
mod virtual_time;
mod zones;
