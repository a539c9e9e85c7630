//! What a replayer is told to do: polls in place of counted sleeps, and constants of a clock that are charged once.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{
    AT_FDCWD, Action, CLONE_FILES, CLONE_FS, CLONE_THREAD, CLONE_VM, CallRecord, CallTrace, Clock, Header, O_CREAT,
    Plan, StartState, Wait, plan,
};

const THREAD: u64 = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_THREAD;

fn record(task: u32, call: &str, at: u64, took: u64, arguments: &[i64], result: i64) -> CallRecord {
    let mut made = CallRecord::new(task, call.parse().unwrap(), Nanos::from_nanos(at));
    for (place, &argument) in arguments.iter().enumerate() {
        made.arguments[place] = argument as u64;
    }
    made.result = Some(result);
    made.exit = Some(Nanos::from_nanos(at + took));
    (made.user_cpu, made.kernel_cpu) = (Some(Nanos::ZERO), Some(Nanos::ZERO));
    made
}

fn trace(mut records: Vec<CallRecord>) -> CallTrace {
    records.sort_by_key(|record| record.entry);
    let start = StartState { task: 1, directory: Some("/".into()), descriptors: BTreeMap::new() };
    let header = Header { mount: Some("/mnt".into()), start: vec![start], ..Header::new("x86_64", Clock::Exact) };
    CallTrace { header, records }
}

fn opened(task: u32, at: u64) -> CallRecord {
    let mut open = record(task, "openat", at, 1, &[i64::from(AT_FDCWD), 0, O_CREAT as i64], 3);
    open.path = Some(format!("/mnt/{task}").into_bytes());
    open
}

/// Task 1 makes task 2 and sleeps `sleeps` times for 10 ms; task 2 syncs a file and ends at `end`.
fn waiting(sleeps: u64, end: u64, is_thread: bool) -> Plan {
    let flags = if is_thread { THREAD as i64 } else { 0 };
    let mut records = vec![record(1, "clone", 10, 1, &[flags], 2), opened(2, 100)];
    records.push(record(2, "fsync", 200, end - 300, &[3], 0));
    records.push(record(2, "exit", end, 1, &[], 0));
    for sleep in 0..sleeps {
        records.push(record(1, "clock_nanosleep", 1_000 + sleep * 10_001_000, 10_000_000, &[], 0));
    }
    records.push(record(1, "wait4", 1_000 + sleeps * 10_001_000, 1, &[], 2));
    records.push(record(1, "exit_group", 2_000 + sleeps * 10_001_000, 1, &[], 0));
    for record in &mut records {
        record.group = if is_thread { 1 } else { record.task };
    }
    plan(&trace(records)).unwrap()
}

fn actions(plan: &Plan, task: u32) -> Vec<(&Action, &[Wait])> {
    let task = plan.tasks.iter().find(|planned| planned.id == task).unwrap();
    task.steps.iter().map(|step| (&step.action, step.waits.as_slice())).collect()
}

#[test]
fn sleeps_until_another_task_ends_are_polls() {
    for is_thread in [true, false] {
        let plan = waiting(6, 50_900_000, is_thread);
        let actions = actions(&plan, 1);
        let other = plan.tasks.iter().position(|task| task.id == 2).unwrap() as u32;
        let polls: Vec<_> = actions.iter().filter(|(action, _)| matches!(action, Action::Poll(_))).collect();
        assert!(
            matches!(polls[..], [(Action::Poll(period), [wait])]
            if period.as_nanos() == 10_000_000 && wait.task == other),
            "{actions:?}"
        );
        assert!(actions.iter().all(|(action, _)| !matches!(action, Action::Sleep(_))), "{actions:?}");
        let last = plan.tasks[other as usize].steps.iter().filter(|step| step.signals).count() as u32;
        assert_eq!(polls[0].1[0].signals, last, "the end is the last signal");
    }
}

#[test]
fn a_loop_that_finds_out_late_sleeps_once_more() {
    let plan = waiting(7, 50_900_000, true);
    let kinds: Vec<_> = actions(&plan, 1).into_iter().map(|(action, _)| action.clone()).collect();
    let period = Nanos::from_nanos(10_000_000);
    let poll = kinds.iter().position(|action| *action == Action::Poll(period)).unwrap();
    let after = kinds[poll..].iter().filter(|action| **action == Action::Sleep(period)).count();
    assert_eq!(after, 1, "{kinds:?}");
}

#[test]
fn other_sleeps_stay_sleeps() {
    // Three may be pauses; and nobody has ended during the last of eight.
    for (sleeps, end) in [(3, 25_000_000), (8, 40_500_000)] {
        let plan = waiting(sleeps, end, true);
        let actions = actions(&plan, 1);
        let slept = actions.iter().filter(|(action, _)| **action == Action::Sleep(Nanos::from_nanos(10_000_000)));
        assert_eq!(slept.count() as u64, sleeps, "{actions:?}");
        assert!(actions.iter().all(|(action, _)| !matches!(action, Action::Poll(_))), "{actions:?}");
    }
}

#[test]
fn constants_of_a_clock_are_charged_for_calls_that_are_left_out_alone() {
    let constant = Some(Nanos::from_nanos(256));
    let mut clock = record(1, "clock_gettime", 10, 1, &[], 0);
    let mut open = opened(1, 400);
    (clock.kernel_cpu, open.kernel_cpu, open.user_cpu) = (constant, constant, Some(Nanos::from_nanos(20)));
    let mut trace = trace(vec![clock, open, record(1, "fsync", 900, 1, &[3], 0)]);
    for (free_computing, kernel) in [(false, 256), (true, 0)] {
        trace.header.free_computing = free_computing;
        let plan = plan(&trace).unwrap();
        let step = &plan.tasks[0].steps[0];
        assert!(matches!(step.action, Action::Call { .. }), "{step:?}");
        assert_eq!((step.think.as_nanos(), step.kernel.as_nanos()), (256 + 20, kernel));
    }
}
