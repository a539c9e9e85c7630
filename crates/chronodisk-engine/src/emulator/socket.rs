//! Sockets of an emulator server: TCP, or in the file system; in plain text or with TLS.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustls::{ServerConfig, ServerConnection};

/// Before the address of a socket in the file system.
const UNIX: &str = "unix:";

/// Where clients connect.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// The addresses of `HOST:PORT`, or of a `PORT` of the loopback interface.
fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    let with_host = if address.contains(':') { address.to_owned() } else { format!("127.0.0.1:{address}") };
    Ok(with_host.to_socket_addrs()?.collect())
}

/// Whether only clients on this machine can reach a server that listens there.
///
/// # Errors
/// If the address is none, or its name is not known.
pub fn is_local(address: &str) -> io::Result<bool> {
    Ok(address.starts_with(UNIX) || resolve(address)?.iter().all(|address| address.ip().is_loopback()))
}

impl Listener {
    pub fn bind(address: &str) -> io::Result<Self> {
        let Some(path) = address.strip_prefix(UNIX) else {
            let listener = TcpListener::bind(&*resolve(address)?)?;
            listener.set_nonblocking(true)?;
            return Ok(Listener::Tcp(listener));
        };
        let path = PathBuf::from(path);
        // A socket without a listener is the rest of a killed server.
        let stale = std::fs::symlink_metadata(&path).is_ok_and(|file| file.file_type().is_socket())
            && UnixStream::connect(&path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if stale {
            std::fs::remove_file(&path)?;
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Unix(listener, path))
    }

    pub fn address(&self) -> io::Result<String> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(|address| address.to_string()),
            Listener::Unix(_, path) => Ok(format!("{UNIX}{}", path.display())),
        }
    }

    /// A client that waits to be let in.
    pub fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Ok((Socket::Tcp(stream), Peer::of_address(address.ip())))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                let peer = sockopt::socket_peercred(&stream)?;
                Ok((Socket::Unix(stream), Peer::User(peer.uid.as_raw())))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A host that is gone is noticed after a minute, though it never said so.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// A client's identity for the purpose of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    /// An address; for IPv6 the network of 64 bits, since one host can have all its addresses.
    Address(IpAddr),
    /// A user of this machine.
    User(u32),
}

impl Peer {
    fn of_address(address: IpAddr) -> Peer {
        Peer::Address(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::User(uid) => write!(f, "user {uid}"),
        }
    }
}

/// A connection of bytes.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn try_clone(&self) -> io::Result<Socket> {
        Ok(match self {
            Socket::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
            Socket::Unix(stream) => Socket::Unix(stream.try_clone()?),
        })
    }

    /// Cuts it; who reads or writes on a clone of it notices.
    pub fn cut(&self) {
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Says something if that takes no time.
    pub fn say_at_once(&mut self, bytes: &[u8]) {
        let _ = match self {
            Socket::Tcp(stream) => stream.set_nonblocking(true).and_then(|()| stream.write_all(bytes)),
            Socket::Unix(stream) => stream.set_nonblocking(true).and_then(|()| stream.write_all(bytes)),
        };
    }

    fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
            Socket::Unix(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
        }
    }
}

/// A socket whose every wait ends at a deadline, if there is one.
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

/// A client that takes no answers for so long is gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

impl Stream {
    /// A connection whose greeting, that of TLS included, ends at the deadline.
    pub fn new(socket: Socket, tls: Option<&Arc<ServerConfig>>, deadline: Instant) -> io::Result<Stream> {
        let tls = tls.map(|config| ServerConnection::new(Arc::clone(config)).map(Box::new));
        let tls = tls.transpose().map_err(io::Error::other)?;
        Ok(Stream { timed: Timed { socket, deadline: Some(deadline) }, tls })
    }

    /// From now on the client may be silent as long as it likes.
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
