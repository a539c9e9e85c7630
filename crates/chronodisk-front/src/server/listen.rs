//! Addresses of servers, listening, and accepting.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronodisk_engine::listen::{Listener, Place, Socket};
use rustix::event::{PollFd, PollFlags, poll};

use super::Shared;
use super::stream::RECEIVE_TIMEOUT;

/// Address of a server: `unix:PATH`, `HOST:PORT`, or `PORT` on the loopback interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix domain socket.
    Unix(PathBuf),
    /// A TCP port; port 0 lets the host choose one.
    Tcp {
        /// Host name or address of the interface.
        host: String,
        /// Port.
        port: u16,
    },
}

/// Interface of a bare port, so that other machines can't reach it.
const LOOPBACK: &str = "127.0.0.1";

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected unix:PATH, HOST:PORT or PORT";
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(format!("no path; {EXPECTED}")) } else { Ok(Address::Unix(path.into())) };
        }
        let (host, port) = text.rsplit_once(':').unwrap_or((LOOPBACK, text));
        let port = port.parse().map_err(|_| format!("'{port}' is no port; {EXPECTED}"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(format!("no host; {EXPECTED}"));
        }
        Ok(Address::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl Address {
    /// The address as a URI for NBD clients (the NBD project's `doc/uri.md`), encrypted or not.
    #[must_use]
    pub fn nbd_uri(&self, tls: bool) -> String {
        let scheme = if tls { "nbds" } else { "nbd" };
        match self {
            Address::Unix(path) => {
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                format!("{scheme}+unix:///?socket={}", percent_encoded(&path))
            }
            Address::Tcp { .. } => format!("{scheme}://{self}"),
        }
    }
}

/// Encodes all bytes except the unreserved characters of RFC 3986, section 2.3, and slashes.
fn percent_encoded(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => text.push(char::from(*byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Reason why a server can't listen.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {action}: {source}")]
pub struct ListenError {
    /// The address.
    pub address: String,
    /// The attempted action.
    pub action: &'static str,
    /// The host's error.
    pub source: io::Error,
}

impl ListenError {
    pub(super) fn new(address: &Address, action: &'static str, source: io::Error) -> Self {
        ListenError { address: address.to_string(), action, source }
    }
}

/// Listens at an address. Also returns the address with the port that the host chose.
pub(super) fn bind(address: &Address) -> Result<(Listener, Address), ListenError> {
    let failed = |action| move |source| ListenError::new(address, action, source);
    match address {
        Address::Unix(path) => Ok((Listener::unix(path).map_err(failed("listening"))?, address.clone())),
        Address::Tcp { host, port } => {
            let resolved: Vec<SocketAddr> =
                (host.as_str(), *port).to_socket_addrs().map_err(failed("finding the host"))?.collect();
            let listener = Listener::tcp(&resolved).map_err(failed("listening"))?;
            let bound = listener.tcp_address().map_err(failed("listening"))?;
            let port = bound.map_or(*port, |bound| bound.port());
            Ok((listener, Address::Tcp { host: host.clone(), port }))
        }
    }
}

/// Stack of a connection's thread: ten times the amount used.
pub(super) const STACK_BYTES: usize = 256 << 10;

/// Accepts connections and starts a thread for each, until the server stops and all threads have ended.
pub(super) fn accept<F>(shared: &Arc<Shared>, listener: &Listener, serve: F)
where
    F: Fn(&Arc<Shared>, u32, Socket, Place) + Send + Sync + Clone,
{
    std::thread::scope(|scope| {
        while !shared.is_stopping() {
            let mut waits = [
                PollFd::from_borrowed_fd(shared.stop.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            ];
            if poll(&mut waits, None).is_err() || waits[1].revents().is_empty() {
                continue;
            }
            let Ok((socket, peer)) = listener.accept() else {
                // Without free descriptors, the server can only wait.
                std::thread::sleep(std::time::Duration::from_millis(10));
                continue;
            };
            let Ok(place) = shared.connections.enter(&socket, peer, shared.now()) else {
                shared.totals().connections_refused += 1;
                continue;
            };
            shared.connection_count.fetch_add(1, Ordering::Relaxed);
            shared.totals().connections += 1;
            // The client has a timeout for sending, and a waiting thread notices a second connection in time.
            let _ = socket.set_timeouts(Some(RECEIVE_TIMEOUT), None);
            let connection = shared.new_connection();
            let serve = serve.clone();
            let thread = std::thread::Builder::new().name(format!("client-{connection}")).stack_size(STACK_BYTES);
            let spawned = thread.spawn_scoped(scope, move || {
                let counted = Counted(shared);
                serve(shared, connection, socket, place);
                drop(counted);
            });
            if spawned.is_err() {
                shared.connection_count.fetch_sub(1, Ordering::Relaxed);
                shared.totals().connections_refused += 1;
            }
        }
    });
}

/// A connection that is counted until its thread ends, even by a panic.
pub(super) struct Counted<'a>(pub &'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.connection_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// An unused number for a connection: 24 bits, few of them in use at a time.
    pub(super) fn new_connection(&self) -> u32 {
        loop {
            let number = self.next_connection.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff;
            if number != 0 && !self.peers().contains_key(&number) {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["unix:/a b/c", "example.org:10809", "[::1]:5"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("10809".parse::<Address>().unwrap().to_string(), "127.0.0.1:10809");
        for text in ["unix:", "", "a:b", ":5", "70000", "host:"] {
            assert!(text.parse::<Address>().unwrap_err().contains("expected unix:PATH, HOST:PORT or PORT"), "{text}");
        }
    }

    #[test]
    fn uris_are_quoted() {
        assert_eq!("unix:/a b/ü?".parse::<Address>().unwrap().nbd_uri(false), "nbd+unix:///?socket=/a%20b/%C3%BC%3F");
        assert_eq!("5".parse::<Address>().unwrap().nbd_uri(true), "nbds://127.0.0.1:5");
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = Address::Unix(path.clone());
        drop(bind(&address).unwrap());
        assert!(path.exists());
        let (_live, _) = bind(&address).unwrap();
        assert!(bind(&address).is_err_and(|error| error.to_string().contains("listening")));
    }
}
