//! The content of the folder of runs, without reading whole results.

use std::fs;
use std::time::{Duration, SystemTime};

use chronodisk_report::{CrashResult, Labels, RUN_SCHEMA, unix_seconds_of};
use chronodisk_sim::TextFile;
use serde::{Deserialize, Serialize};

use super::directory::RunDirectory;

/// The directory of a finished or unfinished run.
#[derive(Debug, Serialize)]
pub struct KeptRun {
    /// Name of the directory.
    pub id: String,
    /// The directory.
    pub directory: RunDirectory,
    /// Bytes of the files in it.
    pub bytes: u64,
    /// The beginning of its result.
    #[serde(flatten)]
    pub head: Option<Head>,
    /// Checks of its states after power cuts, of a run of `crash`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash: Option<KeptChecks>,
    /// Reason why the beginning of the result is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The checks of a run of `crash`, for a list.
#[derive(Debug, Default, Serialize)]
pub struct KeptChecks {
    /// Whether all states have a verdict, and the failing ones were shrunk.
    pub is_complete: bool,
    /// States with a verdict, in the result; none of checks that were killed.
    pub states_checked: usize,
    /// States that failed.
    pub states_failed: usize,
    /// Reason why the result can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl KeptChecks {
    fn read(directory: &RunDirectory) -> Self {
        let path = directory.crash_result();
        match path.exists().then(|| CrashResult::read(&path)) {
            None => KeptChecks::default(),
            Some(Err(error)) => KeptChecks { problem: Some(error.to_string()), ..KeptChecks::default() },
            Some(Ok(result)) => KeptChecks {
                is_complete: result.is_complete(),
                states_checked: result.states_checked,
                states_failed: result.states_failed,
                problem: None,
            },
        }
    }

    /// The checks in a few words.
    pub fn words(&self) -> String {
        match self {
            KeptChecks { problem: Some(problem), .. } => problem.clone(),
            KeptChecks { states_checked, states_failed, is_complete, .. } => {
                let end = if *is_complete { "" } else { ", not complete" };
                format!("power cuts: {states_failed} of {states_checked} states failed{end}")
            }
        }
    }
}

/// A result's fields for a list. Only fields of every schema version are required.
#[derive(Debug, Deserialize, Serialize)]
pub struct Head {
    /// Start time, as in RFC 3339.
    pub started_at: String,
    /// Labels of the run.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Device of the run.
    pub device: HeadDevice,
    /// File system of the run.
    pub guest: HeadGuest,
    /// Clock of the run.
    pub clock: HeadClock,
    /// Command of the run.
    #[serde(default)]
    pub command: Vec<String>,
    /// Repetitions of the run.
    pub reps: Vec<HeadRep>,
}

/// The device, in a [`Head`].
#[derive(Debug, Deserialize, Serialize)]
pub struct HeadDevice {
    /// Name of the profile.
    pub profile: String,
    /// Capacity of the device in bytes.
    pub capacity_bytes: u64,
}

/// The guest, in a [`Head`].
#[derive(Debug, Deserialize, Serialize)]
pub struct HeadGuest {
    /// Name of the file system.
    pub file_system: String,
}

/// The clock, in a [`Head`].
#[derive(Debug, Deserialize, Serialize)]
pub struct HeadClock {
    /// Name of the clock.
    pub driver: String,
}

/// A repetition, in a [`Head`].
#[derive(Debug, Deserialize, Serialize)]
pub struct HeadRep {
    /// Run time of the command.
    pub run_time_ns: u64,
    /// Exit status of the command.
    pub exit_status: i32,
}

/// Reason for a directory without a result.
const UNFINISHED: &str = "no result: the run is not over, or was killed";

impl KeptRun {
    /// Reads a directory; `None` if it holds no files of a run.
    pub fn read(directory: RunDirectory) -> Option<Self> {
        let files = directory.files();
        if files.is_empty() {
            return None;
        }
        let bytes = files.iter().filter_map(|file| fs::metadata(file).ok()).map(|metadata| metadata.len()).sum();
        let id = directory.id();
        let (head, problem) = match read_head(&directory) {
            Ok(head) => (Some(head), None),
            Err(problem) => (None, Some(problem)),
        };
        let crash = directory.crash_setup().exists().then(|| KeptChecks::read(&directory));
        Some(KeptRun { id, directory, bytes, head, crash, problem })
    }

    /// The labels; empty without a readable result.
    pub fn labels(&self) -> Labels {
        self.head.as_ref().map(|head| head.labels.clone()).unwrap_or_default()
    }

    /// Time since the run began, according to its result, or otherwise to the directory's time stamp.
    pub fn age(&self) -> Duration {
        let begun = self.head.as_ref().and_then(|head| unix_seconds_of(&head.started_at)).map(Duration::from_secs);
        let modified = || fs::metadata(self.directory.path()).and_then(|metadata| metadata.modified()).ok();
        let begun = begun.map(|since| SystemTime::UNIX_EPOCH + since).or_else(modified);
        begun.and_then(|begun| begun.elapsed().ok()).unwrap_or_default()
    }

    /// Mean run time in seconds.
    pub fn run_time_mean_s(&self) -> Option<f64> {
        let reps = &self.head.as_ref()?.reps;
        let sum: f64 = reps.iter().map(|rep| rep.run_time_ns as f64 / 1e9).sum();
        (!reps.is_empty()).then(|| sum / reps.len() as f64)
    }
}

fn read_head(directory: &RunDirectory) -> Result<Head, String> {
    let path = directory.run();
    if !path.exists() {
        return Err(if directory.is_simulation() { "a simulation" } else { UNFINISHED }.to_owned());
    }
    let cannot = |error: &dyn std::fmt::Display| format!("result.json: can't read: {error}");
    let file = fs::File::open(&path).map_err(|error| cannot(&error))?;
    let text = TextFile::Result.read(file).map_err(|error| cannot(&error))?;
    #[derive(Deserialize)]
    struct Named {
        schema: String,
    }
    let malformed = |error: serde_json::Error| format!("result.json: {error}");
    let schema = serde_json::from_str::<Named>(&text).map_err(malformed)?.schema;
    if schema != RUN_SCHEMA {
        return Err(format!("result.json: schema is '{schema}'; expected '{RUN_SCHEMA}'"));
    }
    serde_json::from_str(&text).map_err(malformed)
}
