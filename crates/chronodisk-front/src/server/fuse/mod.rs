//! The kernel as a client, by FUSE.
//!
//! Its requests come over io_uring where it offers that (`uring`), else as messages on `/dev/fuse` (`messages`).

mod messages;
mod ring;
mod uring;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use chronodisk_engine::real_host;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::configure_io_flusher_behavior;

use self::messages::{MessageConnection, write_replies};
use self::ring::Ring;
pub(super) use self::ring::RingMemory;
use self::uring::RingConnection;
use super::connection::serve_connection;
use super::listen::{Counted, STACK_BYTES};
use super::{Acceptor, ListenError, Server, Shared};
use crate::fuse::{FuseFile, FuseSession};

/// Permissions granted by the host for a device attached by FUSE. Without them, writing dirty pages to the device may
/// wait for memory that only this writing would free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachPermissions {
    /// The serving thread does not wait for the device's own write-back when it needs memory (`PR_SET_IO_FLUSHER`;
    /// needs `CAP_SYS_RESOURCE`).
    pub io_flusher: bool,
    /// The process is not paged out (`mlockall`; needs `CAP_IPC_LOCK` or no limit on locked memory).
    pub memory_locked: bool,
}

/// The way of the kernel's requests to a server of FUSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuseChannel {
    /// Messages on `/dev/fuse`: a call for each request, and one for each reply.
    Messages,
    /// Queues of io_uring, where the kernel offers them (Linux 6.14 and later, with the parameter `enable_uring` of its
    /// module `fuse`), and the host permits io_uring.
    IoUring,
}

impl Server {
    /// Serves the device as `file`, the root of a FUSE file system. `descriptor` is `/dev/fuse`, opened for reading and
    /// writing and mounted by the caller with the option `rootmode=` [`FILE_ROOT_MODE`](crate::fuse::FILE_ROOT_MODE).
    /// The kernel learns its size at the first request for the file's attributes, as by fstat(2).
    ///
    /// With `channel` [`IoUring`](FuseChannel::IoUring) the requests come over io_uring if that is possible. Returns
    /// the channel in use. The kernel must have sent its first message, as it does at mount(2); else messages are used.
    ///
    /// It counts as a listener and as a connection: [`stop`](Self::stop) answers outstanding requests and closes the
    /// descriptor. The kernel fails later requests once no duplicate of the descriptor is left, so the caller keeps
    /// none, and first detaches every user of the file.
    ///
    /// From here on no thread of the server is a real-time thread: the kernel's workers that bring a loop device's
    /// requests would not run. The process locks its memory, as far as permitted. With a stable number and size of
    /// requests, a store in memory, and blocks that were written before, serving allocates only entries of the request
    /// log.
    ///
    /// # Errors
    /// [`ListenError`], if `file` does not fit the store, or the host refuses a descriptor or a thread.
    pub fn attach_fuse(
        &mut self,
        descriptor: OwnedFd,
        file: FuseFile,
        channel: FuseChannel,
    ) -> Result<(AttachPermissions, FuseChannel), ListenError> {
        let failed = |action| move |source| ListenError { address: "FUSE".to_owned(), action, source };
        let invalid = |reason| failed("checking the file")(io::Error::new(io::ErrorKind::InvalidInput, reason));
        file.check(self.shared.store().capacity_bytes()).map_err(invalid)?;
        let flags = fcntl_getfl(&descriptor).map_err(io::Error::from).map_err(failed("reading its flags"))?;
        let set = fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK);
        set.map_err(io::Error::from).map_err(failed("setting its flags"))?;
        // Real-time threads change their priority when they are woken.
        self.shared.attached.store(true, Ordering::Relaxed);
        self.shared.peers().values().for_each(|peer| peer.nudge());
        let memory_locked = real_host::lock_touched_memory().is_ok();
        self.shared.totals().connections += 1;
        self.shared.connection_count.fetch_add(1, Ordering::Relaxed);
        let shared = self.shared.clone();
        let (tell, told) = mpsc::channel();
        let serving = move || {
            let counted = Counted(&shared);
            // A helper that this thread starts inherits it.
            let io_flusher = configure_io_flusher_behavior(true).is_ok();
            match Channel::open(descriptor, file, channel) {
                Ok(channel) => {
                    let _ = tell.send(Ok((io_flusher, channel.memory())));
                    channel.serve(&shared, file);
                }
                Err(error) => drop(tell.send(Err(error))),
            }
            drop(counted);
        };
        let thread = std::thread::Builder::new().name("fuse".into()).stack_size(STACK_BYTES).spawn(serving);
        let thread = thread.map_err(|source| {
            self.shared.connection_count.fetch_sub(1, Ordering::Relaxed);
            failed("starting a thread")(source)
        })?;
        let started = told.recv().unwrap_or_else(|_| Err(io::Error::other("the serving thread has ended")));
        let (io_flusher, memory) = started.map_err(failed("registering a ring"))?;
        let channel = if memory.is_some() { FuseChannel::IoUring } else { FuseChannel::Messages };
        self.acceptors.push(Acceptor::with_memory(thread, memory));
        Ok((AttachPermissions { io_flusher, memory_locked }, channel))
    }
}

/// The channel in use.
struct Channel {
    fuse: OwnedFd,
    session: FuseSession,
    /// The ring and its descriptor, if requests come over io_uring.
    ring: Option<(Ring, OwnedFd)>,
}

impl Channel {
    /// Agrees on the channel with the kernel, if its first message is there.
    fn open(fuse: OwnedFd, file: FuseFile, wanted: FuseChannel) -> io::Result<Self> {
        let mut session = FuseSession::new(file);
        if wanted == FuseChannel::Messages {
            return Ok(Channel { fuse, session, ring: None });
        }
        if let Ok(len @ 1..) = rustix::io::read(&fuse, session.receive_room()) {
            session.received(len);
        }
        // Linux waits with its requests if a ring was agreed on. So there must be one before.
        let ring = match session.is_offered_io_uring() {
            true => Ring::new(fuse.as_fd()).and_then(|ring| ring.descriptor().map(|socket| (ring, socket))).ok(),
            false => None,
        };
        if ring.is_some() {
            session.accept_io_uring();
        }
        // The kernel sends no requests before it has the reply.
        let _ = session.next_event();
        write_replies(&mut session, &fuse);
        let registered =
            |(mut ring, socket): (Ring, OwnedFd)| Some((ring.register_first().ok().map(|()| ring)?, socket));
        let Some((mut ring, socket)) = ring.filter(|_| session.has_io_uring()).and_then(registered) else {
            return Ok(Channel { fuse, session, ring: None });
        };
        ring.register_others().inspect_err(|_| {
            // The kernel may write to it until this thread has ended, and the caller does not wait for that.
            std::mem::forget(ring.memory());
        })?;
        Ok(Channel { fuse, session, ring: Some((ring, socket)) })
    }

    /// Memory to be kept until this thread has ended.
    fn memory(&self) -> Option<Arc<RingMemory>> {
        self.ring.as_ref().map(|(ring, _)| ring.memory())
    }

    /// Serves the kernel until the file system is unmounted or the server stops.
    fn serve(self, shared: &Arc<Shared>, file: FuseFile) {
        let connection = shared.new_connection();
        let transport = |name| shared.core().clock.add_transport(name, shared.options.timing);
        let Channel { fuse, session, ring } = self;
        match ring {
            None => {
                let protocol = MessageConnection::new(session);
                serve_connection(shared, connection, transport("FUSE"), (fuse, None), protocol);
            }
            Some((ring, socket)) => {
                let protocol = RingConnection::new(ring, session, fuse, file);
                serve_connection(shared, connection, transport("FUSE over io_uring"), (socket, None), protocol);
            }
        }
    }
}
