//! Doing cells: several at a time, each at most once.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use chronodisk_report::{AtomicFile, HostInfo};
use serde::{Deserialize, Serialize};

use crate::cell::{Contents, Key, Prepared, digest_of_file, profile_file};
use crate::figures::figures_of;
use crate::table::write_table;
use crate::{Cell, Command, Results, Sweep, SweepError};

/// How cells are done.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The command's executable.
    pub executable: PathBuf,
    /// Its version: cells of another one are done again.
    pub version: String,
    /// Directory of the results.
    pub directory: PathBuf,
    /// Cells that are done at the same time.
    pub jobs: usize,
}

/// A cell's result, as its file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    key: Key,
    /// Digest of the executable that did it.
    executable: String,
    /// Exit status; 128 + n if signal n ended it.
    pub status: i32,
    /// By name; empty if it failed.
    pub figures: BTreeMap<String, f64>,
    /// The end of its messages, if it failed.
    pub message: Option<String>,
    /// When it began, in seconds since 1970.
    pub begun_unix_s: u64,
    /// How long it took on the host.
    pub host_s: f64,
    /// The name of its file.
    #[serde(skip)]
    pub(crate) name: String,
    /// Whether it was there already.
    #[serde(skip)]
    pub was_there: bool,
}

/// Told after each cell.
pub type Progress<'a> = &'a (dyn Fn(&Done) + Sync);

/// Longest message that is kept.
const MESSAGE_BYTES: usize = 2_000;
/// Statuses after which no other cell would do better: wrong usage, and a host that lacks something.
const HOPELESS: [i32; 2] = [2, 3];

/// Does all cells of a sweep that are not done yet, and gives the results in the order of the cells; fewer if `stop`
/// became true.
///
/// # Errors
/// If the directory can't be used, a profile is wrong, or a cell ends with a status that all would end with.
pub fn run(
    sweep: &Sweep,
    cells: &[Cell],
    runner: &Runner,
    stop: &AtomicBool,
    progress: Progress<'_>,
) -> Result<Vec<Option<Done>>, SweepError> {
    let directory = &runner.directory;
    for folder in [directory.clone(), directory.join("cells")] {
        fs::create_dir_all(&folder).map_err(|error| SweepError::io("create", &folder, &error))?;
    }
    let _lock = lock(directory)?;
    remove_leftovers(directory);
    let executable = digest_of_file(&runner.executable)?;
    let mut contents = Contents::default();
    let prepared: Vec<Prepared> = cells
        .iter()
        .map(|cell| cell.prepare(sweep, directory, &runner.version, &mut contents))
        .collect::<Result<_, _>>()?;
    for (digest, text) in prepared.iter().filter_map(|prepared| prepared.profile.as_ref()) {
        let file = profile_file(directory, digest);
        if !file.exists() {
            let folder = directory.join("profiles");
            fs::create_dir_all(&folder).map_err(|error| SweepError::io("create", &folder, &error))?;
            write(&file, text.as_bytes())?;
        }
    }
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let results: Vec<Mutex<Option<Done>>> = prepared.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(prepared) = prepared.get(index) else { return };
            if stop.load(Ordering::Relaxed) || failure.lock().is_ok_and(|failure| failure.is_some()) {
                return;
            }
            let job = Job { sweep, runner, prepared, executable: &executable, name: prepared.key.name() };
            match job.done(stop) {
                Ok(Some(done)) => {
                    progress(&done);
                    if let Ok(mut place) = results[index].lock() {
                        *place = Some(done);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    if let Ok(mut failure) = failure.lock() {
                        failure.get_or_insert(error);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..runner.jobs.clamp(1, prepared.len().max(1)) {
            scope.spawn(work);
        }
    });
    if let Ok(Some(error)) = failure.into_inner() {
        return Err(error);
    }
    Ok(results.into_iter().map(|result| result.into_inner().unwrap_or(None)).collect())
}

/// Two sweeps must not do the same cells.
fn lock(directory: &Path) -> Result<Lock, SweepError> {
    let path = directory.join("lock");
    let file = fs::File::create(&path).map_err(|error| SweepError::io("create", &path, &error))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| SweepError::Usage(format!("another sweep is at work in {}", directory.display())))?;
    Ok(Lock(file))
}

/// Gives the directory back, even if a process that is just being started still has the file open.
struct Lock(fs::File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, rustix::fs::FlockOperation::Unlock);
    }
}

/// Removes what cells that were killed left behind.
fn remove_leftovers(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory.join("runs")) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "partial") {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), SweepError> {
    let failed = |error: chronodisk_report::ReportError| SweepError::Host(error.to_string());
    let mut file = AtomicFile::create(path).map_err(failed)?;
    file.write_all(bytes).map_err(|error| SweepError::io("write", path, &error))?;
    file.keep().map_err(failed)
}

struct Job<'a> {
    sweep: &'a Sweep,
    runner: &'a Runner,
    prepared: &'a Prepared,
    executable: &'a str,
    name: String,
}

impl Job<'_> {
    /// The cell's result, from its file or by doing it; `None` if it was interrupted.
    fn done(&self, stop: &AtomicBool) -> Result<Option<Done>, SweepError> {
        let file = self.runner.directory.join("cells").join(format!("{}.json", self.name));
        let there = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Done>(&bytes).ok());
        if let Some(done) = there
            && done.key == self.prepared.key
            && done.executable == self.executable
            && done.status == 0
        {
            return Ok(Some(Done { name: self.name.clone(), was_there: true, ..done }));
        }
        let begun_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let begun = Instant::now();
        if let Some(setup) = &self.sweep.setup {
            self.shell("setup", setup)?;
        }
        if self.sweep.drop_caches {
            drop_caches()?;
        }
        let keeps_run = self.sweep.command != Command::Simulate;
        let runs = self.runner.directory.join("runs");
        let partial = runs.join(format!("{}.{}.partial", self.name, std::process::id()));
        let mut arguments = self.prepared.arguments.clone();
        if keeps_run {
            fs::create_dir_all(&runs).map_err(|error| SweepError::io("create", &runs, &error))?;
            let before = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
            arguments.insert(before, format!("--output={}", partial.display()));
        }
        let output = Process::new(&self.runner.executable)
            .args(&arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| SweepError::io("start", &self.runner.executable, &error))?;
        if let Some(teardown) = &self.sweep.teardown {
            self.shell("teardown", teardown)?;
        }
        if stop.load(Ordering::Relaxed) {
            let _ = fs::remove_dir_all(&partial);
            return Ok(None);
        }
        let status = {
            use std::os::unix::process::ExitStatusExt;
            output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0))
        };
        let tail = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(MESSAGE_BYTES)..]).trim().to_owned()
        };
        if HOPELESS.contains(&status) && self.sweep.command == Command::Simulate {
            return Err(SweepError::Usage(format!(
                "chronodisk {} ended with status {status}: {}",
                arguments.join(" "),
                tail(&output.stderr)
            )));
        }
        let result: Option<serde_json::Value> = serde_json::from_slice(&output.stdout).ok();
        let figures = result.as_ref().filter(|_| status == 0).and_then(figures_of);
        let message = match (status, &figures) {
            (0, Some(_)) => None,
            (0, None) => Some("it printed no result".to_owned()),
            _ => Some(tail(&output.stderr)),
        };
        if keeps_run && partial.exists() {
            let kept = runs.join(&self.name);
            let _ = fs::remove_dir_all(&kept);
            fs::rename(&partial, &kept).map_err(|error| SweepError::io("write", &kept, &error))?;
        }
        let done = Done {
            key: self.prepared.key.clone(),
            executable: self.executable.to_owned(),
            status: if figures.is_none() && status == 0 { 125 } else { status },
            figures: figures.unwrap_or_default(),
            message,
            begun_unix_s,
            host_s: begun.elapsed().as_secs_f64(),
            name: self.name.clone(),
            was_there: false,
        };
        let text = serde_json::to_string_pretty(&done)
            .map_err(|error| SweepError::Host(format!("cell {}: {error}", self.name)))?;
        write(&file, text.as_bytes())?;
        Ok(Some(done))
    }

    fn shell(&self, what: &str, command: &str) -> Result<(), SweepError> {
        let output = Process::new("sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| SweepError::Host(format!("can't start sh for {what}: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr);
        Err(SweepError::Usage(format!("{}: {what} failed ({}): {}", self.sweep.label, output.status, message.trim())))
    }
}

fn drop_caches() -> Result<(), SweepError> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3\n").map_err(|error| {
        SweepError::Host(format!(
            "drop_caches: /proc/sys/vm/drop_caches: {error}; expected the right to write it (root)"
        ))
    })
}

/// Writes `sweep.json`, `sweep.parquet` and `sweep.provenance.json` of a whole sweep, and gives its results. The first
/// two hold nothing of the host.
///
/// # Errors
/// If a file can't be written.
pub fn write_results(
    sweep: &Sweep,
    cells: &[Cell],
    done: &[Done],
    runner: &Runner,
    host: &HostInfo,
) -> Result<Results, SweepError> {
    let results = Results::new(sweep, &runner.version, cells, done);
    let directory = &runner.directory;
    write_table(&directory.join("sweep.parquet"), sweep, cells, done)?;
    write(&directory.join("sweep.json"), results.to_json().as_bytes())?;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let provenance = serde_json::json!({
        "schema": "chronodisk.sweep-provenance/1",
        "version": runner.version,
        "executable": done.first().map(|done| done.executable.as_str()),
        "host": host,
        "load": load.split(' ').take(3).collect::<Vec<_>>().join(" "),
        "jobs": runner.jobs,
        "cells": done.iter().map(|done| serde_json::json!({
            "cell": done.name,
            "status": done.status,
            "begun_unix_s": done.begun_unix_s,
            "host_s": done.host_s,
        })).collect::<Vec<_>>(),
    });
    write(&directory.join("sweep.provenance.json"), format!("{provenance:#}\n").as_bytes())?;
    Ok(results)
}
