//! The accounts of the guest's clock (`shim/accounts.c`), tested in C on the host under the sanitizers for addresses
//! and undefined behaviour.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SANITIZED: [&str; 7] =
    ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Faults that the sanitizers must find, by the first argument.
const CANARY: &str = r#"
#include <limits.h>
int main(int argc, char **argv)
{
	int words[4] = { 0 }, *beyond = words + 4;
	return argv[1][0] == 'a' ? *beyond : argv[1][0] == 'u' ? INT_MAX + argc : 0;
}
"#;

/// A compiler with sanitizers, and a folder for its output; `None`, with a printed note, without such a compiler.
fn sanitizer() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("canary.c");
    std::fs::write(&source, CANARY).unwrap();
    let made = compile(&[source.as_path()], &folder.path().join("canary"));
    if !made.status.success() {
        let text = String::from_utf8_lossy(&made.stderr);
        println!("SKIPPED: cc has no -fsanitize=address,undefined here: {}", text.lines().next().unwrap_or_default());
        return None;
    }
    Some(folder)
}

fn compile(sources: &[&Path], program: &Path) -> Output {
    let mut command = Command::new("cc");
    command.args(SANITIZED).arg("-I").arg(root().join("shim")).args(sources).arg("-o").arg(program);
    command.output().expect("the C compiler that built this crate")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_sanitizers_find_faults() {
    let Some(folder) = sanitizer() else { return };
    let status = |fault: &str| Command::new(folder.path().join("canary")).arg(fault).output().unwrap().status;
    assert!(status("none").success());
    for fault in ["address", "undefined"] {
        assert!(!status(fault).success(), "{fault}");
    }
}

#[test]
fn the_accounts_of_the_clock_are_right_and_sane() {
    let Some(folder) = sanitizer() else { return };
    let program = folder.path().join("accounts");
    let sources = ["shim/accounts.c", "tests/accounts.c"].map(|name| root().join(name));
    let made = compile(&sources.each_ref().map(PathBuf::as_path), &program);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let ran = Command::new(&program).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
