//! After the end of any process, the user is told, and nothing is left.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::processors::several;
use super::support::{Chronodisk, processes_with, text};

/// Number of kills at random moments; `make soak` asks for 100 of each, and 500 of any process of the guest.
fn kills() -> u64 {
    std::env::var("CHRONODISK_SOAK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// A run that does I/O for as long as it is let, found again by its mark.
struct Running {
    child: Child,
    mark: String,
}

impl Running {
    fn start(chronodisk: &Chronodisk, name: &str) -> Self {
        Running::start_with(chronodisk, name, &[])
    }

    fn start_with(chronodisk: &Chronodisk, name: &str, flags: &[&str]) -> Self {
        let mark = format!("chronodisk-test-{name}-{}", std::process::id());
        let script = format!("while :; do dd if=/dev/zero of=/mnt/{mark} bs=64k count=64 conv=fsync; done");
        let child = chronodisk
            .command(&[&["run", "--device", "constant-1ms"], flags, &["--", "sh", "-c", &script]].concat())
            .env("CHRONODISK_TEST_MARK", &mark)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running { child, mark }
    }

    /// A process of the run by a word in its command line.
    fn process(&self, word: &str) -> Option<u32> {
        children_of(self.child.id())
            .into_iter()
            .find(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| text(&line).contains(word)))
    }

    /// Waits for the end, which must come; returns the status and standard error.
    fn end(self) -> (ExitStatus, String) {
        let pid = self.child.id();
        let output = self.child.wait_with_output().unwrap();
        let mut left = wait_until_gone(&self.mark);
        // A process that the guest has just made has no environment any more, but its kernel's command line.
        left.extend(wait_until_gone(&format!("chronodisk.launcher={pid}\0")));
        assert!(left.is_empty(), "processes of run {pid} are left: {left:?}");
        (output.status, text(&output.stderr))
    }
}

pub(super) fn children_of(pid: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Killed processes take a moment to go.
fn wait_until_gone(mark: &str) -> Vec<u32> {
    let give_up = Instant::now() + Duration::from_secs(20);
    loop {
        let left = processes_with(mark);
        if left.is_empty() || Instant::now() > give_up {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill(pid: u32, signal: &str) {
    kill_all(&[pid], signal);
}

fn kill_all(pids: &[u32], signal: &str) {
    let _ = Command::new("kill").arg(signal).args(pids.iter().map(u32::to_string)).status();
}

fn descendants_of(pid: u32) -> Vec<u32> {
    let mut found = children_of(pid);
    let mut next = 0;
    while next < found.len() {
        found.extend(children_of(found[next]));
        next += 1;
    }
    found
}

/// Names in the folders where temporary files and sockets are made.
fn names() -> Vec<std::path::PathBuf> {
    let user = std::env::var_os("HOME").map(|home| std::path::PathBuf::from(home).join(".uml"));
    let folders = ["/dev/shm".into(), "/tmp/uml".into()].into_iter().chain(user);
    let mut names: Vec<_> = folders
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    names.sort();
    names
}

/// Names that appeared since `before`, and stay. Other processes make temporary files there as well; those of this
/// crate's tests begin with a dot.
fn names_left(before: &[std::path::PathBuf]) -> Vec<std::path::PathBuf> {
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let mut left = names();
        left.retain(|path| !before.contains(path) && !path.to_string_lossy().contains("/.tmp"));
        if left.is_empty() || Instant::now() > give_up {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Moments from before the boot to well into the command, spread by a fixed sequence.
fn moment(index: u64) -> Duration {
    Duration::from_millis(100 + index * 7_919 % 4_000)
}

#[test]
fn nothing_is_left_when_the_command_is_killed() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let before = names();
    for index in 0..kills() {
        let running = Running::start(&chronodisk, &format!("command-{index}"));
        std::thread::sleep(moment(index));
        kill(running.child.id(), "-KILL");
        running.end();
    }
    let left = names_left(&before);
    assert!(left.is_empty(), "{left:?}");
    assert!(runs_kept(&chronodisk).is_empty(), "{:?}", runs_kept(&chronodisk));
}

#[test]
fn nothing_is_left_of_several_processors() {
    let Some(chronodisk) = several() else { return };
    let before = names();
    for index in 0..kills() {
        for victim in ["chronodisk", "guest-backend", "ncpus=2"] {
            let running = Running::start_with(&chronodisk, &format!("several-{index}-{victim}"), &["--cpus", "2"]);
            std::thread::sleep(moment(index));
            kill(running.process(victim).unwrap_or(running.child.id()), "-KILL");
            let (status, _) = running.end();
            assert!(!status.success());
        }
    }
    let left = names_left(&before);
    assert!(left.is_empty(), "{left:?}");
    assert!(runs_kept(&chronodisk).is_empty(), "{:?}", runs_kept(&chronodisk));
}

#[test]
fn the_user_is_told_when_the_backend_is_killed() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for index in 0..kills() {
        let running = Running::start(&chronodisk, &format!("backend-{index}"));
        std::thread::sleep(moment(index));
        if let Some(backend) = running.process("guest-backend") {
            kill(backend, "-KILL");
            let (status, stderr) = running.end();
            assert!(matches!(status.code(), Some(3 | 125)), "{status}: {stderr}");
            assert!(stderr.contains("backend"), "{stderr}");
        } else {
            kill(running.child.id(), "-KILL");
            running.end();
        }
    }
    assert!(runs_kept(&chronodisk).is_empty(), "{:?}", runs_kept(&chronodisk));
}

#[test]
fn the_user_is_told_when_the_guest_is_killed() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for index in 0..kills() {
        let running = Running::start(&chronodisk, &format!("guest-{index}"));
        std::thread::sleep(moment(index));
        if let Some(guest) = running.process("linux.uml") {
            kill(guest, "-KILL");
            let (status, stderr) = running.end();
            assert!(matches!(status.code(), Some(3 | 125)), "{status}: {stderr}");
            assert!(stderr.contains("guest"), "{stderr}");
        } else {
            kill(running.child.id(), "-KILL");
            running.end();
        }
    }
    assert!(runs_kept(&chronodisk).is_empty(), "{:?}", runs_kept(&chronodisk));
}

/// Processes of the guest that live: its kernel, the kernel's helpers and the programs.
fn living(kernel: u32) -> Vec<u32> {
    let mut all = vec![kernel];
    all.extend(children_of(kernel));
    all.retain(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    });
    all
}

/// As long as a run may take to end: milliseconds on a quiet machine, and more than 2 s were seen beside three other
/// guests. A run that goes on does so until it is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Kills one process of the guest, the same one for the same index; whether the run ended of it. It does not if the
/// process was about to end anyway.
fn ends_when_one_is_killed(chronodisk: &Chronodisk, index: u64) -> bool {
    let flags = [&[][..], &["--cpu", "wall"], &["--clock", "real"]][index as usize % 3];
    let mut running = Running::start_with(chronodisk, &format!("any-{index}"), flags);
    let kernel = loop {
        assert!(running.child.try_wait().unwrap().is_none(), "it ended before the guest began");
        match running.process("linux.uml") {
            Some(kernel) => break kernel,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    std::thread::sleep(moment(index));
    // At once: programs of the guest end all the time, and kill(1) takes longer than some live.
    let (all, victim) = loop {
        let all = living(kernel);
        let victim = all[(index * 104_729 / 7) as usize % all.len()];
        let pid = rustix::process::Pid::from_raw(victim as i32).unwrap();
        if rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok() {
            break (all, victim);
        }
    };
    let killed = Instant::now();
    let mut ended = false;
    while !ended && killed.elapsed() < ENDS_WITHIN {
        std::thread::sleep(Duration::from_millis(5));
        ended = running.child.try_wait().unwrap().is_some();
    }
    if !ended {
        kill(running.child.id(), "-KILL");
        running.end();
        println!("kill {index}: run goes on without process {victim} of {all:?}");
        return false;
    }
    let (status, stderr) = running.end();
    assert!(matches!(status.code(), Some(3 | 125)), "kill {index} of {victim} of {all:?}: {status}: {stderr}");
    let says_why = [format!("process {victim} of the guest was killed by signal 9"), "guest's kernel died".to_owned()];
    assert!(says_why.iter().any(|sentence| stderr.contains(sentence)), "kill {index}: {stderr}");
    true
}

/// To the guest's kernel a process that is gone looks like a fault of its program: the program failed, or the kernel
/// waited or spun for ever.
#[test]
fn no_process_of_the_guest_can_be_killed_without_a_word() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // Each clock once, at least.
    let count = if kills() > 3 { 5 * kills() } else { 3 };
    let goes_on = (0..count).filter(|index| !ends_when_one_is_killed(&chronodisk, *index)).count() as u64;
    println!("{count} kills, {goes_on} runs went on");
    assert!(goes_on <= count / 50, "{goes_on} of {count} runs went on");
    assert!(runs_kept(&chronodisk).is_empty(), "{:?}", runs_kept(&chronodisk));
}

#[test]
fn a_program_that_is_told_to_end_from_outside_ends_the_run() {
    for (signal, number) in [("-TERM", 15), ("-SEGV", 11)] {
        let Some(chronodisk) = Chronodisk::new() else { return };
        let mut running = repeats(&chronodisk, "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done");
        let is_kernel = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| text(&line).contains("linux.uml"))
        };
        let kernel = children_of(running.id()).into_iter().find(is_kernel).unwrap();
        // The newest child is the shell, which computes, once its earlier children have ended.
        std::thread::sleep(Duration::from_millis(500));
        let shell = *children_of(kernel).last().unwrap();
        kill(shell, signal);
        let give_up = Instant::now() + Duration::from_secs(20);
        while running.try_wait().unwrap().is_none() && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = running.kill();
        let output = running.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{stderr}");
        assert!(stderr.contains(&format!("process {shell} of the guest was killed by signal {number}")), "{stderr}");
    }
}

#[test]
fn what_ended_a_run_is_in_the_json() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for (victim, signal, status, ended_by) in [
        ("guest-backend", "-KILL", 125, "chronodisk"),
        ("linux.uml", "-KILL", 125, "chronodisk"),
        ("", "-INT", 130, "signal"),
    ] {
        let ready = chronodisk.path("ready");
        let script = format!("trap '' INT; touch {}; while :; do :; done", ready.display());
        let flags = ["run", "--device", "null", "--fs", "none", "--host-writes", "--json", "--", "sh", "-c", &script];
        let mut child = chronodisk.command(&flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !ready.exists() {
            assert!(child.try_wait().unwrap().is_none(), "it ended before the program ran");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::remove_file(&ready).unwrap();
        let running = Running { child, mark: "unused".to_owned() };
        let pid = running.process(victim).filter(|_| !victim.is_empty()).unwrap_or(running.child.id());
        // Only a user who insists ends a program that ignores it. A third signal would end the run without its result.
        for _ in 0..if signal == "-INT" { 2 } else { 1 } {
            kill(pid, signal);
            std::thread::sleep(Duration::from_millis(200));
        }
        let output = running.child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["ended_by"], ended_by, "{result}");
        assert_eq!(result["failure"].is_string(), ended_by == "chronodisk", "{result}");
    }
}

/// A run that repeats a command until it is interrupted, once its program runs.
pub(super) fn repeats(chronodisk: &Chronodisk, command: &str) -> Child {
    let ready = chronodisk.path("ready");
    let script = format!("trap 'echo caught; exit 5' INT; touch {}; while :; do {command}; done", ready.display());
    let mut child = chronodisk
        .command(&["run", "--device", "constant-1ms", "--host-writes", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !ready.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before the program ran");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// Interrupts it; its program must hear that, and the run end as it says.
fn ends_when_interrupted(child: Child) {
    kill(child.id(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "caught\n", "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn an_interrupt_is_the_programs_to_handle() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let child = repeats(&chronodisk, "dd if=/dev/zero of=/mnt/f bs=4k count=8 conv=fsync 2>/dev/null");
    ends_when_interrupted(child);
}

/// Each process of a guest's program is stopped as well, which its kernel must not take for a fault of the program's.
#[test]
fn a_run_whose_processes_are_all_stopped_goes_on() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let computes = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done";
    let child = repeats(&chronodisk, &format!("{computes}; echo $i > /mnt/f; cat /mnt/f > /dev/null"));
    for _ in 0..20 {
        let all = descendants_of(child.id());
        assert!(all.len() > 2, "a guest and its backend, at least: {all:?}");
        for signal in ["-STOP", "-CONT"] {
            kill_all(&all, signal);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    ends_when_interrupted(child);
}

#[test]
fn an_interrupt_before_the_program_runs_ends_the_run() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let running = Running::start(&chronodisk, "early-interrupt");
    // The guest takes far longer to boot than we need to see that the signal would be heard.
    while !hears_interrupts(running.child.id()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(running.child.id(), "-INT");
    let (status, stderr) = running.end();
    assert_eq!(status.code(), Some(130), "{stderr}");
    assert!(runs_kept(&chronodisk).is_empty());
}

/// Whether a process blocks or catches SIGINT, which is the second bit of the masks (proc_pid_status(5)).
fn hears_interrupts(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let has_it = |mask: &str| u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << 1 != 0;
    ["SigBlk:", "SigCgt:"].into_iter().any(|name| status.lines().filter_map(|line| line.strip_prefix(name)).any(has_it))
}

fn runs_kept(chronodisk: &Chronodisk) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(chronodisk.path("chronodisk/runs"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}
