//! Power cuts find programs that do not make their data durable, and find nothing in programs that do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::support::{Chronodisk, has, is_root, text};

/// A device with a volatile cache.
const DEVICE: &[&str] = &["crash", "--device", "samsung-970-pro", "--capacity", "64MiB", "--jobs", "2", "--json"];

/// Appends acknowledged records to a log of blocks. `$1` is the record whose write has no flush of its own, and whose
/// acknowledgement is repeated, so that most cuts are between its write and the next flush.
const LOG: &str = "
    dd if=/dev/zero of=/mnt/log bs=4096 count=8 conv=fsync 2>/dev/null
    for i in 1 2 3 4; do
        sync=,fdatasync; [ $i != $1 ] || sync=
        printf 'record %s\\n%4096s' $i | dd of=/mnt/log bs=4096 count=1 iflag=fullblock seek=$i oflag=direct \
            conv=notrunc$sync 2>/dev/null || exit 1
        n=0; while [ $n -lt 40 ]; do echo $i; [ $i = $1 ] || break; sleep 0.01; n=$((n+1)); done >$CHRONODISK_ACK
    done";

const EACH_ACKNOWLEDGED_RECORD_IS_THERE: &str = "
    for i in $(sort -u $CHRONODISK_ACK); do
        dd if=/mnt/log bs=4096 skip=$i count=1 2>/dev/null | grep -q \"^record $i\\$\" && continue
        echo record $i is lost; exit 1
    done";

/// Replaces a file; `$1` makes the new file durable. Lines after the commit of the journal give cuts there.
const REPLACE: &str = "
    cd /mnt; echo old >file; sync
    echo new >next; $1; mv next file; sleep 7
    n=0; while [ $n -lt 40 ]; do echo $n >$CHRONODISK_ACK; sleep 0.1; n=$((n+1)); done";

/// Commits acknowledged rows with the synchronisation `$1` and the journal `$2`.
const ROWS: &str = "
    cd /mnt
    set_up=\"PRAGMA journal_mode=$2; PRAGMA synchronous=$1;\"
    sqlite3 db \"$set_up CREATE TABLE t(i);\" >/dev/null; sync
    for i in 1 2 3 4; do
        sqlite3 db \"$set_up INSERT INTO t VALUES($i);\" >/dev/null && echo $i >$CHRONODISK_ACK
    done";

const EACH_ACKNOWLEDGED_ROW_IS_THERE: &str = "
    test -s $CHRONODISK_ACK || exit 0
    rows=$(sqlite3 db 'PRAGMA integrity_check; SELECT i FROM t') || exit 1
    for i in ok $(cat $CHRONODISK_ACK); do
        echo \"$rows\" | grep -qx $i || { echo $i is lost; exit 1; }
    done";

/// Writes two files, each acknowledged after its synchronisation.
const TWO_FILES: &str = "cd /mnt; for i in 1 2; do echo $i >f$i; sync f$i .; echo $i >$CHRONODISK_ACK; done";

fn crash(chronodisk: &Chronodisk, flags: &[&str], program: &[&str]) -> Output {
    chronodisk.command(&[DEVICE, flags, &["--"], program].concat()).output().unwrap()
}

/// The result of the command, which must end with this status.
fn result(output: &Output, status: i32) -> Value {
    assert_eq!(output.status.code(), Some(status), "{}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_log_with_a_missing_fdatasync_is_found_and_shrunk_to_its_write() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let run = chronodisk.path("run");
    let flags = ["--cuts", "5", "--check", EACH_ACKNOWLEDGED_RECORD_IS_THERE, "-o", run.to_str().unwrap()];
    let output = crash(&chronodisk, &flags, &["sh", "-c", LOG, "sh", "3"]);
    let found = result(&output, 1);
    let failure = &found["failures"][0];
    assert_eq!(failure["failed"], "check", "{failure}");
    assert!(failure["output"].as_str().unwrap().contains("record 3 is lost"), "{failure}");
    let fewest = &failure["fewest"];
    assert_eq!(fewest["requests"], 1, "{failure}");
    assert_eq!((&fewest["lost"][0]["op"], &fewest["lost"][0]["sectors"]), (&"write".into(), &8.into()), "{failure}");
    assert_eq!(fewest["lost"][0]["files"], serde_json::json!(["/log"]), "{failure}");
    repeats_equally(&chronodisk, &run, &found);
    let complete = crash(&chronodisk, &flags[..4], &["sh", "-c", LOG, "sh", "none"]);
    let complete = result(&complete, 0);
    assert_eq!(complete["acknowledged_lines"], 4, "{complete}");
    assert!(complete["states_checked"].as_u64().unwrap() > 5, "{complete}");
}

/// The states of a kept run are the same, and so are the verdicts on one of them alone.
fn repeats_equally(chronodisk: &Chronodisk, run: &Path, found: &Value) {
    let from = ["crash", "--from", run.to_str().unwrap(), "--json", "--jobs", "1"];
    let again = result(&chronodisk.command(&from).output().unwrap(), 1);
    assert_eq!(again, *found);
    let state = found["failures"][0]["state"].as_u64().unwrap();
    let state = state.to_string();
    let only = result(&chronodisk.command(&[&from[..], &["--only", &state]].concat()).output().unwrap(), 1);
    assert_eq!(only["failures"][0], found["failures"][0]);
    let wrong = chronodisk.command(&[&from[..], &["--only", "100000"]].concat()).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}

#[test]
fn another_run_on_the_exact_clock_has_the_same_bytes_states_and_verdicts() {
    let Some(chronodisk) = super::exact::exact() else { return };
    let [one, other] = ["one", "other"].map(|name| {
        let run = chronodisk.path(name);
        let clock = ["--clock", "exact", "--start-time", "1000000000"];
        let options = ["--cuts", "6", "--check", "ls", "--output", run.to_str().unwrap()];
        let output = crash(&chronodisk, &[clock.as_slice(), &options].concat(), &["sh", "-c", TWO_FILES]);
        let mut found = result(&output, 0);
        found["run_id"] = Value::Null;
        (found, fs::read(run.join("store.recording")).unwrap())
    });
    assert!(one.0["states_checked"].as_u64().unwrap() > 3, "{}", one.0);
    assert_eq!(one.0, other.0);
    assert!(one.1 == other.1, "the recordings differ");
}

#[test]
fn a_file_that_is_replaced_without_fsync_is_found() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let check = "grep -q -e '^old$' -e '^new$' /mnt/file";
    // A torn write of a superblock with a checksum is a finding of its own.
    let mkfs = ["--mkfs-options", "-O ^metadata_csum", "--mount-options", "noauto_da_alloc"];
    let flags = [&mkfs[..], &["--cuts", "4", "--check", check]].concat();
    let unsafe_one = result(&crash(&chronodisk, &flags, &["sh", "-c", REPLACE, "sh", ":"]), 1);
    assert_eq!(unsafe_one["failures"][0]["failed"], "check", "{unsafe_one}");
    let safe_one = result(&crash(&chronodisk, &flags, &["sh", "-c", REPLACE, "sh", "sync next"]), 0);
    assert_eq!(safe_one["states_failed"], 0, "{safe_one}");
}

#[test]
fn sqlite_loses_rows_without_synchronisation_only() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !has("sqlite3", "sqlite3") {
        return;
    }
    let flags = ["--cuts", "4", "--check", EACH_ACKNOWLEDGED_ROW_IS_THERE];
    let rows = |synchronous, journal| crash(&chronodisk, &flags, &["sh", "-c", ROWS, "sh", synchronous, journal]);
    let off = result(&rows("OFF", "DELETE"), 1);
    assert_eq!(off["failures"][0]["failed"], "check", "{off}");
    // FULL does not synchronise the folder after the last commit's journal is deleted; EXTRA does.
    let extra = result(&rows("EXTRA", "DELETE"), 0);
    assert_eq!(extra["acknowledged_lines"], 4, "{extra}");
}

/// The model knows which sectors a flush that lies has left in the cache.
#[test]
fn a_flush_that_lies_is_found_in_the_states_of_the_model() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let program = "cd /mnt; for i in 1 2 3; do echo $i >f$i; sync f$i .; echo $i >$CHRONODISK_ACK; done";
    let check = "for i in $(cat $CHRONODISK_ACK); do grep -qx $i f$i || { echo f$i is lost; exit 1; }; done";
    let flags = ["--states", "model", "--cuts", "all", "--check", check];
    let lies = [&flags[..], &["--fault", "kind=lying-flush"]].concat();
    let found = result(&crash(&chronodisk, &lies, &["sh", "-c", program]), 1);
    assert_eq!(found["failures"][0]["draw"], "model", "{found}");
    let honest = result(&crash(&chronodisk, &flags, &["sh", "-c", program]), 0);
    assert_eq!(honest["acknowledged_lines"], 3, "{honest}");
    assert!(honest["states_checked"].as_u64().unwrap() > 1, "{honest}");
}

/// A database may wait for ever, or compute for ever, on the files of a power cut. Processes that it leaves behind are
/// no failure.
#[test]
fn a_check_that_does_not_end_fails_its_state_alone() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for never_ends in ["while :; do :; done", "(trap '' TERM; sleep 1000000) & wait"] {
        let check = format!(
            "exec 9>f; sleep 1000000 & setsid sleep 1000000 &
             grep -qx 1 $CHRONODISK_ACK || exit 0; grep -qx 2 $CHRONODISK_ACK && exit 0; echo begins; {never_ends}"
        );
        let flags = ["--states", "model", "--cuts", "all", "--check-timeout", "2s", "--check", &check];
        let found = result(&crash(&chronodisk, &flags, &["sh", "-c", TWO_FILES]), 1);
        let failures = found["failures"].as_array().unwrap();
        for failure in failures {
            assert_eq!((&failure["failed"], &failure["acknowledged_lines"]), (&"check".into(), &1.into()), "{failure}");
            let said = "begins\nit had not ended after 2.000 s, and was killed";
            assert_eq!(failure["output"], said, "{failure}");
        }
        assert!(found["states_checked"].as_u64().unwrap() > failures.len() as u64 + 1, "{found}");
    }
}

/// Other states, in the same guest before it and in a new one after it, have verdicts of their own.
#[test]
fn a_panic_fails_its_state_alone() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !is_root() {
        return;
    }
    let check = "grep -qx 1 $CHRONODISK_ACK || exit 0; grep -qx 2 $CHRONODISK_ACK && exit 0; \
        echo c >/proc/sysrq-trigger; sleep 9";
    for jobs in ["1", "2"] {
        let flags = ["--json", "--jobs", jobs, "--states", "model", "--cuts", "all", "--check", check];
        let words = [&DEVICE[..5], &flags, &["--", "sh", "-c", TWO_FILES]].concat();
        let found = result(&chronodisk.command(&words).output().unwrap(), 1);
        let failures = found["failures"].as_array().unwrap();
        for failure in failures {
            assert_eq!(failure["failed"], "panic", "{failure}");
            assert_eq!(failure["acknowledged_lines"], 1, "{failure}");
            let said = failure["output"].as_str().unwrap();
            assert!(said.starts_with("panic: sysrq triggered crash\n") && said.contains("Kernel panic"), "{failure}");
        }
        assert_eq!(found["states_failed"], failures.len(), "{found}");
        assert!(found["states_checked"].as_u64().unwrap() > failures.len() as u64 + 1, "{found}");
    }
}

/// After a cut, a file system may hang in the kernel, where no signal ends it. The kernel itself may hang, too.
#[test]
fn a_kernel_that_hangs_fails_its_state_alone() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !is_root() {
        return;
    }
    let hangs = [
        // A write to a frozen file system.
        (
            "1",
            "fsfreeze -f .; echo x >g",
            "it had not ended after 1.000 s, and can't be killed: it waits in the kernel",
        ),
        // The guest's checker is stopped, and the guest goes on.
        (
            "2",
            "kill -STOP $PPID; while :; do sleep 1; done",
            "the guest's kernel hangs (no progress for 16.000 s on its clock)",
        ),
    ];
    for (jobs, hang, said) in hangs {
        let check = format!("grep -qx 1 $CHRONODISK_ACK || exit 0; grep -qx 2 $CHRONODISK_ACK && exit 0; {hang}");
        let flags = ["--json", "--jobs", jobs, "--states", "model", "--cuts", "all", "--check-timeout", "1s"];
        let words = [&DEVICE[..5], &flags, &["--check", &check, "--", "sh", "-c", TWO_FILES]].concat();
        let found = result(&chronodisk.command(&words).output().unwrap(), 1);
        let failures = found["failures"].as_array().unwrap();
        for failure in failures {
            assert_eq!((&failure["failed"], &failure["acknowledged_lines"]), (&"check".into(), &1.into()), "{failure}");
            assert!(failure["output"].as_str().unwrap().starts_with(said), "{failure}");
        }
        assert_eq!(found["states_failed"], failures.len(), "{found}");
        assert!(found["states_checked"].as_u64().unwrap() > failures.len() as u64 + 1, "{found}");
    }
}

#[test]
fn the_status_of_the_command_is_that_of_crash_if_it_fails() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let run = chronodisk.path("run");
    let output = crash(&chronodisk, &["--check", ":", "-o", run.to_str().unwrap()], &["sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(!run.join("store.recording").exists());
}

#[test]
fn wrong_use_is_refused_and_leaves_nothing() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let run = chronodisk.path("run");
    let output = ["-o", run.to_str().unwrap()];
    let cases: [(&[&str], &str); 8] = [
        (&["--device", "null"], "--check"),
        (&["--device", "null", "--check", " "], "--check is empty"),
        (&["--device", "wd-zn540-zones", "--fs", "btrfs", "--check", ":"], "zoned device"),
        (&["--device", "exec:false", "--states", "model", "--check", ":"], "--states model"),
        (&["--device", "null", "--squash", "--check", ":"], "--squash"),
        (&["--device", "null", "--clock", "real", "--check", ":"], "--clock real"),
        (&["--device", "null", "--cuts", "0", "--check", ":"], "--cuts"),
        (&["--device", "null", "--check-timeout", "0s", "--check", ":"], "--check-timeout"),
    ];
    for (flags, message) in cases {
        let arguments = [&["crash"], flags, &output, &["--", "true"]].concat();
        let refused = chronodisk.command(&arguments).output().unwrap();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(message), "{flags:?}: {said}");
        assert!(!run.exists(), "{flags:?}");
    }
}

/// Writes files with acknowledgements, the fourth one without synchronisation.
const FILES: &str = "cd /mnt
    for i in 1 2 3 4 5 6; do
        echo $i >f$i; [ $i = 4 ] || sync f$i .
        n=0; while [ $n -lt 3 ]; do echo $i; n=$((n+1)); sleep 0.01; done >$CHRONODISK_ACK
    done";

const EACH_ACKNOWLEDGED_FILE_IS_THERE: &str =
    "for i in $(sort -u $CHRONODISK_ACK); do grep -qx $i f$i || { echo f$i is lost; exit 1; }; done";

/// Checks of a kept run in one guest at a time, in a process of their own.
struct Checks(Child);

impl Checks {
    /// Begins the checks, and waits for two verdicts of a new file, or for a further one.
    fn begin(chronodisk: &Chronodisk, run: &Path, words: &[&str]) -> Self {
        let lines = || fs::read(run.join(VERDICTS)).unwrap().iter().filter(|byte| **byte == b'\n').count();
        let older = lines();
        let words = [&["crash"], words, &[run.to_str().unwrap(), "--jobs", "1", "--json"]].concat();
        let mut command = chronodisk.command(&words);
        let mut checks = Checks(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let begins = Instant::now();
        loop {
            assert!(begins.elapsed() < Duration::from_secs(120), "no verdicts");
            let now = lines();
            if now != older && now > 2 {
                return checks;
            }
            assert!(checks.0.try_wait().unwrap().is_none(), "the checks ended");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the checks by a signal.
    fn end(mut self, signal: Signal) -> ExitStatus {
        rustix::process::kill_process(Pid::from_child(&self.0), signal).unwrap();
        self.0.wait().unwrap()
    }
}

const VERDICTS: &str = "crash-verdicts.jsonl";

/// The files of a run by name, with their contents.
fn files(run: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

#[test]
fn ended_checks_are_resumed_with_the_result_of_uninterrupted_ones() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let run = chronodisk.path("run");
    let path = run.to_str().unwrap();
    let flags = ["--cuts", "6", "--check", EACH_ACKNOWLEDGED_FILE_IS_THERE, "-o", path];
    let whole = result(&crash(&chronodisk, &flags, &["sh", "-c", FILES]), 1);
    let states = whole["states_checked"].as_u64().unwrap();
    assert!(states > 6 && whole["failures"][0]["fewest"].is_object(), "{whole}");
    let resume = |words: &[&str]| chronodisk.command(&[&["crash", "--resume"], words].concat()).output().unwrap();
    let refused = |words: &[&str], message: &str| {
        let before = files(&run);
        let output = resume(words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(message), "{said}");
        assert!(files(&run) == before, "{words:?} changed the run");
    };
    refused(&[path], "the checks of this run are complete");

    // A killed process has no result, but verdicts.
    Checks::begin(&chronodisk, &run, &["--from"]).end(Signal::KILL);
    assert!(!run.join("crash.json").exists());
    for contradiction in [["--seed", "5"], ["--cuts", "3"], ["--fs", "xfs"], ["--only", "1"], ["--from", "last"]] {
        refused(&[&[path], &contradiction[..]].concat(), "cannot be used with");
    }
    refused(&[path, "--check", "true"], "--check differs");
    damaged_verdicts_are_refused(&run, &|message| refused(&[path], message));
    let kept = fs::read_to_string(run.join(VERDICTS)).unwrap();
    // The verdict that was being written, and a second end, by a signal that the command catches.
    fs::write(run.join(VERDICTS), format!("{kept}{{\"state\":")).unwrap();
    let status = Checks::begin(&chronodisk, &run, &["--resume"]).end(Signal::TERM);
    assert!([Some(1), Some(143)].contains(&status.code()), "{status:?}");
    let ended: Value = serde_json::from_slice(&fs::read(run.join("crash.json")).unwrap()).unwrap();
    assert_eq!(ended["ended_by_signal"], "SIGTERM", "{ended}");
    let count = fs::read_to_string(run.join(VERDICTS)).unwrap().lines().count();
    assert!(count > kept.lines().count(), "{count}");
    assert!(fs::read_to_string(run.join(VERDICTS)).unwrap().starts_with(&kept));

    let again = result(&resume(&["last", "--check", EACH_ACKNOWLEDGED_FILE_IS_THERE, "--json"]), 1);
    assert_eq!(again, whole);
    let kept: Value = serde_json::from_slice(&fs::read(run.join("crash.json")).unwrap()).unwrap();
    assert_eq!(kept, whole);
    let verdicts = fs::read_to_string(run.join(VERDICTS)).unwrap();
    assert_eq!(verdicts.lines().count() as u64, states + 1);
    refused(&[path], "the checks of this run are complete");
}

/// The states of a model come from a simulation, which a resumed check repeats.
#[test]
fn ended_checks_of_a_models_states_are_resumed() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let run = chronodisk.path("run");
    let path = run.to_str().unwrap();
    let flags = ["--states", "model", "--cuts", "4", "--check", EACH_ACKNOWLEDGED_FILE_IS_THERE, "-o", path];
    let whole = result(&crash(&chronodisk, &flags, &["sh", "-c", FILES]), 1);
    Checks::begin(&chronodisk, &run, &["--from"]).end(Signal::KILL);
    let kept = fs::read_to_string(run.join(VERDICTS)).unwrap();
    let states = whole["states_checked"].as_u64().unwrap();
    assert!((kept.lines().count() as u64) < states + 1, "the checks were complete");
    let output = chronodisk.command(&["crash", "--resume", path, "--json"]).output().unwrap();
    assert_eq!(result(&output, 1), whole);
    assert!(fs::read_to_string(run.join(VERDICTS)).unwrap().starts_with(&kept));
}

fn damaged_verdicts_are_refused(run: &Path, refused: &dyn Fn(&str)) {
    let whole = fs::read_to_string(run.join(VERDICTS)).unwrap();
    fs::write(run.join(VERDICTS), whole.replacen("cut_ns", "kut_ns", 1)).unwrap();
    refused("crash-verdicts.jsonl: line 2: unknown field");
    fs::write(run.join(VERDICTS), whole).unwrap();
}

#[test]
fn a_run_without_a_recording_is_not_resumed() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let run = chronodisk.path("run");
    let path = run.to_str().unwrap();
    chronodisk.run_json("null", &["--fs", "none", "-o", path], &["true"]);
    let before = files(&run);
    let output = chronodisk.command(&["crash", "--resume", path]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("crash-setup.json: can't read") && said.contains("`chronodisk crash`"), "{said}");
    assert!(files(&run) == before);
}

#[test]
fn reports_and_lists_of_runs_have_the_checks() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let run = chronodisk.path("run");
    let path = run.to_str().unwrap();
    let flags = ["--cuts", "4", "--check", EACH_ACKNOWLEDGED_FILE_IS_THERE, "-o", path];
    let whole = result(&crash(&chronodisk, &flags, &["sh", "-c", FILES]), 1);
    let said = |words: &[&str]| {
        let output = chronodisk.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let page = chronodisk.path("report.html");
    let report = || {
        said(&["report", path, "-o", page.to_str().unwrap()]);
        fs::read_to_string(&page).unwrap()
    };
    let runs = || said(&["runs", chronodisk.results.path().to_str().unwrap()]);
    let html = report();
    let failure = &whole["failures"][0];
    for part in ["<h2>Power cuts</h2>", "id=\"cuts-0\"", "failed: check", failure["repeat"].as_str().unwrap()] {
        assert!(html.contains(part), "{part}");
    }
    let marks = html.split_once("\"power_cuts\":").unwrap().1;
    let marks = serde_json::Deserializer::from_str(marks).into_iter::<Value>().next().unwrap().unwrap();
    let count = |place: usize| -> u64 {
        marks["marks"].as_array().unwrap().iter().map(|mark| mark[place].as_u64().unwrap()).sum()
    };
    assert_eq!(count(3), whole["states_failed"].as_u64().unwrap(), "{marks}");
    assert_eq!(count(2) + count(3), whole["states_checked"].as_u64().unwrap(), "{marks}");
    let shown = said(&["show", path]);
    let first = format!("state {}: the step check failed", failure["state"]);
    assert!(shown.contains(&first) && shown.contains("service time"), "{shown}");
    let json: Value = serde_json::from_str(&said(&["show", path, "--json"])).unwrap();
    assert!(json["crash"] == whole && json["reps"].is_array(), "{json}");
    let failed = format!("power cuts: {} of {} states failed)", whole["states_failed"], whole["states_checked"]);
    assert!(runs().contains(&failed), "{}", runs());

    // As a killed process leaves the run, and then with contradicting files.
    let result = fs::read(run.join("crash.json")).unwrap();
    fs::remove_file(run.join("crash.json")).unwrap();
    let resume = format!("chronodisk crash --resume {path}");
    assert!(report().contains(&resume) && said(&["show", path]).contains(&resume));
    assert!(runs().contains("not complete)"), "{}", runs());
    let json: Value = serde_json::from_str(&said(&["show", path, "--json"])).unwrap();
    assert_eq!(json["crash"], Value::Null);
    fs::write(run.join("crash.json"), result).unwrap();
    let verdicts = fs::read_to_string(run.join(VERDICTS)).unwrap();
    fs::write(run.join(VERDICTS), verdicts.split_inclusive('\n').take(2).collect::<String>()).unwrap();
    let refused = chronodisk.command(&["show", path]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("but the kept verdicts are 1"), "{}", text(&refused.stderr));
}
