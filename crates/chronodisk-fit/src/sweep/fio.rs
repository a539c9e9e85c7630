//! Sweeps as fio writes them: `fio --output-format=json`, version 3 or later.
//!
//! A job that moved data gives a point, a job that read and wrote gives two. Latencies are fio's completion latencies
//! (`clat_ns`), as its percentiles are. The job's options are its own, else the file's global ones, else fio's
//! defaults. Points belong to the set of their operation and block size, or to the one that fio's option `description`
//! names.

use serde_json::Value;

use super::measured_csv::named_access;
use super::{Access, MAX_DEPTH, MAX_POINTS, Measured, Override, Point, overridden};
use crate::FitError;
use chronodisk_device::parse_capacity;
use chronodisk_sim::Op;

/// Reads fio's JSON.
///
/// # Errors
/// The first thing that is wrong, with the number of its job.
pub fn read_fio(text: &str, file: &str, overrides: &[Override]) -> Result<Vec<Point>, FitError> {
    let root: Value = serde_json::from_str(text).map_err(|error| {
        FitError::new(format!("not JSON: {error}")).in_file(file).at_line(u64::try_from(error.line()).unwrap_or(1))
    })?;
    let missing = |what: &str| FitError::new(format!("fio's `{what}` is missing")).in_file(file);
    let jobs = root.get("jobs").and_then(Value::as_array).ok_or_else(|| missing("jobs"))?;
    if jobs.len() > MAX_POINTS / 2 {
        return Err(FitError::new(format!("more than {} jobs", MAX_POINTS / 2)).in_file(file));
    }
    let mut points = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        let line = index as u64 + 1;
        let job = Job { job, global: root.get("global options") };
        let of_job = job.points(file, line, overrides);
        points.extend(of_job.map_err(|error| {
            let error = FitError { message: format!("job {line}: {}", error.message), ..error };
            error.in_file(file).at_line(line)
        })?);
    }
    Ok(points)
}

/// A job with the options that it inherits.
struct Job<'a> {
    job: &'a Value,
    global: Option<&'a Value>,
}

impl Job<'_> {
    /// An option of the job, else of the file.
    fn option(&self, name: &str) -> Option<&str> {
        let own = self.job.get("job options").and_then(|options| options.get(name));
        own.or_else(|| self.global?.get(name)).and_then(Value::as_str)
    }

    fn number(&self, name: &str, default: u64) -> Result<u64, FitError> {
        let Some(text) = self.option(name) else { return Ok(default) };
        let number = text.parse::<u64>().ok().filter(|number| (1..=MAX_DEPTH).contains(number));
        number.ok_or_else(|| {
            FitError::new(format!("\"{text}\"; expected a whole number from 1 to {MAX_DEPTH}")).in_field(name)
        })
    }

    fn points(&self, file: &str, line: u64, overrides: &[Override]) -> Result<Vec<Point>, FitError> {
        let rw = self.option("rw").or(self.option("readwrite")).unwrap_or("read");
        // `randread:8` asks for something about the offsets.
        let rw = rw.split(':').next().unwrap_or(rw);
        let mut access = match rw {
            "rw" | "readwrite" => Access { read_share: 0.5, random: false },
            // fio's default mixture, unlike that of `simulate`.
            "randrw" => Access { read_share: 0.5, random: true },
            other => named_access(other).map_err(|problem| FitError::new(problem).in_field("rw"))?,
        };
        let mixed = access.read_share == 0.5;
        if mixed && let Some(text) = self.option("rwmixread") {
            let share = text.parse::<u32>().ok().filter(|percent| *percent <= 100);
            let expected = || FitError::new(format!("\"{text}\"; expected 0 to 100")).in_field("rwmixread");
            access.read_share = f64::from(share.ok_or_else(expected)?) / 100.0;
        }
        let size = self.option("bs").or(self.option("blocksize")).unwrap_or("4096");
        let block_bytes = size
            .parse::<u64>()
            .or_else(|_| parse_capacity(size))
            .map_err(|_| FitError::new(format!("\"{size}\"; expected one size such as 4096 or 4k")).in_field("bs"))?;
        let depth = self.number("iodepth", 1)?.saturating_mul(self.number("numjobs", 1)?);
        let depth = u32::try_from(depth.min(MAX_DEPTH)).unwrap_or(u32::MAX);
        let default_set = format!("fio {rw} {block_bytes} B");
        let set = self.option("description").map_or(default_set, |text| text.chars().take(200).collect());
        let access = overridden(overrides, &set).unwrap_or(access);
        let mut points = Vec::new();
        for (name, op) in [("read", Op::Read), ("write", Op::Write)] {
            let Some(measured) = self.measured(name)? else { continue };
            points.push(Point {
                file: file.to_owned(),
                line,
                set: if mixed { format!("{set}, {name}s") } else { set.clone() },
                access,
                only: mixed.then_some(op),
                block_bytes,
                depth,
                zones: None,
                measured,
            });
        }
        Ok(points)
    }

    /// The figures of one direction, if it moved anything.
    fn measured(&self, direction: &str) -> Result<Option<Measured>, FitError> {
        let Some(figures) = self.job.get(direction) else { return Ok(None) };
        let positive = |value: Option<&Value>| value.and_then(Value::as_f64).filter(|value| *value > 0.0);
        let Some(iops) = positive(figures.get("iops")) else { return Ok(None) };
        let Some(latency) = figures.get("clat_ns") else {
            return Err(FitError::new("it has no completion latencies in nanoseconds")
                .in_field("clat_ns")
                .with_help("fio 3 or later writes them; fio's option lat_percentiles leaves them out"));
        };
        let micros = |value: Option<&Value>| positive(value).map(|nanos| nanos / 1e3);
        let percentile = |name: &str| micros(latency.get("percentile").and_then(|all| all.get(name)));
        Ok(Some(Measured {
            iops: Some(iops),
            mean_us: micros(latency.get("mean")),
            p50_us: percentile("50.000000"),
            p99_us: percentile("99.000000"),
            p999_us: percentile("99.900000"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_sweep;

    const FILE: &str = r#"{
      "fio version": "fio-3.33",
      "global options": {"bs": "4k", "ioengine": "io_uring", "iodepth": "8"},
      "jobs": [
        {"jobname": "a", "job options": {"rw": "randread"},
         "read": {"iops": 100000.0, "clat_ns": {"mean": 75000.5, "percentile": {"50.000000": 70000, "99.000000": 150000, "99.900000": 190000}}},
         "write": {"iops": 0.0, "clat_ns": {"mean": 0.0}}},
        {"jobname": "b", "job options": {"rw": "randrw", "rwmixread": "70", "bs": "8192", "iodepth": "2", "numjobs": "4"},
         "read": {"iops": 700.0, "clat_ns": {"mean": 90000.0, "percentile": {"99.000000": 200000}}},
         "write": {"iops": 300.0, "clat_ns": {"mean": 20000.0}}}
      ]}"#;

    #[test]
    fn jobs_become_points() {
        let points = read_sweep(FILE, "a.json", &[]).unwrap();
        assert_eq!(points.len(), 3);
        let [read, mixed_reads, mixed_writes] = points.as_slice() else { panic!("three points") };
        assert_eq!((read.set.as_str(), read.depth, read.block_bytes), ("fio randread 4096 B", 8, 4_096));
        assert_eq!(read.access, Access { read_share: 1.0, random: true });
        assert_eq!((read.measured.mean_us, read.measured.p999_us), (Some(75.0005), Some(190.0)));
        assert_eq!((mixed_reads.depth, mixed_reads.only, mixed_reads.line), (8, Some(Op::Read), 2));
        assert_eq!(mixed_reads.access, Access { read_share: 0.7, random: true });
        assert_eq!((mixed_writes.only, mixed_writes.mean_us()), (Some(Op::Write), Some(20.0)));
        assert_eq!(mixed_writes.host_us(), 0.0);
    }

    #[test]
    fn mistakes_are_told_with_their_job() {
        for (old, new, expected) in [
            ("\"randread\"", "\"trim\"", "a.json:1: `rw`: job 1: \"trim\""),
            ("\"iodepth\": \"2\"", "\"iodepth\": \"0\"", "a.json:2: `iodepth`: job 2: \"0\""),
            ("\"8192\"", "\"4k-16k\"", "a.json:2: `bs`: job 2: \"4k-16k\""),
            ("\"8192\"", "\"1000\"", "a.json:2: `bs`: 1000 bytes"),
            ("\"70\"", "\"170\"", "a.json:2: `rwmixread`: job 2"),
            ("clat_ns", "clat", "a.json:1: `clat_ns`: job 1: it has no completion latencies"),
            ("\"jobs\"", "\"jbos\"", "a.json: fio's `jobs` is missing"),
            ("100000.0", "100000.0.0", "a.json:6: not JSON"),
        ] {
            let error = read_sweep(&FILE.replace(old, new), "a.json", &[]).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}\nexpected {expected}");
        }
    }
}
