//! The server of sessions behind sockets: admission of clients, and shutdown.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::connection;
use super::limits::Workshop;
use super::session::DeviceMaker;
use super::sessions::{ServeOptions, ServeStatistics, Shared, lock};
use super::socket;
use crate::host::{HostClock, MonotonicClock};
use crate::listen::{Connections, Listener, Peer, Socket};
use crate::protocol::{Answer, ErrorCode};

/// Serves devices to guests on other machines.
pub struct EmulatorServer {
    listener: Listener,
    shared: Arc<Shared>,
}

/// Interval of the checks for abandoned sessions, and for the server's shutdown.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl EmulatorServer {
    /// Listens at `HOST:PORT`, at a `PORT` of the loopback interface, or at `unix:PATH`.
    ///
    /// # Errors
    /// The host's error.
    pub fn listen(address: &str, maker: Arc<dyn DeviceMaker>, options: ServeOptions) -> io::Result<Self> {
        let shared = Shared {
            maker,
            shop: Workshop::new(options.call),
            sessions: Mutex::default(),
            connections: Connections::new(options.connections),
            clock: MonotonicClock::new(),
            statistics: Mutex::default(),
            store_failure: Mutex::default(),
            options,
        };
        Ok(EmulatorServer { listener: socket::bind(address)?, shared: Arc::new(shared) })
    }

    /// The address, with the port chosen by the host.
    ///
    /// # Errors
    /// The host's error.
    pub fn address(&self) -> io::Result<String> {
        socket::address_of(&self.listener)
    }

    /// Serves until `stop` is set. Returns the server's counters.
    ///
    /// # Errors
    /// If no client can be accepted any more.
    pub fn serve(&self, stop: &AtomicBool) -> io::Result<ServeStatistics> {
        let mut refused = Refused::default();
        while !stop.load(Ordering::Relaxed) {
            self.listener.wait(LOOK_EVERY)?;
            match self.listener.accept() {
                Ok((socket, peer)) => refused.extend(accepted(&self.shared, socket, peer)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // The client gave up meanwhile, or this process has too many open files at the moment.
                Err(_) => thread::sleep(LOOK_EVERY),
            }
            refused.forget();
            self.shared.drop_abandoned();
        }
        self.shared.stop();
        let mut statistics = *lock(&self.shared.statistics);
        statistics.evictions += self.shared.connections.evictions();
        Ok(statistics)
    }

    /// Why a device's bytes could not be made durable, if that happened.
    #[must_use]
    pub fn store_failure(&self) -> Option<String> {
        lock(&self.shared.store_failure).clone()
    }
}

impl Drop for EmulatorServer {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = &self.listener {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Connections that were refused with a message. Closing them at once could lose it.
#[derive(Default)]
struct Refused(VecDeque<(Instant, Socket)>);

/// Most such connections, and the time for which they stay open.
const REFUSED_MAX: usize = 64;
const REFUSED_STAY: Duration = Duration::from_millis(500);

impl Refused {
    fn extend(&mut self, socket: Option<Socket>) {
        self.0.extend(socket.map(|socket| (Instant::now(), socket)));
        if self.0.len() > REFUSED_MAX {
            self.0.pop_front();
        }
    }

    fn forget(&mut self) {
        while self.0.front().is_some_and(|(since, _)| since.elapsed() > REFUSED_STAY) {
            self.0.pop_front();
        }
    }
}

/// Admits a client; returns the socket of a refused one.
fn accepted(shared: &Arc<Shared>, mut socket: Socket, peer: Peer) -> Option<Socket> {
    let entered = shared.connections.enter(&socket, peer, shared.clock.now());
    let place = match entered {
        Ok(place) => place,
        Err(reason) => {
            lock(&shared.statistics).refusals += 1;
            // With TLS, no message can be sent before the handshake.
            if shared.options.tls.is_none() {
                let mut bytes = Vec::new();
                Answer::error(ErrorCode::Busy, reason).encode(0, &mut bytes);
                socket.say_at_once(&bytes);
            }
            return Some(socket);
        }
    };
    let shared = shared.clone();
    let _ = thread::Builder::new().name("emulator session".into()).spawn(move || {
        // A client's disconnection is no error of the server.
        let _ = connection::serve(&shared, &place, socket, peer);
    });
    None
}
