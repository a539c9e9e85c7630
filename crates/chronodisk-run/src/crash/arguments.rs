//! The options of `chronodisk crash`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use chronodisk_guest::FileSystem;
use chronodisk_sim::Nanos;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, FromArgMatches, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::arguments::{DeviceOptions, Elsewhere, ResultOptions};
use crate::failure::Failure;
use crate::guest::{Clock, GuestArguments, Root};
use crate::quantity;

/// Flags of `chronodisk crash`.
#[derive(Debug, Args)]
pub struct CrashArguments {
    /// Selects the device: a name from `chronodisk devices`, a profile file, or exec:COMMAND for a program that is
    /// the model
    #[arg(long, short, value_name = "PROFILE", required_unless_present_any = ["server", "from", "resume"])]
    pub device: Option<String>,

    /// The place of the model.
    #[command(flatten)]
    pub elsewhere: Elsewhere,

    /// Makes this file system on the device and mounts it; none leaves the device empty, and CHECK gets the device
    #[arg(long, value_name = "FS", default_value = "ext4", value_parser = file_systems())]
    pub fs: FileSystem,

    /// Capacity, state, speed and limits of the device, and the seed of the cuts and states.
    #[command(flatten)]
    pub on: DeviceOptions,

    /// Cuts the power at this number of instants, drawn by the seed, or after every event
    #[arg(long, value_name = "N|all", default_value = "20")]
    pub cuts: CutCount,

    /// Selects the states of the device at a cut: any that the block layer allows, or the one of the device's model
    #[arg(long, value_name = "STATES", default_value = "any")]
    pub states: StateChoice,

    /// Checks states in this number of guests at the same time (default: one for each processor)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,

    /// Runs this shell command on each state, in the mounted file system; a status other than zero is a failure.
    /// $CHRONODISK_ACK names a file with the lines acknowledged before the cut
    #[arg(long, value_name = "CHECK", required_unless_present_any = ["from", "resume"])]
    pub check: Option<String>,

    /// Kills CHECK, or the file system's checker, after this time on the guest's clock, which is a failure of the state
    /// (default: 5min)
    #[arg(long, value_name = "DURATION", value_parser = quantity::timeout)]
    pub check_timeout: Option<Nanos>,

    /// Checks the states of a kept run again, without running CMD
    #[arg(long, value_name = "RUN", conflicts_with_all = OF_RECORDING)]
    pub from: Option<String>,

    /// Continues the ended checks of a kept run: checks the states without a verdict
    #[arg(long, value_name = "RUN", conflicts_with_all = ["from", "only"], conflicts_with_all = OF_RECORDING)]
    pub resume: Option<String>,

    /// Checks this state alone; several are given by repetition
    #[arg(long, value_name = "STATE", requires = "from")]
    pub only: Vec<u32>,

    /// Mounts the file system at this absolute path in the guest
    #[arg(long, value_name = "DIR", default_value = "/mnt")]
    pub mount: String,

    /// Selects where CMD's files are: on this host, or on the device, to which they are copied before CMD runs
    #[arg(long, value_name = "WHERE", default_value = "host")]
    pub root: Root,

    /// Copies this file or directory to the device as well, under --root device; may be repeated
    #[arg(long, value_name = "PATH")]
    pub root_files: Vec<PathBuf>,

    /// Passes these options to mkfs; several are separated by spaces and quoted together
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub mkfs_options: Option<String>,

    /// Passes these options to mount -o, such as noauto_da_alloc, also for the checks
    #[arg(long, value_name = "OPTIONS")]
    pub mount_options: Option<String>,

    /// Sets the memory of each guest
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = quantity::bytes)]
    pub memory: u64,

    /// Selects the guest's clock
    #[arg(long, value_name = "CLOCK", default_value = "guest")]
    pub clock: Clock,

    /// Sets the guest's clock at boot, in seconds since 1970, for repeatable file times (default: now)
    #[arg(long, value_name = "SECONDS")]
    pub start_time: Option<u64>,

    /// Boots this kernel, the program `linux` of a build with ARCH=um (default: the installed one)
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Loads this kernel module before the file system is made; may be repeated
    #[arg(long = "module", value_name = "FILE")]
    pub modules: Vec<PathBuf>,

    /// Labels and directory of the result.
    #[command(flatten)]
    pub result: ResultOptions,

    /// Shows neither the status line nor the summary; warnings and errors are shown
    #[arg(long, short)]
    pub quiet: bool,

    /// Program to run in the guest, with its arguments
    #[arg(last = true, required_unless_present_any = ["from", "resume"], value_name = "CMD ARGS", num_args = 1..)]
    pub command: Vec<OsString>,
}

/// Arguments that a kept run has already.
const OF_RECORDING: [&str; 26] = [
    "device",
    "server",
    "fs",
    "capacity",
    "state",
    "device_speed",
    "limit",
    "fault",
    "seed",
    "cuts",
    "states",
    "mount",
    "root",
    "root_files",
    "mkfs_options",
    "mount_options",
    "memory",
    "clock",
    "start_time",
    "kernel",
    "modules",
    "output",
    "name",
    "tags",
    "note",
    "command",
];

/// Number of cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutCount {
    /// This number.
    Drawn(u32),
    /// One after each event.
    All,
}

impl FromStr for CutCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("all", _) => Ok(CutCount::All),
            (_, Ok(count @ 1..=CUTS_MAX)) => Ok(CutCount::Drawn(count)),
            _ => Err(format!("expected a number from 1 to {CUTS_MAX}, or all")),
        }
    }
}

/// Most drawn cuts.
const CUTS_MAX: u32 = 1_000_000;

/// States at a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateChoice {
    /// The contents of the device's medium and of its protected buffers, by its model
    Model,
    /// Any subset of the writes that are not durable, torn at physical blocks
    Any,
}

impl StateChoice {
    /// The name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            StateChoice::Model => "model",
            StateChoice::Any => "any",
        }
    }
}

fn file_systems() -> impl TypedValueParser<Value = FileSystem> {
    PossibleValuesParser::new(FILE_SYSTEMS.map(FileSystem::name)).try_map(|name| name.parse::<FileSystem>())
}

/// File systems that can be made on a device without zones, and none.
const FILE_SYSTEMS: [FileSystem; 7] = [
    FileSystem::Ext4,
    FileSystem::Ext3,
    FileSystem::Ext2,
    FileSystem::Xfs,
    FileSystem::Btrfs,
    FileSystem::F2fs,
    FileSystem::None,
];

impl CrashArguments {
    /// The options of the run that is recorded.
    pub(super) fn of_run(&self) -> Result<GuestArguments, Failure> {
        if self.clock == Clock::Real {
            return Err(Failure::usage("--clock real can't be used with crash")
                .help("use --clock guest or exact, whose instants the guest can't miss"));
        }
        let words = clap::Command::new("run").no_binary_name(true);
        let words = GuestArguments::augment_args(words).try_get_matches_from(["--device", "null"]);
        let defaults = words.and_then(|matches| GuestArguments::from_arg_matches(&matches));
        let defaults = defaults.map_err(|error| Failure::usage(error.to_string()))?;
        Ok(GuestArguments {
            device: self.device.iter().cloned().collect(),
            elsewhere: self.elsewhere.clone(),
            fs: self.fs,
            on: self.on.clone(),
            mount: self.mount.clone(),
            root: self.root,
            root_files: self.root_files.clone(),
            mkfs_options: self.mkfs_options.clone(),
            mount_options: self.mount_options.clone(),
            memory: self.memory,
            clock: self.clock,
            start_time: self.start_time,
            kernel: self.kernel.clone(),
            modules: self.modules.clone(),
            result: self.result.clone(),
            quiet: self.quiet,
            ..defaults
        })
    }
}
