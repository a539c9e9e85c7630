//! xfsprogs as judges of file systems.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::e2fsprogs::program;

/// Whether the programs are installed; prints a line if not.
pub fn xfsprogs_are_here() -> bool {
    let here = ["mkfs.xfs", "xfs_metadump", "xfs_repair"].iter().all(|name| program(name).is_some());
    if !here {
        println!("SKIPPED: no xfsprogs here (Debian: apt-get install xfsprogs)");
    }
    here
}

/// Runs a program of xfsprogs.
pub fn tool(name: &str, arguments: &[&str]) -> Output {
    Command::new(program(name).unwrap()).args(arguments).output().unwrap()
}

/// All metadata, as xfs_metadump reads them.
fn metadata_of(image: &Path) -> Vec<u8> {
    let dump = image.with_extension("dump");
    let made = tool("xfs_metadump", &["-a", "-o", image.to_str().unwrap(), dump.to_str().unwrap()]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let bytes = fs::read(&dump).unwrap();
    fs::remove_file(dump).unwrap();
    bytes
}

/// Status of an `xfs_repair` without repair, and the words of its output in alphabetical order. Prefetch threads are
/// off (`-P`), because they print into the middle of other lines. Addresses of its own code are removed, because they
/// differ in each run.
fn verdict(image: &Path) -> (Option<i32>, Vec<String>) {
    let checked = tool("xfs_repair", &["-P", "-n", image.to_str().unwrap()]);
    let text = [checked.stdout, checked.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let text = text.replace(image.to_str().unwrap(), "IMAGE");
    let mut words: Vec<String> = text.split_whitespace().filter(|word| !is_address(word)).map(str::to_owned).collect();
    words.sort_unstable();
    (checked.status.code(), words)
}

/// Whether a word is a code address of a 64-bit processor; addresses in these images are shorter.
fn is_address(word: &str) -> bool {
    let digits = word.trim_end_matches([',', '.']).strip_prefix("0x").unwrap_or_default();
    digits.len() > 10 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Most calls of xfs_repair until both images give the same output. Its threads that check allocation groups in
/// parallel may print into each other's words.
const ASKED_MAX: u32 = 10;

/// xfs_repair gives the same output for two images.
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

/// xfs_repair gives the same output for two images, and all their metadata and logs are equal.
pub fn compare_files(full: &Path, squashed: &Path, what: &str) {
    compare_verdicts(full, squashed, what);
    assert!(metadata_of(full) == metadata_of(squashed), "{what}: the metadata differ");
}
