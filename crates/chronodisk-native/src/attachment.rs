//! Attaches a served device to this host's kernel as a block device.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use chronodisk_device::DeviceInfo;
use chronodisk_front::fuse::{DEVICE_REQUEST_BYTES_MAX, FILE_ROOT_MODE, FuseFile};
use chronodisk_front::server::{FuseAttachment, Server};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};

use crate::attacher::{Attacher, Request, Spec};
use crate::awake::Awake;
use crate::error::{Doing, NativeError};
use crate::helper::{ATTACHER, has_ended};
use crate::queue::{Queue, QueueSettings, Wanted};

/// Read-ahead in KiB: the kernel's default for disks. Loop devices may have another default, whose effect looks like an
/// error of the device's timing.
const READ_AHEAD_KIB: u64 = 128;

/// A block device of this host. It is detached when this is dropped, or, if it is in use then, when its last user
/// closes it.
#[derive(Debug)]
pub struct Attachment {
    attacher: Attacher,
    path: PathBuf,
    settings: QueueSettings,
    permitted: FuseAttachment,
    awake: Option<Awake>,
    disconnector: Disconnector,
}

/// Makes every request of an emulated device fail, including waiting ones.
#[derive(Debug)]
pub struct Disconnector {
    /// File that tells the kernel that a server is dead. Without it (no `fusectl`), an early end waits for the device's
    /// requests.
    abort: Option<OwnedFd>,
}

impl Disconnector {
    /// Makes all requests fail from now on.
    pub fn disconnect(&self) {
        if let Some(abort) = &self.abort {
            let _ = rustix::io::write(abort, b"1");
        }
    }
}

/// Makes a block device of this host's kernel from the device that `server` serves and `info` describes.
///
/// `file` is the device's name in the FUSE mount, `scheduler` the I/O scheduler of the block device. A helper process
/// runs `executable`, which calls [`native_attacher`](crate::native_attacher), and keeps the block device attached.
///
/// # Errors
/// [`NativeError::HostLacks`] without `/dev/fuse`, loop devices or `CAP_SYS_ADMIN`; [`NativeError::System`] if the
/// kernel refuses another call, or gives the device another size.
pub fn attach(
    server: &mut Server,
    info: &DeviceInfo,
    file: FuseFile,
    scheduler: &str,
    executable: &Path,
) -> Result<Attachment, NativeError> {
    let fuse = open_fuse()?;
    let mounted = mount_nowhere(fuse.as_fd())?;
    let disconnector = Disconnector { abort: open_abort(mounted.as_fd()).ok() };
    let permitted = server
        .attach_fuse(fuse, file)
        .map_err(|error| NativeError::System { doing: "serving FUSE".to_owned(), source: io::Error::other(error) })?;
    let spec = Spec {
        size_bytes: file.size_bytes,
        block_bytes: info.logical_block_bytes,
        read_only: file.read_only,
        server: std::process::id(),
        queue: Wanted {
            read_ahead_kib: READ_AHEAD_KIB,
            scheduler: scheduler.to_owned(),
            request_kib_max: u64::from(DEVICE_REQUEST_BYTES_MAX) >> 10,
            volatile_cache: info.volatile_cache,
            rotational: info.rotational,
            discard: file.discard,
        },
    };
    let (attacher, path, settings) = Attacher::start(executable, mounted.as_fd(), &spec)?;
    // Without the request to stay awake, requests are only later.
    Ok(Attachment { attacher, path, settings, permitted, awake: Awake::ask().ok(), disconnector })
}

impl Attachment {
    /// Path of the block device's node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The settings of its queue.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// Permissions that the host granted to its server.
    #[must_use]
    pub fn permitted(&self) -> FuseAttachment {
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
        Disconnector { abort: self.disconnector.abort.as_ref().and_then(|abort| abort.try_clone().ok()) }
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
