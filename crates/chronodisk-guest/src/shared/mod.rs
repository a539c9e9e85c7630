//! Data of several processes: the page of the guest's clock, messages, options of devices, names in the guest.
//!
//! Launcher, backend and guest use these modules.

pub(crate) mod acknowledge;
pub(crate) mod control;
pub(crate) mod costs;
mod definitions;
pub(crate) mod descriptors;
pub(crate) mod device_options;
pub(crate) mod filesystem;
pub(crate) mod frames;
#[cfg(test)]
mod header;
pub(crate) mod layout;
pub(crate) mod page;
pub(crate) mod records;
pub(crate) mod spec;
pub(crate) mod time;
