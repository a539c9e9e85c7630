//! Influences on a guest's behaviour besides its options: the kernel, this host's packages, the command's executable,
//! the environment. `compare` names the differences.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use chronodisk_guest::RunOptions;
use chronodisk_report::Surroundings;
use twox_hash::XxHash64;

/// Reads a run's surroundings, some tens of megabytes, while its guest runs. The run must have caught its signals
/// before: the reading thread would receive them, and end the process.
pub struct Reading(Option<JoinHandle<Surroundings>>);

impl Reading {
    /// Begins to read them.
    pub fn of_run(options: &RunOptions) -> Self {
        let (kernel, program) = (options.kernel_file(), options.command.first().cloned());
        Reading(std::thread::Builder::new().spawn(move || read(kernel, program)).ok())
    }

    /// Takes the result, once; `None` if the thread could not be started.
    pub fn take(&mut self) -> Option<Surroundings> {
        self.0.take()?.join().ok()
    }
}

/// Reads them; unreadable ones are omitted.
fn read(kernel: Option<PathBuf>, program: Option<OsString>) -> Surroundings {
    let program = program.and_then(|name| find_program(Path::new(&name)));
    Surroundings {
        kernel_hash: kernel.and_then(|file| hash_of_file(&file).ok()),
        distribution: fs::read_to_string("/etc/os-release").ok().and_then(|text| distribution_in(&text)),
        packages_hash: fs::read_to_string("/var/lib/dpkg/status").ok().map(|text| hash_of_packages(&text)),
        program_hash: program.and_then(|file| hash_of_file(&file).ok()),
        environment: std::env::vars_os().map(|(name, value)| variable(name.as_bytes(), value.as_bytes())).collect(),
    }
}

/// Record of a variable. Sixteen bits distinguish two values in all but one of 65,536 cases, and hardly help to guess a
/// secret.
fn variable(name: &[u8], value: &[u8]) -> (String, String) {
    let hash = XxHash64::oneshot(value.len() as u64, value) as u16;
    (String::from_utf8_lossy(name).into_owned(), format!("{} B, {hash:04x}", value.len()))
}

/// Finds a program as the guest does: by its path, or in PATH.
fn find_program(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return Some(name.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn hash_of_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = XxHash64::with_seed(0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(named(hash.finish())),
            Ok(count) => hash.write(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn named(hash: u64) -> String {
    format!("xxh64:{hash:016x}")
}

/// `PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"` of os-release(5).
fn distribution_in(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(['"', '\'']).to_owned())
}

/// Hash of the installed packages, in the order of names: the order in dpkg's file depends on the history of
/// installations.
fn hash_of_packages(status: &str) -> String {
    let mut packages = BTreeMap::new();
    for paragraph in status.split("\n\n") {
        let field = |name: &str| paragraph.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        if !field("Status").is_some_and(|status| status.ends_with(" installed")) {
            continue;
        }
        if let (Some(name), Some(version)) = (field("Package"), field("Version")) {
            packages.insert((name, field("Architecture").unwrap_or_default()), version);
        }
    }
    let mut hash = XxHash64::with_seed(0);
    for ((name, architecture), version) in packages {
        for part in [name, architecture, version] {
            hash.write(part.as_bytes());
            hash.write_u8(0);
        }
    }
    named(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.0\n\n\
        Package: b\nStatus: install ok installed\nVersion: 2\nDescription: of b\n more\n";

    #[test]
    fn packages_are_told_apart_by_version_whatever_their_order() {
        let (a, b) = STATUS.split_once("\n\n").unwrap();
        let hash = hash_of_packages(STATUS);
        assert_eq!(hash, hash_of_packages(&format!("{b}\n\n{a}\n")));
        assert_eq!(hash, hash_of_packages(&format!("{STATUS}\n\nPackage: c\nStatus: deinstall ok config-files\n")));
        assert_ne!(hash, hash_of_packages(&STATUS.replace("Version: 2", "Version: 3")));
        assert_ne!(hash, hash_of_packages(a));
        let described = STATUS.replace("of b", "of another b");
        assert_eq!(hash, hash_of_packages(&described), "a description is not what is installed");
    }

    #[test]
    fn a_variable_tells_that_it_differs_and_not_what_it_is() {
        let (name, kept) = variable(b"TOKEN", b"secret");
        assert_eq!(name, "TOKEN");
        assert!(kept.starts_with("6 B, ") && kept.len() == 9, "{kept}");
        assert_ne!(variable(b"TOKEN", b"secreu").1, kept);
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find_program(Path::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(find_program(Path::new("./here")), Some("./here".into()));
        assert_eq!(find_program(Path::new("no-such-program")), None);
        let hash = hash_of_file(&find_program(Path::new("sh")).unwrap()).unwrap();
        assert!(hash.starts_with("xxh64:") && hash.len() == 22, "{hash}");
    }

    #[test]
    fn the_distribution_has_a_name_for_people() {
        let text = "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(distribution_in(text).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(distribution_in(""), None);
    }
}
