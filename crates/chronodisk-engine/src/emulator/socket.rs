//! Addresses and streams of an emulator server: TCP, or in the file system; in plain text or with TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};

use crate::listen::{Listener, Socket};

/// Before the address of a socket in the file system.
const UNIX: &str = "unix:";

/// The addresses of `HOST:PORT`, or of a `PORT` of the loopback interface.
fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let with_host = if address.contains(':') { address.to_owned() } else { format!("127.0.0.1:{address}") };
    Ok(with_host.to_socket_addrs()?.collect())
}

/// Whether a server at this address is reachable only from this machine.
///
/// # Errors
/// If the address is invalid, or its host name is unknown.
pub fn is_local(address: &str) -> io::Result<bool> {
    Ok(address.starts_with(UNIX) || resolve(address)?.iter().all(|address| address.ip().is_loopback()))
}

/// Listens there.
pub(super) fn bind(address: &str) -> io::Result<Listener> {
    let Some(path) = address.strip_prefix(UNIX) else { return Listener::tcp(&resolve(address)?) };
    let listener = Listener::unix(Path::new(path))?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

/// The address of a listener, in the form for clients.
pub(super) fn address_of(listener: &Listener) -> io::Result<String> {
    match listener {
        Listener::Tcp(listener) => listener.local_addr().map(|address| address.to_string()),
        Listener::Unix(_, path) => Ok(format!("{UNIX}{}", path.display())),
    }
}

/// A socket whose waits end at a deadline, if there is one.
pub(super) struct Timed {
    socket: Socket,
    deadline: Option<Instant>,
}

impl Timed {
    fn limit_wait(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.socket.set_timeouts(Some(left), Some(left))
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.limit_wait()?;
        match &mut self.socket {
            Socket::Tcp(stream) => stream.read(bytes),
            Socket::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit_wait()?;
        match &mut self.socket {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client's connection, encrypted or not.
pub(super) struct Stream {
    timed: Timed,
    tls: Option<Box<ServerConnection>>,
}

/// Time after which a client that takes no answers counts as gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

impl Stream {
    /// A connection whose greeting, including TLS, must end by the deadline.
    pub fn new(socket: Socket, tls: Option<&Arc<ServerConfig>>, deadline: Instant) -> io::Result<Stream> {
        let tls = tls.map(|config| ServerConnection::new(Arc::clone(config)).map(Box::new));
        let tls = tls.transpose().map_err(io::Error::other)?;
        Ok(Stream { timed: Timed { socket, deadline: Some(deadline) }, tls })
    }

    /// Permits the client to be silent from now on.
    pub fn lift_deadline(&mut self) -> io::Result<()> {
        self.timed.deadline = None;
        self.timed.socket.set_timeouts(None, Some(SEND_TIMEOUT))
    }

    /// Another handle for cutting the connection.
    pub fn handle(&self) -> io::Result<Socket> {
        self.timed.socket.try_clone()
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.timed).read(bytes),
            None => self.timed.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.timed).write(bytes),
            None => self.timed.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.timed).flush(),
            None => Ok(()),
        }
    }
}
