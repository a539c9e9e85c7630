//! Encryption: certificates from files, and the records between socket and session.
//!
//! TLS 1.2 and 1.3 by rustls, without its own sockets. Files are named as QEMU and nbdkit name
//! them. Keys that both sides know beforehand (TLS-PSK) are not offered: rustls has no interface
//! for them (<https://github.com/rustls/rustls/issues/174>).

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronodisk_sim::{TextError, TextFile};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::slots::Slots;
use crate::memory::MemoryLimit;
use crate::stream::Output;
use crate::stream::ReceiveBuffer;

/// The authorities whose certificates are trusted.
pub const CA_CERT_FILE: &str = "ca-cert.pem";
/// Certificates that are trusted no longer; need not be there.
pub const CA_CRL_FILE: &str = "ca-crl.pem";
/// The server's certificate chain below the authority.
pub const SERVER_CERT_FILE: &str = "server-cert.pem";
/// The server's private key: PKCS #8, PKCS #1 or SEC 1.
pub const SERVER_KEY_FILE: &str = "server-key.pem";

/// Whether clients must show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerifyPeer {
    /// Anybody may connect; only the server is known.
    #[default]
    No,
    /// Only clients with a certificate by an authority in [`CA_CERT_FILE`], not revoked by
    /// [`CA_CRL_FILE`].
    Yes,
}

/// Reads a server's certificates and key from a directory.
///
/// # Errors
/// [`TlsError`] with the file at fault.
pub fn server_config(directory: &Path, verify_peer: VerifyPeer) -> Result<Arc<ServerConfig>, TlsError> {
    let certificates = certificates(&directory.join(SERVER_CERT_FILE))?;
    let key_path = directory.join(SERVER_KEY_FILE);
    let key = pem_of(&key_path).and_then(|pem| PrivateKeyDer::from_pem_slice(&pem));
    let key = key.map_err(|source| TlsError::pem(&key_path, source))?;
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|source| TlsError { path: directory.to_owned(), kind: TlsErrorKind::Rejected(source) })?;
    let builder = match verify_peer {
        VerifyPeer::No => builder.with_no_client_auth(),
        VerifyPeer::Yes => {
            let path = directory.join(CA_CERT_FILE);
            let rejected = |source| TlsError { path: path.clone(), kind: TlsErrorKind::Rejected(source) };
            let mut roots = RootCertStore::empty();
            for certificate in self::certificates(&path)? {
                roots.add(certificate).map_err(rejected)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .with_crls(revocations(&directory.join(CA_CRL_FILE))?)
                .build()
                .map_err(|error| rejected(rustls::Error::General(error.to_string())))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(certificates, key)
        .map_err(|source| TlsError { path: directory.join(SERVER_CERT_FILE), kind: TlsErrorKind::Rejected(source) })?;
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::pem(path, source);
    let pem = pem_of(path).map_err(failed)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(failed)?;
    if certificates.is_empty() {
        return Err(failed(pem::Error::NoItemsFound));
    }
    Ok(certificates)
}

fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let failed = |source| TlsError::pem(path, source);
    match pem_of(path) {
        Ok(pem) => CertificateRevocationListDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(failed),
        Err(pem::Error::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

/// The bytes of a file in PEM.
fn pem_of(path: &Path) -> Result<Vec<u8>, pem::Error> {
    let file = File::open(path).map_err(pem::Error::Io)?;
    TextFile::Certificates.read_bytes(file).map_err(|error| match error {
        TextError::Unreadable(error) => pem::Error::Io(error),
        error => pem::Error::Io(io::Error::other(error)),
    })
}

/// Unusable certificates or keys.
#[derive(Debug)]
pub struct TlsError {
    /// The file, or the directory where no single file is at fault.
    pub path: PathBuf,
    /// The problem.
    pub kind: TlsErrorKind,
}

/// Problems of a certificate or key.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsErrorKind {
    /// The file can't be read, or has no item of its kind.
    Pem(pem::Error),
    /// TLS refuses the contents.
    Rejected(rustls::Error),
}

impl TlsError {
    fn pem(path: &Path, source: pem::Error) -> Self {
        TlsError { path: path.to_owned(), kind: TlsErrorKind::Pem(source) }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            TlsErrorKind::Pem(pem::Error::Io(source)) => write!(f, "{path}: {source}"),
            TlsErrorKind::Pem(source) => write!(f, "{path}: expected PEM items of its kind: {source}"),
            TlsErrorKind::Rejected(source) => write!(f, "{path}: {source}"),
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            TlsErrorKind::Pem(source) => Some(source),
            TlsErrorKind::Rejected(source) => Some(source),
        }
    }
}

/// Records between socket and session.
#[derive(Debug)]
pub(crate) struct TlsTransport {
    connection: ServerConnection,
    incoming: ReceiveBuffer,
    outgoing: Vec<u8>,
    outgoing_sent: usize,
    close_notified: bool,
    /// Only an alert is sent.
    failed: bool,
}

/// Encrypted bytes that wait; more stay in the session until they were sent.
const OUTGOING_BYTES_MAX: usize = 256 << 10;
/// Plain bytes that go into the encryption at once: one record's worth (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;

impl TlsTransport {
    pub fn new(config: &Arc<ServerConfig>, limit: &Arc<MemoryLimit>) -> Result<Self, rustls::Error> {
        Ok(TlsTransport {
            connection: ServerConnection::new(Arc::clone(config))?,
            incoming: ReceiveBuffer::new(limit),
            outgoing: Vec::new(),
            outgoing_sent: 0,
            close_notified: false,
            failed: false,
        })
    }

    /// Takes the client's bytes that arrived ahead, and the pending output in plain text.
    pub fn begin(&mut self, ahead: &[u8], output: &mut Output) {
        self.incoming.extend(ahead);
        while !output.is_empty() {
            // No request was received yet, so there are no data.
            let said = output.first(|_| &[]);
            self.outgoing.extend_from_slice(said);
            let len = said.len();
            output.sent(len, |_| {});
        }
    }

    pub fn receive_room(&mut self) -> &mut [u8] {
        self.incoming.room(0)
    }

    pub fn received(&mut self, len: usize) {
        self.incoming.fill(len);
    }

    /// Moves decrypted bytes to `input`; returns whether there were any.
    pub fn decrypt(&mut self, input: &mut ReceiveBuffer, message_bytes: usize) -> Result<bool, rustls::Error> {
        let decrypted = self.try_decrypt(input, message_bytes);
        self.failed |= decrypted.is_err();
        decrypted
    }

    fn try_decrypt(&mut self, input: &mut ReceiveBuffer, message_bytes: usize) -> Result<bool, rustls::Error> {
        loop {
            match self.connection.reader().read(input.room(message_bytes)) {
                Ok(len) if len > 0 => {
                    input.fill(len);
                    return Ok(true);
                }
                // No bytes, or the end of the stream: the end of the socket follows.
                Ok(_) | Err(_) => {}
            }
            let mut records = self.incoming.filled();
            let before = records.len();
            if before == 0 {
                return Ok(false);
            }
            let failed = |error: io::Error| rustls::Error::General(error.to_string());
            self.connection.read_tls(&mut records).map_err(failed)?;
            let len = before - records.len();
            self.incoming.consume(len);
            self.connection.process_new_packets()?;
            if len == 0 {
                return Ok(false);
            }
        }
    }

    /// Encrypts pending output until the buffer is full; after the last answer also the closing message.
    pub fn encrypt(&mut self, output: &mut Output, slots: &mut Slots, answered: bool) {
        while self.to_send().len() < OUTGOING_BYTES_MAX && !output.is_empty() && !self.failed {
            let plain = output.first(|slot| slots.data(slot));
            let plain = &plain[..plain.len().min(RECORD_BYTES)];
            // Writing to memory fails only after the connection did.
            let Ok(len) = self.connection.writer().write(plain) else { break };
            output.sent(len, |slot| slots.free(slot));
            self.flush();
            if len == 0 {
                break;
            }
        }
        if answered && output.is_empty() && !self.close_notified && !self.failed {
            self.connection.send_close_notify();
            self.close_notified = true;
        }
        self.flush();
    }

    fn flush(&mut self) {
        while self.connection.wants_write() && matches!(self.connection.write_tls(&mut self.outgoing), Ok(1..)) {}
    }

    /// Frees memory kept for reuse.
    pub fn release(&mut self) {
        self.incoming.release();
        if self.outgoing.is_empty() {
            self.outgoing = Vec::new();
        }
    }

    pub fn to_send(&self) -> &[u8] {
        &self.outgoing[self.outgoing_sent..]
    }

    pub fn sent(&mut self, len: usize) {
        assert!(len <= self.to_send().len(), "more was sent than was there");
        self.outgoing_sent += len;
        if self.outgoing_sent == self.outgoing.len() {
            self.outgoing.clear();
            self.outgoing_sent = 0;
        }
    }

    /// Whether output is waiting to be sent, or to be encrypted.
    pub fn has_output(&self, output: &Output, answered: bool) -> bool {
        let to_encrypt = !output.is_empty() || (answered && !self.close_notified);
        !self.to_send().is_empty() || self.connection.wants_write() || (to_encrypt && !self.failed)
    }
}
