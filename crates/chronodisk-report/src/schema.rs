//! The result of a run, as it is kept in JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use chronodisk_sim::{Nanos, TextError, TextFile};
use serde::{Deserialize, Serialize};

use crate::files::write_atomically;
use crate::{Distribution, Fidelity, Labels, ReportError, Summary, Surroundings, Verdict};

/// Name and version of [`RunResult`]'s form. The version changes when a reader of the old one
/// would misread the new one; added fields don't change it.
pub const RUN_SCHEMA: &str = "chronodisk.run/1";

/// Everything that is known of a run except its single requests, which are in the logs that
/// [`RepResult::log_file`] names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// Unique name of the run.
    pub run_id: String,
    /// The host's date and time at the start, as in RFC 3339.
    pub started_at: String,
    /// Version of the program that made it.
    pub chronodisk_version: String,
    /// Commit that the program was built from, with `-dirty` if its sources were changed; only from a checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chronodisk_commit: Option<String>,
    /// Labels given by the user.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The whole command line as it was given.
    pub command_line: Vec<String>,
    /// The program that ran in the guest, with its arguments.
    pub command: Vec<String>,
    /// Options as the user typed them, by name. A number with a dimension has the unit in its name.
    pub options_given: BTreeMap<String, serde_json::Value>,
    /// All options by name, with their defaults.
    pub options: BTreeMap<String, serde_json::Value>,
    /// The emulated device; the first of several.
    pub device: DeviceUsed,
    /// The others, in the order of the log's numbers for them, from 1.
    #[serde(default)]
    pub further_devices: Vec<DeviceUsed>,
    /// The clock of the run's time.
    pub clock: ClockInfo,
    /// The guest.
    pub guest: GuestInfo,
    /// The machine that it ran on.
    pub host: HostInfo,
    /// Environment of the guest that affects its behaviour. Absent in results of older versions and of other commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surroundings: Option<Surroundings>,
    /// The repetitions, in order.
    pub reps: Vec<RepResult>,
    /// The pilot that decided how many there are, if one did. Its repetitions are not among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<PilotResult>,
    /// Reservations about the figures.
    pub warnings: Vec<String>,
    /// Result of the replay, if a trace of system calls was replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayResult>,
    /// Cause of the run's end.
    #[serde(default)]
    pub ended_by: EndedBy,
    /// The failure, if Chronodisk itself ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Repetitions that were run first, with seeds of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PilotResult {
    /// Run times of these repetitions.
    pub run_times_s: Vec<f64>,
    /// Number of repetitions that these run times call for.
    pub repetitions: u32,
}

/// A replayed trace of system calls, over all repetitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayResult {
    /// System calls that were made. A transfer through a pipe may take several.
    pub calls_made: u64,
    /// Recorded calls that use the device and can't be made again.
    pub skipped: u64,
    /// Calls that failed where the recorded one succeeded, or the other way round, or transferred another number of
    /// bytes.
    pub differed: u64,
    /// Tasks of the trace, once for each repetition.
    pub tasks: u64,
    /// Tasks that did not get their recorded id.
    pub ids_taken: u64,
    /// Waits for other tasks that were given up.
    pub waits_abandoned: u64,
    /// Most tasks that were there at once, in any repetition.
    #[serde(default)]
    pub tasks_at_once: u64,
    /// Most resident memory of the replayer in the guest, in any repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Statistics over drawn workloads, if the trace's groups were drawn with replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapResult>,
}

/// Statistics over workloads that were drawn from a trace.
///
/// The first repetition replays the trace itself, the next `draws` ones replay drawn workloads. With `jackknife`, the
/// last ones replay the trace without one of its groups each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootstrapResult {
    /// Seed of the draws.
    pub seed: u64,
    /// In the draws, each copy of a group begins later by a random time below this.
    #[serde(default)]
    pub jitter_ns: Nanos,
    /// Groups of the trace (N). They determine the width of the intervals.
    pub elements: u64,
    /// Replayed draws (B). They reduce the Monte-Carlo error only.
    pub draws: u32,
    /// Whether the trace was replayed without each of its groups.
    pub jackknife: bool,
    /// One for each figure.
    pub statistics: Vec<BootstrapStatistic>,
}

/// A figure of a run over drawn workloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootstrapStatistic {
    /// The figure, with its unit at the end.
    pub name: String,
    /// Value of the trace itself.
    pub value: f64,
    /// Mean over the draws.
    pub mean: f64,
    /// Standard deviation over the draws.
    pub deviation: f64,
    /// 95 % interval between percentiles of the draws.
    pub percentile_95: Option<[f64; 2]>,
    /// 95 % interval, bias-corrected and accelerated; needs the jackknife.
    pub bca_95: Option<[f64; 2]>,
}

/// Cause of a run's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// The program ended, with any exit status.
    #[default]
    Command,
    /// A signal to Chronodisk that asked for its end.
    Signal,
    /// A failure of Chronodisk's own, after the program had started.
    Chronodisk,
}

/// An emulated device, so that it can be made again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceUsed {
    /// Name of the profile.
    pub profile: String,
    /// The profile as it was read.
    pub profile_toml: String,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Seed of the device's random streams.
    pub seed: u64,
    /// File with the state that it began in; an erased or otherwise new device if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_file: Option<String>,
    /// Hash over everything that decides the model's initial state except its zones, with the name of the hash
    /// before a colon.
    pub initial_state_hash: String,
    /// Speed relative to its profile; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Limits from the command line, which are in the profile's text too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<String>,
    /// Faults from the command line, which are in the profile's text too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// The program that served as the model, instead of a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// File beside which its write pointers are kept, if some zones were written when the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones_of: Option<String>,
    /// Its zones when the run began, if some were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones_began: Option<ZonesFile>,
}

/// The write pointers of a device's zones when the run began, in a file of the run's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZonesFile {
    /// The file's name.
    pub file: String,
    /// Hash of its contents, with the name of the hash before a colon.
    pub hash: String,
}

/// The clock of the run's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockInfo {
    /// The driver: `guest`, `real`, `shadow` or `sim`.
    pub driver: String,
    /// Time base of a running guest: `measured` (its own processor time) or `wall` (the host's).
    pub cpu: String,
    /// Factor on processor time in the guest's kernel, under `measured`.
    pub kernel_scale: Option<f64>,
    /// Cost of each kind of kernel work, by name, unless one factor applies to all. Other work counts by
    /// `kernel_scale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_costs: Option<BTreeMap<String, KernelCost>>,
    /// Whether the costs were calibrated on this host, or are built in. Results without this field had calibrated ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibrated: Option<bool>,
    /// Speed of the guest's processor relative to the host's; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_speed: Option<f64>,
}

/// Charge for a kind of kernel work: a constant, plus a share of its processor time beyond a free part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelCost {
    /// Processor time that counts nothing.
    pub taken_off_ns: Nanos,
    /// Time that counts anyway.
    pub added_ns: Nanos,
    /// Share of the rest that counts.
    pub scale: f64,
    /// Processor time up to which the share applies; the rest counts in full. If absent, the share applies to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_ns: Option<Nanos>,
}

/// The guest, and the file system in it or on this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestInfo {
    /// Version of the guest's kernel. Absent if there was no guest; empty in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The guest's memory in bytes. Absent like `kernel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Number of the guest's processors. Absent like `kernel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// File system on the device; `none` if the program got it bare.
    pub file_system: String,
    /// Options given to mkfs.
    pub mkfs_options: String,
    /// Options given to mount.
    pub mount_options: String,
    /// I/O scheduler of the device in the guest.
    pub scheduler: String,
}

/// The machine that it ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostInfo {
    /// Model name of the processor.
    pub cpu_model: String,
    /// Processors that the run could use.
    pub cores: u32,
    /// Version of the kernel.
    pub kernel: String,
}

/// One repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepResult {
    /// Counted from 0.
    pub index: u32,
    /// Seed of this repetition. If absent, the device's seed.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Exit status of the program: 128 + n if signal n killed it, 127 if it was not found.
    pub exit_status: i32,
    /// Run time of the program in the guest's clock.
    pub run_time_ns: Nanos,
    /// Time that the whole repetition took on the host.
    pub host_time_ns: Nanos,
    /// Phases of the guest's life, in order.
    pub phases: Vec<Phase>,
    /// End of the guest's time, to which the models were brought.
    pub end_ns: Nanos,
    /// Bytes that the program read from the host's file tree, which took no time of a device.
    pub untimed_read_bytes: u64,
    /// Bytes that the program wrote to the host's file tree, likewise.
    pub untimed_written_bytes: u64,
    /// Counters of the guest's clock during the program's run, by name.
    #[serde(default)]
    pub clock_counters: BTreeMap<String, u64>,
    /// The model's own statistics at the end of the guest's time, by name; a unit stands in
    /// brackets.
    #[serde(default)]
    pub model_statistics: BTreeMap<String, f64>,
    /// Bytes that the device's store kept at the end.
    pub store_bytes: Option<u64>,
    /// The emulation's use of the host over time, if it was sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<HostSample>,
    /// The host's CPU, counted from 0, on which guest and device ran.
    pub host_cpu: Option<u32>,
    /// The host's CPU on which the guest's programs ran, if they had one of their own.
    #[serde(default)]
    pub programs_host_cpu: Option<u32>,
    /// Name of the request log, beside the file of this result.
    pub log_file: String,
    /// Figures of a device served under the host's clock; not for a guest.
    #[serde(default)]
    pub server: Option<ServerResult>,
    /// The block device of this host on which the program ran natively, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeResult>,
    /// The real device beside which the model was, if there was one. In the summary, and in the log,
    /// service times are the model's then, completions are the real device's, and lateness is how
    /// much longer than the model that one took.
    #[serde(default)]
    pub shadow: Option<ShadowResult>,
    /// The devices' requests during the program's run, together.
    pub summary: Summary,
    /// Summaries per device, if there are several, in the order of their numbers in the log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summaries_by_device: Vec<Summary>,
    /// The run's bottleneck, and the figures that should not be believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Files that the guest wrote to its view of the host's tree and that were dropped with it.
    #[serde(default)]
    pub dropped_files: DroppedFiles,
    /// System calls that the host's kernel refused to the guest's, with their counts; at most 100,000 are counted. Null
    /// if refused calls are not reported: with `--host-writes`, and on a host whose kernel has no user notification.
    #[serde(default)]
    pub refused_calls: Option<BTreeMap<String, u64>>,
}

/// Files that were dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedFiles {
    /// Their number.
    pub count: u64,
    /// Path of the first, in the order of their names.
    pub first: Option<String>,
}

/// The emulation's use of the host up to an instant of the guest's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// The instant.
    pub at_ns: Nanos,
    /// Samples of the model and the store by the component's name. With several devices, the device's name and a dot
    /// precede the store's.
    pub components: BTreeMap<String, ComponentSample>,
    /// Bytes of the device that a squashing store has not classified yet.
    pub undecided_bytes: u64,
    /// Bytes that the device's contents took.
    pub stored_bytes: u64,
    /// Resident memory of the process that is the device; the guest's memory, which it shares, and the request log
    /// are part of it.
    pub process_memory_bytes: u64,
    /// Processor time of that process.
    pub process_cpu_ns: Nanos,
}

/// A component's use of the host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentSample {
    /// Memory held. The model's is measured once, after it is built.
    pub memory_bytes: u64,
    /// Processor time used so far. The model's is the host time of its calls.
    pub cpu_ns: Nanos,
}

/// A real device and a model that saw the same arrivals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShadowResult {
    /// The device, or the file that stood for one.
    pub target: String,
    /// Whether requests went past the host's page cache.
    pub direct: bool,
    /// Requests that could be at the device at once.
    pub queue_depth: u32,
    /// Service times of both; `None` without requests.
    pub fidelity: Option<Fidelity>,
    /// Time from the first arrival to the device's last completion.
    pub measured_total_ns: Nanos,
    /// Total time of the same workload with the same think times on the model alone.
    pub simulated_total_ns: Nanos,
}

/// The block device of the host's own kernel on which a program ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NativeResult {
    /// Path of the block device.
    pub block_device: String,
    /// Driver through which the kernel reached the emulated device: `ublk`, `fuse` for FUSE and a loop device, or
    /// `fuse-uring` for FUSE over io_uring and a loop device.
    #[serde(default = "fuse")]
    pub attached_by: String,
    /// I/O scheduler of the block device.
    pub scheduler: String,
    /// Read-ahead in KiB.
    pub read_ahead_kib: u64,
    /// Largest request in KiB.
    pub request_kib_max: u64,
    /// Logical block in bytes.
    pub logical_block_bytes: u64,
    /// `write back` if the kernel flushes a volatile cache, else `write through`.
    pub write_cache: String,
    /// Whether the kernel takes it for a rotating disk.
    pub rotational: bool,
    /// Whether it accepts discards.
    pub discard: bool,
    /// Whether the memory of the process that served it was locked.
    pub memory_locked: bool,
    /// Whether that process was set to write to a block device (`PR_SET_IO_FLUSHER`).
    pub io_flusher: bool,
    /// Whether the host's processors were kept from sleeping (`/dev/cpu_dma_latency`).
    #[serde(default)]
    pub processors_awake: bool,
    /// Time of the program's run in which some request was due and not completed yet. The program has waited for late
    /// requests no longer than this.
    pub late_ns: Nanos,
}

/// The driver of results without the field.
fn fuse() -> String {
    "fuse".to_owned()
}

impl NativeResult {
    /// The block device and its settings in a line.
    #[must_use]
    pub fn line(&self) -> String {
        format!(
            "{} (by {}), scheduler {}, read-ahead {} KiB, requests up to {} KiB, {}{}{}{}",
            self.block_device,
            self.attached_by,
            self.scheduler,
            self.read_ahead_kib,
            self.request_kib_max,
            self.write_cache,
            if self.discard { ", discard" } else { "" },
            if self.memory_locked { "" } else { ", memory not locked" },
            if self.processors_awake { "" } else { ", processors may sleep" },
        )
    }
}

/// A device that was served under the host's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerResult {
    /// Addresses of the server.
    pub addresses: Vec<String>,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were refused because there were too many.
    pub connections_refused: u64,
    /// Connections that ended because the client took too long for negotiation.
    #[serde(default)]
    pub handshakes_given_up: u64,
    /// Connections that ended because the client held memory for which others waited, and did nothing.
    #[serde(default)]
    pub stalled: u64,
    /// Connections that ended because the client broke the protocol.
    pub violations: u64,
    /// Requests that were answered with an error before they reached the device.
    pub refused_requests: u64,
    /// Completions of clients that had disconnected.
    pub dropped_completions: u64,
    /// Panics: defects of this program, each of them the end of one connection.
    #[serde(default)]
    pub panics: u64,
    /// Place and message of the first panic.
    #[serde(default)]
    pub first_panic: Option<String>,
    /// Error of the store's closing.
    #[serde(default)]
    pub close_error: Option<String>,
    /// Whether the threads that wait for completions had real-time priority.
    pub realtime: bool,
    /// Arrivals that were moved to the model's present instant.
    pub clamped_arrivals: u64,
    /// The largest such move.
    pub clamp_max_ns: Nanos,
    /// The most by which a completion left before it was due.
    pub early_max_ns: Nanos,
    /// Time in which the threads slept.
    pub asleep_ns: Nanos,
    /// Time in which they spun, stolen time included.
    pub spinning_ns: Nanos,
    /// Time in which the host ran something else while they wanted their CPU.
    pub stolen_ns: Nanos,
    /// The longest such stretch.
    pub stolen_max_ns: Nanos,
    /// Requests that were due in such a stretch.
    pub stolen_requests: u64,
    /// Lateness of the other requests.
    pub lateness_unstolen_us: Distribution,
    /// Arrival skew and completion lead at the end, in nanoseconds, by transport.
    pub transports: BTreeMap<String, TransportResult>,
}

/// Measured delays of a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportResult {
    /// Time from a request to its reception by a sleeping receiver.
    pub skew_woken_ns: Nanos,
    /// Time from a request to its reception by a receiver that was awake.
    pub skew_polled_ns: Nanos,
    /// Time from the decision to reply until the reply has left.
    pub lead_ns: Nanos,
}

/// A stretch of the guest's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Name of the phase.
    pub name: PhaseName,
    /// Beginning in the guest's clock.
    pub start_ns: Nanos,
    /// The instant after its end in the guest's clock.
    pub end_ns: Nanos,
    /// Duration on the host, where it was measured.
    pub host_time_ns: Option<Nanos>,
}

/// A phase of a guest's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseName {
    /// From the first instruction of the kernel to the first program.
    Boot,
    /// Makes the file system.
    Mkfs,
    /// Mounts it.
    Mount,
    /// Waits until the file system has done its own work.
    Settle,
    /// Runs the commands of `--setup`.
    Setup,
    /// Runs the program.
    Command,
    /// Writes back and unmounts.
    Unmount,
}

impl PhaseName {
    /// The name used in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PhaseName::Boot => "boot",
            PhaseName::Mkfs => "mkfs",
            PhaseName::Mount => "mount",
            PhaseName::Settle => "settle",
            PhaseName::Setup => "setup",
            PhaseName::Command => "command",
            PhaseName::Unmount => "unmount",
        }
    }
}

impl Phase {
    /// Its length in the guest's clock.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

impl RepResult {
    /// A phase by name.
    #[must_use]
    pub fn phase(&self, name: PhaseName) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

impl RunResult {
    /// Formats the result as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// Writes it as JSON; the file is there whole or not at all.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        write_atomically(path, |file| {
            file.write_all(self.to_json().as_bytes()).map_err(|source| ReportError::Io {
                path: path.to_owned(),
                action: "write",
                source,
            })
        })
    }

    /// Reads a file written by [`write`](Self::write).
    ///
    /// # Errors
    /// If the file can't be read, is not JSON (with line and column), has another schema, or lacks a field.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        read_json(path, RUN_SCHEMA)
    }
}

/// Reads a JSON file of one schema.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path, schema: &'static str) -> Result<T, ReportError> {
    let text = read_text(path, TextFile::Result)?;
    let malformed = |error: serde_json::Error| ReportError::Json { path: path.to_owned(), message: error.to_string() };
    // The schema comes first: what another version lacks or adds is no mistake of the file's.
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        schema: Option<serde_json::Value>,
    }
    let found = serde_json::from_str::<Named>(&text).map_err(malformed)?.schema;
    let found = found.and_then(|schema| schema.as_str().map(str::to_owned));
    if found.as_deref() != Some(schema) {
        return Err(ReportError::Schema { path: path.to_owned(), found, expected: schema });
    }
    serde_json::from_str(&text).map_err(malformed)
}

/// Reads a text file of bounded length.
fn read_text(path: &Path, kind: TextFile) -> Result<String, ReportError> {
    let file = File::open(path).map_err(|source| ReportError::Io { path: path.to_owned(), action: "read", source })?;
    kind.read(file).map_err(|error| match error {
        TextError::Unreadable(source) => ReportError::Io { path: path.to_owned(), action: "read", source },
        error => ReportError::Text { path: path.to_owned(), error },
    })
}

/// Pretty JSON with a line break at the end.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("plain data with text keys has a JSON form");
    text.push('\n');
    text
}
