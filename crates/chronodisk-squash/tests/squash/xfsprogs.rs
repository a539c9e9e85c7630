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

/// What xfs_repair says, without repairing, by its words in alphabetical order, and its status. Without the threads
/// that read ahead (`-P`), which speak within the lines of others; and without the addresses in its own code that it
/// tells, which are others in each run.
fn verdict(image: &Path) -> (Option<i32>, Vec<String>) {
    let checked = tool("xfs_repair", &["-P", "-n", image.to_str().unwrap()]);
    let text = [checked.stdout, checked.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let text = text.replace(image.to_str().unwrap(), "IMAGE");
    let mut words: Vec<String> = text.split_whitespace().filter(|word| !is_address(word)).map(str::to_owned).collect();
    words.sort_unstable();
    (checked.status.code(), words)
}

/// Whether a word is a place in a program on a 64-bit processor; those on the images are shorter.
fn is_address(word: &str) -> bool {
    let digits = word.trim_end_matches([',', '.']).strip_prefix("0x").unwrap_or_default();
    digits.len() > 10 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Threads of xfs_repair that check groups at once still speak within each other's words, so it is asked so often at
/// most until it says the same of both.
const ASKED_MAX: u32 = 10;

/// xfs_repair says the same of two images.
pub fn compare_verdicts(full: &Path, squashed: &Path, what: &str) {
    let mut verdicts = (verdict(full), verdict(squashed));
    for _ in 1..ASKED_MAX {
        if verdicts.0 == verdicts.1 {
            return;
        }
        verdicts = (verdict(full), verdict(squashed));
    }
    assert_eq!(verdicts.0, verdicts.1, "{what}");
}

/// xfs_repair says the same of two images, and all their metadata and logs are equal.
pub fn compare_files(full: &Path, squashed: &Path, what: &str) {
    compare_verdicts(full, squashed, what);
    assert!(metadata_of(full) == metadata_of(squashed), "{what}: the metadata differ");
}
