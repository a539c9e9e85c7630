//! The process that checks some states in one guest.
//!
//! A guest belongs to the main thread of a process, so each has a process of its own. It reads a [`Job`] as JSON from
//! standard input, and writes an [`Answer`] as JSON on each line of standard output.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use chronodisk_device::Profile;
use chronodisk_guest::{
    DeviceOptions, FileSystem, GuestTime, IdlePace, ModelChoice, RunError, RunEvent, RunOptions, StateEvent,
    StatesOptions, StoppingCpu, StoreChoice,
};
use chronodisk_sim::Nanos;
use serde::{Deserialize, Serialize};

use crate::memory::host_memory_bytes;

/// Time on the guest's clock that its checker may take beside the program of a step: it kills one that is late, and
/// waits for its end and for a busy mount point.
const CHECKER_OVERHEAD: Nanos = Nanos::from_secs(15);

/// The work of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub executable: PathBuf,
    pub kernel: Option<PathBuf>,
    pub modules: Vec<PathBuf>,
    pub memory_bytes: u64,
    pub capacity_bytes: u64,
    /// Contents that the states share.
    pub base: PathBuf,
    /// The difference of each state.
    pub differences: Vec<PathBuf>,
    pub states: StatesOptions,
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// A step begins, or a state was checked.
    State(StateEvent),
    /// The guest's kernel died: the reason, and its last output.
    Died { how: String, console: String },
    /// The guest's kernel did not go on: the event that did not come, and its last output.
    Hung { how: String, console: String },
    /// The host lacks something, or the guest could not be started.
    Failed(String),
    /// A signal ended the guest.
    Interrupted,
}

/// Runs as the process that checks states in one guest.
pub fn crash_checker() -> ExitCode {
    let mut json = String::new();
    let job = io::stdin().read_to_string(&mut json).map_err(|error| error.to_string());
    let job = job.and_then(|_| serde_json::from_str::<Job>(&json).map_err(|error| error.to_string()));
    let options = job.and_then(|job| options_of(&job));
    let mut line = Vec::new();
    let ended = match options {
        Ok(options) => chronodisk_guest::run(&options, &mut |event| report(&mut line, event)).map(drop),
        Err(what) => Err(RunError::Device(what)),
    };
    match ended {
        Ok(()) => {}
        Err(RunError::GuestDied { how, console, .. }) => answer(&Answer::Died { how, console }),
        Err(RunError::GuestHangs { how, console }) => answer(&Answer::Hung { how, console }),
        Err(RunError::Interrupted { .. }) => answer(&Answer::Interrupted),
        Err(error) => answer(&Answer::Failed(error.to_string())),
    }
    ExitCode::SUCCESS
}

fn report(line: &mut Vec<u8>, event: RunEvent) {
    let RunEvent::Acknowledged { bytes, .. } = event else { return };
    line.extend(bytes);
    while let Some(end) = line.iter().position(|byte| *byte == b'\n') {
        if let Some(event) = StateEvent::decode(&line[..end]) {
            answer(&Answer::State(event));
        }
        line.drain(..=end);
    }
}

fn answer(answer: &Answer) {
    let mut text = serde_json::to_vec(answer).expect("plain data");
    text.push(b'\n');
    // A caller that has gone away needs no answer.
    let _ = io::stdout().write_all(&text).and_then(|()| io::stdout().flush());
}

fn options_of(job: &Job) -> Result<RunOptions, String> {
    let profile = Profile::find("null").map_err(|error| error.to_string())?;
    let (text, label) = (profile.text().to_owned(), profile.name().to_owned());
    let budget_bytes = host_memory_bytes() / 4 / job.differences.len().max(1) as u64;
    let device = |difference: &PathBuf| DeviceOptions {
        capacity_bytes: Some(job.capacity_bytes),
        ..DeviceOptions::new(
            ModelChoice::Profile { text: text.clone(), label: label.clone() },
            StoreChoice::Overlay { base: job.base.clone(), difference: difference.clone(), budget_bytes },
        )
    };
    let devices: Vec<DeviceOptions> = job.differences.iter().map(device).collect();
    let first = devices.first().cloned().ok_or("a job has no states")?;
    let time = GuestTime::Stopping { cpu: StoppingCpu::Wall, idle: IdlePace::Jump };
    Ok(RunOptions {
        devices,
        file_system: FileSystem::None,
        kernel: job.kernel.clone(),
        modules: job.modules.clone(),
        memory_bytes: job.memory_bytes,
        mount_point: job.states.mount_point.clone(),
        settle: false,
        heartbeat_timeout: Some(job.states.check_timeout.saturating_add(CHECKER_OVERHEAD)),
        states: Some(job.states.clone()),
        stdout_to_stderr: true,
        ends_by_signal: true,
        ..RunOptions::new(job.executable.clone(), first, time, Vec::new())
    })
}
