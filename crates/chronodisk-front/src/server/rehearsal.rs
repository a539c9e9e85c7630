//! Sending a reply once before it is due, to nobody.

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

/// A way to nobody, of the kind on which replies leave.
///
/// A thread that has waited for milliseconds finds the caches filled with other things, and the
/// system call that sends a reply takes several times as long as it does a moment later. How much
/// longer differs from reply to reply, so no lead covers it. One that has just sent the same to a
/// socket of its own does not.
#[derive(Debug)]
pub(super) struct Rehearsal {
    ends: (OwnedFd, OwnedFd),
    reply: [u8; REPLY_BYTES],
}

/// A page and what comes before it in a structured reply.
const REPLY_BYTES: usize = 4096 + 32;

impl Rehearsal {
    /// `None` if the host refuses the descriptors.
    pub fn new() -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let ends = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        Some(Rehearsal { ends, reply: [0; REPLY_BYTES] })
    }

    /// Sends something and takes it in again.
    pub fn send(&mut self) {
        // A refusal is one more way through the same code.
        let _ = send(&self.ends.0, &self.reply, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let _ = recv(&self.ends.1, &mut self.reply, RecvFlags::DONTWAIT);
    }
}
