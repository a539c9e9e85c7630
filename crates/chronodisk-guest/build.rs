//! Compiles the guest's clock, a preload library in C, so that the command can carry it.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=shim");
    let library = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("clock.so");
    let compiler = cc::Build::new().opt_level(2).debug(false).get_compiler();
    let status = compiler
        .to_command()
        .args([
            "-shared",
            "-fPIC",
            "-O2",
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wl,-z,now",
            "shim/clock.c",
            "shim/calendar.c",
            "shim/time.c",
            "shim/processes.c",
            "shim/files.c",
            "-ldl",
        ])
        .arg("-o")
        .arg(&library)
        .status()
        .expect("a C compiler (Debian: apt-get install gcc libc6-dev) is needed to build the guest's clock");
    assert!(status.success(), "the guest's clock did not compile");
}
