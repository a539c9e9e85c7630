//! The check of states that a device may be in after a power cut: its options, and the reports on states.

use chronodisk_sim::Nanos;
use serde::{Deserialize, Serialize};

use super::filesystem::FileSystem;

/// The states that a guest checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatesOptions {
    /// File system of the states; [`FileSystem::None`] if the check gets the device.
    pub file_system: FileSystem,
    /// Options for `mount -o`.
    pub mount_options: Option<String>,
    /// Type for `mount -t`, instead of the file system's name.
    pub mount_type: Option<String>,
    /// Absolute path of the mount point in the guest.
    pub mount_point: String,
    /// The check, for `sh -c`.
    pub check: String,
    /// Time on the guest's clock after which the check, or another program of a step, is killed and has failed.
    pub check_timeout: Nanos,
    /// For each device, the path of the file with the acknowledged lines.
    pub acknowledged: Vec<String>,
}

/// A step of the check of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateStep {
    /// The first mount, in which the file system recovers.
    Mount,
    /// The unmounting after it.
    Unmount,
    /// The file system's checker.
    FileSystem,
    /// The second mount.
    Remount,
    /// The user's check.
    Check,
    /// A panic of the guest's kernel, or its end in another way.
    Panic,
}

impl StateStep {
    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            StateStep::Mount => "mount",
            StateStep::Unmount => "unmount",
            StateStep::FileSystem => "file-system",
            StateStep::Remount => "remount",
            StateStep::Check => "check",
            StateStep::Panic => "panic",
        }
    }
}

/// A line of the checker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateEvent {
    /// A step of the present state begins.
    Begins(StateStep),
    /// The present state was judged.
    Judged(StateReport),
}

/// The report on a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateReport {
    /// The device, counted from 0.
    pub device: usize,
    /// The failed step; `None` if the state passed.
    pub failed: Option<StateStep>,
    /// Output of the failed step, shortened.
    pub output: String,
}

impl StateEvent {
    /// Decodes a line that the checker wrote.
    #[must_use]
    pub fn decode(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

/// The user of the check, as numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}
