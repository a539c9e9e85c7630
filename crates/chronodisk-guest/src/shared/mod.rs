//! Data of several processes: the page of the guest's clock, messages, options of devices, names in the guest.
//!
//! Launcher, backend and guest use these modules, which import no other folder.

pub(crate) mod acknowledge;
pub(crate) mod control;
pub(crate) mod costs;
mod definitions;
pub(crate) mod descriptors;
pub(crate) mod device_names;
pub(crate) mod device_options;
pub(crate) mod feed;
pub(crate) mod filesystem;
pub(crate) mod frames;
#[cfg(test)]
mod header;
pub(crate) mod layout;
pub(crate) mod page;
pub(crate) mod records;
pub(crate) mod samples;
pub(crate) mod signals;
pub(crate) mod spec;
pub(crate) mod states;
pub(crate) mod time;
pub(crate) mod zones;
