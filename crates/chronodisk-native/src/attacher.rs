//! A process that makes the block device and keeps it, so that the device's server never waits for it.
//!
//! The process that answers FUSE may be killed at any moment. All requests fail once its descriptor of `/dev/fuse` is
//! closed, which happens when the last of its threads has ended. A thread that waited for a request of the device at
//! that moment would wait for ever. So this process does all operations that wait for the device: opening the file,
//! making the loop device, setting its queue (which waits for requests in flight), and emptying its cache.
//!
//! The ublk driver removes a block device whose server is killed, but keeps the server's node. This process outlives
//! the server, and removes that, too.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::block_device::BlockDevice;
use crate::error::{Doing, NativeError};
use crate::helper::{DESCRIPTOR, bequeath};
use crate::loop_device::{self, LoopDevice};
use crate::queue::{Queue, QueueSettings, Wanted};
use crate::ublk_device::{self, UblkDevice};

/// Argument with which this executable becomes the attacher.
const WORD: &str = "native-attacher";
/// Argument with which it detaches another attacher's device; the device's path and its server's pid follow.
const DETACH: &str = "detach";

/// Description of the device.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub kind: Kind,
    pub size_bytes: u64,
    pub read_only: bool,
    /// The process that serves it.
    pub server: u32,
    pub queue: Wanted,
}

/// Kind of the block device.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A loop device of the file that is the root of the inherited mount.
    Loop { block_bytes: u32 },
    /// A device of the inherited ublk driver, with the bytes of `struct ublk_params`.
    Ublk { parameters: Vec<u8> },
}

/// Later requests to it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Makes the block device, which is served now.
    Start,
    /// Writes the device's page cache, and empties it.
    Flush,
    /// Closes the device, so that only others use it.
    Leave,
    /// Opens the device again.
    Take,
}

/// Replies of the attacher.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    /// The ublk device with this number can be served.
    Added {
        number: u32,
    },
    Attached {
        path: PathBuf,
        settings: QueueSettings,
    },
    Done,
    Lacks {
        what: String,
        help: String,
    },
    Failed(String),
}

/// The starter's handle of the attacher. The block device is detached when this is dropped.
#[derive(Debug)]
pub(crate) struct Attacher {
    /// The program of this process.
    executable: PathBuf,
    child: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    pidfd: OwnedFd,
    /// Path of the device, once there is one.
    device: Option<PathBuf>,
}

impl Attacher {
    /// Starts an attacher that makes a block device of `source`: a mount whose root is the device's file, or the ublk
    /// driver. `serve` begins to serve the ublk device with that number.
    pub fn start(
        executable: &Path,
        source: BorrowedFd<'_>,
        spec: &Spec,
        serve: &mut dyn FnMut(u32) -> Result<(), NativeError>,
    ) -> Result<(Self, PathBuf, QueueSettings), NativeError> {
        const DOING: &str = "starting the process that makes the block device";
        let mut command = Command::new(executable);
        command.arg(WORD).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        bequeath(&mut command, source).doing(DOING)?;
        let mut child = command.spawn().doing(DOING)?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).doing(DOING)?;
        let requests = child.stdin.take();
        let replies = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut attacher =
            Attacher { executable: executable.to_owned(), child, requests, replies, pidfd, device: None };
        let reply = match attacher.ask(spec)? {
            Reply::Added { number } => {
                attacher.device = Some(ublk_device::block_node(number));
                serve(number)?;
                attacher.ask(&Request::Start)?
            }
            reply => reply,
        };
        match reply {
            Reply::Attached { path, settings } => {
                attacher.device = Some(path.clone());
                Ok((attacher, path, settings))
            }
            _ => Err(out_of_step()),
        }
    }

    /// Readable when the attacher has ended, which it does not do by itself.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends a request, and waits until it is done.
    pub fn request(&mut self, request: Request) -> Result<(), NativeError> {
        match self.ask(&request)? {
            Reply::Done => Ok(()),
            _ => Err(out_of_step()),
        }
    }

    fn ask(&mut self, request: &impl Serialize) -> Result<Reply, NativeError> {
        const DOING: &str = "asking the process that makes the block device";
        let requests = self.requests.as_mut().expect("it is closed at the end only");
        send(requests, request).doing(DOING)?;
        match receive(&mut self.replies).doing(DOING)? {
            Some(Reply::Lacks { what, help }) => Err(NativeError::HostLacks { what, help }),
            Some(Reply::Failed(what)) => Err(NativeError::Attacher(what)),
            Some(reply) => Ok(reply),
            None => Err(NativeError::Attacher("the process that makes the block device has ended".to_owned())),
        }
    }
}

fn out_of_step() -> NativeError {
    NativeError::Attacher("the process that makes the block device answered something else".to_owned())
}

impl Drop for Attacher {
    fn drop(&mut self) {
        // The attacher then detaches the device and ends.
        self.requests = None;
        let ended = self.child.wait();
        if let Some(device) = &self.device
            && !ended.is_ok_and(|status| status.success())
        {
            // The attacher was killed. This process detaches the device without opening it.
            let mut command = Command::new(&self.executable);
            command.args([WORD, DETACH]).arg(device).arg(std::process::id().to_string());
            let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

fn send(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// The next message; `None` at the end.
fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_slice(&line)?)) }
}

/// Entry point of this executable as the attacher.
#[must_use]
#[allow(unsafe_code)]
pub fn native_attacher() -> ExitCode {
    let mut arguments = std::env::args_os().skip(2);
    if arguments.next().is_some_and(|argument| argument == DETACH) {
        let (path, server) = (arguments.next(), arguments.next());
        let server = server.and_then(|server| server.to_str()?.parse().ok());
        let (Some(path), Some(server)) = (path, server) else { return ExitCode::FAILURE };
        loop_device::detach_from(path.as_ref(), server);
        ublk_device::detach_from(path.as_ref(), server);
        return ExitCode::SUCCESS;
    }
    // SAFETY: the starter has put it there, and it stays open for as long as this process lives.
    let source = unsafe { BorrowedFd::borrow_raw(DESCRIPTOR) };
    match serve(source, &mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Serves until its starter has ended or closes the pipe.
fn serve(source: BorrowedFd<'_>, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<()> {
    let Some(spec) = receive::<Spec>(from)? else { return Ok(()) };
    loop_device::end_leftovers();
    ublk_device::end_leftovers();
    let made = match &spec.kind {
        Kind::Loop { block_bytes } => make_loop(source, *block_bytes, &spec),
        Kind::Ublk { parameters } => match add_ublk(source, parameters, &spec) {
            Ok(mut device) => {
                send(to, &Reply::Added { number: device.number() })?;
                let Some(Request::Start) = receive(from)? else { return Ok(()) };
                device.start(spec.server).map(|()| Box::new(device) as Box<dyn BlockDevice>)
            }
            Err(error) => Err(error),
        },
    };
    let made = made.and_then(|device| configure(&*device, &spec).map(|settings| (device, settings)));
    let mut device = match made {
        Ok((device, settings)) => {
            send(to, &Reply::Attached { path: device.path().to_owned(), settings })?;
            device
        }
        Err(error) => return send(to, &told(error)),
    };
    while let Some(request) = receive(from)? {
        let done = match request {
            Request::Flush => device.flush_cache(),
            Request::Leave => device.leave(),
            Request::Take => device.take(),
            Request::Start => Ok(()),
        };
        send(to, &done.map_or_else(told, |()| Reply::Done))?;
    }
    Ok(())
}

fn told(error: NativeError) -> Reply {
    match error {
        NativeError::HostLacks { what, help } => Reply::Lacks { what, help },
        error => Reply::Failed(error.to_string()),
    }
}

fn make_loop(mounted: BorrowedFd<'_>, block_bytes: u32, spec: &Spec) -> Result<Box<dyn BlockDevice>, NativeError> {
    // The mount is the file itself.
    let way = format!("/proc/self/fd/{}", mounted.as_raw_fd());
    let access = if spec.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let backing = rustix::fs::open(way, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
        .doing("opening the emulated device's file")?;
    // The kernel asks for its size now.
    rustix::fs::fstat(&backing).doing("looking at the emulated device's file")?;
    Ok(Box::new(LoopDevice::configure(backing.as_fd(), block_bytes, spec.read_only, spec.server)?))
}

fn add_ublk(control: BorrowedFd<'_>, parameters: &[u8], spec: &Spec) -> Result<UblkDevice, NativeError> {
    let control = control.try_clone_to_owned().doing("duplicating the ublk driver's descriptor")?;
    UblkDevice::add(control, parameters, spec.read_only, spec.server)
}

/// Checks the block device, and sets its queue.
fn configure(device: &dyn BlockDevice, spec: &Spec) -> Result<QueueSettings, NativeError> {
    let capacity_bytes = device.capacity_bytes()?;
    if capacity_bytes != spec.size_bytes {
        return Err(NativeError::System {
            doing: format!("{} has {capacity_bytes} bytes instead of {}", device.path().display(), spec.size_bytes),
            source: io::ErrorKind::InvalidData.into(),
        });
    }
    Queue::of(device.path()).set(&spec.queue)
}
