//! Each process of a run that dies is named. The processes are found by looking, so that none can be forgotten.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::common::{Helper, Process, descendants, helpers_of, kill, row_of};
use super::support::{Chronodisk, has, processes_with, text};

const MODEL: &str = "one_platter.py";
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A run on a model in another process, whose program does I/O all the time.
struct Running {
    child: Child,
    mark: String,
}

impl Running {
    fn start(chronodisk: &Chronodisk, name: &str) -> Self {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
        let device = format!("exec:{}", python.join("examples").join(MODEL).display());
        let script = "echo ready >&2; while :; do dd if=/dev/zero of=/mnt/f bs=4k count=8 conv=fsync 2>/dev/null; done";
        let mark = format!("chronodisk-test-helpers-{name}-{}", std::process::id());
        let mut child = chronodisk
            .command(&["run", "--device", &device, "--capacity", "64MiB", "--json", "--", "sh", "-c", script])
            .env("PYTHONPATH", &python)
            .env("CHRONODISK_TEST_MARK", &mark)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.as_mut().unwrap());
        let mut seen = String::new();
        while !seen.contains("ready") {
            assert_ne!(lines.read_line(&mut seen).unwrap(), 0, "it ended before its program ran: {seen}");
        }
        Running { child, mark }
    }

    /// Its lasting processes by their rows, in the order of their numbers.
    fn processes(&self, helpers: &[Helper]) -> BTreeMap<String, Vec<Process>> {
        let mut found: BTreeMap<String, Vec<Process>> = BTreeMap::new();
        for process in descendants(self.child.id()) {
            found.entry(row_of(helpers, &process, Some(MODEL)).word.clone()).or_default().push(process);
        }
        found
    }

    /// Waits for the end. Returns the exit status, the result and the output.
    fn end(mut self, what: &str) -> (Option<i32>, Value, String) {
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if begun.elapsed() > ENDS_WITHIN {
                let _ = self.child.kill();
                panic!("{what}: the run goes on");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let (mut result, mut said) = (Vec::new(), Vec::new());
        self.child.stdout.take().unwrap().read_to_end(&mut result).unwrap();
        self.child.stderr.take().unwrap().read_to_end(&mut said).unwrap();
        while !processes_with(&self.mark).is_empty() {
            assert!(begun.elapsed() < ENDS_WITHIN, "{what}: processes are left");
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = self.child.wait().unwrap().code();
        (status, serde_json::from_slice(&result).unwrap_or_default(), text(&said))
    }
}

#[test]
fn each_process_of_a_run_that_dies_is_named_and_ends_the_run() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !has("python3", "python3") {
        return;
    }
    let helpers = helpers_of("run");
    let first = Running::start(&chronodisk, "first");
    let found = first.processes(&helpers);
    kill(first.child.id());
    first.end("the launcher itself");
    let there: Vec<&String> = found.keys().collect();
    assert_eq!(there.len(), helpers.len(), "docs/endings.md lists others than {there:?}");
    // Of the guest, the kernel and its own helpers; `endings.rs` tests the fate of its programs.
    let lasting = |processes: &Vec<Process>| processes.len().min(3);
    let victims: Vec<(&String, usize)> =
        found.iter().flat_map(|(word, processes)| (0..lasting(processes)).map(move |index| (word, index))).collect();
    for victims in victims.chunks(3) {
        let kill_one = |&(word, index): &(&String, usize)| {
            let what = format!("{word} {index}");
            let running = Running::start(&chronodisk, &format!("{}-{index}", word.replace([':', '.'], "-")));
            let victim = running.processes(&helpers)[word][index].clone();
            kill(victim.number);
            let (status, result, said) = running.end(&what);
            assert_eq!(status, Some(125), "{what}: {said}");
            assert_eq!(result["ended_by"], "chronodisk", "{what}: {said}");
            let row = helpers.iter().find(|row| row.word == *word).unwrap();
            assert!(row.messages.iter().any(|message| said.contains(message)), "{what}: {said}");
            assert!(
                row.messages.iter().any(|message| result["failure"].as_str().unwrap().contains(message)),
                "{result}"
            );
        };
        std::thread::scope(|threads| victims.iter().for_each(|victim| drop(threads.spawn(|| kill_one(victim)))));
    }
}
