//! Files of system-call traces: written traces read back equal, and damage is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use chronodisk_report::{ReportError, read_calls, write_calls};
use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{CallRecord, CallTrace, Clock, Header, StartState, fold, groups, plan};
use proptest::prelude::*;

fn trace(records: Vec<CallRecord>) -> CallTrace {
    let mut header = Header::new("x86_64", Clock::Host);
    header.mount = Some("/mnt".into());
    header.lost_events = 3;
    header.count_incomplete("unreadable-path");
    header.start = vec![StartState { task: 7, directory: Some("/ü".into()), descriptors: [(0, "/x".into())].into() }];
    CallTrace { header, records }
}

fn any_record() -> impl Strategy<Value = CallRecord> {
    // A range of a second for all records, although their instants are only microseconds apart.
    let known = || proptest::option::of(0..10_000_000_u64);
    let path = || proptest::option::of(proptest::collection::vec(1..=255u8, 0..20));
    let numbers = (1..50u32, 1..50u32, any::<[u64; 6]>(), proptest::option::of(-4095..100i64), any::<u32>());
    (numbers, path(), path(), known(), known(), proptest::option::of([0..9i32, 0..9i32])).prop_map(
        |((task, group, arguments, result, folded), path, path_2, user, kernel, pipe)| {
            let call = if task % 2 == 0 { "openat" } else { "unheard_of" };
            let mut record = CallRecord::new(task, call.parse().unwrap(), Nanos::ZERO);
            (record.group, record.arguments, record.result, record.folded) = (group, arguments, result, folded);
            (record.path, record.path_2, record.pipe) = (path, path_2, pipe);
            (record.user_cpu, record.kernel_cpu) = (user.map(Nanos::from_nanos), kernel.map(Nanos::from_nanos));
            record
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_written_is_read(mut records in proptest::collection::vec(any_record(), 0..40)) {
        for (at, record) in records.iter_mut().enumerate() {
            record.entry = Nanos::from_nanos(at as u64 * 5);
            record.exit = record.result.map(|_| Nanos::from_nanos(at as u64 * 5 + 2));
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("calls.parquet");
        let trace = trace(records);
        write_calls(&file, &trace).unwrap();
        prop_assert_eq!(read_calls(&file).unwrap(), trace);
    }

    #[test]
    fn damage_is_an_error_or_another_valid_trace(
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("calls.parquet");
        let mut record = CallRecord::new(1, "open".parse().unwrap(), Nanos::ZERO);
        record.path = Some(b"/mnt/file".to_vec());
        write_calls(&file, &trace(vec![record; 20])).unwrap();
        let mut bytes = fs::read(&file).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = value;
        if cut {
            bytes.truncate(at);
        }
        fs::write(&file, bytes).unwrap();
        if let Ok(trace) = read_calls(&file) {
            prop_assert!(write_calls(&folder.path().join("again"), &trace).is_ok());
        }
    }
}

#[test]
fn a_trace_that_could_not_be_recorded_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls.parquet");
    let record = CallRecord::new(0, "open".parse().unwrap(), Nanos::ZERO);
    let error = write_calls(&file, &trace(vec![record])).unwrap_err();
    assert!(matches!(error, ReportError::Column { column: "task", row: Some(0), .. }), "{error}");
    assert!(error.to_string().contains("calls.parquet"), "{error}");
    assert!(!file.exists());
}

/// In the committed trace of the case study, user N works in /mnt/uN and below it.
#[test]
fn the_groups_of_the_committed_trace_are_its_users() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/simulation_1994/users.calls");
    let trace = read_calls(&file).unwrap();
    let found = groups(&trace).unwrap();
    assert_eq!(found.groups.len(), 20);
    let group_of: BTreeMap<u32, usize> = found
        .groups
        .iter()
        .enumerate()
        .flat_map(|(group, tasks)| tasks.iter().map(move |task| (*task, group)))
        .collect();
    let mut users: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for record in &trace.records {
        let Some(group) = group_of.get(&record.task) else { continue };
        for path in [&record.path, &record.path_2].into_iter().flatten() {
            let path = String::from_utf8_lossy(path);
            let user = path.trim_start_matches("/mnt/").split('/').next().unwrap_or_default();
            if user.strip_prefix('u').is_some_and(|number| number.parse::<u32>().is_ok()) {
                users.entry(*group).or_default().insert(user.to_owned());
            }
        }
    }
    assert!(users.values().all(|names| names.len() == 1), "{users:?}");
    assert_eq!(users.len(), 20);
    assert_eq!(users.values().flatten().collect::<BTreeSet<_>>().len(), 20);
}

/// Folding sets unused arguments to zero: with any other values, the replay is the same.
#[test]
fn the_committed_trace_is_small_because_it_keeps_only_arguments_with_a_meaning() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/simulation_1994/users.calls");
    assert!(fs::metadata(&file).unwrap().len() < 3_000_000);
    let folded = read_calls(&file).unwrap();
    assert!(fold(&folded) == folded, "the trace is as today's build folds it");
    let mut without_meaning: BTreeMap<String, [bool; 6]> = BTreeMap::new();
    let mut filled = folded.clone();
    for (at, record) in filled.records.iter_mut().enumerate() {
        let zeroed = without_meaning.entry(record.call.name().to_owned()).or_insert_with(|| {
            let all = CallRecord { arguments: [u64::MAX; 6], ..record.clone() };
            fold(&CallTrace { header: folded.header.clone(), records: vec![all] }).records[0]
                .arguments
                .map(|it| it == 0)
        });
        for (argument, zeroed) in record.arguments.iter_mut().zip(zeroed) {
            if *zeroed {
                *argument = 0x7f00_0000_0000 + at as u64 * 8;
            }
        }
    }
    assert!(filled != folded);
    assert!(fold(&filled) == folded);
    assert!(plan(&filled).unwrap() == plan(&folded).unwrap());
}
