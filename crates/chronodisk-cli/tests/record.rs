//! `chronodisk trace record` from a user's perspective: statuses, killed recorders, and restrictions of the host.
//! `chronodisk-native` tests the tracing of programs.

#[path = "common/command.rs"]
mod command;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use chronodisk_report::read_calls;
use pretty_assertions::assert_eq;
use serde_json::Value;

use command::{chronodisk, text};

fn record(output: &Path, flags: &[&str], program: &[&str]) -> Output {
    let output = output.to_str().unwrap();
    chronodisk(&[&["trace", "record", "-o", output], flags, &["--"], program].concat()).output().unwrap()
}

#[test]
fn the_programs_status_and_output_are_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("calls");
    let script = format!("cd {}; echo data; echo words >&2; echo x >file; exit 9", folder.path().display());
    let mount = folder.path().to_str().unwrap();
    let done = record(&trace, &["--mount", mount], &["sh", "-c", &script]);
    let words = text(&done.stderr);
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(9), "data\n".to_owned()), "{words}");
    assert!(words.contains("words\n") && words.contains("us per call") && words.contains("times as long"), "{words}");
    let read = read_calls(&trace).unwrap();
    assert_eq!(read.header.mount.as_deref(), fs::canonicalize(mount).unwrap().to_str());
    assert!(read.header.is_complete(), "{:?}", read.header);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "the trace and the program's file");

    let done = record(&trace, &["--mount", mount, "--json"], &["sh", "-c", &script]);
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&result["schema"], &result["status"]), (&"chronodisk.recording/1".into(), &9.into()));
    assert_eq!(result["calls"].as_u64(), Some(read_calls(&trace).unwrap().records.len() as u64));
    assert!(result["cost_per_call_ns"].as_u64() > Some(0) && result["slow_down"].as_f64() >= Some(1.0), "{result}");
    assert!(text(&done.stderr).contains("data\n"));
}

#[test]
fn a_program_that_is_none_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let done = record(&folder.path().join("calls"), &[], &["no-such-program"]);
    assert_eq!(done.status.code(), Some(127));
    assert!(text(&done.stderr).contains("no-such-program"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_killed_recorder_leaves_what_it_had_and_no_program() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, made) = (folder.path().join("calls"), folder.path().join("made"));
    let script = format!("echo x >{}; echo $$ >{}.id; sleep 1000", made.display(), made.display());
    let arguments = ["trace", "record", "-o", trace.to_str().unwrap(), "--", "sh", "-c", &script];
    let mut recorder = chronodisk(&arguments).spawn().unwrap();
    let id = folder.path().join("made.id");
    let begun = Instant::now();
    while fs::read_to_string(&id).unwrap_or_default().trim().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program did not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    recorder.kill().unwrap();
    assert_eq!(recorder.wait().unwrap().signal(), Some(9));
    let program = Path::new("/proc").join(fs::read_to_string(&id).unwrap().trim());
    while fs::read_to_string(program.join("stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program goes on without its recorder");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!trace.exists());

    // Existing files are not overwritten.
    let again = record(&trace, &[], &["true"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("trace import --journal"), "{}", text(&again.stderr));

    let journal = folder.path().join("calls.partial");
    let (journal, trace_name) = (journal.to_str().unwrap(), trace.to_str().unwrap());
    let imported = chronodisk(&["trace", "import", "--journal", journal, "-o", trace_name]).output().unwrap();
    let words = text(&imported.stderr);
    assert!(imported.status.success() && words.contains("incomplete: cut-short (1)"), "{words}");
    let read = read_calls(&trace).unwrap();
    let made = made.to_str().unwrap().as_bytes();
    assert!(read.records.iter().any(|record| record.path.as_deref() == Some(made)), "what was recorded is there");
    let refused = chronodisk(&["trace", "replay", trace_name, "--device", "wd-zn540"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("cut-short"), "{}", text(&refused.stderr));
}

#[test]
fn signals_to_the_recorder_reach_the_program_and_the_trace_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("calls");
    let ready = folder.path().join("ready");
    let script = format!("trap 'echo bye; exit 5' TERM; echo x >{}; while :; do sleep 0.05; done", ready.display());
    let arguments = ["trace", "record", "-o", trace.to_str().unwrap(), "--", "sh", "-c", &script];
    let recorder = chronodisk(&arguments).stdout(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while !ready.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program did not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = rustix::process::Pid::from_child(&recorder);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let done = recorder.wait_with_output().unwrap();
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(5), "bye\n".to_owned()));
    assert!(read_calls(&trace).unwrap().header.is_complete());
}

#[test]
fn where_tracing_is_forbidden_the_status_says_so() {
    // The outer recorder already traces the inner one's program.
    let folder = tempfile::tempdir().unwrap();
    let (outer, inner) = (folder.path().join("outer"), folder.path().join("inner"));
    let inner = inner.to_str().unwrap();
    let program = [env!("CARGO_BIN_EXE_chronodisk"), "trace", "record", "-o", inner, "--", "true"];
    let done = record(&outer, &[], &program);
    let words = text(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{words}");
    assert!(words.contains("does not permit tracing") && words.contains("run --record-calls"), "{words}");
    assert!(!Path::new(inner).exists() && !folder.path().join("inner.partial").exists());
}

#[test]
fn a_setuid_program_is_refused_without_privileges() {
    // `su` has the set-user-ID bit on every host. The command runs as an unprivileged user, who must be able to execute
    // it.
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("chronodisk");
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    command::copy_to(&place);
    let trace = folder.path().join("calls");
    let words = ["65534", "65534", place.to_str().unwrap(), trace.to_str().unwrap()];
    let script = "exec setpriv --reuid $1 --regid $2 --clear-groups $3 trace record -o $4 -- su --version";
    let done = Command::new("sh").args(["-c", script, "sh"]).args(words).output().unwrap();
    let said = text(&done.stderr);
    if said.contains("setpriv") || !rustix::process::geteuid().is_root() {
        println!("SKIPPED: this user can't become nobody: {said}");
        return;
    }
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert!(said.contains("another user's privileges"), "{said}");
}

#[test]
fn wrong_usage_is_refused_before_the_program_begins() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("calls");
    let made = folder.path().join("made");
    let program = ["touch", made.to_str().unwrap()];
    let nowhere = folder.path().join("no/such/file");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for (output, mount, expected) in [
        (nowhere.as_path(), "/tmp", "does not exist"),
        (trace.as_path(), "/no/such/directory", "--mount /no/such/directory"),
        (trace.as_path(), file.to_str().unwrap(), "is no directory"),
        (trace.as_path(), "/", "can't be replayed"),
    ] {
        let done = record(output, &["--mount", mount], &program);
        assert_eq!(done.status.code(), Some(2), "{expected}: {}", text(&done.stderr));
        assert!(text(&done.stderr).contains(expected), "{expected}: {}", text(&done.stderr));
    }
    assert!(!made.exists());

    // An unused mount point is detected at the end: the recording stays.
    let elsewhere = tempfile::tempdir().unwrap();
    let done = record(&trace, &["--mount", elsewhere.path().to_str().unwrap()], &program);
    let words = text(&done.stderr);
    assert_eq!(done.status.code(), Some(125), "{words}");
    assert!(words.contains("no call uses a file below") && words.contains("--journal"), "{words}");
    let (journal, trace_name) = (folder.path().join("calls.partial"), trace.to_str().unwrap());
    let mount = fs::canonicalize(folder.path()).unwrap();
    let (journal, mount) = (journal.to_str().unwrap(), mount.to_str().unwrap());
    let arguments = ["trace", "import", "--journal", journal, "--mount", mount, "-o", trace_name];
    let imported = chronodisk(&arguments).output().unwrap();
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    assert_eq!(read_calls(&trace).unwrap().header.mount.as_deref(), Some(mount));

    fs::write(journal, "no journal").unwrap();
    let refused = chronodisk(&arguments).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("no journal of `chronodisk trace record`"));
}

/// Starts a recorder, and waits until its program has begun.
fn recorder(folder: &Path, script: &str) -> std::process::Child {
    let (trace, ready) = (folder.join("calls"), folder.join("ready"));
    let script = script.replace("READY", &format!("echo x > {}", ready.display()));
    let arguments = ["trace", "record", "--json", "-o", trace.to_str().unwrap(), "--", "sh", "-c", &script];
    let recorder = chronodisk(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while fs::read_to_string(&ready).unwrap_or_default().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program did not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    recorder
}

#[test]
fn one_signal_to_the_recorder_ends_whatever_it_records() {
    let (term, int) = (libc::SIGTERM, libc::SIGINT);
    let ignores = "trap '' TERM INT HUP; READY";
    let cases = [
        ("stopped", term, "READY; kill -STOP $$; sleep 1000".to_owned()),
        ("deaf", int, format!("{ignores}; while :; do sleep 1; done")),
        ("daemon", term, format!("{ignores}; (setsid sh -c 'while :; do sleep 1; done' &) & exit 0")),
        ("forks", term, format!("f() {{ (f) & }}; {ignores}; f; sleep 1000")),
        ("ends", int, "trap 'exit 6' INT; READY; while :; do sleep 1; done".to_owned()),
    ];
    std::thread::scope(|threads| {
        for (name, signal, script) in cases {
            threads.spawn(move || {
                let folder = tempfile::tempdir().unwrap();
                let mut recorder = recorder(folder.path(), &script);
                std::thread::sleep(Duration::from_millis(300));
                // SAFETY: the arguments are numbers, and the child was not waited for, so its pid is valid.
                unsafe { libc::kill(recorder.id() as libc::pid_t, signal) };
                let begun = Instant::now();
                while recorder.try_wait().unwrap().is_none() {
                    if begun.elapsed() > Duration::from_secs(60) {
                        let _ = recorder.kill();
                        panic!("{name}: the recorder goes on");
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                let done = recorder.wait_with_output().unwrap();
                let status = if name == "ends" { 6 } else { 128 + signal };
                assert_eq!(done.status.code(), Some(status), "{name}: {}", text(&done.stderr));
                let result: Value = serde_json::from_slice(&done.stdout).unwrap();
                assert_eq!((&result["ended_by"], &result["status"]), (&"signal".into(), &status.into()), "{name}");
                assert!(read_calls(&folder.path().join("calls")).unwrap().records.len() > 1, "{name}");
                assert!(!folder.path().join("calls.partial").exists(), "{name}");
            });
        }
    });
}
