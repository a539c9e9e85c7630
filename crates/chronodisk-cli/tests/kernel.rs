//! The exact clock's kernel as an archive: one host builds it, others install or unpack it below a prefix. A program
//! that prints a line replaces the kernel; `guest` runs a real one.

#[path = "common/command.rs"]
mod command;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        Host { folder: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `chronodisk kernel WORDS` with this folder as the user's cache.
    fn kernel_of(&self, executable: &Path, cache: &str, words: &[&str]) -> Output {
        let mut command = Command::new(executable);
        command.arg("kernel").args(words).current_dir(self.folder.path());
        command.env("XDG_CACHE_HOME", self.at(cache)).output().unwrap()
    }

    fn kernel(&self, cache: &str, words: &[&str]) -> Output {
        self.kernel_of(Path::new(env!("CARGO_BIN_EXE_chronodisk")), cache, words)
    }

    /// Puts a kernel into a cache, as a build does.
    fn build(&self, cache: &str) -> PathBuf {
        let kernel = self.at(cache).join("chronodisk").join(self.folder_name()).join("linux");
        fs::create_dir_all(kernel.parent().unwrap()).unwrap();
        fs::write(&kernel, "#!/bin/sh\necho a kernel\n").unwrap();
        fs::set_permissions(&kernel, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(kernel.with_file_name("SOURCE"), "Linux 6.1.1, from a test\n").unwrap();
        fs::write(kernel.with_file_name("jfs.ko"), "a module\n").unwrap();
        kernel
    }

    /// The folder of this version's kernel, as named by the refusal of another archive.
    fn folder_name(&self) -> String {
        fs::create_dir_all(self.at("other/lib")).unwrap();
        let mut tar = Command::new("tar");
        tar.args(["-czf", "other.tar.gz", "-C", "other", "lib"]).current_dir(self.folder.path());
        assert!(tar.status().unwrap().success());
        let refused = self.kernel("nothing", &["install", "other.tar.gz"]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let message = String::from_utf8(refused.stderr).unwrap();
        let name = message.split_whitespace().find(|word| word.starts_with("kernel-"));
        name.unwrap_or_else(|| panic!("{message}")).to_owned()
    }
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap().trim_end().to_owned()
}

#[test]
fn what_one_host_has_built_another_installs() {
    let host = Host::new();
    let built = host.build("here");
    let archive = said(&host.kernel("here", &["package", "--output", "packages"]));
    assert!(archive.starts_with("packages/chronodisk-kernel-") && archive.ends_with("-x86_64.tar.gz"), "{archive}");
    let bytes = fs::read(host.at(&archive)).unwrap();
    assert_eq!(said(&host.kernel("here", &["package", "-o", "again"])).replace("again", "packages"), archive);
    assert!(fs::read(host.at(&archive.replace("packages", "again"))).unwrap() == bytes, "equal kernels, equal bytes");

    let kernel = PathBuf::from(said(&host.kernel("there", &["install", &archive])));
    assert_eq!(kernel, host.at("there").join("chronodisk").join(host.folder_name()).join("linux"));
    assert_eq!(fs::read(&kernel).unwrap(), fs::read(&built).unwrap());
    assert_eq!(said(&host.kernel("there", &["path"])), kernel.display().to_string());
    assert_eq!(said(&host.kernel("there", &["install", &archive])), kernel.display().to_string(), "over itself");
    for (file, text) in [
        ("COPYING", "GNU GENERAL PUBLIC LICENSE"),
        ("SOURCE", "Linux 6.1.1"),
        ("time.patch", "+++"),
        ("file-data.patch", "+++"),
        ("jfs.ko", "a module"),
    ] {
        assert!(fs::read_to_string(kernel.with_file_name(file)).unwrap().contains(text), "{file}");
    }
    let left: Vec<_> = fs::read_dir(host.at("there/chronodisk")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn an_executable_finds_a_kernel_that_was_unpacked_below_its_prefix() {
    let host = Host::new();
    host.build("here");
    let archive = said(&host.kernel("here", &["package"]));
    let executable = host.at("prefix/bin/chronodisk");
    fs::create_dir_all(executable.parent().unwrap()).unwrap();
    if fs::hard_link(env!("CARGO_BIN_EXE_chronodisk"), &executable).is_err() {
        command::copy_to(&executable);
    }
    let before = host.kernel_of(&executable, "nothing", &["path"]);
    assert_eq!(before.status.code(), Some(3), "{before:?}");
    let message = String::from_utf8(before.stderr).unwrap();
    assert!(message.contains("chronodisk kernel install FILE"), "{message}");
    let mut tar = Command::new("tar");
    tar.args(["-xf", &archive, "-C", "prefix"]).current_dir(host.folder.path());
    assert!(tar.status().unwrap().success());
    let found = PathBuf::from(said(&host.kernel_of(&executable, "nothing", &["path"])));
    let expected = host.at("prefix/lib/chronodisk").join(host.folder_name()).join("linux");
    assert_eq!(found, expected.canonicalize().unwrap());
}

#[test]
fn what_is_no_package_is_refused_and_leaves_nothing() {
    let host = Host::new();
    fs::write(host.at("text.tar.gz"), "no archive").unwrap();
    for (file, problem) in [("text.tar.gz", "text.tar.gz"), ("missing.tar.gz", "No such file")] {
        let refused = host.kernel("cache", &["install", file]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains(problem), "{message}");
    }
    let left: Vec<_> = fs::read_dir(host.at("cache/chronodisk")).into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:?}");

    let nothing = host.kernel("cache", &["package"]);
    assert_eq!(nothing.status.code(), Some(3), "{nothing:?}");
    let kernel = host.build("cache");
    fs::remove_file(kernel.with_file_name("SOURCE")).unwrap();
    let unknown = host.kernel("cache", &["package"]);
    assert_eq!(unknown.status.code(), Some(3), "{unknown:?}");
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("kernel build --force"), "{unknown:?}");
    let onto_file = host.kernel("cache", &["package", "-o", "text.tar.gz"]);
    assert_ne!(onto_file.status.code(), Some(0), "{onto_file:?}");
}
