//! Plans for a replayer: polls in place of counted sleeps, and clock overheads that are charged once.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{
    AT_FDCWD, Action, Argument, CLONE_FILES, CLONE_FS, CLONE_THREAD, CLONE_VM, CallRecord, CallTrace, Clock, Expected,
    Header, O_CREAT, Plan, StartState, TracerCost, Wait, plan,
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

/// Task 1 makes task 2 and sleeps `sleeps` times for 10 ms. Task 2 syncs a file and ends at `end`.
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
    // Three sleeps may be plain pauses; and no task ended during the last of eight.
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

/// Task 2 opens a named pipe for reading, and blocks in that call until task 1 has opened it for writing.
#[test]
fn the_sides_of_a_named_pipe_do_not_wait_for_each_other() {
    let (fifo, write_only) = (0o010_644, 1);
    let here = i64::from(AT_FDCWD);
    let mut records = vec![
        record(1, "mknodat", 10, 1, &[here, 0, fifo], 0),
        record(1, "clone", 20, 1, &[0], 2),
        record(2, "openat", 100, 900, &[here, 0, 0], 3),
        record(1, "openat", 900, 100, &[here, 0, O_CREAT as i64 | write_only], 3),
        record(1, "write", 1_100, 500, &[3, 0, 100_000], 100_000),
        record(2, "read", 1_110, 400, &[3, 0, 200_000], 100_000),
        record(1, "close", 1_700, 1, &[3], 0),
        record(2, "read", 1_510, 200, &[3, 0, 200_000], 0),
    ];
    for named in records.iter_mut().filter(|record| ["mknodat", "openat"].contains(&record.call.name())) {
        named.path = Some(b"/mnt/pipe".to_vec());
    }
    let plan = plan(&trace(records)).unwrap();
    let (writer, reader) = (actions(&plan, 1), actions(&plan, 2));
    for (action, waits) in &writer {
        assert!(waits.is_empty(), "{action:?} waits for {waits:?}");
    }
    // The reader's open waits until the pipe is made; the kernel orders all other steps of the two sides.
    assert!(reader.iter().filter(|(_, waits)| !waits.is_empty()).count() <= 1, "{reader:?}");
    assert!(writer.iter().any(|(action, _)| matches!(action, Action::Send { bytes: 100_000, .. })), "{writer:?}");
    let received = reader.iter().filter(|(action, _)| matches!(action, Action::Receive { .. }));
    assert_eq!(received.count(), 2, "{reader:?}");
}

/// Task 1 makes a pipe and task 2, which writes. The reading end of task 1 is the last one. The write begins at 300 and
/// lasts `wrote`.
fn last_reader(wrote: u64, keeps_copy: bool) -> Plan {
    let mut pipe = record(1, "pipe2", 10, 1, &[0, 0], 0);
    pipe.pipe = Some([5, 6]);
    let mut records = vec![pipe, record(1, "clone", 20, 1, &[0], 2), opened(1, 30), record(1, "close", 40, 1, &[6], 0)];
    if !keeps_copy {
        records.push(record(2, "close", 100, 1, &[5], 0));
    }
    records.push(record(2, "write", 300, wrote, &[6], 5));
    records.push(record(1, "close", 400, 1, &[5], 0));
    plan(&trace(records)).unwrap()
}

#[test]
fn the_last_reader_of_a_pipe_stays_until_the_data_are_written() {
    // No call reads the data, which were written before the end was closed, or meanwhile.
    for wrote in [50, 150] {
        let plan = last_reader(wrote, false);
        let writer = plan.tasks.iter().position(|task| task.id == 2).unwrap() as u32;
        let closes = |(action, _): &&(&Action, &[Wait])| matches!(action, Action::Call { number: 3, .. });
        let (_, waits) = *actions(&plan, 1).iter().rfind(closes).unwrap();
        assert!(matches!(waits, [wait] if wait.task == writer), "{wrote}: {plan:?}");
        let writes = actions(&plan, 2);
        let (_, waits) = writes.iter().find(|(action, _)| matches!(action, Action::Send { .. })).unwrap();
        assert!(waits.is_empty(), "{waits:?}");
    }
    // Another descriptor of the end is open.
    let plan = last_reader(50, true);
    assert!(actions(&plan, 1).iter().all(|(_, waits)| waits.is_empty()), "{plan:?}");
}

#[test]
fn a_wait_for_a_signal_is_a_wait_for_its_sender_or_a_sleep() {
    let records = vec![
        record(1, "clone", 20, 1, &[0], 2),
        opened(2, 100),
        record(2, "pause", 200, 10_000, &[], -4),
        record(2, "fsync", 10_300, 100, &[3], 0),
        record(2, "rt_sigsuspend", 20_000, 5_000, &[], -4),
        record(2, "fsync", 25_100, 100, &[3], 0),
        // FUTEX_WAIT_BITSET_PRIVATE, until a timeout.
        record(2, "futex", 26_000, 7_000, &[0x100, 137, 2], -110),
        record(2, "fsync", 33_100, 100, &[3], 0),
        opened(1, 300),
        record(1, "fsync", 1_000, 8_900, &[3], 0),
        record(1, "kill", 10_000, 1, &[2, 10], 0),
    ];
    let plan = plan(&trace(records)).unwrap();
    let other = plan.tasks.iter().position(|task| task.id == 1).unwrap() as u32;
    let of_sender = &plan.tasks[other as usize].steps;
    let woken = actions(&plan, 2);
    let waits: Vec<Wait> = woken.iter().flat_map(|(_, waits)| waits.iter().copied()).collect();
    let last = of_sender.iter().filter(|step| step.signals).count() as u32;
    assert!(waits.contains(&Wait { task: other, signals: last }), "{woken:?}");
    let lengths: Vec<u64> = woken
        .iter()
        .filter_map(|(action, _)| match action {
            Action::Sleep(time) => Some(time.as_nanos()),
            _ => None,
        })
        .collect();
    assert_eq!(lengths, [5_000, 7_000], "{woken:?}");
}

/// Task 1 makes task 2, whose end interrupts its wait. It makes another call before it asks which child has ended.
fn told_of_a_child(between: &str, is_thread: bool) -> Plan {
    let mut records = vec![
        record(1, "clone", 20, 1, &[0], 2),
        record(1, "rt_sigsuspend", 50, 9_450, &[], -4),
        opened(2, 100),
        record(2, "fsync", 200, 9_000, &[3], 0),
        record(2, "exit_group", 9_500, 1, &[], 0),
        // On an exact clock, all these calls are at the instant of the child's end.
        record(1, between, 9_500, 0, &[1, 2], 0),
        record(1, "wait4", 9_500, 1, &[], 2),
    ];
    for record in &mut records {
        record.group = if is_thread { 1 } else { record.task };
    }
    plan(&trace(records)).unwrap()
}

/// Calls of a shell or of make while its children work.
#[test]
fn a_wait_for_the_signal_of_a_child_is_a_wait_for_its_end() {
    // dash sets its signal mask in between; others write to a log.
    for between in ["rt_sigprocmask", "write"] {
        let plan = told_of_a_child(between, false);
        let child = plan.tasks.iter().position(|task| task.id == 2).unwrap() as u32;
        let parent = actions(&plan, 1);
        assert!(parent.iter().all(|(action, _)| !matches!(action, Action::Sleep(_))), "{between}: {parent:?}");
        let waits: Vec<u32> = parent.iter().flat_map(|(_, waits)| waits.iter().map(|wait| wait.task)).collect();
        assert!(waits.contains(&child), "{between}: {parent:?}");
    }
}

#[test]
fn nobody_is_told_of_the_end_of_a_thread() {
    let plan = told_of_a_child("write", true);
    let parent = actions(&plan, 1);
    assert!(parent.iter().any(|(action, _)| matches!(action, Action::Sleep(_))), "{parent:?}");
}

#[test]
fn advice_on_a_mapped_file_and_synchronous_vectors_are_replayed() {
    const ADDRESS: i64 = 0x7000_0000;
    let mut records = vec![
        opened(1, 100),
        record(1, "mmap", 200, 1, &[0, 8192, 3, 1, 3, 0], ADDRESS),
        record(1, "madvise", 300, 1, &[ADDRESS + 4096, 8192, 1], 0),
        record(1, "madvise", 310, 1, &[0x1000, 4096, 1], 0),
        record(1, "pwritev2", 400, 1, &[3, 0, 2, 500, 0, 2], 700),
        record(1, "preadv2", 500, 1, &[3, 0, 2, -1, 0, 0], 200),
    ];
    records.iter_mut().for_each(|record| record.group = 1);
    let plan = plan(&trace(records)).unwrap();
    let actions = actions(&plan, 1);
    let advice: Vec<_> = actions.iter().filter(|(action, _)| matches!(action, Action::Advise { .. })).collect();
    assert!(
        matches!(advice[..], [(Action::Advise { mapping: 0, offset: 4096, bytes: 4096, advice: 1 }, _)]),
        "{actions:?}"
    );
    let made = calls(&plan, 1);
    let [write, read] = [1, 2].map(|at: usize| (made[at].0, made[at].1[3].clone(), made[at].1[4].clone()));
    // The position and the flags are passed on: -1 is the file's own position.
    let number = |value: u64| Argument::Number(value);
    assert_eq!(write, (328, number(500), number(2)), "pwritev2");
    assert_eq!(read, (327, number(u64::MAX), number(0)), "preadv2");
}

/// Without recorded names, all attributes that were set share one name; attributes that were not found have another.
#[test]
fn an_attribute_that_was_not_there_is_not_the_one_that_was_set() {
    let mut records = vec![
        record(1, "setxattr", 100, 1, &[0, 0, 0, 28], 0),
        record(1, "getxattr", 200, 1, &[0, 0, 0, 0], -61),
        record(1, "getxattr", 300, 1, &[0, 0, 0, 64], 28),
    ];
    records.iter_mut().for_each(|record| record.path = Some(b"/mnt/file".to_vec()));
    let plan = plan(&trace(records)).unwrap();
    let names: Vec<&Argument> = plan.tasks[0]
        .steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::Call { arguments, .. } => Some(&arguments[1]),
            _ => None,
        })
        .collect();
    assert_eq!(names.len(), 3);
    assert_eq!(names[0], names[2]);
    assert_ne!(names[0], names[1]);
}

/// Task 2 appends to the log before, during and after a sync by task 1.
#[test]
fn a_file_may_grow_while_another_task_syncs_it() {
    let named = |mut open: CallRecord| {
        open.path = Some(b"/mnt/log".to_vec());
        open
    };
    let records = vec![
        record(1, "clone", 20, 1, &[0], 2),
        named(opened(1, 100)),
        named(opened(2, 200)),
        record(2, "write", 500, 10, &[3, 0, 100], 100),
        record(1, "fsync", 1_000, 50_000, &[3], 0),
        record(2, "write", 20_000, 10, &[3, 0, 100], 100),
        record(2, "write", 60_000, 10, &[3, 0, 100], 100),
    ];
    let plan = plan(&trace(records)).unwrap();
    let (syncing, writing) = (actions(&plan, 1), actions(&plan, 2));
    let number = |action: &Action| match action {
        Action::Call { number, .. } => Some(*number),
        _ => None,
    };
    let sync = syncing.iter().find(|(action, _)| number(action) == Some(74)).expect("fsync");
    let writer = plan.tasks.iter().position(|task| task.id == 2).unwrap();
    let steps = &plan.tasks[writer].steps;
    let first = steps.iter().position(|step| number(&step.action) == Some(1)).expect("write");
    let before = steps[..=first].iter().filter(|step| step.signals).count() as u32;
    assert_eq!(sync.1, [Wait { task: writer as u32, signals: before }], "the write before, and no later one");
    let writes: Vec<_> = writing.iter().filter(|(action, _)| number(action) == Some(1)).collect();
    assert_eq!(writes.len(), 3);
    assert!(writes.iter().all(|(_, waits)| waits.is_empty()), "{writes:?}");
}

fn at(path: &str, record: CallRecord) -> CallRecord {
    CallRecord { path: Some(path.as_bytes().to_vec()), ..record }
}

/// The calls of a task, with their numbers on x86-64.
fn calls(plan: &Plan, task: u32) -> Vec<(u32, [Argument; 6], Expected)> {
    let made = actions(plan, task).into_iter().filter_map(|(action, _)| match action {
        Action::Call { number, arguments, expected } => Some((*number, arguments.clone(), *expected)),
        _ => None,
    });
    made.collect()
}

const HERE: i64 = AT_FDCWD as i64;
/// Marks words of arguments that were read from memory.
const READ: i64 = i64::MIN;

/// Each descriptor has a slot of its own, regardless of the numbers that the kernel assigns in the replay.
#[test]
fn descriptors_of_threads_that_share_a_table_have_slots_of_their_own() {
    let mut records = vec![record(1, "clone", 10, 1, &[THREAD as i64], 2)];
    for (task, number) in [(1, 3), (2, 4)] {
        let open = CallRecord { result: Some(number), ..opened(task, 100 + task as u64) };
        records.push(open);
        records.push(record(task, "write", 200 + task as u64, 5, &[number, 0, 10], 10));
    }
    // Task 2 takes over the descriptor number of task 1, whose file it already shares.
    records.push(record(2, "dup2", 300, 5, &[4, 3], 3));
    records.push(record(1, "fsync", 400, 5, &[3], 0));
    let plan = plan(&trace(records)).unwrap();
    let (first, second) = (calls(&plan, 1), calls(&plan, 2));
    let slots = [&first, &second].map(|calls| calls[0].2);
    assert_ne!(slots[0], slots[1]);
    let Expected::Descriptor(copied) = second[2].2 else { panic!("{second:?}") };
    assert_eq!(first[2].1[0], Argument::Descriptor(copied), "the number is the copy's now");
    let Expected::Descriptor(replaced) = slots[0] else { panic!("{first:?}") };
    assert_eq!(second[3].1[0], Argument::Descriptor(replaced), "what had the number is closed");
    assert_eq!(plan.slots, 3);
    // The sync waits for `dup2`.
    assert!(actions(&plan, 1).last().is_some_and(|_| actions(&plan, 1)[3].1.len() == 1), "{:?}", actions(&plan, 1));
}

#[test]
fn a_child_gets_its_copy_of_descriptors_when_the_other_threads_have_opened_theirs() {
    let mut records = vec![record(1, "clone", 10, 1, &[THREAD as i64], 2), opened(2, 100)];
    records.push(record(1, "fork", 200, 5, &[], 3));
    records.push(record(3, "fsync", 300, 5, &[3], 0));
    records.push(record(2, "close", 400, 5, &[3], 0));
    let plan = plan(&trace(records)).unwrap();
    let index = |id: u32| plan.tasks.iter().position(|task| task.id == id).unwrap() as u32;
    let forks = actions(&plan, 1).into_iter().filter(|(action, _)| matches!(action, Action::Spawn { .. })).nth(1);
    assert!(forks.is_some_and(|(_, waits)| waits.iter().any(|wait| wait.task == index(2))));
    let closes = &actions(&plan, 2)[1];
    assert!(closes.1.iter().any(|wait| wait.task == index(1)), "{closes:?}");
    assert_eq!(calls(&plan, 3)[0].1[0], calls(&plan, 2)[1].1[0], "the same number in both tables");
}

#[test]
fn calls_of_todays_programs_are_made_again() {
    let clone = |request: i64, more: &[i64]| record(1, "ioctl", 400, 1, &[&[4, request], more].concat(), 0);
    let mut link = at("/proc/self/fd/3", record(1, "linkat", 500, 1, &[HERE, 0, HERE, 0, 0x400], 0));
    link.path_2 = Some(b"/mnt/name".to_vec());
    let mut attribute = at("/mnt/1", record(1, "setxattr", 600, 1, &[0, 0, 0, 10, 1], 0));
    attribute.path_2 = Some(b"security.capability".to_vec());
    let how = &[HERE, 0, 2, 24, READ | 0o600, 8];
    let records = vec![
        at("/mnt", record(1, "openat", 100, 1, &[HERE, 0, 0o20_200_002, 0o600], 3)),
        at("/mnt/to", record(1, "openat2", 200, 1, how, 4)),
        at("/dev/fd/3", record(1, "stat", 300, 1, &[], 0)),
        clone(0x4004_9409, &[3]),
        clone(0x4020_940d, &[READ | 3, 4096, 8192, 12288]),
        record(1, "copy_file_range", 450, 1, &[3, READ | 5, 4, 0, 100, 0], 100),
        link,
        attribute,
    ];
    let plan = plan(&trace(records)).unwrap();
    assert!(plan.skipped.is_empty(), "{:?}", plan.skipped);
    let made = calls(&plan, 1);
    let [from, to] = [0, 1].map(|at: usize| match made[at].2 {
        Expected::Descriptor(slot) => slot,
        other => panic!("{other:?}"),
    });
    let argument = |at: usize, place: usize| made[at].1[place].clone();
    assert_eq!(argument(1, 2), Argument::Words(vec![2, 0o600, 8]));
    assert_eq!(argument(2, 1), Argument::DescriptorPath(from, Vec::new()));
    assert_eq!([argument(3, 0), argument(3, 2)], [to, from].map(Argument::Descriptor));
    assert_eq!(argument(4, 2), Argument::WordsOf(from, 0, vec![0, 4096, 8192, 12288]));
    assert_eq!([argument(5, 1), argument(5, 3)], [Argument::Words(vec![5]), Argument::Number(0)]);
    assert_eq!([argument(6, 1), argument(6, 4)], [Argument::DescriptorPath(from, vec![]), Argument::Number(0x400)]);
    assert_eq!(argument(7, 1), Argument::Path(b"user.security.capability".to_vec()));
    assert_eq!(argument(7, 4), Argument::Number(1), "it must be new");
}

#[test]
fn a_watch_looks_its_file_up() {
    const DONT_FOLLOW: i64 = 0x0200_0000;
    let watch = |path: &str, mask: i64, entry: u64, result: i64| CallRecord {
        path_2: Some(path.as_bytes().to_vec()),
        ..record(1, "inotify_add_watch", entry, 1, &[9, 0, mask], result)
    };
    let records = vec![
        opened(1, 50),
        watch("/mnt/1", 2, 100, 1),
        watch("/mnt/no", DONT_FOLLOW, 200, -2),
        watch("/etc", 2, 300, 2),
    ];
    let plan = plan(&trace(records)).unwrap();
    assert!(plan.skipped.is_empty(), "{:?}", plan.skipped);
    let made = calls(&plan, 1);
    let looked_up = |path: &str, flags: u64, result: i64| {
        let path = Argument::Path(path.as_bytes().to_vec());
        let arguments = [Argument::Number(AT_FDCWD as u64), path, Argument::Scratch, Argument::Number(flags)];
        (262, arguments, Expected::Outcome(result))
    };
    let found: Vec<_> = made[1..]
        .iter()
        .map(|(number, all, expected)| (*number, [0, 1, 2, 3].map(|at: usize| all[at].clone()), *expected))
        .collect();
    assert_eq!(found, [looked_up("/mnt/1", 0, 1), looked_up("/mnt/no", 0x100, -2)]);
}

/// A semaphore in shared memory of two processes, as in Python's process pools, and a private word of each process.
#[test]
fn processes_that_share_a_word_wait_for_each_other() {
    const SHARED: i64 = 0;
    const PRIVATE: i64 = 128;
    for (flag, waits) in [(SHARED, true), (PRIVATE, false)] {
        let records = vec![
            record(1, "fork", 10, 5, &[], 2),
            opened(1, 50),
            record(2, "futex", 100, 200, &[0x1000, flag, 0], 0),
            record(1, "futex", 200, 10, &[0x1000, flag | 1, 1], 1),
            at("/mnt/1", record(2, "unlink", 400, 1, &[0], 0)),
        ];
        let plan = plan(&trace(records)).unwrap();
        let mut steps = plan.tasks.iter().flat_map(|task| &task.steps);
        assert_eq!(steps.any(|step| step.record == 2 && !step.waits.is_empty()), waits, "{:?}", plan.tasks);
    }
}

#[test]
fn a_socket_that_is_bound_to_a_path_makes_a_file() {
    let bound = |path: Option<&str>, entry: u64, result: i64| CallRecord {
        path_2: path.map(|path| path.as_bytes().to_vec()),
        ..record(1, "bind", entry, 1, &[9, 0, 30], result)
    };
    let records = vec![
        opened(1, 50),
        bound(Some("/mnt/socket"), 100, 0),
        bound(Some("/mnt/socket"), 200, -98),
        bound(None, 300, 0),
        bound(Some("/tmp/socket"), 400, 0),
        at("/mnt/socket", record(1, "chmod", 500, 1, &[0, 0o600], 0)),
    ];
    let plan = plan(&trace(records)).unwrap();
    assert!(plan.skipped.is_empty(), "{:?}", plan.skipped);
    let made: Vec<u32> = calls(&plan, 1).iter().map(|call| call.0).collect();
    let (mknodat, newfstatat, fchmodat) = (259, 262, 268);
    assert_eq!(made[1..], [mknodat, newfstatat, fchmodat]);
}

/// An empty path with `AT_EMPTY_PATH` refers to the descriptor.
#[test]
fn calls_with_an_empty_path_are_made_on_the_descriptor() {
    const EMPTY_PATH: i64 = 0x1000;
    let records = vec![
        opened(1, 50),
        at("", record(1, "fchownat", 100, 1, &[3, 0, 7, 8, EMPTY_PATH], 0)),
        at("", record(1, "faccessat2", 200, 1, &[3, 0, 4, EMPTY_PATH], 0)),
        at("", record(1, "readlinkat", 300, 1, &[3, 0, 0, 100], -2)),
        at("", record(1, "utimensat", 400, 1, &[3, 0, 0, EMPTY_PATH], 0)),
    ];
    let plan = plan(&trace(records)).unwrap();
    assert!(plan.skipped.is_empty(), "{:?}", plan.skipped);
    let made = calls(&plan, 1);
    let Expected::Descriptor(slot) = made[0].2 else { panic!("{:?}", made[0]) };
    let (fchownat, fstat, readlinkat, utimensat) = (260, 5, 267, 280);
    assert_eq!([made[1].0, made[2].0, made[3].0, made[4].0], [fchownat, fstat, readlinkat, utimensat]);
    assert!(made[1..].iter().all(|call| call.1[0] == Argument::Descriptor(slot)), "{made:?}");
    assert_eq!(
        made[1].1[1..5],
        [Argument::Path(Vec::new()), Argument::Number(7), Argument::Number(8), Argument::Number(0x1000),]
    );
}

/// tar of Debian 13 makes this call for each link.
#[test]
fn fchmodat2_is_made_by_calls_of_any_kernel() {
    const HERE: i64 = AT_FDCWD as i64;
    const NO_FOLLOW: i64 = 0x100;
    const EMPTY_PATH: i64 = 0x1000;
    let records = vec![
        opened(1, 50),
        at("/mnt/link", record(1, "fchmodat2", 100, 1, &[HERE, 0, 0o777, NO_FOLLOW], -95)),
        at("/mnt/file", record(1, "fchmodat2", 200, 1, &[HERE, 0, 0o600, NO_FOLLOW], 0)),
        at("", record(1, "fchmodat2", 300, 1, &[3, 0, 0o640, EMPTY_PATH], 0)),
    ];
    let plan = plan(&trace(records)).unwrap();
    assert!(plan.skipped.is_empty(), "{:?}", plan.skipped);
    let made = calls(&plan, 1);
    let Expected::Descriptor(slot) = made[0].2 else { panic!("{:?}", made[0]) };
    let (newfstatat, fchmodat) = (262, 268);
    assert_eq!([made[1].0, made[2].0, made[3].0], [newfstatat, fchmodat, fchmodat]);
    assert_eq!((&made[1].1[3], &made[1].2), (&Argument::Number(0x100), &Expected::Outcome(0)));
    assert_eq!(made[2].1[2], Argument::Number(0o600));
    assert_eq!(made[3].1[1], Argument::DescriptorPath(slot, Vec::new()));
}

#[test]
fn a_recording_that_does_not_use_the_device_is_replayed_with_a_warning() {
    let mut trace = trace(vec![record(1, "exit_group", 10, 1, &[0], 0)]);
    let plan = plan(&trace).unwrap();
    assert!(plan.warnings[0].contains("no call of the trace uses a file below /mnt"), "{:?}", plan.warnings);
    trace.header.clock = Clock::Host;
    assert!(chronodisk_trace::calls::plan(&trace).is_err());
}

/// Ten calls with gaps of about 10, 30 and 100 us, and a cost of strace of 10 us.
#[test]
fn the_time_of_strace_is_named_where_it_is_a_fifth_of_the_time_between_calls() {
    for (gap_nanos, part) in [(10_000, Some("99 %")), (30_000, Some("33 %")), (100_000, None)] {
        let records = (1..=10).map(|number| CallRecord {
            user_cpu: None,
            kernel_cpu: None,
            ..record(1, "lseek", number * (gap_nanos + 1_000), 1_000, &[0, 0, 0], 0)
        });
        let mut trace = trace([opened(1, 10)].into_iter().chain(records).collect());
        let micros = |count: u64| Nanos::from_nanos(count * 1_000);
        trace.header.clock = Clock::Host;
        trace.header.tracer =
            Some(TracerCost { inside: micros(3), low: micros(9), estimate: micros(10), high: micros(12) });
        let warnings = plan(&trace).unwrap().warnings;
        let named = warnings.iter().find(|warning| warning.contains("strace's own time"));
        assert_eq!(named.is_some(), part.is_some(), "{warnings:?}");
        assert!(named.is_none_or(|warning| warning.contains(part.unwrap())), "{named:?}");
    }
}

/// Task 2 has no recorded end, and is waiting when its process ends: it closes no descriptor before.
#[test]
fn the_end_of_a_process_ends_its_threads() {
    let mut records = vec![record(1, "clone", 10, 1, &[THREAD as i64], 2)];
    records.push(CallRecord { result: None, exit: None, ..record(2, "futex", 20, 1, &[64, 0], 0) });
    records.push(opened(1, 100));
    records.push(record(1, "write", 200, 1, &[3, 0, 10], 10));
    records.push(record(1, "exit_group", 300, 1, &[0], 0));
    records.iter_mut().for_each(|record| record.group = 1);
    let plan = plan(&trace(records)).unwrap();
    assert!(calls(&plan, 2).is_empty(), "{:?}", calls(&plan, 2));
    let closes = calls(&plan, 1);
    assert!(matches!(closes.last(), Some((3, ..))), "the last thread closes its file: {closes:?}");
    let first = plan.tasks.iter().position(|task| task.id == 1).unwrap() as u32;
    let waits: Vec<Wait> = actions(&plan, 2).iter().flat_map(|(_, waits)| waits.to_vec()).collect();
    assert!(waits.iter().any(|wait| wait.task == first), "{waits:?}");
}
