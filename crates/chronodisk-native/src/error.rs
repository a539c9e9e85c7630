//! Errors of this crate.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Reason why a program can't run natively on an emulated device.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// The host lacks something.
    #[error("{what}")]
    HostLacks {
        /// The missing thing.
        what: String,
        /// Advice.
        help: String,
    },
    /// The named thing is unsuitable.
    #[error("{what}")]
    Unsuitable {
        /// The thing, and the reason.
        what: String,
        /// An alternative to the unsuitable thing.
        help: String,
    },
    /// The system refused something.
    #[error("{doing}: {source}")]
    System {
        /// The attempted action.
        doing: String,
        /// The host's error.
        source: io::Error,
    },
    /// The process that makes the block device could not do something.
    #[error("{0}")]
    Attacher(String),
    /// A step before the command, such as mkfs, failed.
    #[error("{step} failed with {how}{}{output}", if output.is_empty() { "" } else { ":\n" })]
    Step {
        /// The program of the step.
        step: String,
        /// The end of the program, in words.
        how: String,
        /// Output of the program.
        output: String,
    },
}

/// Advice for a missing privilege.
const WITHOUT_PRIVILEGE: &str =
    "run it as root (CAP_SYS_ADMIN); `chronodisk run` needs no privilege and runs the program in a guest";

impl NativeError {
    /// Makes the error for a missing privilege.
    pub(crate) fn unprivileged(doing: impl fmt::Display) -> Self {
        let what = format!("{doing}: this needs CAP_SYS_ADMIN");
        NativeError::HostLacks { what, help: WITHOUT_PRIVILEGE.to_owned() }
    }
}

/// Adds the attempted action to an error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T, NativeError>;
}

impl<T> Doing<T> for Result<T, Errno> {
    fn doing(self, what: impl fmt::Display) -> Result<T, NativeError> {
        self.map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS => NativeError::unprivileged(what),
            errno => NativeError::System { doing: what.to_string(), source: errno.into() },
        })
    }
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T, NativeError> {
        self.map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => NativeError::unprivileged(what),
            _ => NativeError::System { doing: what.to_string(), source },
        })
    }
}
