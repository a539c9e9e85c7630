//! Sweeps as fio writes them: `fio --output-format=json`, version 3 or later.
//!
//! A job that moved data gives a point, a job that read and wrote gives two. Latencies are fio's completion latencies
//! (`clat_ns`), as its percentiles are. The job's options are its own, else the file's global ones, else fio's
//! defaults; they are read as those of a job file are ([`FioJob`]), and an option that a point can't hold is refused.
//! The threads of a job that fio reports one by one are one point, without percentiles. Points belong to the set of
//! their operation and block size, or to the one that fio's option `description` names.

use serde_json::Value;

use super::{Access, MAX_DEPTH, MAX_POINTS, Measured, Override, Point, PointRegion, overridden};
use crate::FitError;
use chronodisk_sim::{Nanos, Op, Priority};
use chronodisk_trace::fio_job::{Amount, Direction, Distribution, FioJob, FioJobError, Mix, Order};

/// Reads fio's JSON. Notes before and after it are skipped.
///
/// # Errors
/// The first fault, with the number of its job.
pub fn read_fio(text: &str, file: &str, overrides: &[Override]) -> Result<Vec<Point>, FitError> {
    let root = document(text).map_err(|error| error.in_file(file))?;
    let missing = |what: &str| FitError::new(format!("fio's `{what}` is missing")).in_file(file);
    let jobs = root.get("jobs").and_then(Value::as_array).ok_or_else(|| missing("jobs"))?;
    if jobs.len() > MAX_POINTS / 2 {
        return Err(FitError::new(format!("more than {} jobs", MAX_POINTS / 2)).in_file(file));
    }
    let mut points = Vec::new();
    let mut index = 0;
    while index < jobs.len() {
        let line = index as u64 + 1;
        let threads = jobs[index..].iter().take_while(|job| is_thread_of(&jobs[index], job)).count().max(1);
        let entry = Entry { threads: &jobs[index..index + threads], global: root.get("global options") };
        let others = jobs[..index].iter().chain(&jobs[index + threads..]);
        let of_job = entry.expect_alone(others).and_then(|()| entry.points(file, line, overrides));
        points.extend(of_job.map_err(|error| {
            let error = FitError { message: format!("job {line}: {}", error.message), ..error };
            error.in_file(file).at_line(line)
        })?);
        index += threads;
    }
    Ok(points)
}

/// Offset of fio's JSON in a text; `None` without any. fio prints notes before it, into the same file.
pub(super) fn begins_at(text: &str) -> Option<usize> {
    let blanks = text.len() - text.trim_start().len();
    if text[blanks..].starts_with('{') {
        return Some(blanks);
    }
    let version = text.find("\"fio version\"")?;
    text[..version].rfind('{')
}

/// The only JSON document of a text.
fn document(text: &str) -> Result<Value, FitError> {
    let begin = begins_at(text).unwrap_or(0);
    let lines_before = text[..begin].matches('\n').count() as u64;
    let mut documents = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Value>();
    let not_json = |error: serde_json::Error| {
        let line = lines_before + u64::try_from(error.line()).unwrap_or(1);
        FitError::new(format!("not JSON: {error}")).at_line(line)
    };
    let root = documents.next().unwrap_or(Ok(Value::Null)).map_err(not_json)?;
    let rest = &text[begin + documents.byte_offset()..];
    if begins_at(rest).is_some() {
        return Err(FitError::new("several results of fio in one file; expected one")
            .with_help("fio's option --status-interval writes several; split them, or leave it out"));
    }
    Ok(root)
}

/// Whether fio reported both as threads of one job.
fn is_thread_of(one: &Value, other: &Value) -> bool {
    let same = |key: &str| one.get(key).is_some() && one.get(key) == other.get(key);
    same("groupid") && same("jobname") && same("job options")
}

/// A job, with its threads if they were reported separately.
struct Entry<'a> {
    threads: &'a [Value],
    global: Option<&'a Value>,
}

impl Entry<'_> {
    /// Its options, with inherited ones first.
    fn options(&self) -> Vec<(&str, Option<&str>)> {
        let own = self.threads[0].get("job options");
        let all = [self.global, own].into_iter().flatten().filter_map(Value::as_object).flatten();
        all.map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    /// fio gives jobs that may run at the same time one group number.
    fn expect_alone<'a>(&self, mut others: impl Iterator<Item = &'a Value>) -> Result<(), FitError> {
        let (group, name) = (self.threads[0].get("groupid"), self.threads[0].get("jobname"));
        let waits = |job: &Value| job.get("job options").is_some_and(|options| options.get("wait_for").is_some());
        let beside = others.find(|other| group.is_some() && other.get("groupid") == group && !waits(other));
        let name_of = |job: Option<&Value>| job.and_then(Value::as_str).unwrap_or_default().to_owned();
        match beside.filter(|_| !waits(&self.threads[0])) {
            None => Ok(()),
            Some(other) => Err(FitError::new(format!(
                "\"{}\" ran at the same time as \"{}\"; expected stonewall between them, since a point has one load",
                name_of(name),
                name_of(other.get("jobname"))
            ))
            .in_field("stonewall")),
        }
    }

    fn job(&self) -> Result<FioJob, FitError> {
        let name = self.threads[0].get("jobname").and_then(Value::as_str).unwrap_or("job");
        let options = self.options();
        let job = FioJob::of_options(name, 1, &options).map_err(refused)?;
        let wrong = |keys: &[&str], expected: &str| {
            let found = keys.iter().find_map(|key| {
                options.iter().rev().find(|(name, _)| name == key).map(|(name, value)| (*name, value.unwrap_or("")))
            });
            let (key, found) = found.unwrap_or((keys[0], "missing"));
            Err(FitError::new(format!("{found}; expected {expected}")).in_field(key))
        };
        if !job.engine.does_io {
            return wrong(&["ioengine"], "an engine that does I/O");
        }
        if !matches!(job.mix, Mix::Only(Direction::Read | Direction::Write) | Mix::ReadsAndWrites { .. }) {
            return wrong(&["rw", "readwrite"], "reads and writes");
        }
        if job.block_bytes().is_none() {
            return wrong(&["bssplit", "bsrange", "blocksize_range", "bs", "blocksize"], "one block size");
        }
        let is_plain =
            matches!(job.order, Order::Sequential { gap_bytes: 0 } | Order::Random { run: 1, is_identical: false });
        if !is_plain {
            return wrong(&["rw", "readwrite"], "no colon and no number behind it");
        }
        if !job.is_random() && job.threads > 1 {
            return wrong(&["numjobs"], "1 for sequential requests, since each thread has a stream of its own");
        }
        for (is_wrong, keys, expected) in [
            (job.distribution != Distribution::Uniform, &["random_distribution"][..], "random"),
            (job.is_random() && job.random_shares != [1.0; 3], &["percentage_random"], "100"),
            (job.align != [None; 3], &["blockalign", "ba"], "none"),
            (job.strides.is_some(), &["zonemode"], "none"),
            (job.rates != [None; 3], &["rate_iops", "rate"], "no rate, at which a drive is not measured"),
            (job.think > Nanos::ZERO, &["thinktime"], "0"),
            (job.flush_every > 0, &["fsync", "fdatasync"], "0, since a point has no flushes"),
            (job.forces_writes, &["sync", "writefua"], "0, since a point has no forced writes"),
            (job.complete_min > 1, &["iodepth_batch_complete_min", "iodepth_batch_complete"], "1"),
            (job.low < job.depth, &["iodepth_low"], "a constant iodepth"),
            (job.priority != Priority::Normal, &["prioclass"], "0 or 2"),
            (job.urgent_shares != [0.0; 3], &["cmdprio_percentage"], "0"),
            (has_increment(&job), &["offset_increment"], "0, since a point has one region"),
        ] {
            if is_wrong {
                return wrong(keys, expected);
            }
        }
        Ok(job)
    }

    fn expect_threads(&self, job: &FioJob) -> Result<(), FitError> {
        for thread in self.threads {
            if let Some(error) = thread.get("error").and_then(Value::as_i64).filter(|error| *error != 0) {
                let reason = std::io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(i32::MAX));
                return Err(FitError::new(format!("fio's job failed: {reason}")).in_field("error"));
            }
        }
        let (reported, threads) = (self.threads.len(), job.threads as usize);
        if reported > 1 && reported != threads {
            let message = format!("{threads}, but the result has {reported} threads of this job");
            return Err(FitError::new(message).in_field("numjobs"));
        }
        Ok(())
    }

    fn points(&self, file: &str, line: u64, overrides: &[Override]) -> Result<Vec<Point>, FitError> {
        let job = self.job()?;
        self.expect_threads(&job)?;
        let read_share = match job.mix {
            Mix::ReadsAndWrites { read_share } => read_share,
            Mix::Only(Direction::Read) => 1.0,
            _ => 0.0,
        };
        let mixed = matches!(job.mix, Mix::ReadsAndWrites { .. });
        let access = Access { read_share, random: job.is_random() };
        let block_bytes = job.block_bytes().unwrap_or_default();
        let depth = u64::from(job.depth).saturating_mul(u64::from(job.threads)).min(MAX_DEPTH) as u32;
        let options = self.options();
        let given = |name: &str| options.iter().rev().find(|(key, _)| *key == name).and_then(|(_, value)| *value);
        let region = PointRegion { offset: job.offset, size: job.size.or(job.file_size.map(Amount::Bytes)) };
        let rw = given("rw").or(given("readwrite")).unwrap_or("read");
        let part = given("size").filter(|_| job.size.is_some()).map_or_else(String::new, |size| format!(" of {size}"));
        let default_set = format!("fio {rw} {block_bytes} B{part}");
        let set: String = given("description").map_or(default_set, |text| text.chars().take(200).collect());
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
                region,
                requests: self.requests(name),
                measured,
            });
        }
        Ok(points)
    }

    /// Requests of one direction of all threads together.
    fn requests(&self, direction: &str) -> Option<u64> {
        let of_thread = |thread: &Value| thread.get(direction)?.get("total_ios")?.as_u64();
        self.threads.iter().map(of_thread).try_fold(0, |sum: u64, requests| sum.checked_add(requests?))
    }

    /// The figures of one direction, if it moved anything: of all threads together.
    fn measured(&self, direction: &str) -> Result<Option<Measured>, FitError> {
        let of_threads = self.threads.iter().map(|thread| measured(thread, direction));
        let all: Vec<Measured> = of_threads.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        match all[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => {
                let iops: f64 = all.iter().filter_map(|one| one.iops).sum();
                let weighted: Option<f64> = all.iter().map(|one| Some(one.iops? * one.mean_us?)).sum();
                Ok(Some(Measured { iops: Some(iops), mean_us: weighted.map(|sum| sum / iops), ..Measured::default() }))
            }
        }
    }
}

fn has_increment(job: &FioJob) -> bool {
    job.threads > 1 && job.offset_increment != Amount::Bytes(0) && job.offset_increment != Amount::Percent(0)
}

fn refused(error: FioJobError) -> FitError {
    FitError::new(format!("{}; expected {}", error.found, error.expected)).in_field(&error.key)
}

/// The figures of one direction of a thread, if it moved anything.
fn measured(thread: &Value, direction: &str) -> Result<Option<Measured>, FitError> {
    let Some(figures) = thread.get(direction) else { return Ok(None) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_sweep;

    const FILE: &str = r#"{
      "fio version": "fio-3.33",
      "global options": {"bs": "4k", "direct": "1", "ioengine": "io_uring", "iodepth": "8"},
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
            ("\"randread\"", "\"trim\"", "a.json:1: `rw`: job 1: trim; expected reads and writes"),
            (
                "\"iodepth\": \"2\"",
                "\"iodepth\": \"0\"",
                "a.json:2: `iodepth`: job 2: 0; expected a whole number from 1",
            ),
            ("\"8192\"", "\"4k-16k\"", "a.json:2: `bs`: job 2: 4k-16k; expected a multiple of 512 bytes"),
            ("\"8192\"", "\"1000\"", "a.json:2: `bs`: job 2: 1000; expected a multiple of 512 bytes"),
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
