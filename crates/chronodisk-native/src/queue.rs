//! Settings of a block device's queue, in `/sys/block/NAME/queue`, and the kernel's account of its requests.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{major, minor, stat};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, NativeError};

/// Settings read back from the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSettings {
    /// Read-ahead of its page cache, in KiB.
    pub read_ahead_kib: u64,
    /// I/O scheduler.
    pub scheduler: String,
    /// Largest request in KiB.
    pub request_kib_max: u64,
    /// Whether the kernel sends flushes: `write back` or `write through`.
    pub write_cache: String,
    /// Whether it counts as a disk that turns.
    pub rotational: bool,
    /// Logical block in bytes.
    pub logical_block_bytes: u64,
    /// Whether it can discard.
    pub discard: bool,
}

/// Time that requests of this block device have waited and been served so far, in total, in the kernel's whole
/// milliseconds: the eleventh number of its `stat` (`Documentation/block/stat.rst`). `None` if the kernel does not
/// report it. It wraps at 2^32 ms.
#[must_use]
pub fn request_time(node: &Path) -> Option<Duration> {
    let number = stat(node).ok()?.st_rdev;
    let text = fs::read_to_string(format!("/sys/dev/block/{}:{}/stat", major(number), minor(number))).ok()?;
    text.split_whitespace().nth(10)?.parse().ok().map(Duration::from_millis)
}

/// Requested settings of a queue.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub read_ahead_kib: u64,
    pub scheduler: String,
    pub request_kib_max: u64,
    pub volatile_cache: bool,
    pub rotational: bool,
    pub discard: bool,
}

/// The queue of a block device.
pub(crate) struct Queue(PathBuf);

impl Queue {
    /// The queue of the device with this node.
    pub fn of(node: &Path) -> Self {
        Queue(Path::new("/sys/block").join(node.file_name().unwrap_or_default()).join("queue"))
    }

    /// Whether write-back is throttled (`block/blk-wbt.c` of the kernel): without a target for latencies it is not.
    pub fn throttles_write_back(&self) -> bool {
        self.number("wbt_lat_usec").is_ok_and(|target_us| target_us > 0)
    }

    /// Sets all, since a loop device keeps an earlier user's settings.
    pub fn set(&self, wanted: &Wanted) -> Result<QueueSettings, NativeError> {
        self.write("scheduler", &wanted.scheduler)?;
        let hardware_max: u64 = self.read("max_hw_sectors_kb")?.parse().unwrap_or(u64::MAX);
        self.write("max_sectors_kb", &wanted.request_kib_max.min(hardware_max).to_string())?;
        self.write("write_cache", if wanted.volatile_cache { "write back" } else { "write through" })?;
        self.write("rotational", if wanted.rotational { "1" } else { "0" })?;
        // Can't be undone on this device.
        if !wanted.discard {
            self.write("discard_max_bytes", "0")?;
        }
        // Last: the kernel chooses another one for a disk that turns when it learns that, or another largest request.
        self.write("read_ahead_kb", &wanted.read_ahead_kib.to_string())?;
        Ok(QueueSettings {
            read_ahead_kib: self.number("read_ahead_kb")?,
            scheduler: chosen(&self.read("scheduler")?),
            request_kib_max: self.number("max_sectors_kb")?,
            write_cache: self.read("write_cache")?,
            rotational: self.number("rotational")? == 1,
            logical_block_bytes: self.number("logical_block_size")?,
            discard: self.number("discard_max_bytes")? > 0,
        })
    }

    fn write(&self, name: &str, value: &str) -> Result<(), NativeError> {
        let path = self.0.join(name);
        fs::write(&path, value).doing(format!("writing '{value}' to {}", path.display()))
    }

    fn read(&self, name: &str) -> Result<String, NativeError> {
        let path = self.0.join(name);
        fs::read_to_string(&path).map(|text| text.trim().to_owned()).doing(format!("reading {}", path.display()))
    }

    fn number(&self, name: &str) -> Result<u64, NativeError> {
        let text = self.read(name)?;
        text.parse().map_err(|_| NativeError::System {
            doing: format!("reading {}: '{text}' is no number", self.0.join(name).display()),
            source: std::io::ErrorKind::InvalidData.into(),
        })
    }
}

/// The scheduler in brackets of a list such as `[none] mq-deadline`.
fn chosen(list: &str) -> String {
    let bracketed = list.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(list, |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_is_the_one_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }
}
