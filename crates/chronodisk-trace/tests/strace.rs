//! Output of strace as a trace: a committed sample, lines that are wrong, any bytes, and a real strace.

use std::process::Command;

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{
    CallRecord, CallTrace, Clock, O_CREAT, Object, Resolver, Think, Validator, read_strace, resolution_order,
    think_times,
};
use proptest::prelude::*;

const SAMPLE: &str = include_str!("strace/shell.txt");

fn read(text: &str, mount: Option<&str>) -> Result<CallTrace, String> {
    read_strace(text.as_bytes(), "FILE", mount, "x86_64").map_err(|error| error.to_string())
}

fn files(trace: &CallTrace) -> Vec<String> {
    let mut resolver = Resolver::new(&trace.header);
    let mut files = Vec::new();
    for index in resolution_order(&trace.records) {
        for used in resolver.apply(&trace.records[index]).objects {
            match used.object {
                Object::File(path) => files.push(String::from_utf8(path).unwrap()),
                Object::Pipe(pipe) => files.push(format!("pipe {pipe}")),
            }
        }
    }
    files
}

fn valid(trace: &CallTrace) {
    trace.header.validate().unwrap();
    let mut validator = Validator::default();
    trace.records.iter().for_each(|record| validator.check(record).unwrap());
}

#[test]
fn a_sample_is_read_with_its_tasks_paths_and_instants() {
    let trace = read(SAMPLE, Some("/mnt")).unwrap();
    valid(&trace);
    let names: Vec<String> = trace.records.iter().map(|made| format!("{} {}", made.task, made.call)).collect();
    let expected = "3102 execve,3102 openat,3102 ioctl,3102 write,3102 pipe2,3102 clone,3103 write,3102 read,\
        3102 wait4,3103 exit_group,3102 rename,3102 clone3,3104 fsync,3104 nanosleep";
    assert_eq!(names.join(","), expected);
    assert_eq!((trace.header.clock, trace.header.lost_events), (Clock::Host, 0));
    assert!(trace.header.is_complete(), "{:?}", trace.header);
    let open: &CallRecord = &trace.records[1];
    assert_eq!(open.path.as_deref(), Some("a\n\"bü".as_bytes()));
    assert_eq!((open.result, open.arguments[2]), (Some(3), 0o1 | O_CREAT | 0o1000));
    assert_eq!((open.entry, open.exit), (Nanos::from_micros(886), Some(Nanos::from_micros(901))));
    assert_eq!((open.user_cpu, open.kernel_cpu), (None, None));
    assert_eq!(trace.records[2].result, Some(-25));
    assert_eq!((trace.records[3].arguments[2], trace.records[4].pipe), (100, Some([5, 6])));
    // The restarted wait is one call, from its first entry on; instants are rounded, so calls do not overlap.
    let wait = &trace.records[8];
    assert_eq!((wait.entry, wait.result), (Nanos::from_micros(10_283), Some(3103)));
    assert_eq!(wait.exit, Some(Nanos::from_micros(10_774)));
    assert_eq!(trace.records[7].exit, Some(wait.entry));
    assert_eq!(trace.records.iter().map(|made| made.group).filter(|&group| group == 3103).count(), 2);
    assert!(trace.records[12..].iter().all(|made| made.group == 3102));
    assert_eq!((trace.records[13].result, trace.records[13].exit), (None, None));
    let think: Vec<Think> = think_times(&trace.records).collect();
    assert_eq!(think[1], Think::Gap(Nanos::from_micros(638)));
    let start = &trace.header.start[0];
    assert_eq!((start.task, start.directory.as_deref()), (3102, Some("/mnt/u")));
    assert_eq!(start.descriptors, [(0, "/dev/null".to_owned()), (1, "/mnt/out".to_owned())].into());
    let expected = [
        "/usr/bin/bash",
        "/mnt/u/a\n\"bü",
        "/dev/null",
        "/mnt/out",
        "pipe 1",
        "pipe 1",
        "/mnt/u/old",
        "/mnt/u/new",
        "/mnt/u/a\n\"bü",
    ];
    assert_eq!(files(&trace), expected);
}

#[test]
fn wrong_lines_are_refused_with_their_place() {
    let refuse = |text: &str, expected: &str| {
        let error = read(text, None).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    };
    refuse("", "FILE: no system call; expected output of strace -f -ttt -T -yy -o FILE");
    refuse("1795480717.290369 getpid() = 1 <0.1>\n", "FILE:1:1: no task id; expected output of strace with -f");
    refuse("12 getpid() = 1\n", "FILE:1:4: no time in seconds since 1970; expected output of strace with -ttt");
    refuse("12 1700000017.1 getpid() = 1\n", "FILE:1:29: no duration at the end; strace lacks -T");
    refuse("12 1700000017.1 getpid(\n", "FILE:1:23: the arguments of getpid have no end");
    refuse("12 1700000017.1 open(\"a\", 0) = -1 EWHAT (?) <0.1>\n", "FILE:1:35: unknown error 'EWHAT'");
    refuse("99999999 1700000017.1 getpid() = 1 <0.1>\n", "FILE:1:1: task id is 99999999");
    let late = "12 1700000017.1 getpid() = 1 <0.1>\n12 2700000017.1 getpid() = 1 <0.1>\n";
    refuse(late, "FILE:2:4: 1000000000000000000 ns after the first line; expected at most a year");
    refuse("12 1700000017.1 getpid() = 1 <1000000000.1>\n", "FILE:1:44: the call returns more than a year after");
    let error = read(SAMPLE, Some("/data")).unwrap_err();
    assert!(error.starts_with("FILE: no call uses a file below /data"), "{error}");
    assert!(read(SAMPLE, Some("data")).unwrap_err().contains("'data' is not an absolute path"));
}

#[test]
fn times_since_the_line_before_are_refused_and_passed_over_beside_instants() {
    let relative = [
        "100      0.000000 openat(AT_FDCWD, \"/m/f\", O_RDONLY) = 3 <0.000010>\n",
        "[pid  100]     0.000100 close(3) = 0 <0.000010>\n",
        "100 86400.000000 close(3) = 0 <0.000010>\n",
        // An instant, and then none: two outputs in one file.
        "7 1700000001.5 close(3) = 0 <0.1>\n7 0.2 close(3) = 0 <0.1>\n",
    ];
    for text in relative {
        let error = read(text, None).unwrap_err();
        assert!(error.contains("strace -r") && error.contains("-ttt"), "{error}");
    }
    let both = "7 1700000001.000000 (+     0.000000) getpid() = 7 <0.1>\n\
        7 1700000001.250000 (+     0.250000) close(3) = 0 <0.1>\n";
    let trace = read(both, None).unwrap();
    assert_eq!(trace.records[1].entry, Nanos::from_millis(250));
    assert_eq!(trace.records[1].call.name(), "close");
}

#[test]
fn paths_of_sockets_and_watches_are_read() {
    let text = "7 1700000001.0 bind(3, {sa_family=AF_UNIX, sun_path=\"/m/a\\\"b\"}, 110) = 0 <0.1>\n\
        7 1700000001.2 bind(3, {sa_family=AF_UNIX, sun_path=@\"name\"}, 110) = 0 <0.1>\n\
        7 1700000001.4 bind(3, {sa_family=AF_INET, sin_port=htons(0)}, 16) = 0 <0.1>\n\
        7 1700000001.6 inotify_add_watch(4, \"/m/f\", IN_MODIFY) = 1 <0.1>\n\
        7 1700000001.8 bind(3, {sa_family=AF_UNIX, sun_path=\"/m/a\"}, 110) = -1 EADDRINUSE (Address already in use) <0.1>\n";
    let trace = read(text, Some("/m")).unwrap();
    valid(&trace);
    assert!(trace.header.incomplete.is_empty(), "{:?}", trace.header.incomplete);
    let paths: Vec<Option<&[u8]>> = trace.records.iter().map(|record| record.path_2.as_deref()).collect();
    assert_eq!(paths, [Some(&b"/m/a\"b"[..]), None, None, Some(b"/m/f"), Some(b"/m/a")]);
    assert_eq!(trace.records[4].result, Some(-98));
}

#[test]
fn what_strace_left_out_is_counted() {
    let text = "7 1700000001.0 open(\"/m/abc\"..., O_RDONLY) = 3</m/abcd> <0.1>\n\
        7 1700000001.2 io_uring_setup(8, {flags=0}) = 4 <0.1>\n\
        7 1700000001.4 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 5</m/x>, 0) = 0x7f0000000000 <0.1>\n\
        7 1700000001.6 ???( <unfinished ...>\n\
        7 1700000001.7 <... ??? resumed>) = ?\n\
        7 1700000001.5 stat(\"rel\", 0x7f) = 0 <0.1>\n\
        7 1700000001.9 read(3, \"\", 10";
    let trace = read(text, Some("/m")).unwrap();
    valid(&trace);
    let reasons: Vec<(&str, u64)> = trace.header.incomplete.iter().map(|(name, &count)| (&**name, count)).collect();
    let expected = [
        ("clock-stepped-back", 1),
        ("cut-short", 1),
        ("io_uring_setup", 1),
        ("mapped-file", 1),
        ("truncated-path", 1),
        ("unknown-directory", 2),
    ];
    assert_eq!((reasons.as_slice(), trace.header.lost_events), (&expected[..], 1));
}

#[test]
fn a_real_strace_is_read() {
    let folder = std::env::temp_dir().join(format!("chronodisk-strace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let log = folder.join("log");
    let script =
        "mkdir d && cd d && echo hello >f && cat f | tr a b >g && mv g 'h i' && (ls .. >/dev/null; true) & wait";
    let mut strace = Command::new("strace");
    strace.args(["-f", "-ttt", "-T", "-yy", "-o"]).arg(&log).args(["sh", "-c", script]).current_dir(&folder);
    let ran = strace.output().map(|output| output.status.success());
    if !matches!(ran, Ok(true)) {
        println!("SKIPPED: strace does not work here");
        std::fs::remove_dir_all(&folder).unwrap();
        return;
    }
    let input = std::io::BufReader::new(std::fs::File::open(&log).unwrap());
    let mount = folder.to_str().unwrap();
    let trace = read_strace(input, "log", Some(mount), "x86_64").unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    valid(&trace);
    assert!(!trace.header.incomplete.contains_key("unknown-directory"), "{:?}", trace.header);
    assert_eq!(trace.header.lost_events, 0);
    let files = files(&trace);
    for expected in ["d", "d/f", "d/g", "d/h i"] {
        assert!(files.contains(&format!("{mount}/{expected}")), "{expected}: {files:?}");
    }
    assert!(files.iter().any(|file| file.starts_with("pipe ")));
}

proptest! {
    #[test]
    fn any_change_of_the_sample_is_refused_or_valid(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>()), 1..6),
    ) {
        let mut bytes = SAMPLE.as_bytes().to_vec();
        for (place, kind, byte) in changes {
            let at = place.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"<>()[]{}\",\\= \n"[usize::from(byte) % 14]),
                _ => {
                    // A line is gone.
                    let begin = bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
                    let rest = bytes[at..].iter().position(|&byte| byte == b'\n');
                    let end = rest.map_or(bytes.len(), |end| at + end + 1);
                    bytes.drain(begin..end);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        if let Ok(trace) = read_strace(&bytes[..], "FILE", Some("/mnt"), "x86_64") {
            valid(&trace);
        }
    }
}
