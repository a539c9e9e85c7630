//! The MEMS profiles against the reference simulator's outputs, request by request.
//!
//! The outputs are in the folder `CHRONODISK_REFERENCE`, or beside the repository; a subset is in the repository.
//! Arrivals come from the file, and one request is outstanding at a time.
//!
//! With think times (mode t), the reference's own rounding decides the position of a sweeping sled. Every write and
//! every think time gives an idle time of a whole number of microseconds, which ends exactly on the edge between two
//! bits of the travel. Rounding of the double decides on which side the sled is found. The next response time then
//! differs by half a microsecond, the arrival of the request after it loses its fraction of a nanosecond, and a sweep
//! of 33 ns finds its sled elsewhere. So only the means are close if seeks in Y dominate.

#[path = "../testdata/reference.rs"]
mod reference;

use std::fs;
use std::path::PathBuf;

use chronodisk_device::{BuildOptions, DeviceModel, Profile, advance};
use chronodisk_importers::disksim::import;
use chronodisk_importers::disksim::lexer::SourceFile;
use chronodisk_sim::{Nanos, Op, RandomStream, Request};

/// A request with its times in the reference.
struct Line {
    arrival: Nanos,
    request: Request,
    response_ms: f64,
}

/// Comparison with one file.
struct Comparison {
    /// Requests within 1 % of the reference's response time.
    close: usize,
    requests: usize,
    /// Mean response times in milliseconds.
    mean: f64,
    reference_mean: f64,
}

#[test]
fn every_workload_is_served_as_the_reference_serves_it() {
    let directory = disks().join("ref");
    for device in ["g1", "g2"] {
        let mut files = 0;
        for kind in ["random", "mixed"] {
            for size in ["small", "uniform", "large"] {
                for (mode, percent) in [("z", 99), ("t", 75)] {
                    let path = directory.join(format!("mems.{device}-{kind}-{size}-{mode}-A.csv"));
                    if !path.exists() {
                        continue;
                    }
                    let comparison = compare(&format!("mems-{device}"), &read_lines(&path));
                    let (close, requests) = (comparison.close, comparison.requests);
                    let ratio = comparison.mean / comparison.reference_mean;
                    eprintln!(
                        "{device} {kind} {size} {mode}: {close} of {requests} within 1 %, means' ratio {ratio:.5}"
                    );
                    assert!(close * 100 >= requests * percent, "{}: {close} of {requests}", path.display());
                    assert!((ratio - 1.0).abs() < 0.002, "{}: {ratio}", path.display());
                    files += 1;
                }
            }
        }
        assert!(files >= 1, "no outputs for {device}");
    }
}

/// The supplied experiments (`memsvalid`): 10,000 requests of the published generator, 66 % reads, sizes exponential
/// around 8 blocks in steps of 8, exponential times of 50 ms between arrivals.
#[test]
fn the_supplied_experiments_have_their_published_means() {
    for (name, springs, places, published_ms) in [
        ("mems-g1", "75 %", 4_400_000, 2.01),
        ("mems-g1", "0 %", 4_400_000, 2.00),
        ("mems-g2", "75 %", 6_750_000, 1.16),
        ("mems-g2", "0 %", 6_750_000, 1.18),
    ] {
        let text =
            Profile::find(name).unwrap().text().replace("springs = \"75 %\"", &format!("springs = \"{springs}\""));
        let mut device = Profile::parse(&text, name).unwrap().build(&BuildOptions::default()).unwrap();
        let mut stream = RandomStream::new(1, "memsvalid", "requests");
        let mut exponential = move |mean: f64| -mean * (1.0 - stream.unit()).ln();
        let mut places_stream = RandomStream::new(1, "memsvalid", "places");
        let (mut arrival, mut total_ms, requests) = (0.0, 0.0, 10_000);
        let mut open = OpenLoop::default();
        for id in 0..requests {
            let blocks = 8 * ((exponential(8.0) / 8.0).ceil().max(1.0) as u32);
            let place = 8 * places_stream.below((places - u64::from(blocks)) / 8);
            let op = if places_stream.unit() < 0.66 { Op::Read } else { Op::Write };
            arrival += exponential(50.0);
            open.arrive(device.as_mut(), arrival, Request::new(id, op, place, blocks));
        }
        open.drain(device.as_mut());
        total_ms += open.total.as_millis_f64();
        let mean = total_ms / requests as f64;
        eprintln!("{name} with springs of {springs}: {mean:.4} ms, published {published_ms} ms");
        assert!((mean / published_ms - 1.0).abs() < 0.01, "{name}, springs {springs}: {mean} ms");
    }
}

/// The supplied experiments imported as they are, but without the buffer, which the profiles do not have either.
#[test]
fn the_supplied_experiments_are_imported_as_the_profiles() {
    let directory = disks();
    for device in ["g1", "g2"] {
        let read =
            |name: &str| fs::read_to_string(directory.join("valid").join(name)).map_err(|error| error.to_string());
        let label = format!("mems.{device}.parv");
        let top = SourceFile { text: read(&label).unwrap(), label };
        let mut resolve = |name: &str, _: &str| {
            assert_eq!(name, "memsdevices.specs");
            let text = read("memsdevices.g1g2.specs")?.replace("segments = 10", "segments = 0");
            Ok(SourceFile { label: name.to_owned(), text })
        };
        let import = import(top, &mut resolve).unwrap();
        assert_eq!(import.warnings, []);
        let text = import.to_profile(&import.describe()).unwrap();
        let imported = Profile::parse(&text, "imported").unwrap();
        let profile = Profile::find(&format!("mems-{device}")).unwrap();
        assert_eq!(imported.capacity_bytes(), profile.capacity_bytes());
        let lines = read_lines(&directory.join(format!("ref/mems.{device}-mixed-uniform-z-A.csv")));
        assert_eq!(responses(&imported, &lines), responses(&profile, &lines));
    }
}

/// Sums up response times of requests that may overlap.
#[derive(Default)]
struct OpenLoop {
    arrivals: Vec<Nanos>,
    total: Nanos,
}

impl OpenLoop {
    fn arrive(&mut self, device: &mut dyn DeviceModel, at_ms: f64, request: Request) {
        let at = Nanos::from_nanos((at_ms * 1e6) as u64);
        let mut completed = Vec::new();
        advance(device, at, &mut completed);
        self.arrivals.push(at);
        device.submit(request);
        self.count(&completed);
    }

    fn drain(&mut self, device: &mut dyn DeviceModel) {
        let mut completed = Vec::new();
        while device.outstanding() > 0 {
            device.step(Nanos::MAX, &mut completed);
        }
        self.count(&completed);
    }

    fn count(&mut self, completed: &[chronodisk_sim::Completion]) {
        for completion in completed {
            self.total += completion.at - self.arrivals[completion.id.0 as usize];
        }
    }
}

fn compare(profile: &str, lines: &[Line]) -> Comparison {
    let mut comparison = Comparison { close: 0, requests: lines.len(), mean: 0.0, reference_mean: 0.0 };
    for (line, response) in lines.iter().zip(responses(&Profile::find(profile).unwrap(), lines)) {
        let response_ms = response.as_millis_f64();
        comparison.close += usize::from((response_ms / line.response_ms - 1.0).abs() <= 0.01);
        comparison.mean += response_ms / lines.len() as f64;
        comparison.reference_mean += line.response_ms / lines.len() as f64;
    }
    comparison
}

/// Response times of one request after the other, arriving as in the file or as soon as the one before is over.
fn responses(profile: &Profile, lines: &[Line]) -> Vec<Nanos> {
    let mut device = profile.build(&BuildOptions::default()).unwrap();
    let mut completed = Vec::new();
    let mut response = |line: &Line| {
        let arrival = line.arrival.max(device.now());
        advance(device.as_mut(), arrival, &mut completed);
        device.submit(line.request);
        completed.clear();
        device.step(Nanos::MAX, &mut completed);
        completed[0].at - arrival
    };
    lines.iter().map(&mut response).collect()
}

/// Columns `arrival_ms,lbn,nblk,rw,think_us,resp_ms`.
fn read_lines(path: &PathBuf) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let line = |(id, line): (usize, &str)| {
        let fields: Vec<&str> = line.split(',').collect();
        let op = if fields[3] == "R" { Op::Read } else { Op::Write };
        Line {
            arrival: Nanos::from_nanos(nanos(fields[0])),
            request: Request::new(id as u64, op, fields[1].parse().unwrap(), fields[2].parse().unwrap()),
            response_ms: fields[5].parse().unwrap(),
        }
    };
    text.lines().skip(1).enumerate().map(line).collect()
}

/// Milliseconds with six decimals, exactly.
fn nanos(milliseconds: &str) -> u64 {
    let (whole, decimals) = milliseconds.split_once('.').unwrap();
    assert_eq!(decimals.len(), 6);
    whole.parse::<u64>().unwrap() * 1_000_000 + decimals.parse::<u64>().unwrap()
}

/// The folder of disks.
fn disks() -> PathBuf {
    reference::reference_folder().join("disks")
}
