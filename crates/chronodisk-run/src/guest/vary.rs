//! Differences between repetitions: the workload of a bootstrap, and the copy of a snapshot; with the check that the
//! devices have room for it.

use chronodisk_guest::{FileSystem, RunOptions, StoreChoice};
use chronodisk_trace::calls::Plan;

use super::arguments::{GuestArguments, Root};
use super::draws::Draws;
use super::snapshot::Copy;
use crate::device::Device;
use crate::failure::Failure;

/// Differences between repetitions.
pub(super) struct Vary<'a> {
    pub draws: Option<&'a Draws>,
    pub snapshot: Option<Copy>,
}

impl Vary<'_> {
    /// Prepares a repetition.
    pub fn prepare(&self, index: u32, options: &mut RunOptions) -> Result<(), Failure> {
        self.snapshot.as_ref().map_or(Ok(()), Copy::refresh)?;
        self.draws.map_or(Ok(()), |draws| draws.prepare(index, options))
    }
}

impl GuestArguments {
    /// Refuses devices that are too small for the files of a trace: calls would fail that succeeded in the recording.
    pub(super) fn expect_room(&self, plan: &Plan, devices: &[Device]) -> Result<(), Failure> {
        // Made-up data may be compressed well.
        if self.mount_options.as_ref().is_some_and(|options| options.contains("compress")) {
            return Ok(());
        }
        let capacity_bytes: u64 = devices.iter().map(|device| device.used().capacity_bytes).sum();
        if plan.data_bytes <= capacity_bytes {
            return Ok(());
        }
        let what = if devices.len() == 1 { "the device has" } else { "the devices have" };
        let data_bytes = plan.data_bytes;
        Err(Failure::usage(format!("the files of the trace hold {data_bytes} bytes at once; {what} {capacity_bytes}"))
            .help("--capacity sets another capacity"))
    }

    /// Lets the first device begin with a snapshot, if one was given.
    pub(super) fn begin_with_snapshot(
        &self,
        devices: &[Device],
        options: &mut RunOptions,
    ) -> Result<Option<Copy>, Failure> {
        let Some(snapshot) = &self.snapshot else { return Ok(None) };
        let taken = [
            (self.store != "ram", "--store, whose file has a file system of its own (--fs existing mounts it)"),
            (self.elsewhere.server.is_some(), "--server, which keeps the bytes"),
            (matches!(options.devices[0].store, StoreChoice::Squashed { .. }), "--squash"),
            (self.root == Root::Device, "--root device, which needs a new file system"),
        ];
        if let Some((_, other)) = taken.iter().find(|(is_taken, _)| *is_taken) {
            return Err(Failure::usage(format!("--snapshot can't be used with {other}")));
        }
        let copy = Copy::new(snapshot, devices[0].used().capacity_bytes, &std::env::temp_dir())?;
        options.file_system = FileSystem::Existing;
        options.devices[0].store = StoreChoice::File { path: copy.path().to_owned() };
        Ok(Some(copy))
    }
}
