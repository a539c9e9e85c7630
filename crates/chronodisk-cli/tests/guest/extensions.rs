//! Interface extensions that a program of the guest uses by request pages.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::support::{Chronodisk, text};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/examples")
}

/// A part of the example on a raw device.
fn part(chronodisk: &Chronodisk, name: &str, device: &str, flags: &[&str]) -> Output {
    let flags = [&["--fs", "none", "--capacity", "1GiB"], flags].concat();
    let program = examples().join("interface_extensions.py");
    let arguments = [&["run", "--device", device], &flags[..], &["--", "python3"]].concat();
    let mut command = chronodisk.command(&arguments);
    command.arg(program).args([name, "/dev/vda"]);
    // Of the models in Python.
    command.env("PYTHONPATH", examples().join("..")).env("SLOW_FIXED_THINK_MS", "0").output().unwrap()
}

/// The two figures of a part that ends well.
fn figures(output: &Output) -> [f64; 2] {
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", text(&output.stderr));
    let numbers: Vec<f64> = stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    [numbers[0], numbers[1]]
}

#[test]
fn a_program_has_its_disk_read_in_the_gaps() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let output = part(&chronodisk, "scan", "cheetah-9lp", &["--interface-extensions"]);
    let [reads_per_second, background_mb_per_s] = figures(&output);
    // Seek and half a turn of the drive take 6 ms; its media have 17 to 27 MB/s.
    assert!((100.0..250.0).contains(&reads_per_second), "{reads_per_second}");
    assert!((3.0..17.0).contains(&background_mb_per_s), "{background_mb_per_s}");
    // The log of a device without request pages.
    let verified = chronodisk.command(&["verify", "last"]).output().unwrap();
    assert!(verified.status.success(), "{}", text(&verified.stdout));
}

#[test]
fn a_program_writes_where_its_disk_is_soonest() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for flags in [&["--interface-extensions"][..], &["--interface-extensions", "--seed", "2"]] {
        let [in_place_us, anywhere_us] = figures(&part(&chronodisk, "write", "cheetah-9lp", flags));
        assert!(anywhere_us < in_place_us, "{anywhere_us} and {in_place_us} us");
        let verified = chronodisk.command(&["verify", "last"]).output().unwrap();
        assert!(verified.status.success(), "{}", text(&verified.stdout));
    }
}

#[test]
fn on_the_exact_clock_figures_repeat() {
    let Some(chronodisk) = Chronodisk::with_kernel("exact") else { return };
    for name in ["scan", "write"] {
        let run = || figures(&part(&chronodisk, name, "cheetah-9lp", &["--interface-extensions", "--clock", "exact"]));
        assert_eq!(run(), run(), "{name}");
    }
}

#[test]
fn a_model_in_python_takes_the_first_place_and_has_no_gaps() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let device = format!("exec:{}", examples().join("slow_fixed.py").display());
    figures(&part(&chronodisk, "write", &device, &["--interface-extensions"]));
    let scan = part(&chronodisk, "scan", &device, &["--interface-extensions"]);
    assert!(!scan.status.success() && text(&scan.stderr).contains("has no such requests"), "{}", text(&scan.stderr));
}

#[test]
fn pages_are_data_without_the_option() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let scan = part(&chronodisk, "scan", "cheetah-9lp", &[]);
    assert!(!scan.status.success() && text(&scan.stderr).contains("does not answer"), "{}", text(&scan.stderr));
}

#[test]
fn contradictions_are_refused() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for (device, flags, reason) in [
        ("cheetah-9lp", ["--clock", "real"], "can't be used with --clock real"),
        ("wd-zn540-zones", ["--fs", "none"], "can't be used with zoned devices"),
        ("cheetah-9lp", ["--squash", "--durable"], "cannot be used with"),
    ] {
        let flags = [&["--interface-extensions"], &flags[..]].concat();
        let refused = chronodisk.run(device, &flags, &["true"]);
        assert_eq!(refused.status.code(), Some(2), "{device}");
        assert!(text(&refused.stderr).contains(reason), "{}", text(&refused.stderr));
    }
}
