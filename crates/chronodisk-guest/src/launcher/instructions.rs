//! The launcher's instructions to the guest's first process: the command, its surroundings on the host, and the
//! devices.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::host;
use super::modules::Modules;
use super::outcome::{Doing, RunError};
use super::own_commands;
use super::processes::Backend;
use super::run_options::RunOptions;
use crate::kernel::built::file_systems_beside;
use crate::kernel::installed::UserModeLinux;
use crate::shared::acknowledge;
use crate::shared::device_names::{DEVICE, DEVICE_VARIABLE};
use crate::shared::device_options::DeviceOptions;
use crate::shared::filesystem::FileSystem;
use crate::shared::spec::{ByteString, GuestSpec};

/// The instructions for a guest with these options on these devices.
pub(crate) fn instructions(
    options: &RunOptions,
    kernel: &UserModeLinux,
    backend: &Backend,
) -> Result<GuestSpec, RunError> {
    let identity = host::identity();
    let bytes = |text: &OsString| ByteString::from(text.as_bytes());
    let path_bytes = |path: &PathBuf| ByteString::from(path.as_os_str().as_bytes());
    let pipe = || (acknowledge::VARIABLE.into(), acknowledge::PIPE.into());
    let device = (DEVICE_VARIABLE.into(), DEVICE.into());
    let acknowledges = (options.acknowledges || options.states.is_some()).then(pipe);
    let mut own_modules = Vec::new();
    if options.kernel.is_none() && options.devices.iter().any(DeviceOptions::notifies_file_data) {
        own_modules.extend(file_systems_beside(kernel));
    }
    own_modules.extend_from_slice(&options.modules);
    let mut spec = GuestSpec {
        command: match (&options.replay, &options.states) {
            (Some(_), _) => own_commands::replayer(&identity),
            (None, Some(states)) => own_commands::checker(states, &identity),
            (None, None) => options.command.iter().map(bytes).collect(),
        },
        replays: options.replay.is_some(),
        checks_states: options.states.as_ref().map(|states| states.file_system),
        acknowledges: options.acknowledges || options.states.is_some(),
        records: options.recording.is_some(),
        environment: std::env::vars_os()
            .chain([device])
            .chain(acknowledges)
            .map(|(name, value)| ByteString::from([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect(),
        working_directory: path_bytes(&std::env::current_dir().doing("finding the working directory")?),
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups,
        umask: identity.umask,
        terminals: terminals(options),
        window_size: host::window_size(),
        devices: options.devices.len(),
        rotational: backend.rotational.clone(),
        zoned: options.devices.iter().map(|device| device.zoned).collect(),
        file_system: backend.file_system,
        makes_file_system: options.file_system != FileSystem::Existing,
        mkfs_options: options.mkfs_options.clone(),
        mount_options: options.mount_options.clone(),
        mount_type: options.mount_type.clone(),
        mount_point: options.mount_point.clone(),
        scheduler: options.scheduler.clone(),
        seed: options.seed,
        host_writes: options.host_writes,
        root: options.root.clone(),
        settles: options.settle && options.time.skips_idle_time(),
        drop_caches: options.drop_caches,
        check: options.check,
        modules: None,
        own_modules: own_modules.iter().map(path_bytes).collect(),
    };
    if let Some(folder) = &kernel.modules {
        let modules = Modules::open(folder).doing("reading the list of the guest kernel's modules")?;
        spec.modules = Some(modules.needed_by(&spec).iter().map(path_bytes).collect());
        spec.own_modules = modules.with_needs(&own_modules).iter().map(path_bytes).collect();
    }
    Ok(spec)
}

/// For each of the command's streams, whether it is a terminal on the host.
fn terminals(options: &RunOptions) -> [bool; 3] {
    let [stdin, stdout, stderr] = host::terminals();
    [stdin, if options.stdout_to_stderr { stderr } else { stdout }, stderr]
}
