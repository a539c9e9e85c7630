//! The pipe for acknowledgements: the command writes to it outside the device, and the launcher keeps the bytes with
//! their instants.

/// The variable that names the pipe.
pub(crate) const VARIABLE: &str = "CHRONODISK_ACK";
/// The pipe in the guest, in the kernel's own file system of devices.
pub(crate) const PIPE: &str = "/dev/chronodisk-ack";
