//! A comparison in continuous integration: an fsync that was added to a loop fails it, and the same program again does
//! not.

use std::path::Path;

use super::support::{Chronodisk, text};

/// Writes twelve small files; as it was, and with the mistake.
const PROGRAM: &str = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do dd if=/dev/zero of=/mnt/$i bs=4k count=4 $1 2>/dev/null; \
    done; sync";

#[test]
fn an_fsync_added_to_a_loop_fails_the_comparison() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let run = |name: &str, option: &str| {
        let directory = chronodisk.path(name).display().to_string();
        let flags = ["run", "-d", "first-disk", "--capacity", "1GiB", "--memory", "128MiB", "--reps", "3"];
        let program = ["-o", &directory, "--", "sh", "-c", PROGRAM, "sh", option];
        let output = chronodisk.command(&[&flags[..], &program].concat()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        directory
    };
    let baseline = run("baseline", "conv=notrunc");
    let (same, slower) = (run("same", "conv=notrunc"), run("slower", "conv=fsync"));
    let result = Path::new(&baseline).join("result.json").display().to_string();
    let compare = |run: &str| {
        let conditions = ["--fail-if", "run_time > +25%", "--fail-if", "requests > +50%"];
        chronodisk.command(&["compare", &result, run, "--output", "junit"]).args(conditions).output().unwrap()
    };
    let (fine, failed) = (compare(&same), compare(&slower));
    assert_eq!(fine.status.code(), Some(0), "{fine:?}");
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let xml = String::from_utf8(failed.stdout).unwrap();
    assert!(xml.contains("failures=\"2\""), "{xml}");
}

#[test]
fn what_decides_a_run_beside_its_options_is_named_where_it_differs() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let run = |name: &str, variable: Option<&str>| {
        let directory = chronodisk.path(name).display().to_string();
        let flags = ["run", "-d", "null", "--fs", "none", "--memory", "128MiB", "-o", &directory, "--", "true"];
        let mut command = chronodisk.command(&flags);
        command.envs(variable.map(|value| ("CHRONODISK_TEST_TOKEN", value)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        directory
    };
    let (baseline, same, other) = (run("baseline", None), run("same", None), run("other", Some("a-secret-value")));
    let notes = |run: &str| {
        let output = chronodisk.command(&["compare", &baseline, run, "--json"]).output().unwrap();
        let comparison: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        comparison["notes"].clone()
    };
    assert_eq!(notes(&same), serde_json::json!([]));
    assert_eq!(
        notes(&other),
        serde_json::json!(["other and the baseline differ in: environment (CHRONODISK_TEST_TOKEN)"])
    );
    let result = std::fs::read_to_string(Path::new(&other).join("result.json")).unwrap();
    assert!(result.contains("CHRONODISK_TEST_TOKEN") && !result.contains("a-secret-value"));
}
