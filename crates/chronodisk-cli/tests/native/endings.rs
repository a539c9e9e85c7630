//! Nothing is left, whichever process ends in whatever way.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Native, our_loop_devices};

/// Numbers of the processes that have this word in their command lines.
fn with_word(word: &str) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |number: &u32| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    };
    numbers.filter(has).collect()
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn send(signal: libc::c_int, process: u32) {
    // SAFETY: a number and a signal; who has ended meanwhile gets none.
    unsafe { libc::kill(process as libc::pid_t, signal) };
}

/// A command that writes all the time, as does a process that it has left to itself. All have `word` in their lines.
fn start(native: &Native, word: &str, file_system: &str) -> Child {
    let script = match file_system {
        "none" => format!(": {word}; while :; do dd if=/dev/zero of=$CHRONODISK_DEVICE bs=64k count=100; done"),
        _ => format!(
            ": {word}; setsid sh -c ': {word}; while :; do dd if=/dev/zero of=/mnt/y bs=64k count=20; done' &
            while :; do dd if=/dev/zero of=/mnt/x bs=4k count=100 conv=fsync; done"
        ),
    };
    let output = native.path(word);
    let output = output.to_str().unwrap();
    let flags = ["mount", "-d", "constant-1ms", "--capacity", "64MiB", "--fs", file_system, "--output", output];
    let mut command = native.command(&[&flags[..], &["--", "sh", "-c", &script]].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().unwrap()
}

/// Waits until the command and all that it had have gone; how long that may take says nothing of the machine's load.
fn expect_nothing_left(word: &str, command: &mut Child, helpers: &[u32], before: usize, what: &str) {
    let number = command.id();
    let give_up = Instant::now() + Duration::from_secs(30);
    loop {
        let ended = command.try_wait().unwrap().is_some();
        let mut left = with_word(word);
        left.retain(|process| *process != number);
        let helping = helpers.iter().any(|process| parent_of(*process).is_some() && !is_zombie(*process));
        let cgroup = find_cgroup(&format!("chronodisk-native.{number}"));
        if ended && left.is_empty() && !helping && cgroup.is_none() && our_loop_devices().len() <= before {
            return;
        }
        assert!(
            Instant::now() < give_up,
            "{what}: ended {ended}, processes {left:?}, helper {helping}, {cgroup:?}, {:?}",
            our_loop_devices()
        );
        sleep(Duration::from_millis(20));
    }
}

fn is_zombie(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// The cgroup of that name where this host has the hierarchy mounted, if it has.
fn find_cgroup(name: &str) -> Option<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let places = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (place, kind) = (words.nth(1)?, words.next()?);
        (kind == "cgroup2").then(|| format!("{place}/{name}"))
    });
    places.into_iter().find(|path| fs::metadata(path).is_ok())
}

/// How many kills; the soak has more.
fn rounds() -> u64 {
    std::env::var("CHRONODISK_SOAK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8)
}

/// One test, so that no other one's loop devices come and go.
#[test]
fn whichever_process_is_killed_or_stopped_nothing_is_left() {
    let Some(native) = Native::new() else { return };
    let before = our_loop_devices().len();
    for round in 0..rounds() {
        let word = format!("native-ending-{}-{round}", std::process::id());
        let mut command = start(&native, &word, ["ext4", "none", "ext2"][round as usize % 3]);
        sleep(Duration::from_millis(30 + round * 7_919 % 1_500));
        let children: Vec<u32> =
            with_word("").into_iter().filter(|process| parent_of(*process) == Some(command.id())).collect();
        let mut helpers = [with_word("native-watchdog"), with_word("native-attacher")].concat();
        helpers.retain(|process| children.contains(process));
        let programs: Vec<u32> = with_word(&word).into_iter().filter(|process| children.contains(process)).collect();
        let (who, target) = match round % 3 {
            1 if !helpers.is_empty() => ("helper", helpers[round as usize / 3 % helpers.len()]),
            2 if !programs.is_empty() => ("program", programs[0]),
            _ => ("command", command.id()),
        };
        let stops = round % 4 == 3;
        if stops {
            send(libc::SIGSTOP, target);
            sleep(Duration::from_millis(200));
            send(libc::SIGCONT, target);
            send(libc::SIGKILL, command.id());
        } else {
            send(libc::SIGKILL, target);
        }
        let what = format!("round {round}, {who}, stopped: {stops}");
        expect_nothing_left(&word, &mut command, &helpers, before, &what);
    }
    a_request_to_end_goes_to_the_command(&native, before);
}

/// SIGTERM to the command ends its program, too, and what was measured is kept.
fn a_request_to_end_goes_to_the_command(native: &Native, before: usize) {
    let word = format!("native-ending-{}-term", std::process::id());
    let mut command = start(native, &word, "ext4");
    let begun = || with_word(&word).len() >= 3;
    let give_up = Instant::now() + Duration::from_secs(60);
    while !begun() {
        assert!(Instant::now() < give_up, "the program does not begin");
        sleep(Duration::from_millis(20));
    }
    send(libc::SIGTERM, command.id());
    expect_nothing_left(&word, &mut command, &[], before, "SIGTERM");
    assert_eq!(command.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    let result = fs::read_to_string(native.path(&word).join("result.json")).unwrap();
    assert!(result.contains("\"ended_by\": \"signal\""), "{result}");
}
