//! Instructions of the launcher to the guest's first process, and its reports.

use std::ops::Deref;
use std::path::PathBuf;

use serde::{Deserialize, Serialize, Serializer};

use super::filesystem::FileSystem;

/// Bytes that need not be UTF-8: arguments, paths, the environment. Valid UTF-8 goes to the guest as text, a third of
/// the length of a list of numbers: its kernel reads the line byte by byte.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "ByteStringForm")]
pub(crate) struct ByteString(Vec<u8>);

#[derive(Deserialize)]
#[serde(untagged)]
enum ByteStringForm {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<ByteStringForm> for ByteString {
    fn from(form: ByteStringForm) -> Self {
        ByteString(match form {
            ByteStringForm::Text(text) => text.into_bytes(),
            ByteStringForm::Bytes(bytes) => bytes,
        })
    }
}

impl Serialize for ByteString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(&self.0),
        }
    }
}

impl From<Vec<u8>> for ByteString {
    fn from(bytes: Vec<u8>) -> Self {
        ByteString(bytes)
    }
}

impl From<&[u8]> for ByteString {
    fn from(bytes: &[u8]) -> Self {
        ByteString(bytes.to_vec())
    }
}

impl Deref for ByteString {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Everything that the guest's first process must know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GuestSpec {
    /// Command and arguments.
    pub command: Vec<ByteString>,
    /// Whether the command is this executable, which replays system calls as the calling user by itself.
    pub replays: bool,
    /// Whether the command's system calls are recorded.
    pub records: bool,
    /// The command is this executable, which checks states of this file system as root.
    pub checks_states: Option<FileSystem>,
    /// Whether the command has a pipe for acknowledgements.
    pub acknowledges: bool,
    /// `NAME=VALUE` of each variable.
    pub environment: Vec<ByteString>,
    pub working_directory: ByteString,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub umask: u32,
    /// Whether standard input, output and error are terminals on the host.
    pub terminals: [bool; 3],
    /// Rows and columns of the terminal.
    pub window_size: Option<(u16, u16)>,
    /// Number of devices.
    pub devices: usize,
    /// Whether each of them turns.
    pub rotational: Vec<bool>,
    /// Whether each of them is written in zones.
    pub zoned: Vec<bool>,
    pub file_system: FileSystem,
    /// Whether to make it before it is mounted.
    pub makes_file_system: bool,
    pub mkfs_options: Vec<String>,
    pub mount_options: Option<String>,
    /// For `mount -t`, instead of the file system's name.
    pub mount_type: Option<String>,
    pub mount_point: String,
    pub scheduler: Option<String>,
    /// Seeds the file system's UUID and hash seed.
    pub seed: u64,
    /// Whether the guest writes to the host's tree itself rather than to an overlay.
    pub host_writes: bool,
    /// Place of the command's root.
    pub root: RootChoice,
    /// Whether to wait until the file system has done its own work.
    pub settles: bool,
    /// Whether to empty the caches before the command.
    pub drop_caches: bool,
    /// Whether to check the file system after it was unmounted.
    pub check: bool,
    /// Modules for the guest's kernel, as paths of the host's tree, in load order; `None` for a kernel with a guest's
    /// needs built in.
    pub modules: Option<Vec<ByteString>>,
    /// Modules of the user's own, likewise.
    pub own_modules: Vec<ByteString>,
}

impl GuestSpec {
    /// Whether the device of this index is written in zones.
    pub fn is_zoned(&self, index: usize) -> bool {
        self.zoned.get(index).copied().unwrap_or(false)
    }

    /// The device that is mounted: the first, but for f2fs on a zoned one, which has its superblock on the first
    /// conventional device.
    pub fn mounted_device(&self) -> usize {
        match self.file_system == FileSystem::F2fs && self.is_zoned(0) {
            true => (0..self.devices).find(|&index| !self.is_zoned(index)).unwrap_or(0),
            false => 0,
        }
    }
}

/// Place of a guest's root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootChoice {
    /// The host's tree, untimed.
    #[default]
    Host,
    /// The first device, over the host's tree.
    Device {
        /// Files and complete folders that are copied in addition to the program's own; absolute paths.
        files: Vec<PathBuf>,
    },
}

/// An instant of the guest's life, by the guest's own time stamp counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub stage: Stage,
    pub time_stamp_counter: u64,
}

/// Stages of a guest's life; a mark is set when one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The kernel booted, the host's tree is in place, the device is there.
    Boot,
    /// The file system was made.
    Mkfs,
    /// The file system was mounted.
    Mount,
    /// The file system has done its own work.
    Settle,
    /// The command ran.
    Command,
    /// The file system was unmounted.
    Unmount,
    /// The file system was checked.
    Check,
}

/// The end of the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Ending {
    /// The command ran and ended.
    Exited(Exited),
    /// Something before or after the command failed.
    Failed { stage: Stage, message: String },
}

/// The command's end, and the guest's state afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exited {
    /// The command's exit status, or 128 + the signal that killed it; 127 if it was not found, 126 if it could not be
    /// executed.
    pub status: i32,
    pub kernel_release: String,
    pub check: Option<CheckResult>,
    pub kernel_warnings: Vec<String>,
    pub settled: Settled,
    pub dropped: DroppedFiles,
    pub generic_code: Vec<GenericCode>,
}

/// End of the wait for the file system's own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    /// No wait was needed.
    #[default]
    NotAwaited,
    /// The devices are idle.
    Idle,
    /// The file system still works after the longest wait.
    StillBusy,
}

/// An algorithm, and the file systems or arrays that use its generic code; empty if these are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenericCode {
    /// Common name of the algorithm.
    pub algorithm: String,
    /// Names of its users.
    pub holders: Vec<String>,
}

/// Files that the guest wrote to its view of the host's tree, and that end with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedFiles {
    /// Their number.
    pub count: u64,
    /// Path of the first, in the order of their names.
    pub first: Option<String>,
}

/// Result of the file system's own checker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Whether it found no fault.
    pub clean: bool,
    /// The command that was run.
    pub command: String,
    /// Its output.
    pub output: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_strings_are_text_where_they_can_be() {
        for (bytes, json) in [(&b"a\"b"[..], r#""a\"b""#), (b"", r#""""#), (b"\xffa", "[255,97]")] {
            let text = ByteString::from(bytes);
            assert_eq!(serde_json::to_string(&text).unwrap(), json);
            assert_eq!(serde_json::from_str::<ByteString>(json).unwrap(), text);
        }
    }
}
