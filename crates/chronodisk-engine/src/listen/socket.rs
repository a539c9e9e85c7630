//! Listeners and the sockets that they accept: TCP, or Unix domain sockets.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

/// A listening socket. Accepting never blocks.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix domain socket, and its path.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens at the first of these addresses that can be bound.
    ///
    /// # Errors
    /// The host's error.
    pub fn tcp(addresses: &[SocketAddr]) -> io::Result<Self> {
        let listener = TcpListener::bind(addresses)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(listener))
    }

    /// Listens at a path. A socket there without a listener is left over from a killed server, and is replaced.
    ///
    /// # Errors
    /// The host's error.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Unix(listener, path.to_owned()))
    }

    /// The address, with the port chosen by the host; `None` for a Unix domain socket.
    ///
    /// # Errors
    /// The host's error.
    pub fn tcp_address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(Some),
            Listener::Unix(..) => Ok(None),
        }
    }

    /// Waits for a client, at most for `limit`.
    ///
    /// # Errors
    /// The host's error.
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts a waiting client.
    ///
    /// # Errors
    /// The host's error, [`ErrorKind::WouldBlock`] if no client waits.
    pub fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(false)?;
                // An answer must not wait for a later one to share its packet.
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

/// Keep-alive detects within a minute that a host is gone without closing the connection.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// Both ends of a TCP connection of this process with itself.
///
/// # Errors
/// The host's error.
pub fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let from = TcpStream::connect(listener.local_addr()?)?;
    let (to, peer) = listener.accept()?;
    if peer != from.local_addr()? {
        return Err(io::Error::other("another process came"));
    }
    Ok((from, to))
}

/// The identity of a client for its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// An address. For IPv6, the network of 64 bits, since one host may use all its addresses.
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

/// A byte stream to a client.
#[derive(Debug)]
pub enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix domain socket.
    Unix(UnixStream),
}

impl Socket {
    /// Another descriptor of the same connection.
    ///
    /// # Errors
    /// The host's error.
    pub fn try_clone(&self) -> io::Result<Socket> {
        Ok(match self {
            Socket::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
            Socket::Unix(stream) => Socket::Unix(stream.try_clone()?),
        })
    }

    /// Cuts the connection. Reads and writes on its clones end, too.
    pub fn cut(&self) {
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Writes the bytes if the socket accepts them without blocking.
    pub fn say_at_once(&mut self, bytes: &[u8]) {
        let _ = match self {
            Socket::Tcp(stream) => stream.set_nonblocking(true).and_then(|()| stream.write_all(bytes)),
            Socket::Unix(stream) => stream.set_nonblocking(true).and_then(|()| stream.write_all(bytes)),
        };
    }

    /// Sets the longest duration of a read and of a write.
    ///
    /// # Errors
    /// The host's error.
    pub fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
            Socket::Unix(stream) => stream.set_read_timeout(read).and_then(|()| stream.set_write_timeout(write)),
        }
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        match socket {
            Socket::Tcp(stream) => stream.into(),
            Socket::Unix(stream) => stream.into(),
        }
    }
}
