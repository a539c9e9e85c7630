//! Instructions per 4 KiB request on every built-in profile, counted by valgrind's callgrind, with bounds that fail.
//!
//! ```console
//! $ cargo bench -p chronodisk-engine --bench profile_instructions
//! $ cargo bench -p chronodisk-engine --bench profile_instructions -- cheetah-9lp nearline-20tb
//! ```
//!
//! Reads and writes, random and sequential, at depths 1 and 16, in the loop of `chronodisk simulate`. The program runs
//! itself under valgrind once. Callgrind writes its counts before the requests of a load and after them, so that
//! set-up does not count. Without valgrind it prints a notice.
//!
//! `make test` runs it as well, built with few optimisations and wider bounds.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::sim::{Issue, closed_loop_streaming};
use chronodisk_sim::{Nanos, Op, RandomStream, Request};

/// Most instructions per request, at depth 1 and at depth 16.
const MOST: [u64; 2] = [6_000, 9_000];

/// Profiles with bounds of their own, at most a tenth above the count (optimised) at the time of setting.
const EXCEPTIONS: [(&str, [u64; 2]); 12] = [
    // Several devices serve a request.
    ("raid5-eight-disks", [36_500, 44_500]),
    ("raid10-four-sleds", [26_500, 20_800]),
    // A write looks for a place on up to 17 tracks.
    ("cheetah-x15-eager", [29_000, 29_000]),
    // A write copies a block of flash pages.
    ("sd-card-class-10", [263_000, 263_000]),
    // 256 ranges in the write buffer.
    ("nearline-20tb", [7_300, 9_000]),
    ("nearline-20tb-smr", [7_500, 10_300]),
    ("nearline-20tb-hm", [7_300, 10_300]),
    // The seeks of a write's candidates look at more points of its curve.
    ("ibm-18es", [6_500, 9_000]),
    ("mqsim-default", [8_000, 9_300]),
    ("mems-g1", [7_500, 9_000]),
    ("mems-g2", [9_700, 9_000]),
    ("mems-g3", [9_500, 9_000]),
];

/// Requests before those that count: they fill the write buffer.
const WARM_UP: u64 = 500;
const COUNTED: u64 = 1_000;

#[derive(Clone, Copy)]
struct Load {
    op: Op,
    sequential: bool,
    depth: u32,
}

const LOADS: [Load; 8] = [
    Load { op: Op::Read, sequential: false, depth: 1 },
    Load { op: Op::Write, sequential: false, depth: 1 },
    Load { op: Op::Read, sequential: true, depth: 1 },
    Load { op: Op::Write, sequential: true, depth: 1 },
    Load { op: Op::Read, sequential: false, depth: 16 },
    Load { op: Op::Write, sequential: false, depth: 16 },
    Load { op: Op::Read, sequential: true, depth: 16 },
    Load { op: Op::Write, sequential: true, depth: 16 },
];

fn main() {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [run, profiles @ ..] = arguments.as_slice()
        && run == "--run"
    {
        return serve_all(profiles);
    }
    let Some(counts) = counts(&arguments) else {
        println!("SKIPPED: no valgrind to count instructions");
        return;
    };
    println!("{:<36} random: read, write; sequential: read, write; at depth 1, then at depth 16", "profile");
    let mut failed = 0;
    for (profile, counts) in &counts {
        let most = most(profile);
        let above = counts.iter().any(|&(load, count)| count > most[usize::from(LOADS[load].depth > 1)]);
        failed += u32::from(above);
        let figures: String = counts.iter().map(|(_, count)| format!("{count:>8}")).collect();
        let verdict = if above { "FAILED" } else { "ok" };
        println!("{profile:<36}{figures}  at most {} and {}: {verdict}", most[0], most[1]);
    }
    if failed > 0 || counts.is_empty() {
        eprintln!("{failed} profiles are above their bound");
        std::process::exit(1);
    }
}

fn most(profile: &str) -> [u64; 2] {
    let most = EXCEPTIONS.iter().find(|(name, _)| *name == profile).map_or(MOST, |&(_, most)| most);
    // With few optimisations the loop alone takes 3,000, and models at most half as many more (rustc 1.95).
    most.map(|most| if cfg!(debug_assertions) { most * 3 / 2 + 3_000 } else { most })
}

/// By profile: the load's index and instructions per request.
fn counts(profiles: &[String]) -> Option<BTreeMap<String, Vec<(usize, u64)>>> {
    let folder = tempfile::tempdir().expect("a folder for the counts");
    let output = Command::new("valgrind")
        // Callgrind counts each byte of a string instruction. From which length on the C library uses them depends on
        // the processor.
        .env(
            "GLIBC_TUNABLES",
            "glibc.cpu.x86_rep_movsb_threshold=0x10000000:glibc.cpu.x86_rep_stosb_threshold=0x10000000",
        )
        .args([
            "--tool=callgrind",
            "--dump-line=no",
            "--dump-before=*count_from_here*",
            "--dump-before=*count_to_here*",
        ])
        .arg(format!("--callgrind-out-file={}/counts", folder.path().display()))
        .arg(std::env::current_exe().ok()?)
        .arg("--run")
        .args(profiles)
        .output()
        .ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut counts = BTreeMap::<_, Vec<_>>::new();
    for (index, line) in String::from_utf8_lossy(&output.stdout).lines().enumerate() {
        let (profile, load) = line.split_once(' ').expect("a profile and a load");
        let load = load.parse().expect("the index of a load");
        // Each load has one part that ends before its requests and one that ends behind them.
        let count = total(&folder.path().join(format!("counts.{}", 2 * index + 2)));
        counts.entry(profile.to_owned()).or_default().push((load, count / COUNTED));
    }
    Some(counts)
}

/// The instructions of a part of callgrind's counts.
fn total(path: &Path) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(text.contains("count_to_here"), "{} ends elsewhere", path.display());
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    total.and_then(|total| total.trim().parse().ok()).expect("a total")
}

/// Serves each load on each profile, or on those that are named, and prints their order.
fn serve_all(names: &[String]) {
    for builtin in Profile::builtin() {
        if !names.is_empty() && !names.contains(&builtin.name) {
            continue;
        }
        let profile = Profile::find(&builtin.name).expect("a built-in profile");
        for (index, load) in LOADS.iter().enumerate() {
            let mut model = profile.build(&BuildOptions::default()).expect("its own capacity fits");
            if model.info().zones.is_some() && load.op == Op::Write {
                // Writes at random places are errors, and sequential ones need zones to be opened.
                continue;
            }
            let mut requests = Requests::new(*load, &*model);
            println!("{} {index}", builtin.name);
            requests.serve(&mut *model, WARM_UP);
            count_from_here(index);
            requests.serve(&mut *model, COUNTED);
            count_to_here(index);
        }
    }
}

/// Callgrind writes its counts when this is called, and begins anew.
#[inline(never)]
fn count_from_here(load: usize) {
    std::hint::black_box(load);
}

#[inline(never)]
fn count_to_here(load: usize) {
    std::hint::black_box(load + 1);
}

struct Requests {
    load: Load,
    addresses: RandomStream,
    blocks: u64,
    issued: u64,
}

impl Requests {
    fn new(load: Load, model: &dyn DeviceModel) -> Self {
        let blocks = model.info().capacity_sectors / 8;
        Requests { load, addresses: RandomStream::new(1, "bench", "addresses"), blocks, issued: 0 }
    }

    fn serve(&mut self, model: &mut dyn DeviceModel, count: u64) {
        let depth = self.load.depth;
        let issues = (0..count).map(|_| {
            let block = match self.load.sequential {
                true => self.issued % self.blocks,
                false => self.addresses.below(self.blocks),
            };
            self.issued += 1;
            Issue { request: Request::new(0, self.load.op, block * 8, 8), think: Nanos::ZERO }
        });
        let mut served = 0;
        closed_loop_streaming(model, issues, depth, |_| {
            served += 1;
            ControlFlow::Continue(())
        })
        .expect("all requests are inside of the device");
        assert_eq!(served, count);
    }
}
