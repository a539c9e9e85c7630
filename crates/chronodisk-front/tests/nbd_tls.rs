//! TLS between a client and a session in memory.

#[path = "common/certificates.rs"]
mod certificates;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use certificates::certify;
use chronodisk_front::nbd::mock::{
    Content, MockClient, OptionReply, Reply, RequestBytes, client_flags, info_data, meta_context, option_request,
};
use chronodisk_front::nbd::tls::{self, VerifyPeer};
use chronodisk_front::nbd::wire::{BASE_ALLOCATION, GREETING_BYTES, command, option, option_reply};
use chronodisk_front::nbd::{Event, Export, NbdError, Reason, ServerOffer, Tls, Violation};
use chronodisk_store::RamStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

const CAPACITY_BYTES: u64 = 64 << 20;

struct Secrets {
    server: Arc<rustls::ServerConfig>,
    client: Arc<ClientConfig>,
}

fn secrets() -> Secrets {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(directory.path().join(tls::CA_CERT_FILE)).unwrap()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Secrets { server: tls::server_config(directory.path(), VerifyPeer::No).unwrap(), client: Arc::new(client) }
}

fn plain(tls: Tls) -> MockClient {
    let offer = ServerOffer::new(vec![Export::new("disk", CAPACITY_BYTES)], tls).unwrap();
    let mut client = MockClient::new(Arc::new(offer), Box::new(RamStore::new(CAPACITY_BYTES, CAPACITY_BYTES)));
    client.send(&client_flags());
    client.receive();
    assert_eq!(client.said.len(), GREETING_BYTES);
    client.said.clear();
    client
}

fn kinds(client: &mut MockClient, code: u32, data: &[u8]) -> Vec<u32> {
    client.send(&option_request(code, data));
    client.receive();
    let said = std::mem::take(&mut client.said);
    OptionReply::decode_all(&said).0.iter().map(|reply| reply.kind).collect()
}

fn closing(client: &MockClient) -> Option<Reason> {
    client.events.iter().find_map(|event| match event {
        Event::Closing(reason) => Some(*reason),
        _ => None,
    })
}

/// A client behind TLS.
struct Encrypted {
    client: MockClient,
    tls: ClientConnection,
    /// The session's output, decrypted.
    said: Vec<u8>,
    closed: bool,
}

impl Encrypted {
    fn start(mut client: MockClient, config: &Arc<ClientConfig>) -> Self {
        assert_eq!(kinds(&mut client, option::STARTTLS, &[]), [option_reply::ACK]);
        let tls = ClientConnection::new(Arc::clone(config), "localhost".try_into().unwrap()).unwrap();
        let mut encrypted = Encrypted { client, tls, said: Vec::new(), closed: false };
        while encrypted.tls.is_handshaking() {
            encrypted.exchange();
        }
        encrypted
    }

    /// Exchanges records until neither side has any.
    fn exchange(&mut self) {
        while self.tls.wants_write() || self.client.session.has_output() {
            let mut records = Vec::new();
            while self.tls.wants_write() {
                self.tls.write_tls(&mut records).unwrap();
            }
            self.client.send(&records);
            self.client.complete_all();
            let said = std::mem::take(&mut self.client.said);
            let mut rest = said.as_slice();
            while !rest.is_empty() {
                self.tls.read_tls(&mut rest).unwrap();
                let state = self.tls.process_new_packets().unwrap();
                let mut bytes = vec![0; state.plaintext_bytes_to_read()];
                self.tls.reader().read_exact(&mut bytes).unwrap();
                self.said.extend(bytes);
                self.closed |= state.peer_has_closed();
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        for piece in bytes.chunks(30_000) {
            self.tls.writer().write_all(piece).unwrap();
            self.exchange();
        }
        std::mem::take(&mut self.said)
    }

    fn kinds(&mut self, code: u32, data: &[u8]) -> Vec<u32> {
        OptionReply::decode_all(&self.send(&option_request(code, data))).0.iter().map(|reply| reply.kind).collect()
    }
}

#[test]
fn data_go_through_whatever_the_pieces() {
    let secrets = secrets();
    let data: Vec<u8> = (0..1u32 << 20).map(|i| (i % 253) as u8).collect();
    for piece_bytes in [usize::MAX, 4000, 1] {
        let mut client = plain(Tls::Allowed(Arc::clone(&secrets.server)));
        client.piece_bytes = piece_bytes;
        let mut client = Encrypted::start(client, &secrets.client);
        assert_eq!(client.kinds(option::STRUCTURED_REPLY, &[]), [option_reply::ACK]);
        assert_eq!(client.kinds(option::GO, &info_data("", &[])).last(), Some(&option_reply::ACK));
        assert_eq!(client.client.events, [Event::Negotiated { export: 0, tls: true }]);
        let data = if piece_bytes == 1 { &data[..8192] } else { &data[..] };
        let len_bytes = data.len() as u32;
        client.send(&RequestBytes { command: command::WRITE, len_bytes, data, ..RequestBytes::default() }.encode());
        let said = client.send(&RequestBytes { len_bytes, ..RequestBytes::default() }.encode());
        let replies = Reply::decode_all(&said, &BTreeMap::new()).unwrap();
        let [Reply::Chunk { done: true, content: Content::Data { offset_bytes: 0, data: read }, .. }] = &replies[..]
        else {
            panic!();
        };
        assert!(read == data);
        client.send(&RequestBytes { command: command::DISC, ..RequestBytes::default() }.encode());
        assert_eq!(closing(&client.client), Some(Reason::Disconnect));
        assert!(client.closed, "the end is told inside TLS, too");
        assert!(client.client.session.is_finished());
    }
}

#[test]
fn what_was_agreed_on_before_tls_is_forgotten() {
    let secrets = secrets();
    let mut client = plain(Tls::Allowed(Arc::clone(&secrets.server)));
    let context = meta_context("", &[BASE_ALLOCATION]);
    assert_eq!(kinds(&mut client, option::STRUCTURED_REPLY, &[]), [option_reply::ACK]);
    assert_eq!(kinds(&mut client, option::SET_META_CONTEXT, &context), [option_reply::META_CONTEXT, option_reply::ACK]);
    let mut client = Encrypted::start(client, &secrets.client);
    assert_eq!(client.kinds(option::SET_META_CONTEXT, &context), [option_reply::ERR_INVALID]);
    assert_eq!(client.kinds(option::STARTTLS, &[]), [option_reply::ERR_INVALID]);
    client.send(&option_request(option::GO, &info_data("", &[])));
    let status = RequestBytes { command: command::BLOCK_STATUS, len_bytes: 512, ..RequestBytes::default() };
    let replies = Reply::decode_all(&client.send(&status.encode()), &BTreeMap::new()).unwrap();
    assert_eq!(replies, [Reply::Simple { cookie: 0, error: NbdError::Inval.code(), data: Vec::new() }]);
}

#[test]
fn what_was_sent_ahead_of_tls_is_not_taken_for_encrypted() {
    let secrets = secrets();
    let mut client = plain(Tls::Allowed(secrets.server));
    let go = option_request(option::GO, &info_data("", &[]));
    client.send(&[option_request(option::STARTTLS, &[]), go].concat());
    assert_eq!(client.events, [Event::Closing(Reason::Violation(Violation::Tls))]);
    assert!(client.session.tls_error().is_some());
    client.receive();
    assert!(client.session.is_finished());
    let (replies, alert) = OptionReply::decode_all(&client.said);
    assert_eq!(replies.len(), 1);
    // RFC 8446, section 5.1: records of type 21 are alerts.
    assert_eq!(alert.first(), Some(&21));
}

#[test]
fn nothing_is_told_before_tls_where_it_is_required() {
    let secrets = secrets();
    let mut client = plain(Tls::Required(Arc::clone(&secrets.server)));
    for (code, data) in [
        (option::LIST, Vec::new()),
        (option::INFO, info_data("disk", &[])),
        (option::GO, info_data("nothing", &[])),
        (option::STRUCTURED_REPLY, Vec::new()),
        (99, Vec::new()),
    ] {
        assert_eq!(kinds(&mut client, code, &data), [option_reply::ERR_TLS_REQD], "option {code}");
    }
    assert_eq!(kinds(&mut client, option::STARTTLS, b"x"), [option_reply::ERR_INVALID]);
    let mut encrypted = Encrypted::start(client, &secrets.client);
    assert_eq!(encrypted.kinds(option::GO, &info_data("", &[])).last(), Some(&option_reply::ACK));

    let mut client = plain(Tls::Required(Arc::clone(&secrets.server)));
    client.send(&option_request(option::EXPORT_NAME, b"disk"));
    assert_eq!(closing(&client), Some(Reason::Violation(Violation::TlsRequired)));
    let mut client = plain(Tls::Required(secrets.server));
    assert_eq!(kinds(&mut client, option::ABORT, &[]), [option_reply::ACK]);
}

#[test]
fn a_client_that_leaves_during_the_handshake_is_no_trouble() {
    let secrets = secrets();
    let mut client = plain(Tls::Allowed(secrets.server));
    assert_eq!(kinds(&mut client, option::STARTTLS, &[]), [option_reply::ACK]);
    client.session.input_ended();
    client.take_events();
    client.receive();
    assert!(client.session.is_finished());
}
