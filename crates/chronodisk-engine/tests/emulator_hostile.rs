//! An emulator server under attack by clients: each attack is answered with an error in time, and other clients are
//! served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use chronodisk_device::{BuildOptions, DeviceInfo, DeviceModel, LATEST_ARRIVAL, Profile};
use chronodisk_engine::emulator::{
    DeviceMaker, Devices, EmulatorServer, MadeDevice, MemoryPool, ServeOptions, ServeStatistics, StorePlace,
};
use chronodisk_engine::listen::Share;
use chronodisk_engine::protocol::{
    Answer, Clear, Command, Decoder, ErrorCode, RANGE_BYTES_MAX, REQUEST_BYTES_MAX, Reset, SessionId, VERSION,
};
use chronodisk_engine::remote::{self, Credentials, Patience, RemoteModel};
use chronodisk_sim::{Completion, Nanos, Op, Request};
use chronodisk_store::RamStore;

/// Deadline for the answer to an attack.
const IN_TIME: Duration = Duration::from_secs(2);

/// A server in a thread of its own.
struct Served {
    address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<ServeStatistics>>,
}

impl Served {
    fn new(maker: impl DeviceMaker + 'static, options: ServeOptions) -> Self {
        let server = EmulatorServer::listen("127.0.0.1:0", Arc::new(maker), options).unwrap();
        let address = server.address().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = Some(thread::spawn(move || server.serve(&told).unwrap()));
        Served { address, stop, thread }
    }

    fn stop(mut self) -> ServeStatistics {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is stopped once").join().unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn client(&self) -> Client {
        let mut client = Client { stream: self.connect(), decoder: Decoder::default(), sequence: 0 };
        let hello = Command::Hello { version: VERSION, session: SessionId::NEW, nonce: None };
        hello.encode(0, 0, &mut Vec::new());
        client.say_as(0, &hello);
        client
    }

    /// A client with a device.
    fn guest(&self) -> Client {
        let mut client = self.client();
        let answer = client.say(Command::Reset(Reset { speculate: true, ..Reset::default() }));
        assert!(matches!(answer, Some(Answer::Info(_))), "{answer:?}");
        client
    }

    fn honest(&self) -> Result<RemoteModel, String> {
        let reset = Reset { speculate: true, ..Reset::default() };
        remote::open_server(&self.address, Credentials::default(), reset, Patience::default(), Box::new(|_| {}))
            .map_err(|fault| fault.to_string())
    }
}

/// A client that sends any bytes.
struct Client {
    stream: TcpStream,
    decoder: Decoder,
    sequence: u64,
}

impl Client {
    fn say(&mut self, command: Command) -> Option<Answer> {
        self.sequence += 1;
        self.say_as(self.sequence, &command)
    }

    /// The answer; `None` if the server has cut the connection.
    fn say_as(&mut self, sequence: u64, command: &Command) -> Option<Answer> {
        let mut bytes = Vec::new();
        command.encode(0, sequence, &mut bytes);
        let _ = self.stream.write_all(&bytes);
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(Answer::decode(&frame, command).unwrap());
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(len @ 1..) => self.decoder.feed(&bytes[..len]),
                _ => return None,
            }
        }
    }

    fn refusal(&mut self, command: Command) -> (ErrorCode, String) {
        self.refusal_within(IN_TIME, command)
    }

    fn refusal_within(&mut self, most: Duration, command: Command) -> (ErrorCode, String) {
        let begun = Instant::now();
        let answer = self.say(command);
        assert!(begun.elapsed() < most, "{:?}", begun.elapsed());
        match answer {
            Some(Answer::Error { code, reason }) => (code, reason),
            other => panic!("not refused, but {other:?}"),
        }
    }
}

fn devices(names: &[&str]) -> Devices {
    Devices::in_memory(names.iter().map(|name| Profile::find(name).unwrap()).collect(), 64 << 20)
}

fn submit(at: u64, request: Request) -> Command {
    Command::Submit { at: Nanos::from_nanos(at), request }
}

#[test]
fn time_beyond_what_models_hold_is_refused_and_the_last_instant_is_not() {
    for name in ["cheetah-9lp", "first-disk", "intel-p4800x"] {
        let server = Served::new(devices(&[name]), ServeOptions::default());
        let mut client = server.guest();
        let (code, reason) = client.refusal(submit(4_000_000_000_000_000_000, Request::new(0, Op::Read, 0, 8)));
        assert_eq!(code, ErrorCode::Violation);
        assert!(reason.contains("beyond the 576460752303423488 ns (18 years)"), "{reason}");
        let mut client = server.guest();
        let last = LATEST_ARRIVAL.as_nanos();
        assert_eq!(client.say(submit(last, Request::new(0, Op::Read, 0, 8))), Some(Answer::Done), "{name}");
        let next = client.say(Command::Next { taken: LATEST_ARRIVAL, safe_until: LATEST_ARRIVAL });
        assert!(matches!(next, Some(Answer::Next(_))), "{name}: {next:?}");
    }
}

#[test]
fn a_request_of_a_terabyte_is_refused() {
    let huge = DeviceInfo { capacity_sectors: 1 << 40, ..device_info() };
    let server = Served::new(makes(Idle { info: huge, now: Nanos::ZERO, tick: None }), ServeOptions::default());
    for (op, most) in [(Op::Write, REQUEST_BYTES_MAX), (Op::Read, REQUEST_BYTES_MAX), (Op::Discard, RANGE_BYTES_MAX)] {
        let sectors = (most / 512) as u32;
        for sectors in [sectors + 8, u32::MAX - 7] {
            let (code, reason) = server.guest().refusal(submit(0, Request::new(0, op, 0, sectors)));
            assert_eq!(code, ErrorCode::Violation);
            assert!(reason.contains("the most are"), "{reason}");
        }
        assert_eq!(server.guest().say(submit(0, Request::new(0, op, 0, sectors))), Some(Answer::Done));
    }
    // Many requests of a terabyte together are refused, too.
    let mut client = server.guest();
    let sectors = (REQUEST_BYTES_MAX / 512) as u32;
    for id in 0..4 {
        assert_eq!(client.say(submit(0, Request::new(id, Op::Write, 0, sectors))), Some(Answer::Done));
    }
    let (_, reason) = client.refusal(submit(0, Request::new(4, Op::Write, 0, sectors)));
    assert!(reason.contains("more than 1024 MiB would be outstanding"), "{reason}");
    // The same bound holds for ranges of bytes.
    let clear = |len_bytes| Command::Clear { how: Clear::Reserve, offset_bytes: 0, len_bytes };
    let (_, reason) = server.guest().refusal(clear(1 << 40));
    assert!(reason.contains("at most 256 MiB"), "{reason}");
}

/// A large device with an endless background task, or without one.
#[derive(Clone)]
struct Idle {
    info: DeviceInfo,
    now: Nanos,
    tick: Option<Duration>,
}

impl DeviceModel for Idle {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn now(&self) -> Nanos {
        self.now
    }
    fn outstanding(&self) -> u32 {
        0
    }
    fn submit(&mut self, _request: Request) {}
    fn next_event(&self) -> Option<Nanos> {
        None
    }
    fn completion_bound(&self) -> Option<Nanos> {
        None
    }
    fn step(&mut self, limit: Nanos, _completed: &mut Vec<Completion>) {
        if let Some(tick) = self.tick {
            // Host time per millisecond of the model's time.
            let factor = limit.saturating_sub(self.now).as_nanos() as f64 / 1e6;
            let until = Instant::now() + tick.mul_f64(factor.min(1e6));
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        self.now = self.now.max(limit);
    }
    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }
}

fn device_info() -> DeviceInfo {
    Profile::find("constant-1ms").unwrap().build(&BuildOptions::default()).unwrap().info().clone()
}

/// A maker of one kind of model.
struct Makes<F>(F);

impl<F: Fn() -> Box<dyn DeviceModel> + Send + Sync> DeviceMaker for Makes<F> {
    fn make(&self, _reset: &Reset) -> Result<MadeDevice, String> {
        let store = Box::new(RamStore::new(1 << 49, 1 << 20));
        Ok(MadeDevice { model: (self.0)(), profile: String::new(), store, memory: None })
    }
}

fn makes(model: Idle) -> Makes<impl Fn() -> Box<dyn DeviceModel> + Send + Sync> {
    Makes(move || model.fork())
}

fn ticking() -> Makes<impl Fn() -> Box<dyn DeviceModel> + Send + Sync> {
    makes(Idle { info: device_info(), now: Nanos::ZERO, tick: Some(Duration::from_millis(1)) })
}

#[test]
fn a_call_that_works_too_long_ends_its_session_and_others_are_served_meanwhile() {
    let options = ServeOptions { call: Duration::from_millis(300), ..ServeOptions::default() };
    let server = Served::new(ticking(), options);
    // An hour of the model's time would take an hour of processor time.
    let attack = submit(3_600_000_000_000, Request::new(0, Op::Read, 0, 8));
    let mut attackers: Vec<Client> = (0..2).map(|_| server.guest()).collect();
    let mut other = server.guest();
    let attacks: Vec<_> = attackers
        .drain(..)
        .map(|mut attacker| {
            let attack = attack.clone();
            // The limit is on processor time, which takes longer on a busy host.
            thread::spawn(move || attacker.refusal_within(10 * IN_TIME, attack))
        })
        .collect();
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let begun = Instant::now();
        assert!(matches!(other.say(Command::Statistics), Some(Answer::Statistics(_))));
        slowest = slowest.max(begun.elapsed());
        thread::sleep(Duration::from_millis(10));
    }
    assert!(slowest < IN_TIME, "{slowest:?}");
    for attack in attacks {
        let (code, reason) = attack.join().unwrap();
        assert_eq!(code, ErrorCode::Limit);
        assert!(reason.contains("more than 300ms of processor time"), "{reason}");
    }
}

#[test]
fn the_end_does_not_wait_for_a_call_that_works() {
    let options = ServeOptions { call: Duration::from_secs(600), ..ServeOptions::default() };
    let server = Served::new(ticking(), options);
    let mut client = server.guest();
    let at_work = thread::spawn(move || client.say(submit(3_600_000_000_000, Request::new(0, Op::Read, 0, 8))));
    thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    let _ = at_work.join();
}

#[test]
fn a_client_that_is_lost_at_work_does_not_stop_the_others() {
    // The client gives up the session while its command is being executed.
    let keep = Duration::from_millis(50);
    let options = ServeOptions { call: Duration::from_secs(5), keep, ..ServeOptions::default() };
    let server = Served::new(ticking(), options);
    let mut client = server.guest();
    let mut bytes = Vec::new();
    submit(3_600_000_000_000, Request::new(0, Op::Read, 0, 8)).encode(0, client.sequence + 1, &mut bytes);
    client.stream.write_all(&bytes).unwrap();
    drop(client);
    thread::sleep(Duration::from_millis(400));
    let begun = Instant::now();
    server.guest();
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
}

#[test]
fn slow_connections_make_room_and_their_greeting_has_one_deadline() {
    let greeting = Duration::from_secs(1);
    let options = ServeOptions { greeting, connections: Share { most: 16, per_peer: 16 }, ..ServeOptions::default() };
    let server = Served::new(devices(&["constant-1ms"]), options);
    // Each client sends a byte now and then, so that no single wait is long.
    let slow: Vec<_> = (0..80)
        .map(|_| {
            let mut stream = server.connect();
            thread::spawn(move || {
                let begun = Instant::now();
                while stream.write_all(&[0]).is_ok() && begun.elapsed() < Duration::from_secs(15) {
                    thread::sleep(Duration::from_millis(100));
                }
                begun.elapsed()
            })
        })
        .collect();
    let begun = Instant::now();
    let model = server.honest();
    assert!(model.is_ok(), "{:?}", model.err());
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    for slow in slow {
        let lasted = slow.join().unwrap();
        assert!(lasted < Duration::from_secs(5), "a slow connection lasted {lasted:?}");
    }
    drop(model);
    assert!(server.stop().evictions >= 60);
}

#[test]
fn dead_clients_make_room_for_others() {
    let idle = Duration::from_millis(300);
    let options = ServeOptions { idle, sessions: Share { most: 4, per_peer: 4 }, ..ServeOptions::default() };
    let server = Served::new(devices(&["constant-1ms"]), options);
    // Clients with a device that go silent, while their connections stay.
    let dead: Vec<Client> = (0..4).map(|_| server.guest()).collect();
    let refused = server.honest().err().unwrap();
    assert!(refused.contains("it has 4 sessions, the most that it may"), "{refused}");
    thread::sleep(Duration::from_millis(400));
    let begun = Instant::now();
    let model = server.honest();
    assert!(model.is_ok(), "{:?}", model.err());
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    drop(dead);
}

#[test]
fn sessions_without_a_device_go_at_once_when_there_is_need() {
    let options = ServeOptions { sessions: Share { most: 4, per_peer: 4 }, ..ServeOptions::default() };
    let server = Served::new(devices(&["constant-1ms"]), options);
    let greeted: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let models: Vec<_> = (0..4).map(|_| server.honest()).collect();
    assert!(models.iter().all(Result::is_ok));
    assert!(server.honest().is_err(), "those with a device stay");
    drop(greeted);
}

#[test]
fn one_address_leaves_room_for_others() {
    let share = Share { most: 8, per_peer: 2 };
    let server = Served::new(devices(&["constant-1ms"]), ServeOptions { sessions: share, ..ServeOptions::default() });
    let _mine: Vec<Client> = (0..2).map(|_| server.guest()).collect();
    let refused = server.honest().err().unwrap();
    assert!(refused.contains("127.0.0.1 has 2 sessions, the most that one address may"), "{refused}");
}

#[test]
fn models_share_the_memory_that_there_is() {
    let drive = Profile::find("first-disk").unwrap();
    let bytes = drive.memory_bytes_max(&BuildOptions::default()).unwrap();
    let limited = Devices { models: MemoryPool::new(2 * bytes), ..devices(&["first-disk"]) };
    let pool = limited.models.clone();
    let server = Served::new(limited, ServeOptions::default());
    let one = server.guest();
    let mut two = server.guest();
    let reset = || Command::Reset(Reset::default());
    let (code, reason) = server.client().refusal(reset());
    assert_eq!(code, ErrorCode::Device);
    assert!(reason.contains("other sessions have"), "{reason}");
    // A new device takes over the memory of the previous one.
    assert!(matches!(two.say(reset()), Some(Answer::Info(_))));
    two.say(Command::End);
    drop(one);
    let given_back = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(20));
        pool.used_bytes() <= bytes
    });
    assert!(given_back, "{} bytes are still taken", pool.used_bytes());
}

#[test]
fn a_device_that_is_larger_than_the_memory_for_it_lives_in_a_file() {
    let folder = std::env::temp_dir().join(format!("chronodisk-hostile-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (overflow, path) in [(false, folder.clone()), (true, folder.clone()), (true, folder.join("kept"))] {
        let store = StorePlace::File { path, overflow, durable: false };
        let limited = Devices {
            store,
            store_budget_bytes: 1 << 20,
            stores: MemoryPool::new(2 << 20),
            ..devices(&["constant-1ms"])
        };
        let server = Served::new(limited, ServeOptions::default());
        let model = server.honest().unwrap();
        let mut store = model.store().unwrap();
        use chronodisk_store::Store;
        let bytes: Vec<u8> = (0..8u32 << 20).map(|index| (index % 251) as u8).collect();
        store.write(4096, &bytes).unwrap();
        store.flush().unwrap();
        let mut back = vec![0; bytes.len()];
        store.read(4096, &mut back).unwrap();
        assert!(back == bytes, "the bytes came back changed");
        store.discard(0, store.capacity_bytes()).unwrap();
        drop((store, model));
        assert_eq!(server.stop().store_failures, 0);
    }
    std::fs::remove_file(folder.join("kept")).unwrap();
    std::fs::remove_dir(&folder).unwrap();
}
