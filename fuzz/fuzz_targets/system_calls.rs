//! Any records of system calls: refused, or resolved and folded without a panic.
//!
//! A record is a byte for its call, one for its task, one for the time since the record before, two for the lengths of
//! its paths, one for its result, six for its arguments, and the paths.
#![no_main]

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{CallRecord, CallTrace, Clock, Header, Validator, fold, think_times};
use libfuzzer_sys::fuzz_target;

const CALLS: [&str; 32] = [
    "openat",
    "open",
    "creat",
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "chdir",
    "fchdir",
    "pipe2",
    "clone",
    "clone3",
    "vfork",
    "execve",
    "exit",
    "rename",
    "renameat2",
    "link",
    "symlink",
    "symlinkat",
    "mkdir",
    "unlink",
    "read",
    "write",
    "mmap",
    "splice",
    "wait4",
    "utimensat",
    "io_uring_setup",
    "getpid",
];

fuzz_target!(|input: &[u8]| {
    let mut header = Header::new("x86_64", Clock::Exact);
    header.mount = Some("/m".into());
    let mut trace = CallTrace { header, records: Vec::new() };
    let mut validator = Validator::default();
    let (mut rest, mut at) = (input, 0);
    while let Some((&[call, task, time, first, second, result, ref arguments @ ..], later)) =
        rest.split_first_chunk::<12>()
    {
        at += u64::from(time);
        let name = CALLS[usize::from(call) % CALLS.len()].parse().expect("its name");
        let mut record = CallRecord::new(u32::from(task & 7), name, Nanos::from_nanos(at));
        record.arguments = std::array::from_fn(|at| i64::from(arguments[at] as i8) as u64);
        record.result = (result != 0x80).then(|| i64::from(result as i8));
        record.exit = record.result.map(|_| Nanos::from_nanos(at + u64::from(task >> 3)));
        record.pipe = (call & 0x80 != 0).then(|| [i32::from(first), i32::from(second)]);
        let (path, later) = later.split_at(usize::from(first).min(later.len()));
        let (path_2, later) = later.split_at(usize::from(second).min(later.len()));
        record.path = (first > 0).then(|| path.to_vec());
        record.path_2 = (second > 0).then(|| path_2.to_vec());
        rest = later;
        if validator.check(&record).is_ok() {
            trace.records.push(record);
        }
    }
    let folded = fold(&trace);
    assert_eq!(folded.records.iter().map(|record| 1 + record.folded as usize).sum::<usize>(), trace.records.len());
    assert_eq!(think_times(&folded.records).count(), folded.records.len());
    assert_eq!(fold(&folded), folded);
});
