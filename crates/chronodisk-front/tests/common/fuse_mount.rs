//! A server with a device attached by FUSE, on a host that permits it.

#![allow(dead_code, reason = "no test uses all of it")]

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::{Engine, MonotonicClock};
use chronodisk_front::fuse::{FILE_ROOT_MODE, FuseFile};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{FuseChannel, Server, ServerOptions, ServerOutcome};
use chronodisk_store::Store;
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::thread::{CapabilitySet, capabilities};

/// Size of the device.
pub const CAPACITY_BYTES: u64 = 16 << 20;

pub fn model() -> Box<dyn DeviceModel> {
    let build = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), seed: 1, ..BuildOptions::default() };
    Profile::find("constant-1ms").unwrap().build(&build).unwrap()
}

pub const CHANNELS: [FuseChannel; 2] = [FuseChannel::Messages, FuseChannel::IoUring];

/// A server with a mounted device.
pub struct Attached {
    pub server: Option<Server>,
    /// The mounted file.
    pub place: PathBuf,
    _folder: tempfile::TempDir,
}

impl Attached {
    /// `None`, with a printed reason, if this host does not support it, or not this channel.
    pub fn new(channel: FuseChannel, store: Box<dyn Store>, file: FuseFile) -> Option<Self> {
        Attached::of(channel, model(), store, file)
    }

    /// Like [`new`](Self::new), with another model.
    pub fn of(
        channel: FuseChannel,
        model: Box<dyn DeviceModel>,
        store: Box<dyn Store>,
        file: FuseFile,
    ) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("device");
        File::create(&place).unwrap();
        let descriptor = match mounted(&place) {
            Ok(descriptor) => descriptor,
            Err(reason) => {
                println!("SKIPPED: no device is attached by FUSE: {reason}");
                return None;
            }
        };
        let mut attached = Attached { server: None, place, _folder: folder };
        let mut server = server_of(model, store);
        let (attachment, used) = server.attach_fuse(descriptor, file, channel).unwrap();
        let permitted = capabilities(None).unwrap().effective;
        assert_eq!(attachment.io_flusher, permitted.contains(CapabilitySet::SYS_RESOURCE));
        assert!(attachment.memory_locked || !permitted.contains(CapabilitySet::IPC_LOCK));
        attached.server = Some(server);
        if used != channel {
            println!("SKIPPED: this host has no FUSE over io_uring");
            let _ = attached.stop();
            return None;
        }
        Some(attached)
    }

    /// Opens the file for reading and writing past the page cache.
    pub fn open(&self) -> File {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&self.place);
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().len(), CAPACITY_BYTES);
        file
    }

    /// Unmounts it and ends the server.
    pub fn stop(mut self) -> ServerOutcome {
        unmount(&self.place, UnmountFlags::DETACH).unwrap();
        let outcome = self.server.take().unwrap().stop();
        assert!(!outcome.statistics.realtime, "the kernel's workers would starve");
        outcome
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // It is unmounted already unless an assertion failed.
        let _ = unmount(&self.place, UnmountFlags::DETACH);
    }
}

pub fn server(store: Box<dyn Store>) -> Server {
    server_of(model(), store)
}

pub fn server_of(model: Box<dyn DeviceModel>, store: Box<dyn Store>) -> Server {
    let mut engine = Engine::new();
    let device = engine.attach(model);
    let offer = ServerOffer::new(vec![Export::new("", CAPACITY_BYTES)], Tls::Off).unwrap();
    let options = ServerOptions::default();
    Server::new(engine, device, store, offer, MonotonicClock::new(), options).unwrap()
}

fn mounted(place: &Path) -> Result<OwnedFd, String> {
    let descriptor = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let descriptor = descriptor.map_err(|error| format!("/dev/fuse: {error}"))?;
    let options = format!("fd={},rootmode={FILE_ROOT_MODE},user_id=0,group_id=0,allow_other", descriptor.as_raw_fd());
    let options = CString::new(options).unwrap();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("chronodisk", place, "fuse", flags, &*options).map_err(|error| format!("mount: {error}"))?;
    Ok(descriptor.into())
}
