//! In the user's command `calibrate`: charges for the guest's work, so that it takes as long as natively. The probes
//! also run inside of the guest.
//!
//! Small programs, each with a single repeated operation, run natively and in a guest. Natively their CPU time is
//! measured; in the guest, the CPU time of their code and, by kind of work ([`Work`]), of the guest's kernel.
//! The [`KernelCosts`] follow from both, and are stored for this processor and these kernels. A busy machine hardly
//! affects CPU time. Shared caches can only lengthen it, so the shortest of several runs counts.

mod fit;
mod native;
mod probes;
mod requests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use chronodisk_sim::{Nanos, TextFile};
use serde::{Deserialize, Serialize};

pub use native::{HeldSignals, KernelThreads, NativeFolder, NativeRun, Processors, native_run};
pub use probes::{PROBES, Probe, run_as_probe};

use crate::kernel::built::cache_folder;
use crate::launcher::host::{Processor, programs_have_own_cpu};
use crate::launcher::outcome::{Doing, RunError, RunOutcome};
use crate::launcher::run_options::RunOptions;
use crate::shared::costs::{KERNEL_SCALE_DEFAULT, KernelCosts, RequestCosts, Work, WorkCost, Worked};
use crate::shared::filesystem::FileSystem;
use crate::shared::spec::Stage;
use crate::shared::time::{CPU_SPEED_DEFAULT, GuestTime, IdlePace, MeasuredCpu, StoppingCpu};

/// Version of the file's schema.
pub const SCHEMA: &str = "chronodisk.calibration/7";

/// A calibration and its machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`SCHEMA`].
    pub schema: String,
    /// The calibrated machine; another machine's costs are not used.
    pub machine: Machine,
    /// The costs.
    pub costs: KernelCosts,
    /// The measurements behind the costs.
    pub probes: Vec<Measured>,
    /// Largest relative difference between the costs from one half of the runs and from the other; 0 if they are equal.
    /// `None` for one run of each probe, and for older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halves_differ: Option<f64>,
}

/// The machine's properties that affect the costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the host's processor.
    pub processor: String,
    /// Release of the host's kernel.
    pub host_kernel: String,
    /// Version of this program, whose clock charges the costs.
    pub version: String,
    /// Whether guests' programs have a processor of the host of their own: if they leave their processor's caches to
    /// the guest's kernel, both take longer.
    pub programs_have_own_cpu: bool,
}

/// Measurements of one probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name of the probe.
    pub name: String,
    /// Native CPU time, in nanoseconds.
    pub native_nanos: f64,
    /// CPU time of its own code in the guest, in nanoseconds, without the cost of stops.
    pub guest_user_nanos: f64,
    /// Number of its reads of the time stamp counter, which are emulated.
    pub guest_tsc_reads: u64,
    /// The guest kernel's work for it, in the order of [`Work::ALL`].
    pub guest_worked: [Worked; Work::COUNT],
}

impl Measured {
    /// The probe's charged time in a guest with these costs, in nanoseconds.
    #[must_use]
    pub fn charged_nanos(&self, costs: &KernelCosts) -> f64 {
        fit::charged(self, costs)
    }
}

impl Machine {
    /// The machine on which this process runs.
    #[must_use]
    pub fn this() -> Self {
        Machine {
            processor: Processor::of_host().model.clone(),
            host_kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            programs_have_own_cpu: programs_have_own_cpu(),
        }
    }
}

/// Path of the calibration: the file named by [`FILE_VARIABLE`], otherwise a file in the user's cache; `None` without a
/// home.
#[must_use]
pub fn file() -> Option<PathBuf> {
    match std::env::var_os(FILE_VARIABLE) {
        Some(path) => Some(path.into()),
        None => Some(cache_folder()?.join("calibration.json")),
    }
}

/// Environment variable with the path of a calibration.
pub const FILE_VARIABLE: &str = "CHRONODISK_CALIBRATION";

/// The saved calibration of this machine; `None` if there is none or it is unreadable.
#[must_use]
pub fn kept() -> Option<Calibration> {
    read(&file()?).ok().filter(|calibration| calibration.machine == Machine::this())
}

/// Reads a calibration of any machine.
///
/// # Errors
/// A sentence without the file's name: the host's error, a file that is no calibration of this version, and costs that
/// no machine has.
pub fn read(path: &Path) -> Result<Calibration, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let text = TextFile::Calibration.read(file).map_err(|error| error.to_string())?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}"))?;
    match value["schema"].as_str() {
        Some(SCHEMA) => {}
        Some(other) => return Err(format!("its schema is {other}, expected {SCHEMA}; calibrate that machine again")),
        None => return Err(format!("not a file of `chronodisk calibrate`: no schema, expected {SCHEMA}")),
    }
    let calibration: Calibration = serde_json::from_value(value).map_err(|error| error.to_string())?;
    calibration.costs.check()?;
    Ok(calibration)
}

/// Saves a calibration for later runs, completely or not at all.
///
/// # Errors
/// The host's errors, and a missing home.
pub fn keep(calibration: &Calibration) -> io::Result<PathBuf> {
    let path =
        file().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "neither XDG_CACHE_HOME nor HOME is set"))?;
    let folder = path.parent().unwrap_or(&path);
    fs::create_dir_all(folder)?;
    let unfinished = folder.join(format!("calibration.json.{}", std::process::id()));
    fs::write(&unfinished, serde_json::to_string_pretty(calibration)? + "\n")?;
    fs::rename(&unfinished, &path)?;
    Ok(path)
}

/// Runs all probes `reps` times natively and in a guest, and computes the costs.
///
/// The probes make files in an ext4 on both sides if this process may mount one natively, otherwise in tmpfs.
///
/// `options` describe the guest; its clock and its command are set by the calibration. `on_probe` is called with each
/// probe before it runs.
///
/// # Errors
/// Errors of a run, and of starting a program.
pub fn calibrate(options: &RunOptions, reps: u32, on_probe: &mut dyn FnMut(&str)) -> Result<Calibration, RunError> {
    let executable = &options.executable;
    let native_folder = NativeFolder::make().doing("making a folder in memory")?;
    let options = &RunOptions { file_system: native_folder.file_system(), ..options.clone() };
    let guest_folder = match native_folder.file_system() {
        FileSystem::None => Path::new(probes::IN_MEMORY),
        _ => Path::new(&options.mount_point),
    };
    let words = |probe: &Probe| {
        let mut command = vec![executable.clone().into_os_string()];
        command.extend(probes::words(probe, guest_folder));
        command
    };
    let mut measure = |probe: &Probe| -> Result<Vec<Measured>, RunError> {
        on_probe(probe.title);
        let mut runs = Vec::new();
        for _ in 0..reps.max(1) {
            let mut command = Command::new(executable);
            command.args(probes::words(probe, native_folder.path()));
            let native = native_run(&mut command, Processors::Only(1))?.cpu();
            // Only the cost of stops is subtracted, so that all other work is measured.
            let costs = KernelCosts { tsc_extra_nanos: 0, ..KernelCosts::uniform(KERNEL_SCALE_DEFAULT) };
            let cpu = StoppingCpu::Measured(MeasuredCpu { costs, speed: CPU_SPEED_DEFAULT });
            let time = GuestTime::Stopping { cpu, idle: IdlePace::Jump };
            let run = RunOptions { command: words(probe), time, ..options.clone() };
            let outcome = crate::run(&run, &mut |_| {})?;
            if outcome.exit_status != 0 {
                let message = format!("the probe '{}' ended with status {}", probe.title, outcome.exit_status);
                return Err(RunError::Stage(Stage::Command, message));
            }
            runs.push(Measured { native_nanos: native.as_nanos() as f64, ..in_guest(probe, &outcome) });
        }
        Ok(runs)
    };
    let nothing = measure(&probes::NOTHING)?;
    let probes: Vec<Vec<Measured>> = PROBES.iter().map(&mut measure).collect::<Result<_, RunError>>()?;
    let measured = measured_by(&nothing, &probes, |_| true);
    on_probe("direct reads");
    let mut costs = fit::fit(&measured);
    let empty_call_nanos = empty_call_nanos(&measured);
    costs.works[Work::Queue as usize] = WorkCost::of_queue(empty_call_nanos as u64);
    costs.requests = Some(request_costs(empty_call_nanos, reps)?);
    let half = |odd: usize| fit::fit(&measured_by(&nothing, &probes, |index| index % 2 == odd));
    let halves_differ = (reps > 1).then(|| fit::difference(&half(0), &half(1)));
    Ok(Calibration { schema: SCHEMA.to_owned(), machine: Machine::this(), costs, probes: measured, halves_differ })
}

/// Native time of a system call without work.
fn empty_call_nanos(measured: &[Measured]) -> f64 {
    let calls = PROBES.iter().zip(measured).find(|(probe, _)| probe.name == "empty-call");
    calls.map_or(0.0, |(probe, call)| call.native_nanos / f64::from(probe.times))
}

/// Prices of requests on this host; the built-in ones if the host has no direct reads.
fn request_costs(empty_call_nanos: f64, reps: u32) -> Result<RequestCosts, RunError> {
    let folder = cache_folder().unwrap_or_else(|| PathBuf::from("/var/tmp"));
    let times = requests::measure(&folder, reps).doing("reading a file directly")?;
    Ok(times.map_or_else(RequestCosts::default, |times| requests::prices(times, empty_call_nanos)))
}

/// Measurements of each probe from the runs whose numbers `takes` selects.
fn measured_by(nothing: &[Measured], probes: &[Vec<Measured>], takes: impl Fn(usize) -> bool) -> Vec<Measured> {
    let nothing = shortest(nothing, &takes);
    probes.iter().map(|runs| less(shortest(runs, &takes), &nothing)).collect()
}

/// The shortest of the selected runs, natively and in the guest.
fn shortest(runs: &[Measured], takes: impl Fn(usize) -> bool) -> Measured {
    let some = || runs.iter().enumerate().filter(|(index, _)| takes(*index)).map(|(_, run)| run);
    let native_nanos = some().map(|run| run.native_nanos).fold(f64::INFINITY, f64::min);
    let guest = some().min_by(|one, other| cpu_nanos(one).total_cmp(&cpu_nanos(other))).expect("there is a run");
    Measured { native_nanos, ..guest.clone() }
}

fn in_guest(probe: &Probe, outcome: &RunOutcome) -> Measured {
    let (before, after) = &outcome.counters_at;
    Measured {
        name: probe.name.to_owned(),
        native_nanos: 0.0,
        guest_user_nanos: after.user_cpu_nanos.saturating_sub(before.user_cpu_nanos) as f64,
        guest_tsc_reads: after.tsc_reads.saturating_sub(before.tsc_reads),
        guest_worked: outcome.worked,
    }
}

fn cpu_nanos(measured: &Measured) -> f64 {
    measured.guest_user_nanos + measured.guest_worked.iter().map(|worked| worked.cpu_nanos as f64).sum::<f64>()
}

/// A probe's measurements without the cost of starting and ending a program.
fn less(probe: Measured, nothing: &Measured) -> Measured {
    Measured {
        native_nanos: (probe.native_nanos - nothing.native_nanos).max(0.0),
        guest_user_nanos: (probe.guest_user_nanos - nothing.guest_user_nanos).max(0.0),
        guest_tsc_reads: probe.guest_tsc_reads.saturating_sub(nothing.guest_tsc_reads),
        guest_worked: std::array::from_fn(|index| probe.guest_worked[index].since(nothing.guest_worked[index])),
        ..probe
    }
}

/// Duration of a run's command in the guest's time.
#[must_use]
pub fn run_time(outcome: &RunOutcome) -> Nanos {
    outcome.command.1.saturating_sub(outcome.command.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_keeps_it_reads() {
        let measured = Measured {
            name: "map".into(),
            native_nanos: 1.5,
            guest_user_nanos: 2.5,
            guest_tsc_reads: 2,
            guest_worked: [Worked { count: 4, cpu_nanos: 5, copied_bytes: 6 }; Work::COUNT],
        };
        let calibration = Calibration {
            schema: SCHEMA.to_owned(),
            machine: Machine::this(),
            costs: KernelCosts::uniform(0.25),
            probes: vec![measured],
            halves_differ: Some(0.125),
        };
        let text = serde_json::to_string(&calibration).unwrap();
        assert_eq!(serde_json::from_str::<Calibration>(&text).unwrap(), calibration);
    }
}
