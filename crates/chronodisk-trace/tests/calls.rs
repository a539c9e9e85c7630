//! Traces of system calls: hostile records are refused or harmless, and names after renames match a naive model.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{
    AT_FDCWD, CLONE_FILES, CallRecord, CallTrace, Clock, Header, O_CLOEXEC, O_CREAT, Object, PATH_BYTES_MAX, Resolver,
    StartState, Think, Validator, absolute, fold, resolution_order, think_times,
};
use proptest::prelude::*;

fn record(task: u32, call: &str, at: u64, arguments: &[i64], path: &str, result: i64) -> CallRecord {
    let mut made = CallRecord::new(task, call.parse().unwrap(), Nanos::from_nanos(at));
    for (place, &argument) in arguments.iter().enumerate() {
        made.arguments[place] = argument as u64;
    }
    made.path = (!path.is_empty()).then(|| path.as_bytes().to_vec());
    made.result = Some(result);
    made.exit = Some(Nanos::from_nanos(at + 1));
    made
}

fn header() -> Header {
    let start = StartState { task: 1, directory: Some("/".into()), descriptors: BTreeMap::new() };
    Header { mount: Some("/mnt".into()), start: vec![start], ..Header::new("x86_64", Clock::Exact) }
}

/// The files used by each record.
fn files(header: &Header, records: &[CallRecord]) -> Vec<Vec<String>> {
    let mut resolver = Resolver::new(header);
    let mut named = vec![Vec::new(); records.len()];
    for index in resolution_order(records) {
        for used in resolver.apply(&records[index]).objects {
            named[index].push(match used.object {
                Object::File(path) => String::from_utf8(path).unwrap(),
                Object::Pipe(pipe) => format!("pipe {pipe}"),
            });
        }
    }
    named
}

#[test]
fn cpu_time_and_instants_that_no_recording_can_have_are_refused() {
    let checked = |change: &dyn Fn(&mut CallRecord)| {
        let mut validator = Validator::default();
        let mut first = record(1, "read", 10, &[3], "", 1);
        first.user_cpu = Some(Nanos::from_nanos(5));
        validator.check(&first).unwrap();
        let mut second = record(1, "read", 2_000, &[3], "", 1);
        change(&mut second);
        validator.check(&second).map_err(|error| error.to_string())
    };
    assert_eq!(checked(&|_| ()), Ok(()));
    assert_eq!(checked(&|record| record.user_cpu = Some(Nanos::from_nanos(900_000_000))), Ok(()));
    for huge in [u64::MAX, u64::MAX / 2, 10_000_000_000] {
        let error = checked(&|record| record.user_cpu = Some(Nanos::from_nanos(huge))).unwrap_err();
        assert!(error.contains("row 1, column 'user_cpu_ns'") && error.contains("expected at most"), "{error}");
        let error = checked(&|record| record.kernel_cpu = Some(Nanos::from_nanos(huge))).unwrap_err();
        assert!(error.contains("column 'kernel_cpu_ns'"), "{error}");
    }
    // Each claimed number is small, but their sum exceeds the limit.
    let mut validator = Validator::default();
    let refused = (0..20).any(|index| {
        let mut claim = record(1, "read", 10 + index, &[3], "", 1);
        (claim.exit, claim.user_cpu) = (Some(claim.entry), Some(Nanos::from_nanos(100_000_000)));
        validator.check(&claim).is_err()
    });
    assert!(refused);
    let error = checked(&|record| {
        record.entry = Nanos::from_nanos(u64::MAX / 4);
        record.exit = Some(record.entry);
    });
    assert!(error.unwrap_err().contains("later than a year"));
}

#[test]
fn descriptors_follow_forks_executions_duplicates_and_renames() {
    let at = i64::from(AT_FDCWD);
    let mut rename = record(1, "rename", 70, &[], "/mnt/a", 0);
    rename.path_2 = Some(b"/mnt/b".to_vec());
    let mut pipe = record(1, "pipe2", 80, &[0, 0], "", 0);
    pipe.pipe = Some([5, 6]);
    let records = [
        record(1, "mkdir", 0, &[0, 0o755], "/mnt/a", 0),
        record(1, "chdir", 10, &[], "mnt/a", 0),
        record(1, "openat", 20, &[at, 0, (O_CREAT | O_CLOEXEC) as i64], "./x/../file", 3),
        record(1, "fcntl", 30, &[3, 0, 0], "", 4),
        record(1, "clone", 40, &[0], "", 2),
        record(2, "write", 50, &[3], "", 1),
        record(2, "execve", 60, &[], "/bin/true", 0),
        rename,
        pipe,
        record(2, "write", 90, &[3], "", -9),
        record(2, "write", 91, &[4], "", 1),
        record(2, "stat", 92, &[], "file", 0),
        record(1, "clone", 93, &[CLONE_FILES as i64], "", 7),
        record(7, "close", 95, &[3], "", 0),
        record(1, "write", 97, &[3], "", -9),
        record(7, "read", 99, &[5], "", 1),
    ];
    let expected: [&[&str]; 16] = [
        &["/mnt/a"],
        &["/mnt/a"],
        &["/mnt/a/file"],
        &[],
        &[],
        &["/mnt/a/file"],
        &["/bin/true"],
        &["/mnt/a", "/mnt/b"],
        &[],
        &[],
        &["/mnt/b/file"],
        &["/mnt/b/file"],
        &[],
        &[],
        &[],
        &["pipe 1"],
    ];
    assert_eq!(files(&header(), &records), expected);
}

#[test]
fn folding_charges_calls_off_the_device_to_the_next_one() {
    let cpu = |mut made: CallRecord| {
        made.user_cpu = Some(Nanos::from_nanos(10));
        made.kernel_cpu = Some(Nanos::from_nanos(3));
        made
    };
    let records = vec![
        cpu(record(1, "getpid", 0, &[], "", 1)),
        cpu(record(1, "open", 5, &[0], "/etc/no-such", -2)),
        cpu(record(1, "stat", 10, &[], "/etc/passwd", 0)),
        cpu(record(1, "stat", 20, &[], "/mnt/file", 0)),
        record(1, "getpid", 30, &[], "", 1),
        cpu(record(1, "stat", 40, &[], "/mnt/file", 0)),
        cpu(record(1, "open", 41, &[0], "/mnt/no-such", -2)),
        cpu(record(1, "open", 42, &[0], "/etc/passwd", 3)),
        cpu(record(1, "exit_group", 50, &[0], "", 0)),
    ];
    let folded = fold(&CallTrace { header: header(), records }).records;
    let got: Vec<_> =
        folded.iter().map(|kept| (kept.call.name(), kept.user_cpu.map(Nanos::as_nanos), kept.folded)).collect();
    let on_device = [("stat", Some(49), 3), ("stat", None, 1), ("open", Some(10), 0)];
    // Calls that make a descriptor stay, wherever the file is.
    assert_eq!(got, [&on_device[..], &[("open", Some(10), 0), ("exit_group", Some(10), 0)]].concat());
    // A missing charge leaves a gap, which spans the folded call.
    let think: Vec<Think> = think_times(&folded).collect();
    assert_eq!(think[1], Think::Gap(Nanos::from_nanos(19)));
}

/// A compiler's reads of a header are folded away completely. If another call may use the descriptor, the pair of open
/// and close stays.
#[test]
fn folding_leaves_out_files_elsewhere_that_only_their_reader_uses() {
    let open = |task, at| record(task, "openat", at, &[AT_FDCWD.into(), 0, 0], "/usr/include/stdio.h", 5);
    let close = |task, at| record(task, "close", at, &[5], "", 0);
    let names = |between: Vec<CallRecord>| -> Vec<String> {
        let mut records = vec![open(1, 10)];
        records.extend(between);
        records.extend([close(1, 80), record(1, "exit_group", 90, &[0], "", 0)]);
        let folded = fold(&CallTrace { header: header(), records }).records;
        folded.iter().map(|made| made.call.name().to_owned()).collect()
    };
    assert_eq!(names(vec![record(1, "read", 20, &[5, 0, 9], "", 9)]), ["exit_group"]);
    let sharing = i64::try_from(CLONE_FILES).unwrap();
    let within = record(1, "openat", 20, &[5, 0, 0], "sys", 6);
    let of_others: [Vec<CallRecord>; 7] = [
        // The second path begins at the first descriptor.
        vec![within, record(1, "dup2", 30, &[6, 0], "", 0), record(1, "close", 40, &[6], "", 0)],
        vec![record(1, "dup2", 20, &[5, 0], "", 0)],
        vec![record(1, "clone", 20, &[0], "", 2)],
        vec![record(1, "openat", 20, &[5, 0, 0], "../x", -2), record(1, "fchdir", 30, &[5], "", 0)],
        vec![record(1, "sendmsg", 20, &[7], "", 1)],
        vec![record(1, "execve", 20, &[], "/bin/true", 0)],
        vec![
            record(1, "close", 11, &[5], "", 0),
            record(1, "clone", 20, &[sharing], "", 2),
            open(1, 30),
            record(2, "exit", 40, &[0], "", 0),
        ],
    ];
    for between in of_others {
        let kept = names(between.clone());
        let count = |name: &str| kept.iter().filter(|kept| *kept == name).count();
        let nested = between.iter().filter(|made| made.call.name() == "openat" && made.result == Some(6)).count();
        assert_eq!((count("openat"), count("close")), (1 + nested, 1 + nested), "{between:?}: {kept:?}");
    }
}

#[test]
fn records_that_no_recorder_writes_are_refused_by_row_and_column() {
    let mut validator = Validator::default();
    validator.check(&record(1, "read", 10, &[3], "", 1)).unwrap();
    let mut refuse = |bad: CallRecord, expected: &str| {
        let error = validator.check(&bad).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    refuse(record(0, "read", 20, &[], "", 0), "row 1, column 'task': id is 0");
    refuse(record(1, "read", 9, &[], "", 0), "row 1, column 'entry_ns': 9 is before the previous row's 10");
    refuse(record(1, "read", 10, &[], "", 0), "row 1, column 'entry_ns': 10 is before the task's previous");
    refuse(record(2, "stat", 20, &[], "a\0b", 0), "row 1, column 'path': path contains a NUL");
    refuse(record(2, "fork", 20, &[], "", 1 << 30), "row 1, column 'result'");
    let early = CallRecord { exit: Some(Nanos::ZERO), ..record(2, "read", 20, &[], "", 0) };
    refuse(early, "row 1, column 'exit_ns': 0 is before the entry at 20");
    refuse(CallRecord { exit: None, ..record(2, "read", 20, &[], "", 0) }, "row 1, column 'exit_ns': missing");
    assert!("Read".parse::<chronodisk_trace::calls::Call>().is_err());
    for mount in ["/", "mnt", "/mnt/", "/a/../b", ""] {
        let error = Header { mount: Some(mount.into()), ..header() }.validate().unwrap_err();
        assert_eq!(error.column, "mount", "{mount}");
    }
    header().validate().unwrap();
}

/// A step of the naive model, in which an open file is its path and a rename rewrites all paths.
#[derive(Clone, Debug)]
enum Step {
    Open(usize),
    Rename(usize, usize),
    Duplicate(i32, i32),
    Close(i32),
    ChangeTo(usize),
}

fn name(place: usize) -> String {
    let parts = ["a", "b", "c"];
    let mut path = String::from("/mnt");
    let mut rest = place;
    for _ in 0..=place % 3 {
        path.push('/');
        path.push_str(parts[rest % 3]);
        rest /= 3;
    }
    path
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..27usize).prop_map(Step::Open),
        (0..27usize, 0..27usize).prop_map(|(from, to)| Step::Rename(from, to)),
        (3..8i32, 3..8i32).prop_map(|(from, to)| Step::Duplicate(from, to)),
        (3..8i32).prop_map(Step::Close),
        (0..27usize).prop_map(Step::ChangeTo),
    ];
    proptest::collection::vec(step, 1..40)
}

fn any_record() -> impl Strategy<Value = CallRecord> {
    let calls = prop_oneof![
        Just("openat"),
        Just("rename"),
        Just("renameat2"),
        Just("symlink"),
        Just("clone"),
        Just("clone3"),
        Just("execve"),
        Just("close_range"),
        Just("fcntl"),
        Just("dup3"),
        Just("chdir"),
        Just("fchdir"),
        Just("pipe2"),
        Just("mmap"),
        Just("exit"),
        Just("utimensat"),
        Just("unheard_of"),
    ];
    let path = || proptest::option::of("[/ab.]{0,12}");
    let numbers = (0..5u32, 0..50u64, -2..6i64, proptest::array::uniform6(0..8u64));
    (numbers, calls, path(), path(), proptest::option::of([0..6i32, 0..6i32])).prop_map(
        |((task, at, result, arguments), call, first, second, pipe)| {
            let mut made = record(task, call, at, &[], "", result);
            made.arguments = arguments;
            made.path = first.map(String::into_bytes);
            made.path_2 = second.map(String::into_bytes);
            made.pipe = pipe;
            made
        },
    )
}

proptest! {
    #[test]
    fn names_follow_renames_as_a_naive_model_says(steps in steps()) {
        let mut records = Vec::new();
        let mut expected = Vec::new();
        let mut open: BTreeMap<i32, String> = BTreeMap::new();
        let mut directory = "/".to_owned();
        for (at, step) in steps.iter().enumerate() {
            let at = at as u64 * 10;
            match *step {
                Step::Open(place) => {
                    let descriptor = (3..8).find(|descriptor| !open.contains_key(descriptor));
                    let Some(descriptor) = descriptor else { continue };
                    records.push(record(1, "open", at, &[], &name(place), i64::from(descriptor)));
                    expected.push(vec![name(place)]);
                    open.insert(descriptor, name(place));
                }
                Step::Rename(from, to) => {
                    let (from, to) = (name(from), name(to));
                    let inside = |a: &str, b: &str| a.starts_with(&format!("{b}/"));
                    if from == to || inside(&from, &to) || inside(&to, &from) {
                        continue;
                    }
                    // A directory that is replaced must be empty; its former files are not tested here.
                    if open.values().chain([&directory]).any(|path| *path == to || inside(path, &to)) {
                        continue;
                    }
                    let mut renames = record(1, "rename", at, &[], &from, 0);
                    renames.path_2 = Some(to.clone().into_bytes());
                    records.push(renames);
                    expected.push(vec![from.clone(), to.clone()]);
                    for path in open.values_mut().chain([&mut directory]) {
                        if *path == from || inside(path, &from) {
                            *path = format!("{to}{}", &path[from.len()..]);
                        }
                    }
                }
                Step::Duplicate(from, to) => {
                    let Some(path) = open.get(&from).cloned() else { continue };
                    records.push(record(1, "dup2", at, &[from.into(), to.into()], "", to.into()));
                    expected.push(vec![]);
                    open.insert(to, path);
                }
                Step::Close(descriptor) => {
                    records.push(record(1, "close", at, &[descriptor.into()], "", 0));
                    expected.push(vec![]);
                    open.remove(&descriptor);
                }
                Step::ChangeTo(place) => {
                    records.push(record(1, "chdir", at, &[], &name(place), 0));
                    expected.push(vec![name(place)]);
                    directory = name(place);
                }
            }
            for (&descriptor, path) in &open {
                records.push(record(1, "fstat", at + 2, &[descriptor.into()], "", 0));
                expected.push(vec![path.clone()]);
            }
            records.push(record(1, "stat", at + 5, &[], "z", 0));
            expected.push(vec![format!("{}/z", directory.trim_end_matches('/'))]);
        }
        prop_assert_eq!(files(&header(), &records), expected);
    }

    #[test]
    fn any_records_are_refused_or_harmless(mut records in proptest::collection::vec(any_record(), 0..60)) {
        records.sort_by_key(|made| made.entry);
        let mut validator = Validator::default();
        records.retain(|made| validator.check(made).is_ok());
        let trace = CallTrace { header: header(), records };
        let folded = fold(&trace);
        let counted: u32 = folded.records.iter().map(|made| 1 + made.folded).sum();
        prop_assert_eq!(counted as usize, trace.records.len());
        let mut validator = Validator::default();
        for made in &folded.records {
            prop_assert!(validator.check(made).is_ok());
        }
        prop_assert_eq!(fold(&folded), folded);
    }

    #[test]
    fn folding_keeps_the_cpu_time(times in proptest::collection::vec((0..1000u64, 0..1000u64, 0..3usize), 1..50)) {
        let records: Vec<CallRecord> = times.iter().enumerate().map(|(at, &(user, kernel, kind))| {
            let (call, path) = [("getpid", ""), ("stat", "/etc/x"), ("stat", "/mnt/x")][kind];
            let mut made = record(1, call, at as u64 * 2, &[], path, 0);
            made.user_cpu = Some(Nanos::from_nanos(user));
            made.kernel_cpu = Some(Nanos::from_nanos(kernel));
            made
        }).collect();
        let total = |records: &[CallRecord]| -> u64 {
            let cpu = |made: &CallRecord| made.user_cpu.unwrap().as_nanos() + made.kernel_cpu.unwrap().as_nanos();
            records.iter().map(cpu).sum()
        };
        let before = total(&records);
        prop_assert_eq!(total(&fold(&CallTrace { header: header(), records }).records), before);
    }

    #[test]
    fn absolute_paths_are_in_shortest_form(base in "(/[ab]{1,3}){0,3}", text in "[/ab.]{0,20}") {
        let base = if base.is_empty() { "/" } else { &base };
        let path = absolute(base.as_bytes(), text.as_bytes()).unwrap();
        prop_assert_eq!(absolute(b"/", &path), Some(path.clone()));
        prop_assert!(path.starts_with(b"/") && (path.len() == 1 || !path.ends_with(b"/")));
        prop_assert!(path.split(|&byte| byte == b'/').all(|part| part != b".." && part != b"."));
        prop_assert!(absolute(base.as_bytes(), &vec![b'a'; PATH_BYTES_MAX + 1]).is_none());
    }
}
