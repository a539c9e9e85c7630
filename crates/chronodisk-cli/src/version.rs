//! Version and commit of the command.

use std::path::PathBuf;

use chronodisk_run::Caller;

/// Commit of the checkout from which the command was built, with `-dirty` if its sources were changed; empty without a
/// checkout.
const COMMIT: &str = env!("CHRONODISK_COMMIT");

/// The commit, if the command was built from a checkout.
pub fn commit() -> Option<String> {
    (!COMMIT.is_empty()).then(|| COMMIT.to_owned())
}

/// This program, as results name it.
pub fn caller() -> Caller {
    Caller { commit: commit(), command_line: std::env::args_os().collect(), executable: executable() }
}

/// This executable, which is also the program of all helper processes.
pub fn executable() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"))
}

/// Output of `--version` after the command's name.
pub fn long() -> String {
    let version = env!("CARGO_PKG_VERSION");
    commit().map_or(version.to_owned(), |commit| format!("{version} ({commit})"))
}
