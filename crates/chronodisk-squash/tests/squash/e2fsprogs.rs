//! e2fsprogs as judges of file systems.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Whether the programs are installed; prints a line if not.
pub fn e2fsprogs_are_here() -> bool {
    let here = ["mke2fs", "e2image", "e2fsck", "debugfs"].iter().all(|name| program(name).is_some());
    if !here {
        println!("SKIPPED: no e2fsprogs here (Debian: apt-get install e2fsprogs)");
    }
    here
}

/// The path of a program. They are in /sbin, which is not on every user's PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|path| path.exists())
}

/// Runs a program of e2fsprogs with a fixed clock.
pub fn tool(name: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program(name).unwrap());
    command.args(arguments).env("E2FSCK_TIME", "1700000000").env("E2FSPROGS_FAKE_TIME", "1700000000");
    command.output().unwrap()
}

/// All metadata of an image according to e2image, in a file of the device's size; or the reason why e2image refuses it.
pub fn metadata_of(image: &Path) -> Result<Vec<u8>, String> {
    let raw = image.with_extension("raw");
    let _ = fs::remove_file(&raw);
    let made = tool("e2image", &["-r", "-f", image.to_str().unwrap(), raw.to_str().unwrap()]);
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).replace(image.to_str().unwrap(), "IMAGE"));
    }
    let bytes = fs::read(&raw).unwrap();
    fs::remove_file(raw).unwrap();
    Ok(bytes)
}

/// Output and status of an `e2fsck` without repair.
pub fn verdict(image: &Path) -> (Option<i32>, String) {
    let checked = tool("e2fsck", &["-f", "-n", image.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&checked.stdout).replace(image.to_str().unwrap(), "IMAGE");
    (checked.status.code(), without_addresses(&text))
}

/// Replaces addresses of e2fsck's own memory. If an inode of ext2 claims an impossible file size, e2fsck 1.47.0 prints
/// such an address instead of a block number, and it differs between runs. Real block numbers of these images are
/// shorter.
fn without_addresses(text: &str) -> String {
    let parts = text.split_inclusive(|letter: char| !letter.is_ascii_digit());
    let parts = parts.map(|part| match part.trim_start_matches(|letter: char| letter.is_ascii_digit()) {
        rest if part.len() - rest.len() > 12 => format!("NUMBER{rest}"),
        _ => part.to_owned(),
    });
    parts.collect()
}

/// e2fsck gives the same output for two images, and all their metadata are equal; or e2image refuses both for the same
/// reason.
pub fn compare_files(full: &Path, squashed: &Path, what: &str) {
    assert_eq!(verdict(full), verdict(squashed), "{what}");
    let (expected, found) = match (metadata_of(full), metadata_of(squashed)) {
        (Ok(expected), Ok(found)) => (expected, found),
        (expected, found) => return assert_eq!(expected.err(), found.err(), "{what}"),
    };
    let pairs = expected.chunks(4096).zip(found.chunks(4096)).enumerate();
    let differing: Vec<usize> =
        pairs.filter(|(_, (expected, found))| expected != found).map(|(index, _)| index).collect();
    assert!(differing.is_empty(), "{what}: blocks {differing:?} differ");
}

#[test]
fn numbers_of_a_checker_are_kept_but_its_addresses() {
    let said = "i_blocks is 4, should be 566203359375458.  Fix? 123456789012";
    assert_eq!(without_addresses(said), "i_blocks is 4, should be NUMBER.  Fix? 123456789012");
}
