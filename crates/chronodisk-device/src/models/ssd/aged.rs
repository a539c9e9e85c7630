//! Aged drives, and their states outside.

use std::sync::Arc;

use chronodisk_sim::SECTOR_BYTES;
use twox_hash::XxHash64;

use super::ftl::ageing::{self, AgeingOptions, AgeingReport};
use super::ftl::state::{Resting, StateError, StateSource};
use super::ftl::{Ftl, FtlParameters};
use crate::profile::Profile;
use crate::{BuildOptions, DeviceInfo, DeviceModel, ProfileError};

/// A device with a flash translation layer whose state can be kept.
pub(crate) trait FlashDrive: Send + Sync {
    /// What its translation layer is told, for a device of this capacity.
    fn translation(&self, info: &DeviceInfo) -> Arc<FtlParameters>;

    /// Most memory that a device with these properties takes, in bytes.
    fn memory_bytes_max(&self, info: &DeviceInfo) -> u64;

    /// The device whose translation layer is in this state.
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

    /// Hands out its bytes in order, as [`Profile::read_state`] takes them, in pieces of at most a mebibyte.
    ///
    /// # Errors
    /// What `sink` says.
    pub fn write<E>(&self, sink: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        Resting::of(self.ftl.clone()).write(self.device, sink)
    }

    /// How many bytes that will be.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        Resting::written_bytes(self.ftl.parameters())
    }
}

/// Flash drives that have been in use.
impl Profile {
    /// Ages a new device of this profile; `None` if `report` ended it. Equal options give equal bytes.
    ///
    /// # Errors
    /// A device that is no flash drive, or a capacity that does not fit.
    pub fn age(
        &self,
        options: &BuildOptions,
        ageing: &AgeingOptions,
        report: &mut ageing::Report<'_>,
    ) -> Result<Option<(FlashState, AgeingReport)>, ProfileError> {
        let info = self.info_with(options)?;
        let drive = self.flash_drive()?;
        let aged = ageing::age(&drive.translation(&info), ageing, report);
        let device = self.device_of(&info);
        Ok(aged.map(|(ftl, report)| (FlashState { ftl, device, fingerprint: 0 }, report)))
    }

    /// Reads a state that [`FlashState::write`] wrote for a device of this profile and capacity.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn read_state(
        &self,
        options: &BuildOptions,
        source: &(impl StateSource + ?Sized),
    ) -> Result<FlashState, StateError> {
        let refused = |error: ProfileError| StateError::Unreadable(error.to_string());
        let info = self.info_with(options).map_err(refused)?;
        let drive = self.flash_drive().map_err(refused)?;
        let device = self.device_of(&info);
        let (resting, fingerprint) = Resting::read(&drive.translation(&info), device, source)?;
        Ok(FlashState { ftl: Ftl::from_resting(resting, options.seed)?, device, fingerprint })
    }

    /// The device that goes on from a state of this profile and capacity, at instant zero.
    ///
    /// # Errors
    /// A device that is no flash drive, or a state of another one.
    pub fn build_from_state(
        &self,
        options: &BuildOptions,
        state: FlashState,
    ) -> Result<Box<dyn DeviceModel>, ProfileError> {
        let info = self.info_with(options)?;
        let drive = self.flash_drive()?;
        if self.device_of(&info) != state.device {
            return Err(self.refusal(StateError::OtherDevice.to_string()));
        }
        Ok(drive.drive(info, options.seed, state.ftl))
    }

    /// The device that goes on, at instant zero, from a state of another profile whose flash, capacity and translation
    /// layer are the same: the two may differ in what anything takes. So one state does for many profiles of a fit.
    ///
    /// # Errors
    /// A device that is no flash drive, or a state of one with other flash.
    pub fn build_with_flash_of(
        &self,
        options: &BuildOptions,
        state: &FlashState,
    ) -> Result<Box<dyn DeviceModel>, ProfileError> {
        let info = self.info_with(options)?;
        let drive = self.flash_drive()?;
        if *drive.translation(&info) != *state.ftl.parameters() {
            return Err(
                self.refusal("the state is that of a drive with other flash or another translation layer".into())
            );
        }
        Ok(drive.drive(info, options.seed, state.ftl.clone()))
    }

    /// Stands for profile and capacity in a saved state: a hash over both.
    fn device_of(&self, info: &DeviceInfo) -> u64 {
        let capacity_bytes = info.capacity_sectors * SECTOR_BYTES;
        XxHash64::oneshot(capacity_bytes, self.text().as_bytes())
    }
}
