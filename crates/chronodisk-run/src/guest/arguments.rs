//! The options of commands that run a guest.

use std::ffi::OsString;
use std::path::PathBuf;

use chronodisk_guest::FileSystem;
use chronodisk_sim::Nanos;
use clap::{Args, ValueEnum};

use crate::arguments::{DebugSetting, DebugSettings, DeviceOptions, Elsewhere, Reps, ResultOptions, SquashArguments};
use crate::failure::Failure;
use crate::memory::host_memory_bytes;
use crate::quantity;

/// Flags of every command that runs a guest.
#[derive(Debug, Args)]
pub struct GuestArguments {
    /// Selects the device: a name from `chronodisk devices`, a profile file, or exec:COMMAND for a program that is
    /// the model. Repeat it for further devices: /dev/vdb, /dev/vdc and so on. Options
    /// of the device apply to each
    #[arg(long, short, value_name = "PROFILE", required_unless_present = "server")]
    pub device: Vec<String>,

    /// The place of the models.
    #[command(flatten)]
    pub elsewhere: Elsewhere,

    /// Makes this file system on the first device and mounts it; existing mounts the one that --store holds, none
    /// leaves the device empty. Zoned devices take btrfs, zonefs or none, and f2fs with a conventional device beside
    /// them
    #[arg(long, value_name = "FS", default_value = "ext4", value_parser = file_system_parser())]
    pub fs: FileSystem,

    /// Makes the file system even if the store holds something
    #[arg(long)]
    pub overwrite: bool,

    /// Begins with the file system of this snapshot, made by `chronodisk trace snapshot`, instead of a new one. The
    /// snapshot itself stays as it is
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fs", "mkfs_options", "overwrite"])]
    pub snapshot: Option<PathBuf>,

    /// Capacity, state, speed and limits of each device, and the seed.
    #[command(flatten)]
    pub on: DeviceOptions,

    /// Mounts the file system at this absolute path in the guest
    #[arg(long, value_name = "DIR", default_value = "/mnt")]
    pub mount: String,

    /// Selects where CMD's files are: on this host, which takes no device time, or on the first device, to which they
    /// are copied before CMD runs
    #[arg(long, value_name = "WHERE", default_value = "host")]
    pub root: Root,

    /// Copies this file or directory to the device as well, under --root device; may be repeated
    #[arg(long, value_name = "PATH")]
    pub root_files: Vec<PathBuf>,

    /// Sets the guest's memory
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    pub memory: u64,

    /// Passes these options to mkfs; several are separated by spaces and quoted together
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub mkfs_options: Option<String>,

    /// Passes these options to mount -o, such as noatime,commit=30
    #[arg(long, value_name = "OPTIONS")]
    pub mount_options: Option<String>,

    /// Mounts the file system as this type instead of --fs, such as a modified file system of --module
    #[arg(long, value_name = "NAME")]
    pub mount_type: Option<String>,

    /// Sets the guest's I/O scheduler
    #[arg(long, value_name = "NAME", default_value = "none")]
    pub scheduler: Scheduler,

    /// Repeats the run N times, each on a fresh device and with the next seed. With auto, a pilot of 5 decides on 10 to
    /// 100 further repetitions, for a 95 % confidence interval of the run time within 5 % of its mean
    #[arg(long, value_name = "N|auto", default_value = "1")]
    pub reps: Reps,

    /// Selects the guest's clock
    #[arg(long, value_name = "CLOCK", default_value = "guest")]
    pub clock: Clock,

    /// Selects how much time passes while the guest computes (default: measured; zero with --clock exact; wall with
    /// --clock real)
    #[arg(long, value_name = "BASE")]
    pub cpu: Option<Cpu>,

    /// Sets the number of the guest's processors; experimental beyond 1. Several need the kernel of `kernel build
    /// processors`. Their clocks differ by up to 1 ms, and runs do not repeat
    #[arg(long, value_name = "N", default_value = "1", value_parser = quantity::processors)]
    pub cpus: usize,

    /// Boots this kernel, the program `linux` of a build with ARCH=um (default: the installed one)
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Loads this kernel module before the file system is made; may be repeated
    #[arg(long = "module", value_name = "FILE")]
    pub modules: Vec<PathBuf>,

    /// Multiplies all CPU time of the guest's kernel by F under --cpu measured (default: by kind of work, with
    /// calibrated or built-in costs)
    #[arg(long, value_name = "F", value_parser = quantity::kernel_scale)]
    pub kernel_scale: Option<f64>,

    /// Uses the costs of another machine under --cpu measured: a file that calibrate has written there (default: this
    /// machine's calibration, or built-in costs)
    #[arg(long, value_name = "FILE", conflicts_with = "kernel_scale")]
    pub machine: Option<PathBuf>,

    /// Sets the speed of the guest's processor relative to this host's, such as 2x or 0.5x
    #[arg(long, value_name = "FACTOR", default_value = "1x", value_parser = quantity::cpu_speed)]
    pub cpu_speed: f64,

    /// Selects how time passes while the guest is idle (default: jump, until a user types at a terminal)
    #[arg(long, value_name = "PACE")]
    pub idle: Option<Idle>,

    /// Sets the guest's clock at boot, in seconds since 1970, for repeatable file times (default: now)
    #[arg(long, value_name = "SECONDS")]
    pub start_time: Option<u64>,

    /// Keeps the device's bytes in memory, or in a file that outlives the run. Several devices use FILE.vda, FILE.vdb
    /// and so on; with --squash they share one image
    #[arg(long, value_name = "ram|FILE", default_value = "ram")]
    pub store: OsString,

    /// Limits the host memory for the device's bytes (default: half of the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    pub ram_budget: Option<u64>,

    /// Makes completed writes, or flushes if the device has a volatile cache, survive a power cut of this host
    #[arg(long)]
    pub durable: bool,

    /// The kind of the store.
    #[command(flatten)]
    pub squash: SquashArguments,

    /// Records memory and CPU time of the emulator's components at this interval of guest time
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    pub sample_every: Option<Nanos>,

    /// Records every request of the device with its bytes and instants to a new file, in the format of
    /// docs/recording-format.md
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub record_store: Option<PathBuf>,

    /// Makes the guest's kernel flag file contents in its writes, so that --squash also works on file systems that it
    /// does not recognise. Uses the kernel of `chronodisk kernel build`
    #[arg(long, requires = "squash", hide_short_help = true)]
    pub notify_file_data: bool,

    /// Lets programs of the guest use interface extensions, by request pages that they write to the device
    /// (docs/request-pages.md)
    #[arg(long, conflicts_with_all = ["squash", "record_store"], hide_short_help = true)]
    pub interface_extensions: bool,

    /// Keeps the guest's changes to this host's files instead of discarding them
    #[arg(long)]
    pub host_writes: bool,

    /// Runs CMD at once after the file system is mounted, instead of waiting until it has done its own work, such as
    /// reading its bitmaps ahead. The wait is in the guest's time, at most an hour
    #[arg(long)]
    pub no_settle: bool,

    /// Empties the guest's page cache before CMD runs
    #[arg(long)]
    pub drop_caches: bool,

    /// Checks the file system after it is unmounted; errors end the run with status 1
    #[arg(long)]
    pub check: bool,

    /// Labels and directory of the result.
    #[command(flatten)]
    pub result: ResultOptions,

    /// Shows neither the status line nor the summary; warnings and errors are shown
    #[arg(long, short)]
    pub quiet: bool,

    /// Tests the emulator; the guest's results stay the same. model-delay=DURATION or MIN..MAX delays each call of the
    /// model; store-rate=SIZE limits the store's transfers per second; clock-disturbance=DURATION delays entries of the
    /// guest's clock; all three in host time. speculation=off keeps a --server from computing ahead; journal=ignored
    /// squashes ext3 and ext4 without reading their journals. May be repeated
    #[arg(long, value_name = "KEY=VALUE", hide_short_help = true, value_parser = DebugSetting::of_guest)]
    pub debug: Vec<DebugSetting>,
}

/// The guest's I/O scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the values are the kernel's names")]
pub enum Scheduler {
    None,
    MqDeadline,
    Bfq,
    Kyber,
}

/// The guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Clock {
    /// Virtual time on Debian's kernel: stops while the emulator computes, skips idle time
    Guest,
    /// Simulated time to the nanosecond; needs the kernel that `chronodisk kernel build` makes
    Exact,
    /// This host's time. The guest's system calls are slow in it: for devices of about 1 ms and slower
    Real,
}

/// Time that passes while the guest computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cpu {
    /// The guest's CPU time; its kernel's part is scaled to the cost of native system calls
    Measured,
    /// The elapsed time of this host
    Wall,
    /// None: only devices and timers take time, and runs repeat to the nanosecond
    Zero,
}

/// The place of CMD's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Root {
    /// This host's file tree
    Host,
    /// The first device: the program, its libraries, the files on its command line, and all that it writes
    Device,
}

/// Time that passes while the guest is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    /// Skips to the next event
    Jump,
    /// Passes as on this host
    Host,
}

fn file_system_parser() -> impl clap::builder::TypedValueParser<Value = FileSystem> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(FileSystem::ALL.map(FileSystem::name)).try_map(|name| name.parse::<FileSystem>())
}

fn memory(text: &str) -> Result<u64, String> {
    match quantity::bytes(text)? {
        size if size < MEMORY_MIN_BYTES => Err("the guest's kernel needs at least 64MiB".into()),
        size if size > host_memory_bytes() => Err("expected less than this host's memory".into()),
        size => Ok(size),
    }
}

fn interval(text: &str) -> Result<Nanos, String> {
    match quantity::duration(text)? {
        Nanos::ZERO => Err("expected an interval above zero, such as 1s".into()),
        interval => Ok(interval),
    }
}

/// With less memory, the distribution's kernel does not always boot.
const MEMORY_MIN_BYTES: u64 = 64 << 20;

impl GuestArguments {
    /// The number of repetitions, if one was given.
    pub fn repetitions(&self) -> Result<u32, Failure> {
        match self.reps {
            Reps::Fixed(count) => Ok(count),
            Reps::Auto => Err(Failure::usage("--reps auto can't be used with --bootstrap; expected a number of draws")),
        }
    }

    /// The settings of `--debug`.
    pub fn debug_settings(&self) -> Result<DebugSettings, Failure> {
        let settings = DebugSettings::new(&self.debug);
        if settings.journal_ignored && !self.squash.is_given() {
            return Err(Failure::usage("--debug journal=ignored needs --squash"));
        }
        self.elsewhere.expect_server_for(&settings)?;
        Ok(settings)
    }

    /// Another number of repetitions than was given.
    pub fn repeat(&mut self, count: u32) {
        self.reps = Reps::Fixed(count);
    }

    /// Whether the guest makes or mounts a file system, and the host's tree is its root.
    pub fn expect_mounted(&self) -> Result<(), Failure> {
        if self.fs == FileSystem::None {
            return Err(Failure::usage("a trace needs a file system to be replayed on; --fs none makes none"));
        }
        if self.fs == FileSystem::Zonefs {
            return Err(Failure::usage("--fs zonefs can't be used with a trace: no file can be made on it"));
        }
        match self.root {
            Root::Host => Ok(()),
            Root::Device => Err(Failure::usage("--root device can't be used with a trace, which has no program")),
        }
    }

    /// Mounts the file system at its recorded mount point, unless the user gave another one.
    pub fn mount_at(&mut self, recorded: &str, given: bool) -> Result<(), Failure> {
        if given && self.mount != recorded {
            return Err(Failure::usage(format!(
                "--mount {}: the trace was recorded on a file system at {recorded}, to which its paths lead",
                self.mount
            ))
            .help("leave --mount out"));
        }
        recorded.clone_into(&mut self.mount);
        Ok(())
    }
}
