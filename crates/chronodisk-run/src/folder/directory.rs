//! The files of a kept run or simulation, all in one directory.
//!
//! | file | run | contents |
//! |---|---|---|
//! | `result.json` | a run | [`RunResult`] |
//! | `requests-N.parquet` | a run | log of the device's requests in repetition N |
//! | `device-N.zones` | a run | write pointers of device N when the run began, if its zones were not new |
//! | `simulation.json` | a simulation | [`Simulation`] |
//! | `device.json` | a simulation | [`DeviceUsed`] |
//! | `requests.parquet` | a simulation | log of the device's requests |
//! | `store.recording` | a run for power cuts | requests of the device with their bytes |
//! | `crash-setup.json` | a run for power cuts | check, file system and acknowledged lines |
//! | `crash-verdicts.jsonl` | a run for power cuts | verdicts on the states, in order of time |
//! | `crash.json` | a run for power cuts | result of the checks |
//! | `plot.svg` | both | the plot of `show --plot` |

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use chronodisk_report::{DeviceUsed, LogReader, RepResult, RunResult, Simulation, write_log};
use chronodisk_sim::{Nanos, RequestRecord, TextFile};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;

use crate::failure::Failure;
use crate::memory::unreadable;

const RUN: &str = "result.json";
const SIMULATION: &str = "simulation.json";
const DEVICE: &str = "device.json";
const PLOT: &str = "plot.svg";
const CRASH_RECORDING: &str = "store.recording";
const CRASH_SETUP: &str = "crash-setup.json";
const CRASH_VERDICTS: &str = "crash-verdicts.jsonl";
const CRASH: &str = "crash.json";

/// The directory of a run or a simulation, which need not exist yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RunDirectory(PathBuf);

impl RunDirectory {
    /// File name of the log of a simulation.
    pub const SIMULATION_LOG: &str = "requests.parquet";

    /// A directory at this path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        RunDirectory(path.into())
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The run's id: the name of its directory.
    pub fn id(&self) -> String {
        self.0.file_name().unwrap_or(self.0.as_os_str()).to_string_lossy().into_owned()
    }

    /// Refuses a directory that can't be created or written, before the run.
    pub fn expect_place(&self) -> Result<(), Failure> {
        let shown = self.0.display();
        let absolute = std::path::absolute(&self.0)
            .map_err(|error| Failure::host(format!("can't create the run's directory {shown}: {error}")))?;
        let nearest =
            absolute.ancestors().find(|folder| fs::symlink_metadata(folder).is_ok()).unwrap_or(Path::new("/"));
        // Permissions alone do not tell: the file system may be read-only, or full.
        let tried = nearest.join(format!(".chronodisk-{}", std::process::id()));
        fs::create_dir(&tried).and_then(|()| fs::remove_dir(&tried)).map_err(|error| {
            let why = format!("{}: {error}", nearest.display());
            Failure::host(format!("can't create the run's directory {shown}: {why}")).help("name another with --output")
        })
    }

    /// Makes the directory, and keeps `rm` from it as long as this process may write to it.
    pub fn make(&self) -> Result<(), Failure> {
        fs::create_dir_all(&self.0).map_err(|error| {
            Failure::host(format!("can't create the run's directory {}: {error}", self.0.display()))
        })?;
        self.claim();
        Ok(())
    }

    /// Creates the directory. Dropping the value removes it again if it is new and empty.
    pub fn make_fresh(&self) -> Result<FreshDirectory, Failure> {
        let is_new = !self.0.exists();
        self.make()?;
        Ok(FreshDirectory(is_new.then(|| self.0.clone())))
    }

    /// Locks the directory until this process ends. A file system without locks is no reason to fail the run.
    fn claim(&self) {
        static CLAIMED: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());
        let (Ok(mut claimed), Ok(file)) = (CLAIMED.lock(), File::open(&self.0)) else { return };
        if !claimed.contains_key(&self.0) && flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            claimed.insert(self.0.clone(), file);
        }
    }

    /// Whether another process may still write to the directory.
    pub fn is_being_written(&self) -> bool {
        let Ok(file) = File::open(&self.0) else { return false };
        flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
    }

    /// Files of a run or a simulation in the directory, including an interrupted one's. The result is the last.
    pub fn files(&self) -> Vec<PathBuf> {
        let ours = |name: &str| {
            // An `AtomicFile` that was not kept.
            let name = match name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".partial")) {
                Some(rest) => rest.rsplit_once('.').map_or(rest, |(name, _)| name),
                None => name,
            };
            let is_log =
                name.strip_prefix("requests").and_then(|rest| rest.strip_suffix(".parquet")).is_some_and(|number| {
                    number.is_empty() || number.strip_prefix('-').is_some_and(|number| number.parse::<u32>().is_ok())
                });
            let is_zones = name.strip_prefix("device-").and_then(|rest| rest.strip_suffix(".zones"));
            let is_zones = is_zones.is_some_and(|number| number.parse::<u32>().is_ok());
            let of_crash = [CRASH_RECORDING, CRASH_SETUP, CRASH_VERDICTS, CRASH].contains(&name);
            is_log || is_zones || of_crash || [RUN, SIMULATION, DEVICE, PLOT].contains(&name)
        };
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let mut files: Vec<PathBuf> =
            files.filter(|entry| entry.file_name().to_str().is_some_and(ours)).map(|entry| entry.path()).collect();
        files.sort_by_key(|file| (file.ends_with(RUN), file.clone()));
        files
    }

    /// Path of the plot that `show --plot` draws beside a result.
    pub fn plot(&self) -> PathBuf {
        self.0.join(PLOT)
    }

    /// Path of the recording of a run for power cuts.
    pub fn crash_recording(&self) -> PathBuf {
        self.0.join(CRASH_RECORDING)
    }

    /// Path of the facts beside the recording.
    pub(crate) fn crash_setup(&self) -> PathBuf {
        self.0.join(CRASH_SETUP)
    }

    /// Path of the verdicts on the states, as they came.
    pub(crate) fn crash_verdicts(&self) -> PathBuf {
        self.0.join(CRASH_VERDICTS)
    }

    /// Path of the result of the checks after power cuts.
    pub fn crash_result(&self) -> PathBuf {
        self.0.join(CRASH)
    }

    /// Whether the directory holds the result of a run.
    pub fn holds_run(&self) -> bool {
        self.0.join(RUN).is_file()
    }

    /// Path of the log of a repetition.
    pub fn log(&self, repetition: u32) -> PathBuf {
        self.0.join(RunDirectory::log_name(repetition))
    }

    /// File name of the log of a run's repetition.
    pub fn log_name(repetition: u32) -> String {
        format!("requests-{repetition}.parquet")
    }

    /// File name of the zones with which a device began.
    pub fn zones_name(device: usize) -> String {
        format!("device-{device}.zones")
    }

    /// Reads a file of the directory, whose name comes from an untrusted result, and which should have this size. Of a
    /// longer one, one byte more is read.
    pub(crate) fn read_sized(&self, name: &str, len_bytes: u64) -> Result<Vec<u8>, Failure> {
        self.expect_file_name(name)?;
        let path = self.0.join(name);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(len_bytes.saturating_add(1)).read_to_end(&mut bytes));
        read.map_err(|error| Failure::usage(format!("{}: can't read: {error}", path.display())))?;
        Ok(bytes)
    }

    /// A name from an untrusted file must not lead out of the directory.
    fn expect_file_name(&self, name: &str) -> Result<(), Failure> {
        match name.contains('/') || name == ".." {
            true => Err(Failure::usage(format!("{}: '{name}' is not a file name", self.0.join(RUN).display()))),
            false => Ok(()),
        }
    }

    /// Removes the log of a repetition that is no part of the result.
    pub fn remove_repetition(&self, repetition: u32) {
        // The next repetition that counts writes a new log, and no result names this one.
        let _ = fs::remove_file(self.log(repetition));
    }

    /// Stores a repetition, the zones with which its devices began by file name, and the updated result. If the disk is
    /// full, earlier repetitions stay unchanged, and nothing of this one is left.
    pub fn write_repetition(
        &self,
        repetition: u32,
        records: &[RequestRecord],
        zones: &[(String, Vec<u8>)],
        result: &RunResult,
    ) -> Result<(), Failure> {
        let is_new = !self.0.exists();
        self.make()?;
        let logged = write_log(&self.log(repetition), records).map_err(Failure::host);
        let logged = logged.and_then(|()| zones.iter().try_for_each(|(name, bytes)| self.write_zones(name, bytes)));
        let kept = logged.and_then(|()| self.write_run(result));
        if kept.is_err() {
            let _ = fs::remove_file(self.log(repetition));
            zones.iter().for_each(|(name, _)| drop(fs::remove_file(self.0.join(name))));
            if is_new {
                let _ = fs::remove_dir(&self.0);
            }
        }
        kept
    }

    fn write_zones(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.0.join(name);
        fs::write(&path, bytes).map_err(|error| Failure::host(format!("{}: can't write: {error}", path.display())))
    }

    /// Stores the result of a run after its other files, so that a run with a result is complete.
    pub fn write_run(&self, result: &RunResult) -> Result<(), Failure> {
        result.write(&self.0.join(RUN)).map_err(Failure::host)
    }

    /// Path of the result of a run.
    pub(super) fn run(&self) -> PathBuf {
        self.0.join(RUN)
    }

    /// Reads the result of a run.
    pub fn read_run(&self) -> Result<RunResult, Failure> {
        let path = self.0.join(RUN);
        if !path.exists() {
            let failure = Failure::usage(format!("{} holds no run: {RUN} is missing", self.0.display()));
            return Err(if self.is_simulation() {
                failure.help("it holds a simulation; `chronodisk run` makes runs")
            } else {
                failure
            });
        }
        RunResult::read(&path).map_err(unreadable)
    }

    /// The log of a repetition, in pieces.
    pub fn open_log(&self, log_file: &str) -> Result<LogReader, Failure> {
        self.expect_file_name(log_file)?;
        LogReader::open(&self.0.join(log_file)).map_err(unreadable)
    }

    /// Reads a log request by request, in memory that does not grow with it.
    pub fn each_request(
        &self,
        log_file: &str,
        mut take: impl FnMut(&RequestRecord) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for piece in self.open_log(log_file)? {
            piece.map_err(unreadable)?.iter().try_for_each(&mut take)?;
        }
        Ok(())
    }

    /// Whether the directory holds a simulation.
    pub fn is_simulation(&self) -> bool {
        self.0.join(SIMULATION).exists()
    }

    /// Path of the log of a simulation.
    pub fn simulation_log(&self) -> PathBuf {
        self.0.join(RunDirectory::SIMULATION_LOG)
    }

    /// Reads a simulation without its requests, which are in the [log](Self::simulation_log).
    pub fn read_simulation(&self) -> Result<Simulation, Failure> {
        Simulation::read(&self.0.join(SIMULATION)).map_err(unreadable)
    }

    /// Reads the device of a simulation.
    pub fn read_device(&self) -> Result<DeviceUsed, Failure> {
        let path = self.0.join(DEVICE);
        let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: can't read: {error}", path.display()));
        let file = File::open(&path).map_err(|error| wrong(&error))?;
        let text = TextFile::Result.read(file).map_err(|error| wrong(&error))?;
        serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
    }

    /// Stores a simulation, whose log exists already.
    pub fn write_simulation(&self, simulation: &Simulation, device: &DeviceUsed) -> Result<(), Failure> {
        let mut device = serde_json::to_string_pretty(device)
            .map_err(|error| Failure::host(format!("can't write the device as JSON: {error}")))?;
        device.push('\n');
        for (name, text) in [(DEVICE, device), (SIMULATION, simulation.to_json())] {
            let path = self.0.join(name);
            fs::write(&path, text)
                .map_err(|error| Failure::host(format!("{}: can't write: {error}", path.display())))?;
        }
        Ok(())
    }

    /// The log of a simulation, or of a run's only repetition and device.
    pub fn only_log(&self) -> Result<PathBuf, Failure> {
        if self.is_simulation() {
            return Ok(self.simulation_log());
        }
        let run = self.read_run()?;
        match &run.reps[..] {
            [rep] if !rep.log_file.contains('/') && rep.log_file != ".." => Ok(self.0.join(&rep.log_file)),
            [_] => Err(Failure::usage(format!("{}: its log is no file name", self.0.join(RUN).display()))),
            reps => Err(Failure::usage(format!("{} has {} repetitions", self.0.display(), reps.len()))
                .help(format!("name the log of one, such as {}", self.log(1).display()))),
        }
    }

    /// Reads a run or a simulation for a replay.
    pub fn read_replayable(&self) -> Result<Replayable, Failure> {
        if self.is_simulation() {
            let device = self.read_device()?;
            let repetition = Repetition { log_file: RunDirectory::SIMULATION_LOG.to_owned(), end: None, seed: None };
            return Ok(Replayable { devices: vec![device], repetitions: vec![repetition] });
        }
        let run = self.read_run()?;
        let repetition =
            |rep: &RepResult| Repetition { log_file: rep.log_file.clone(), end: Some(rep.end_ns), seed: rep.seed };
        let repetitions = run.reps.iter().map(repetition).collect();
        Ok(Replayable { repetitions, devices: [vec![run.device], run.further_devices].concat() })
    }
}

/// A directory that is removed when this value is dropped, unless it has files or existed before.
#[derive(Debug)]
pub struct FreshDirectory(Option<PathBuf>);

impl Drop for FreshDirectory {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Fails, as intended, if the directory is not empty.
            let _ = fs::remove_dir(path);
        }
    }
}

/// Data to replay a run or a simulation.
pub struct Replayable {
    /// The devices in their initial state, in the order of the log's numbers for them.
    pub devices: Vec<DeviceUsed>,
    /// Logs by repetition.
    pub repetitions: Vec<Repetition>,
}

/// A log and how far its models were brought.
pub struct Repetition {
    /// The name of the log.
    pub log_file: String,
    /// The end of the run's time, if it had one.
    pub end: Option<Nanos>,
    /// Seed of the repetition, if it has its own.
    pub seed: Option<u64>,
}
