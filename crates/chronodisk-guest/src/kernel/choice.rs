//! The kernel of a guest, by its clock and its devices.

use std::path::Path;

use super::built::{self, KernelVariant};
use super::installed::{UserModeLinux, first_in_image};
use super::programs::HostLacks;
use crate::shared::time::GuestTime;

impl UserModeLinux {
    /// The kernel of a guest with this clock: `file`, or the installed one for the clock.
    ///
    /// # Errors
    /// If it does not exist.
    pub(crate) fn for_clock(time: &GuestTime, file: Option<&Path>) -> Result<Self, HostLacks> {
        match (file, time) {
            (Some(file), _) => UserModeLinux::at(file),
            (None, GuestTime::Exact { .. }) => built::find(KernelVariant::Exact),
            (None, GuestTime::Several { .. }) => built::find(KernelVariant::Processors),
            (None, GuestTime::Stopping { .. } | GuestTime::Real) => UserModeLinux::find_any(),
        }
    }

    /// The kernel of a guest with a zoned device: `file`, or the kernel of `chronodisk kernel build zones`.
    ///
    /// # Errors
    /// When it is not there, or knows no zoned devices.
    pub(crate) fn with_zones(time: &GuestTime, file: Option<&Path>) -> Result<Self, HostLacks> {
        let Some(file) = file else {
            return built::find(match time {
                GuestTime::Several { .. } => KernelVariant::Processors,
                _ => KernelVariant::Zones,
            });
        };
        let kernel = UserModeLinux::at(file)?;
        match first_in_image(&kernel.executable, &[ZONED_SYMBOL.to_vec()]) {
            Some(_) => Ok(kernel),
            None => Err(HostLacks {
                what: format!("the kernel {} was built without BLK_DEV_ZONED", file.display()),
                help: "a zoned device needs it: leave --kernel out after `chronodisk kernel build zones`, or build \
                       your own with CONFIG_BLK_DEV_ZONED=y"
                    .into(),
            }),
        }
    }

    /// The kernel of a guest that notifies its store of file data: `file`, or the kernel of the exact clock.
    ///
    /// # Errors
    /// If it does not exist, or lacks the patch.
    pub(crate) fn with_notification(file: Option<&Path>) -> Result<Self, HostLacks> {
        let Some(file) = file else { return built::find(KernelVariant::Exact) };
        let kernel = UserModeLinux::at(file)?;
        match first_in_image(&kernel.executable, &[NOTIFICATION_MESSAGE.to_vec()]) {
            Some(_) => Ok(kernel),
            None => Err(HostLacks {
                what: format!("the kernel {} does not notify of file data", file.display()),
                help: "leave --kernel out after `chronodisk kernel build`, or build your own with `chronodisk kernel \
                       build --output FILE`"
                    .into(),
            }),
        }
    }

    /// The distribution's kernel, or, without it, the kernel of the exact clock, which can keep this host's time, too.
    ///
    /// # Errors
    /// If neither is installed.
    pub fn find_any() -> Result<Self, HostLacks> {
        UserModeLinux::find().or_else(|mut lacks| {
            built::find(KernelVariant::Exact).map_err(|_| {
                lacks.help += "; or the kernel of the exact clock: chronodisk help kernel";
                lacks
            })
        })
    }
}

/// A symbol of kernels with `CONFIG_BLK_DEV_ZONED` alone, exported to modules (`block/blk-zoned.c`).
const ZONED_SYMBOL: &[u8] = b"blk_revalidate_disk_zones";
/// The message of `kernel/file-data.patch` when a device takes its file lists.
const NOTIFICATION_MESSAGE: &[u8] = b"explicit notification of file data";
