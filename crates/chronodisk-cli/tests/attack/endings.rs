//! Commands that are ended by signals at any moment: they end in time, with a status that says so, and leave no
//! process and no socket.

use std::process::Child;
use std::time::{Duration, Instant};

use crate::campaign::Verdict;
use crate::folder::{TestFolder, signal};
use crate::guest::{can_run, family};
use crate::ledger::Random;

const COMMANDS: [&[&str]; 6] = [
    &["serve", "--device", "null", "--capacity", "16MiB", "--nbd", "unix:a.sock", "--vhost-user", "b.sock"],
    &["serve", "--device", "first-disk", "--nbd", "unix:a.sock", "--squash=exact", "--store", "disk"],
    &["serve", "--device", "null", "--capacity", "16MiB", "--nbd", "unix:a.sock", "--run", "sleep 1000"],
    &["emulator-server", "--listen", "unix:a.sock"],
    &["simulate", "--device", "first-disk", "--requests", "100000000"],
    &["run", "--device", "null", "--capacity", "64MiB", "--fs", "none", "--store", "disk", "--", "sleep", "1000"],
];

const SIGNALS: [&[i32]; 5] =
    [&[libc::SIGTERM], &[libc::SIGINT], &[libc::SIGHUP], &[libc::SIGTERM, libc::SIGTERM], &[libc::SIGKILL]];

const IN_TIME: Duration = Duration::from_secs(60);

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
    let mut child = place.chronodisk(command).spawn().expect("the command starts");
    std::thread::sleep(delay);
    let before = family(child.id());
    for each in signals {
        signal(child.id() as i32, *each);
        std::thread::sleep(Duration::from_millis(random.below(100)));
    }
    if let Err(found) = ends(&mut child, &before) {
        before.iter().for_each(|pid| signal(*pid as i32, libc::SIGKILL));
        let _ = child.wait();
        return Verdict::Found(found);
    }
    let output = child.wait_with_output().expect("it ended");
    let errors = String::from_utf8_lossy(&output.stderr);
    let orderly = !signals.contains(&libc::SIGKILL);
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
    // One that a second signal ends at once leaves what it has.
    if orderly && signals.len() == 1 && !left.is_empty() {
        return Verdict::Found(format!("it left {left:?}: {errors}"));
    }
    Verdict::Held
}

/// Whether the command and all its processes end in time.
fn ends(child: &mut Child, all: &[u32]) -> Result<(), String> {
    let give_up = Instant::now() + IN_TIME;
    while child.try_wait().is_ok_and(|status| status.is_none()) {
        if Instant::now() > give_up {
            return Err(format!("it has not ended after {IN_TIME:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_there = |pid: &&u32| std::path::Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok();
    while let Some(pid) = all.iter().find(is_there) {
        if Instant::now() > give_up {
            let name = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
            return Err(format!("process {pid} is left: {name}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
