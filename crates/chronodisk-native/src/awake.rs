//! Keeps this host's processors from sleeping while a device is attached.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

/// The kernel's interface for how long a wake-up may take, in microseconds (its `power/pm_qos_interface.rst`).
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Keeps idle processors polling for work until it is dropped.
///
/// A request passes three threads that sleep: a worker of the loop driver, the server, and the program. Waking a
/// sleeping processor for each of them takes tens of microseconds on a virtual machine. A thread of our own that keeps
/// a processor busy would be worse: the scheduler moves no waiting thread to a processor that is not idle.
#[derive(Debug)]
pub(crate) struct Awake {
    /// The kernel drops the request when this file is closed.
    _request: File,
}

impl Awake {
    /// Asks for it.
    ///
    /// # Errors
    /// Without such a device, or the right to open it.
    pub fn ask() -> io::Result<Self> {
        let mut request = OpenOptions::new().write(true).open(LATENCY)?;
        request.write_all(&0_i32.to_ne_bytes())?;
        Ok(Awake { _request: request })
    }
}
