//! Groups and their draws: users that depend on nothing but shared files are apart, and copies keep to themselves.

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{
    AT_FDCWD, CallRecord, CallTrace, Clock, Groups, Header, O_CREAT, StartState, Validator, draw, groups,
};
use proptest::prelude::*;

fn call(task: u32, name: &str, arguments: &[i64], path: &str, result: i64) -> CallRecord {
    let mut made = CallRecord::new(task, name.parse().unwrap(), Nanos::ZERO);
    for (place, &argument) in arguments.iter().enumerate() {
        made.arguments[place] = argument as u64;
    }
    made.path = (!path.is_empty()).then(|| path.as_bytes().to_vec());
    made.result = Some(result);
    made
}

/// A shell (task 1) starts users. Each makes a directory, starts a compiler that works in it through a relative path,
/// and reads a file that is there for all.
fn users(count: u32) -> CallTrace {
    let at = i64::from(AT_FDCWD);
    let mut records = vec![call(1, "chdir", &[], "/mnt", 0)];
    for user in 0..count {
        let (shell, compiler) = (100 + user * 10, 101 + user * 10);
        let mut pipe = call(shell, "pipe2", &[0, 0], "", 0);
        pipe.pipe = Some([8, 9]);
        records.extend([
            call(1, "clone", &[0], "", shell.into()),
            call(shell, "openat", &[at, 0, 0], "/mnt/shared", 3),
            call(shell, "mkdir", &[], &format!("u{user}"), 0),
            call(shell, "chdir", &[], &format!("/mnt/u{user}"), 0),
            pipe,
            call(shell, "clone", &[0], "", compiler.into()),
            call(compiler, "openat", &[at, 0, (O_CREAT | 1) as i64], &format!("../u{user}/out"), 4),
            call(compiler, "openat", &[at, 0, (O_CREAT | 1) as i64], "b", 5),
            call(compiler, "write", &[9, 0, 3], "", 3),
            call(shell, "read", &[8, 0, 3], "", 3),
            call(shell, "wait4", &[], "", compiler.into()),
            call(1, "wait4", &[], "", shell.into()),
        ]);
    }
    for (at, record) in records.iter_mut().enumerate() {
        record.entry = Nanos::from_micros(at as u64 * 10);
        record.exit = Some(Nanos::from_micros(at as u64 * 10 + 5));
    }
    let start = StartState { task: 1, directory: Some("/".into()), ..StartState::default() };
    let header = Header { mount: Some("/mnt".into()), start: vec![start], ..Header::new("x86_64", Clock::Exact) };
    CallTrace { header, records }
}

fn valid(trace: &CallTrace) {
    let mut validator = Validator::default();
    trace.records.iter().for_each(|record| validator.check(record).unwrap());
}

#[test]
fn groups_are_exactly_the_users() {
    let found: Groups = groups(&users(20)).unwrap();
    let expected: Vec<Vec<u32>> = (0..20).map(|user| vec![100 + user * 10, 101 + user * 10]).collect();
    assert_eq!((found.groups, found.spine), (expected, vec![1]));
}

#[test]
fn what_one_makes_and_another_uses_joins_them() {
    let mut trace = users(3);
    let last = trace.records.len() as u64 * 10;
    let mut reads = call(120, "stat", &[], "/mnt/u0/b", 0);
    reads.entry = Nanos::from_micros(last);
    reads.exit = Some(reads.entry);
    trace.records.push(reads);
    assert_eq!(groups(&trace).unwrap().groups, [vec![100, 101, 120, 121], vec![110, 111]]);
    trace.header.mount = Some("/data".into());
    assert!(groups(&trace).unwrap_err().starts_with("no call of the trace uses a file below /data"));
    trace.header.mount = None;
    assert!(groups(&trace).unwrap_err().contains("--mount"));
}

#[test]
fn copies_have_fresh_ids_and_names_of_their_own() {
    let trace = users(2);
    let found = groups(&trace).unwrap();
    // One user twice, the other one not at all.
    let drawn = (0..64).map(|number| draw(&trace, &found, 7, number).unwrap());
    let drawn =
        drawn.into_iter().find(|drawn| drawn.records.iter().all(|made| ![110, 111].contains(&made.task))).unwrap();
    valid(&drawn);
    let of = |task: u32| -> Vec<String> {
        let own = drawn.records.iter().filter(|made| made.task == task);
        own.filter_map(|made| Some(String::from_utf8(made.path.clone()?).unwrap())).collect()
    };
    assert_eq!(of(100), ["/mnt/shared", "u0", "/mnt/u0"]);
    assert_eq!(of(101), ["../u0/out", "b"]);
    // Ids above the greatest recorded one.
    assert_eq!(of(112), ["/mnt/shared", "u0+1", "/mnt/u0+1"]);
    assert_eq!(of(113), ["../u0+1/out", "b"]);
    let children: Vec<i64> = drawn
        .records
        .iter()
        .filter(|made| made.task == 1)
        .filter_map(|made| made.result)
        .filter(|&id| id > 0)
        .collect();
    assert_eq!(children, [100, 112, 100, 112]);
    let results: Vec<i64> =
        drawn.records.iter().filter(|made| made.task == 112).filter_map(|made| made.result).collect();
    assert_eq!(results, [3, 0, 0, 0, 113, 3, 113]);
    let again = groups(&drawn).unwrap();
    assert_eq!((again.groups, again.spine), (vec![vec![100, 101], vec![112, 113]], vec![1]));
}

proptest! {
    #[test]
    fn draws_repeat_are_valid_and_have_as_many_groups(count in 1..12u32, seed in any::<u64>(), number in 0..9u64) {
        let trace = users(count);
        let found = groups(&trace).unwrap();
        let drawn = draw(&trace, &found, seed, number).unwrap();
        valid(&drawn);
        prop_assert_eq!(drawn.records.len(), trace.records.len());
        prop_assert_eq!(groups(&drawn).unwrap().groups.len(), count as usize);
        prop_assert_eq!(draw(&trace, &found, seed, number).unwrap(), drawn);
    }
}
