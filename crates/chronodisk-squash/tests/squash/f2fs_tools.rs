//! f2fs-tools as judges of file systems.

use std::path::Path;
use std::process::{Command, Output};

use super::e2fsprogs::program;

/// Whether the programs are installed; prints a line if not.
pub fn f2fs_tools_are_here() -> bool {
    let here = ["mkfs.f2fs", "fsck.f2fs", "sload.f2fs"].iter().all(|name| program(name).is_some());
    if !here {
        println!("SKIPPED: no f2fs-tools here (Debian: apt-get install f2fs-tools)");
    }
    here
}

/// Runs a program of f2fs-tools.
pub fn tool(name: &str, arguments: &[&str]) -> Output {
    Command::new(program(name).unwrap()).args(arguments).output().unwrap()
}

/// Status of an `fsck.f2fs`, its findings, and the tree that it prints.
pub fn verdict(image: &Path) -> (Option<i32>, String) {
    let checked = tool("fsck.f2fs", &["-f", "--dry-run", "-t", image.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    (
        checked.status.code(),
        text.lines().filter(|line| !line.starts_with("Done")).map(|line| format!("{line}\n")).collect(),
    )
}
