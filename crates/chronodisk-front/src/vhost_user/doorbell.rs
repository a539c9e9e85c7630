//! An event descriptor that the guest sent: for kicks, calls or errors.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::Refusal;

/// An eventfd, or a socket that stands for one as User Mode Linux uses it.
#[derive(Debug)]
pub(crate) struct Doorbell {
    fd: Arc<OwnedFd>,
    is_socket: bool,
}

impl Doorbell {
    /// Pipes are refused: writing to one whose reader is gone kills a process that does not ignore
    /// SIGPIPE.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, Refusal> {
        let file_type = FileType::from_raw_mode(fstat(&fd).map_err(Refusal::EventFd)?.st_mode);
        if file_type == FileType::Fifo {
            return Err(Refusal::EventPipe);
        }
        // A guest must not be able to stop us with an event that it has filled up or drained.
        let flags = fcntl_getfl(&fd).map_err(Refusal::EventFd)?;
        fcntl_setfl(&fd, flags | OFlags::NONBLOCK).map_err(Refusal::EventFd)?;
        Ok(Doorbell { fd: Arc::new(fd), is_socket: file_type == FileType::Socket })
    }

    /// For waiting without a lock, which would block the replacement of the descriptor.
    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Tells the guest. A full descriptor is no error: the guest has not looked yet, and will.
    pub(crate) fn ring(&self) -> Result<(), Errno> {
        let one = 1u64.to_ne_bytes();
        let rung = if self.is_socket {
            send(&self.fd, &one, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
        } else {
            rustix::io::write(&self.fd, &one)
        };
        match rung {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the guest has told us something since the last time.
    pub(crate) fn take(&self) -> Result<bool, Errno> {
        match rustix::io::read(&self.fd, &mut [0; 8]) {
            // A socket whose other end is gone is readable for ever.
            Ok(0) => Err(Errno::CONNRESET),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}
