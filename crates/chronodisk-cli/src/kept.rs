//! The content of the folder of runs, without reading whole results.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chronodisk_report::{Labels, RUN_SCHEMA, unix_seconds_of};
use chronodisk_sim::TextFile;
use serde::{Deserialize, Serialize};

use crate::{runs, stored};

/// A directory in which a run was kept, or begun.
#[derive(Debug, Serialize)]
pub struct Kept {
    /// Name of the directory.
    pub id: String,
    pub directory: PathBuf,
    /// Bytes of the files in it.
    pub bytes: u64,
    /// The beginning of its result.
    #[serde(flatten)]
    pub head: Option<Head>,
    /// Why there is no such beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A result's fields for a list. Only fields of every schema version are required.
#[derive(Debug, Deserialize, Serialize)]
pub struct Head {
    pub started_at: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    pub device: HeadDevice,
    pub guest: HeadGuest,
    pub clock: HeadClock,
    #[serde(default)]
    pub command: Vec<String>,
    pub reps: Vec<HeadRep>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct HeadDevice {
    pub profile: String,
    pub capacity_bytes: u64,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct HeadGuest {
    pub file_system: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct HeadClock {
    pub driver: String,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct HeadRep {
    pub run_time_ns: u64,
    pub exit_status: i32,
}

/// Why a directory without a result is there.
const UNFINISHED: &str = "no result: the run is not over, or was killed";

impl Kept {
    /// Looks at a directory; `None` if it holds nothing that a run leaves.
    pub fn read(directory: PathBuf) -> Option<Self> {
        let files = stored::files_of(&directory);
        if files.is_empty() {
            return None;
        }
        let bytes = files.iter().filter_map(|file| fs::metadata(file).ok()).map(|metadata| metadata.len()).sum();
        let id = directory.file_name().unwrap_or(directory.as_os_str()).to_string_lossy().into_owned();
        let (head, problem) = match read_head(&directory) {
            Ok(head) => (Some(head), None),
            Err(problem) => (None, Some(problem)),
        };
        Some(Kept { id, directory, bytes, head, problem })
    }

    /// The labels; none if there is no readable result.
    pub fn labels(&self) -> Labels {
        self.head.as_ref().map(|head| head.labels.clone()).unwrap_or_default()
    }

    /// How long ago the run began, by its result, or else by the directory's time.
    pub fn age(&self) -> Duration {
        let begun = self.head.as_ref().and_then(|head| unix_seconds_of(&head.started_at)).map(Duration::from_secs);
        let modified = || fs::metadata(&self.directory).and_then(|metadata| metadata.modified()).ok();
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

fn read_head(directory: &Path) -> Result<Head, String> {
    let path = directory.join(stored::RUN);
    if !path.exists() {
        let simulated = directory.join(stored::SIMULATION).exists();
        return Err(if simulated { "a simulation" } else { UNFINISHED }.to_owned());
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

/// Everything that a folder holds of runs, oldest first.
pub fn list(folder: &Path) -> Vec<Kept> {
    runs::ids(folder).into_iter().filter_map(|id| Kept::read(folder.join(id))).collect()
}
