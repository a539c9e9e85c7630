//! Commands that are ended by signals at any moment: they end in time, with a status that tells so, and leave no
//! process and no socket behind.

use std::process::Child;
use std::time::{Duration, Instant};

use crate::campaign::Verdict;
use crate::default_signals::with_default_signals;
use crate::folder::{TestFolder, signal};
use crate::guest::{can_run, family};
use crate::ledger::Random;

const COMMANDS: [&[&str]; 6] = [
    &["serve", "--device", "null", "--capacity", "16MiB", "--nbd", "unix:a.sock", "--vhost-user", "b.sock"],
    &["serve", "--device", "first-disk", "--nbd", "unix:a.sock", "--squash=exact", "--store", "disk"],
    &["serve", "--device", "null", "--capacity", "16MiB", "--nbd", "unix:a.sock", "--run", "sleep 1000"],
    &["emulator-server", "--listen", "unix:a.sock"],
    &["simulate", "--device", "first-disk", "--workload", "random-small", "--requests", "100000000"],
    &["run", "--device", "null", "--capacity", "64MiB", "--fs", "none", "--store", "disk", "--", "sleep", "1000"],
];

const SIGNALS: [&[i32]; 5] =
    [&[libc::SIGTERM], &[libc::SIGINT], &[libc::SIGHUP], &[libc::SIGTERM, libc::SIGTERM], &[libc::SIGKILL]];

const IN_TIME: Duration = Duration::from_secs(30);

pub fn attack(random: &mut Random, described: &mut String) -> Verdict {
    let command = COMMANDS[random.below(6) as usize];
    let signals = SIGNALS[random.below(5) as usize];
    let longest_ms = [50, 500, 3_000][random.below(3) as usize];
    let delay = Duration::from_millis(random.below(longest_ms));
    *described = format!("{} after {} ms by {signals:?}", command.join(" "), delay.as_millis());
    if command[0] == "run" && !can_run() {
        return Verdict::Skipped("no guest can run here".to_owned());
    }
    let place = TestFolder::new();
    let mut child = place.chronodisk(command);
    with_default_signals(&mut child);
    let mut child = child.spawn().expect("the command starts");
    std::thread::sleep(delay);
    let before = family(child.id());
    for each in signals {
        signal(child.id() as i32, *each);
        std::thread::sleep(Duration::from_millis(random.below(100)));
    }
    let orderly = !signals.contains(&libc::SIGKILL);
    let ended = ends(&mut child, &before, orderly);
    // Remaining processes would keep the pipes open.
    signal(-(child.id() as i32), libc::SIGKILL);
    if let Err(found) = ended {
        before.iter().for_each(|pid| signal(*pid as i32, libc::SIGKILL));
        let _ = child.wait();
        return Verdict::Found(found);
    }
    let output = child.wait_with_output().expect("it ended");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("panicked at") {
        return Verdict::Found(errors.into_owned());
    }
    // Before it catches signals, a command ends by them; `simulate` never catches them.
    if orderly
        && command[0] != "simulate"
        && delay > Duration::from_secs(2)
        && signals.len() == 1
        && output.status.code().is_none()
    {
        return Verdict::Found(format!("it ended by a signal: {}: {errors}", output.status));
    }
    let left: Vec<&str> = ["a.sock", "b.sock"].into_iter().filter(|name| place.path(name).exists()).collect();
    // A process that a second signal ends at once leaves its files.
    if orderly && signals.len() == 1 && !left.is_empty() {
        return Verdict::Found(format!("it left {left:?}: {errors}"));
    }
    Verdict::Held
}

/// Checks that the command and all its processes end in time. After an orderly end its process group must end, too.
fn ends(child: &mut Child, all: &[u32], orderly: bool) -> Result<(), String> {
    let give_up = Instant::now() + IN_TIME;
    while child.try_wait().is_ok_and(|status| status.is_none()) {
        if Instant::now() > give_up {
            return Err(format!("it has not ended after {IN_TIME:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_there = |pid: &&u32| std::path::Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok();
    let group = child.id();
    let left = || all.iter().copied().find(|pid| is_there(&pid)).or_else(|| group_of(group).filter(|_| orderly));
    while let Some(pid) = left() {
        if Instant::now() > give_up {
            let name = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
            return Err(format!("process {pid} is left: {name}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A process of a process group; `None` if it is empty.
fn group_of(group: u32) -> Option<u32> {
    let numbers =
        std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_in_it = |pid: &u32| {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        // proc(5): after the name, in brackets, come the state, the parent and the group.
        let fields = text.rsplit(')').next().unwrap_or_default();
        let mut fields = fields.split_whitespace();
        fields.next() != Some("Z") && fields.nth(1) == Some(&*group.to_string())
    };
    numbers.into_iter().find(is_in_it)
}
