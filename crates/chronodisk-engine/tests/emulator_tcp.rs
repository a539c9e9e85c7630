//! The emulator server over TCP, through a proxy that delays data, cuts connections and drops data.

mod common;
#[path = "common/elsewhere.rs"]
mod elsewhere;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use chronodisk_engine::emulator::{EmulatorServer, ServeOptions, ServeStatistics};
use chronodisk_engine::listen::Share;
use chronodisk_engine::protocol::{Answer, Command, Decoder, ErrorCode, Reset, SessionId, VERSION, Welcome};
use chronodisk_engine::remote::{self, Credentials, Patience, RemoteModel};
use chronodisk_engine::sim::{Issue, closed_loop, closed_loop_streaming_at};
use chronodisk_engine::{FaultKind, ModelFault, ModelPort};
use chronodisk_sim::{Nanos, RandomStream, RequestRecord};
use chronodisk_store::Store;
use common::{Capricious, request};
use elsewhere::MakeCapricious;

/// A server in a thread of its own.
struct Served {
    address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<ServeStatistics>>,
}

impl Served {
    fn at(address: &str) -> Self {
        let options = ServeOptions { sessions: Share { most: 2, per_peer: 2 }, ..ServeOptions::default() };
        let server = EmulatorServer::listen(address, Arc::new(MakeCapricious), options).unwrap();
        let address = server.address().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = Some(thread::spawn(move || server.serve(&told).unwrap()));
        Served { address, stop, thread }
    }

    fn new() -> Self {
        Served::at("127.0.0.1:0")
    }

    fn stop(mut self) -> ServeStatistics {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is stopped once").join().unwrap()
    }
}

/// Faults that the proxy injects.
#[derive(Default)]
struct Weather {
    /// Delay of each piece of data.
    delay: Duration,
    /// Bytes in one direction after which a connection is cut; zero for never.
    cut_after_bytes: AtomicUsize,
    /// Whether data are dropped while the connection stays.
    swallow: AtomicBool,
    connections: AtomicUsize,
}

/// A proxy on a port of its own.
struct Network {
    address: String,
    weather: Arc<Weather>,
    /// The server's address, which a test may change.
    target: Arc<Mutex<String>>,
}

impl Network {
    fn to(server: &Served, weather: Weather) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let network = Network {
            address: listener.local_addr().unwrap().to_string(),
            weather: Arc::new(weather),
            target: Arc::new(Mutex::new(server.address.clone())),
        };
        let (weather, target) = (network.weather.clone(), network.target.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let target = target.lock().unwrap().clone();
                // Without a server, the proxy refuses connections, too.
                let Ok(server) = TcpStream::connect(target) else { continue };
                weather.connections.fetch_add(1, Ordering::Relaxed);
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let weather = weather.clone();
                    thread::spawn(move || carry(from, to, &weather));
                }
            }
        });
        network
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, weather: &Weather) {
    let mut carried = 0;
    let mut bytes = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        thread::sleep(weather.delay);
        let cut = weather.cut_after_bytes.load(Ordering::Relaxed);
        let end = if cut > 0 { len.min(cut.saturating_sub(carried)) } else { len };
        carried += end;
        let swallowed = weather.swallow.load(Ordering::Relaxed);
        if !swallowed && to.write_all(&bytes[..end]).is_err() || end < len {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn patience(answer_ms: u64, reconnect_ms: u64) -> Patience {
    Patience { answer: Duration::from_millis(answer_ms), reconnect: Duration::from_millis(reconnect_ms) }
}

type Told = Arc<Mutex<Vec<String>>>;

fn open(address: &str, patience: Patience) -> Result<(RemoteModel, Told), ModelFault> {
    let told = Told::default();
    let tell = told.clone();
    let reset = Reset { seed: 4, speculate: true, ..Reset::default() };
    let tell = Box::new(move |text: &str| tell.lock().unwrap().push(text.to_owned()));
    remote::open_server(address, Credentials::default(), reset, patience, tell).map(|model| (model, told))
}

fn issues(count: u64) -> impl Iterator<Item = Issue> {
    let mut random = RandomStream::new(1, "test", "issues");
    (0..count).map(move |_| {
        let think = Nanos::from_nanos(random.below(3) * 250);
        Issue { request: request(0, random.below(1 << 20)), think }
    })
}

fn run(model: RemoteModel, count: u64) -> Result<(Vec<RequestRecord>, RemoteModel), String> {
    let mut port = ModelPort::from(model);
    let mut records = Vec::new();
    closed_loop_streaming_at(&mut port, issues(count), 4, |record| {
        records.push(*record);
        std::ops::ControlFlow::Continue(())
    })
    .map_err(|error| error.to_string())?;
    let ModelPort::Remote(mut model) = port else { unreachable!("it was made of a remote one") };
    model.fetch_statistics().map_err(|error| error.to_string())?;
    Ok((records, *model))
}

fn here(count: u64) -> Vec<RequestRecord> {
    closed_loop(&mut Capricious::new(4), issues(count), 4).unwrap()
}

#[test]
fn over_tcp_it_is_the_same_model() {
    let server = Served::new();
    let (model, told) = open(&server.address, Patience::default()).unwrap();
    let (records, model) = run(model, 500).unwrap();
    assert!(records == here(500));
    let rollbacks = model.statistics().0.rollbacks;
    assert!(rollbacks <= 500);
    assert_eq!(told.lock().unwrap().as_slice(), [""; 0]);
    drop(model);
    let served = server.stop();
    assert_eq!((served.sessions, served.requests, served.rollbacks), (1, 500, rollbacks));
}

#[test]
fn a_slow_network_that_breaks_again_and_again_changes_nothing() {
    let server = Served::new();
    let weather = Weather { delay: Duration::from_millis(1), ..Weather::default() };
    weather.cut_after_bytes.store(1500, Ordering::Relaxed);
    let network = Network::to(&server, weather);
    let (model, told) = open(&network.address, patience(5_000, 10_000)).unwrap();
    let (records, model) = run(model, 150).unwrap();
    assert!(records == here(150));
    let (statistics, link) = model.statistics();
    assert_eq!(statistics.submitted, 150);
    assert!(link.reconnections >= 5, "{link:?}");
    let told = told.lock().unwrap();
    assert!(told.iter().any(|text| text.contains("the guest stands still")), "{told:?}");
    assert!(told.iter().any(|text| text.contains("connected again")), "{told:?}");
}

#[test]
fn bytes_survive_a_broken_connection() {
    let server = Served::new();
    let network = Network::to(&server, Weather::default());
    let (model, _told) = open(&network.address, patience(5_000, 10_000)).unwrap();
    let mut store = model.store().unwrap();
    let bytes: Vec<u8> = (0..3 << 20).map(|index: u32| (index % 251) as u8).collect();
    store.write(4096, &bytes).unwrap();
    // The next connections are cut in the middle of the answer, until the faults end.
    network.weather.cut_after_bytes.store(200_000, Ordering::Relaxed);
    let fine = network.weather.clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        fine.cut_after_bytes.store(0, Ordering::Relaxed);
    });
    let mut back = vec![0; bytes.len()];
    store.read(4096, &mut back).unwrap();
    assert!(back == bytes, "the bytes came back changed");
    assert!(network.weather.connections.load(Ordering::Relaxed) > 1);
}

#[test]
fn a_network_that_swallows_everything_ends_the_run_in_time() {
    let server = Served::new();
    let network = Network::to(&server, Weather::default());
    let (model, _told) = open(&network.address, patience(200, 600)).unwrap();
    network.weather.swallow.store(true, Ordering::Relaxed);
    let error = run(model, 10).map(|_| ()).unwrap_err();
    assert!(error.contains("not reached again within 600ms"), "{error}");
}

#[test]
fn a_server_that_comes_back_with_nothing_ends_the_run() {
    let server = Served::new();
    let network = Network::to(&server, Weather::default());
    let (model, told) = open(&network.address, patience(5_000, 10_000)).unwrap();
    let (_, mut model) = run(model, 10).unwrap();
    server.stop();
    let other = Served::new();
    let target = network.target.clone();
    let address = other.address.clone();
    thread::spawn(move || {
        // For a while, no server runs.
        thread::sleep(Duration::from_millis(300));
        *target.lock().unwrap() = address;
    });
    let fault = model.fetch_statistics().unwrap_err();
    assert_eq!(fault.kind, FaultKind::Restarted, "{fault}");
    assert!(fault.to_string().contains("has lost this run's device"), "{fault}");
    assert_eq!(told.lock().unwrap().len(), 1, "the user is told once that we wait");
    // The model stays lost, and reports the same fault.
    assert_eq!(model.fetch_statistics().unwrap_err(), fault);
}

#[test]
fn nobody_there_is_told_at_once() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fault = open(&port.to_string(), Patience::default()).map(|_| ()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unreachable, "{fault}");
}

#[test]
fn too_many_sessions_are_refused() {
    let server = Served::new();
    let one = open(&server.address, Patience::default()).unwrap();
    let _two = open(&server.address, Patience::default()).unwrap();
    let fault = open(&server.address, Patience::default()).map(|_| ()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    assert!(fault.to_string().contains("the most that it may"), "{fault}");
    drop(one);
    // The end of a session reaches the server after a moment.
    let reached = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(20));
        open(&server.address, Patience::default()).is_ok()
    });
    assert!(reached, "a session that was ended makes room");
}

/// Accepts one connection and answers its greeting.
fn greet_with(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut bytes = Vec::new();
        answer.encode(0, &mut bytes);
        stream.write_all(&bytes).unwrap();
        let _ = stream.read(&mut [0; 100]);
    });
    address
}

#[test]
fn another_version_is_named() {
    let later = Welcome { version: VERSION + 1, session: SessionId([1; 16]), executed: 0 };
    let refusal = Answer::error(ErrorCode::Version, "it speaks version 9 of the protocol, and the client version 1");
    for (answer, said) in [(Answer::Welcome(later), "it speaks version 2"), (refusal, "it speaks version 9")] {
        let fault = open(&greet_with(answer), patience(5_000, 1_000)).map(|_| ()).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Version, "{fault}");
        assert!(fault.to_string().contains(said), "{fault}");
    }
}

#[test]
fn a_client_of_another_version_or_of_no_protocol_is_turned_away() {
    let server = Served::new();
    let hello = Command::Hello { version: VERSION + 1, session: SessionId::NEW, nonce: None };
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let mut bytes = Vec::new();
    hello.encode(0, 0, &mut bytes);
    stream.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let mut decoder = Decoder::default();
    decoder.feed(&answer);
    let answer = Answer::decode(&decoder.next_frame().unwrap().unwrap(), &hello).unwrap();
    assert!(matches!(answer, Answer::Error { code: ErrorCode::Version, .. }), "{answer:?}");

    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: chronodisk\r\n\r\n").unwrap();
    // The client is cut off soon, without an answer or with a refusal.
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    // Another client is still served.
    let (model, _told) = open(&server.address, Patience::default()).unwrap();
    assert!(run(model, 10).unwrap().0 == here(10));
}
