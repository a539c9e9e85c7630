//! The recorder on programs that are awkward to trace (`programs.c`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use chronodisk_engine::ending::{EndRequest, EndRequests};
use chronodisk_native::{Recorded, Recording, RecordingSummary, record};
use chronodisk_trace::calls::{CallRecord, CallTrace, Validator, read_journal};

/// No request to end.
struct Never(UnixStream, #[allow(dead_code)] UnixStream);

impl Never {
    fn new() -> Self {
        let (news, other) = UnixStream::pair().unwrap();
        Never(news, other)
    }
}

impl EndRequests for Never {
    fn request(&self) -> Option<EndRequest> {
        None
    }

    fn news(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The test programs, compiled.
fn programs() -> &'static Path {
    static COMPILED: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &COMPILED
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("programs");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs.c");
            let compiled = Command::new("cc").arg("-pthread").arg("-o").arg(&file).arg(source).status().unwrap();
            assert!(compiled.success());
            (folder, file)
        })
        .1
}

fn recorded(command: &[OsString], mount: &Path) -> (RecordingSummary, CallTrace) {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let mount = std::fs::canonicalize(mount).unwrap();
    let recording = Recording {
        command,
        mount: mount.to_str(),
        journal: &journal,
        stdout_to_stderr: true,
        requests: &Never::new(),
    };
    match record(recording, &|_| {}) {
        Ok(Recorded::Ended(statistics)) => {
            let trace = read_journal(File::open(&journal).unwrap(), None).unwrap();
            let mut validator = Validator::default();
            trace.records.iter().for_each(|record| validator.check(record).unwrap());
            (statistics, trace)
        }
        other => panic!("{command:?}: {other:?}"),
    }
}

/// Records one of the programs in a new directory.
fn program(word: &str) -> (u8, CallTrace) {
    let folder = tempfile::tempdir().unwrap();
    let command = [programs().into(), word.into(), folder.path().into()];
    let (statistics, trace) = recorded(&command, folder.path());
    (statistics.status, trace)
}

fn named<'a>(trace: &'a CallTrace, name: &'a str) -> impl Iterator<Item = &'a CallRecord> + 'a {
    trace.records.iter().filter(move |record| record.call.name() == name)
}

/// Calls that make a file of this name.
fn makes(trace: &CallTrace, file: &str) -> usize {
    named(trace, "openat")
        .filter(|record| record.path.as_deref() == Some(file.as_bytes()) && record.succeeded())
        .count()
}

fn reasons(trace: &CallTrace) -> Vec<&str> {
    trace.header.incomplete.keys().map(String::as_str).collect()
}

#[test]
fn threads_are_tasks_of_one_group() {
    let (status, trace) = program("threads");
    assert_eq!((status, reasons(&trace), trace.header.lost_events), (7, vec![], 0));
    let first = trace.records[0].task;
    let mut writes: BTreeMap<u32, usize> = BTreeMap::new();
    for write in named(&trace, "write").filter(|write| write.result == Some(1)) {
        assert_eq!(write.group, first);
        assert!(write.user_cpu.is_some() && write.kernel_cpu.is_some(), "{write:?}");
        *writes.entry(write.task).or_default() += 1;
    }
    assert_eq!(writes.into_values().collect::<Vec<_>>(), [10; 4]);
    assert_eq!(named(&trace, "exit").count(), 4);
    assert_eq!(named(&trace, "exit_group").count(), 1);
}

#[test]
fn vforks_return_after_their_children_have_executed() {
    let (status, trace) = program("vforks");
    assert_eq!((status, reasons(&trace)), (7, vec![]));
    let vforks: Vec<_> = trace.records.iter().filter(|record| record.child().is_some()).collect();
    assert_eq!(vforks.len(), 3);
    for vfork in vforks {
        let child = vfork.child().unwrap();
        let executed = named(&trace, "execve").find(|record| record.task == child).unwrap();
        assert_eq!(executed.path.as_deref(), Some(&b"/bin/true"[..]));
        assert!(vfork.entry <= executed.entry && executed.entry < vfork.exit.unwrap());
        assert!(named(&trace, "wait4").any(|wait| wait.result == Some(i64::from(child))));
    }
}

#[test]
fn a_handlers_calls_are_recorded_and_the_interrupted_call_once() {
    for (word, results) in [("restarted", vec![Some(1)]), ("interrupted", vec![Some(-4)])] {
        let (status, trace) = program(word);
        assert_eq!((status, reasons(&trace)), (7, vec![]), "{word}");
        let made = named(&trace, "pipe2").chain(named(&trace, "pipe")).next().unwrap();
        let pipe = made.pipe.unwrap();
        // The loader reads libraries by the same descriptor before.
        let reads = named(&trace, "read").filter(|read| read.entry > made.entry && read.number(0) == pipe[0]);
        let reads: Vec<_> = reads.collect();
        assert_eq!(reads.iter().map(|read| read.result).collect::<Vec<_>>(), results, "{word}");
        let from_handler = named(&trace, "write").filter(|write| write.number(0) == pipe[1]).count();
        assert_eq!(from_handler, 1, "{word}");
        assert_eq!(makes(&trace, "interrupted"), 1, "{word}");
        assert_eq!(named(&trace, "rt_sigreturn").count() + named(&trace, "restart_syscall").count(), 0, "{word}");
    }
}

#[test]
fn a_stopped_process_goes_on_and_its_sleep_is_one_call() {
    let (status, trace) = program("stopped");
    assert_eq!((status, reasons(&trace)), (7, vec![]));
    let child = trace.records.iter().find_map(CallRecord::child).unwrap();
    let sleeps: Vec<_> = named(&trace, "clock_nanosleep").filter(|sleep| sleep.task == child).collect();
    assert_eq!(sleeps.len(), 1);
    let slept = sleeps[0].exit.unwrap().saturating_sub(sleeps[0].entry).as_nanos();
    assert!(slept >= 300_000_000 && sleeps[0].result == Some(0), "{sleeps:?}");
    assert_eq!(makes(&trace, "stopped"), 1);
}

#[test]
fn a_program_that_another_thread_executes_is_followed() {
    let (status, trace) = program("thread-executes");
    assert_eq!((status, reasons(&trace)), (0, vec!["superseded-by-execve"]));
    assert_eq!(makes(&trace, "executed"), 1);
    let writer = named(&trace, "write").last().unwrap();
    assert_eq!(writer.group, trace.records[0].task);
}

#[test]
fn killed_tasks_end_with_an_exit_and_their_status_is_passed_on() {
    let (status, trace) = program("killed");
    assert_eq!((status, reasons(&trace)), (128 + 15, vec![]));
    let child = trace.records.iter().find_map(CallRecord::child).unwrap();
    let last: Vec<_> = trace.records.iter().filter(|record| record.task == child).collect();
    let names: Vec<_> = last.iter().map(|record| (record.call.name(), record.result)).collect();
    assert_eq!(names, [("pause", None), ("exit", None)]);
    assert_eq!(named(&trace, "exit").count(), 2);
}

#[test]
fn mapped_files_make_a_trace_incomplete_and_memory_does_not() {
    let (status, trace) = program("maps");
    assert_eq!((status, reasons(&trace)), (7, vec!["mapped-file"]));
    assert_eq!(trace.header.incomplete["mapped-file"], 1);
    assert!(named(&trace, "mmap").count() < 50, "memory without a file is not recorded");
}

#[test]
fn what_a_recorder_can_not_follow_is_counted() {
    let (status, trace) = program("passes");
    assert_eq!((status, reasons(&trace)), (7, vec!["received-descriptor"]), "a path of a failed call is none");
    let clone3 = named(&trace, "clone3").next().unwrap();
    assert_eq!(clone3.arguments[0], 0x400, "flags are read from the structure");
    assert!(named(&trace, "socketpair").next().unwrap().pipe.is_some());
}

#[test]
fn a_crowd_of_short_lived_tasks_is_complete() {
    let (status, trace) = program("crowd");
    assert_eq!((status, reasons(&trace), trace.header.lost_events), (7, vec![], 0));
    let children: Vec<u32> = trace.records.iter().filter_map(CallRecord::child).collect();
    assert_eq!(children.len(), 210);
    let exits = named(&trace, "exit_group").count();
    assert_eq!(exits, 211);
    assert!((0..10).all(|round| makes(&trace, &format!("crowd-{round}")) == 1));
}

#[test]
fn a_program_that_is_none_has_a_shells_status_and_leaves_no_journal() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let text = folder.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    std::fs::set_permissions(&text, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (name, expected) in [(OsString::from("no-such-program"), 127), ("/etc/passwd".into(), 126), (text.into(), 126)]
    {
        let never = Never::new();
        let recording =
            Recording { command: &[name], mount: None, journal: &journal, stdout_to_stderr: false, requests: &never };
        match record(recording, &|_| {}).unwrap() {
            Recorded::Refused { status, .. } => assert_eq!(status, expected),
            other => panic!("{other:?}"),
        }
        assert!(!journal.exists());
    }
}

#[test]
fn times_are_the_programs_own() {
    // A second of one processor's work, without any recorded call.
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo x >spent";
    let folder = tempfile::tempdir().unwrap();
    let command = ["sh".into(), "-c".into(), format!("cd {}; {script}", folder.path().display()).into()];
    let (statistics, trace) = recorded(&command, folder.path());
    let cpu: u64 = trace.records.iter().filter_map(|record| record.user_cpu).map(|cpu| cpu.as_nanos()).sum();
    let open = named(&trace, "openat").find(|open| open.path.as_deref() == Some(b"spent")).unwrap();
    let before = open.user_cpu.unwrap().as_nanos();
    assert!(before * 2 > cpu, "{before} of {cpu} ns are before the file is made");
    assert!(u128::from(cpu) <= statistics.elapsed.as_nanos(), "{cpu} ns in {:?}", statistics.elapsed);
    assert!(statistics.calls as usize >= trace.records.len() && statistics.slow_down(Duration::ZERO) >= 1.0);
}
