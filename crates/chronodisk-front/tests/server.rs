//! A served device with real clients: several at once, slow ones, disconnecting ones, and ones that violate the
//! protocol. No assertion depends on speed.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::listen::Share;
use chronodisk_engine::{Engine, MonotonicClock, RealOptions, Tracked, verify};
use chronodisk_front::nbd::mock::{RequestBytes, client_flags, option_request};
use chronodisk_front::nbd::wire::{command, option};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Address, Server, ServerOptions, ServerOutcome};
use chronodisk_sim::{Nanos, Op};
use chronodisk_store::{RamStore, Store, StoreError, forward_to_store};

const CAPACITY_BYTES: u64 = 64 << 20;

fn model(profile: &str) -> Box<dyn DeviceModel> {
    let build = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), seed: 1, ..BuildOptions::default() };
    Profile::find(profile).unwrap().build(&build).unwrap()
}

struct Served {
    server: Server,
    address: Address,
    profile: &'static str,
    _folder: tempfile::TempDir,
}

fn serve_with(profile: &'static str, options: ServerOptions) -> Served {
    serve_store(profile, options, Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES)))
}

fn serve_store(profile: &'static str, options: ServerOptions, store: Box<dyn Store>) -> Served {
    let clock = MonotonicClock::new();
    let mut engine = Engine::new();
    let device = engine.attach(model(profile));
    let offer = ServerOffer::new(vec![Export::new("", CAPACITY_BYTES)], Tls::Off).unwrap();
    let mut server = Server::new(engine, device, store, offer, clock, options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let address = server.listen_nbd(&Address::Unix(folder.path().join("socket"))).unwrap();
    Served { server, address, profile, _folder: folder }
}

fn serve(profile: &'static str) -> Served {
    // Real-time priorities and CPUs kept awake would disturb the other tests, and would not change the results.
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

    /// Waits until the server's threads make a condition true.
    fn until(&self, holds: impl Fn(&Served) -> bool) {
        for _ in 0..2_000 {
            if holds(self) {
                return;
            }
            thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("it does not come about: {:?}", self.statistics());
    }

    /// Stops the server, and checks its invariants.
    fn stop(self) -> ServerOutcome {
        let outcome = self.server.stop();
        let verification = verify(&mut [model(self.profile)], &outcome.records, Some(outcome.end)).unwrap();
        assert!(verification.identical(), "{:?}", verification.first_difference);
        let tolerated = outcome.statistics.clock.early_max;
        assert!(outcome.records.iter().all(|record| !record.is_completed() || record.earliness() <= tolerated));
        outcome
    }
}

/// A minimal NBD client, with simple replies.
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

    /// Receives a reply and returns its cookie. For a read, `len` bytes of data follow.
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
                    // All requests are sent at once; replies may come in any order.
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
    // All replies are waiting when the client reads.
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
    // Either client's request may have arrived first.
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
    let served = serve_with(
        "null",
        ServerOptions { connections: Share { most: 2, per_peer: 2 }, realtime: false, ..ServerOptions::default() },
    );
    let (mut first, mut second) = (served.connect(), served.connect());
    // A client that has requests keeps its place.
    first.write(0, &[1; 512]);
    second.write(0, &[1; 512]);
    let Address::Unix(path) = &served.address else { unreachable!() };
    for _ in 0..20 {
        let mut refused = UnixStream::connect(path).unwrap();
        assert_eq!(refused.read(&mut [0]).unwrap(), 0);
    }
    first.write(0, &[2; 512]);
    assert_eq!(second.read(0, 512), [2; 512]);
    drop(first);
    served.until(|served| served.statistics().engine.completions == 4);
    // The place is free again as soon as the thread has ended.
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
    // A client may be silent for any time after the negotiation.
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
    let options = ServerOptions {
        connections: Share { most: 1_200, per_peer: 1_200 },
        realtime: false,
        ..ServerOptions::default()
    };
    let served = serve_with("constant-1ms", options);
    let mut clients: Vec<Client> = (0..1_000).map(|_| served.connect()).collect();
    // A third of the clients leave with a request outstanding, a third in the middle of a request, and a third stay.
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
    // Other tests in this process create and end threads meanwhile.
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

/// A host's disk that is slow for flushes and for reads above its first half.
struct Slow {
    bytes: Arc<Mutex<RamStore>>,
    /// The test holds this lock while the disk is to be busy.
    busy: Arc<Mutex<()>>,
    patient: bool,
}

impl Slow {
    fn wait(&self, offset_bytes: u64) -> Result<(), StoreError> {
        if offset_bytes < CAPACITY_BYTES / 2 {
            return Ok(());
        }
        assert!(self.patient, "who serves does not wait");
        drop(self.busy.lock().unwrap());
        Ok(())
    }
}

impl Store for Slow {
    fn capacity_bytes(&self) -> u64 {
        CAPACITY_BYTES
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.wait(offset_bytes)?;
        self.bytes.lock().unwrap().read(offset_bytes, bytes)
    }

    fn try_read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        match offset_bytes < CAPACITY_BYTES / 2 {
            true => self.read(offset_bytes, bytes),
            false => Err(StoreError::WouldWait),
        }
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.wait(offset_bytes)?;
        self.bytes.lock().unwrap().write(offset_bytes, bytes)
    }

    fn try_write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match offset_bytes < CAPACITY_BYTES / 2 {
            true => self.write(offset_bytes, bytes),
            false => Err(StoreError::WouldWait),
        }
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.bytes.lock().unwrap().write_zeroes(offset_bytes, len_bytes)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        // The end of the server may block, too.
        drop(self.busy.lock().unwrap());
        Ok(())
    }

    fn flush_waits(&self) -> bool {
        true
    }

    fn second_way(&self) -> Result<Option<Box<dyn Store>>, StoreError> {
        Ok(Some(Box::new(Slow { bytes: self.bytes.clone(), busy: self.busy.clone(), patient: true })))
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn budget_bytes(&self) -> Option<u64> {
        None
    }
}

#[test]
fn what_waits_for_the_hosts_disk_holds_up_nothing_else() {
    for profile in ["null", "constant-1ms"] {
        let busy = Arc::new(Mutex::new(()));
        let bytes = Arc::new(Mutex::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES)));
        let store = Slow { bytes, busy: busy.clone(), patient: false };
        let options = ServerOptions { realtime: false, ..ServerOptions::default() };
        let served = serve_store(profile, options, Box::new(store));
        let mut client = served.connect();
        let mut other = served.connect();
        let far = CAPACITY_BYTES / 2;
        let disk = busy.lock().unwrap();
        let mut waiting = vec![client.send(command::WRITE, far, 8192, &[7; 8192])];
        waiting.push(client.send(command::READ, far + (1 << 20), 65_536, &[]));
        waiting.push(client.send(command::FLUSH, 0, 0, &[]));
        // All other requests make progress, on this connection and on others.
        for index in 0..20 {
            let near = client.send(command::WRITE, index * 4096, 4096, &[index as u8; 4096]);
            assert_eq!(client.receive(|_| 0).0, near);
            assert_eq!(other.read(index * 4096, 4096), [index as u8; 4096]);
        }
        drop(disk);
        let (read, mut seen) = (waiting[1], Vec::new());
        for _ in 0..3 {
            seen.push(client.receive(|cookie| if cookie == read { 65_536 } else { 0 }).0);
        }
        seen.sort_unstable();
        assert_eq!(seen, waiting);
        assert_eq!(client.read(far, 8192), [7; 8192]);
        // A disconnection while the disk is busy leaves nothing behind.
        let disk = busy.lock().unwrap();
        for index in 0..200 {
            client.send(command::READ, far + index * 4096, 4096, &[]);
        }
        served.until(|served| served.statistics().engine.arrivals == 3 + 40 + 1 + 200);
        drop(client);
        assert_eq!(other.read(0, 4096), [0; 4096]);
        drop(disk);
        assert_eq!(other.read(far, 4096), [7; 4096]);
        let outcome = served.stop();
        assert_eq!(outcome.statistics.store_errors, 0);
        let slow = outcome.records.iter().filter(|record| record.lba.offset_bytes() >= far || record.op == Op::Flush);
        assert!(slow.clone().count() > 200 && slow.clone().any(|record| record.store_time > Nanos::ZERO));
    }
}

/// Helpers may complete a client's last request while its thread still submits the others.
#[test]
fn a_client_that_is_alone_never_waits_for_completions_that_are_due() {
    const ROUNDS: usize = 100;
    for batch in [1, 4, 64] {
        let bytes = Arc::new(Mutex::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES)));
        let store = Slow { bytes, busy: Arc::default(), patient: false };
        let options = ServerOptions { realtime: false, ..ServerOptions::default() };
        let served = serve_store("null", options, Box::new(store));
        let mut client = served.connect();
        let far = CAPACITY_BYTES / 2;
        let mut forgotten = 0;
        for _ in 0..ROUNDS {
            let begun = std::time::Instant::now();
            for index in 0..batch {
                client.send(command::READ, far + index * 4096, 4096, &[]);
            }
            (0..batch).for_each(|_| drop(client.receive(|_| 4096)));
            // The server's thread polls every 100 ms by itself. On a busy machine, a few rounds may take as long.
            forgotten += usize::from(begun.elapsed() > std::time::Duration::from_millis(70));
        }
        assert!(forgotten <= ROUNDS / 10, "{forgotten} of {ROUNDS} rounds of {batch} requests");
        served.stop();
    }
}

/// A real device whose every operation takes two milliseconds.
struct TwoMillis(RamStore);

impl Store for TwoMillis {
    fn capacity_bytes(&self) -> u64 {
        CAPACITY_BYTES
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        thread::sleep(std::time::Duration::from_millis(2));
        if offset_bytes == 0 {
            return Err(StoreError::OutOfRange { offset_bytes, len_bytes: 0, capacity_bytes: 0 });
        }
        bytes.fill(5);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        thread::sleep(std::time::Duration::from_millis(2));
        self.0.write(offset_bytes, bytes)
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.0.write_zeroes(offset_bytes, len_bytes)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn second_way(&self) -> Result<Option<Box<dyn Store>>, StoreError> {
        Ok(Some(Box::new(TwoMillis(RamStore::new(CAPACITY_BYTES, CAPACITY_BYTES)))))
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn budget_bytes(&self) -> Option<u64> {
        None
    }
}

#[test]
fn a_real_device_answers_by_itself_and_the_model_sees_the_same_arrivals() {
    let offer = ServerOffer::new(vec![Export::new("", CAPACITY_BYTES)], Tls::Off).unwrap();
    let store = Box::new(TwoMillis(RamStore::new(CAPACITY_BYTES, CAPACITY_BYTES)));
    let options = ServerOptions { realtime: false, helpers_max: 4, ..ServerOptions::default() };
    // A model that is much slower than the device delays no client.
    let mut server = Server::shadow(model("constant-10ms"), store, offer, MonotonicClock::new(), options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    server.listen_nbd(&Address::Unix(path.clone())).unwrap();
    let mut client = Client::negotiate(UnixStream::connect(&path).unwrap());
    for index in 1..20 {
        assert_eq!(client.read(index * 4096, 4096), [5; 4096]);
    }
    for index in 1..20 {
        client.send(command::READ, index * 4096, 4096, &[]);
    }
    for _ in 1..20 {
        client.receive(|_| 4096);
    }
    client.write(8192, &[1; 4096]);
    client.send(command::FLUSH, 0, 0, &[]);
    client.receive(|_| 0);
    // The device fails at this block, and so does the request.
    client.send(command::READ, 0, 4096, &[]);
    let mut head = [0; 16];
    client.socket.read_exact(&mut head).unwrap();
    assert_ne!(head[4..8], [0; 4]);
    let statistics = server.statistics();
    assert_eq!((statistics.engine.arrivals, statistics.engine.completions), (41, 41));
    let outcome = server.stop();
    assert_eq!((outcome.records.len(), outcome.statistics.store_errors), (41, 1));
    for record in &outcome.records {
        assert_eq!(record.service_time(), Nanos::from_millis(10), "the model's");
        assert!(record.op == Op::Flush || record.completed - record.arrival >= Nanos::from_millis(2));
    }
    // Never more requests at a time than the limit.
    for record in &outcome.records {
        let at_once = |other: &&chronodisk_sim::RequestRecord| {
            other.arrival <= record.arrival && other.completed > record.arrival
        };
        assert!(outcome.records.iter().filter(at_once).count() <= 4);
    }
    let verification = verify(&mut [model("constant-10ms")], &outcome.records, Some(outcome.end)).unwrap();
    assert!(verification.identical(), "{:?}", verification.first_difference);
}

#[test]
fn a_client_that_breaks_the_protocol_ends_alone() {
    let served = serve("constant-100us");
    let mut good = served.connect();
    for garbage in [&[0xFF; 64][..], &[0; 28], b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"] {
        let mut bad = served.connect();
        bad.socket.write_all(garbage).unwrap();
        let mut rest = Vec::new();
        // The connection is closed, perhaps with unread bytes.
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
    // Without a lead, no completion is early, and the service time is exactly the device's.
    for record in &outcome.records {
        assert_eq!(record.service_time(), Nanos::from_micros(100));
        assert!(record.completed >= record.due);
    }
    assert!(outcome.store_bytes.is_some());
}

/// A store that records the size of each copy, and blocks copies at a given block.
struct Watched {
    bytes: RamStore,
    longest_bytes: Arc<AtomicUsize>,
    /// The test holds this lock while copies from the last block are to block.
    gate: Arc<Mutex<()>>,
}

impl Watched {
    fn copy(&self, offset_bytes: u64, len_bytes: usize) {
        self.longest_bytes.fetch_max(len_bytes, Ordering::Relaxed);
        if offset_bytes == CAPACITY_BYTES - 4096 {
            drop(self.gate.lock().unwrap());
        }
    }
}

impl Store for Watched {
    forward_to_store!(self => self.bytes; capacity_bytes, write_zeroes, flush, allocated_bytes, budget_bytes);

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.copy(offset_bytes, bytes.len());
        self.bytes.read(offset_bytes, bytes)
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.copy(offset_bytes, bytes.len());
        self.bytes.write(offset_bytes, bytes)
    }
}

fn serve_watched(profile: &'static str) -> (Served, Arc<AtomicUsize>, Arc<Mutex<()>>) {
    let bytes = RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES);
    let store = Watched { bytes, longest_bytes: Arc::default(), gate: Arc::default() };
    let (longest_bytes, gate) = (store.longest_bytes.clone(), store.gate.clone());
    let options = ServerOptions { realtime: false, ..ServerOptions::default() };
    (serve_store(profile, options, Box::new(store)), longest_bytes, gate)
}

#[test]
fn nobody_waits_for_the_store_until_a_long_request_of_another_is_copied() {
    let (served, longest_bytes, _) = serve_watched("constant-1ms");
    let (mut client, mut other) = (served.connect(), served.connect());
    let data: Vec<u8> = (0..5 << 20).map(|index: u32| (index / 4096 + index) as u8).collect();
    client.write(1 << 20, &data);
    assert_eq!(other.read(1 << 20, data.len() as u32), data);
    // Many requests that arrive together are treated like one large request.
    let sent: Vec<u64> =
        (0..40).map(|index| client.send(command::READ, (1 << 20) + index * 65_536, 65_536, &[])).collect();
    let mut received: Vec<_> = sent.iter().map(|_| client.receive(|_| 65_536)).collect();
    received.sort_unstable();
    let expected = sent.iter().zip(data.chunks(65_536)).map(|(cookie, piece)| (*cookie, piece.to_vec()));
    assert!(received.into_iter().eq(expected));
    assert!(longest_bytes.load(Ordering::Relaxed) <= 256 << 10);
    served.stop();
}

#[test]
fn completions_of_others_leave_while_a_client_is_at_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.toml");
    // The service time is so long that all requests below arrive before the first completion.
    let text = "name = \"slow\"\nkind = \"constant\"\ndescription = \"slow\"\nsource = \"a definition\"\n\
                validation = \"by-definition\"\ncapacity = \"1 GiB\"\ntime = \"3 s\"\n";
    std::fs::write(&path, text).unwrap();
    let (served, _, gate) = serve_watched(path.to_str().unwrap().to_owned().leak());
    let (mut copying, mut other) = (served.connect(), served.connect());
    let arrived = |count: u64| served.until(|served| served.statistics().engine.arrivals == count);
    // The client with the first outstanding request waits for all completions.
    let first = other.send(command::READ, 0, 512, &[]);
    arrived(1);
    let before = copying.send(command::READ, 0, 512, &[]);
    arrived(2);
    let second = other.send(command::READ, 4096, 512, &[]);
    arrived(3);
    let closed = gate.lock().unwrap();
    let stopped = copying.send(command::READ, CAPACITY_BYTES - 4096, 4096, &[]);
    assert_eq!(other.receive(|_| 512).0, first);
    assert_eq!(other.receive(|_| 512).0, second);
    assert_eq!(served.statistics().engine.arrivals, 3, "it is not through with it");
    drop(closed);
    assert_eq!(copying.receive(|_| 512).0, before);
    assert_eq!(copying.receive(|_| 4096).0, stopped);
    served.stop();
}
