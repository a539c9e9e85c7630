//! Instructions of a flash drive's work, counted by valgrind's callgrind, with gates that fail.
//!
//! ```console
//! $ cargo bench -p chronodisk-device --bench ssd_instructions
//! ```
//!
//! The program runs itself under valgrind with two amounts of work; the difference is the cost without set-up. Without
//! valgrind it prints a notice. Processor time is printed too, not gated.
//!
//! `make test` runs it as well, built with few optimisations and limits of its own: a tenth above the count at the time
//! of setting (rustc 1.95). Writes are omitted then, because their set-up takes long.

use std::process::Command;
use std::time::Instant;

use chronodisk_device::{BuildOptions, DeviceModel, Probe, Profile};
use chronodisk_sim::{Completion, Nanos, Op, RandomStream, Request};

/// A case: its name, its unit, and the most instructions per unit, with full and, if counted, with few optimisations.
struct Case {
    name: &'static str,
    of: &'static str,
    most_instructions: u64,
    most_in_tests: Option<u64>,
    few: u64,
    many: u64,
    serve: fn(u64) -> u64,
}

impl Case {
    fn limit(&self) -> Option<u64> {
        if cfg!(debug_assertions) { self.most_in_tests } else { Some(self.most_instructions) }
    }

    fn many(&self) -> u64 {
        if cfg!(debug_assertions) { 2 * self.few } else { self.many }
    }
}

/// MQSim takes 53,600 instructions for a random read of 4 KiB at depth 16, SimpleSSD 64,600.
const CASES: [Case; 4] = [
    Case {
        name: "4 KiB random reads at depth 16",
        of: "request",
        most_instructions: 5_000,
        most_in_tests: Some(6_600),
        few: 5_000,
        many: 25_000,
        serve: reads,
    },
    Case {
        name: "4 KiB random writes in steady state",
        of: "flash page programmed",
        most_instructions: 10_000,
        most_in_tests: None,
        few: 100_000,
        many: 200_000,
        serve: writes,
    },
    Case {
        name: "fork, predict a read, drop on 4 TB",
        of: "fork",
        most_instructions: 25_000,
        most_in_tests: Some(29_500),
        few: 1_000,
        many: 6_000,
        serve: forks_of_reads,
    },
    Case {
        name: "fork, predict a write, drop on 4 TB",
        of: "fork",
        most_instructions: 45_000,
        most_in_tests: Some(50_300),
        few: 1_000,
        many: 6_000,
        serve: forks_of_writes,
    },
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [run, case, count] = arguments.as_slice()
        && run == "--run"
    {
        let case = &CASES[case.parse::<usize>().expect("a case's number")];
        println!("{}", (case.serve)(count.parse().expect("an amount of work")));
        return;
    }
    let mut failed = false;
    for (index, case) in CASES.iter().enumerate() {
        let Some(limit) = case.limit() else { continue };
        let (set_up, few) = timed(case, case.few);
        let (all, many) = timed(case, case.many());
        let micros = (all - set_up) * 1e6 / (many - few) as f64;
        let (Some(some), Some(more)) = (instructions(index, case.few), instructions(index, case.many())) else {
            println!("{}: {micros:.3} us a {}; SKIPPED: no valgrind to count instructions", case.name, case.of);
            continue;
        };
        let each = (more - some) / (many - few);
        let verdict = if each <= limit { "ok" } else { "FAILED" };
        failed |= each > limit;
        println!("{}: {each} instructions a {}, at most {limit}: {verdict}; {micros:.3} us", case.name, case.of);
    }
    if failed {
        std::process::exit(1);
    }
}

/// Seconds of processor time, and the work done in them.
fn timed(case: &Case, count: u64) -> (f64, u64) {
    let begun = (Instant::now(), processor_nanos());
    let done = (case.serve)(count);
    let seconds = match (begun.1, processor_nanos()) {
        (Some(before), Some(after)) => (after - before) as f64 / 1e9,
        _ => begun.0.elapsed().as_secs_f64(),
    };
    (seconds, done)
}

/// Processor time of this program, where the system reports it: unlike elapsed time, it does not grow with the
/// machine's other load.
fn processor_nanos() -> Option<u64> {
    std::fs::read_to_string("/proc/self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
}

/// Makes the C library copy with vector instructions: callgrind counts each byte of a string instruction as one, and
/// the processor decides from which length they are used.
const COPY_BY_VECTORS: &str =
    "glibc.cpu.x86_rep_movsb_threshold=0x10000000:glibc.cpu.x86_rep_stosb_threshold=0x10000000";

/// Instructions of a run of this program.
fn instructions(case: usize, count: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .env("GLIBC_TUNABLES", COPY_BY_VECTORS)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["--run", &case.to_string(), &count.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().find_map(|line| line.split_once("Collected :"))?.1.trim().parse().ok()
}

fn build(name: &str, capacity_bytes: Option<u64>) -> Box<dyn DeviceModel> {
    let profile = Profile::find(name).expect("a built-in profile");
    profile.build(&BuildOptions { capacity_bytes, ..BuildOptions::default() }).expect("it fits")
}

/// Keeps requests of 4 KiB outstanding, and returns how many were answered.
fn closed_loop(drive: &mut dyn DeviceModel, depth: u64, count: u64, op: Op) -> u64 {
    let mut stream = RandomStream::new(1, "bench", "addresses");
    let blocks = drive.info().capacity_sectors / 8;
    let mut completed: Vec<Completion> = Vec::with_capacity(64);
    let (mut submitted, mut answered) = (0, 0);
    while answered < count {
        while submitted < count && u64::from(drive.outstanding()) < depth {
            drive.submit(Request::new(submitted, op, stream.below(blocks) * 8, 8));
            submitted += 1;
        }
        let next = drive.next_event().expect("an outstanding request has an event before it");
        completed.clear();
        drive.step(next, &mut completed);
        answered += completed.len() as u64;
    }
    answered
}

fn reads(count: u64) -> u64 {
    closed_loop(build("wd-zn540", None).as_mut(), 16, count, Op::Read)
}

/// Pages that a drive has programmed.
struct Pages(u64);

impl Probe for Pages {
    fn counter(&mut self, name: &str, value: u64) {
        if name == "flash-pages-programmed" {
            self.0 = value;
        }
    }
    fn gauge(&mut self, _name: &str, _unit: &str, _value: f64) {}
}

/// Writes to a small drive whose space is used up after a quarter of the fewest requests.
fn writes(count: u64) -> u64 {
    let drive = &mut *build_text(&small_drive());
    closed_loop(drive, 32, count, Op::Write);
    let mut pages = Pages(0);
    drive.probe(&mut pages);
    pages.0
}

/// MQSim's default set-up with fewer blocks, all in memory.
fn small_drive() -> String {
    let profile = Profile::find("mqsim-ideal-mapping").expect("a built-in profile");
    profile
        .text()
        .replace("\nblocks-per-plane = 64", "\nblocks-per-plane = 16")
        .replace("\npages-per-block = 256", "\npages-per-block = 16")
        .replace("\nmapping-unit = \"8 KiB\"", "\nmapping-unit = \"4 KiB\"")
        .replace("\ncapacity = \"12 GiB\"", "\ncapacity = \"150 MiB\"")
        .replace("\nallocation = \"CWDP\"", "\nallocation = \"dynamic\"")
}

fn build_text(text: &str) -> Box<dyn DeviceModel> {
    let profile = Profile::parse(text, "bench").unwrap_or_else(|error| panic!("{error}"));
    profile.build(&BuildOptions::default()).expect("it fits")
}

fn forks_of_reads(count: u64) -> u64 {
    forks(count, Op::Read)
}

fn forks_of_writes(count: u64) -> u64 {
    forks(count, Op::Write)
}

/// A server's prediction: a fork is stepped to the first completion and dropped; then a request comes.
fn forks(count: u64, op: Op) -> u64 {
    let mut drive = build("samsung-pm9a3", None);
    let mut stream = RandomStream::new(1, "bench", "forks");
    let blocks = drive.info().capacity_sectors / 8;
    let mut completed = Vec::with_capacity(64);
    for id in 0..count {
        drive.submit(Request::new(id, op, stream.below(blocks) * 8, 8));
        let mut fork = drive.fork();
        completed.clear();
        fork.step(Nanos::from_secs(1), &mut completed);
        drop(fork);
        let until = drive.now() + Nanos::from_micros(20);
        drive.step(until, &mut completed);
    }
    count
}
