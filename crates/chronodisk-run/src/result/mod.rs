//! The result of a run, whether a guest, this host or clients used the device.
//!
//! [`new_result`] makes one without repetitions. A repetition is added by [`add_guest_repetition`],
//! [`add_native_repetition`] or [`add_served_repetition`].

mod guest;
mod native;
mod server;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use chronodisk_guest::{FileSystem, RunOptions};
use chronodisk_report::{ClockInfo, DeviceUsed, EndedBy, GuestInfo, Labels, RUN_SCHEMA, RunResult};
use chronodisk_sim::Nanos;

pub use self::guest::{add_guest_repetition, own_failure};
pub use self::native::{NativeRep, add_native_repetition, settings_of, time_late};
pub use self::server::{ServedRep, add_served_repetition, server_failure};
use crate::folder::RunDirectory;
use crate::recorded::RecordedOptions;
use crate::times::now_rfc3339;

/// The program that starts a run, as results name it.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Commit that it was built from, with `-dirty` if its sources were changed; only from a checkout.
    pub commit: Option<String>,
    /// Command line of this process.
    pub command_line: Vec<OsString>,
    /// Executable of this process, which is also the program of all helper processes.
    pub executable: PathBuf,
}

/// The user of a device.
#[derive(Clone, Copy, Debug)]
pub enum Runner<'a> {
    /// A guest.
    Guest(&'a RunOptions),
    /// A program of this host, on a block device.
    Native(NativeFileSystem<'a>),
    /// Clients of a server.
    Served {
        /// Whether a real device was shadowed.
        shadow: bool,
    },
}

/// The file system of a native program.
#[derive(Clone, Copy, Debug)]
pub struct NativeFileSystem<'a> {
    /// Kind of the file system.
    pub kind: FileSystem,
    /// Options given to mkfs.
    pub mkfs_options: &'a str,
    /// Options given to mount.
    pub mount_options: &'a str,
    /// I/O scheduler of the block device.
    pub scheduler: &'a str,
}

/// Facts of a run that are known before it begins.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The calling program.
    pub caller: &'a Caller,
    /// The run's directory.
    pub directory: &'a RunDirectory,
    /// At least one device.
    pub devices: &'a [DeviceUsed],
    /// The program on the device.
    pub command: &'a [OsString],
    /// The options of the command line.
    pub recorded: &'a RecordedOptions,
    /// The labels that the user gave.
    pub labels: &'a Labels,
    /// The user of the device.
    pub runner: Runner<'a>,
}

/// A result without repetitions.
pub fn new_result(setting: &Setting<'_>) -> RunResult {
    let text = |words: &[OsString]| words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (clock, guest) = match setting.runner {
        Runner::Guest(options) => (guest::clock_info(&options.time), guest::guest_info(options)),
        Runner::Native(file_system) => (real_clock("real"), host_info(&file_system)),
        Runner::Served { shadow } => {
            let nothing =
                NativeFileSystem { kind: FileSystem::None, mkfs_options: "", mount_options: "", scheduler: "" };
            (real_clock(if shadow { "shadow" } else { "real" }), host_info(&nothing))
        }
    };
    RunResult {
        schema: RUN_SCHEMA.to_owned(),
        run_id: setting.directory.id(),
        started_at: now_rfc3339(),
        chronodisk_version: env!("CARGO_PKG_VERSION").to_owned(),
        chronodisk_commit: setting.caller.commit.clone(),
        labels: setting.labels.clone(),
        command_line: text(&setting.caller.command_line),
        command: text(setting.command),
        options_given: setting.recorded.given(),
        options: setting.recorded.all(),
        device: setting.devices[0].clone(),
        further_devices: setting.devices[1..].to_vec(),
        clock,
        guest,
        host: chronodisk_sweep::host_info(),
        surroundings: None,
        reps: Vec::new(),
        pilot: None,
        warnings: Vec::new(),
        ended_by: EndedBy::Command,
        replay: None,
        failure: None,
    }
}

/// The host's clock, which counts all time.
fn real_clock(driver: &str) -> ClockInfo {
    ClockInfo {
        driver: driver.to_owned(),
        cpu: "wall".to_owned(),
        kernel_scale: None,
        kernel_costs: None,
        calibrated: None,
        cpu_speed: None,
    }
}

/// No guest, and a file system of this host.
fn host_info(file_system: &NativeFileSystem<'_>) -> GuestInfo {
    GuestInfo {
        kernel: None,
        memory_bytes: None,
        cpus: None,
        file_system: file_system.kind.name().to_owned(),
        mkfs_options: file_system.mkfs_options.to_owned(),
        mount_options: file_system.mount_options.to_owned(),
        scheduler: file_system.scheduler.to_owned(),
    }
}

/// A note for readers of a run that this signal ended.
pub fn ended_early(signal: &str) -> String {
    format!("{signal} ended the run; its last repetition has no whole command")
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::device;

    fn of_runner(runner: Runner<'_>) -> RunResult {
        let executable = PathBuf::from("/usr/bin/chronodisk");
        new_result(&Setting {
            caller: &Caller { commit: None, command_line: vec!["chronodisk".into()], executable },
            directory: &RunDirectory::at("runs/the-id"),
            devices: &[device::load("null", None, 1).unwrap().used()],
            command: &["true".into()],
            recorded: &RecordedOptions::default(),
            labels: &Labels::default(),
            runner,
        })
    }

    #[test]
    fn without_a_guest_a_result_has_neither_kernel_nor_processors() {
        let file_system =
            NativeFileSystem { kind: FileSystem::Xfs, mkfs_options: "-m crc=0", mount_options: "", scheduler: "none" };
        let native = of_runner(Runner::Native(file_system));
        let value: Value = serde_json::from_str(&native.to_json()).unwrap();
        let guest = json!({"file_system": "xfs", "mkfs_options": "-m crc=0", "mount_options": "", "scheduler": "none"});
        assert_eq!((&value["guest"], &value["run_id"]), (&guest, &json!("the-id")));
        assert_eq!((native.clock.driver.as_str(), native.guest.cpus), ("real", None));
        assert_eq!(of_runner(Runner::Served { shadow: true }).clock.driver, "shadow");
    }

    #[test]
    fn results_with_an_empty_kernel_stay_readable() {
        let mut value: Value = serde_json::from_str(&of_runner(Runner::Served { shadow: false }).to_json()).unwrap();
        let older = json!({
            "kernel": "", "memory_bytes": 0, "cpus": 0, "file_system": "none", "mkfs_options": "",
            "mount_options": "", "scheduler": "",
        });
        value["guest"] = older.clone();
        let read: RunResult = serde_json::from_value(value).unwrap();
        assert_eq!((read.guest.kernel.as_deref(), read.guest.cpus), (Some(""), Some(0)));
        assert_eq!(serde_json::to_value(&read.guest).unwrap(), older);
    }
}
