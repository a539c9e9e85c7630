//! Every listener bounds its connections, in all and of one address, so idle clients exclude no other client.
//!
//! `listeners_are_made_in_one_module_and_each_is_attacked` in `tidy.rs` of the device's crate compares the sources
//! with [`MADE_IN`], so that a new listener wants its case here.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use super::TestFolder;

/// The sources that make listeners. Their services are below.
const MADE_IN: [&str; 3] = [
    "chronodisk-front/src/server/listen.rs",
    "chronodisk-engine/src/emulator/socket.rs",
    "chronodisk-run/src/serve/http.rs",
];

/// More than the connections of any listener.
const IDLE: usize = 300;

const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

enum Where {
    Tcp(u16),
    Unix(&'static str),
}

struct Listener {
    /// One of [`MADE_IN`].
    made_in: usize,
    arguments: &'static [&'static str],
    /// The option that names the address.
    option: &'static str,
    over_tcp: bool,
    /// The first message of an idle client.
    says: &'static [u8],
    /// The request of an active client, and the beginning of the answer; empty if the server is silent until then.
    asks: &'static [u8],
    answer: Option<&'static [u8]>,
}

/// `NBD_OPT_EXPORT_NAME` with the empty name, after the client's flags.
const NBD_GREETING: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0";
/// `VHOST_USER_GET_FEATURES`, version 1, no payload; and the beginning of its reply.
const VHOST_GREETING: &[u8] = &[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
const VHOST_REPLY: &[u8] = &[1, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0];

/// A login without keys (RFC 7143, 11.12), and the beginning of the response: "missing parameter" follows later.
const ISCSI_LOGIN: &[u8] = &{
    let mut login = [0; 48];
    (login[0], login[1]) = (0x43, 0x87);
    login
};
const ISCSI_REFUSAL: &[u8] = &[0x23, 0x04];

const SERVE: &[&str] = &["serve", "--device", "null", "--capacity", "1MiB", "--no-realtime", "--quiet"];
const EMULATOR: &[&str] = &["emulator-server"];

/// Each way to a listener, with idle clients of each kind.
const LISTENERS: [Listener; 10] = [
    listener(0, SERVE, "--nbd", true, b"", b"", Some(b"NBDMAGIC")),
    listener(0, SERVE, "--nbd", true, NBD_GREETING, b"", Some(b"NBDMAGIC")),
    listener(0, SERVE, "--nbd", false, NBD_GREETING, b"", Some(b"NBDMAGIC")),
    listener(0, SERVE, "--iscsi", true, b"", ISCSI_LOGIN, Some(ISCSI_REFUSAL)),
    listener(0, SERVE, "--iscsi", true, b"\x43", ISCSI_LOGIN, Some(ISCSI_REFUSAL)),
    listener(0, SERVE, "--vhost-user", false, b"", VHOST_GREETING, Some(VHOST_REPLY)),
    listener(1, EMULATOR, "--listen", true, b"", b"", None),
    listener(1, EMULATOR, "--listen", false, b"x", b"", None),
    listener(2, SERVE, "--metrics", true, b"", b"GET /metrics HTTP/1.1\r\n\r\n", Some(b"HTTP/1.1 200 OK")),
    listener(2, SERVE, "--metrics", true, b"GET /metr", b"GET /metrics HTTP/1.1\r\n\r\n", Some(b"HTTP/1.1 200 OK")),
];

const fn listener(
    made_in: usize,
    arguments: &'static [&'static str],
    option: &'static str,
    over_tcp: bool,
    says: &'static [u8],
    asks: &'static [u8],
    answer: Option<&'static [u8]>,
) -> Listener {
    Listener { made_in, arguments, option, over_tcp, says, asks, answer }
}

trait Stream: Read + Write {
    fn limit_reads(&self, limit: Duration);
}

impl Stream for TcpStream {
    fn limit_reads(&self, limit: Duration) {
        self.set_read_timeout(Some(limit)).unwrap();
    }
}

impl Stream for UnixStream {
    fn limit_reads(&self, limit: Duration) {
        self.set_read_timeout(Some(limit)).unwrap();
    }
}

/// A connection from an address.
fn connect_to(place: &TestFolder, at: &Where, from: Ipv4Addr) -> Option<Box<dyn Stream>> {
    match at {
        Where::Unix(name) => Some(Box::new(UnixStream::connect(place.path(name)).ok()?)),
        Where::Tcp(port) => {
            let made = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            bind(&made, &SocketAddrV4::new(from, 0)).unwrap();
            connect(&made, &SocketAddrV4::new(ADDRESS, *port)).ok()?;
            Some(Box::new(TcpStream::from(made)))
        }
    }
}

/// A server that is killed at the end of its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(place: &TestFolder, listener: &Listener) -> (Killed, Where) {
    let at = match listener.over_tcp {
        true => Where::Tcp(TcpListener::bind((ADDRESS, 0)).unwrap().local_addr().unwrap().port()),
        false => Where::Unix("under-attack"),
    };
    let address = match (&at, listener.option) {
        (Where::Tcp(port), _) => port.to_string(),
        (Where::Unix(name), "--vhost-user") => (*name).to_owned(),
        (Where::Unix(name), _) => format!("unix:{name}"),
    };
    let other = if listener.arguments == SERVE && listener.option != "--nbd" { &["--nbd", "unix:s"][..] } else { &[] };
    let arguments = [listener.arguments, other, &[listener.option, &address]].concat();
    let server = Killed(place.chronodisk(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let give_up = Instant::now() + Duration::from_secs(60);
    while connect_to(place, &at, ADDRESS).is_none() {
        assert!(Instant::now() < give_up, "no server: {arguments:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    (server, at)
}

/// Whether a new client of an address is served.
fn is_served(place: &TestFolder, at: &Where, listener: &Listener, from: Ipv4Addr) -> bool {
    let Some(mut stream) = connect_to(place, at, from) else { return false };
    let Some(expected) = listener.answer else {
        // One that is refused is told so at once, and closed.
        stream.limit_reads(Duration::from_millis(300));
        let read = stream.read(&mut [0; 64]);
        return read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    };
    stream.limit_reads(Duration::from_secs(30));
    let mut answer = vec![0; expected.len()];
    stream.write_all(listener.asks).is_ok() && stream.read_exact(&mut answer).is_ok() && answer == expected
}

#[test]
fn idle_clients_of_one_address_shut_nobody_out() {
    for (index, listener) in LISTENERS.iter().enumerate() {
        let place = TestFolder::new();
        let (_server, at) = start(&place, listener);
        let idle: Vec<Box<dyn Stream>> = (0..IDLE)
            .filter_map(|_| {
                let mut stream = connect_to(&place, &at, ADDRESS)?;
                // It may have been sent away already.
                let _ = stream.write_all(listener.says);
                Some(stream)
            })
            .collect();
        let case = format!("listener {index}, {} of {}", listener.option, MADE_IN[listener.made_in]);
        assert!(idle.len() > IDLE / 2, "{case}: {} idle clients", idle.len());
        assert!(is_served(&place, &at, listener, OTHER_ADDRESS), "{case}: a client of another address");
        assert!(is_served(&place, &at, listener, ADDRESS), "{case}: a client of the same address");
        drop(idle);
    }
}

/// A client that works keeps its place, and its address does not get more than its share.
#[test]
fn clients_that_work_keep_their_places_and_no_more_than_their_share() {
    let place = TestFolder::new();
    let server = place.serve(&["--device", "null", "--connections", "8", "--connections-per-address", "3"]);
    let mut clients: Vec<_> = (0..3).map(|_| place.connect()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.write(index as u64 * 4096, &[index as u8 + 1; 4096]), 0);
    }
    for _ in 0..20 {
        let mut refused = UnixStream::connect(place.path("socket")).unwrap();
        assert_eq!(refused.read(&mut [0]).unwrap(), 0);
    }
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.read(index as u64 * 4096, 4096), [index as u8 + 1; 4096]);
    }
    server.signal(libc::SIGTERM);
    let errors = super::text(&server.end().stderr);
    assert!(errors.contains("20 connections were too many"), "{errors}");
}

#[test]
fn every_source_that_listens_is_attacked() {
    for (index, source) in MADE_IN.iter().enumerate() {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(source).exists(), "{source}");
        assert!(LISTENERS.iter().any(|listener| listener.made_in == index), "{source}");
    }
}
