//! Connecting to an emulator server: over TCP or a socket in the file system, in plain text or with TLS.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chronodisk_sim::{TextError, TextFile};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::link::{Connector, Wire};

/// Before the address of a socket in the file system.
const UNIX: &str = "unix:";

/// The authorities whose certificates are trusted.
const CA_CERT_FILE: &str = "ca-cert.pem";
/// The client's certificate chain below the authority; optional.
const CLIENT_CERT_FILE: &str = "client-cert.pem";
/// The client's private key; optional without a certificate.
const CLIENT_KEY_FILE: &str = "client-key.pem";

/// Connects to an emulator server.
#[derive(Clone, Debug)]
pub struct ServerConnector {
    address: String,
    who: String,
    timeout: Duration,
    tls: Option<Arc<ClientConfig>>,
}

impl ServerConnector {
    /// A connector to the server at `HOST:PORT` or `unix:PATH`. No attempt to connect or to send takes longer than
    /// `timeout`.
    #[must_use]
    pub fn new(address: &str, timeout: Duration) -> Self {
        let who = format!("emulator server {address}");
        let timeout = timeout.max(Duration::from_millis(1));
        ServerConnector { address: address.to_owned(), who, timeout, tls: None }
    }

    /// Uses TLS, with these certificates.
    #[must_use]
    pub fn with_tls(self, tls: Option<Arc<ClientConfig>>) -> Self {
        ServerConnector { tls, ..self }
    }

    fn stream(&self) -> io::Result<Stream> {
        if let Some(path) = self.address.strip_prefix(UNIX) {
            return Ok(Stream::Unix(UnixStream::connect(path)?));
        }
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Stream::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The name that the server's certificate has to have.
    fn name(&self) -> io::Result<ServerName<'static>> {
        let host = match self.address.strip_prefix(UNIX) {
            Some(_) => "localhost",
            None => self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        ServerName::try_from(host.to_owned()).map_err(io::Error::other)
    }
}

impl Connector for ServerConnector {
    fn who(&self) -> &str {
        &self.who
    }

    fn connect(&mut self) -> io::Result<Box<dyn Wire>> {
        let mut stream = self.stream()?;
        stream.set_timeouts(self.timeout)?;
        let Some(config) = &self.tls else { return Ok(Box::new(ServerWire { stream, tls: None })) };
        let mut tls = ClientConnection::new(Arc::clone(config), self.name()?).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(Box::new(ServerWire { stream, tls: Some(Box::new(tls)) }))
    }

    fn resumes(&self) -> bool {
        true
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        match self {
            Stream::Tcp(stream) => stream.set_write_timeout(Some(timeout)),
            Stream::Unix(stream) => stream.set_write_timeout(Some(timeout)),
        }
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        // A timeout of zero would mean no timeout.
        let timeout = Some(timeout.max(Duration::from_millis(1)));
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ServerWire {
    stream: Stream,
    tls: Option<Box<ClientConnection>>,
}

impl Wire for ServerWire {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.stream.write_all(bytes) };
        let mut encrypted = rustls::Stream::new(&mut **tls, &mut self.stream);
        encrypted.write_all(bytes)?;
        encrypted.flush()
    }

    fn receive(&mut self, bytes: &mut [u8], timeout: Duration) -> io::Result<usize> {
        self.stream.set_read_timeout(timeout)?;
        loop {
            let received = match &mut self.tls {
                Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).read(bytes),
                None => self.stream.read(bytes),
            };
            match received {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Linux returns this when a receive timeout expires (socket(7), SO_RCVTIMEO).
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
                }
                // The protocol has an end of its own, so a server may close TLS without its closing message.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
        }
    }
}

/// Reads a client's certificates from a directory: the authority's, and, if present, the client's own with its key.
///
/// # Errors
/// A message that names the file and its problem.
pub fn client_tls(directory: &Path) -> Result<Arc<ClientConfig>, ClientTlsError> {
    let wrong = |path: &Path, problem: &dyn std::fmt::Display| ClientTlsError {
        path: path.display().to_string(),
        problem: problem.to_string(),
    };
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
        let pem = pem_of(path).map_err(|error| wrong(path, &error))?;
        match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, pem::Error>>() {
            Ok(certificates) if certificates.is_empty() => Err(wrong(path, &"expected a certificate in PEM")),
            Ok(certificates) => Ok(certificates),
            Err(error) => Err(wrong(path, &error)),
        }
    };
    let authority = directory.join(CA_CERT_FILE);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&authority)? {
        roots.add(certificate).map_err(|error| wrong(&authority, &error))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(directory, &error))?
        .with_root_certificates(roots);
    let (own, key) = (directory.join(CLIENT_CERT_FILE), directory.join(CLIENT_KEY_FILE));
    if !own.exists() {
        return Ok(Arc::new(builder.with_no_client_auth()));
    }
    let pem = pem_of(&key).map_err(|error| wrong(&key, &error))?;
    let private = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| wrong(&key, &error))?;
    let config = builder.with_client_auth_cert(certificates(&own)?, private).map_err(|error| wrong(&own, &error))?;
    Ok(Arc::new(config))
}

/// The bytes of a file in PEM.
fn pem_of(path: &Path) -> Result<Vec<u8>, TextError> {
    TextFile::Certificates.read_bytes(File::open(path).map_err(TextError::Unreadable)?)
}

/// Unusable certificates or keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct ClientTlsError {
    /// The file, or the directory where no single file is at fault.
    pub path: String,
    /// The problem.
    pub problem: String,
}
