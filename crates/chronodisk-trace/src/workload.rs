//! Names of the workloads.

use std::fmt;
use std::str::FromStr;

/// A synthetic workload.
///
/// The first six are from Griffin, Schindler, Schlosser, Bucy and Ganger, "Timing-accurate Storage Emulation", FAST
/// 2002, section 5.1: "random or mixed" crossed with "small, uniform, or large", with 67 % reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// 4 KiB requests anywhere.
    RandomSmall,
    /// Requests of 2 KiB to 130 KiB anywhere.
    RandomUniform,
    /// 128 KiB requests anywhere.
    RandomLarge,
    /// 4 KiB requests, partly sequential and local.
    MixedSmall,
    /// Requests of 2 KiB to 130 KiB, partly sequential and local.
    MixedUniform,
    /// 128 KiB requests, partly sequential and local.
    MixedLarge,
    /// Reads of one block anywhere.
    RandomRead,
    /// Writes of one block anywhere.
    RandomWrite,
    /// Reads of one block after the other, again from the start at the end of the device.
    SequentialRead,
    /// Writes of one block after the other, again from the start at the end of the device.
    SequentialWrite,
    /// Reads and writes of one block anywhere.
    RandomMixed,
    /// Appends of one block to one zone after the other, again from the first at the end of the device.
    ZoneAppend,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 12] = [
        Workload::RandomSmall,
        Workload::RandomUniform,
        Workload::RandomLarge,
        Workload::MixedSmall,
        Workload::MixedUniform,
        Workload::MixedLarge,
        Workload::RandomRead,
        Workload::RandomWrite,
        Workload::SequentialRead,
        Workload::SequentialWrite,
        Workload::RandomMixed,
        Workload::ZoneAppend,
    ];

    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Workload::RandomSmall => "random-small",
            Workload::RandomUniform => "random-uniform",
            Workload::RandomLarge => "random-large",
            Workload::MixedSmall => "mixed-small",
            Workload::MixedUniform => "mixed-uniform",
            Workload::MixedLarge => "mixed-large",
            Workload::RandomRead => "random-read",
            Workload::RandomWrite => "random-write",
            Workload::SequentialRead => "seq-read",
            Workload::SequentialWrite => "seq-write",
            Workload::RandomMixed => "random-mixed",
            Workload::ZoneAppend => "zone-append",
        }
    }

    /// One line for people.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Workload::RandomSmall => "4 KiB anywhere, 67 % reads",
            Workload::RandomUniform => "2 to 130 KiB anywhere, 67 % reads",
            Workload::RandomLarge => "128 KiB anywhere, 67 % reads",
            Workload::MixedSmall => "4 KiB, 20 % sequential, 30 % local, 67 % reads",
            Workload::MixedUniform => "2 to 130 KiB, 20 % sequential, 30 % local, 67 % reads",
            Workload::MixedLarge => "128 KiB, 20 % sequential, 30 % local, 67 % reads",
            Workload::RandomRead => "reads of one block anywhere",
            Workload::RandomWrite => "writes of one block anywhere",
            Workload::SequentialRead => "reads of one block after the other",
            Workload::SequentialWrite => "writes of one block after the other",
            Workload::RandomMixed => "reads and writes of one block anywhere",
            Workload::ZoneAppend => "appends of one block to one zone after the other",
        }
    }

    /// Whether requests have the block size of the options; the others have sizes of their own.
    #[must_use]
    pub const fn uses_block_bytes(self) -> bool {
        matches!(
            self,
            Workload::RandomRead
                | Workload::RandomWrite
                | Workload::SequentialRead
                | Workload::SequentialWrite
                | Workload::RandomMixed
                | Workload::ZoneAppend
        )
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Workload::ALL.into_iter().find(|workload| workload.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Workload::ALL.iter().map(|workload| workload.name()).collect();
            format!("unknown workload '{name}'; expected one of {}", names.join(", "))
        })
    }
}
