//! Runs programs natively, with all processors, on an emulated device of this host.
//!
//! - [`attach`] makes a block device of this host's kernel from a server. The server answers the kernel's ublk driver.
//!   Without that driver it answers FUSE with one file, the device's bytes, and a loop device is made of that file. No
//!   mount point is needed: the FUSE file system is never mounted in the tree.
//! - [`CommandScope`] holds a command: a mount namespace and a cgroup of its own.
//! - [`Program`] is the command, from its start to the end of all of its processes.
//! - The *watchdog* ([`native_watchdog`]) is a process in a session of its own. When its starter ends, for any cause,
//!   it kills the command's processes and removes their cgroup. Everything else ends with the starter: the kernel
//!   detaches the loop device after its last user, and the mount namespace ends with its last process.
//! - The *attacher* ([`native_attacher`]) makes the block device and keeps it, since the server of a device must never
//!   wait for it.
//! - [`Watch`] observes the command by BPF, predicts its run time on a faster device, and freezes it meanwhile.
//! - [`Requests`] issues requests one at a time, to measure the service times of a device.
//!
//! All of that needs Linux and `CAP_SYS_ADMIN`.
//!
//! [`record()`] records the system calls of a program on this host. It needs no privilege, and no emulated device.

mod attacher;
mod attachment;
mod awake;
mod block_device;
mod calibrator;
mod cgroup;
mod disk;
mod error;
mod file_system;
mod helper;
mod loop_device;
mod observer;
mod program;
mod queue;
mod record;
mod scope;
mod ublk_device;
mod watch;
mod watchdog;

pub use attacher::native_attacher;
pub use attachment::{Attachment, Disconnector, Way, WayChoice, attach};
pub use calibrator::{Requests, native_calibrator};
pub use disk::Disk;
pub use error::NativeError;
pub use file_system::{make, mount, run_setup, unmount};
pub use program::{Ended, Program, Start};
pub use queue::{QueueSettings, request_time};
pub use record::{Recorded, Recording, RecordingSummary, record};
pub use scope::CommandScope;
pub use watch::{Observation, Watch, Watching};
pub use watchdog::native_watchdog;
