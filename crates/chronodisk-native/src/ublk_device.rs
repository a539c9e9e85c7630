//! A block device of the ublk driver, by commands to `/dev/ublk-control`.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use chronodisk_front::ublk::wire::{
    CONTROL_COMMAND_BYTES, ControlCommand, DEVICE_INFO_BYTES, DeviceInfo, PARAMETERS_BYTES, control, feature,
};
use chronodisk_front::ublk::{QUEUE_DEPTH, REQUEST_BYTES_MAX};
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::block_device::{BlockDevice, has_ended, left, opened, own_namespace};
use crate::error::{Doing, NativeError};

const CONTROL: &str = "/dev/ublk-control";

/// Features that the server needs.
const NEEDED: u64 = feature::CMD_IOCTL_ENCODE | feature::USER_COPY;

/// Prefixes of the nodes of a device's server and of its users.
const SERVER_NODE: &str = "/dev/ublkc";
const BLOCK_NODE: &str = "/dev/ublkb";

/// Path of the server's node of a device.
pub(crate) fn server_node(number: u32) -> PathBuf {
    PathBuf::from(format!("{SERVER_NODE}{number}"))
}

/// Path of the block device.
pub(crate) fn block_node(number: u32) -> PathBuf {
    PathBuf::from(format!("{BLOCK_NODE}{number}"))
}

/// Opens the driver, if it has everything that the server needs.
pub(crate) fn open_control() -> Result<OwnedFd, NativeError> {
    let opened = OpenOptions::new().read(true).write(true).open(CONTROL);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NativeError::HostLacks {
            what: format!("this host has no ublk driver: {CONTROL} is missing"),
            help: format!("load the module with `modprobe ublk_drv` (Linux 6.5 or later), or {OTHERWISE}"),
        },
        _ => NativeError::unprivileged(format!("opening {CONTROL}")),
    })?;
    let mut control = Control::of(file.into())?;
    let features = control.features().unwrap_or(0);
    if features & NEEDED != NEEDED {
        return Err(NativeError::HostLacks {
            what: format!("this host's ublk driver has no user copy: found features {features:#x}"),
            help: format!("use Linux 6.5 or later, or {OTHERWISE}"),
        });
    }
    Ok(control.file)
}

const OTHERWISE: &str = "use `--attach fuse`; `chronodisk run` needs neither";

/// The driver. One command at a time.
struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: OwnedFd,
    /// Argument or answer of a command, which the kernel reads or fills until the command has completed.
    buffer: Box<[u8]>,
}

/// Bytes of the largest argument or answer.
const BUFFER_BYTES: usize = if DEVICE_INFO_BYTES > PARAMETERS_BYTES { DEVICE_INFO_BYTES } else { PARAMETERS_BYTES };

impl Control {
    fn of(file: OwnedFd) -> Result<Self, NativeError> {
        let ring = IoUring::builder().build(1).map_err(|error| NativeError::HostLacks {
            what: format!("this host refuses io_uring, which ublk needs: {error}"),
            help: format!("set the sysctl kernel.io_uring_disabled to 0, or {OTHERWISE}"),
        })?;
        Ok(Control { ring, file, buffer: vec![0; BUFFER_BYTES].into_boxed_slice() })
    }

    /// Sends a command for a device. The buffer begins with the argument, and then has the answer of up to `len` bytes.
    fn command(&mut self, number: u32, command: u32, data: u64, argument: &[u8], len: usize) -> Result<(), Errno> {
        self.buffer.fill(0);
        self.buffer[..argument.len()].copy_from_slice(argument);
        let address = self.buffer.as_mut_ptr() as u64;
        let fixed = ControlCommand { device: number, len: len as u16, address, data };
        let mut bytes = [0; 80];
        bytes[..CONTROL_COMMAND_BYTES].copy_from_slice(&fixed.encode());
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), command).cmd(bytes).build();
        // SAFETY: the buffer is neither used nor freed until the command has completed; see below. The descriptor stays
        // open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| Errno::AGAIN)?;
        loop {
            let waited = self.ring.submit_and_wait(1);
            if let Some(completed) = self.ring.completion().next() {
                return match completed.result() {
                    0.. => Ok(()),
                    negative => Err(Errno::from_raw_os_error(-negative)),
                };
            }
            match waited.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
                Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                Err(errno) => {
                    // The kernel may use the buffer for ever.
                    std::mem::forget(std::mem::replace(&mut self.buffer, vec![0; BUFFER_BYTES].into_boxed_slice()));
                    return Err(errno);
                }
            }
        }
    }

    fn features(&mut self) -> Result<u64, Errno> {
        self.command(u32::MAX, control::GET_FEATURES, 0, &[], size_of::<u64>())?;
        Ok(u64::from_ne_bytes(*self.buffer.first_chunk().expect("the buffer is longer")))
    }

    fn info(&mut self, number: u32) -> Result<DeviceInfo, Errno> {
        self.command(number, control::GET_DEV_INFO, 0, &[], DEVICE_INFO_BYTES)?;
        Ok(DeviceInfo::decode(self.buffer.first_chunk().expect("the buffer is longer")))
    }

    /// Removes the block device, if it exists, and the server's node. A mounted file system gets errors from then on.
    fn remove(&mut self, number: u32) {
        let _ = self.command(number, control::STOP_DEV, 0, &[], 0);
        if self.command(number, control::DEL_DEV_ASYNC, 0, &[], 0).is_err() {
            // An older kernel, which waits until the file system is unmounted.
            let _ = self.command(number, control::DEL_DEV, 0, &[], 0);
        }
    }
}

/// A block device of the ublk driver, once it is started. It is removed when this is dropped.
pub(crate) struct UblkDevice {
    control: Control,
    number: u32,
    path: PathBuf,
    /// `None` while only others have it open.
    file: Option<File>,
    read_only: bool,
}

impl UblkDevice {
    /// Makes a device for `server`, with the bytes of `struct ublk_params`.
    pub fn add(control: OwnedFd, parameters: &[u8], read_only: bool, server: u32) -> Result<Self, NativeError> {
        let mut control = Control::of(control)?;
        let info = DeviceInfo {
            queues: 1,
            queue_depth: QUEUE_DEPTH,
            request_bytes_max: REQUEST_BYTES_MAX,
            device: u32::MAX,
            server_pid: -1,
            flags: NEEDED,
            server_flags: label_of(server),
            ..DeviceInfo::default()
        };
        let made = control.command(info.device, control::ADD_DEV, 0, &info.encode(), DEVICE_INFO_BYTES);
        made.doing("making a device of the ublk driver")?;
        let added = DeviceInfo::decode(control.buffer.first_chunk().expect("the buffer is longer"));
        let number = added.device;
        let mut device = UblkDevice { control, number, path: block_node(number), file: None, read_only };
        if added.flags & NEEDED != NEEDED || added.queue_depth != QUEUE_DEPTH {
            return Err(NativeError::HostLacks {
                what: format!("the ublk driver offers features {:#x} and {} tags", added.flags, added.queue_depth),
                help: format!("expected user copy and {QUEUE_DEPTH} tags; {OTHERWISE}"),
            });
        }
        let set = device.control.command(number, control::SET_PARAMS, 0, parameters, parameters.len());
        set.doing("describing the emulated device to the ublk driver")?;
        Ok(device)
    }

    /// Number of the device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Makes the block device, once its server has fetched requests.
    pub fn start(&mut self, server: u32) -> Result<(), NativeError> {
        let started = self.control.command(self.number, control::START_DEV, server.into(), &[], 0);
        started.doing(format!("making {}", self.path.display()))?;
        self.take()
    }
}

impl BlockDevice for UblkDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> Result<&File, NativeError> {
        self.file.as_ref().ok_or_else(left)
    }

    fn leave(&mut self) -> Result<(), NativeError> {
        self.file = None;
        Ok(())
    }

    fn take(&mut self) -> Result<(), NativeError> {
        if self.file.is_none() {
            self.file = Some(opened(&self.path, OpenOptions::new().read(true).write(!self.read_only))?);
        }
        Ok(())
    }
}

impl Drop for UblkDevice {
    fn drop(&mut self) {
        self.file = None;
        self.control.remove(self.number);
    }
}

/// Removes the device with this block device if it belongs to `server`.
pub(crate) fn detach_from(path: &Path, server: u32) {
    let number = path.to_str().and_then(|path| path.strip_prefix(BLOCK_NODE)?.parse().ok());
    let Some(number) = number else { return };
    let Ok(mut control) = existing_control() else { return };
    if control.info(number).is_ok_and(|info| info.server_flags == label_of(server)) {
        control.remove(number);
    }
}

/// Removes the devices of killed processes. The kernel removes a block device with its server, but not the server's
/// node.
pub(crate) fn end_leftovers() {
    let Ok(entries) = std::fs::read_dir("/sys/class/ublk-char") else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let numbers: Vec<u32> = names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok()).collect();
    if numbers.is_empty() {
        return;
    }
    let Ok(mut control) = existing_control() else { return };
    for number in numbers {
        let is_leftover = control.info(number).is_ok_and(|info| server_of(info.server_flags).is_some_and(has_ended));
        if is_leftover {
            control.remove(number);
        }
    }
}

fn existing_control() -> Result<Control, NativeError> {
    let file = OpenOptions::new().read(true).write(true).open(CONTROL).doing("opening the ublk driver")?;
    Control::of(file.into())
}

/// Highest bits of a label, an arbitrary number. Other servers leave the label zero.
const LABEL: u64 = 0x2d9;
const LABEL_SHIFT: u32 = 54;
const SERVER_SHIFT: u32 = 32;
/// `PID_MAX_LIMIT` of the kernel is 2^22.
const SERVER_MASK: u64 = (1 << (LABEL_SHIFT - SERVER_SHIFT)) - 1;

/// The device's label for its server: the namespace of process numbers and the pid.
fn label_of(server: u32) -> u64 {
    (LABEL << LABEL_SHIFT) | ((u64::from(server) & SERVER_MASK) << SERVER_SHIFT) | u64::from(own_namespace() as u32)
}

/// The server of a device with this label, if it is one of this namespace.
fn server_of(label: u64) -> Option<u32> {
    let namespace = own_namespace() as u32;
    let is_own = label >> LABEL_SHIFT == LABEL && label as u32 == namespace && namespace != 0;
    is_own.then_some(((label >> SERVER_SHIFT) & SERVER_MASK) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_the_process_that_serves() {
        assert_eq!(server_of(label_of(4_194_303)), Some(4_194_303));
        for other in [0, u64::MAX, label_of(5) ^ 1, label_of(5) ^ (1 << 63)] {
            assert_eq!(server_of(other), None, "{other:#x}");
        }
    }
}
