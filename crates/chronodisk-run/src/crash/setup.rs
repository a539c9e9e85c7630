//! The facts of a recorded run that its states and checks depend on.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use chronodisk_guest::FileSystem;
use chronodisk_report::AtomicFile;
use chronodisk_sim::{Nanos, TextFile};
use serde::{Deserialize, Serialize};

use super::acknowledged::Line;
use super::arguments::{CutCount, StateChoice};
use crate::failure::Failure;
use crate::folder::RunDirectory;

/// Schema of the file.
const SCHEMA: &str = "chronodisk-crash-setup/1";

/// The facts, kept beside the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setup {
    pub schema: String,
    pub file_system: FileSystem,
    pub mount_options: Option<String>,
    pub mount_point: String,
    pub memory_bytes: u64,
    pub kernel: Option<PathBuf>,
    pub modules: Vec<PathBuf>,
    pub check: String,
    #[serde(default = "default_check_timeout")]
    pub check_timeout: Nanos,
    pub states: StateChoice,
    pub cuts: CutCount,
    pub seed: u64,
    /// Physical block of the device in bytes.
    pub physical_block_bytes: u32,
    /// Whether the device has a volatile cache.
    pub write_back: bool,
    /// Begin and end of the command.
    pub interval_ns: (Nanos, Nanos),
    pub acknowledged: Vec<Line>,
}

/// Five minutes, as the help says. A recovery takes seconds; on a busy host it may take minutes.
pub(super) const fn default_check_timeout() -> Nanos {
    Nanos::from_secs(300)
}

impl Setup {
    pub fn schema() -> String {
        SCHEMA.to_owned()
    }

    pub fn write(&self, directory: &RunDirectory) -> Result<(), Failure> {
        let path = directory.crash_setup();
        let cannot = |error: &dyn std::fmt::Display| Failure::host(format!("{}: can't write: {error}", path.display()));
        let mut text = serde_json::to_string_pretty(self).map_err(|error| cannot(&error))?;
        text.push('\n');
        let mut file = AtomicFile::create(&path).map_err(Failure::host)?;
        file.write_all(text.as_bytes()).map_err(|error| cannot(&error))?;
        file.keep().map_err(Failure::host)
    }

    pub fn read(directory: &RunDirectory) -> Result<Self, Failure> {
        let path = directory.crash_setup();
        let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
        let file = File::open(&path)
            .map_err(|error| wrong(&format!("can't read: {error}")).help("`chronodisk crash` keeps such runs"))?;
        let text = TextFile::Result.read(file).map_err(|error| wrong(&format!("can't read: {error}")))?;
        let setup: Setup = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        match setup.schema == SCHEMA {
            true => Ok(setup),
            false => Err(wrong(&format!("schema is '{}'; expected '{SCHEMA}'", setup.schema))),
        }
    }
}
