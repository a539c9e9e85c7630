//! Makes the pipe for acknowledgements in the guest.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{CWD, FileType, Mode, chown, mknodat};
use rustix::process::{Gid, Uid};

use crate::shared::acknowledge::PIPE;

/// Makes the pipe for the command's user, and opens it for reading.
pub(crate) fn make((owner, group): (Uid, Gid)) -> io::Result<File> {
    mknodat(CWD, PIPE, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
    chown(PIPE, Some(owner), Some(group))?;
    // Open for writing as well: a pipe without a writer would always poll ready, and writers would wait for a reader.
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(PIPE)
}
