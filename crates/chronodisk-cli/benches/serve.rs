//! A served device as its clients see it: how punctual each request is, and how many there can be.
//! `cargo bench -p chronodisk-cli --bench serve`; `-- --quick` for a tenth of the requests,
//! `-- --accuracy`, `-- --peak` or `-- --guest` for one of the three parts, `-- --json` for the
//! figures as JSON.
//!
//! *Accuracy* follows Griffin et al., "Timing-accurate storage emulation", FAST 2002, section 5.3
//! and table 3: six workloads of 1,000 requests, one at a time, and per request the difference
//! between the time that the client measures and the service time of the model, from the server's
//! log. The client is a raw one, over a unix socket: *blocking*, as programs are, which adds what
//! it costs to wake it up, or *spinning*, which does not. The paper measured inside the kernel's
//! device driver. nbdkit's delay filter stands beside it where it can express the device.
//!
//! *Lateness* is the server's own: the return of the system call that sent the reply, minus due,
//! over all requests, and without those that the server found hit by a theft of its CPU.
//!
//! *Peak rate* is of the null device, with its log, against other servers' devices of no delay,
//! with fio's nbd engine as the client of all. Rounds are interleaved; the ratio is the mean over
//! the rounds, with Student's t. *In a guest* it is the same through vhost-user-blk, against
//! qemu-storage-daemon's, with both disks in one virtual machine. What else the host did is in the
//! load average: on a busy host the ratios still compare, the rates do not.

#[path = "serve/guest.rs"]
mod guest;
#[path = "../tests/common/machine.rs"]
#[expect(dead_code, reason = "any kernel will do here; tests of ublk need one with its module")]
mod machine;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chronodisk_report::{Align, Estimate, Table, read_log};
use chronodisk_sim::{Op, Request, RequestId};
use chronodisk_trace::{Generator, GeneratorOptions, Workload};
use serde::Serialize;
use serde_json::Value;

const DEVICES: [&str; 4] = ["constant-10ms", "first-disk", "constant-1ms", "constant-100us"];
const WORKLOADS: [Workload; 6] = [
    Workload::RandomSmall,
    Workload::MixedSmall,
    Workload::RandomUniform,
    Workload::MixedUniform,
    Workload::RandomLarge,
    Workload::MixedLarge,
];
/// Number of requests in the paper.
const REQUESTS: u64 = 1_000;
const CAPACITY: &str = "1GiB";
const CAPACITY_BYTES: u64 = 1 << 30;
/// Rounds of each server's peak rate.
const ROUNDS: usize = 5;
/// An emulated guest's rates differ by half between rounds, so it runs more of them.
const GUEST_ROUNDS: usize = 3 * ROUNDS;
const ROUND_SECONDS: u32 = 2;

fn main() {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (requests, rounds, guest_rounds) =
        if has("--quick") { (REQUESTS / 10, 2, 2) } else { (REQUESTS, ROUNDS, GUEST_ROUNDS) };
    let load_before = load_average();
    let parts = ["--accuracy", "--peak", "--guest"];
    let wanted = |part: &str| has(part) || !parts.into_iter().any(has);
    let accuracy = if wanted("--accuracy") { accuracy(requests) } else { Vec::new() };
    let mut peak = if wanted("--peak") { peak(rounds) } else { Vec::new() };
    if wanted("--guest") {
        peak.extend(compare(&guest::rates(guest_rounds), &guest::SERVERS));
    }
    let result =
        Figures { schema: "chronodisk.bench.serve/1", requests, rounds, guest_rounds, load_before, accuracy, peak };
    if has("--json") {
        println!("{}", serde_json::to_string_pretty(&result).expect("plain data"));
    } else {
        println!("{}", render(&result));
    }
}

/// All figures.
#[derive(Serialize)]
struct Figures {
    schema: &'static str,
    requests: u64,
    rounds: usize,
    guest_rounds: usize,
    /// `/proc/loadavg` before the first measurement.
    load_before: String,
    accuracy: Vec<Accuracy>,
    peak: Vec<Peak>,
}

/// One workload on one device, measured by one kind of client.
#[derive(Serialize)]
struct Accuracy {
    server: &'static str,
    device: &'static str,
    workload: &'static str,
    client: &'static str,
    mean_service_time_us: f64,
    mean_error_us: f64,
    mean_absolute_error_percent: f64,
    under_1_percent: f64,
    under_2_percent: f64,
    /// The server's own lateness, if it has a log.
    lateness: Option<Lateness>,
    load: String,
}

#[derive(Serialize)]
struct Lateness {
    p50_us: f64,
    p99_us: f64,
    /// Without the requests marked by the detector of stolen time.
    unstolen_p99_us: f64,
    stolen_share: f64,
}

/// Peak rate of a server.
#[derive(Serialize)]
struct Peak {
    job: &'static str,
    server: &'static str,
    /// Mean over the rounds.
    requests_per_s: f64,
    /// Ours divided by this server's, round by round: mean and half of the 95 % interval.
    ratio: f64,
    ratio_half_width: Option<f64>,
}

fn accuracy(requests: u64) -> Vec<Accuracy> {
    let mut rows = Vec::new();
    for device in DEVICES {
        for client in ["blocking", "spinning"] {
            for workload in WORKLOADS {
                eprintln!("{device}, {workload}, {client} client");
                rows.push(ours(device, workload, client, requests));
            }
        }
    }
    let delays = [("constant-10ms", 10), ("constant-1ms", 1)];
    for (device, delay_ms) in delays.into_iter().filter(|_| has_program("nbdkit", "nbdkit")) {
        eprintln!("nbdkit's delay filter, {delay_ms} ms");
        rows.push(nbdkit(device, delay_ms, requests));
    }
    rows
}

fn ours(device: &'static str, workload: Workload, client: &'static str, requests: u64) -> Accuracy {
    let folder = tempfile::tempdir().expect("a folder for the result");
    let socket = folder.path().join("socket");
    let load = load_average();
    let server = Server::chronodisk(device, folder.path());
    let seen = drive(&socket, workload, client == "spinning", requests);
    server.end(libc::SIGTERM);
    let records = read_log(&folder.path().join("result/requests-0.parquet")).expect("the server's log");
    assert_eq!(records.len(), seen.len(), "the server logged another number of requests than were sent");
    let service = records.iter().map(|record| record.service_time().as_micros_f64());
    let lateness = |records: &mut dyn Iterator<Item = &chronodisk_sim::RequestRecord>, share: f64| {
        quantile(records.map(|record| record.lateness().as_micros_f64()).collect(), share)
    };
    let unstolen = records.iter().filter(|record| !record.stolen);
    let lateness = Lateness {
        p50_us: lateness(&mut records.iter(), 0.5),
        p99_us: lateness(&mut records.iter(), 0.99),
        unstolen_p99_us: lateness(&mut unstolen.clone(), 0.99),
        stolen_share: 1.0 - unstolen.count() as f64 / records.len() as f64,
    };
    row("chronodisk", device, workload, client, service.zip(seen).collect(), Some(lateness), load)
}

fn nbdkit(device: &'static str, delay_ms: u32, requests: u64) -> Accuracy {
    let folder = tempfile::tempdir().expect("a folder for the socket");
    let socket = folder.path().join("socket");
    let load = load_average();
    let server = Server::start(
        Command::new("nbdkit")
            .args(["-f", "-U"])
            .arg(&socket)
            .args(["--filter=delay", "memory", "1G"])
            .args([format!("rdelay={delay_ms}ms"), format!("wdelay={delay_ms}ms")]),
        &socket,
    );
    let seen = drive(&socket, Workload::RandomSmall, false, requests);
    server.end(libc::SIGTERM);
    let pairs = seen.into_iter().map(|seen| (f64::from(delay_ms) * 1e3, seen)).collect();
    row("nbdkit", device, Workload::RandomSmall, "blocking", pairs, None, load)
}

/// Makes a row from pairs of the time that a request should take and the time that the client measured, in µs.
fn row(
    server: &'static str,
    device: &'static str,
    workload: Workload,
    client: &'static str,
    pairs: Vec<(f64, f64)>,
    lateness: Option<Lateness>,
    load: String,
) -> Accuracy {
    let count = pairs.len() as f64;
    let mean = |value: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(value).sum::<f64>() / count;
    let percent = |(service, seen): &(f64, f64)| ((seen - service) / service).abs() * 100.0;
    let under = |limit: f64| mean(&|pair| f64::from(u8::from(percent(pair) < limit))) * 100.0;
    Accuracy {
        server,
        device,
        workload: workload.name(),
        client,
        mean_service_time_us: mean(&|pair| pair.0),
        mean_error_us: mean(&|pair| pair.1 - pair.0),
        mean_absolute_error_percent: mean(&percent),
        under_1_percent: under(1.0),
        under_2_percent: under(2.0),
        lateness,
        load,
    }
}

/// Sends a workload, one request at a time; returns their times in µs.
fn drive(socket: &Path, workload: Workload, spinning: bool, requests: u64) -> Vec<f64> {
    let mut client = Client::connect(socket);
    client.socket.set_nonblocking(spinning).expect("a socket can do both");
    let options = GeneratorOptions::new(workload, CAPACITY_BYTES / 512, 1, requests);
    let generator = Generator::new(options).expect("the workload fits");
    generator.map(|generated| client.ask(&generated.request(RequestId(0))).as_secs_f64() * 1e6).collect()
}

/// A client that speaks as little NBD as it takes.
struct Client {
    socket: UnixStream,
    buffer: Vec<u8>,
}

impl Client {
    fn connect(path: &Path) -> Self {
        let mut socket = UnixStream::connect(path).expect("the server listens");
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).expect("a greeting");
        // Client flags: fixed newstyle, no zeroes. NBD_OPT_EXPORT_NAME with the empty name.
        socket.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").expect("the server reads");
        socket.read_exact(&mut [0; 10]).expect("an export");
        Client { socket, buffer: vec![0; 1 << 20] }
    }

    fn ask(&mut self, request: &Request) -> Duration {
        let (command, sent, received) = match request.op {
            Op::Read => (0u16, 0, request.len_bytes() as usize),
            Op::Write => (1, request.len_bytes() as usize, 0),
            op => panic!("the workloads have no {op}"),
        };
        let mut message = Vec::with_capacity(28 + sent);
        message.extend(0x2560_9513_u32.to_be_bytes());
        message.extend([0; 2]);
        message.extend(command.to_be_bytes());
        message.extend(1u64.to_be_bytes());
        message.extend(request.lba.offset_bytes().to_be_bytes());
        message.extend((request.len_bytes() as u32).to_be_bytes());
        message.resize(28 + sent, 0xA5);
        let begun = Instant::now();
        self.send(&message);
        self.receive(16 + received);
        let took = begun.elapsed();
        assert_eq!(self.buffer[4..8], [0; 4], "the server answered with an error");
        took
    }

    fn send(&mut self, message: &[u8]) {
        let mut rest = message;
        while !rest.is_empty() {
            match self.socket.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => panic!("can't send: {error}"),
            }
        }
    }

    fn receive(&mut self, len: usize) {
        let mut filled = 0;
        while filled < len {
            match self.socket.read(&mut self.buffer[filled..len]) {
                Ok(0) => panic!("the server closed the connection"),
                Ok(received) => filled += received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => panic!("can't receive: {error}"),
            }
        }
    }
}

struct Job {
    name: &'static str,
    arguments: [&'static str; 3],
}

const JOBS: [Job; 3] = [
    Job { name: "4 KiB random reads, depth 1", arguments: ["--rw=randread", "--bs=4k", "--iodepth=1"] },
    Job { name: "4 KiB random reads, depth 32", arguments: ["--rw=randread", "--bs=4k", "--iodepth=32"] },
    Job { name: "1 MiB sequential reads, depth 4", arguments: ["--rw=read", "--bs=1m", "--iodepth=4"] },
];

const SERVERS: [&str; 4] = ["chronodisk null", "nbdkit memory", "qemu-nbd null-co", "qemu-storage-daemon null-co"];

fn peak(rounds: usize) -> Vec<Peak> {
    let programs = [
        ("fio", "fio"),
        ("nbdkit", "nbdkit"),
        ("qemu-nbd", "qemu-utils"),
        ("qemu-storage-daemon", "qemu-system-common"),
    ];
    if !programs.iter().all(|(program, package)| has_program(program, package)) {
        return Vec::new();
    }
    let mut rates: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        for (job_index, job) in JOBS.iter().enumerate() {
            for server_index in turns(round, SERVERS.len()) {
                let name = SERVERS[server_index];
                eprintln!("round {} of {rounds}: {}, {name}", round + 1, job.name);
                rates.entry((job_index, server_index)).or_default().push(rate(name, job));
            }
        }
    }
    compare(&rates, &SERVERS)
}

/// Order of the servers in a round: each is first and last equally often, because a host that becomes slower from
/// minute to minute would favour the first.
fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| (turn + round) % count)
}

/// Compares the rates of each round, by the indices of job and server; server 0 is Chronodisk.
fn compare(rates: &BTreeMap<(usize, usize), Vec<f64>>, servers: &[&'static str]) -> Vec<Peak> {
    let mut rows = Vec::new();
    for ((job_index, server_index), of_server) in rates {
        let ours = &rates[&(*job_index, 0)];
        let ratios: Vec<f64> = ours.iter().zip(of_server).map(|(ours, theirs)| ours / theirs).collect();
        let ratio = Estimate::of(&ratios).expect("there are rounds");
        rows.push(Peak {
            job: JOBS[*job_index].name,
            server: servers[*server_index],
            requests_per_s: of_server.iter().sum::<f64>() / of_server.len() as f64,
            ratio: ratio.mean,
            ratio_half_width: ratio.half_width_95,
        });
    }
    rows
}

/// Requests per second of one round; data are written before they are read.
fn rate(server: &str, job: &Job) -> f64 {
    let folder = tempfile::tempdir().expect("a folder for the socket");
    let socket = folder.path().join("socket");
    // With read-zeroes, the server would report a hole instead of sending data.
    let null = "driver=null-co,size=1073741824,read-zeroes=off";
    let path = socket.display();
    let running = match server {
        "chronodisk null" => Server::chronodisk("null", folder.path()),
        "nbdkit memory" => {
            Server::start(Command::new("nbdkit").args(["-f", "-U"]).arg(&socket).args(["memory", "1G"]), &socket)
        }
        "qemu-nbd null-co" => {
            Server::start(Command::new("qemu-nbd").arg("-k").arg(&socket).args(["--image-opts", null, "-t"]), &socket)
        }
        _ => Server::start(
            Command::new("qemu-storage-daemon")
                .args(["--blockdev", &format!("{null},node-name=n")])
                .args(["--nbd-server", &format!("addr.type=unix,addr.path={path}")])
                .args(["--export", "type=nbd,id=e,node-name=n,name=disk"]),
            &socket,
        ),
    };
    // The storage daemon knows no export without a name.
    let export = if server.starts_with("qemu-storage-daemon") { "disk" } else { "" };
    let uri = format!("--uri=nbd+unix:///{export}?socket={path}");
    let seconds = format!("--runtime={ROUND_SECONDS}");
    let fio = |arguments: &[&str]| {
        let output = Command::new("fio")
            .args(["--name=peak", "--ioengine=nbd", "--size=256m", "--output-format=json", &uri])
            .args(arguments)
            .output()
            .expect("fio starts");
        assert!(output.status.success(), "{server}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    if server == "chronodisk null" || server == "nbdkit memory" {
        // Memory that was never written would be answered without being read.
        fio(&["--rw=write", "--bs=1m"]);
    }
    let text = fio(&[&["--time_based", &seconds][..], &job.arguments].concat());
    running.end(libc::SIGTERM);
    // fio writes notes before the document.
    let text = &text[text.find('{').expect("fio's figures")..];
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    value["jobs"][0]["read"]["iops"].as_f64().expect("fio's rate")
}

/// A server that is killed when dropped.
struct Server(Child);

impl Server {
    fn chronodisk(device: &str, folder: &Path) -> Self {
        let socket = folder.join("socket");
        let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
        command.args(["serve", "--device", device, "--capacity", CAPACITY]).arg("--nbd");
        command.arg(format!("unix:{}", socket.display())).arg("--output").arg(folder.join("result"));
        Server::start(command.env("XDG_STATE_HOME", folder), &socket)
    }

    fn chronodisk_vhost(device: &str, folder: &Path) -> Self {
        let socket = folder.join("vhost");
        let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
        command.args(["serve", "--device", device, "--capacity", CAPACITY]).arg("--vhost-user").arg(&socket);
        command.arg("--output").arg(folder.join("result"));
        Server::start_vhost(command.env("XDG_STATE_HOME", folder), &socket)
    }

    /// Starts a server that must not be probed, because it takes any connection for a guest's.
    fn start_vhost(command: &mut Command, socket: &Path) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = Server(child.unwrap_or_else(|error| panic!("{command:?}: {error}")));
        for _ in 0..1_000 {
            if socket.exists() {
                return server;
            }
            assert!(server.0.try_wait().expect("our own child").is_none(), "{command:?} has ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{command:?} does not listen");
    }

    fn start(command: &mut Command, socket: &Path) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = Server(child.unwrap_or_else(|error| panic!("{command:?}: {error}")));
        for _ in 0..1_000 {
            if UnixStream::connect(socket).is_ok() {
                return server;
            }
            assert!(server.0.try_wait().expect("our own child").is_none(), "{command:?} has ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{command:?} does not listen");
    }

    fn end(mut self, signal: i32) {
        // SAFETY: no memory is involved; the process is our own child, which was not waited for.
        unsafe { libc::kill(self.0.id() as i32, signal) };
        self.0.wait().expect("our own child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_program(program: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    if !found {
        eprintln!("SKIPPED: no {program} in PATH (Debian: apt-get install {package})");
    }
    found
}

/// Processes that ran or wanted to, on average over 1, 5 and 15 minutes.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Quantile by nearest rank; zero without values.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil().max(1.0) as usize;
    values.get(rank - 1).copied().unwrap_or(0.0)
}

fn render(figures: &Figures) -> String {
    use Align::{Left, Right};
    let mut accuracy = Table::new([
        ("server", Left),
        ("device", Left),
        ("workload", Left),
        ("client", Left),
        ("service µs", Right),
        ("error µs", Right),
        ("|error| %", Right),
        ("under 1 %", Right),
        ("under 2 %", Right),
        ("late p50", Right),
        ("late p99", Right),
        ("unstolen p99", Right),
        ("stolen %", Right),
        ("load", Left),
    ]);
    for row in &figures.accuracy {
        let of = |value: &dyn Fn(&Lateness) -> f64| {
            row.lateness.as_ref().map_or(String::new(), |it| format!("{:.2}", value(it)))
        };
        accuracy.row([
            row.server.to_owned(),
            row.device.to_owned(),
            row.workload.to_owned(),
            row.client.to_owned(),
            format!("{:.1}", row.mean_service_time_us),
            format!("{:+.2}", row.mean_error_us),
            format!("{:.3}", row.mean_absolute_error_percent),
            format!("{:.1}", row.under_1_percent),
            format!("{:.1}", row.under_2_percent),
            of(&|it| it.p50_us),
            of(&|it| it.p99_us),
            of(&|it| it.unstolen_p99_us),
            of(&|it| it.stolen_share * 100.0),
            row.load.clone(),
        ]);
    }
    let mut peak =
        Table::new([("job", Left), ("server", Left), ("requests/s", Right), ("ours / this", Right), ("± 95 %", Right)]);
    for row in &figures.peak {
        peak.row([
            row.job.to_owned(),
            row.server.to_owned(),
            format!("{:.0}", row.requests_per_s),
            format!("{:.2}", row.ratio),
            row.ratio_half_width.map_or(String::new(), |half| format!("{half:.2}")),
        ]);
    }
    format!(
        "{} requests a row, one at a time; lateness in µs. Load average before: {}\n\n{}\n{} rounds of {} s, {} in a guest\n\n{}",
        figures.requests,
        figures.load_before,
        accuracy.render(),
        figures.rounds,
        ROUND_SECONDS,
        figures.guest_rounds,
        peak.render()
    )
}
