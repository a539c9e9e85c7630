//! Devices as named by the user: a profile, and the changes by flags.

use std::fs;
use std::path::{Path, PathBuf};

use chronodisk_device::{BuildOptions, Bytes, DeviceInfo, DeviceModel, Profile, ProfileError, Speed, ZoneReport};
use chronodisk_engine::ModelPort;
use chronodisk_engine::protocol::Reset;
use chronodisk_engine::state_file::{self, BuildError};
use chronodisk_guest::ModelChoice;
use chronodisk_importers::disksim::{Import, import_file};
use chronodisk_report::DeviceUsed;
use chronodisk_sim::{SECTOR_BYTES, TextFile};

use crate::arguments::{DebugSettings, Elsewhere, PROGRAM_PREFIX};
use crate::failure::Failure;
use crate::folder::RunDirectory;
use crate::hash::hash_of;
use crate::notes::note;
use crate::zones;

/// A device that can be made with these options: it was tried.
#[derive(Debug)]
pub struct Device {
    source: Source,
    build: BuildOptions,
    info: DeviceInfo,
    state: Option<State>,
    speed: Speed,
    /// Limits from the command line; a profile's own limits are in its text.
    limits: Option<String>,
    faults: Vec<String>,
    /// The zones that it begins with; none if all are empty.
    zones: Vec<ZoneReport>,
}

/// The state that a device begins in.
#[derive(Debug)]
struct State {
    file: PathBuf,
    fingerprint: u64,
}

/// Source of a device's model.
#[derive(Debug)]
enum Source {
    Profile(Profile),
    /// A program, by the shell command that runs it.
    Program(String),
}

/// The device of a profile, with `capacity_bytes` instead of its own capacity. If that exceeds the profile's, several
/// devices are concatenated.
pub fn load(name: &str, capacity_bytes: Option<u64>, seed: u64) -> Result<Device, Failure> {
    Device::new(
        reaching(find(name)?, capacity_bytes)?,
        BuildOptions { capacity_bytes, seed, ..BuildOptions::default() },
    )
}

/// Like [`load`], but a capacity beyond the profile's is an error.
pub fn load_one(name: &str, capacity_bytes: u64, seed: u64) -> Result<Device, Failure> {
    Device::new(find(name)?, BuildOptions { capacity_bytes: Some(capacity_bytes), seed, ..BuildOptions::default() })
}

/// The device, or several concatenated ones if the capacity exceeds the profile's.
fn reaching(profile: Profile, capacity_bytes: Option<u64>) -> Result<Profile, Failure> {
    let Some(capacity_bytes) = capacity_bytes else { return Ok(profile) };
    let row = profile.reaching(capacity_bytes).map_err(failure)?;
    if row.capacity_bytes() > profile.capacity_bytes() {
        let (name, one) = (profile.name(), Bytes(profile.capacity_bytes()));
        let count = row.capacity_bytes().div_ceil(profile.capacity_bytes());
        note(format_args!("{name} has {one}; {count} of them are concatenated to reach {}", Bytes(capacity_bytes)));
    }
    Ok(row)
}

/// Like [`load`], behind the request queue of a host's kernel with this elevator.
pub fn load_behind_host_queue(
    name: &str,
    elevator: &str,
    capacity_bytes: Option<u64>,
    seed: u64,
) -> Result<Device, Failure> {
    let profile = reaching(find(name)?, capacity_bytes)?.behind_host_queue(elevator).map_err(failure)?;
    Device::new(profile, BuildOptions { capacity_bytes, seed, ..BuildOptions::default() })
}

/// Like [`load`], but also accepts a program (`exec:COMMAND`), or a device at the emulator server.
pub fn load_anywhere(
    name: Option<&str>,
    elsewhere: &Elsewhere,
    capacity_bytes: Option<u64>,
    seed: u64,
) -> Result<Device, Failure> {
    let reset = Reset { seed, capacity_bytes: capacity_bytes.unwrap_or(0), ..Reset::default() };
    let build = BuildOptions { capacity_bytes, seed, ..BuildOptions::default() };
    match (name.map(|name| (name, name.strip_prefix(PROGRAM_PREFIX))), &elsewhere.server) {
        (Some((_, Some(_))), Some(_)) => Err(Failure::usage(
            "--device exec:COMMAND can't be used with --server, which runs no programs for its guests",
        )),
        (Some((_, Some(command))), None) => {
            let info = elsewhere.program(command, reset)?.info().clone();
            let source = Source::Program(command.to_owned());
            let (speed, zones) = (Speed::AS_IT_IS, Vec::new());
            Ok(Device { source, build, info, state: None, speed, limits: None, faults: Vec::new(), zones })
        }
        (Some((name, None)), _) => load(name, capacity_bytes, seed),
        (None, Some(address)) => {
            let model = elsewhere.at_server(address, reset)?;
            let profile = Profile::parse(model.profile(), &model.info().name).map_err(failure)?;
            Device::new(profile, build)
        }
        (None, None) => Err(Failure::usage("no device is selected").help("add --device or --server")),
    }
}

/// The profile that the user named, by name or by path; a DiskSim parameter file is imported.
pub fn find(name: &str) -> Result<Profile, Failure> {
    if name.starts_with(PROGRAM_PREFIX) {
        return Err(Failure::usage(format!("{name}: exec: models work with run and simulate only")));
    }
    if let Some(present) = Profile::renamed(name) {
        note(format_args!(
            "warning: {name} is now called {present}; the bus that the drive was traced on is its table [host-bus]"
        ));
    }
    if !name.ends_with(".parv") && !name.ends_with(".diskspecs") {
        return Profile::find(name).map_err(failure);
    }
    let import = import_file(Path::new(name)).map_err(failure)?;
    note_warnings(&import);
    let text = import.to_profile(&import.describe()).map_err(failure)?;
    Profile::parse(&text, name).map_err(failure)
}

/// Reports properties that an imported device lacks.
pub fn note_warnings(import: &Import) {
    for warning in &import.warnings {
        note(format_args!("warning: {}: {}", warning.at, warning.message));
    }
}

/// The device of a run that is kept in this directory.
pub fn of_run(used: &DeviceUsed, directory: &RunDirectory) -> Result<Device, Failure> {
    if let Some(program) = &used.program {
        // The program may have changed, and a result from another user must not run a program.
        return Err(Failure::usage(format!("the run's model was the program '{program}', which can't be replayed"))
            .help("`chronodisk verify --device PROFILE` replays on a profile with the same timing"));
    }
    let profile = Profile::parse(&used.profile_toml, &used.profile).map_err(failure)?;
    let build = BuildOptions { capacity_bytes: Some(used.capacity_bytes), seed: used.seed, ..BuildOptions::default() };
    let speed = used.speed.map(|factor| {
        Speed::from_factor(factor).ok_or_else(|| Failure::usage(format!("the run's device had the speed {factor}x")))
    });
    let device = Device::new(profile, build)?
        .begin_in(used.state_file.as_deref().map(Path::new))?
        .with_speed(speed.transpose()?);
    let device = Device { limits: used.limits.clone(), faults: used.faults.clone(), ..device };
    let now = device.used().initial_state_hash;
    if now != used.initial_state_hash {
        return Err(Failure::usage(format!(
            "the run's device started in state {}, but its profile, capacity and seed give {now}",
            used.initial_state_hash
        ))
        .help("the result was edited, or written by another version of chronodisk"));
    }
    device.with_zones_of(used, directory)
}

impl Device {
    fn new(profile: Profile, build: BuildOptions) -> Result<Self, Failure> {
        let info = profile.build(&build).map_err(failure)?.info().clone();
        let (source, speed) = (Source::Profile(profile), Speed::AS_IT_IS);
        let (limits, faults, zones) = (None, Vec::new(), Vec::new());
        Ok(Device { source, build, info, state: None, speed, limits, faults, zones })
    }

    /// Rejects zoned devices: NBD and FUSE have no commands for zones.
    pub fn without_zones(self) -> Result<Self, Failure> {
        match self.is_zoned() {
            false => Ok(self),
            true => {
                let what = format!("{} is a zoned device, which only run and simulate support", self.name());
                Err(Failure::usage(what)
                    .help("NBD and FUSE clients have no commands for zones; a guest has: chronodisk run"))
            }
        }
    }

    /// Whether it is written in zones.
    pub fn is_zoned(&self) -> bool {
        self.info.zones.is_some()
    }

    /// Number of its zones that are written anywhere.
    pub fn conventional_zones(&self) -> u32 {
        self.info.zones.map_or(0, |zones| zones.conventional)
    }

    /// The device, starting from the state in a file if one is given.
    pub fn begin_in(self, file: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = file else { return Ok(self) };
        let Source::Profile(profile) = &self.source else {
            return Err(Failure::usage("--state can't be used with an exec: model, which keeps its own state"));
        };
        let (_, fingerprint) = state_file::build(profile, &self.build, Some(file)).map_err(build_failure)?;
        let state = fingerprint.map(|fingerprint| State { file: file.to_owned(), fingerprint });
        Ok(Device { state, ..self })
    }

    /// The device within limits, if some are given, as in `iops=3000,read-delay=2ms`.
    pub fn within_limits(self, limits: Option<&str>) -> Result<Self, Failure> {
        let Some(limits) = limits else { return Ok(self) };
        let Source::Profile(profile) = &self.source else {
            return Err(Failure::usage("--limit can't be used with an exec: model, which has its own timing"));
        };
        let device = Device::new(profile.within_limits(limits).map_err(failure)?, self.build)?;
        Ok(Device { limits: Some(limits.to_owned()), faults: self.faults, ..device })
    }

    /// The device with faults, each given as in `kind=recovered,every=9,retry-time=1s`.
    pub fn with_faults(self, faults: &[String]) -> Result<Self, Failure> {
        if faults.is_empty() {
            return Ok(self);
        }
        let Source::Profile(profile) = &self.source else {
            return Err(Failure::usage("--fault can't be used with an exec: model, which fails requests by itself"));
        };
        let with_fault = |profile: Profile, fault: &String| profile.with_fault(fault);
        let profile = faults.iter().try_fold(profile.clone(), with_fault).map_err(failure)?;
        Ok(Device { faults: faults.to_vec(), ..Device::new(profile, self.build)? })
    }

    /// The device some times as fast as its model, if that is in this process.
    pub fn at_speed(self, speed: Option<Speed>, elsewhere: &Elsewhere) -> Result<Self, Failure> {
        if speed.is_some() && elsewhere.server.is_some() {
            return Err(Failure::usage(
                "--device-speed can't be used with --server: a model on a server keeps the speed of its profile",
            ));
        }
        if speed.is_some() && matches!(self.source, Source::Program(_)) {
            return Err(Failure::usage(
                "--device-speed can't be used with an exec: model, which decides about its own speed",
            ));
        }
        Ok(self.with_speed(speed))
    }

    /// Like [`at_speed`](Self::at_speed), for a local model.
    pub fn with_speed(self, speed: Option<Speed>) -> Self {
        Device { speed: speed.unwrap_or_default(), ..self }
    }

    /// Its speed relative to its model.
    pub fn speed(&self) -> Speed {
        self.speed
    }

    /// The file with the state that it begins in.
    pub fn state_file(&self) -> Option<&Path> {
        self.state.as_ref().map(|state| state.file.as_path())
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Whether it includes a host's request queue.
    pub fn has_host_queue(&self) -> bool {
        match &self.source {
            Source::Profile(profile) => profile.has_host_queue(),
            Source::Program(_) => false,
        }
    }

    /// Properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// A new model at instant zero.
    ///
    /// # Panics
    /// For a program, which only [`load_anywhere`] returns and only [`port`](Self::port) starts.
    pub fn model(&self) -> Result<Box<dyn DeviceModel>, Failure> {
        self.model_with_seed(self.build.seed)
    }

    /// The device on the bus of the computer with which it was traced, if its profile has that (`[host-bus]`).
    #[must_use]
    pub fn on_host_bus(self) -> Device {
        Device { build: BuildOptions { host_bus: true, ..self.build }, ..self }
    }

    /// Whether the profile has the bus of the computer with which the drive was traced.
    #[must_use]
    pub fn has_host_bus(&self) -> bool {
        matches!(&self.source, Source::Profile(profile) if profile.has_host_bus())
    }

    /// Like [`model`](Self::model), with another seed.
    ///
    /// # Panics
    /// Like [`model`](Self::model).
    pub fn model_with_seed(&self, seed: u64) -> Result<Box<dyn DeviceModel>, Failure> {
        let Source::Profile(profile) = &self.source else { panic!("a program is no model of this process") };
        let build = BuildOptions { seed, ..self.build };
        let mut model =
            self.speed.apply(state_file::build(profile, &build, self.state_file()).map_err(build_failure)?.0);
        match self.zones.is_empty() || model.begin_with_zones(&self.zones) {
            true => Ok(model),
            false => Err(Failure::usage(format!("{} can't begin with zones that are written", self.name()))),
        }
    }

    /// The device with the zones of a run that is kept in this directory.
    pub fn with_zones_of(self, used: &DeviceUsed, directory: &RunDirectory) -> Result<Self, Failure> {
        let zones = zones::read(used, directory, &self.info)?;
        let device = Device { zones, ..self };
        device.model()?;
        Ok(device)
    }

    /// A new model at instant zero, local or remote.
    pub fn port(&self, elsewhere: &Elsewhere, debug: &DebugSettings) -> Result<ModelPort, Failure> {
        let reset = Reset {
            seed: self.build.seed,
            capacity_bytes: self.build.capacity_bytes.unwrap_or(0),
            speculate: !debug.speculation_off,
            ..Reset::default()
        };
        Ok(match (&self.source, &elsewhere.server) {
            (Source::Program(command), _) => elsewhere.program(command, reset)?.into(),
            (Source::Profile(_), Some(_)) if self.state.is_some() => {
                return Err(Failure::usage(
                    "--state can't be used with --server: the server can't read files of this host",
                ));
            }
            (Source::Profile(profile), Some(address)) => {
                let reset = Reset { label: profile.name().to_owned(), profile: profile.text().to_owned(), ..reset };
                elsewhere.at_server(address, reset)?.into()
            }
            (Source::Profile(_), None) => self.model()?.into(),
        })
    }

    /// The guest's choice of a local or remote model.
    pub fn choice(&self, elsewhere: &Elsewhere, debug: &DebugSettings) -> ModelChoice {
        match (&self.source, &elsewhere.server) {
            (Source::Program(command), _) => ModelChoice::Program { command: command.clone() },
            (Source::Profile(profile), server) => {
                let (text, label) = (profile.text().to_owned(), profile.name().to_owned());
                match server {
                    None => ModelChoice::Profile { text, label },
                    Some(address) => {
                        let speculate = !debug.speculation_off;
                        let (address, token) = (address.clone(), elsewhere.server_token.clone());
                        let tls_certificates = elsewhere.server_tls_certificates.clone();
                        ModelChoice::Server { address, token, tls_certificates, text, label, speculate }
                    }
                }
            }
        }
    }

    /// The description of the device in a result, from which it can be made again.
    pub fn used(&self) -> DeviceUsed {
        let capacity_bytes = self.info.capacity_sectors * SECTOR_BYTES;
        let (text, program) = match &self.source {
            Source::Profile(profile) => (profile.text(), None),
            Source::Program(command) => (command.as_str(), Some(command.clone())),
        };
        DeviceUsed {
            profile: self.info.name.clone(),
            initial_state_hash: initial_state_hash(
                text,
                capacity_bytes,
                self.build.seed,
                self.state.as_ref().map(|state| state.fingerprint),
            ),
            speed: (self.speed != Speed::AS_IT_IS).then(|| self.speed.factor()),
            limits: self.limits.clone(),
            faults: self.faults.clone(),
            state_file: self.state_file().map(|file| file.display().to_string()),
            profile_toml: if program.is_some() { String::new() } else { text.to_owned() },
            capacity_bytes,
            seed: self.build.seed,
            program,
            zones_of: None,
            zones_began: None,
        }
    }
}

/// Hash over everything that determines the initial state except zones, each part preceded by its length.
fn initial_state_hash(profile_toml: &str, capacity_bytes: u64, seed: u64, state: Option<u64>) -> String {
    let length = profile_toml.len() as u64;
    let numbers = [length, capacity_bytes, seed].map(u64::to_le_bytes);
    let state = state.map(u64::to_le_bytes);
    hash_of(numbers.iter().flatten().copied().chain(profile_toml.bytes()).chain(state.into_iter().flatten()))
}

/// A device that could not be made from its profile and state.
pub fn build_failure(error: BuildError) -> Failure {
    match error {
        BuildError::Profile(error) => failure(error),
        BuildError::State { .. } => {
            Failure::usage(&error).help("make a state for this device with `chronodisk age` and the same --capacity")
        }
        BuildError::File { .. } => Failure::usage(&error),
    }
}

/// The failure for an error, with the line of the file if the error is in one.
pub fn failure(error: ProfileError) -> Failure {
    let failure = Failure::usage(&error);
    let failure = match &error.help {
        Some(help) => failure.help(help),
        None => failure,
    };
    let (Some(line), Some(column)) = (error.line, error.column) else { return failure };
    let text = fs::File::open(&error.file).ok().and_then(|file| TextFile::DeviceDescription.read(file).ok());
    let Some(text) = text else { return failure };
    let offset = offset_of(&text, line, column);
    let length = text[offset..].chars().next().map_or(0, char::len_utf8);
    failure.at_place(&error.file, &text, offset..offset + length, "here")
}

/// Byte offset of a place given by line and column, both counted from 1, the column in characters.
fn offset_of(text: &str, line: u32, column: u32) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1) as usize).map(str::len).sum();
    let in_line = text[start..].char_indices().nth(column.saturating_sub(1) as usize);
    in_line.map_or(text.len(), |(offset, _)| start + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_not_bytes() {
        let text = "a\nµs = 3\n";
        assert_eq!(&text[offset_of(text, 2, 4)..=offset_of(text, 2, 4)], "=");
        assert_eq!(offset_of(text, 9, 9), text.len());
    }

    #[test]
    fn the_hash_follows_each_part() {
        let hash = initial_state_hash("text", 512, 1, None);
        assert_eq!(hash, initial_state_hash("text", 512, 1, None));
        for other in [
            initial_state_hash("texu", 512, 1, None),
            initial_state_hash("text", 1024, 1, None),
            initial_state_hash("text", 512, 2, None),
            initial_state_hash("text", 512, 1, Some(0)),
        ] {
            assert_ne!(hash, other);
        }
    }
}
