//! Warms the send path: sends a dummy reply to a private socket shortly before a real one is due.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock};

use chronodisk_engine::listen::tcp_pair;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

/// Private sockets, of the kinds on which replies leave; made on first use.
///
/// After milliseconds of waiting the caches hold other data, and the system call that sends a reply takes several times
/// as long as a moment later. The difference varies between replies, so no lead covers it. A thread that has just sent
/// the same bytes to a socket of its own does not pay it.
#[derive(Debug, Default)]
pub(super) struct Rehearsal {
    local: OnceLock<Option<Mutex<Stage>>>,
    tcp: OnceLock<Option<Mutex<Stage>>>,
}

/// Kind of socket on which replies leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A socket in the file system.
    Local,
    Tcp,
}

#[derive(Debug)]
struct Stage {
    ends: (OwnedFd, OwnedFd),
    reply: [u8; REPLY_BYTES],
}

/// A page, and the header of a structured reply.
const REPLY_BYTES: usize = 4096 + 32;

impl Rehearsal {
    /// Sends something and takes it in again, unless another thread does so now or the host refuses
    /// the sockets.
    pub fn send(&self, way: Way) {
        let stage = match way {
            Way::Local => &self.local,
            Way::Tcp => &self.tcp,
        };
        let stage = stage.get_or_init(|| Stage::new(way).ok().map(Mutex::new));
        if let Some(Ok(mut stage)) = stage.as_ref().map(Mutex::try_lock) {
            stage.send();
        }
    }
}

impl Stage {
    fn new(way: Way) -> io::Result<Self> {
        let ends = match way {
            Way::Local => socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?,
            Way::Tcp => {
                let (from, to) = tcp_pair()?;
                from.set_nodelay(true)?;
                (from.into(), to.into())
            }
        };
        Ok(Stage { ends, reply: [0; REPLY_BYTES] })
    }

    fn send(&mut self) {
        // A refusal is one more way through the same code.
        let _ = send(&self.ends.0, &self.reply, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let _ = recv(&self.ends.1, &mut self.reply, RecvFlags::DONTWAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_taken_in_again() {
        for way in [Way::Local, Way::Tcp] {
            let mut stage = Stage::new(way).unwrap();
            stage.reply.fill(7);
            // More than a socket holds.
            for _ in 0..1_000 {
                stage.send();
            }
            let left = recv(&stage.ends.1, &mut stage.reply, RecvFlags::DONTWAIT);
            assert_eq!(left.unwrap_err(), rustix::io::Errno::AGAIN);
            assert!(stage.reply.iter().all(|byte| *byte == 7));
        }
    }
}
