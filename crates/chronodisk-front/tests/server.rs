//! A served device under real clients: several at once, slow ones, such that leave, and such that
//! break the rules. What is asserted is never how fast it went.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::{Engine, MonotonicClock, RealOptions, Tracked, verify};
use chronodisk_front::nbd::mock::{RequestBytes, client_flags, option_request};
use chronodisk_front::nbd::wire::{command, option};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Address, Server, ServerOptions, ServerOutcome};
use chronodisk_sim::{Nanos, Op};
use chronodisk_store::RamStore;

const CAPACITY_BYTES: u64 = 64 << 20;

fn model(profile: &str) -> Box<dyn DeviceModel> {
    let build = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), seed: 1 };
    Profile::find(profile).unwrap().build(&build).unwrap()
}

struct Served {
    server: Server,
    address: Address,
    profile: &'static str,
    _folder: tempfile::TempDir,
}

fn serve_with(profile: &'static str, options: ServerOptions) -> Served {
    let clock = MonotonicClock::new();
    let mut engine = Engine::new();
    let device = engine.attach(model(profile));
    let offer = ServerOffer::new(vec![Export::new("", CAPACITY_BYTES)], Tls::Off).unwrap();
    let store = Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES));
    let mut server = Server::new(engine, device, store, offer, clock, options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let address = server.listen_nbd(&Address::Unix(folder.path().join("socket"))).unwrap();
    Served { server, address, profile, _folder: folder }
}

fn serve(profile: &'static str) -> Served {
    // Priorities and CPUs that stay awake would disturb the other tests and change no result.
    serve_with(profile, ServerOptions { realtime: false, ..ServerOptions::default() })
}

impl Served {
    fn connect(&self) -> Client {
        let Address::Unix(path) = &self.address else { panic!("it listens in the file system") };
        Client::negotiate(UnixStream::connect(path).unwrap())
    }

    fn statistics(&self) -> chronodisk_front::server::ServerStatistics {
        self.server.statistics()
    }

    /// Waits until something holds that the server's threads bring about.
    fn until(&self, holds: impl Fn(&Served) -> bool) {
        for _ in 0..2_000 {
            if holds(self) {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("it does not come about: {:?}", self.statistics());
    }

    /// Ends, and checks what always holds.
    fn stop(self) -> ServerOutcome {
        let outcome = self.server.stop();
        let verification = verify(&mut [model(self.profile)], &outcome.records, Some(outcome.end)).unwrap();
        assert!(verification.identical(), "{:?}", verification.first_difference);
        let tolerated = outcome.statistics.clock.early_max;
        assert!(outcome.records.iter().all(|record| !record.is_completed() || record.earliness() <= tolerated));
        outcome
    }
}

/// A client that speaks as little NBD as it takes, with simple replies.
struct Client<S = UnixStream> {
    socket: S,
    next_cookie: u64,
}

impl<S: Read + Write> Client<S> {
    fn negotiate(mut socket: S) -> Self {
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).unwrap();
        // Fixed newstyle, no zeroes.
        socket.write_all(&client_flags()).unwrap();
        socket.write_all(&option_request(option::EXPORT_NAME, b"")).unwrap();
        let mut export = [0; 10];
        socket.read_exact(&mut export).unwrap();
        assert_eq!(export[..8], CAPACITY_BYTES.to_be_bytes());
        Client { socket, next_cookie: 1 }
    }

    /// Sends a request; the data of a write follow it.
    fn send(&mut self, command: u16, offset_bytes: u64, len_bytes: u32, data: &[u8]) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let request = RequestBytes { command, cookie, offset_bytes, len_bytes, data, ..RequestBytes::default() };
        self.socket.write_all(&request.encode()).unwrap();
        cookie
    }

    /// Receives a reply; its cookie. `len` bytes of data follow it if it is a read's.
    fn receive(&mut self, mut len: impl FnMut(u64) -> usize) -> (u64, Vec<u8>) {
        let mut head = [0; 16];
        self.socket.read_exact(&mut head).unwrap();
        assert_eq!(head[..4], 0x6744_6698_u32.to_be_bytes(), "NBD_SIMPLE_REPLY_MAGIC");
        assert_eq!(head[4..8], [0; 4], "no error");
        let cookie = u64::from_be_bytes(head[8..].try_into().unwrap());
        let mut data = vec![0; len(cookie)];
        self.socket.read_exact(&mut data).unwrap();
        (cookie, data)
    }

    fn read(&mut self, offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
        let sent = self.send(command::READ, offset_bytes, len_bytes, &[]);
        let (cookie, data) = self.receive(|_| len_bytes as usize);
        assert_eq!(cookie, sent);
        data
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) {
        let sent = self.send(command::WRITE, offset_bytes, data.len() as u32, data);
        assert_eq!(self.receive(|_| 0).0, sent);
    }
}

#[test]
fn several_clients_with_several_requests_each_get_their_own_bytes() {
    for profile in ["null", "constant-100us", "first-disk"] {
        let served = serve(profile);
        let requests = if profile == "first-disk" { 8 } else { 150 };
        thread::scope(|scope| {
            for number in 0..4u64 {
                let served = &served;
                scope.spawn(move || {
                    let mut client = served.connect();
                    let base = number * (16 << 20);
                    for index in 0..requests {
                        client.write(base + index * 8192, &[(index as u8) ^ (number as u8) << 6; 8192]);
                    }
                    // All at once, in whatever order they come back.
                    let first = client.next_cookie;
                    for index in 0..requests {
                        client.send(command::READ, base + index * 8192, 8192, &[]);
                    }
                    let mut seen = vec![false; requests as usize];
                    for _ in 0..requests {
                        let (cookie, data) = client.receive(|_| 8192);
                        let index = cookie - first;
                        assert!(data.iter().all(|byte| *byte == (index as u8) ^ (number as u8) << 6));
                        assert!(!std::mem::replace(&mut seen[index as usize], true));
                    }
                });
            }
        });
        let outcome = served.stop();
        assert_eq!(outcome.records.len() as u64, 4 * 2 * requests);
        assert!(outcome.records.iter().all(|record| record.is_completed()));
        assert_eq!((outcome.statistics.connections, outcome.statistics.store_errors), (4, 0));
    }
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    let served = serve("constant-1ms");
    let mut slow = served.connect();
    for index in 0..48 {
        slow.send(command::READ, index << 20, 1 << 20, &[]);
    }
    let mut other = served.connect();
    for index in 0..50 {
        other.write(index * 4096, &[7; 4096]);
        assert_eq!(other.read(index * 4096, 4096), vec![7; 4096]);
    }
    // All of it is there as soon as it looks.
    for _ in 0..48 {
        slow.receive(|_| 1 << 20);
    }
    let outcome = served.stop();
    assert!(outcome.records.iter().all(|record| record.is_completed()));
    let large = outcome.records.iter().filter(|record| record.sectors == 2048);
    assert!(large.clone().count() == 48 && large.clone().any(|record| record.lateness() > Nanos::ZERO));
}

#[test]
fn a_client_that_leaves_with_requests_in_flight_is_forgotten() {
    let served = serve("constant-10ms");
    let mut staying = served.connect();
    let mut leaving = served.connect();
    for index in 0..20 {
        leaving.send(command::READ, index * 4096, 4096, &[]);
    }
    staying.send(command::READ, 0, 4096, &[]);
    served.until(|served| served.statistics().engine.arrivals == 21);
    drop(leaving);
    staying.receive(|_| 4096);
    staying.write(0, &[1; 512]);
    served.until(|served| served.statistics().dropped_completions > 0 || served.statistics().engine.completions == 22);
    let outcome = served.stop();
    assert_eq!(outcome.records.len(), 22);
    // Whose request arrived first is anybody's guess.
    let of = |issuer| outcome.records.iter().filter(move |record| record.issuer == issuer);
    let first = outcome.records[0].issuer;
    let other = outcome.records.iter().map(|record| record.issuer).find(|&issuer| issuer != first).unwrap();
    let staying = if of(first).count() == 2 { first } else { other };
    assert_eq!(of(staying).count(), 2);
    assert!(of(staying).all(|record| record.is_completed()));
}

#[test]
fn stopping_answers_what_is_outstanding() {
    let served = serve("constant-10ms");
    let mut client = served.connect();
    for index in 0..10 {
        client.send(command::READ, index * 4096, 4096, &[]);
    }
    served.until(|served| served.statistics().engine.arrivals == 10);
    let stopping = thread::spawn(|| served.stop());
    for _ in 0..10 {
        client.receive(|_| 4096);
    }
    let mut end = [0];
    assert_eq!(client.socket.read(&mut end).unwrap(), 0, "then the connection is closed");
    let outcome = stopping.join().unwrap();
    assert!(outcome.records.iter().all(|record| record.is_completed()));
}

#[test]
fn connections_beyond_the_limit_are_closed_and_the_others_served() {
    let served = serve_with("null", ServerOptions { connections_max: 2, realtime: false, ..ServerOptions::default() });
    let (mut first, mut second) = (served.connect(), served.connect());
    let Address::Unix(path) = &served.address else { unreachable!() };
    for _ in 0..20 {
        let mut refused = UnixStream::connect(path).unwrap();
        assert_eq!(refused.read(&mut [0]).unwrap(), 0);
    }
    first.write(0, &[1; 512]);
    assert_eq!(second.read(0, 512), [1; 512]);
    drop(first);
    served.until(|served| served.statistics().engine.completions == 2);
    // Its place is free again, as soon as its thread has ended.
    served.until(|_| {
        let mut socket = UnixStream::connect(path).unwrap();
        matches!(socket.read(&mut [0; 18]), Ok(18))
    });
    assert!(served.stop().statistics.connections_refused >= 20);
}

#[test]
fn a_client_that_never_gets_through_negotiation_is_sent_away() {
    let options = ServerOptions { handshake_max: Nanos::from_millis(300), realtime: false, ..ServerOptions::default() };
    let served = serve_with("null", options);
    let Address::Unix(path) = &served.address else { unreachable!() };
    let mut silent = UnixStream::connect(path).unwrap();
    let mut slow = UnixStream::connect(path).unwrap();
    slow.write_all(&client_flags()).unwrap();
    slow.write_all(b"IHAVE").unwrap();
    let mut patient = served.connect();
    for client in [&mut silent, &mut slow] {
        let mut said = Vec::new();
        client.read_to_end(&mut said).unwrap();
        assert_eq!(said.len(), 18, "a greeting, and then the end");
    }
    // Who has negotiated may be silent for as long as it likes.
    patient.write(0, &[1; 512]);
    assert_eq!(served.stop().statistics.handshakes_given_up, 2);
}

#[test]
fn a_thousand_connections_and_none_is_left() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    if !enough_descriptors(4_200) {
        println!("SKIPPED: this process may not have 4,200 descriptors (ulimit -n)");
        return;
    }
    let before = (threads(), files());
    let options = ServerOptions { connections_max: 1_200, realtime: false, ..ServerOptions::default() };
    let served = serve_with("constant-1ms", options);
    let mut clients: Vec<Client> = (0..1_000).map(|_| served.connect()).collect();
    // A third leaves with a request under way, a third in the middle of one, a third stays.
    for (index, client) in clients.iter_mut().enumerate() {
        match index % 3 {
            0 => drop(client.send(command::READ, index as u64 * 4096, 4096, &[])),
            1 => client.socket.write_all(&[0x25, 0x60, 0x95]).unwrap(),
            _ => client.write(index as u64 * 4096, &[index as u8; 4096]),
        }
    }
    let mut kept = Vec::new();
    for (index, client) in clients.into_iter().enumerate() {
        if index % 3 == 2 {
            kept.push((index, client));
        }
    }
    for (index, client) in &mut kept {
        assert_eq!(client.read(*index as u64 * 4096, 4096), [*index as u8; 4096]);
    }
    served.until(|served| served.statistics().engine.completions == 334 + 2 * 333);
    drop(kept);
    let outcome = served.stop();
    assert_eq!((outcome.statistics.connections, outcome.statistics.connections_refused), (1_000, 0));
    // Other tests of this process come and go.
    for _ in 0..1_000 {
        let now = (threads(), files());
        if now.0 < before.0 + 100 && now.1 < before.1 + 300 {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{before:?} threads and files became {:?}", (threads(), files()));
}

/// Raises the limit on descriptors as far as needed and permitted.
fn enough_descriptors(count: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: Some(limit.current.unwrap_or(u64::MAX).max(count)), ..limit };
    setrlimit(Resource::Nofile, wanted).is_ok()
}

#[test]
fn a_client_that_breaks_the_protocol_ends_alone() {
    let served = serve("constant-100us");
    let mut good = served.connect();
    for garbage in [&[0xFF; 64][..], &[0; 28], b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"] {
        let mut bad = served.connect();
        bad.socket.write_all(garbage).unwrap();
        let mut rest = Vec::new();
        // Closed, perhaps with our bytes unread.
        let _ = bad.socket.read_to_end(&mut rest);
        good.write(0, &[3; 512]);
    }
    served.until(|served| served.statistics().violations == 3);
    let outcome = served.stop();
    assert!(outcome.statistics.first_violation.is_some());
    assert_eq!(outcome.records.len(), 3);
}

#[test]
fn tcp_on_a_port_that_the_host_chose() {
    let mut served = serve("null");
    let address = served.server.listen_nbd(&"0".parse().unwrap()).unwrap();
    let Address::Tcp { host, port } = &address else { panic!("{address}") };
    assert_eq!(host, "127.0.0.1", "nobody else reaches it unless asked for");
    let mut client = Client::negotiate(std::net::TcpStream::connect((host.as_str(), *port)).unwrap());
    client.write(4096, &[9; 4096]);
    assert_eq!(served.connect().read(4096, 4096), [9; 4096]);
    let outcome = served.stop();
    let names: Vec<&str> = outcome.statistics.clock.transports.iter().map(|it| it.name.as_str()).collect();
    assert!(names[0].starts_with("unix:") && names[1] == address.to_string(), "{names:?}");
}

#[test]
fn every_operation_reaches_the_device() {
    let timing =
        RealOptions { arrival_skew: Tracked::Fixed(Nanos::ZERO), completion_lead: Tracked::Fixed(Nanos::ZERO) };
    let served = serve_with("constant-100us", ServerOptions { timing, realtime: false, ..ServerOptions::default() });
    let mut client = served.connect();
    client.write(0, &[5; 4096]);
    for (code, len_bytes) in [(command::FLUSH, 0), (command::TRIM, 4096), (command::WRITE_ZEROES, 4096)] {
        client.send(code, 0, len_bytes, &[]);
        client.receive(|_| 0);
    }
    assert_eq!(client.read(0, 4096), [0; 4096]);
    let outcome = served.stop();
    let ops: Vec<Op> = outcome.records.iter().map(|record| record.op).collect();
    assert_eq!(ops, [Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes, Op::Read]);
    // Without a lead nothing leaves early, and nothing but the device's time lies between.
    for record in &outcome.records {
        assert_eq!(record.service_time(), Nanos::from_micros(100));
        assert!(record.completed >= record.due);
    }
    assert!(outcome.store_bytes.is_some());
}
