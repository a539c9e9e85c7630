//! After the end of any process, for any cause, nothing is left.

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::default_signals::with_default_signals;
use super::helpers::{descendants, helpers_of, kill, row_of};
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

/// Which of the commands runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mount,
    /// Freezes it for most of the time.
    WhatIf,
}

/// No file system, and a device that stays open: no writer waits in the kernel when it closes it. One that waits there
/// keeps its cgroup from being frozen as a whole.
const OPEN_DEVICE: &str = "open device";

/// A command whose program writes all the time, as does a process that it has left to itself. `whatif`'s computes
/// beside that. All have `word` in their lines.
fn start(native: &Native, word: &str, kind: Kind, file_system: &str) -> Child {
    let writes_all = format!(": {word}; while :; do dd if=/dev/zero of=$CHRONODISK_DEVICE bs=64k count=100; done");
    let writes = match file_system {
        OPEN_DEVICE => format!("exec 9>$CHRONODISK_DEVICE; {writes_all}"),
        "none" => writes_all,
        _ => format!(
            ": {word}; setsid sh -c ': {word}; while :; do dd if=/dev/zero of=/mnt/y bs=64k count=20; done' &
            while :; do dd if=/dev/zero of=/mnt/x bs=4k count=100 conv=fsync; done"
        ),
    };
    let output = native.path(word);
    let (own, script) = match kind {
        Kind::Mount => (["mount", "--output", output.to_str().unwrap()], writes),
        Kind::WhatIf => {
            // Its first run is undisturbed: the program ends at once, and does not end in the second one.
            let first = format!("[ -e {0} ] || {{ : >{0}; exit 0; }}", output.display());
            let computes = format!("({writes}) & : {word}; while :; do :; done");
            (["whatif", "--speedup", "inf"], format!("{first}; {computes}"))
        }
    };
    let file_system = if file_system == OPEN_DEVICE { "none" } else { file_system };
    let flags = ["-d", "constant-1ms", "--capacity", "64MiB", "--fs", file_system];
    let mut command = native.command(&[&own[..], &flags, &["--", "sh", "-c", &script]].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().unwrap()
}

/// Waits until the command and all that it had have gone; says how long that took.
fn expect_nothing_left(word: &str, command: &mut Child, helpers: &[u32], before: usize, what: &str) -> Duration {
    let began = Instant::now();
    let number = command.id();
    let give_up = began + Duration::from_secs(30);
    loop {
        let ended = command.try_wait().unwrap().is_some();
        let mut left = with_word(word);
        left.retain(|process| *process != number);
        let helping = helpers.iter().any(|process| parent_of(*process).is_some() && !is_zombie(*process));
        let cgroup = cgroup_of(number);
        if ended && left.is_empty() && !helping && cgroup.is_none() && our_loop_devices().len() <= before {
            return began.elapsed();
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

/// The cgroup that this process has made for its program, where this host has the hierarchy mounted, if it has.
fn cgroup_of(number: u32) -> Option<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let places = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (place, kind) = (words.nth(1)?, words.next()?);
        (kind == "cgroup2").then(|| place.to_owned())
    });
    let names = ["mount", "whatif"].map(|purpose| format!("chronodisk-{purpose}.{number}"));
    let mut paths = places.flat_map(|place| names.clone().map(|name| format!("{place}/{name}")));
    paths.find(|path| fs::metadata(path).is_ok())
}

/// Number of kills; the soak has more.
fn rounds() -> Option<u64> {
    std::env::var("CHRONODISK_SOAK_KILLS").ok().and_then(|text| text.parse().ok())
}

/// Looks at this cgroup for this time; says for how long at most it was frozen, without a break that could be seen.
fn longest_freeze(cgroup: &str, time: Duration) -> Duration {
    let (end, mut since, mut longest) = (Instant::now() + time, None, Duration::ZERO);
    while Instant::now() < end {
        match fs::read_to_string(format!("{cgroup}/cgroup.events")) {
            Ok(events) if events.contains("frozen 1") => {
                longest = longest.max(since.get_or_insert_with(Instant::now).elapsed());
            }
            _ => since = None,
        }
        sleep(Duration::from_millis(5));
    }
    longest
}

/// The processes of a command by their part in it.
struct Parts {
    helpers: Vec<u32>,
    all: Vec<(&'static str, u32)>,
}

fn parts(command: u32, word: &str) -> Parts {
    let mut children = with_word("");
    children.retain(|process| parent_of(*process) == Some(command));
    let child = |name: &str| with_word(name).into_iter().find(|process| children.contains(process));
    let found =
        [("watchdog", child("native-watchdog")), ("attacher", child("native-attacher")), ("program", child(word))];
    let found: Vec<_> = found.into_iter().filter_map(|(name, process)| Some((name, process?))).collect();
    let helpers = found.iter().filter(|(name, _)| *name != "program").map(|(_, process)| *process).collect();
    Parts { helpers, all: [vec![("command", command)], found].concat() }
}

/// One test, so that no other one's loop devices come and go.
#[test]
fn whichever_process_is_killed_or_stopped_nothing_is_left() {
    let Some(native) = Native::new() else { return };
    let before = our_loop_devices().len();
    let kinds = if watches(&native) { vec![Kind::Mount, Kind::WhatIf] } else { vec![Kind::Mount] };
    if kinds.contains(&Kind::WhatIf) {
        the_next_start_ends_what_a_stopped_watchdog_leaves(&native);
    }
    for kind in kinds {
        let mut ends = Vec::new();
        let mut freezes = Vec::new();
        for round in 0..rounds().unwrap_or(4) {
            let (end, freeze) = one_ending(&native, kind, round, before);
            ends.push(end);
            freezes.push(freeze);
        }
        ends.sort();
        let (median, longest, freeze) = (ends[ends.len() / 2], ends[ends.len() - 1], freezes.iter().max().unwrap());
        println!(
            "{kind:?}: {} endings in {median:.2?} (median), {longest:.2?} at most; frozen {freeze:.2?}",
            ends.len()
        );
        // Of the machine's load, a test says nothing; a soak has the machine for itself.
        if rounds().is_some() {
            assert!(longest <= Duration::from_secs(2) && *freeze <= Duration::from_secs(1), "{ends:.2?} {freezes:.2?}");
        }
    }
    a_request_to_end_goes_to_the_command(&native, before);
    nobody_waits_for_what_a_slow_device_has_been_given(&native, before);
    the_next_start_detaches_what_is_left_when_all_are_killed_at_once(&native, before);
    each_helper_that_dies_is_named(&native, before);
}

/// The helpers are found by looking, so that none can be forgotten.
fn each_helper_that_dies_is_named(native: &Native, before: usize) {
    // The words of a program and of its children begin with a colon.
    let lists = [("mount", "true", 125), ("mount", "sleep 1000", 3)];
    for (command, setup, expected) in lists {
        let helpers = helpers_of(command);
        for index in 0..helpers.len() {
            let word = format!("native-ending-{}-helper-{setup}-{index}", std::process::id()).replace(' ', "-");
            let mark = native.path(&word);
            let script = format!(": {word}; : >{}; sleep 1000; :", mark.display());
            let (setup, script) = if setup == "true" { ("true", script.as_str()) } else { (script.as_str(), "true") };
            let flags = [command, "-d", "null", "--capacity", "64MiB", "--setup", setup, "--", "sh", "-c", script];
            let mut run = native.command(&flags);
            let mut run = run.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
            let give_up = Instant::now() + Duration::from_secs(60);
            while !mark.exists() {
                assert!(Instant::now() < give_up, "{word}: it does not begin");
                sleep(Duration::from_millis(20));
            }
            let mut there = descendants(run.id());
            there.retain(|process| !process.line.contains(&word) && !process.line.starts_with("sleep 1000"));
            assert_eq!(there.len(), helpers.len(), "docs/endings.md lists others than {there:?}");
            let victim = &there[index];
            kill(victim.number);
            let mut said = String::new();
            run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(run.wait().unwrap().code(), Some(expected), "{victim:?}: {said}");
            let row = row_of(&helpers, victim, None);
            assert!(row.messages.iter().any(|message| said.contains(message)), "{victim:?}: {said}");
            expect_nothing_left(&word, &mut run, &[], before, &word);
        }
    }
}

/// The process that would thaw the program was killed, and the next one is stopped.
fn the_next_start_ends_what_a_stopped_watchdog_leaves(native: &Native) {
    let word = format!("native-ending-{}-left", std::process::id());
    let mut command = start(native, &word, Kind::WhatIf, OPEN_DEVICE);
    let give_up = Instant::now() + Duration::from_secs(60);
    let frozen = |cgroup: &String| {
        let events = fs::read_to_string(format!("{cgroup}/cgroup.events")).unwrap_or_default();
        events.contains("frozen 1") && events.contains("populated 1")
    };
    while !cgroup_of(command.id()).is_some_and(|cgroup| frozen(&cgroup)) {
        if Instant::now() >= give_up {
            // Without a mounted hierarchy this can't be observed.
            println!("SKIPPED what a stopped watchdog leaves: no frozen cgroup is to be seen");
            break;
        }
        sleep(Duration::from_millis(2));
    }
    let Parts { helpers, all } = parts(command.id(), &word);
    let watchdog = all.iter().find(|(name, _)| *name == "watchdog").expect("it has one").1;
    send(libc::SIGSTOP, watchdog);
    send(libc::SIGKILL, command.id());
    command.wait().unwrap();
    let left = cgroup_of(command.id());
    let output = native.run(&["mount", "-d", "null", "--capacity", "1MiB", "--fs", "none", "--", "true"]);
    assert!(output.status.success(), "{}", super::text(&output.stderr));
    assert_eq!((cgroup_of(command.id()), with_word(&word)), (None, Vec::new()), "{left:?} was left");
    helpers.into_iter().for_each(|helper| send(libc::SIGKILL, helper));
}

/// Whether `whatif` can observe a program here.
fn watches(native: &Native) -> bool {
    let flags = ["whatif", "-d", "null", "--capacity", "1MiB", "--fs", "none", "--speedup", "2", "--reps", "1"];
    let output = native.run(&[&flags[..], &["--", "true"]].concat());
    if output.status.code() == Some(3) {
        println!("SKIPPED endings of whatif: {}", super::text(&output.stderr).trim());
    }
    output.status.success()
}

/// A part of the command is killed or stopped some time after its start. Says how long it took until nothing was left,
/// and for how long the program was frozen while a part was stopped.
fn one_ending(native: &Native, kind: Kind, round: u64, before: usize) -> (Duration, Duration) {
    let word = format!("native-ending-{}-{kind:?}-{round}", std::process::id());
    let mut command = start(native, &word, kind, ["ext4", "none", "ext2"][round as usize % 3]);
    let give_up = Instant::now() + Duration::from_secs(60);
    while kind == Kind::WhatIf && !round.is_multiple_of(8) && !native.path(&word).exists() {
        assert!(Instant::now() < give_up, "round {round}: the first run does not end");
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(30 + round * 7_919 % 1_500));
    let Parts { helpers, all } = parts(command.id(), &word);
    let (who, target) = all[(round + round / 4) as usize % all.len()];
    let stops = round % 2 == 1;
    let (mut frozen, mut killed_at) = (Duration::ZERO, Instant::now());
    if stops {
        send(libc::SIGSTOP, target);
        if let Some(cgroup) = cgroup_of(command.id()) {
            frozen = longest_freeze(&cgroup, Duration::from_millis(1_200));
        }
        // A stopped process does nothing, even at its end.
        let goes_on = if who == "command" { None } else { Some(target) };
        goes_on.into_iter().for_each(|target| send(libc::SIGCONT, target));
        killed_at = Instant::now();
        send(libc::SIGKILL, command.id());
    } else {
        send(libc::SIGKILL, target);
        // The attacher of a run that has just ended is not needed: the next run has its own.
        if who == "attacher" && has_another_attacher(&mut command, target, &word) {
            killed_at = Instant::now();
            send(libc::SIGKILL, command.id());
        }
    }
    let what = format!("round {round} of {kind:?}, {who}, stopped: {stops}");
    expect_nothing_left(&word, &mut command, &helpers, before, &what);
    (killed_at.elapsed(), frozen)
}

/// Whether the command goes on, with another attacher than this one.
fn has_another_attacher(command: &mut Child, killed: u32, word: &str) -> bool {
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end && command.try_wait().unwrap().is_none() {
        let Parts { all, .. } = parts(command.id(), word);
        if all.iter().any(|&(name, process)| name == "attacher" && process != killed) {
            return true;
        }
        sleep(Duration::from_millis(5));
    }
    false
}

/// Checks that SIGTERM to the command also ends its program, and that measurements are saved.
fn a_request_to_end_goes_to_the_command(native: &Native, before: usize) {
    let word = format!("native-ending-{}-term", std::process::id());
    let mut command = start(native, &word, Kind::Mount, "ext4");
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

/// A second for each of at least 128 requests: who waited for them all would be too late.
fn nobody_waits_for_what_a_slow_device_has_been_given(native: &Native, before: usize) {
    const WRITES: &str = "dd if=/dev/zero of=$CHRONODISK_DEVICE bs=1M count=64 status=none; :";
    const SLEEPS: &str = "sleep 1000; :";
    let apart = "setsid sh -c \": $WORD; sleep 1000; :\" &";
    let (term, kill, hup, int) = (libc::SIGTERM, libc::SIGKILL, libc::SIGHUP, libc::SIGINT);
    let ignores = "trap '' TERM INT HUP";
    // The setup, the command, the signal, and the one that ends.
    let cases = [
        ("setup sleeps", SLEEPS.to_owned(), "true".to_owned(), term, term),
        ("setup sleeps, and the command is killed", format!("{apart} {SLEEPS}"), "true".to_owned(), kill, kill),
        ("setup has left a process", apart.to_owned(), SLEEPS.to_owned(), hup, hup),
        ("the program waits for the device", "true".to_owned(), WRITES.to_owned(), term, term),
        ("a part of it does", "true".to_owned(), format!("{ignores}; ({WRITES}) & {SLEEPS}"), term, term),
        ("the program is stopped", "true".to_owned(), format!("kill -STOP $$; {SLEEPS}"), int, int),
        ("the program ignores signals", "true".to_owned(), format!("{ignores}; {SLEEPS}"), int, int),
        ("it has a daemon", "true".to_owned(), format!("{ignores}; ({apart}) & {SLEEPS}"), hup, hup),
        (
            "it forks for ever",
            "true".to_owned(),
            format!("f() {{ (: $WORD; f) & }}; {ignores}; f; {SLEEPS}"),
            term,
            term,
        ),
    ];
    for (index, (what, setup, script, signal, ended_by)) in cases.into_iter().enumerate() {
        let word = format!("native-ending-{}-slow-{index}", std::process::id());
        let marked = |script: &str| format!(": {word}; : >$MARK; {script}");
        let (setup, script) = if script == "true" { (marked(&setup), script) } else { (setup, marked(&script)) };
        let flags = ["mount", "-d", "constant-10ms", "--device-speed", "0.01x", "--fs", "none", "--setup", &setup];
        let mut command = native.command(&[&flags[..], &["--", "sh", "-c", &script]].concat());
        let mark = native.path(&word);
        command.env("MARK", &mark).env("WORD", &word).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        with_default_signals(&mut command);
        let mut command = command.spawn().unwrap();
        let give_up = Instant::now() + Duration::from_secs(60);
        while !mark.exists() {
            assert!(Instant::now() < give_up, "{what}: it does not begin");
            sleep(Duration::from_millis(20));
        }
        sleep(Duration::from_millis(500));
        let helpers = parts(command.id(), &word).helpers;
        send(signal, command.id());
        let took = expect_nothing_left(&word, &mut command, &helpers, before, what);
        println!("{what}: {took:.2?}");
        let status = command.wait().unwrap();
        assert_eq!(status.code().or(status.signal().map(|signal| 128 + signal)), Some(128 + ended_by), "{what}");
    }
}

/// Service managers kill all processes of a service at once.
fn the_next_start_detaches_what_is_left_when_all_are_killed_at_once(native: &Native, before: usize) {
    let word = format!("native-ending-{}-all", std::process::id());
    let mut command = start(native, &word, Kind::Mount, "none");
    let give_up = Instant::now() + Duration::from_secs(60);
    while parts(command.id(), &word).all.len() < 4 {
        assert!(Instant::now() < give_up, "the program does not begin");
        sleep(Duration::from_millis(20));
    }
    let parts = parts(command.id(), &word);
    parts.all.iter().for_each(|(_, process)| send(libc::SIGSTOP, *process));
    parts.all.iter().for_each(|(_, process)| send(libc::SIGKILL, *process));
    command.wait().unwrap();
    let output = native.run(&["mount", "-d", "null", "--capacity", "1MiB", "--fs", "none", "--", "true"]);
    assert!(output.status.success(), "{}", super::text(&output.stderr));
    expect_nothing_left(&word, &mut command, &parts.helpers, before, "all killed at once");
}
