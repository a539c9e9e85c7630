//! A run with resolved options.

use chronodisk_guest::{DEVICES_MAX, GuestTime, RunOptions};
use chronodisk_report::{DeviceUsed, Labels};

use super::arguments::GuestArguments;
use super::options::{guest_time, real_time_is_possible, record_what_took_effect, run_options};
use super::recorded_calls::RecordedCalls;
use super::vary::Vary;
use super::work::Work;
use super::zoned::zones_fit;
use crate::arguments::Reps;
use crate::device::{self, Device};
use crate::failure::Failure;
use crate::folder::{NewFiles, RunDirectory, RunFolder};
use crate::recorded::RecordedOptions;
use crate::result::Caller;

/// A run whose options are consistent and supported by this host. [`execute`](super::execute) runs it.
pub struct RunPlan<'a> {
    /// Options of the first repetition.
    pub options: RunOptions,
    /// Directory of the result, which is not made yet.
    pub directory: RunDirectory,
    pub(super) caller: Caller,
    pub(super) devices: Vec<DeviceUsed>,
    pub(super) reps: Reps,
    pub(super) labels: Labels,
    pub(super) recorded: RecordedOptions,
    pub(super) calls: Option<&'a RecordedCalls>,
    pub(super) vary: Vary<'a>,
    /// Files of stores that did not exist before.
    pub(super) new_files: NewFiles,
}

impl<'a> RunPlan<'a> {
    /// Checks all options, and replaces defaults that depend on other options or on the host.
    pub fn resolve(
        arguments: &GuestArguments,
        work: Work<'a>,
        mut recorded: RecordedOptions,
        caller: Caller,
    ) -> Result<Self, Failure> {
        let time = guest_time(arguments, work.replays())?;
        if time == GuestTime::Real {
            if work.replays() {
                return Err(Failure::usage(
                    "--clock real can't be used with a trace, whose CPU time is not this host's",
                ));
            }
            real_time_is_possible(arguments)?;
        }
        let devices = load_devices(arguments)?;
        zones_fit(arguments, &devices)?;
        if let Some(plan) = work.plan() {
            arguments.expect_room(plan, &devices)?;
        }
        let draws = if let Work::Draws(draws) = work { Some(draws) } else { None };
        let calls = if let Work::Command(_, calls) = &work { *calls } else { None };
        let mut options = run_options(arguments, time, &devices, work, caller.executable.clone())?;
        let snapshot = arguments.begin_with_snapshot(&devices, &mut options)?;
        let directory = RunFolder::plan(arguments.result.output.as_deref(), devices[0].name())?;
        directory.expect_place()?;
        let typed_seed = recorded.is_given("seed").then_some(arguments.on.seed);
        arguments.squash.refuse_contradictions(&options.devices, typed_seed)?;
        record_what_took_effect(&mut recorded, &options);
        Ok(RunPlan {
            new_files: NewFiles::of(&options.devices),
            devices: devices.iter().map(Device::used).collect(),
            reps: arguments.reps,
            labels: arguments.result.labels.labels(),
            vary: Vary { draws, snapshot },
            caller,
            options,
            directory,
            recorded,
            calls,
        })
    }
}

fn load_devices(arguments: &GuestArguments) -> Result<Vec<Device>, Failure> {
    if arguments.device.len() > DEVICES_MAX {
        return Err(Failure::usage(format!("a guest has at most {DEVICES_MAX} devices")));
    }
    let names: Vec<Option<&str>> = match arguments.device.is_empty() {
        true => vec![None],
        false => arguments.device.iter().map(|name| Some(name.as_str())).collect(),
    };
    let load = |(index, name): (usize, &Option<&str>)| {
        let on = arguments.on.of_device(index, names.len())?;
        let device = device::load_anywhere(*name, &arguments.elsewhere, on.capacity, on.seed)?;
        on.surround(device)?.at_speed(on.device_speed, &arguments.elsewhere)
    };
    let devices: Vec<Device> = names.iter().enumerate().map(load).collect::<Result<_, _>>()?;
    let devices = match (arguments.on.state.as_deref(), devices.len()) {
        (Some(_), 2..) => return Err(Failure::usage("--state works with one device only, but several were given")),
        (Some(_), _) if arguments.elsewhere.server.is_some() => {
            return Err(Failure::usage(
                "--state can't be used with --server: the server can't read files of this host",
            ));
        }
        (state, _) => devices.into_iter().map(|device| device.begin_in(state)).collect::<Result<Vec<_>, _>>()?,
    };
    if let Some(device) = devices.iter().find(|device| device.has_host_queue()) {
        return Err(Failure::usage(format_args!("{} includes a host's request queue", device.name())).help(
            "the guest's kernel has its own queue, so requests would wait twice; use a profile without a host queue",
        ));
    }
    Ok(devices)
}
