//! Operations on saved runs: list, show, compare, delete, complete. The results are handwritten: no guest is needed.

#[path = "common/command.rs"]
mod command;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use command::copied_to;

/// A folder of runs of its own.
struct State(tempfile::TempDir);

impl State {
    fn new() -> Self {
        State(tempfile::tempdir().unwrap())
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("chronodisk/runs")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
        command.args(words).env("XDG_STATE_HOME", self.0.path()).env("NO_COLOR", "1").current_dir(self.0.path());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Standard output, and standard error, of a command that succeeds.
    fn said(&self, words: &[&str]) -> (String, String) {
        let output = self.output(words);
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(output.status.success(), "{words:?}: {out}{err}");
        (out, err)
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Keeps a run as a version of today does, changed by `change`.
    fn keep(&self, id: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
        let directory = self.folder().join(id);
        fs::create_dir_all(&directory).unwrap();
        let mut result = result(id);
        change(&mut result);
        fs::write(directory.join("result.json"), result.to_string()).unwrap();
        chronodisk_report::write_log(&directory.join("requests-0.parquet"), &[]).unwrap();
        directory
    }
}

/// A result with everything that the first version of its schema had, and nothing that came later.
fn result(id: &str) -> Value {
    let distribution = json!({"mean": 1.0, "p50": 1.0, "p90": 1.0, "p99": 1.0, "p999": 1.0, "max": 1.0});
    let summary = json!({
        "window_ns": 1_000, "requests": 0, "unfinished": 0, "failed": 0, "by_op": {}, "late_share": 0.0,
        "service_time_us": distribution, "lateness_us": distribution, "utilisation": 0.0, "mean_queue_depth": 0.0,
        "iops": 0.0, "mb_per_s": 0.0, "model_time_us": distribution, "store_time_us": distribution,
    });
    json!({
        "schema": "chronodisk.run/1",
        "run_id": id,
        "started_at": "2026-01-02T03:04:05Z",
        "chronodisk_version": "0.1.0",
        "command_line": ["chronodisk", "run"],
        "command": ["cp", "-r", "/usr/include", "/mnt"],
        "options_given": {},
        "options": {},
        "device": {
            "profile": "first-disk", "profile_toml": "", "capacity_bytes": 1 << 30, "seed": 1,
            "initial_state_hash": "x:0",
        },
        "clock": {"driver": "guest", "cpu": "measured", "kernel_scale": 0.1},
        "guest": {
            "kernel": "6.1", "memory_bytes": 1 << 29, "cpus": 1, "file_system": "ext4", "mkfs_options": "",
            "mount_options": "", "scheduler": "none",
        },
        "host": {"cpu_model": "Some Processor", "cores": 2, "kernel": "6.1"},
        "reps": [{
            "index": 0, "exit_status": 0, "run_time_ns": 1_500_000_000u64, "host_time_ns": 5_000_000, "phases": [],
            "end_ns": 2_000_000_000u64, "untimed_read_bytes": 0, "untimed_written_bytes": 0,
            "store_bytes": null, "host_cpu": null, "log_file": "requests-0.parquet", "summary": summary,
        }],
        "warnings": [],
    })
}

fn labelled(name: &'static str, tags: &'static [&'static str]) -> impl FnOnce(&mut Value) {
    move |result| result["labels"] = json!({"name": name, "tags": tags, "note": "after the fix"})
}

#[test]
fn runs_are_listed_with_names_tags_and_sizes_whatever_their_version() {
    let state = State::new();
    let (out, err) = state.said(&["runs"]);
    assert!(out.is_empty() && err.starts_with("no runs in "), "{err}");
    state.keep("20260101T000000Z-old-1", |_| ());
    state.keep("20260102T000000Z-new-2", labelled("fixed", &["nightly", "ext4"]));
    state.keep("20260103T000000Z-later-3", |result| result["schema"] = json!("chronodisk.run/9"));
    let begun = state.folder().join("20260104T000000Z-killed-4");
    fs::create_dir(&begun).unwrap();
    fs::write(begun.join(".requests-0.parquet.77-0.partial"), [0; 1_000]).unwrap();
    fs::create_dir(state.folder().join("somebody-elses")).unwrap();

    let (out, err) = state.said(&["runs"]);
    let lines: Vec<&str> = out.lines().skip(2).collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(lines[0].contains("first-disk") && lines[0].contains("1.500") && lines[0].contains("cp -r"), "{out}");
    assert!(lines[1].contains("fixed") && lines[1].contains("nightly,ext4"), "{out}");
    assert!(lines[2].contains("chronodisk.run/9") && lines[3].contains("no result"), "{out}");
    assert!(lines[3].contains("1.00 kB"), "{out}");
    assert!(err.starts_with("4 runs, "), "{err}");

    let (out, _) = state.said(&["runs", "--tag", "nightly", "--json"]);
    let list: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list["schema"], "chronodisk.runs/1");
    assert_eq!((&list["runs"][0]["labels"]["name"], list["runs"].as_array().unwrap().len()), (&json!("fixed"), 1));
    assert_eq!(list["bytes"], list["runs"][0]["bytes"]);

    assert!(state.refused(&["runs", "nowhere"]).contains("nowhere is not a directory"));
}

#[test]
fn a_run_is_shown_by_id_name_and_last() {
    let state = State::new();
    state.keep("a", labelled("twice", &[]));
    let newest = state.keep("b", labelled("twice", &["x"]));
    std::os::unix::fs::symlink(&newest, state.folder().join("last")).unwrap();
    let (out, _) = state.said(&["show", "a"]);
    assert!(out.contains("name twice\nnote after the fix\n") && out.contains("run time"), "{out}");
    // Directories that are called like a run, and have none in them.
    for name in ["twice", "b"] {
        fs::create_dir(state.0.path().join(name)).unwrap();
    }
    for name in ["twice", "last", "b"] {
        assert!(state.said(&["show", name]).0.contains("tags x\n"), "{name}");
    }
    let json: Value = serde_json::from_str(&state.said(&["show", "last", "--json"]).0).unwrap();
    assert_eq!(json["run_id"], "b");
    let (_, err) = state.said(&["show", "last", "--plot"]);
    assert!(err.contains("plot.svg"), "{err}");
    assert!(fs::read_to_string(newest.join("plot.svg")).unwrap().starts_with("<svg"));

    assert!(state.refused(&["show", "./b"]).contains("result.json"));
    assert!(state.refused(&["show", "twise"]).contains("did you mean 'twice'?"));
    assert!(state.refused(&["show", "zzz"]).contains("neither a directory nor the id or the name of a run"));
    assert!(state.refused(&["show"]).contains("<RUN>"));
    assert!(state.refused(&["show", "last", "--plot", "no/x.svg"]).contains("does not exist"));
}

#[test]
fn runs_are_compared_by_name_and_tag() {
    let state = State::new();
    state.keep("a", labelled("base", &["nightly"]));
    state.keep("b", |result| {
        result["reps"][0]["run_time_ns"] = json!(3_000_000_000u64);
        labelled("slow", &["nightly"])(result);
    });
    for words in
        [&["compare", "base", "slow"][..], &["compare", "--tag", "nightly"], &["compare", "a", "--tag", "nightly"]]
    {
        let (out, _) = state.said(words);
        assert!(out.contains("+1.500") && out.contains("2.000"), "{words:?}: {out}");
        assert_eq!(out.lines().filter(|line| line.contains("first-disk")).count(), 2, "{words:?}: {out}");
    }
    assert!(state.refused(&["compare", "--tag", "nightli"]).contains("did you mean 'nightly'?"));
    assert!(state.refused(&["compare"]).contains("<RUN>"));
}

#[test]
fn a_comparison_fails_where_a_condition_holds() {
    let state = State::new();
    let base = state.keep("a", labelled("base", &[]));
    state.keep("b", |result| {
        result["reps"][0]["run_time_ns"] = json!(1_600_000_000u64);
        labelled("slow", &[])(result);
    });
    // A baseline that is committed somewhere, without its requests.
    let file = state.0.path().join("baseline.json");
    fs::copy(base.join("result.json"), &file).unwrap();
    for (limit, status) in [("+5%", 1), ("+7%", 0)] {
        let condition = format!("run_time > {limit}");
        let output = state.output(&["compare", file.to_str().unwrap(), "slow", "--fail-if", &condition]);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let verdict = if status == 1 { "FAILED: b: " } else { "passed: b: " };
        assert!(String::from_utf8_lossy(&output.stdout).contains(verdict), "{output:?}");
    }
    for (format, begins) in [("json", "{"), ("junit", "<?xml"), ("markdown", "| run |"), ("text", "run ")] {
        let output = state.output(&["compare", "base", "slow", "--output", format, "--fail-if", "run_time > +1%"]);
        assert_eq!(output.status.code(), Some(1), "{format}: {output:?}");
        assert!(output.stdout.starts_with(begins.as_bytes()), "{format}: {output:?}");
    }
    for (words, said) in [
        (&["--fail-if", "runtime > 5%"][..], "no metric 'runtime'"),
        (&["--fail-if", "run_time > 5"], "such as 'run_time > +5%'"),
        (&["--output", "yaml"], "possible values"),
        (&["--output", "json", "--json"], "cannot be used with"),
    ] {
        assert!(state.refused(&[&["compare", "base", "slow"], words].concat()).contains(said), "{words:?}");
    }
    assert!(state.refused(&["compare", "base", "--fail-if", "run_time > 5%"]).contains("only one run was named"));
    let plotted = ["compare", file.to_str().unwrap(), "slow", "--plot", "x.svg"];
    assert!(state.refused(&plotted).contains("can't be plotted"));
    assert!(!state.0.path().join("x.svg").exists());
    fs::write(&file, "{}").unwrap();
    assert!(state.refused(&["compare", file.to_str().unwrap(), "slow"]).contains("schema is missing"));
}

#[test]
fn the_doctor_says_what_is_missing_and_what_to_type() {
    let state = State::new();
    // Without the kernels of Debian and of the exact clock.
    let mut doctor = copied_to(state.0.path());
    let output = doctor
        .arg("doctor")
        .env("XDG_STATE_HOME", state.0.path())
        .env("PATH", "")
        .env("XDG_CACHE_HOME", state.0.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("MISSING  guest kernel") && text.contains("apt-get install user-mode-linux"), "{text}");
    assert!(text.contains("does not work here yet"), "{text}");
    for name in ["exact", "zones", "processors"] {
        assert!(text.contains(&format!("{name} kernel")), "{text}");
        assert!(text.contains(&format!("chronodisk kernel build {name};")), "{text}");
    }
    let output = state.output(&["doctor", "--json", "--no-guest"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "chronodisk.doctor/1");
    assert_eq!(report["can_run"], output.status.code() == Some(0));
    for check in report["checks"].as_array().unwrap() {
        // A missing item has a remedy, and a present one has none.
        assert_eq!(check["state"] == "ok", check["remedy"].is_null(), "{check}");
        assert!(!check["found"].as_str().unwrap().is_empty() && !check["needed_for"].as_str().unwrap().is_empty());
    }
    assert!(state.refused(&["doctor", "everything"]).contains("unexpected argument"));
}

/// Later repetitions would make a run with its first logs missing.
#[test]
fn a_run_that_is_being_written_is_not_deleted() {
    let state = State::new();
    let [written, other] = ["a", "b"].map(|id| state.keep(id, labelled("x", &["t"])));
    // The test holds the lock, as the process that writes the log does.
    let lock = fs::File::open(&written).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
    let told = state.refused(&["rm", "a"]);
    assert!(told.contains("is still being written") && told.contains("wait for the run"), "{told}");
    let (_, told) = state.said(&["rm", "--tag", "t"]);
    assert!(told.contains("is kept: it is still being written"), "{told}");
    assert!(written.join("result.json").exists() && !other.exists());
    drop(lock);
    state.said(&["rm", "a"]);
    assert!(!written.exists());
}

#[test]
fn only_what_chronodisk_wrote_is_deleted() {
    let state = State::new();
    let [old, new, shared] = ["a", "b", "c"].map(|id| state.keep(id, labelled(if id == "a" { "x" } else { "y" }, &[])));
    let recent = state.keep("d", |result| result["started_at"] = json!("2099-01-01T00:00:00Z"));
    std::os::unix::fs::symlink(&shared, state.folder().join("last")).unwrap();
    fs::write(shared.join("notes.txt"), "mine").unwrap();
    let foreign = state.0.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.tex"), "").unwrap();

    assert!(state.refused(&["rm"]).contains("<RUN>..."));
    assert!(state.refused(&["rm", "a", "nothing"]).contains("no run 'nothing'"));
    assert!(state.refused(&["rm", "a", foreign.to_str().unwrap()]).contains("holds no run"));
    assert!(state.refused(&["rm", "--older-than", "30"]).contains("such as 30d"));
    let (_, err) = state.said(&["rm", "--older-than", "1d", "--dry-run"]);
    assert!(err.contains("would delete") && err.contains("3 runs"), "{err}");
    assert!(old.exists() && new.exists() && foreign.join("thesis.tex").exists());

    let (out, _) = state.said(&["rm", "x", "--json"]);
    let deleted: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(deleted["deleted"].as_array().unwrap().len(), 1);
    assert!(!old.exists() && new.exists());
    let (_, err) = state.said(&["rm", "--older-than", "1d"]);
    assert!(err.contains("holds other files"), "{err}");
    assert!(!new.exists() && recent.exists());
    assert_eq!(files_in(&shared), ["notes.txt"]);
    assert!(state.said(&["rm", "--older-than", "1d"]).1.contains("no run is that old"));
    fs::remove_dir_all(&shared).unwrap();
    state.said(&["rm", "--older-than", "1d"]);
    assert_eq!(fs::canonicalize(state.folder().join("last")).unwrap(), fs::canonicalize(&recent).unwrap());
    state.said(&["rm", "last"]);
    assert!(files_in(&state.folder()).is_empty());
}

fn files_in(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn shells_complete_profiles_runs_tags_and_file_systems() {
    let state = State::new();
    state.keep("20260101T000000Z-first-disk-1", labelled("fixed", &["nightly"]));
    let complete = |words: &[&str]| {
        let last = (words.len() - 1).to_string();
        let output = state
            .command(&["--"])
            .args(words)
            .envs([("COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", &last), ("_CLAP_IFS", "\n")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["chronodisk", "run", "--device", "mems-g"]), ["mems-g1", "mems-g2", "mems-g3"]);
    assert_eq!(complete(&["chronodisk", "run", "--fs", "exi"]), ["existing"]);
    assert_eq!(complete(&["chronodisk", "show", "fi"]), ["fixed"]);
    assert_eq!(complete(&["chronodisk", "verify", "2026"]), ["20260101T000000Z-first-disk-1"]);
    assert_eq!(complete(&["chronodisk", "compare", "--tag", "ni"]), ["nightly"]);
    assert!(complete(&["chronodisk", "ru"]).contains(&"runs".to_owned()));
}

#[test]
fn help_and_version_say_what_they_should() {
    let state = State::new();
    assert_eq!(state.said(&["help", "trace", "import"]).0, state.said(&["trace", "import", "--help"]).0);
    assert_eq!(state.said(&["help"]).0, state.said(&["--help"]).0);
    assert!(state.refused(&["help", "rum"]).contains("did you mean 'rm', 'run' or 'runs'?"));
    assert!(state.refused(&["help", "run", "x"]).contains("it has no commands below it"));
    let (version, _) = state.said(&["--version"]);
    let rest = version.trim().strip_prefix(concat!("chronodisk ", env!("CARGO_PKG_VERSION"))).expect(&version);
    let in_checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git").exists();
    assert_eq!(rest.starts_with(" ("), in_checkout, "{version}");
    let pages = state.0.path().join("man1");
    state.said(&["man", pages.to_str().unwrap()]);
    assert!(fs::read_to_string(pages.join("chronodisk-rm.1")).unwrap().contains("older"));
}
