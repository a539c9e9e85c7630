//! A loop device, by the ioctls of `linux/loop.h`.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::block_device::{BlockDevice, has_ended, ioctl, left, opened, own_namespace};
use crate::error::{Doing, NativeError};

/// A block device with the bytes of a file. It is detached when this is dropped, or when its last user closes it.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    /// `None` while only others have it open.
    file: Option<File>,
    path: PathBuf,
    label: String,
}

/// Prefix of each label; the namespace of process numbers (its inode) and the server's pid follow.
const LABEL: &str = "chronodisk";

const CONTROL: &str = "/dev/loop-control";

// linux/loop.h
const LOOP_CTL_ADD: libc::c_ulong = 0x4C80;
const LOOP_CTL_REMOVE: libc::c_ulong = 0x4C81;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_SET_STATUS64: libc::c_ulong = 0x4C04;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

impl LoopInfo {
    const EMPTY: LoopInfo = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };

    fn labelled(label: &str) -> Self {
        let mut info = LoopInfo::EMPTY;
        info.file_name.iter_mut().zip(label.bytes()).for_each(|(to, from)| *to = from);
        info
    }

    fn label(&self) -> &[u8] {
        self.file_name.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

/// Free devices that others may take first.
const ATTEMPTS: u32 = 64;

impl LoopDevice {
    /// A device with the bytes of `backing`, past the page cache, served by this process.
    pub fn configure(
        backing: BorrowedFd<'_>,
        block_bytes: u32,
        read_only: bool,
        server: u32,
    ) -> Result<Self, NativeError> {
        let label = label_of(server);
        let control = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NativeError::HostLacks {
                what: format!("this host has no loop devices: {CONTROL} is missing"),
                help: "load the module with `modprobe loop`; `chronodisk run` needs none".to_owned(),
            },
            _ => NativeError::unprivileged(format!("opening {CONTROL}")),
        })?;
        let mut flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
        if read_only {
            flags |= LO_FLAGS_READ_ONLY;
        }
        for attempt in 1..=ATTEMPTS {
            let number = ioctl(control.as_fd(), LOOP_CTL_GET_FREE, std::ptr::null_mut::<u8>())
                .doing("finding a free loop device")?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            // Deletes and recreates the device, because a kernel that was told not to discard on a device never does so
            // again. Later steps notice if it is in use by now, or was recreated by another process.
            let device_number = std::ptr::without_provenance_mut::<u8>(number as usize);
            if ioctl(control.as_fd(), LOOP_CTL_REMOVE, device_number).is_ok() {
                let _ = ioctl(control.as_fd(), LOOP_CTL_ADD, device_number);
            }
            let file = match open(&path) {
                Ok(file) => file,
                // Another process is recreating it.
                Err(_) if attempt < ATTEMPTS => continue,
                Err(error) => return Err(error),
            };
            let mut config = LoopConfig {
                fd: backing.as_raw_fd() as u32,
                block_size: block_bytes,
                info: LoopInfo { flags, ..LoopInfo::labelled(&label) },
                reserved: [0; 8],
            };
            match ioctl(file.as_fd(), LOOP_CONFIGURE, &raw mut config) {
                Ok(_) => {
                    expect_direct(&file, &path)?;
                    let device = LoopDevice { file: Some(file), path, label };
                    return Ok(device);
                }
                // Another process was faster.
                Err(Errno::BUSY) => {}
                Err(errno) => return Err(errno).doing(format!("making {} of the emulated device", path.display())),
            }
        }
        Err(NativeError::HostLacks {
            what: "no loop device stays free for long enough".to_owned(),
            help: "others make loop devices all the time; try again".to_owned(),
        })
    }

    fn set_flags(&self, file: &File, flags: u32) -> Result<(), NativeError> {
        let mut info = LoopInfo { flags, ..LoopInfo::labelled(&self.label) };
        ioctl(file.as_fd(), LOOP_SET_STATUS64, &raw mut info).doing("setting the loop device's state").map(drop)
    }
}

impl BlockDevice for LoopDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> Result<&File, NativeError> {
        self.file.as_ref().ok_or_else(left)
    }

    /// It stays attached even if all processes of this program are killed at once; [`end_leftovers`] detaches it then.
    fn leave(&mut self) -> Result<(), NativeError> {
        if let Some(file) = &self.file {
            self.set_flags(file, 0)?;
            self.file = None;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<(), NativeError> {
        if self.file.is_none() {
            let file = open_own(&self.path, &self.label)?;
            self.set_flags(&file, LO_FLAGS_AUTOCLEAR)?;
            self.file = Some(file);
        }
        Ok(())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        match self.file.take() {
            Some(file) => clear(&file),
            None => detach(&self.path, &self.label),
        }
    }
}

/// Detaches the device at this path if it belongs to this process or to `server`.
pub(crate) fn detach_from(path: &Path, server: u32) {
    detach(path, &label_of(server));
}

fn detach(path: &Path, label: &str) {
    if let Ok(file) = open_own(path, label) {
        clear(&file);
    }
}

/// A remaining user keeps the device until it closes it.
fn clear(file: &File) {
    let _ = ioctl(file.as_fd(), LOOP_CLR_FD, std::ptr::null_mut::<u8>());
}

/// Detaches the devices of killed processes: see `leave`.
pub(crate) fn end_leftovers() {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return };
    for entry in entries.flatten() {
        // Only devices of a file without a mount point are Chronodisk's; others must not be opened.
        let backing = std::fs::read_to_string(entry.path().join("loop/backing_file"));
        if backing.is_ok_and(|file| file.trim_end() == "/")
            && let Ok(file) = open_to_ask(&Path::new("/dev").join(entry.file_name()))
            && let Some((namespace, server)) = state(&file).ok().and_then(|info| server_of(info.label()))
            // The process ids of another container have no meaning here.
            && namespace == own_namespace()
            && namespace != 0
            && has_ended(server)
        {
            clear(&file);
        }
    }
}

fn label_of(server: u32) -> String {
    format!("{LABEL}.{}.{server}", own_namespace())
}

/// The namespace, and the process in it.
fn server_of(label: &[u8]) -> Option<(u64, u32)> {
    let mut words = std::str::from_utf8(label).ok()?.split('.');
    let found = (words.next()? == LABEL).then_some((words.next()?.parse().ok()?, words.next()?.parse().ok()?));
    found.filter(|_| words.next().is_none())
}

/// Opens the device with this label. It may have been detached, and its number reused.
fn open_own(path: &Path, label: &str) -> Result<File, NativeError> {
    let file = open_to_ask(path)?;
    match state(&file) {
        Ok(info) if info.label() == label.as_bytes() => Ok(file),
        _ => Err(NativeError::Attacher(format!("{} was detached by another process", path.display()))),
    }
}

fn state(file: &File) -> Result<LoopInfo, Errno> {
    let mut info = LoopInfo::EMPTY;
    ioctl(file.as_fd(), LOOP_GET_STATUS64, &raw mut info).map(|_| info)
}

fn expect_direct(file: &File, path: &Path) -> Result<(), NativeError> {
    match state(file).doing("asking for the loop device's state")?.flags & LO_FLAGS_DIRECT_IO {
        0 => Err(NativeError::HostLacks {
            what: format!("{} does not pass the page cache (LO_FLAGS_DIRECT_IO)", path.display()),
            help: "a kernel from 5.10 on has it for files of FUSE".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn open(path: &Path) -> Result<File, NativeError> {
    opened(path, OpenOptions::new().read(true).write(true))
}

/// Opens the device, which may be read-only.
fn open_to_ask(path: &Path) -> Result<File, NativeError> {
    opened(path, OpenOptions::new().read(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_sizes_of_the_kernels() {
        assert_eq!((size_of::<LoopInfo>(), size_of::<LoopConfig>()), (232, 304));
    }

    #[test]
    fn a_label_names_the_process_that_serves() {
        let served = |label: &str| server_of(LoopInfo::labelled(label).label());
        assert_eq!(served(&label_of(u32::MAX)), Some((own_namespace(), u32::MAX)));
        let others =
            ["", "chronodisk.", "chronodisk.1", "chronodisk.1.x", "chronodisk.1.2.3", "chronodisk.1.4294967296"];
        for other in others.into_iter().chain(["/home/disk", &"c".repeat(100)]) {
            assert_eq!(served(other), None, "{other}");
        }
    }
}
