//! `chronodisk validate` on the drives whose measured traces are at hand, beside what the reference simulator achieves.
//!
//! The data lie where `CHRONODISK_REFERENCE` says, or beside the repository; one drive is in the repository. Each drive
//! is imported from its files; none is treated specially.

#[path = "../../chronodisk-importers/testdata/reference.rs"]
mod reference;

use std::process::Command;

use serde_json::Value;

/// What the reference simulator (DiskSim 4.0) achieves on a measured trace.
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

#[test]
fn measured_drives_are_matched_as_well_as_by_the_reference() {
    let folder = reference::reference_folder().join("disks/valid");
    let is_here = |score: &&Score| folder.join(format!("{}.trace", score.drive)).exists();
    let here: Vec<&Score> = SCORES.iter().filter(is_here).collect();
    assert!(!here.is_empty(), "no measured drive in {}", folder.display());
    for expected in here {
        let file = |extension: &str| folder.join(format!("{}.{extension}", expected.drive));
        let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
        command.args(["validate", "--json", "--device"]).arg(file("parv")).arg("--trace").arg(file("trace"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
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
