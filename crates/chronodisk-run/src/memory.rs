//! Limits on the memory for the contents of files.

use std::fs;

use chronodisk_report::ReportError;
use chronodisk_sim::{ContentsLimit, OverLimit};
use clap::Args;
use rustix::process::{Resource, getrlimit};

use crate::failure::Failure;
use crate::quantity;

/// The limit of a command that reads files of any length.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct MemoryOptions {
    /// Limits the memory for the contents of files, such as 16GiB (default: a quarter of this host's memory, or of the
    /// limit of the control group or the process)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    memory_limit: Option<u64>,
}

impl MemoryOptions {
    /// The limit.
    pub fn limit(self) -> ContentsLimit {
        self.memory_limit.map_or_else(default_limit, ContentsLimit::of_bytes)
    }
}

/// A quarter of this process's memory limit.
pub fn default_limit() -> ContentsLimit {
    let bounds = [host_bytes(), control_group_bytes(), getrlimit(Resource::As).current];
    ContentsLimit::of_bytes(bounds.into_iter().flatten().min().unwrap_or(FALLBACK_BYTES) / 4)
}

/// Default limit on a host whose memory size is unknown.
const FALLBACK_BYTES: u64 = 4 << 30;

/// This host's memory in bytes.
pub fn host_memory_bytes() -> u64 {
    host_bytes().unwrap_or(MEMORY_IF_UNKNOWN_BYTES)
}

/// Memory size that is assumed without `/proc/meminfo`.
const MEMORY_IF_UNKNOWN_BYTES: u64 = 2 << 30;

fn host_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// The lowest limit of the control group and those above it (version 2).
fn control_group_bytes() -> Option<u64> {
    let lists = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = lists.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let parents = std::path::Path::new("/sys/fs/cgroup").join(own);
    let of = |folder: &std::path::Path| {
        let text = fs::read_to_string(folder.join("memory.max")).ok()?; // A file of /sys.
        text.trim().parse::<u64>().ok()
    };
    parents.ancestors().filter_map(of).min()
}

/// A file that needs more memory than is allowed.
pub fn exceeded(file: impl std::fmt::Display, over: OverLimit) -> Failure {
    Failure::usage(format!("{file}: {over}")).help(OverLimit::HELP)
}

/// The failure for an unreadable result, log or trace.
pub fn unreadable(error: ReportError) -> Failure {
    match error {
        ReportError::Memory { path, over } => exceeded(path.display(), over),
        error => Failure::usage(error),
    }
}
