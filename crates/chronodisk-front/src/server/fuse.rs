//! The kernel as a client, by FUSE.

use std::io;
use std::os::fd::OwnedFd;

use super::{ListenError, Server};
use crate::fuse::FuseFile;

impl Server {
    /// Serves the device as `file`, the root of a FUSE file system. `descriptor` is `/dev/fuse`, opened for reading and
    /// writing and mounted by the caller with the option `rootmode=` [`FILE_ROOT_MODE`](crate::fuse::FILE_ROOT_MODE).
    /// Returns when the server's thread reads it, before the kernel has sent its first request. It counts as a
    /// listener: [`stop`](Self::stop) answers what is outstanding and drops the descriptor. The kernel fails later
    /// requests once no duplicate of the descriptor is left, so the caller keeps none.
    ///
    /// From here on no thread of the server becomes a real-time thread: the kernel's workers that bring a loop device's
    /// requests would not run.
    ///
    /// # Errors
    /// [`ListenError`], if the host refuses a descriptor or a thread.
    pub fn attach_fuse(&mut self, descriptor: OwnedFd, file: FuseFile) -> Result<(), ListenError> {
        drop((descriptor, file));
        Err(ListenError { address: "FUSE".to_owned(), action: "serving", source: io::ErrorKind::Unsupported.into() })
    }
}
