//! Traces of block devices in the formats of other tools.
//!
//! [`Format`] lists them. A [`TraceReader`] takes a file's bytes and returns [`RequestRecord`]s; a [`TraceWriter`]
//! takes records and returns a file's bytes. Neither does I/O, so that files, pipes and decompressors are the caller's.
//!
//! Records are those of a run's log. Values that a trace lacks are absent: [`RequestRecord::due`] always, and
//! [`RequestRecord::completed`] if it has no response times ([`Nanos::MAX`] each). Instants count from the trace's
//! [origin](TraceInfo::origin_unix_ns). Ranges of bytes become whole sectors, outward, and such requests are counted.
//!
//! ```
//! use chronodisk_trace::block::{Format, TraceReader};
//!
//! let mut reader = TraceReader::new(Format::Alibaba);
//! let mut records = Vec::new();
//! reader.read(b"0,R,126703661056,4096,1577808000000046\n", &mut records)?;
//! reader.finish(&mut records)?;
//! assert_eq!((records[0].lba.0, records[0].sectors), (126703661056 / 512, 8));
//! assert_eq!(reader.info().volumes, ["0"]);
//! # Ok::<(), chronodisk_trace::block::FormatError>(())
//! ```

mod dependences;
mod events;
mod formats;
mod line;
mod reader;
mod reuse;
mod sink;
mod spread;
mod writer;

use std::fmt;
use std::str::FromStr;

pub use dependences::dependences;
pub use reader::{FormatError, LINE_BYTES_MAX, TraceReader};
pub use reuse::{Reuse, ReuseFigures};
pub use sink::{ReadCounts, VOLUME_NAME_BYTES_MAX, VOLUMES_MAX};
pub use spread::Spread;
pub use writer::{TraceWriter, WriteCounts};

#[cfg(doc)]
use chronodisk_sim::{Nanos, RequestRecord};

/// A format of block traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// fio's I/O log, version 2: pauses between requests.
    FioV2,
    /// fio's I/O log, version 3: time stamps.
    FioV3,
    /// DiskSim's default ASCII trace.
    DiskSim,
    /// Microsoft Research Cambridge, 2007.
    Msr,
    /// Storage Performance Council, revision 1.0.1.
    Spc,
    /// Alibaba Cloud, 2020.
    Alibaba,
    /// Tencent Cloud block storage, 2018.
    Tencent,
    /// Fujitsu's traces of SYSTOR '17.
    Systor17,
    /// Florida International University, 2008 (I/O deduplication).
    Fiu,
    /// The text that blkparse prints by default.
    Blkparse,
    /// The Linux kernel's binary block trace.
    Blktrace,
}

/// A trace's properties besides its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceInfo {
    /// Instant 0, in nanoseconds since 1970 (UTC); `None` if the trace has no calendar.
    pub origin_unix_ns: Option<u64>,
    /// Names of the volumes, by [`RequestRecord::device`].
    pub volumes: Vec<String>,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 11] = [
        Format::FioV2,
        Format::FioV3,
        Format::DiskSim,
        Format::Msr,
        Format::Spc,
        Format::Alibaba,
        Format::Tencent,
        Format::Systor17,
        Format::Fiu,
        Format::Blkparse,
        Format::Blktrace,
    ];

    /// The name that options and messages use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Format::FioV2 => "fio-v2",
            Format::FioV3 => "fio-v3",
            Format::DiskSim => "disksim",
            Format::Msr => "msr",
            Format::Spc => "spc",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Systor17 => "systor17",
            Format::Fiu => "fiu",
            Format::Blkparse => "blkparse",
            Format::Blktrace => "blktrace",
        }
    }

    /// Resolution of time stamps in this format, in nanoseconds.
    #[must_use]
    pub const fn resolution_ns(self) -> u64 {
        match self {
            Format::FioV2 | Format::FioV3 | Format::Alibaba => 1_000,
            Format::Msr => 100,
            Format::Tencent => 1_000_000_000,
            // The format has nine digits, but according to its makers only microseconds are accurate.
            Format::DiskSim | Format::Spc | Format::Systor17 | Format::Fiu => 1,
            Format::Blkparse | Format::Blktrace => 1,
        }
    }

    /// Whether copies of it begin with the names of the columns.
    pub(crate) const fn may_have_heading(self) -> bool {
        matches!(self, Format::Msr | Format::Spc | Format::Alibaba | Format::Tencent | Format::Systor17)
    }

    /// Whether a [`TraceWriter`] makes it.
    #[must_use]
    pub const fn can_be_written(self) -> bool {
        !matches!(self, Format::Fiu)
    }

    /// The format of a file's first bytes; `None` if it is not recognised.
    #[must_use]
    pub fn detect(bytes: &[u8]) -> Option<Format> {
        formats::detect(bytes)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Format::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
            format!("unknown trace format '{name}'; expected one of {}", names.join(", "))
        })
    }
}
