//! Programs of the host, and the error if the host lacks one.

use std::fs;
use std::path::{Path, PathBuf};

/// The host lacks something that a guest needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct HostLacks {
    /// The missing thing.
    pub what: String,
    /// Advice.
    pub help: String,
}

/// Looks a program up in PATH.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

pub(super) fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Refuses early when the guest would lack a program; it also looks where only root's PATH does.
pub(crate) fn require_program(name: &str, package: &str) -> Result<(), HostLacks> {
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];
    if system.iter().any(|folder| is_executable(&Path::new(folder).join(name))) {
        return Ok(());
    }
    Err(HostLacks {
        what: format!("{name} is not installed"),
        help: format!("Debian has it: apt-get install {package}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = require_program("mkfs.no-such-thing", "some-package").unwrap_err();
        assert!(error.what.contains("mkfs.no-such-thing"));
        assert!(error.help.contains("apt-get install some-package"));
    }
}
