//! Received and unsent bytes of a connection by a byte stream.

mod input;
mod output;

pub(crate) use input::{Detached, RECEIVE_BYTES_BASE, ReceiveBuffer};
pub(crate) use output::Output;
