//! The command in a test. A failed test shows its calls, since libtest prints the output of failed tests.

#![allow(dead_code, reason = "no binary of tests uses all of it")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `chronodisk ARGUMENTS`, without standard input. Prints the call.
pub fn chronodisk(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    command.args(arguments).stdin(Stdio::null());
    let quoted = shlex::try_join(arguments.iter().copied());
    println!("$ chronodisk {}", quoted.unwrap_or_else(|_| format!("{arguments:?}")));
    command
}

/// Copies the command into a folder, where it finds no kernels: those of `make test` are beside the built one.
pub fn copied_to(folder: &Path) -> Command {
    let copy = folder.join("bin/chronodisk");
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    copy_to(&copy);
    Command::new(copy)
}

/// Copies the command to this path, by another process. A child that another test starts in the meantime would inherit
/// our descriptor of the copy, and Linux executes no file that is open for writing ("Text file busy").
pub fn copy_to(path: &Path) {
    succeeds(Command::new("cp").arg(env!("CARGO_BIN_EXE_chronodisk")).arg(path));
}

/// Text that a command printed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether this host has a program. If not, prints that the test is skipped.
pub fn has(program: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    if !found {
        println!("SKIPPED: no {program} in PATH (Debian: apt-get install {package})");
    }
    found
}

/// Whether this host can run a guest. If not, prints that the test is skipped.
pub fn has_guest() -> bool {
    has("linux.uml", "user-mode-linux")
}

/// Whether tests take their long forms, with more histories, kills and settings than show a behaviour once.
/// `make test-long` asks for them.
pub fn long() -> bool {
    std::env::var_os("CHRONODISK_LONG").is_some()
}

/// The output of a command, which must succeed. Otherwise the test fails with the command and all that it printed.
#[track_caller]
pub fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\nstandard output:\n{}\nstandard error:\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}
