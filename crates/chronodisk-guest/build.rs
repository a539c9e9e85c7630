//! Compiles the guest's clock, a preload library in C, so that the command can carry it. Debug builds carry a second
//! one, which traps where behaviour is undefined, for the tests.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: [&str; 13] = [
    "shim/clock.c",
    "shim/calendar.c",
    "shim/time.c",
    "shim/accounts.c",
    "shim/processes.c",
    "shim/faults.c",
    "shim/files.c",
    "shim/feed.c",
    "shim/tasks.c",
    "shim/memory.c",
    "shim/current.c",
    "shim/record.c",
    "shim/boot.c",
];
const TRAPPING: [&str; 2] = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"];
/// Environment variable that regenerates `shim/page.h`; before, it may not match the sources.
const REGENERATE_VARIABLE: &str = "CHRONODISK_REGENERATE";

fn main() {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-env-changed={REGENERATE_VARIABLE}");
    println!("cargo::rustc-check-cfg=cfg(trapping_clock)");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let library = folder.join("clock.so");
    if env::var_os(REGENERATE_VARIABLE).is_some() {
        std::fs::write(&library, []).expect("the build's folder can be written");
        return;
    }
    assert!(compiles(&[], &library), "the guest's clock did not compile");
    // A compiler without this sanitizer is no reason not to build.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug")
        && compiles(&TRAPPING, &folder.join("clock-trapping.so"))
    {
        println!("cargo::rustc-cfg=trapping_clock");
    }
}

fn compiles(further: &[&str], library: &Path) -> bool {
    let compiler = cc::Build::new().opt_level(2).debug(false).get_compiler();
    let mut command: Command = compiler.to_command();
    command.args(["-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wl,-z,now"]);
    command.args(further).args(SOURCES).arg("-ldl").arg("-o").arg(library);
    let status = command
        .status()
        .expect("a C compiler (Debian: apt-get install gcc libc6-dev) is needed to build the guest's clock");
    status.success()
}
