//! Attaches a served device to this host's kernel as a block device.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use chronodisk_device::DeviceInfo;
use chronodisk_front::fuse::{DEVICE_REQUEST_BYTES_MAX, FILE_ROOT_MODE, FuseFile};
use chronodisk_front::server::{AttachPermissions, FuseChannel, Server, UblkCut};
use chronodisk_front::ublk::{self, UblkDisk};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};

use crate::attacher::{Attacher, Kind, Request, Spec};
use crate::awake::Awake;
use crate::block_device::opened;
use crate::error::{Doing, NativeError};
use crate::helper::{ATTACHER, has_ended};
use crate::queue::{Queue, QueueSettings, Wanted};
use crate::ublk_device;

/// Read-ahead in KiB: the kernel's default for disks. Loop devices may have another default, whose effect looks like an
/// error of the device's timing.
const READ_AHEAD_KIB: u64 = 128;

/// A block device of this host. It is detached when this is dropped, or, if it is in use then, when its last user
/// closes it.
#[derive(Debug)]
pub struct Attachment {
    attacher: Attacher,
    path: PathBuf,
    way: Way,
    settings: QueueSettings,
    permitted: AttachPermissions,
    awake: Option<Awake>,
    disconnector: Disconnector,
}

/// The driver through which the kernel reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The ublk driver.
    Ublk,
    /// A file of FUSE, whose requests are messages on `/dev/fuse`, and a loop device of it.
    Fuse,
    /// A file of FUSE, whose requests come over io_uring, and a loop device of it.
    FuseUring,
}

/// The permitted drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayChoice {
    /// ublk, if this host has everything for it, else FUSE.
    Auto,
    /// Only ublk.
    Ublk,
    /// FUSE over io_uring where the kernel offers it, else FUSE with messages on `/dev/fuse`.
    Fuse,
    /// Only FUSE with messages on `/dev/fuse`.
    FuseMessages,
}

/// Makes every request of an emulated device fail, including waiting ones.
#[derive(Debug)]
pub struct Disconnector {
    way: Disconnecting,
}

#[derive(Debug)]
enum Disconnecting {
    /// File that tells the kernel that a FUSE server is dead. Without it (no `fusectl`), an early end waits for the
    /// device's requests.
    Fuse(Option<OwnedFd>),
    Ublk(UblkCut),
}

impl Disconnector {
    /// Makes all requests fail from now on.
    pub fn disconnect(&self) {
        match &self.way {
            Disconnecting::Fuse(Some(abort)) => drop(rustix::io::write(abort, b"1")),
            Disconnecting::Fuse(None) => {}
            Disconnecting::Ublk(cut) => cut.cut(),
        }
    }
}

/// Makes a block device of this host's kernel from the device that `server` serves and `info` describes.
///
/// `scheduler` is the I/O scheduler of the block device. A helper process runs `executable`, which calls
/// [`native_attacher`](crate::native_attacher), and keeps the block device attached.
///
/// # Errors
/// [`NativeError::HostLacks`] without the chosen driver or `CAP_SYS_ADMIN`; [`NativeError::System`] if the kernel
/// refuses another call, or gives the device another size; [`NativeError::Unsuitable`] for a device that ublk
/// can't have.
pub fn attach(
    server: &mut Server,
    info: &DeviceInfo,
    read_only: bool,
    choice: WayChoice,
    scheduler: &str,
    executable: &Path,
) -> Result<Attachment, NativeError> {
    let wanted = |request_bytes_max: u32| Wanted {
        read_ahead_kib: READ_AHEAD_KIB,
        scheduler: scheduler.to_owned(),
        request_kib_max: u64::from(request_bytes_max) >> 10,
        volatile_cache: info.volatile_cache,
        rotational: info.rotational,
        discard: info.discard_unit_sectors.is_some(),
    };
    let fits_ublk = info.logical_block_bytes <= UblkDisk::BLOCK_BYTES_MAX;
    if choice == WayChoice::Ublk || (choice == WayChoice::Auto && fits_ublk) {
        let disk = UblkDisk { read_only, ..UblkDisk::of(info) };
        match attach_ublk(server, disk, wanted(ublk::REQUEST_BYTES_MAX), executable) {
            Err(NativeError::HostLacks { .. }) if choice == WayChoice::Auto => {}
            attached => return attached,
        }
    }
    let file = FuseFile { read_only, ..FuseFile::of(info) };
    let channel = if choice == WayChoice::FuseMessages { FuseChannel::Messages } else { FuseChannel::IoUring };
    attach_fuse(server, file, channel, wanted(DEVICE_REQUEST_BYTES_MAX), executable)
}

fn attach_ublk(
    server: &mut Server,
    disk: UblkDisk,
    queue: Wanted,
    executable: &Path,
) -> Result<Attachment, NativeError> {
    disk.check().map_err(|reason| NativeError::Unsuitable {
        what: format!("the device can't be attached by ublk: {reason}"),
        help: "use `--attach fuse`".to_owned(),
    })?;
    let control = ublk_device::open_control()?;
    let spec = Spec {
        kind: Kind::Ublk { parameters: disk.parameters().encode().to_vec() },
        size_bytes: disk.size_bytes,
        read_only: disk.read_only,
        server: std::process::id(),
        queue,
    };
    let mut served = None;
    let mut serve = |number| {
        let node = ublk_device::server_node(number);
        let device = opened(&node, OpenOptions::new().read(true).write(true))?;
        served = Some(server.attach_ublk(device.into(), disk).map_err(|error| NativeError::System {
            doing: format!("serving {}", node.display()),
            source: io::Error::other(error),
        })?);
        Ok(())
    };
    let (attacher, path, settings) = Attacher::start(executable, control.as_fd(), &spec, &mut serve)?;
    let (permitted, cut) = served.ok_or_else(|| NativeError::Attacher("no ublk device was made".to_owned()))?;
    let disconnector = Disconnector { way: Disconnecting::Ublk(cut) };
    let awake = Awake::ask().ok();
    Ok(Attachment { attacher, path, way: Way::Ublk, settings, permitted, awake, disconnector })
}

fn attach_fuse(
    server: &mut Server,
    file: FuseFile,
    channel: FuseChannel,
    queue: Wanted,
    executable: &Path,
) -> Result<Attachment, NativeError> {
    let fuse = open_fuse()?;
    let mounted = mount_nowhere(fuse.as_fd())?;
    let disconnector = Disconnector { way: Disconnecting::Fuse(open_abort(mounted.as_fd()).ok()) };
    let (permitted, channel) = server
        .attach_fuse(fuse, file, channel)
        .map_err(|error| NativeError::System { doing: "serving FUSE".to_owned(), source: io::Error::other(error) })?;
    let spec = Spec {
        kind: Kind::Loop { block_bytes: file.block_bytes_min },
        size_bytes: file.size_bytes,
        read_only: file.read_only,
        server: std::process::id(),
        queue,
    };
    let mut nothing_to_serve = |_| Ok(());
    let (attacher, path, settings) = Attacher::start(executable, mounted.as_fd(), &spec, &mut nothing_to_serve)?;
    // Without the request to stay awake, requests are only later.
    let awake = Awake::ask().ok();
    let way = match channel {
        FuseChannel::Messages => Way::Fuse,
        FuseChannel::IoUring => Way::FuseUring,
    };
    Ok(Attachment { attacher, path, way, settings, permitted, awake, disconnector })
}

impl Attachment {
    /// Path of the block device's node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The driver in use.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
    }

    /// The settings of its queue.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// Permissions that the host granted to its server.
    #[must_use]
    pub fn permitted(&self) -> AttachPermissions {
        self.permitted
    }

    /// Whether the host's processors are kept from sleeping.
    #[must_use]
    pub fn processors_awake(&self) -> bool {
        self.awake.is_some()
    }

    /// Whether the kernel throttles write-back to it now. A program may have changed that.
    #[must_use]
    pub fn throttles_write_back(&self) -> bool {
        Queue::of(&self.path).throttles_write_back()
    }

    /// Readable when the helper process has ended, which it does not do by itself.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.attacher.pidfd()
    }

    /// Name of the helper process if it has ended.
    #[must_use]
    pub fn lost(&self) -> Option<&'static str> {
        has_ended(self.pidfd()).then_some(ATTACHER)
    }

    /// A handle for another thread that makes the device's requests fail.
    #[must_use]
    pub fn disconnector(&self) -> Disconnector {
        let way = match &self.disconnector.way {
            Disconnecting::Fuse(abort) => Disconnecting::Fuse(abort.as_ref().and_then(|abort| abort.try_clone().ok())),
            Disconnecting::Ublk(cut) => Disconnecting::Ublk(cut.clone()),
        };
        Disconnector { way }
    }

    /// Writes the device's page cache, and empties it.
    ///
    /// # Errors
    /// The host's error.
    pub fn flush_cache(&mut self) -> Result<(), NativeError> {
        self.attacher.request(Request::Flush)
    }

    /// Closes the device here. Its last user's close then makes the kernel write and empty its page cache, as for any
    /// disk. Otherwise Chronodisk itself always has it open.
    ///
    /// # Errors
    /// The host's error.
    pub fn leave(&mut self) -> Result<(), NativeError> {
        self.attacher.request(Request::Leave)
    }

    /// Reverts [`leave`](Self::leave).
    ///
    /// # Errors
    /// The host's error, also if the device was detached meanwhile.
    pub fn take(&mut self) -> Result<(), NativeError> {
        self.attacher.request(Request::Take)
    }
}

fn open_fuse() -> Result<OwnedFd, NativeError> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    opened.map(OwnedFd::from).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NativeError::HostLacks {
            what: "this host has no FUSE: /dev/fuse is missing".to_owned(),
            help: "load the module with `modprobe fuse`; `chronodisk run` needs none".to_owned(),
        },
        _ => NativeError::unprivileged("opening /dev/fuse"),
    })
}

/// Opens the file that aborts the connection of this mount, in a `fusectl` that is itself mounted nowhere. Its
/// directory is named by the device number of the file system.
fn open_abort(mounted: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // The server is not running yet, so `statx` must not send it a request.
    let unasked = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let number = statx(mounted, "", unasked, StatxFlags::empty())?.stx_dev_minor;
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let connections = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    openat(&connections, format!("{number}/abort"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// A mount without a mount point. It exists as long as a file in it is open.
fn mount_nowhere(fuse: BorrowedFd<'_>) -> Result<OwnedFd, NativeError> {
    const DOING: &str = "mounting FUSE";
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).doing(DOING)?;
    let options = [
        ("source", "chronodisk"),
        ("fd", &fuse.as_raw_fd().to_string()),
        ("rootmode", FILE_ROOT_MODE),
        ("user_id", "0"),
        ("group_id", "0"),
    ];
    for (name, value) in options {
        fsconfig_set_string(context.as_fd(), name, value).doing(DOING)?;
    }
    fsconfig_set_flag(context.as_fd(), "allow_other").doing(DOING)?;
    fsconfig_create(context.as_fd()).doing(DOING)?;
    fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .doing(DOING)
}
