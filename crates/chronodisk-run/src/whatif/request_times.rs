//! `chronodisk whatif calibrate`: times of a device's requests.

use std::fmt::Write;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use chronodisk_device::Speed;
use chronodisk_guest::FileSystem;
use chronodisk_native::{self as native, Disk, Requests};
use chronodisk_sim::{Nanos, SECTOR_BYTES};
use clap::Args;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

use super::WAY;
use super::result::host_load;
use crate::arguments::DeviceOptions;
use crate::failure::Failure;
use crate::native::{DeviceArguments, native_failure, serve_native};
use crate::quantity;
use crate::times::now_rfc3339;

const SCHEMA: &str = "chronodisk.whatif-calibration/1";
const SIZES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10, 1 << 20];
/// A part of this size is used, of smaller devices all.
const PART_BYTES: u64 = 256 << 20;
/// Faster than a device that `whatif` should be believed about.
const FAST_BYTES_PER_S: f64 = 1e9;
/// Number of rounds of requests of each kind; their means are compared.
const ROUNDS: u32 = 5;
const SPREAD_MAX: f64 = 0.1;

/// Options of a measurement of requests.
#[derive(Debug, Args)]
pub struct RequestTimesArguments {
    /// Selects the device: a name from `chronodisk devices`, or a profile file
    #[arg(long, short, value_name = "PROFILE", required_unless_present = "on_path")]
    pub device: Option<String>,

    /// Measures this host's own disk: in a file of 256 MiB without a name in this directory, or, with reads only,
    /// this block device
    #[arg(long = "on", id = "on_path", value_name = "PATH", conflicts_with_all = ["device", "device_speed"])]
    pub on_path: Option<PathBuf>,

    /// Sets the speed of the device relative to its profile, such as 2x or 0.5x (default: 1x)
    #[arg(long, value_name = "FACTOR", value_parser = quantity::device_speed)]
    pub device_speed: Option<Speed>,

    /// Makes N requests of each kind
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(5..=1_000_000))]
    pub requests: u32,

    /// Seeds all random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct RequestTimes {
    schema: &'static str,
    chronodisk_version: &'static str,
    started_at: String,
    device: String,
    device_speed: f64,
    /// Load of the host (1 min) at the beginning and the end.
    load: [Option<f64>; 2],
    rows: Vec<Row>,
    /// Reservations about the figures.
    pub warnings: Vec<String>,
}

/// A kind of requests.
#[derive(Clone, Copy, Debug, Serialize)]
struct Row {
    request_bytes: u64,
    direction: &'static str,
    pattern: &'static str,
    requests: u32,
    mean_us: f64,
    deviation_us: f64,
    median_us: f64,
    bytes_per_s: f64,
    /// Range of the rounds' means, as a share of the mean.
    spread: f64,
}

/// Measures the times of requests. `executable` is the program of the helper processes; `progress` is called with the
/// number of kinds of requests before the first, and after each.
pub fn measure_requests(
    arguments: &RequestTimesArguments,
    executable: &Path,
    progress: &mut dyn FnMut(Measuring),
) -> Result<RequestTimes, Failure> {
    let mut times = RequestTimes {
        schema: SCHEMA,
        chronodisk_version: env!("CARGO_PKG_VERSION"),
        started_at: now_rfc3339(),
        device: String::new(),
        device_speed: arguments.device_speed.unwrap_or_default().factor(),
        load: [host_load(), None],
        rows: Vec::new(),
        warnings: Vec::new(),
    };
    let mut measurement = Measurement { arguments, executable, progress, times: &mut times };
    match (&arguments.device, &arguments.on_path) {
        (Some(name), _) => measurement.emulated(name)?,
        (None, Some(path)) => measurement.on_disk(path)?,
        (None, None) => unreachable!("one of both is required"),
    }
    times.load[1] = host_load();
    times.warn();
    Ok(times)
}

/// Progress of a measurement.
#[derive(Clone, Copy, Debug)]
pub enum Measuring {
    /// Called at the beginning, with the number of kinds of requests.
    Kinds(u64),
    /// A kind is measured.
    Kind,
}

/// A measurement under way.
struct Measurement<'a> {
    arguments: &'a RequestTimesArguments,
    executable: &'a Path,
    progress: &'a mut dyn FnMut(Measuring),
    times: &'a mut RequestTimes,
}

impl Measurement<'_> {
    fn emulated(&mut self, name: &str) -> Result<(), Failure> {
        let on = DeviceArguments {
            device: DeviceOptions {
                capacity: None,
                state: None,
                device_speed: self.arguments.device_speed,
                limit: None,
                fault: Vec::new(),
                seed: self.arguments.seed,
            },
            fs: FileSystem::None,
            mount: PathBuf::from("/mnt"),
            mkfs_options: None,
            mount_options: None,
            scheduler: "none".to_owned(),
            setup: None,
            ram_budget: None,
        };
        let device = on.load(name)?;
        device.name().clone_into(&mut self.times.device);
        let mut server = serve_native(&on, &device, self.arguments.seed)?;
        let info = device.info();
        let size_bytes = info.capacity_sectors * SECTOR_BYTES;
        let attached = native::attach(&mut server, info, false, WAY, &on.scheduler, self.executable);
        let attached = attached.map_err(native_failure);
        let measured = attached.and_then(|attachment| self.measure(attachment.path(), size_bytes, true));
        let outcome = server.stop();
        if outcome.statistics.panics > 0 || outcome.close_error.is_some() {
            return measured.and(Err(Failure::host("the device failed")));
        }
        measured
    }

    fn on_disk(&mut self, path: &Path) -> Result<(), Failure> {
        self.times.device = Disk::under(path).map_err(native_failure)?.path().display().to_string();
        let refused = |error: std::io::Error| Failure::host(format!("{}: {error}", path.display()));
        let metadata = fs::metadata(path).map_err(refused)?;
        if metadata.file_type().is_block_device() {
            return self.measure(path, PART_BYTES, false);
        }
        if !metadata.is_dir() {
            return Err(Failure::usage(format!(
                "--on {}: expected a directory or a block device; requests go to a file of their own",
                path.display()
            )));
        }
        // An unnamed file, which is deleted with this process for any cause.
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| refused(errno.into()))?;
        let file_path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        // Written first: reads of unwritten ranges need no disk.
        let fill = Requests {
            path: file_path.clone(),
            size_bytes: PART_BYTES,
            request_bytes: 1 << 20,
            writes: true,
            random: false,
            count: (PART_BYTES >> 20) as u32,
            seed: self.arguments.seed,
        };
        fill.measure(self.executable).map_err(native_failure)?;
        self.measure(&file_path, PART_BYTES, true)
    }

    fn measure(&mut self, path: &Path, size: u64, may_write: bool) -> Result<(), Failure> {
        let directions: &[bool] = if may_write { &[false, true] } else { &[false] };
        let kinds = directions.iter().flat_map(|writes| [false, true].map(|random| (*writes, random)));
        let kinds: Vec<_> = kinds.flat_map(|(writes, random)| SIZES.map(|bytes| (writes, random, bytes))).collect();
        (self.progress)(Measuring::Kinds(kinds.len() as u64));
        for (writes, random, request_bytes) in kinds {
            let size_bytes = size.min(PART_BYTES);
            if request_bytes <= size_bytes {
                let (path, count, seed) = (path.to_owned(), self.arguments.requests, self.arguments.seed);
                let requests = Requests { path, size_bytes, request_bytes, writes, random, count, seed };
                self.times.rows.push(Row::of(&requests, &requests.measure(self.executable).map_err(native_failure)?));
            }
            (self.progress)(Measuring::Kind);
        }
        Ok(())
    }
}

impl Row {
    fn of(requests: &Requests, times: &[Nanos]) -> Self {
        let micros: Vec<f64> = times.iter().map(|time| time.as_nanos() as f64 / 1e3).collect();
        let mean_us = mean(&micros);
        let squares = micros.iter().map(|time| (time - mean_us).powi(2)).sum::<f64>();
        let mut sorted = micros.clone();
        sorted.sort_by(f64::total_cmp);
        let means = micros.chunks(micros.len().div_ceil(ROUNDS as usize)).map(mean);
        let (least, most) = means.fold((f64::MAX, 0.0_f64), |(least, most), mean| (least.min(mean), most.max(mean)));
        Row {
            request_bytes: requests.request_bytes,
            direction: if requests.writes { "write" } else { "read" },
            pattern: if requests.random { "random" } else { "sequential" },
            requests: requests.count,
            mean_us,
            deviation_us: (squares / (micros.len() - 1) as f64).sqrt(),
            median_us: sorted[sorted.len() / 2],
            bytes_per_s: requests.request_bytes as f64 / mean_us * 1e6,
            spread: (most - least) / mean_us,
        }
    }

    fn name(&self) -> String {
        format!("{} {}s of {} KiB", self.pattern, self.direction, self.request_bytes >> 10)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl RequestTimes {
    fn warn(&mut self) {
        let worst = |of: fn(&Row) -> f64| self.rows.iter().max_by(|a, b| of(a).total_cmp(&of(b)));
        let fast = worst(|row| row.bytes_per_s).filter(|row| row.bytes_per_s > FAST_BYTES_PER_S).map(|row| {
            format!(
                "{}: {:.1} GB/s; rates above 1 GB/s come from a cache of the host, or cost the processor \
                 as much as the device: predictions say little",
                row.name(),
                row.bytes_per_s / 1e9
            )
        });
        let uneven = self.rows.iter().filter(|row| row.spread > SPREAD_MAX).count();
        let spread = worst(|row| row.spread).filter(|row| row.spread > SPREAD_MAX).map(|row| {
            format!(
                "the time of {uneven} of {} kinds of requests varies by over 10 % from one round to the next ({}: by \
                 {:.0} %): predictions can't be better than that",
                self.rows.len(),
                row.name(),
                row.spread * 100.0
            )
        });
        self.warnings = [fast, spread].into_iter().flatten().collect();
    }

    /// The table for people.
    pub fn render(&self) -> String {
        let mut text = format!("{} at {}x, one request at a time\n", self.device, self.device_speed);
        text += "direction  pattern     KiB    mean us  deviation  median us      MB/s  spread\n";
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{:9}  {:10} {:4} {:10.1} {:10.1} {:10.1} {:9.1} {:5.1} %",
                row.direction,
                row.pattern,
                row.request_bytes >> 10,
                row.mean_us,
                row.deviation_us,
                row.median_us,
                row.bytes_per_s / 1e6,
                row.spread * 100.0
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(micros: &[u64], request_bytes: u64) -> Row {
        let requests = Requests {
            path: PathBuf::new(),
            size_bytes: PART_BYTES,
            request_bytes,
            writes: false,
            random: true,
            count: micros.len() as u32,
            seed: 1,
        };
        Row::of(&requests, &micros.iter().map(|micros| Nanos::from_micros(*micros)).collect::<Vec<_>>())
    }

    fn warnings(rows: Vec<Row>) -> String {
        let mut calibration = RequestTimes {
            schema: SCHEMA,
            chronodisk_version: "",
            started_at: String::new(),
            device: "disk".to_owned(),
            device_speed: 1.0,
            load: [None, None],
            rows,
            warnings: Vec::new(),
        };
        calibration.warn();
        calibration.warnings.join("\n")
    }

    #[test]
    fn mean_deviation_and_spread_are_those_of_the_requests() {
        let row = row(&[90, 110, 90, 110, 90, 110, 90, 110, 90, 110], 4096);
        assert_eq!((row.mean_us, row.median_us, row.spread), (100.0, 110.0, 0.0));
        assert!((row.deviation_us - 10.540_9).abs() < 1e-3, "{row:?}");
        assert!((row.bytes_per_s - 40.96e6).abs() < 1.0, "{row:?}");
    }

    #[test]
    fn what_should_not_be_believed_says_so() {
        let (even, fast, uneven) =
            (row(&[100; 10], 4096), row(&[100; 10], 1 << 20), row(&[80, 90, 100, 110, 120], 4096));
        assert_eq!(warnings(vec![even]), "");
        assert!(warnings(vec![even, fast]).contains("reads of 1024 KiB: 10.5 GB/s"));
        assert!(warnings(vec![even, uneven]).contains("1 of 2 kinds"), "{uneven:?}");
    }
}
