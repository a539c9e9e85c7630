//! Models at an emulator server and in other programs, without a guest.

#[path = "common/command.rs"]
mod command;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use serde_json::Value;
use tempfile::TempDir;

use command::{chronodisk, text};

/// A folder of its own for every test's runs and scripts.
struct TestFolder(TempDir);

impl TestFolder {
    fn new() -> Self {
        TestFolder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn chronodisk(&self, arguments: &[&str]) -> Command {
        let mut command = chronodisk(arguments);
        command.env("XDG_STATE_HOME", self.0.path()).env("PYTHONPATH", python_folder());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.chronodisk(arguments).output().unwrap()
    }

    /// `simulate` a mixed workload and keep its log.
    fn simulate(&self, name: &str, arguments: &[&str]) -> Value {
        let directory = self.path(name);
        let workload =
            ["simulate", "--workload", "random-mixed", "-n", "2000", "--depth", "4", "--seed", "3", "--json"];
        let output = ["--output", directory.to_str().unwrap()];
        let run = self.run(&[&workload[..], &output, arguments].concat());
        assert!(run.status.success(), "{}", text(&run.stderr));
        serde_json::from_slice(&run.stdout).unwrap()
    }
}

fn python_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python")
}

/// A model among the Python package's examples. Where there is no Python, prints that and returns `None`.
fn example(name: &str) -> Option<String> {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIPPED: no python3 in PATH (Debian: apt-get install python3)");
        return None;
    }
    Some(python_folder().join("examples").join(name).to_str().unwrap().to_owned())
}

/// An emulator server on a port of its own; killed if the test fails.
struct Server {
    child: Child,
    address: String,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Server {
    fn start(place: &TestFolder, arguments: &[&str]) -> Self {
        Server::start_at(place, "0", arguments)
    }

    fn start_at(place: &TestFolder, listen: &str, arguments: &[&str]) -> Self {
        let arguments = [&["emulator-server", "--listen", listen], arguments].concat();
        let mut child = place.chronodisk(&arguments).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("emulator server at ").unwrap_or_else(|| panic!("{line}")).to_owned();
        Server { child, address, stderr }
    }

    /// Ends it as Ctrl-C does; returns its last output.
    fn interrupt(mut self) -> String {
        // SAFETY: no memory is involved; the process is our own child, which was not waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) };
        assert!(self.child.wait().unwrap().success());
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The figures that must not depend on where the model is.
fn figures(simulation: &Value) -> Value {
    let mut summary = simulation["summary"].clone();
    // Host times are irrelevant.
    summary.as_object_mut().unwrap().retain(|name, _| !matches!(name.as_str(), "model_time_us" | "store_time_us"));
    summary
}

#[test]
fn at_a_server_with_or_without_speculation_the_figures_are_the_same() {
    let place = TestFolder::new();
    let server = Server::start(&place, &["--device", "constant-1ms", "--device", "first-disk"]);
    let here = place.simulate("here", &["--device", "first-disk"]);
    let there = place.simulate("there", &["--device", "first-disk", "--server", &server.address]);
    let behind = ["--device", "first-disk", "--server", &server.address, "--debug", "speculation=off"];
    let behind = place.simulate("behind", &behind);
    assert_eq!(figures(&here), figures(&there));
    assert_eq!(figures(&here), figures(&behind));
    // A client without a device name gets the server's first device.
    let first = place.simulate("first", &["--server", &server.address]);
    assert_eq!(first["device"], "constant-1ms");
    for name in ["there", "behind", "first"] {
        let verified = place.run(&["verify", place.path(name).to_str().unwrap()]);
        assert!(verified.status.success(), "{}", text(&verified.stdout));
    }
    let said = server.interrupt();
    assert!(said.starts_with("4 sessions, 6000 requests") || said.starts_with("5 sessions, 6000 requests"), "{said}");
}

#[test]
fn nobody_at_the_address_is_a_sentence_and_status_3() {
    let place = TestFolder::new();
    let output = place.run(&["simulate", "--workload", "random-read", "--server", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(3));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("emulator server 127.0.0.1:1: Connection refused"), "{stderr}");
    assert!(stderr.contains("emulator-server --listen"), "{stderr}");
}

#[test]
fn a_server_without_devices_says_so() {
    let place = TestFolder::new();
    let server = Server::start(&place, &[]);
    let output = place.run(&["simulate", "--workload", "random-read", "--server", &server.address]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("offers no devices of its own"), "{}", text(&output.stderr));
}

#[test]
fn a_server_that_dies_ends_the_simulation_in_time() {
    let place = TestFolder::new();
    let mut server = Server::start(&place, &["--device", "first-disk"]);
    let arguments = ["simulate", "--workload", "random-read", "-n", "100000000", "--reconnect-timeout", "500ms"];
    let mut client = place.chronodisk(&[&arguments[..], &["--server", &server.address]].concat());
    let client = client.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    server.child.kill().unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("not reached again within 500ms"), "{}", text(&output.stderr));
}

#[test]
fn the_python_disk_is_its_twin_to_the_nanosecond() {
    let Some(program) = example("one_platter.py") else { return };
    let place = TestFolder::new();
    let twin = python_folder().join("examples/one-platter.toml");
    let twin = twin.to_str().unwrap();
    let here = place.simulate("rust", &["--device", twin]);
    let there = place.simulate("python", &["--device", &format!("exec:{program}")]);
    assert_eq!(figures(&here), figures(&there));
    let directory = place.path("python");
    let verified = place.run(&["verify", directory.to_str().unwrap(), "--device", twin]);
    assert!(verified.status.success(), "{}", text(&verified.stdout));
    assert!(text(&verified.stdout).contains("2000 requests replayed, identical"), "{}", text(&verified.stdout));
    // By itself the result runs nothing.
    let refused = place.run(&["verify", directory.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("can't be replayed"), "{}", text(&refused.stderr));
}

#[test]
fn writes_to_any_place_are_the_same_at_a_server_and_in_a_program() {
    let place = TestFolder::new();
    let server = Server::start(&place, &["--device", "cheetah-9lp"]);
    let anywhere = ["--write-anywhere", "0.8:64", "--read-share", "0.3", "--capacity", "512MB", "--device"];
    let simulate = |name: &str, more: &[&str]| figures(&place.simulate(name, &[&anywhere[..], more].concat()));
    let here = simulate("here", &["cheetah-9lp"]);
    assert_eq!(here, simulate("there", &["cheetah-9lp", "--server", &server.address]));
    let behind = ["cheetah-9lp", "--server", &server.address, "--debug", "speculation=off"];
    assert_eq!(here, simulate("behind", &behind));
    assert!(here != figures(&place.simulate("in-place", &["--capacity", "512MB", "--device", "cheetah-9lp"])));

    let Some(program) = example("one_platter.py") else { return };
    let twin = python_folder().join("examples/one-platter.toml");
    assert_eq!(simulate("rust", &[twin.to_str().unwrap()]), simulate("python", &[&format!("exec:{program}")]));
}

/// A model whose requests take 10 ms, and whose background requests read a wanted sector in each millisecond.
const SCANNER: &str = "
    def end(self, request, start):
        return start + 10_000_000
    def submit_anywhere(self, now, request, places):
        self.submit(now, request)
        return places[-1] + WRONG_PLACE
    def background(self):
        if not hasattr(self, 'scanner'):
            self.scanner = Scanner()
        return self.scanner

class Scanner(Background):
    media_bytes_per_s = 1e6
    def want(self, now, ranges, at_rest):
        assert ranges == [range(0, 4096)] and not at_rest
        self.next, self.at = 0, now
    def forget(self, now, ranges):
        pass
    def wanted(self):
        return 4096 - self.next
    def take(self, until):
        done = []
        while self.next < 4096 and self.at + 1000000 <= until:
            self.at += 1000000
            done.append(BackgroundDone(self.next, 1, self.at + LATE))
            self.next += 1
        return done
";

#[test]
fn a_program_serves_background_requests() {
    if example("one_platter.py").is_none() {
        return;
    }
    let place = TestFolder::new();
    let device = script(&place, &SCANNER.replace("WRONG_PLACE", "0").replace("LATE", "0"));
    let scan = ["--workload", "random-read", "-n", "100", "--background-scan", "gaps", "--json", "--device"];
    let done = place.run(&[&["simulate"], &scan[..], &[&device]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let background = serde_json::from_slice::<Value>(&done.stdout).unwrap()["background"].clone();
    // A hundred requests of 10 ms, and a sector in each millisecond.
    assert_eq!((&background["bytes"], &background["seconds"]), (&(1_000 * 512).into(), &1.0.into()));
    assert_eq!((&background["share_of_media"], &background["foreground_is_equal"]), (&0.512.into(), &true.into()));
}

#[test]
fn interface_extensions_that_a_model_lacks_or_breaks_are_named() {
    let place = TestFolder::new();
    let server = Server::start(&place, &["--device", "cheetah-9lp"]);
    let scan = |device: &[&str]| {
        let load = ["simulate", "--workload", "random-mixed", "-n", "10", "--background-scan", "gaps"];
        place.run(&[&load[..], device].concat())
    };
    let refused = scan(&["--server", &server.address]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("cheetah-9lp can't read in the gaps of other requests"), "{said}");
    let Some(program) = example("one_platter.py") else { return };
    let refused = scan(&["--device", &format!("exec:{program}")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("one-platter can't read in the gaps"), "{}", text(&refused.stderr));

    let future = script(&place, &SCANNER.replace("WRONG_PLACE", "0").replace("LATE", "(1 << 50)"));
    let broken = scan(&["--device", &future]);
    assert_eq!(broken.status.code(), Some(3));
    assert!(text(&broken.stderr).contains("in the future"), "{}", text(&broken.stderr));

    let elsewhere = script(&place, &SCANNER.replace("WRONG_PLACE", "1").replace("LATE", "0"));
    let load = ["simulate", "--workload", "random-write", "-n", "10", "--write-anywhere", "0.5", "--device"];
    let broken = place.run(&[&load[..], &[&elsewhere]].concat());
    assert_eq!(broken.status.code(), Some(3));
    assert!(text(&broken.stderr).contains("none of the places"), "{}", text(&broken.stderr));
}

/// A model whose class has this body besides a device.
fn script(place: &TestFolder, body: &str) -> String {
    let text = format!(
        "#!/usr/bin/env python3\nimport os, sys, time\nfrom chronodisk.model import *\n\n\
         class Bad(QueueModel):\n    device = Device(name='bad', capacity_sectors=4096)\n    \
         def end(self, request, start):\n        return start + 1000\n{body}\n\nserve(Bad)\n"
    );
    let path = place.path("bad.py");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("exec:{}", path.display())
}

#[test]
fn a_model_that_misbehaves_is_named_with_what_it_did() {
    if example("one_platter.py").is_none() {
        return;
    }
    let end = |body: &str| format!("    def end(self, request, start):\n        {body}");
    let advance = |body: &str| format!("    def advance(self, limit):\n        {body}");
    let cases = [
        (end("os._exit(7)"), "the program ended (exit status 7)"),
        (end("os.kill(os.getpid(), 9)"), "the program was killed by signal 9"),
        (end("time.sleep(1000)"), "no answer within 5s"),
        (end("return 1 // 0"), "the model raised ZeroDivisionError"),
        (advance("return [Completion(0, 0)]"), "in the past"),
        (advance("return [Completion(77, 5)]"), "it completes request 77, which it does not have"),
        (advance("return [Completion(0, 5), Completion(0, 5)]"), "it completes request 0 twice"),
        (advance("return [Completion(0, limit + 1)] if limit < 1 << 60 else []"), "which is no later"),
        (advance("return [Completion(0, (1 << 64) - 1)]"), "end of time"),
    ];
    for (body, reason) in cases {
        let place = TestFolder::new();
        let device = script(&place, &body);
        // Long enough for Python to start on a busy machine, where it is not waited for to the end.
        let timeout = if reason.starts_with("no answer") { "5s" } else { "120s" };
        let arguments = ["simulate", "--workload", "random-read", "-n", "10", "--answer-timeout", timeout];
        let output = place.run(&[&arguments[..], &["--device", &device]].concat());
        let stderr = text(&output.stderr);
        assert!(stderr.contains(reason), "'{reason}' is not in: {stderr}");
        assert!(stderr.contains("bad.py"), "{stderr}");
        assert_eq!(output.status.code(), Some(3), "{stderr}");
    }
}

#[test]
fn a_program_that_is_no_model_is_refused() {
    let place = TestFolder::new();
    for (command, reason) in [
        ("exec:./missing", "the program was not found"),
        ("exec:true", "the program ended (exit status 0)"),
        ("exec:cat /dev/zero", "kind 0x0000"),
        ("exec:sleep 1000", "no answer within 500ms"),
    ] {
        let arguments = ["simulate", "--workload", "random-read", "--answer-timeout", "500ms", "--device", command];
        let output = place.run(&arguments);
        assert_eq!(output.status.code(), Some(3), "{command}");
        assert!(text(&output.stderr).contains(reason), "'{reason}' is not in: {}", text(&output.stderr));
    }
    // Where a program can't be the model, its name is not taken for a profile's.
    let output = place.run(&["serve", "--device", "exec:true", "--nbd", "unix:socket"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("work with run and simulate only"), "{}", text(&output.stderr));
}

/// Whether a process is there and no zombie.
fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
}

fn within(most: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > most {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A model that starts another program, whose number it writes into a file.
fn model_with_a_child(place: &TestFolder) -> (String, PathBuf) {
    let Some(program) = example("one_platter.py") else { return Default::default() };
    let (script, number) = (place.path("parent.sh"), place.path("child"));
    let text = format!("#!/bin/sh\nsleep 1000 &\necho $! > {}\n{program}\n", number.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    (format!("exec:{}", script.display()), number)
}

#[test]
fn what_a_model_has_started_ends_with_it() {
    let place = TestFolder::new();
    let (device, number) = model_with_a_child(&place);
    if device.is_empty() {
        return;
    }
    let output = place.run(&["simulate", "--workload", "random-read", "-n", "10", "--device", &device]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let child = std::fs::read_to_string(number).unwrap();
    assert!(within(Duration::from_secs(5), || !is_alive(child.trim())), "process {child} is still there");
}

#[test]
fn what_a_model_has_started_ends_when_chronodisk_is_killed() {
    let place = TestFolder::new();
    let (device, number) = model_with_a_child(&place);
    if device.is_empty() {
        return;
    }
    let arguments = ["simulate", "--workload", "random-read", "-n", "100000000", "--device", &device];
    let mut client = place.chronodisk(&arguments).spawn().unwrap();
    let child = || std::fs::read_to_string(&number).unwrap_or_default().trim().to_owned();
    assert!(within(Duration::from_secs(60), || !child().is_empty()), "the model has not started");
    std::thread::sleep(Duration::from_millis(500));
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(within(Duration::from_secs(5), || !is_alive(&child())), "process {} is still there", child());
}

/// A profile of many dies of small blocks: 767 bytes that want 8 GB of tables.
const LARGE_FLASH: &str = r#"
name = "large"
kind = "ssd"
description = "x"
source = "x"
validation = "unvalidated"
capacity = "3600 GiB"
unwritten-read = "zeros"
flash = { channels = 8, chips-per-channel = 8, dies-per-chip = 1, planes-per-die = 4, blocks-per-plane = 1000, pages-per-block = 1000, page-size = "16 KiB", mapping-unit = "4 KiB", cells = "SLC", read = ["50 us"], program = ["300 us"], erase = "3 ms" }
bus = { rate = "400 MB/s" }
front = { interface = "nvme", queue-depth = 64, link-rate = "2 GB/s" }
buffer = { size = "16 MiB" }
translation = { allocation = "dynamic", collector = "greedy", collect-below = 8 }
"#;

#[test]
fn a_device_that_takes_more_memory_than_there_is_for_it_is_refused_before_it_is_built() {
    let place = TestFolder::new();
    let profile = place.path("large.toml");
    std::fs::write(&profile, LARGE_FLASH).unwrap();
    let server = Server::start(&place, &["--model-memory", "64 MiB", "--device", "constant-1ms"]);
    let simulate = ["simulate", "--workload", "random-read", "-n", "10", "--server", &server.address];
    let begun = Instant::now();
    // The client builds nothing of its own here that would take the memory.
    let output = place.run(&[&simulate[..], &["--device", profile.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("MiB of the server's memory; a device may have 64 MiB"), "{stderr}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(place.run(&simulate).status.success(), "the server serves others");
}

#[test]
fn the_first_sigterm_ends_a_server_whose_clients_are_at_work() {
    let place = TestFolder::new();
    let mut server = Server::start(&place, &["--device", "first-disk"]);
    let arguments = ["simulate", "--workload", "random-read", "-n", "100000000", "--reconnect-timeout", "500ms"];
    let clients: Vec<Child> = (0..3)
        .map(|_| place.chronodisk(&[&arguments[..], &["--server", &server.address]].concat()).spawn().unwrap())
        .collect();
    std::thread::sleep(Duration::from_millis(700));
    // SAFETY: no memory is involved; the process is our own child, which was not waited for.
    unsafe { libc::kill(server.child.id() as libc::pid_t, libc::SIGTERM) };
    let begun = Instant::now();
    assert!(server.child.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    for client in clients {
        assert_eq!(client.wait_with_output().unwrap().status.code(), Some(3));
    }
}

#[test]
fn beyond_the_loopback_interface_clients_have_to_be_known() {
    let place = TestFolder::new();
    let refused = place.run(&["emulator-server", "--listen", "0.0.0.0:0", "--device", "constant-1ms"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--token FILE"), "{}", text(&refused.stderr));
    // Encryption alone does not say who the client is.
    let certificates = certificates(&place);
    let refused = place.run(&["emulator-server", "--listen", "0.0.0.0:0", "--tls-certificates", &certificates]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let token = token(&place, "token", "0123456789abcdef");
    for known in
        [&["--insecure"][..], &["--token", &token], &["--tls-certificates", &certificates, "--tls-verify-peer"]]
    {
        let arguments = [&["emulator-server", "--listen", "0.0.0.0:0"], known].concat();
        let mut child = place.chronodisk(&arguments).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(line.starts_with("emulator server at"), "{line}");
    }
}

fn token(place: &TestFolder, name: &str, secret: &str) -> String {
    let path = place.path(name);
    std::fs::write(&path, secret).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// An authority with certificates for a server at 127.0.0.1 and for a client, in one directory.
fn certificates(place: &TestFolder) -> String {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let directory = place.path("certificates");
    std::fs::create_dir(&directory).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&key).unwrap();
    std::fs::write(directory.join("ca-cert.pem"), authority.pem()).unwrap();
    let issuer = Issuer::new(parameters, key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        std::fs::write(directory.join(format!("{name}-cert.pem")), certificate.pem()).unwrap();
        std::fs::write(directory.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
    }
    directory.to_str().unwrap().to_owned()
}

#[test]
fn a_token_lets_in_who_has_it_and_nobody_else() {
    let place = TestFolder::new();
    let (ours, other) = (token(&place, "ours", "0123456789abcdef"), token(&place, "other", "fedcba9876543210"));
    let server = Server::start(&place, &["--device", "first-disk", "--token", &ours]);
    let address = server.address.clone();
    let simulate = |with: &[&str]| {
        place.run(&[&["simulate", "--workload", "random-read", "-n", "100", "--server", &address], with].concat())
    };
    assert!(simulate(&["--server-token", &ours]).status.success());
    for (with, reason) in [
        (&[][..], "serves only clients with its token"),
        (&["--server-token", &other], "the client's token is not the server's"),
    ] {
        let refused = simulate(with);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(reason), "{}", text(&refused.stderr));
    }
    // A file that others can read is no secret.
    std::fs::set_permissions(&ours, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = simulate(&["--server-token", &ours]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("chmod 600"), "{}", text(&refused.stderr));
    let said = server.interrupt();
    assert!(!said.contains("0123456789abcdef") && said.contains("100 requests"), "{said}");
    // A server that does not show that it has the token is not the one that was meant.
    std::fs::set_permissions(&ours, std::fs::Permissions::from_mode(0o600)).unwrap();
    let stranger = Server::start(&place, &["--device", "first-disk"]);
    let arguments = ["simulate", "--workload", "random-read", "--server", &stranger.address, "--server-token", &ours];
    let refused = place.run(&arguments);
    assert!(text(&refused.stderr).contains("does not show that it has the token"), "{}", text(&refused.stderr));
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn with_certificates_both_sides_are_known_and_the_connection_is_encrypted() {
    let place = TestFolder::new();
    let both = certificates(&place);
    // The authority alone, without a certificate of the client's own.
    let anonymous = place.path("anonymous");
    std::fs::create_dir(&anonymous).unwrap();
    std::fs::copy(Path::new(&both).join("ca-cert.pem"), anonymous.join("ca-cert.pem")).unwrap();
    let anonymous = anonymous.to_str().unwrap();
    let server = ["--device", "first-disk", "--tls-certificates", &both, "--tls-verify-peer"];
    let server = Server::start(&place, &server);
    let simulate = |with: &[&str]| {
        let arguments = ["simulate", "--workload", "random-mixed", "-n", "300", "--answer-timeout", "2s"];
        place.run(&[&arguments[..], &["--server", &server.address], with].concat())
    };
    let served = simulate(&["--server-tls-certificates", &both]);
    assert!(served.status.success(), "{}", text(&served.stderr));
    for with in [&["--server-tls-certificates", anonymous][..], &[]] {
        let refused = simulate(with);
        assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_socket_in_the_file_system_is_local_and_leaves_nothing_behind() {
    let place = TestFolder::new();
    let path = place.path("socket");
    let address = format!("unix:{}", path.display());
    for _ in 0..2 {
        let server = Server::start_at(&place, &address, &["--device", "first-disk"]);
        assert_eq!(server.address, address);
        let served = place.run(&["simulate", "--workload", "random-read", "-n", "100", "--server", &address]);
        assert!(served.status.success(), "{}", text(&served.stderr));
        // The second server finds the socket of one that was killed.
        drop(server);
        assert!(path.exists());
    }
    let server = Server::start_at(&place, &address, &["--device", "first-disk"]);
    server.interrupt();
    assert!(!path.exists());
}
