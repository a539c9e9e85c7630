//! Result of a run, or the reason why there is none.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use chronodisk_sim::{Nanos, RequestRecord};

use super::replay::ReplayOutcome;
use crate::kernel::programs::HostLacks;
use crate::shared::control::BackendReport;
use crate::shared::costs::{Work, Worked};
use crate::shared::filesystem::FileSystem;
use crate::shared::page::{ClockCounters, ClockOptions};
use crate::shared::spec::GenericCode;
use crate::shared::spec::Settled;
use crate::shared::spec::{CheckResult, DroppedFiles, Stage};

/// Result of a run whose command was started.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The command's exit status as in a shell.
    pub exit_status: i32,
    /// End of each stage of the guest's life, in its own time.
    pub stages: BTreeMap<Stage, Nanos>,
    /// Begin and end of the command, in the guest's time.
    pub command: (Nanos, Nanos),
    /// The host's time from the guest's start to its end.
    pub host_total: Duration,
    /// The host's time between the command's begin and end.
    pub host_command: Duration,
    /// Every request, in order of arrival.
    pub records: Vec<RequestRecord>,
    /// The guest's clock as it was set.
    pub clock: ClockOptions,
    /// Counters from boot to power-off.
    pub counters: ClockCounters,
    /// Counters at the command's begin and at its end.
    pub counters_at: (ClockCounters, ClockCounters),
    /// Result of the replay, if system calls were replayed.
    pub replay: Option<ReplayOutcome>,
    /// Work of the kernel while the command ran, in the order of [`Work::ALL`](crate::Work::ALL).
    pub worked: [Worked; Work::COUNT],
    /// The backend's report.
    pub backend: BackendReport,
    /// The guest kernel's release.
    pub kernel_release: String,
    /// Result of the file system's checker, if requested.
    pub check: Option<CheckResult>,
    /// Warnings in the log of the guest's kernel since right before the command.
    pub kernel_warnings: Vec<String>,
    /// The host's CPU on which the guest's kernel and the device ran.
    pub host_cpu: usize,
    /// The host's CPU on which the guest's programs ran, if they had one of their own.
    pub programs_host_cpu: Option<usize>,
    /// The file system that was mounted.
    pub file_system: FileSystem,
    /// The signal that ended the run, if one did. The exit status is then the command's own only if the command ended
    /// by itself.
    pub asked_to_end: Option<i32>,
    /// Reason why some of the command's output could not be written.
    pub output_failure: Option<String>,
    /// Whether the file system had done its own work when the command began.
    pub settled: Settled,
    /// Files that the guest wrote to its view of the host's tree, and that were dropped with it.
    pub dropped: DroppedFiles,
    /// Generic code that the guest's kernel held when the command had ended.
    pub generic_code: Vec<GenericCode>,
    /// Number of refusals of each system call to the guest's kernel, by name; `None` if refusals were not received.
    pub refused_calls: Option<BTreeMap<String, u64>>,
}

/// Reason why a run has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The host lacks something.
    #[error(transparent)]
    HostLacks(#[from] HostLacks),
    /// The device could not be made as asked.
    #[error("{0}")]
    Device(String),
    /// A stage of the guest failed.
    #[error("the guest failed at {stage:?}: {message}", stage = .0, message = .1)]
    Stage(Stage, String),
    /// The guest's kernel ended without a word.
    #[error("the guest's kernel died ({how})")]
    GuestDied {
        /// Exit status of the process, in words.
        how: String,
        /// The last text on the console.
        console: String,
        /// Number of refusals of each system call, by name.
        refused_calls: BTreeMap<String, u64>,
    },
    /// The guest's kernel did not go on.
    #[error("the guest's kernel hangs ({how}); the guest was ended")]
    GuestHangs {
        /// The event that did not come.
        how: String,
        /// The last text on the console.
        console: String,
    },
    /// The guest's clock can't serve the kernel.
    #[error(
        "the guest's kernel never idled in a way that the guest's clock knows; Linux 6.1 to 7.2 are known, without \
         seccomp=on and with one processor"
    )]
    KernelUnknown,
    /// A process outside the guest has killed one of its processes.
    #[error("process {pid} of the guest was killed by signal {signal} from outside; the guest was ended")]
    ProcessKilled {
        /// The process's number on the host.
        pid: u64,
        /// The signal's number.
        signal: i32,
    },
    /// The backend ended before the guest.
    #[error("the device's backend process died ({how}); the guest was ended")]
    BackendDied {
        /// Exit status of the process, in words.
        how: String,
    },
    /// A helper process has ended, which it does not do by itself.
    #[error("{what} died ({how}); the guest was ended")]
    HelperDied {
        /// The process, by its task.
        what: &'static str,
        /// Exit status of the process, in words.
        how: String,
    },
    /// A model that is elsewhere was lost.
    #[error("{0}")]
    ModelLost(String),
    /// The user ended it.
    #[error("interrupted")]
    Interrupted {
        /// Number of the signal.
        signal: i32,
    },
    /// An operation on the host failed.
    #[error("{doing}: {source}")]
    Io {
        /// The attempted action.
        doing: &'static str,
        /// The host's error.
        source: io::Error,
    },
}

/// Adds the attempted action to the host's error.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, RunError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> Result<T, RunError> {
        self.map_err(|source| RunError::Io { doing, source: source.into() })
    }
}
