//! The files of a kept run or simulation, all in one directory.
//!
//! | file | of | what |
//! |---|---|---|
//! | `result.json` | a run | [`RunResult`] |
//! | `requests-N.parquet` | a run | log of the device's requests in repetition N |
//! | `simulation.json` | a simulation | [`Simulation`] |
//! | `device.json` | a simulation | [`DeviceUsed`] |
//! | `requests.parquet` | a simulation | log of the device's requests |
//! | `plot.svg` | both | what `show --plot` drew |

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use chronodisk_report::{DeviceUsed, LogReader, RepResult, RunResult, Simulation, write_log};
use chronodisk_sim::{Nanos, RequestRecord, TextFile};

use crate::device::Device;
use crate::failure::Failure;
use crate::memory::unreadable;

/// Name of the result of a run.
pub const RUN: &str = "result.json";
/// Name of the result of a simulation.
pub const SIMULATION: &str = "simulation.json";
const DEVICE: &str = "device.json";
/// Name of the plot that `show --plot` draws beside a result.
pub const PLOT: &str = "plot.svg";
/// Name of the log of a simulation.
pub const SIMULATION_LOG: &str = "requests.parquet";

/// Name of the log of a run's repetition.
pub fn log_name(repetition: u32) -> String {
    format!("requests-{repetition}.parquet")
}

/// Files of a run or a simulation in a directory, including an interrupted one's.
pub fn files_of(directory: &Path) -> Vec<PathBuf> {
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
        is_log || [RUN, SIMULATION, DEVICE, PLOT].contains(&name)
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut files: Vec<PathBuf> =
        files.filter(|entry| entry.file_name().to_str().is_some_and(ours)).map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Removes the log of a repetition that is no part of the result.
pub fn remove_repetition(directory: &Path, repetition: u32) {
    // It is written anew by one that counts, and no result names it before.
    let _ = fs::remove_file(directory.join(log_name(repetition)));
}

/// Keeps the log of a repetition.
pub fn write_repetition(directory: &Path, repetition: u32, records: &[RequestRecord]) -> Result<(), Failure> {
    write_log(&directory.join(log_name(repetition)), records).map_err(Failure::host)
}

/// Keeps the result of a run; it comes after its logs, so that a run with a result is whole.
pub fn write_run(directory: &Path, result: &RunResult) -> Result<(), Failure> {
    result.write(&directory.join(RUN)).map_err(Failure::host)
}

/// Reads the result of a run.
pub fn read_run(directory: &Path) -> Result<RunResult, Failure> {
    let path = directory.join(RUN);
    if !path.exists() {
        let failure = Failure::usage(format!("{} holds no run: {RUN} is missing", directory.display()));
        return Err(if directory.join(SIMULATION).exists() {
            failure.help("it holds a simulation; `chronodisk run` makes runs")
        } else {
            failure
        });
    }
    RunResult::read(&path).map_err(unreadable)
}

/// The log of a repetition, in pieces.
pub fn open_log(directory: &Path, log_file: &str) -> Result<LogReader, Failure> {
    // The name comes from a file that anybody may have written, and must not lead out of the directory.
    if log_file.contains('/') || log_file == ".." {
        return Err(Failure::usage(format!("{}: '{log_file}' is not a file name", directory.join(RUN).display())));
    }
    LogReader::open(&directory.join(log_file)).map_err(unreadable)
}

/// Hands on the requests of a log.
pub fn each_request(
    log: LogReader,
    mut take: impl FnMut(&RequestRecord) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for piece in log {
        piece.map_err(unreadable)?.iter().try_for_each(&mut take)?;
    }
    Ok(())
}

/// Whether a directory holds a simulation and no run.
pub fn is_simulation(directory: &Path) -> bool {
    directory.join(SIMULATION).exists()
}

/// Reads a simulation without its requests, which are in the log of [`SIMULATION_LOG`].
pub fn read_simulation(directory: &Path) -> Result<Simulation, Failure> {
    Simulation::read(&directory.join(SIMULATION)).map_err(unreadable)
}

/// Reads the device of a simulation.
pub fn read_device(directory: &Path) -> Result<DeviceUsed, Failure> {
    let path = directory.join(DEVICE);
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: can't read: {error}", path.display()));
    let file = File::open(&path).map_err(|error| wrong(&error))?;
    let text = TextFile::Result.read(file).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

/// Keeps a simulation, whose log is there.
pub fn write_simulation(directory: &Path, simulation: &Simulation, device: &Device) -> Result<(), Failure> {
    let mut device = serde_json::to_string_pretty(&device.used())
        .map_err(|error| Failure::host(format!("can't write the device as JSON: {error}")))?;
    device.push('\n');
    for (name, text) in [(DEVICE, device), (SIMULATION, simulation.to_json())] {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| Failure::host(format!("{}: can't write: {error}", path.display())))?;
    }
    Ok(())
}

/// The log of a simulation, or of a run's only repetition and device.
pub fn log_of(directory: &Path) -> Result<PathBuf, Failure> {
    if directory.join(SIMULATION).exists() {
        return Ok(directory.join(SIMULATION_LOG));
    }
    let run = read_run(directory)?;
    match &run.reps[..] {
        [rep] if !rep.log_file.contains('/') && rep.log_file != ".." => Ok(directory.join(&rep.log_file)),
        [_] => Err(Failure::usage(format!("{}: its log is no file name", directory.join(RUN).display()))),
        reps => Err(Failure::usage(format!("{} has {} repetitions", directory.display(), reps.len()))
            .help(format!("name the log of one, such as {}", directory.join(log_name(1)).display()))),
    }
}

/// Data to replay a run or a simulation.
pub struct Replayable {
    /// The devices in their initial state, in the order of the log's numbers for them.
    pub devices: Vec<DeviceUsed>,
    /// Each repetition's log.
    pub repetitions: Vec<Repetition>,
}

/// A log and how far its models were brought.
pub struct Repetition {
    /// The name of the log.
    pub log_file: String,
    /// The end of the run's time, if it had one.
    pub end: Option<Nanos>,
    /// Its seed, if it had one of its own.
    pub seed: Option<u64>,
}

/// Reads a run or a simulation for a replay.
pub fn read_replayable(directory: &Path) -> Result<Replayable, Failure> {
    if directory.join(SIMULATION).exists() {
        let device = read_device(directory)?;
        let repetition = Repetition { log_file: SIMULATION_LOG.to_owned(), end: None, seed: None };
        return Ok(Replayable { devices: vec![device], repetitions: vec![repetition] });
    }
    let run = read_run(directory)?;
    let repetition =
        |rep: &RepResult| Repetition { log_file: rep.log_file.clone(), end: Some(rep.end_ns), seed: rep.seed };
    let repetitions = run.reps.iter().map(repetition).collect();
    Ok(Replayable { repetitions, devices: [vec![run.device], run.further_devices].concat() })
}
