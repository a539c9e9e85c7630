//! Connecting to an emulator server over TCP.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::link::{Connector, Wire};

/// Connects to an emulator server.
#[derive(Clone, Debug)]
pub struct TcpConnector {
    address: String,
    who: String,
    timeout: Duration,
}

impl TcpConnector {
    /// To the server at `HOST:PORT`; no attempt to connect or to send takes longer than `timeout`.
    #[must_use]
    pub fn new(address: &str, timeout: Duration) -> Self {
        let who = format!("emulator server {address}");
        TcpConnector { address: address.to_owned(), who, timeout: timeout.max(Duration::from_millis(1)) }
    }
}

impl Connector for TcpConnector {
    fn who(&self) -> &str {
        &self.who
    }

    fn connect(&mut self) -> io::Result<Box<dyn Wire>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_write_timeout(Some(self.timeout))?;
                    return Ok(Box::new(TcpWire(stream)));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn resumes(&self) -> bool {
        true
    }
}

struct TcpWire(TcpStream);

impl Wire for TcpWire {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn receive(&mut self, bytes: &mut [u8], timeout: Duration) -> io::Result<usize> {
        // A timeout of zero would mean none.
        self.0.set_read_timeout(Some(timeout.max(Duration::from_millis(1))))?;
        loop {
            match self.0.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Linux says so when a receive timeout expires (socket(7), SO_RCVTIMEO).
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
                }
                result => return result,
            }
        }
    }
}
