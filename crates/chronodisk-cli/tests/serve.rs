//! `chronodisk serve` from outside: its beginning and end, its results, and survival of data.

#[macro_use(assert_eq)]
extern crate pretty_assertions;

#[path = "../../chronodisk-front/tests/common/certificates.rs"]
mod certificates;
#[path = "common/command.rs"]
mod command;
#[path = "common/default_signals.rs"]
mod default_signals;
#[path = "serve/encrypted.rs"]
mod encrypted;
#[path = "serve/ends.rs"]
mod ends;
#[path = "serve/far_memory.rs"]
mod far_memory;
#[path = "serve/iscsi.rs"]
mod iscsi;
#[path = "serve/limits.rs"]
mod limits;
#[path = "serve/listeners.rs"]
mod listeners;
#[path = "serve/long.rs"]
mod long;
#[path = "serve/metrics.rs"]
mod metrics;
#[path = "serve/shadow.rs"]
mod shadow;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use command::{chronodisk, text};
use default_signals::with_default_signals;

/// A folder of its own for every test's runs, sockets and files.
struct TestFolder(tempfile::TempDir);

impl TestFolder {
    fn new() -> Self {
        TestFolder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn chronodisk(&self, arguments: &[&str]) -> Command {
        let mut command = chronodisk(arguments);
        command.env("XDG_STATE_HOME", self.0.path()).current_dir(self.0.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        with_default_signals(&mut command);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.chronodisk(arguments).output().unwrap()
    }

    /// Starts a server of 16 MiB, and waits until clients can connect.
    fn serve(&self, arguments: &[&str]) -> Serving {
        self.serve_exactly(&[&["--capacity", "16MiB"], arguments].concat())
    }

    fn serve_exactly(&self, arguments: &[&str]) -> Serving {
        let pidfile = self.path("pid");
        let mut all = vec!["serve", "--nbd", "unix:socket", "--pidfile", "pid", "--no-realtime"];
        all.extend(arguments);
        let mut child = self.chronodisk(&all).spawn().unwrap();
        for _ in 0..2_000 {
            if pidfile.exists() {
                return Serving(child);
            }
            if child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no server: {}", text(&child.wait_with_output().unwrap().stderr));
    }

    fn connect(&self) -> Client {
        Client::connect(&self.path("socket"))
    }
}

struct Serving(Child);

impl Serving {
    fn signal(&self, signal: i32) {
        // SAFETY: no memory is involved; the process is our own child, which was not waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }

    fn end(self) -> Output {
        self.0.wait_with_output().unwrap()
    }
}

/// A client that speaks as little NBD as it takes.
struct Client(UnixStream);

impl Client {
    fn connect(path: &Path) -> Self {
        let mut socket = UnixStream::connect(path).unwrap();
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).unwrap();
        // Client flags: fixed newstyle, no zeroes. NBD_OPT_EXPORT_NAME with the empty name.
        socket.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        let mut export = [0; 10];
        socket.read_exact(&mut export).unwrap();
        Client(socket)
    }

    fn send(&mut self, command: u16, offset_bytes: u64, len_bytes: u32, data: &[u8]) {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend([0; 2]);
        request.extend(command.to_be_bytes());
        request.extend(7u64.to_be_bytes());
        request.extend(offset_bytes.to_be_bytes());
        request.extend(len_bytes.to_be_bytes());
        request.extend(data);
        self.0.write_all(&request).unwrap();
    }

    /// Receives a reply with so many bytes of data, if it is no error.
    fn receive(&mut self, len: usize) -> (u32, Vec<u8>) {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).unwrap();
        let error = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        let mut data = vec![0; if error == 0 { len } else { 0 }];
        self.0.read_exact(&mut data).unwrap();
        (error, data)
    }

    /// Sends a request and receives the reply; the error in it, and the data of a read.
    fn ask(&mut self, command: u16, offset_bytes: u64, len_bytes: u32, data: &[u8]) -> (u32, Vec<u8>) {
        self.send(command, offset_bytes, len_bytes, data);
        self.receive(if command == READ { len_bytes as usize } else { 0 })
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> u32 {
        self.ask(WRITE, offset_bytes, data.len() as u32, data).0
    }

    fn read(&mut self, offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
        let (error, data) = self.ask(READ, offset_bytes, len_bytes, &[]);
        assert_eq!(error, 0);
        data
    }

    fn flush(&mut self) {
        assert_eq!(self.ask(FLUSH, 0, 0, &[]).0, 0);
    }
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
/// "`NBD_EPERM` (1)", of the protocol's description.
const EPERM: u32 = 1;

#[test]
fn the_program_of_run_gets_the_address_and_its_status_is_ours() {
    let place = TestFolder::new();
    let command = "echo \"$uri\"; test -S \"$unixsocket\" && exit 7";
    let arguments = ["serve", "--device", "null", "--capacity", "1MiB", "--nbd", "unix:a b", "--run", command];
    let output = place.run(&arguments);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let socket = fs::canonicalize(place.0.path()).unwrap().join("a%20b");
    assert_eq!(text(&output.stdout).trim(), format!("nbd+unix:///?socket={}", socket.display()));
    assert!(!place.path("a b").exists(), "the socket is removed");

    let tcp = ["serve", "--device", "null", "--capacity", "1MiB", "--nbd", "0", "--json", "--run"];
    let output = place.run(&[&tcp[..], &["echo \"$uri $port\"; kill -9 $$"]].concat());
    assert_eq!(output.status.code(), Some(137));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("standard output is the result's");
    assert_eq!((&result["clock"]["driver"], &result["reps"][0]["exit_status"]), (&"real".into(), &137.into()));
    let errors = text(&output.stderr);
    let uri = errors.lines().find(|line| line.starts_with("nbd://127.0.0.1:")).expect("the program's own output");
    let port = uri.rsplit(' ').next().unwrap();
    assert!(port != "0" && uri.contains(&format!(":{port} ")), "{uri}");
}

#[test]
fn a_signal_ends_it_in_order_and_the_log_can_be_verified() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let place = TestFolder::new();
        let server = place.serve(&["--device", "constant-100us"]);
        let mut client = place.connect();
        for index in 0..20 {
            assert_eq!(client.write(index * 4096, &[index as u8; 4096]), 0);
            assert_eq!(client.read(index * 4096, 4096), [index as u8; 4096]);
        }
        server.signal(signal);
        let output = server.end();
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert!(errors.contains("40: 20 reads of 80 KiB, 20 writes of 80 KiB"), "{errors}");
        assert!(!place.path("pid").exists() && !place.path("socket").exists());
        let verified = place.run(&["verify", "last"]);
        assert!(verified.status.success(), "{}", text(&verified.stderr));
        assert!(text(&verified.stdout).contains("40 requests replayed, identical"), "{}", text(&verified.stdout));
    }
}

#[test]
fn what_was_flushed_survives_a_kill_and_what_ended_in_order_survives_whole() {
    for store in ["disk", "overflow:disk"] {
        let place = TestFolder::new();
        let arguments = ["--device", "null", "--store", store, "--durable"];
        let budget = ["--ram-budget", "1MiB"];
        let arguments = if store == "disk" { arguments.to_vec() } else { [&arguments[..], &budget].concat() };
        let block = |index: u64| vec![index as u8 + 1; 64 << 10];

        let server = place.serve(&arguments);
        let mut client = place.connect();
        for index in 0..64 {
            assert_eq!(client.write(index << 17, &block(index)), 0);
        }
        client.flush();
        server.signal(libc::SIGKILL);
        assert!(!server.end().status.success());
        fs::remove_file(place.path("pid")).unwrap();

        // The socket that it left behind is no obstacle.
        let server = place.serve(&arguments);
        let mut client = place.connect();
        for index in 0..64 {
            assert_eq!(client.read(index << 17, 64 << 10), block(index), "{store}");
        }
        assert_eq!(client.write(4096, b"written and never flushed\0\0\0\0\0\0\0".repeat(16).as_slice()), 0);
        server.signal(libc::SIGTERM);
        assert!(server.end().status.success());
        let bytes = fs::read(place.path("disk")).unwrap();
        assert!(bytes.len() == 16 << 20 && bytes[4096..].starts_with(b"written and never flushed"));
    }
}

#[test]
fn a_second_run_is_preloaded_with_what_the_first_used() {
    let place = TestFolder::new();
    let arguments = ["--device", "constant-1ms", "--store", "overflow:disk", "--ram-budget", "1MiB"];
    // Four times what fits into memory, in an order without locality.
    let offset = |index: u64| (index * 389 % 1024) * 4096;
    let run = |preload: &[&str]| {
        let server = place.serve(&[&arguments[..], preload].concat());
        let mut client = place.connect();
        for index in 0..1024 {
            assert_eq!(client.read(offset(index), 4096).len(), 4096);
        }
        server.signal(libc::SIGTERM);
        assert!(server.end().status.success());
        let last = fs::canonicalize(place.path("chronodisk/runs/last")).unwrap();
        let result = fs::read(last.join("result.json")).unwrap();
        let result: serde_json::Value = serde_json::from_slice(&result).unwrap();
        let statistic = |name: &str| result["reps"][0]["model_statistics"][name].as_f64().unwrap();
        let memory_bytes = statistic("store-memory-bytes");
        assert!(memory_bytes <= ((1 << 20) + chronodisk_store::overflow::OVERHEAD_BYTES) as f64, "{memory_bytes}");
        (statistic("store-misses"), statistic("store-preloaded"))
    };
    assert_eq!(run(&[]), (1024.0, 0.0));
    let (misses, preloaded) = run(&["--preload", "last"]);
    // How far ahead it gets is up to the host; that it gets ahead is not.
    assert!(misses < 1024.0 && preloaded > 0.0 && misses + preloaded >= 1024.0, "{misses} {preloaded}");
}

#[test]
fn fio_finds_what_it_wrote_with_32_requests_at_once() {
    let has_engine = Command::new("fio").arg("--enghelp=nbd").output().is_ok_and(|output| output.status.success());
    if !has_engine {
        println!("SKIPPED: no fio with an engine for NBD (Debian: apt-get install fio)");
        return;
    }
    let place = TestFolder::new();
    // The first has fewer bytes in memory than it serves; the second completes in another order than that of arrival.
    for (device, store, count) in [("constant-100us", "overflow:bytes", "4000"), ("mems-g2", "ram", "1000")] {
        let fio = format!(
            "fio --name=j --ioengine=nbd --uri=\"$uri\" --rw=randrw --bsrange=512-64k --bs_unaligned=0 --size=16m \
             --iodepth=32 --number_ios={count} --randrepeat=1 --verify=crc32c --verify_fatal=1 --do_verify=1 \
             --output=/dev/null"
        );
        let flags = ["--store", store, "--ram-budget", if store == "ram" { "64MiB" } else { "4MiB" }];
        let serve = ["serve", "--device", device, "--capacity", "16MiB", "--nbd", "unix:s", "--no-realtime"];
        let output = place.run(&[&serve, &flags[..], &["--run", &fio]].concat());
        assert!(output.status.success(), "{device}: {}{}", text(&output.stdout), text(&output.stderr));
        let verified = place.run(&["verify", "last"]);
        assert!(verified.status.success(), "{device}: {}", text(&verified.stderr));
    }
}

#[test]
fn a_read_only_device_refuses_writes_and_serves_reads() {
    let place = TestFolder::new();
    let server = place.serve(&["--device", "null", "--read-only"]);
    let mut client = place.connect();
    assert_eq!(client.write(0, &[1; 512]), EPERM);
    assert_eq!(client.read(0, 512), [0; 512]);
    server.signal(libc::SIGTERM);
    let output = server.end();
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("1: 1 reads of 512 B"), "{}", text(&output.stderr));
}

#[test]
fn wrong_usage_says_what_was_expected() {
    let place = TestFolder::new();
    let base = ["serve", "--device", "null", "--capacity", "1MiB"];
    for (arguments, message) in [
        (&[][..], "--nbd"),
        (&["--nbd", "host:port"], "expected unix:PATH, HOST:PORT or PORT"),
        (&["--nbd", "0", "--durable"], "--durable needs a file"),
        (
            &["--nbd", "0", "--store", "f", "--ram-budget", "1MiB"],
            "--ram-budget needs --store ram or --store overflow:FILE",
        ),
        (&["--nbd", "0", "--preload", "last"], "--preload needs --store overflow:FILE"),
        (&["--nbd", "0", "--store", "overflow:f", "--preload", "nowhere"], "no run 'nowhere'"),
        (&["--nbd", "0", "--cpu", "4000"], "--cpu 4000: expected one of the CPUs"),
        (&["--nbd", "0", "--arrival-skew", "soon"], "--arrival-skew"),
        (&["--nbd", "0", "--tls", "require"], "--tls-certificates"),
        (&["--nbd", "0", "--tls-certificates", "nowhere"], "nowhere/server-cert.pem"),
        (&["--vhost-user", "v", "--tls-certificates", "nowhere"], "--nbd"),
        (&["--nbd", "0", "--metrics", "unix:m"], "expected HOST:PORT or PORT"),
        (&["--nbd", "0", "--plot", "p.svg"], "--shadow"),
        (&["--nbd", "0", "--shadow", "f", "--store", "g"], "cannot be used with"),
        (&["--nbd", "0", "--shadow", "no-such-disk"], "--shadow no-such-disk: opening"),
    ] {
        let output = place.run(&[&base[..], arguments].concat());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
    }
    let output = place.run(&[&base[..], &["--nbd", "unix:no/such/folder", "--output", "result"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(!place.path("result").exists(), "nothing is left of a server that never was");
}

#[test]
fn failed_requests_are_reported_by_status_at_the_end() {
    const EIO: u32 = 5;
    let note = |flags: &[&str], error: u32| {
        let place = TestFolder::new();
        let server = place.serve(&[&["--device", "null"], flags].concat());
        let mut client = place.connect();
        assert_eq!(client.ask(READ, 1 << 20, 4096, &[]).0, error);
        assert_eq!(client.ask(READ, (1 << 20) + 4096, 4096, &[]).0, error);
        client.read(0, 4096);
        server.signal(libc::SIGTERM);
        let output = server.end();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr).lines().find(|line| line.contains("requests failed")).map(str::to_owned)
    };
    let fault = ["--fault", "kind=latent,offset=1MiB,length=8KiB"];
    let expected = Some("2 of the device's requests failed: 2 media-error".to_owned());
    assert_eq!(note(&fault, EIO), expected);
    assert_eq!(note(&[&fault[..], &["--quiet"]].concat(), EIO), expected);
    assert_eq!(note(&[], 0), None);
}
