//! Flash drives that have been in use.

use chronodisk_sim::SECTOR_BYTES;
use twox_hash::XxHash64;

use super::Profile;
use crate::models::ssd::{AgeingOptions, AgeingReport, FlashState, Report, StateError, StateSource};
use crate::{BuildOptions, DeviceInfo, DeviceModel, ProfileError};

impl Profile {
    /// Ages a new device of this profile; `None` if `report` stopped it. Equal options give equal bytes.
    ///
    /// # Errors
    /// If the device is no flash drive, or the capacity does not fit.
    pub fn age(
        &self,
        options: &BuildOptions,
        ageing: &AgeingOptions,
        report: &mut Report<'_>,
    ) -> Result<Option<(FlashState, AgeingReport)>, ProfileError> {
        let info = self.0.design.info_with(options)?;
        Ok(FlashState::aged(self.0.design.flash_drive()?, &info, self.device_of(&info), ageing, report))
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
        let info = self.0.design.info_with(options).map_err(refused)?;
        let drive = self.0.design.flash_drive().map_err(refused)?;
        FlashState::read(drive, &info, self.device_of(&info), options.seed, source)
    }

    /// The device, starting at instant zero from a saved state of this profile and capacity.
    ///
    /// # Errors
    /// If the device is no flash drive, or the state belongs to another one.
    pub fn build_from_state(
        &self,
        options: &BuildOptions,
        state: FlashState,
    ) -> Result<Box<dyn DeviceModel>, ProfileError> {
        let info = self.0.design.info_with(options)?;
        let drive = self.0.design.flash_drive()?;
        if self.device_of(&info) != state.device() {
            return Err(self.refusal(StateError::OtherDevice.to_string()));
        }
        Ok(state.into_drive(drive, info, options.seed))
    }

    /// Makes a device, at instant zero, from a state of another profile with the same flash, capacity and translation
    /// layer. The two may differ in all durations. So one state serves many profiles of a fit.
    ///
    /// # Errors
    /// If the device is no flash drive, or the state is of other flash.
    pub fn build_with_flash_of(
        &self,
        options: &BuildOptions,
        state: &FlashState,
    ) -> Result<Box<dyn DeviceModel>, ProfileError> {
        let info = self.0.design.info_with(options)?;
        let drive = self.0.design.flash_drive()?;
        if !state.fits(drive, &info) {
            return Err(
                self.refusal("the state is that of a drive with other flash or another translation layer".into())
            );
        }
        Ok(state.clone().into_drive(drive, info, options.seed))
    }

    /// Stands for profile and capacity in a saved state: a hash over both. Limits and faults do not count.
    fn device_of(&self, info: &DeviceInfo) -> u64 {
        let capacity_bytes = info.capacity_sectors * SECTOR_BYTES;
        match self.has_limits() || self.has_faults() {
            true => XxHash64::oneshot(capacity_bytes, super::without_surroundings(self.text()).as_bytes()),
            false => XxHash64::oneshot(capacity_bytes, self.text().as_bytes()),
        }
    }
}
