//! Descendants of a program, including those that have left its session and their parents.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, pidfd_send_signal, set_child_subreaper, waitpid,
};

/// The processes that this process starts from now on, with all that they start.
#[derive(Debug)]
pub struct Offspring {
    /// Earlier children of this process.
    others: BTreeSet<i32>,
}

const PAUSE: Duration = Duration::from_millis(2);
/// Looks for members of a family that were started while others were stopped.
const ROUNDS_MAX: usize = 100;

impl Offspring {
    /// From now on, processes whose parents end become children of this process.
    ///
    /// # Errors
    /// The system's error.
    pub fn adopt() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Offspring { others: children_of(own()) })
    }

    /// Kills all of them, and waits at most this long until they are gone. Returns whether they are.
    ///
    /// Children that this process waits for stay as zombies.
    pub fn end_all(&self, most: Duration) -> bool {
        let give_up = Instant::now() + most;
        loop {
            let living = self.living();
            if living.is_empty() {
                return true;
            }
            if Instant::now() >= give_up {
                return false;
            }
            // A process that is stopped starts no others.
            for signal in [Signal::STOP, Signal::KILL] {
                for process in living.iter().filter_map(|process| Pid::from_raw(*process)) {
                    let _ = kill_process(process, signal);
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Reaps ended processes other than `awaited`.
    pub fn bury(&self, awaited: &[u32]) {
        let is_orphan = |child: &i32| !self.others.contains(child) && !awaited.contains(&(*child as u32));
        for child in children_of(own()).into_iter().filter(is_orphan) {
            let _ = waitpid(Pid::from_raw(child), WaitOptions::NOHANG);
        }
    }

    fn living(&self) -> Vec<i32> {
        with_descendants(children_of(own()).difference(&self.others).copied().collect())
    }
}

/// Kills any process and its descendants. Descendants of ended parents are not found. The descriptor holds the process,
/// so that no other one gets its number.
pub fn end_family(held: BorrowedFd<'_>, process: Pid) {
    if pidfd_send_signal(held, Signal::STOP).is_err() {
        return;
    }
    // A process that is stopped starts no others. All are stopped before the first is killed: the children of a killed
    // process have another parent.
    let mut stopped = Vec::new();
    // A process of another user can't be stopped, and may start processes endlessly.
    for _ in 0..ROUNDS_MAX {
        let family = with_descendants(vec![process.as_raw_nonzero().get()]);
        if family == stopped {
            break;
        }
        family.iter().filter_map(|member| Pid::from_raw(*member)).for_each(|member| {
            let _ = kill_process(member, Signal::STOP);
        });
        stopped = family;
    }
    stopped.into_iter().filter_map(Pid::from_raw).for_each(|member| {
        let _ = kill_process(member, Signal::KILL);
    });
}

/// These processes and all their living descendants.
fn with_descendants(mut all: Vec<i32>) -> Vec<i32> {
    let mut next = 0;
    while next < all.len() {
        all.extend(children_of(all[next]));
        next += 1;
    }
    all.retain(|process| lives(*process));
    all
}

fn own() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// proc_pid_task_tid_children(5): a thread's children, by their numbers.
fn children_of(process: i32) -> BTreeSet<i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>()).collect()
}

fn lives(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
