//! A signal to the launcher ends the run regardless of the command's handlers, and no process remains.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::default_signals::with_default_signals;
use super::support::{Chronodisk, has, processes_with, text};

/// Longest end on a busy host. On a quiet one it takes 5 s for commands that ignore signals.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// A device whose second half never answers within a test. The guest's boot reads only the first half.
const HALF_ENDLESS: &str = "import time
from chronodisk.model import *
class HalfEndless(QueueModel):
    device = Device(name='half-endless', capacity_sectors=1 << 19)
    def end(self, request, start):
        if request.lba >= 1 << 18: time.sleep(1000)
        return start + 1000
serve(HalfEndless)
";

struct Running {
    child: Child,
    mark: String,
}

impl Running {
    /// `chronodisk run FLAGS --json -- sh -c SCRIPT` with a mark in its environment.
    fn start(chronodisk: &Chronodisk, name: &str, flags: &[&str], script: &str) -> Self {
        let mark = format!("chronodisk-test-signals-{name}-{}", std::process::id());
        let arguments = [&["run", "--json"], flags, &["--", "sh", "-c", script]].concat();
        let mut command = chronodisk.command(&arguments);
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
        command
            .env("CHRONODISK_TEST_MARK", &mark)
            .env("PYTHONPATH", python)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        with_default_signals(&mut command);
        Running { child: command.spawn().unwrap(), mark }
    }

    /// Waits until the command says that it is ready.
    fn wait_until_ready(&mut self) {
        let mut lines = BufReader::new(self.child.stderr.as_mut().unwrap());
        let mut seen = String::new();
        while !seen.contains("ready") {
            assert_ne!(lines.read_line(&mut seen).unwrap(), 0, "it ended before its program ran: {seen}");
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a number and a signal, to a child that was not waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Waits for the end, after which nothing of the run may be left.
    fn end(mut self) -> Ended {
        let begun = Instant::now();
        let (mut stdout, mut stderr) = (self.child.stdout.take().unwrap(), self.child.stderr.take().unwrap());
        let reads = std::thread::spawn(move || {
            let (mut result, mut said) = (Vec::new(), Vec::new());
            stdout.read_to_end(&mut result).unwrap();
            stderr.read_to_end(&mut said).unwrap();
            (result, text(&said))
        });
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::sleep(PAUSE),
            }
            if begun.elapsed() > ENDS_WITHIN {
                let _ = self.child.kill();
                panic!("{}: it goes on", self.mark);
            }
        };
        let (result, said) = reads.join().unwrap();
        while !processes_with(&self.mark).is_empty() {
            assert!(begun.elapsed() < ENDS_WITHIN, "{}: processes are left", self.mark);
            std::thread::sleep(PAUSE);
        }
        Ended { status, result: serde_json::from_slice(&result).unwrap_or_default(), said }
    }
}

struct Ended {
    status: ExitStatus,
    result: Value,
    said: String,
}

#[test]
fn one_signal_ends_a_command_that_is_stopped_or_ignores_it() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let ignores = "trap '' TERM INT HUP; echo ready >&2";
    let (term, int, hup) = (libc::SIGTERM, libc::SIGINT, libc::SIGHUP);
    let cases = [
        ("stopped", term, "echo ready >&2; kill -STOP $$; sleep 1".to_owned()),
        ("stopped-child", int, "echo ready >&2; sh -c 'kill -STOP $$'".to_owned()),
        ("deaf", term, format!("{ignores}; while :; do sleep 1; done")),
        ("deaf-int", int, format!("{ignores}; while :; do :; done")),
        ("deaf-hup", hup, format!("{ignores}; sleep 100000000")),
        ("daemon", term, format!("setsid sh -c '{ignores}; while :; do echo x > /mnt/f; done' & wait")),
        ("double-fork", term, format!("{ignores}; (setsid sh -c 'while :; do :; done' &) & while :; do sleep 9; done")),
        ("forks", term, format!("f() {{ (f) & }}; {ignores}; f; while :; do sleep 1; done")),
        ("ends-otherwise", term, "trap 'exit 7' TERM; echo ready >&2; while :; do :; done".to_owned()),
    ];
    // At the same time: most take five seconds, in which they do little.
    for cases in cases.chunks(5) {
        let run = |(name, _, script): &(&str, i32, String)| Running::start(&chronodisk, name, &DEVICE, script);
        let mut all: Vec<Running> = cases.iter().map(run).collect();
        for (running, (_, signal, _)) in all.iter_mut().zip(cases) {
            running.wait_until_ready();
            running.signal(*signal);
        }
        for (running, (name, signal, _)) in all.into_iter().zip(cases) {
            let ended = running.end();
            let status = if *name == "ends-otherwise" { 7 } else { 128 + signal };
            assert_eq!(ended.status.code(), Some(status), "{name}: {}", ended.said);
            assert_eq!(ended.result["ended_by"], "signal", "{name}: {}", ended.result);
            // It ended in order: the file system was unmounted, and the measurements are kept.
            assert_eq!(ended.result["reps"][0]["exit_status"], status, "{name}: {}", ended.result);
            let names = [(term, "SIGTERM"), (int, "SIGINT"), (hup, "SIGHUP")];
            let named = names.into_iter().find(|(number, _)| number == signal).unwrap().1;
            assert!(ended.said.contains(&format!("{named} ended the run")), "{name}: {}", ended.said);
        }
    }
}

const DEVICE: [&str; 4] = ["--device", "null", "--capacity", "256MiB"];

#[test]
fn a_second_signal_ends_the_run_at_once_and_timeouts_pair_is_one() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let script = "trap '' TERM; echo ready >&2; while :; do sleep 1; done";
    let mut running = Running::start(&chronodisk, "second", &DEVICE, script);
    running.wait_until_ready();
    running.signal(libc::SIGTERM);
    std::thread::sleep(Duration::from_millis(300));
    running.signal(libc::SIGINT);
    let ended = running.end();
    assert_eq!((ended.status.code(), &ended.result["ended_by"]), (Some(143), &"signal".into()), "{}", ended.said);
    assert_eq!(ended.result["reps"].as_array().map(Vec::len), Some(0), "it did not wait for its command");
    // timeout(1) signals its child and then the child's group.
    let script = "trap 'exit 9' TERM; echo ready >&2; sleep 1000000000 & wait";
    let mut running = Running::start(&chronodisk, "pair", &DEVICE, script);
    running.wait_until_ready();
    running.signal(libc::SIGTERM);
    running.signal(libc::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.result["reps"][0]["exit_status"], ended.status.code().unwrap(), "{}", ended.said);
    assert_eq!(ended.status.code(), Some(9), "{}", ended.said);
}

#[test]
fn a_guest_that_waits_for_its_device_is_ended() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !has("python3", "python3") {
        return;
    }
    let model = chronodisk.path("half_endless.py");
    std::fs::write(&model, HALF_ENDLESS).unwrap();
    let device = format!("exec:python3 {}", model.display());
    let store = chronodisk.path("disk.img");
    let slow = ["--device", &device, "--answer-timeout", "900s", "--memory", "128MiB"];
    let with = |more: &[&'static str]| [&slow[..], more].concat();
    // A read that waits in the guest's kernel, alone and below a shell that ignores signals.
    let read = "dd if=/dev/vda of=/dev/null bs=4k count=1 skip=40000 iflag=direct 2>/dev/null";
    let reads = format!("echo ready >&2; sleep 1; exec {read}");
    let ignores = format!("trap '' TERM; echo ready >&2; sleep 1; {read} & wait; wait");
    // mkfs waits for the device, and the new store goes.
    let makes = [&with(&["--fs", "ext4"])[..], &["--store", store.to_str().unwrap()]].concat();
    let mut reading = Running::start(&chronodisk, "reads", &with(&["--fs", "none"]), &reads);
    let mut ignoring = Running::start(&chronodisk, "ignores-read", &with(&["--fs", "none"]), &ignores);
    let making = Running::start(&chronodisk, "mkfs", &makes, "true");
    for running in [&mut reading, &mut ignoring] {
        running.wait_until_ready();
    }
    std::thread::sleep(Duration::from_secs(2));
    let all = [reading, ignoring, making];
    all.iter().for_each(|running| running.signal(libc::SIGTERM));
    for running in all {
        let name = running.mark.clone();
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(143), "{name}: {}", ended.said);
        assert!(ended.said.contains("SIGTERM ended the run"), "{name}: {}", ended.said);
    }
    assert!(!store.exists(), "a store that was made for a run that did not begin");
}

#[test]
fn a_signal_between_repetitions_keeps_those_before() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let output = chronodisk.path("run");
    let flags = [&DEVICE[..], &["--reps", "1000", "--output", output.to_str().unwrap()]].concat();
    for (index, wait) in [0, 40, 90].into_iter().enumerate() {
        let _ = std::fs::remove_dir_all(&output);
        let running = Running::start(&chronodisk, &format!("reps-{index}"), &flags, "true");
        let begun = Instant::now();
        while !output.join("result.json").exists() {
            assert!(begun.elapsed() < ENDS_WITHIN, "no repetition ends");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(wait));
        running.signal(libc::SIGTERM);
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(143), "{}", ended.said);
        let kept: Value = serde_json::from_slice(&std::fs::read(output.join("result.json")).unwrap()).unwrap();
        assert_eq!(kept["ended_by"], "signal", "{kept}");
        let reps = kept["reps"].as_array().unwrap().len();
        assert!(reps >= 1 && output.join(format!("requests-{}.parquet", reps - 1)).exists(), "{reps}");
        assert!(!output.join(format!("requests-{reps}.parquet")).exists());
    }
}

#[test]
fn a_signal_while_a_model_is_awaited_ends_the_run() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // A model that never describes itself.
    let device = ["--device", "exec:sleep 1000", "--answer-timeout", "500s"];
    let running = Running::start(&chronodisk, "silent", &device, "true");
    std::thread::sleep(Duration::from_secs(2));
    running.signal(libc::SIGTERM);
    let ended = running.end();
    // No process but the model's has been started, so nothing need be caught.
    let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
    assert_eq!(signal.map(|signal| 128 + signal).or(ended.status.code()), Some(143), "{}", ended.said);
}

/// Data flushed before the signal is in the store, regardless of the command's handlers.
#[test]
fn a_store_keeps_what_was_flushed_before_the_signal() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let store = chronodisk.path("disk.img");
    let flags = ["--device", "constant-1ms", "--capacity", "64MiB", "--store", store.to_str().unwrap()];
    let script = "trap '' TERM; echo kept > /mnt/f; sync; echo ready >&2; while :; do echo more >> /mnt/g; done";
    let mut running = Running::start(&chronodisk, "store", &flags, script);
    running.wait_until_ready();
    running.signal(libc::SIGTERM);
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(143), "{}", ended.said);
    let again = [&flags[2..], &["--fs", "existing", "--check", "-q"]].concat();
    let output = chronodisk.run("constant-1ms", &again, &["cat", "/mnt/f"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "kept\n".to_owned()),
        "{}",
        text(&output.stderr)
    );
}
