//! Groups and their draws: users that share only read files are separate groups, and copies of a group do not depend on
//! each other.

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{
    AT_FDCWD, Action, CLONE_VFORK, CallRecord, CallTrace, Clock, Draw, Groups, Header, O_CREAT, StartState, Validator,
    compose, draw, groups, plan,
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
/// and reads a common file.
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
    set_times(&mut records);
    let start = StartState { task: 1, directory: Some("/".into()), ..StartState::default() };
    let header = Header { mount: Some("/mnt".into()), start: vec![start], ..Header::new("x86_64", Clock::Exact) };
    CallTrace { header, records }
}

/// Spaces the calls 10 µs apart, one after the other.
fn set_times(records: &mut [CallRecord]) {
    for (at, record) in records.iter_mut().enumerate() {
        record.entry = Nanos::from_micros(at as u64 * 10);
        record.exit = Some(Nanos::from_micros(at as u64 * 10 + 5));
    }
}

/// Users that the shell starts all at once before it waits for them.
fn users_at_once(count: u32) -> CallTrace {
    let mut trace = users(count);
    trace.records.sort_by_key(|record| record.task == 1 && record.call.name() == "wait4");
    set_times(&mut trace.records);
    trace
}

fn valid(trace: &CallTrace) {
    let mut validator = Validator::default();
    trace.records.iter().for_each(|record| validator.check(record).unwrap());
}

/// All users print to the pipe that is the program's standard output.
#[test]
fn printing_to_one_pipe_does_not_join_users_and_reading_it_does() {
    let printing = |user: u32| call(100 + user * 10, "write", &[1, 0, 3], "", 3);
    let mut trace = users(3);
    trace.header.start[0].descriptors = [(0, "pipe:[17]".to_owned()), (1, "pipe:[17]".to_owned())].into();
    let end_of = |trace: &CallTrace, user| trace.records.iter().rposition(|it| it.task == 100 + user * 10).unwrap() + 1;
    for user in 0..3 {
        let place = end_of(&trace, user);
        trace.records.insert(place, printing(user));
    }
    set_times(&mut trace.records);
    assert_eq!(groups(&trace).unwrap().groups.len(), 3);
    let place = end_of(&trace, 2);
    trace.records.insert(place, call(120, "read", &[0, 0, 9], "", 9));
    set_times(&mut trace.records);
    assert_eq!(groups(&trace).unwrap().groups.len(), 1);
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
    // A draw with one user twice and without the other one.
    let drawn = (0..64).map(|number| draw(&trace, &found, Draw { seed: 7, number, ..Draw::default() }).unwrap());
    let drawn =
        drawn.into_iter().find(|drawn| drawn.records.iter().all(|made| ![110, 111].contains(&made.task))).unwrap();
    valid(&drawn);
    let of = |task: u32| -> Vec<String> {
        let own = drawn.records.iter().filter(|made| made.task == task);
        own.filter_map(|made| Some(String::from_utf8(made.path.clone()?).unwrap())).collect()
    };
    assert_eq!(of(100), ["/mnt/shared", "u0", "/mnt/u0"]);
    assert_eq!(of(101), ["../u0/out", "b"]);
    // The copies' ids are above the greatest recorded one.
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

#[test]
fn copies_begin_after_their_maker_and_are_awaited() {
    let mut trace = users(2);
    // A user's first call is before the return of the call that made the user, and the shell uses waitid.
    let (made, first, waits) = (1, 2, 12);
    trace.records[made].exit = trace.records[first].exit;
    let named = |name: &str, arguments: [u64; 6]| CallRecord { arguments, ..call(1, name, &[], "", 0) };
    let times = (trace.records[waits].entry, trace.records[waits].exit);
    let waitid = CallRecord { entry: times.0, exit: times.1, ..named("waitid", [1, 100, 0, 0, 0, 0]) };
    trace.records[waits] = waitid;
    let found = groups(&trace).unwrap();
    let drawn = compose(&trace, &found, &[3, 1]).unwrap();
    valid(&drawn);
    let plan = plan(&drawn).unwrap();
    let first: Vec<u32> = plan.tasks.iter().filter(|task| task.is_first).map(|task| task.id).collect();
    assert_eq!((first, plan.tasks.len()), (vec![1], 9), "only the shell begins by itself");
    let awaited = drawn.records.iter().filter(|made| made.call.name() == "waitid").map(|made| made.arguments[1]);
    assert_eq!(awaited.collect::<Vec<u64>>(), [100, 112, 114]);
}

const JITTER: Nanos = Nanos::from_micros(1_000_000);

/// Records of a task without sleeps, with times removed.
fn calls_of(trace: &CallTrace, task: u32) -> Vec<CallRecord> {
    let own = trace.records.iter().filter(|record| record.task == task && record.call.name() != "nanosleep");
    own.map(|record| CallRecord { entry: Nanos::ZERO, exit: None, ..record.clone() }).collect()
}

/// Tasks with a sleep, and its duration.
fn sleeps(trace: &CallTrace) -> Vec<(u32, Nanos)> {
    let sleeps = trace.records.iter().filter(|record| record.call.name() == "nanosleep");
    sleeps.map(|record| (record.task, record.exit.unwrap().saturating_sub(record.entry))).collect()
}

fn first_entry(trace: &CallTrace, task: u32) -> Nanos {
    let own = trace.records.iter().find(|record| record.task == task && record.call.name() != "nanosleep");
    own.unwrap().entry
}

#[test]
fn each_copy_begins_later_by_a_time_of_its_own() {
    let trace = users_at_once(6);
    let found = groups(&trace).unwrap();
    let draw_with = |jitter| draw(&trace, &found, Draw { seed: 3, number: 1, jitter }).unwrap();
    let (plain, delayed) = (draw_with(Nanos::ZERO), draw_with(JITTER));
    valid(&delayed);
    let drawn = groups(&plain).unwrap().groups;
    assert!(drawn.iter().any(|tasks| tasks[0] > 151), "a user is drawn twice: {drawn:?}");
    assert_eq!(groups(&delayed).unwrap().groups, drawn);
    let slept = sleeps(&delayed);
    let mut sleepers: Vec<u32> = slept.iter().map(|(task, _)| *task).collect();
    sleepers.sort_unstable();
    assert_eq!(sleepers, drawn.iter().map(|tasks| tasks[0]).collect::<Vec<u32>>(), "the first task of each copy");
    for &(task, time) in &slept {
        assert!(time < JITTER, "{slept:?}");
        assert_eq!(first_entry(&delayed, task), first_entry(&plain, task).saturating_add(time));
        assert_eq!(first_entry(&delayed, task + 1), first_entry(&plain, task + 1).saturating_add(time), "its child");
    }
    let mut times: Vec<Nanos> = slept.iter().map(|(_, time)| *time).collect();
    times.sort_unstable();
    times.dedup();
    assert_eq!(times.len(), 6, "copies of one group differ: {slept:?}");
    // The shell starts all users as before, and waits for the last one.
    let of_shell = |trace: &CallTrace, name: &str| -> Vec<Nanos> {
        let own = trace.records.iter().filter(|record| record.task == 1 && record.call.name() == name);
        own.map(|record| record.exit.unwrap()).collect()
    };
    assert_eq!(of_shell(&delayed, "clone"), of_shell(&plain, "clone"));
    let later = of_shell(&plain, "wait4").last().unwrap().saturating_add(*times.last().unwrap());
    assert_eq!(of_shell(&delayed, "wait4").last(), Some(&later));
    // A replay sleeps as long as the record says, without waiting for other tasks.
    let plan = plan(&delayed).unwrap();
    let of_plan = plan.tasks.iter().filter_map(|task| match task.steps[0].action {
        Action::Sleep(time) => Some((task.id, time)),
        _ => None,
    });
    let mut of_plan: Vec<(u32, Nanos)> = of_plan.collect();
    let mut slept = slept;
    of_plan.sort_unstable();
    slept.sort_unstable();
    assert_eq!(of_plan, slept);
}

#[test]
fn users_who_follow_each_other_are_delayed_with_each_other() {
    let trace = users(3);
    let found = groups(&trace).unwrap();
    let draw_with = |jitter| draw(&trace, &found, Draw { seed: 5, number: 0, jitter }).unwrap();
    let (plain, delayed) = (draw_with(Nanos::ZERO), draw_with(JITTER));
    let mut slept = sleeps(&delayed);
    slept.sort_by_key(|(task, _)| first_entry(&delayed, *task));
    // Copies of one user begin together. The next user begins once all of them have ended.
    let (mut begun, mut before) = (Nanos::ZERO, Nanos::ZERO);
    let mut recorded = first_entry(&plain, slept[0].0);
    for (task, time) in slept {
        if first_entry(&plain, task) > recorded {
            (recorded, before) = (first_entry(&plain, task), begun);
        }
        begun = begun.max(before.saturating_add(time));
        let expected = first_entry(&plain, task).saturating_add(before).saturating_add(time);
        assert_eq!(first_entry(&delayed, task), expected, "task {task}");
    }
}

#[test]
fn a_child_for_which_its_maker_stands_still_is_delayed_once_it_lets_that_go_on() {
    let mut trace = users_at_once(2);
    for record in &mut trace.records {
        match (record.task, record.call.name()) {
            (1, "clone") => record.arguments[0] = CLONE_VFORK,
            (100 | 110, "openat") => *record = call(record.task, "execve", &[], "/bin/user", 0),
            _ => {}
        }
    }
    set_times(&mut trace.records);
    let found = groups(&trace).unwrap();
    let draw = |jitter| draw(&trace, &found, Draw { seed: 1, number: 0, jitter }).unwrap();
    let (plain, delayed) = (draw(Nanos::ZERO), draw(JITTER));
    valid(&delayed);
    let slept = sleeps(&delayed);
    assert_eq!(slept.len(), 2);
    for (task, _) in slept {
        assert_eq!(first_entry(&delayed, task), first_entry(&plain, task), "the execution");
        let names = delayed.records.iter().filter(|record| record.task == task).map(|record| record.call.name());
        assert_eq!(names.take(3).collect::<Vec<&str>>(), ["execve", "nanosleep", "mkdir"]);
    }
}

#[test]
fn a_delay_never_lets_two_tasks_have_one_id() {
    let mut records = vec![call(1, "chdir", &[], "/mnt", 0)];
    for (other, name) in [(200u32, "/mnt/a"), (201, "/mnt/b")] {
        records.extend([
            call(1, "clone", &[0], "", 100),
            call(100, "mkdir", &[], name, 0),
            call(100, "exit_group", &[], "", 0),
            call(1, "wait4", &[], "", 100),
            call(1, "clone", &[0], "", other.into()),
            call(other, "mkdir", &[], "/mnt/other", 0),
        ]);
    }
    let header = users(1).header;
    let mut drawn = |waits: bool| {
        records.retain(|record| waits || record.call.name() != "wait4");
        set_times(&mut records);
        let trace = CallTrace { header: header.clone(), records: records.clone() };
        let found = groups(&trace).unwrap();
        let all = (0..20).map(|seed| draw(&trace, &found, Draw { seed, number: 0, jitter: JITTER }));
        all.collect::<Result<Vec<CallTrace>, String>>()
    };
    drawn(true).unwrap().iter().for_each(valid);
    let refused = drawn(false).unwrap_err();
    assert!(refused.contains("some ids were used twice"), "{refused}");
}

proptest! {
    #[test]
    fn draws_repeat_are_valid_and_have_as_many_groups(count in 1..12u32, seed in any::<u64>(), number in 0..9u64) {
        let trace = users(count);
        let found = groups(&trace).unwrap();
        let plain = Draw { seed, number, jitter: Nanos::ZERO };
        let drawn = draw(&trace, &found, plain).unwrap();
        valid(&drawn);
        prop_assert_eq!(drawn.records.len(), trace.records.len());
        prop_assert_eq!(groups(&drawn).unwrap().groups.len(), count as usize);
        prop_assert_eq!(&draw(&trace, &found, plain).unwrap(), &drawn);
        let jitter = Draw { jitter: JITTER, ..plain };
        let delayed = draw(&trace, &found, jitter).unwrap();
        valid(&delayed);
        prop_assert_eq!(&draw(&trace, &found, jitter).unwrap(), &delayed);
        for record in &drawn.records {
            prop_assert_eq!(calls_of(&drawn, record.task), calls_of(&delayed, record.task));
        }
    }
}
