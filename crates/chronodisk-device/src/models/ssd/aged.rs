//! Aged drives, and their states outside.

use std::sync::Arc;

use super::ftl::ageing::{self, AgeingOptions, AgeingReport};
use super::ftl::state::{Resting, StateError, StateSource};
use super::ftl::{Ftl, FtlParameters};
use crate::{DeviceInfo, DeviceModel};

/// A device with a flash translation layer whose state can be saved.
pub(crate) trait FlashDrive: Send + Sync {
    /// Parameters of its translation layer for a device of this capacity.
    fn translation(&self, info: &DeviceInfo) -> Arc<FtlParameters>;

    /// Most memory that a device with these properties takes, in bytes.
    fn memory_bytes_max(&self, info: &DeviceInfo) -> u64;

    /// The device with this state of the translation layer.
    fn drive(&self, info: DeviceInfo, seed: u64, ftl: Ftl) -> Box<dyn DeviceModel>;
}

/// The state of a flash drive at rest, of one profile and capacity.
#[derive(Clone, Debug)]
pub struct FlashState {
    ftl: Ftl,
    device: u64,
    fingerprint: u64,
}

impl FlashState {
    /// Stands for the bytes that it was read from; zero if it was not read.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Passes its bytes to `sink` in order, for [`Profile::read_state`](crate::Profile::read_state), in pieces of at
    /// most a mebibyte.
    ///
    /// # Errors
    /// The errors of `sink`.
    pub fn write<E>(&self, sink: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        Resting::of(self.ftl.clone()).write(self.device, sink)
    }

    /// Length of the saved state in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        Resting::written_bytes(self.ftl.parameters())
    }

    /// Ages a new drive; `None` if `report` stopped it. `device` identifies its profile and capacity.
    pub(crate) fn aged(
        drive: &dyn FlashDrive,
        info: &DeviceInfo,
        device: u64,
        ageing: &AgeingOptions,
        report: &mut ageing::Report<'_>,
    ) -> Option<(Self, AgeingReport)> {
        let aged = ageing::age(&drive.translation(info), ageing, report);
        aged.map(|(ftl, report)| (FlashState { ftl, device, fingerprint: 0 }, report))
    }

    /// Reads a state of such a drive from the bytes of [`write`](Self::write).
    pub(crate) fn read(
        drive: &dyn FlashDrive,
        info: &DeviceInfo,
        device: u64,
        seed: u64,
        source: &(impl StateSource + ?Sized),
    ) -> Result<Self, StateError> {
        let (resting, fingerprint) = Resting::read(&drive.translation(info), device, source)?;
        Ok(FlashState { ftl: Ftl::from_resting(resting, seed)?, device, fingerprint })
    }

    /// Identifier of its profile and capacity.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// Returns whether its flash and translation layer equal the drive's.
    pub(crate) fn fits(&self, drive: &dyn FlashDrive, info: &DeviceInfo) -> bool {
        *drive.translation(info) == *self.ftl.parameters()
    }

    /// The drive with this state, at instant zero.
    pub(crate) fn into_drive(self, drive: &dyn FlashDrive, info: DeviceInfo, seed: u64) -> Box<dyn DeviceModel> {
        drive.drive(info, seed, self.ftl)
    }
}
