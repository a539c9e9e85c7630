//! Names of the devices in the guest.

/// The first device's name in the guest; it holds the file system.
pub const DEVICE: &str = "/dev/vda";
/// The variable of the command that names the first device.
pub(crate) const DEVICE_VARIABLE: &str = "CHRONODISK_DEVICE";

/// The guest's name for a device, counted from 0.
pub(crate) fn device_name(index: usize) -> String {
    format!("vd{}", char::from(b'a' + index as u8))
}
