//! The ways in which a guest's kernel idles, on the guest's clock as a preload library (`shim/clock.c`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn idle(how: &str) -> Output {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("idle");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-I"]).arg(root.join("shim"));
    let made = compiler.arg(root.join("tests/idle.c")).arg("-o").arg(&program).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let clock = Path::new(env!("OUT_DIR")).join("clock.so");
    Command::new(&program).arg(clock).arg(how).output().unwrap()
}

#[test]
fn time_jumps_however_the_kernel_idles() {
    for how in ["mask", "descriptor"] {
        let output = idle(how);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said == "1000 seconds, 1 alarm\n", "{how}: {output:?}");
    }
}

/// The launcher says then that the clock does not know the kernel.
#[test]
fn a_kernel_that_idles_in_another_way_is_ended() {
    assert_eq!(idle("otherwise").status.code(), Some(81));
}
