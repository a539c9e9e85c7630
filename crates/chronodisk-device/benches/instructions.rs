//! Instructions per request, counted by valgrind's callgrind, with a gate that fails.
//!
//! ```console
//! $ cargo bench -p chronodisk-device --bench instructions
//! ```
//!
//! The program runs itself under valgrind with two numbers of requests; the difference is the cost of the requests
//! without set-up. Without valgrind it prints a notice. Requests per second are printed too, not gated.
//!
//! `make test` runs it as well, built with few optimisations and limits of its own: a tenth above the count at the time
//! of setting (rustc 1.95).

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use chronodisk_device::disk::{Disk, DiskParameters, Drive};
use chronodisk_device::{BuildOptions, DeviceInfo, DeviceModel, Profile};
use chronodisk_importers::disksim::{Imported, import_file};
use chronodisk_sim::{Op, RandomStream, Request};

/// A case: its name, blocks of a request, the device, most instructions a request; and without most optimisations.
struct Case {
    name: &'static str,
    sectors: u32,
    device: Device,
    most_instructions: u64,
    most_in_tests: u64,
}

impl Case {
    fn limit(&self) -> u64 {
        if cfg!(debug_assertions) { self.most_in_tests } else { self.most_instructions }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Device {
    /// The reference drive.
    Drive,
    /// The profile `first-disk`, stretched to 20 TB.
    Huge,
    /// The profile `mems-g2`.
    Mems,
}

/// The reference simulator takes 111,400 instructions for a random read of 4 KiB on this drive.
const CASES: [Case; 4] = [
    Case {
        name: "4 KiB random reads",
        sectors: 8,
        device: Device::Drive,
        most_instructions: 5_000,
        most_in_tests: 6_300,
    },
    Case {
        name: "128 KiB random reads",
        sectors: 256,
        device: Device::Drive,
        most_instructions: 11_140,
        most_in_tests: 12_400,
    },
    Case {
        name: "4 KiB random reads on 20 TB",
        sectors: 8,
        device: Device::Huge,
        most_instructions: 5_000,
        most_in_tests: 6_300,
    },
    Case {
        name: "4 KiB random reads on a MEMS sled",
        sectors: 8,
        device: Device::Mems,
        most_instructions: 11_140,
        most_in_tests: 10_000,
    },
];

/// The drive on which the reference simulator was counted.
const DRIVE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../chronodisk-importers/testdata/reference/disks/valid/cheetah9LP.parv");

const FEW: u64 = 2_000;
const MANY: u64 = if cfg!(debug_assertions) { 4_000 } else { 12_000 };

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [run, case, count] = arguments.as_slice()
        && run == "--run"
    {
        let case = &CASES[case.parse::<usize>().expect("a case's number")];
        return serve(case, count.parse().expect("a number of requests"));
    }
    let mut failed = false;
    for (index, case) in CASES.iter().enumerate() {
        let started = Instant::now();
        const TIMED: u64 = if cfg!(debug_assertions) { 10_000 } else { 200_000 };
        serve(case, TIMED);
        let per_second = TIMED as f64 / started.elapsed().as_secs_f64();
        let (Some(few), Some(many)) = (instructions(index, FEW), instructions(index, MANY)) else {
            println!("{}: {per_second:.0} requests/s; no valgrind, instructions are not counted", case.name);
            continue;
        };
        let each = (many - few) / (MANY - FEW);
        let verdict = if each <= case.limit() { "ok" } else { "FAILED" };
        failed |= each > case.limit();
        println!(
            "{}: {each} instructions a request, at most {}: {verdict}; {per_second:.0} requests/s",
            case.name,
            case.limit()
        );
    }
    if failed {
        std::process::exit(1);
    }
}

/// Instructions of a run of this program.
fn instructions(case: usize, count: u64) -> Option<u64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--run", &case.to_string(), &count.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

/// Adds cylinders to a drive until it holds 20 TB.
fn stretch(parameters: &mut DiskParameters) {
    const FACTOR: u32 = 2_200;
    let mut first = 0;
    for zone in &mut parameters.geometry.zones {
        let cylinders = (zone.last_cylinder - zone.first_cylinder + 1) * FACTOR;
        zone.first_cylinder = first;
        zone.last_cylinder = first + cylinders - 1;
        first += cylinders;
    }
    parameters.geometry.cylinders = first;
}

/// The case's device.
fn device(case: &Case) -> Box<dyn DeviceModel> {
    if case.device == Device::Mems {
        let profile = Profile::find("mems-g2").expect("a built-in profile");
        return profile.build(&BuildOptions::default()).expect("its own capacity fits");
    }
    let import = import_file(Path::new(DRIVE)).unwrap_or_else(|error| panic!("{error}"));
    let Imported::Disk(mut parameters) = import.device else { panic!("{DRIVE} is no disk") };
    if case.device == Device::Huge {
        stretch(&mut parameters);
    }
    let drive = Arc::new(Drive::new(&parameters).unwrap_or_else(|error| panic!("{error}")));
    let capacity_sectors = drive.capacity_blocks();
    let info = DeviceInfo {
        name: "drive".to_owned(),
        capacity_sectors,
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        volatile_cache: false,
        discard_unit_sectors: None,
        rotational: true,
        zones: None,
        torn_write_sectors: None,
    };
    Box::new(Disk::new(info, drive, 0))
}

/// Serves `count` requests, one after the other.
fn serve(case: &Case, count: u64) {
    let mut device = device(case);
    let capacity_sectors = device.info().capacity_sectors;
    let mut stream = RandomStream::new(1, "bench", "addresses");
    let mut completed = Vec::with_capacity(4);
    for id in 0..count {
        let lba = stream.below((capacity_sectors - u64::from(case.sectors)) / 8) * 8;
        device.submit(Request::new(id, Op::Read, lba, case.sectors));
        completed.clear();
        while completed.is_empty() {
            let next = device.next_event().expect("an outstanding request has an event before it");
            device.step(next, &mut completed);
        }
    }
}
