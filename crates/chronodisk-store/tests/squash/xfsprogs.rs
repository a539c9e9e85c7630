//! xfsprogs as judges of file systems.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::e2fsprogs::program;

/// False, with a word about it, where the programs are missing.
pub fn xfsprogs_are_here() -> bool {
    let here = ["mkfs.xfs", "xfs_metadump", "xfs_repair"].iter().all(|name| program(name).is_some());
    if !here {
        println!("SKIPPED: no xfsprogs here (Debian: apt-get install xfsprogs)");
    }
    here
}

/// Runs one of them.
pub fn tool(name: &str, arguments: &[&str]) -> Output {
    Command::new(program(name).unwrap()).args(arguments).output().unwrap()
}

/// Everything but contents of files, as xfs_metadump finds it.
fn metadata_of(image: &Path) -> Vec<u8> {
    let dump = image.with_extension("dump");
    let made = tool("xfs_metadump", &["-a", "-o", image.to_str().unwrap(), dump.to_str().unwrap()]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let bytes = fs::read(&dump).unwrap();
    fs::remove_file(dump).unwrap();
    bytes
}

/// What xfs_repair says, without repairing, and its status. Its threads speak in any order.
fn verdict(image: &Path) -> (Option<i32>, Vec<String>) {
    let checked = tool("xfs_repair", &["-n", image.to_str().unwrap()]);
    let text = [checked.stdout, checked.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let mut lines: Vec<String> = text.lines().map(|line| line.replace(image.to_str().unwrap(), "IMAGE")).collect();
    lines.sort_unstable();
    (checked.status.code(), lines)
}

/// xfs_repair says the same of two images, and all their metadata and logs are equal.
pub fn compare_files(full: &Path, squashed: &Path, what: &str) {
    assert_eq!(verdict(full), verdict(squashed), "{what}");
    assert!(metadata_of(full) == metadata_of(squashed), "{what}: the metadata differ");
}
