//! Command, devices and machine of a run.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::Plan;

use super::replay::ThinkTime;
use crate::kernel::installed::UserModeLinux;
use crate::recording::Recording;
use crate::shared::device_options::DeviceOptions;
use crate::shared::filesystem::FileSystem;
use crate::shared::spec::RootChoice;
use crate::shared::states::StatesOptions;
use crate::shared::time::GuestTime;

const PATIENCE: Duration = Duration::from_secs(60);
const MEMORY_BYTES: u64 = 512 << 20;

/// Command and devices of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program of the helper processes and of the guest's first process. Its first argument selects
    /// [`guest_init`](crate::guest_init) or another entry point.
    pub executable: PathBuf,
    /// The devices, at least one, in the order of the guest's names for them: /dev/vda, /dev/vdb and on.
    pub devices: Vec<DeviceOptions>,
    /// Timeout for an answer of a remote model.
    pub answer_patience: Duration,
    /// Timeout for the reconnection to a remote model.
    pub reconnect_patience: Duration,
    /// Bounds of the uniform sleep in every call of the model; the guest must not notice it.
    pub model_delay: RangeInclusive<Nanos>,
    /// Diagnostic: longest random sleep of the guest's clock at one in eight of its entries; the guest must not notice.
    pub clock_disturbance: Nanos,
    /// Seed of everything that is random.
    pub seed: u64,
    /// File system to make and mount, or to mount alone ([`FileSystem::Existing`]).
    pub file_system: FileSystem,
    /// Whether one may be made on a store that holds something.
    pub overwrite: bool,
    /// Further words for mkfs.
    pub mkfs_options: Vec<String>,
    /// Options for `mount -o`.
    pub mount_options: Option<String>,
    /// Type for `mount -t`, instead of the file system's name: the one registered by a module of the user's own.
    pub mount_type: Option<String>,
    /// Absolute path of the mount point in the guest.
    pub mount_point: String,
    /// The guest's I/O scheduler; `None` for its kernel's default.
    pub scheduler: Option<String>,
    /// The guest's memory in bytes.
    pub memory_bytes: u64,
    /// Mode of the guest's time.
    pub time: GuestTime,
    /// The guest's kernel; `None` for the installed one for its clock.
    pub kernel: Option<PathBuf>,
    /// Modules of the user's own that are loaded before the file system is made, as paths of the host's tree.
    pub modules: Vec<PathBuf>,
    /// The guest's date at its start; `None` for the host's current one.
    pub start_time: Option<Duration>,
    /// Whether the guest writes to the host's tree itself.
    pub host_writes: bool,
    /// Place of the command's root; not on the device if the guest writes to the host's tree itself.
    pub root: RootChoice,
    /// Whether the command waits until the file system has done its own work, in the guest's time: it does not in the
    /// host's.
    pub settle: bool,
    /// Whether the guest's caches are emptied before the command; they are for a root on the device.
    pub drop_caches: bool,
    /// Whether to check the file system after it was unmounted.
    pub check: bool,
    /// Interval of the guest's time between samples of the devices' use of the host; none under [`GuestTime::Real`].
    pub sample_every: Option<Nanos>,
    /// Command and arguments; ignored if system calls are replayed.
    pub command: Vec<OsString>,
    /// Replay in place of a command.
    pub replay: Option<ReplayOptions>,
    /// Memory for recording the command's system calls, if they are recorded.
    pub recording: Option<Recording>,
    /// States of a device that the guest checks in place of a command; the devices hold them.
    pub states: Option<StatesOptions>,
    /// Longest time on the guest's clock between two acknowledgements. The guest is ended after it.
    pub heartbeat_timeout: Option<Nanos>,
    /// Whether the command has a pipe for acknowledgements, named by `$CHRONODISK_ACK`.
    pub acknowledges: bool,
    /// Whether the command's standard output goes to this process's standard error.
    pub stdout_to_stderr: bool,
    /// A signal that asks to end (interrupt, terminate, hang up, quit) ends the run, and does not go to the command.
    pub ends_by_signal: bool,
}

impl RunOptions {
    /// A run of `command` on one device with ext4 at `/mnt`, with the defaults of `chronodisk run`.
    #[must_use]
    pub fn new(executable: PathBuf, device: DeviceOptions, time: GuestTime, command: Vec<OsString>) -> Self {
        RunOptions {
            executable,
            devices: vec![device],
            answer_patience: PATIENCE,
            reconnect_patience: PATIENCE,
            model_delay: Nanos::ZERO..=Nanos::ZERO,
            clock_disturbance: Nanos::ZERO,
            seed: 1,
            file_system: FileSystem::Ext4,
            overwrite: false,
            mkfs_options: Vec::new(),
            mount_options: None,
            mount_type: None,
            mount_point: "/mnt".to_owned(),
            scheduler: Some("none".to_owned()),
            memory_bytes: MEMORY_BYTES,
            time,
            kernel: None,
            modules: Vec::new(),
            start_time: None,
            host_writes: false,
            root: RootChoice::Host,
            settle: true,
            drop_caches: false,
            check: false,
            sample_every: None,
            command,
            replay: None,
            recording: None,
            states: None,
            heartbeat_timeout: None,
            acknowledges: false,
            stdout_to_stderr: false,
            ends_by_signal: false,
        }
    }

    /// The kernel that the guest would run; `None` if this host has none.
    #[must_use]
    pub fn kernel_file(&self) -> Option<PathBuf> {
        UserModeLinux::for_clock(&self.time, self.kernel.as_deref()).ok().map(|kernel| kernel.executable)
    }
}

/// System calls that a guest makes in place of a command.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// System calls to be replayed, with their order.
    pub plan: Arc<Plan>,
    /// Conversion of recorded CPU time into the guest's.
    pub think: ThinkTime,
}
