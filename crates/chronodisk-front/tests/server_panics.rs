//! Panics in a server's threads: each ends one connection and is counted and named. No other client waits for ever.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use chronodisk_device::{BuildOptions, DeviceInfo, DeviceModel, Profile};
use chronodisk_engine::{Engine, MonotonicClock};
use chronodisk_front::nbd::mock::{RequestBytes, client_flags, option_request};
use chronodisk_front::nbd::wire::{command, option};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Address, Recorder, Server, ServerOptions};
use chronodisk_sim::{Completion, Lba, Nanos, Request, RequestRecord};
use chronodisk_store::{RamStore, Store, StoreError, forward_to_store};

const CAPACITY_BYTES: u64 = 64 << 20;
/// A block at which each component's injected defect panics.
const BROKEN_BYTES: u64 = CAPACITY_BYTES - 4096;

/// A device whose every operation takes 300 ms, so that all requests of a test are outstanding at once.
fn slow_model() -> Box<dyn DeviceModel> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.toml");
    let text = "name = \"slow\"\nkind = \"constant\"\ndescription = \"slow\"\nsource = \"a definition\"\n\
                validation = \"by-definition\"\ncapacity = \"1 GiB\"\ntime = \"300 ms\"\n";
    std::fs::write(&path, text).unwrap();
    let build = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), seed: 1, ..BuildOptions::default() };
    Profile::find(path.to_str().unwrap()).unwrap().build(&build).unwrap()
}

/// A store that panics at one block.
struct BrokenStore {
    bytes: RamStore,
    defect: Defect,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    /// The store has no defect.
    Elsewhere,
    /// The connection's thread panics in a read.
    Here,
    /// A helper panics in a read, because all reads wait for a disk.
    InHelper,
}

impl Store for BrokenStore {
    forward_to_store!(self => self.bytes; capacity_bytes, write, write_zeroes, flush, allocated_bytes, budget_bytes);

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        assert!(offset_bytes != BROKEN_BYTES || self.defect == Defect::Elsewhere, "the store's defect");
        self.bytes.read(offset_bytes, bytes)
    }

    fn try_read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        if self.defect == Defect::InHelper { Err(StoreError::WouldWait) } else { self.read(offset_bytes, bytes) }
    }
}

/// A model that panics at one block.
struct BrokenModel(Box<dyn DeviceModel>);

impl DeviceModel for BrokenModel {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn now(&self) -> Nanos {
        self.0.now()
    }

    fn outstanding(&self) -> u32 {
        self.0.outstanding()
    }

    fn submit(&mut self, request: Request) {
        assert_ne!(request.lba, Lba(BROKEN_BYTES / 512), "the model's defect");
        self.0.submit(request);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.0.next_event()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        self.0.completion_bound()
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        self.0.step(limit, completed);
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(BrokenModel(self.0.fork()))
    }
}

/// A recorder that panics.
struct BrokenRecorder;

impl Recorder for BrokenRecorder {
    fn record(&mut self, records: &[RequestRecord]) {
        assert!(records.is_empty(), "the log's defect");
    }
}

struct Served {
    server: Server,
    address: Address,
    _folder: tempfile::TempDir,
}

fn serve(model: Box<dyn DeviceModel>, defect: Defect) -> Served {
    let mut engine = Engine::new();
    let device = engine.attach(model);
    let offer = ServerOffer::new(vec![Export::new("", CAPACITY_BYTES)], Tls::Off).unwrap();
    let store = Box::new(BrokenStore { bytes: RamStore::new(CAPACITY_BYTES, CAPACITY_BYTES), defect });
    let options = ServerOptions { realtime: false, ..ServerOptions::default() };
    let mut server = Server::new(engine, device, store, offer, MonotonicClock::new(), options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let address = server.listen_nbd(&Address::Unix(folder.path().join("socket"))).unwrap();
    Served { server, address, _folder: folder }
}

struct Client(UnixStream);

impl Client {
    fn connect(served: &Served) -> Self {
        let Address::Unix(path) = &served.address else { unreachable!() };
        let mut socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.read_exact(&mut [0; 18]).unwrap();
        socket.write_all(&client_flags()).unwrap();
        socket.write_all(&option_request(option::EXPORT_NAME, b"")).unwrap();
        socket.read_exact(&mut [0; 10]).unwrap();
        Client(socket)
    }

    fn ask(&mut self, offset_bytes: u64) {
        let request = RequestBytes {
            command: command::READ,
            cookie: 1,
            offset_bytes,
            len_bytes: 4096,
            ..RequestBytes::default()
        };
        self.0.write_all(&request.encode()).unwrap();
    }

    fn is_answered(&mut self) {
        let mut reply = [0; 16 + 4096];
        self.0.read_exact(&mut reply).expect("a client with a good request is answered");
        assert_eq!(reply[4..8], [0; 4], "no error");
    }

    /// Reads until the server has closed the connection.
    fn is_closed(&mut self) {
        let ended = self.0.read_to_end(&mut Vec::new());
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    }
}

fn until_arrived(served: &Served, count: u64) {
    for _ in 0..2_000 {
        if served.server.statistics().engine.arrivals == count {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the requests do not arrive: {:?}", served.server.statistics());
}

/// One client hits the defect while its thread waits for the completions of the others.
fn one_ends_and_the_others_go_on(served: Served, place: &str) {
    let (mut bad, mut good) = (Client::connect(&served), Client::connect(&served));
    bad.ask(0);
    until_arrived(&served, 1);
    good.ask(4096);
    until_arrived(&served, 2);
    bad.ask(BROKEN_BYTES);
    bad.is_closed();
    good.is_answered();
    good.ask(8192);
    good.is_answered();
    Client::connect(&served).ask(0);
    let statistics = served.server.stop().statistics;
    assert_eq!(statistics.panics, 1);
    let first = statistics.first_panic.unwrap();
    assert!(first.contains(place), "{first}");
}

#[test]
fn a_panic_of_the_store_ends_the_connection_that_met_it() {
    one_ends_and_the_others_go_on(serve(slow_model(), Defect::Here), "NBD connection 1: the store's defect");
}

#[test]
fn a_panic_in_a_helper_ends_the_connection_that_it_helped() {
    one_ends_and_the_others_go_on(
        serve(slow_model(), Defect::InHelper),
        "a helper of an NBD connection: the store's defect",
    );
}

#[test]
fn a_panic_of_the_model_ends_the_connection_whose_request_it_was() {
    one_ends_and_the_others_go_on(serve(Box::new(BrokenModel(slow_model())), Defect::Elsewhere), "the model's defect");
}

#[test]
fn more_panics_than_helpers_leave_helpers() {
    let served = serve(slow_model(), Defect::InHelper);
    for _ in 0..20 {
        let mut bad = Client::connect(&served);
        bad.ask(BROKEN_BYTES);
        bad.is_closed();
    }
    let mut good = Client::connect(&served);
    good.ask(0);
    good.is_answered();
    assert_eq!(served.server.stop().statistics.panics, 20);
}

#[test]
fn a_panic_of_the_log_is_named_and_clients_go_on() {
    let mut served = serve(slow_model(), Defect::Here);
    served.server.record_to(Box::new(BrokenRecorder)).unwrap();
    let mut client = Client::connect(&served);
    for _ in 0..3 {
        client.ask(0);
        client.is_answered();
    }
    let statistics = served.server.stop().statistics;
    assert_eq!(statistics.panics, 1);
    assert!(statistics.first_panic.unwrap().starts_with("the log: "));
}
