//! Runs for predicting run times.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use chronodisk_device::Speed;
use chronodisk_engine::dilation::DilationOptions;
use chronodisk_native::{self as native, CommandScope, Disk};
use chronodisk_report::{EndedBy, Summary};
use chronodisk_sim::Nanos;
use clap::{Args, ValueEnum};

use super::WAY;
use super::factors::{Factor, Factors};
use super::result::{Observed, Spread, WhatIf, expect_believable};
use crate::device::Device;
use crate::failure::{Failure, status};
use crate::native::{DeviceArguments, Done, Interruption, Launch, NativeRun, Ran, native_failure, native_own_failure};
use crate::notes::note;
use crate::place::expect_place;
use crate::quantity;
use crate::result::time_late;
use crate::times::time_left;

/// Options of a prediction.
#[derive(Debug, Args)]
pub struct WhatIfArguments {
    /// Selects the device: a name from `chronodisk devices`, or a profile file
    #[arg(long, short, value_name = "PROFILE", required_unless_present = "on_path")]
    pub device: Option<String>,

    /// Runs CMD on this host's own disk, on which this file, directory or block device is
    #[arg(
        long = "on", id = "on_path", value_name = "PATH",
        conflicts_with_all = [
            "device", "device_speed", "limit", "capacity", "state", "seed", "fs", "mount", "mkfs_options", "mount_options",
            "scheduler", "ram_budget", "validate",
        ],
    )]
    pub on_path: Option<PathBuf>,

    /// Leaves this host's page cache as it is before each run; it is dropped otherwise
    #[arg(long, requires = "on_path")]
    pub warm: bool,

    /// The block device and its file system.
    #[command(flatten)]
    pub on: DeviceArguments,

    /// Predicts for a device that is R times as fast, such as 2 or 1.98. inf predicts for one whose requests take no
    /// time. Several are separated by commas
    #[arg(
        long, value_name = "R", value_delimiter = ',',
        required_unless_present_any = ["read_speedup", "write_speedup"],
        conflicts_with_all = ["read_speedup", "write_speedup"],
    )]
    pub speedup: Vec<Factor>,

    /// Predicts for a device whose reads are R times as fast (default: 1 if --write-speedup is given)
    #[arg(long, value_name = "R")]
    pub read_speedup: Option<Factor>,

    /// Predicts for a device whose writes and flushes are R times as fast (default: 1 if --read-speedup is given)
    #[arg(long, value_name = "R")]
    pub write_speedup: Option<Factor>,

    /// Freezes CMD where that is worth its cost, or never. With never, one observed run serves all R, and CMD gets as
    /// far as on the slow device
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub suspend: Suspend,

    /// Limits how far CMD may get ahead of the device before it is frozen. Shorter requests have a shorter limit
    #[arg(long, value_name = "DURATION", default_value = "2ms", value_parser = quantity::duration)]
    pub quantum: Nanos,

    /// Also measures CMD on the emulated device at each speed
    #[arg(long)]
    pub validate: bool,

    /// Repeats all runs N times
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub reps: u32,

    /// Plots the predictions with their bands, and measured run times, against R, to this SVG file
    #[arg(long, value_name = "FILE.svg", value_parser = quantity::svg_file)]
    pub plot: Option<PathBuf>,

    /// Prints the result as JSON on standard output; CMD's output goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// When to freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the option's help says it")]
pub enum Suspend {
    Auto,
    Never,
}

/// The command's device.
enum Subject {
    Emulated(Box<Device>),
    Disk(Disk),
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Subject::Emulated(device) => device.name().to_owned(),
            Subject::Disk(disk) => disk.path().display().to_string(),
        }
    }
}

/// A run that ended in a way that leaves no prediction.
enum Stop {
    /// CMD, with this status.
    Command(u8),
    /// A signal ended the runs; the status is CMD's or names the signal.
    Asked(u8),
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failure(failure)
    }
}

/// The end of a prediction's runs.
pub struct Predicted {
    /// The result, without predictions if the runs ended early.
    pub result: WhatIf,
    /// The early end: the exit status, or the failure.
    pub ended: Option<Result<u8, Failure>>,
    /// Whether a run of the command has ended.
    pub has_run: bool,
}

/// Runs the command in all the ways that the options ask for. No thread may exist yet. `executable` is the program of
/// the helper processes.
pub fn predict(arguments: &WhatIfArguments, command: &[OsString], executable: &Path) -> Result<Predicted, Failure> {
    let factors = arguments.factors()?;
    let speed = arguments.on.device.device_speed.unwrap_or_default();
    let subject = match (&arguments.device, &arguments.on_path) {
        (Some(name), _) => Subject::Emulated(Box::new(arguments.on.load(name)?)),
        (None, Some(path)) => Subject::Disk(Disk::under(path).map_err(native_failure)?),
        (None, None) => unreachable!("one of both is required"),
    };
    // Refused now, not after the first runs.
    arguments.plot.as_deref().map(expect_place).transpose()?;
    let twins = factors.iter().map(|factors| arguments.twin(*factors, speed)).collect::<Result<Vec<_>, _>>()?;
    let interruption = Interruption::watch()?;
    // Before any thread exists: they would stay in this host's mount namespace.
    let scope = CommandScope::make("whatif", executable).map_err(native_failure)?;
    scope.expect_watchable().map_err(native_failure)?;
    let mut runs = Runs {
        arguments,
        command,
        executable,
        scope: &scope,
        interruption: &interruption,
        began: Instant::now(),
        done: 0,
        of: arguments.runs_per_rep(&twins) * arguments.reps,
    };
    let mut result = WhatIf::new(&subject.name(), speed, command, &factors);
    for rep in 0..arguments.reps {
        if let Err(stop) = runs.repetition(rep, &subject, &factors, &twins, &mut result) {
            result.stop(&stop);
            return Ok(Predicted { result, ended: Some(stop.outcome()), has_run: runs.done > 0 });
        }
    }
    result.finish();
    Ok(Predicted { result, ended: None, has_run: true })
}

impl Stop {
    fn outcome(self) -> Result<u8, Failure> {
        match self {
            Stop::Command(status) | Stop::Asked(status) => Ok(status),
            Stop::Failure(failure) => Err(failure),
        }
    }
}

impl WhatIfArguments {
    fn factors(&self) -> Result<Vec<Factors>, Failure> {
        let factors = match (self.read_speedup, self.write_speedup) {
            (None, None) => self.speedup.iter().map(|factor| Factors { reads: *factor, writes: *factor }).collect(),
            (reads, writes) => {
                vec![Factors { reads: reads.unwrap_or(Factor::ONE), writes: writes.unwrap_or(Factor::ONE) }]
            }
        };
        if self.validate && factors.iter().any(|factors| factors.reads != factors.writes) {
            return Err(Failure::usage("--validate can't be used with different factors for reads and writes")
                .help("the emulated device has one speed for both; give --speedup, or leave --validate out"));
        }
        if self.plot.is_some() && factors.iter().all(|one| one.reads != one.writes || one.reads.is_infinite()) {
            return Err(Failure::usage(
                "--plot needs a finite R for both directions; give one by --speedup, such as 2",
            ));
        }
        Ok(factors)
    }

    /// The device with the predicted speed, if it is to be measured and the speed is finite.
    fn twin(&self, factors: Factors, speed: Speed) -> Result<Option<Subject>, Failure> {
        if !self.validate || factors.reads.is_infinite() {
            return Ok(None);
        }
        let factor = speed.factor() * factors.reads.value();
        let twin = Speed::from_factor(factor).ok_or_else(|| {
            Failure::usage(format!(
                "--validate: a device of {factor}x can't be emulated; expected a speed from {}x to {}x",
                Speed::MIN,
                Speed::MAX
            ))
        })?;
        self.device
            .as_deref()
            .map(|name| self.on.load(name).map(|device| Box::new(device.with_speed(Some(twin)))).map(Subject::Emulated))
            .transpose()
    }

    fn options(&self, factors: Factors) -> DilationOptions {
        DilationOptions {
            reads: factors.reads.speedup(),
            writes: factors.writes.speedup(),
            freezes: self.suspend == Suspend::Auto,
            quantum_max: self.quantum,
            thaw_cost: THAW_COST_MAX,
        }
    }

    fn runs_per_rep(&self, twins: &[Option<Subject>]) -> u32 {
        let observed = if self.suspend == Suspend::Never { 1 } else { twins.len() };
        (1 + observed + twins.iter().flatten().count()) as u32
    }
}

/// Longest part of the time between a thaw and the first wake-up of a thread that is charged to the thaw.
const THAW_COST_MAX: Nanos = Nanos::from_micros(100);

/// All runs, one after the other.
struct Runs<'a> {
    arguments: &'a WhatIfArguments,
    command: &'a [OsString],
    executable: &'a Path,
    scope: &'a CommandScope,
    interruption: &'a Interruption,
    began: Instant,
    done: u32,
    of: u32,
}

impl Runs<'_> {
    /// Runs undisturbed, observed for each of the factors, and on the twins: in turn, so that all have the same load of
    /// the host.
    fn repetition(
        &mut self,
        rep: u32,
        subject: &Subject,
        factors: &[Factors],
        twins: &[Option<Subject>],
        result: &mut WhatIf,
    ) -> Result<(), Stop> {
        let seed = self.arguments.on.device.seed.wrapping_add(u64::from(rep));
        let elapsed = self.run(subject, seed, "undisturbed", Vec::new())?;
        result.undisturbed(&elapsed);
        let options: Vec<DilationOptions> = factors.iter().map(|factors| self.arguments.options(*factors)).collect();
        if self.arguments.suspend == Suspend::Never {
            let ran = self.run(subject, seed, "observed", options)?;
            result.observed(0, &ran)?;
        } else {
            for (index, options) in options.into_iter().enumerate() {
                let ran = self.run(subject, seed, &format!("predicting {}", factors[index]), vec![options])?;
                result.observed(index, &ran)?;
            }
        }
        for (index, twin) in twins.iter().enumerate() {
            if let Some(twin) = twin {
                let ran = self.run(twin, seed, &format!("measuring {}", factors[index]), Vec::new())?;
                result.measured(index, &ran);
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        subject: &Subject,
        seed: u64,
        what: &str,
        predictions: Vec<DilationOptions>,
    ) -> Result<Finished, Stop> {
        let left = time_left(self.began.elapsed(), self.done, self.of - self.done);
        note(format_args!("run {} of {}: {what}{left}", self.done + 1, self.of));
        let launch = Launch {
            command: self.command,
            stdout_to_stderr: self.arguments.json,
            scope: self.scope,
            executable: self.executable,
            interruption: self.interruption,
        };
        let ran = match subject {
            Subject::Emulated(device) => {
                self.emulated(NativeRun { arguments: &self.arguments.on, device, way: WAY, launch }, seed, predictions)
            }
            Subject::Disk(disk) => self.on_disk(launch, disk, predictions).map(|ran| (ran, None)),
        };
        let (ran, emulated) = match ran {
            Ok(ran) => ran,
            Err(_) if self.interruption.came() => {
                note(format_args!("no prediction: {} ended the run", self.interruption.name()));
                return Err(Stop::Asked(self.interruption.status()));
            }
            Err(failure) => return Err(failure.into()),
        };
        self.done += 1;
        let Ran { status, from, until, failure, asked_to_end, observation, request_time } = ran;
        if let Some(failure) = failure {
            return Err(Stop::Failure(failure.after_start()));
        }
        if asked_to_end {
            note(format_args!("no prediction: {} ended the run", self.interruption.name()));
            return Err(Stop::Asked(if status == status::FINE { self.interruption.status() } else { status }));
        }
        if status != status::FINE {
            note(format_args!("no prediction: the command ended with status {status}"));
            return Err(Stop::Command(status));
        }
        let request_time_s = request_time.map(|time| time.as_secs_f64());
        Ok(Finished { elapsed: until.saturating_sub(from), emulated, observation, request_time_s })
    }

    /// The run, and its device's activity meanwhile.
    fn emulated(
        &self,
        run: NativeRun<'_>,
        seed: u64,
        predictions: Vec<DilationOptions>,
    ) -> Result<(Ran, Option<EmulatedTime>), Failure> {
        let mut server = run.server(seed)?;
        let done = run.on_device(&mut server, predictions);
        let outcome = server.stop();
        let Done { mut ran, window, throttles_write_back, .. } = done?;
        if ran.failure.is_none() {
            ran.failure = native_own_failure(&outcome);
        }
        let late_s = time_late(&outcome.records, &window).as_secs_f64();
        let summary = Summary::of(&outcome.records, window);
        let throttled_writes = throttles_write_back && has_several_writes(&summary);
        let without_request_s = summary.window_ns.as_secs_f64() * (1.0 - summary.utilisation);
        Ok((ran, Some(EmulatedTime { without_request_s, late_s, throttled_writes })))
    }

    fn on_disk(&self, launch: Launch<'_>, disk: &Disk, predictions: Vec<DilationOptions>) -> Result<Ran, Failure> {
        if let Some(commands) = &self.arguments.on.setup {
            let break_off = || {
                self.scope.end_all();
            };
            let setup = || native::run_setup(self.scope, commands, &disk.path()).map_err(native_failure);
            let helpers: Vec<_> = self.scope.pidfd().try_clone_to_owned().into_iter().collect();
            self.interruption.step(&helpers, break_off, setup)?;
            if self.interruption.came() {
                return Err(Failure::host("interrupted"));
            }
        }
        rustix::fs::sync();
        if !self.arguments.warm {
            std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| {
                Failure::host(format!("can't drop the page cache: writing to /proc/sys/vm/drop_caches: {error}"))
                    .help("run it as root, or give --warm to leave the cache as it is")
            })?;
        }
        launch.command(&disk.path(), None, predictions)
    }
}

/// A run of the command that ended well.
struct Finished {
    elapsed: std::time::Duration,
    /// `None` on a disk of this host.
    emulated: Option<EmulatedTime>,
    observation: Option<chronodisk_native::Observation>,
    /// According to the kernel's account of the device.
    request_time_s: Option<f64>,
}

/// Whether most requests were writes, and two or more were in flight on average while the device was busy. A program
/// that waits for each of its writes is not throttled.
fn has_several_writes(summary: &Summary) -> bool {
    let writes = summary.by_op.get("write").map_or(0, |op| op.requests);
    writes * 2 > summary.requests && summary.mean_queue_depth >= 2.0 * summary.utilisation
}

/// Activity of an emulated device while the command ran.
#[derive(Clone, Copy)]
struct EmulatedTime {
    /// Time without an outstanding request, in seconds.
    without_request_s: f64,
    /// Time in which a request was due and not completed yet: the host may have delayed the run by as much.
    late_s: f64,
    /// Whether several writes were in flight on a device whose write-back the kernel throttles.
    throttled_writes: bool,
}

impl Finished {
    fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64()
    }
}

impl WhatIf {
    /// Ends the runs without a prediction.
    fn stop(&mut self, stop: &Stop) {
        let (ended_by, status, failure) = match stop {
            Stop::Command(status) => (EndedBy::Command, *status, None),
            Stop::Asked(status) => (EndedBy::Signal, *status, None),
            Stop::Failure(failure) => (EndedBy::Chronodisk, status::OWN_FAILURE, Some(failure.to_string())),
        };
        (self.ended_by, self.exit_status, self.failure) = (ended_by, status, failure);
        self.results.clear();
    }

    /// Adds an observed run to the results from `first` on.
    fn observed(&mut self, first: usize, ran: &Finished) -> Result<(), Failure> {
        let observation =
            ran.observation.as_ref().ok_or_else(|| Failure::host("the command was not observed").after_start())?;
        for (offset, prediction) in observation.predictions.iter().enumerate() {
            let observed = Observed {
                prediction,
                observation,
                elapsed_s: ran.seconds(),
                without_request_s: ran.emulated.map(|emulated| emulated.without_request_s),
                request_time_s: ran.request_time_s,
            };
            self.add(first + offset, &observed);
        }
        self.warnings.extend(expect_believable(observation));
        Ok(())
    }

    fn undisturbed(&mut self, ran: &Finished) {
        self.elapsed_s.add(ran.seconds());
        if let Some(request_time_s) = ran.request_time_s {
            self.request_time_s.get_or_insert_with(Spread::default).add(request_time_s);
        }
        if let Some(emulated) = ran.emulated {
            self.without_request_s.get_or_insert_with(Spread::default).add(emulated.without_request_s);
            self.late_s.get_or_insert_with(Spread::default).add(emulated.late_s);
            self.throttled_writes |= emulated.throttled_writes;
        }
    }

    fn measured(&mut self, index: usize, ran: &Finished) {
        let result = &mut self.results[index];
        result.measured_s.get_or_insert_with(Spread::default).add(ran.seconds());
        if let Some(emulated) = ran.emulated {
            result.measured_without_request_s.get_or_insert_with(Spread::default).add(emulated.without_request_s);
            result.measured_late_s.get_or_insert_with(Spread::default).add(emulated.late_s);
        }
    }
}
