//! Loads modules into the guest's kernel from the host's tree. The launcher has chosen them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::system::finit_module;

/// Loads a module from a file, unless it is loaded already.
pub(crate) fn load_file(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    match finit_module(file.as_fd(), c"", 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
