//! `chronodisk validate` on drives with available measured traces, compared with the reference simulator.
//!
//! The data are in `CHRONODISK_REFERENCE`, or beside the repository; one drive is in the repository. Each drive is
//! imported from its files, and compared once more as its built-in profile; none is treated specially.

#[path = "../../chronodisk-importers/testdata/reference.rs"]
mod reference;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Score of the reference simulator (DiskSim 4.0) on a measured trace.
struct Score {
    drive: &'static str,
    measured_mean_ms: f64,
    simulated_mean_ms: f64,
    demerit_ms: f64,
    correlation: f64,
}

const fn score(
    drive: &'static str,
    measured_mean_ms: f64,
    simulated_mean_ms: f64,
    demerit_ms: f64,
    correlation: f64,
) -> Score {
    Score { drive, measured_mean_ms, simulated_mean_ms, demerit_ms, correlation }
}

/// Section 10 of the description of the reference.
const SCORES: [Score; 7] = [
    score("cheetah9LP", 4.273, 4.231, 0.1071, 0.897),
    score("atlas10k", 3.893, 3.971, 0.2675, 0.906),
    score("hp_c2247a", 15.298, 15.315, 0.0899, 0.961),
    score("hp_c2490a", 12.550, 12.563, 0.2538, 0.875),
    score("dec_rz26", 15.809, 15.691, 0.3406, 0.911),
    score("barracuda", 6.627, 6.426, 0.3479, 0.930),
    score("ibm18es", 5.261, 5.236, 0.1361, 0.912),
];

/// The most that each drive's built-in profile may be off its measured trace, in milliseconds, on the bus of the
/// computer that recorded the trace.
const BUILT_IN: [(&str, &str, f64); 7] = [
    ("cheetah9LP", "cheetah-9lp", 0.108),
    ("atlas10k", "atlas-10k", 0.097),
    ("hp_c2247a", "hp-c2247a", 0.092),
    ("hp_c2490a", "hp-c2490a", 0.244),
    ("dec_rz26", "dec-rz26", 0.314),
    ("barracuda", "barracuda", 0.327),
    ("ibm18es", "ibm-18es", 0.133),
];
/// The limits have three digits behind the point.
const ROUNDING_MS: f64 = 0.0005;

fn folder() -> PathBuf {
    reference::reference_folder().join("disks/valid")
}

fn trace_of(drive: &str) -> PathBuf {
    folder().join(format!("{drive}.trace"))
}

/// Compares a device with a measured trace, and returns the figures.
fn validated(device: &Path, trace: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    command.args(["validate", "--json", "--device"]).arg(device).arg("--trace").arg(trace);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn measured_drives_are_matched_as_well_as_by_the_reference() {
    let here: Vec<&Score> = SCORES.iter().filter(|score| trace_of(score.drive).exists()).collect();
    assert!(!here.is_empty(), "no measured drive in {}", folder().display());
    for expected in here {
        let parameters = folder().join(format!("{}.parv", expected.drive));
        let result = validated(&parameters, &trace_of(expected.drive));
        let figure = |name: &str| result[name].as_f64().unwrap_or_else(|| panic!("{}: no {name}", expected.drive));

        let slack = (expected.demerit_ms * 0.02).max(0.005);
        let demerit_ms = figure("demerit_ms");
        assert!(demerit_ms <= expected.demerit_ms + slack, "{}: demerit {demerit_ms} ms", expected.drive);
        let correlation = figure("correlation");
        assert!(correlation >= expected.correlation - 0.01, "{}: correlation {correlation}", expected.drive);
        let ratio = figure("mean_simulated_ms") / figure("mean_measured_ms");
        let reference = expected.simulated_mean_ms / expected.measured_mean_ms;
        assert!((ratio - 1.0).abs() <= (reference - 1.0).abs() + 0.001, "{}: mean ratio {ratio}", expected.drive);
    }
}

#[test]
fn built_in_profiles_on_the_bus_of_their_trace_are_no_worse_than_they_were() {
    let here = BUILT_IN.iter().filter(|(drive, ..)| trace_of(drive).exists());
    let demerits: Vec<(&str, f64, f64)> = here
        .map(|&(drive, profile, most_ms)| {
            let result = validated(Path::new(profile), &trace_of(drive));
            (profile, result["demerit_ms"].as_f64().expect("a figure"), most_ms)
        })
        .collect();
    assert!(!demerits.is_empty(), "no measured drive in {}", folder().display());
    println!("demerits and their limits in ms: {demerits:?}");
    for (profile, demerit_ms, most_ms) in demerits {
        assert!(demerit_ms <= most_ms + ROUNDING_MS, "{profile}: demerit {demerit_ms} ms; expected at most {most_ms}");
    }
}
