//! The sweeper, a process of the host that outlives all others of a run, and kills their leftovers.
//!
//! The guest's kernel dies with the launcher, and its processes with the kernel, because it traces them. But a new
//! process of the guest requests its tracing itself, with its first instructions. If the kernel dies before that, the
//! process's new parent becomes its tracer without handling it, and it stands still for ever.
//!
//! The sweeper waits for the end of a pipe that only the launcher holds open, so that it notices any end of the
//! launcher, and then kills the rest of the kernel's process group.

use std::fs::{self, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Entry point of this executable as the sweeper.
#[must_use]
pub fn guest_sweeper() -> ExitCode {
    match watched() {
        Ok(Some(group)) => group.sweep(),
        // No guest was started.
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Waits for the launcher's end.
fn watched() -> io::Result<Option<Group>> {
    let mut pipe = BufReader::new(io::stdin());
    let mut number = String::new();
    let mut executable = Vec::new();
    pipe.read_line(&mut number)?;
    pipe.read_until(b'\n', &mut executable)?;
    if executable.pop() != Some(b'\n') {
        return Ok(None);
    }
    // Looked at while it runs, for it may be replaced.
    let executable = fs::metadata(PathBuf::from(std::ffi::OsString::from_vec(executable)))?;
    let number = number.trim_end().parse().map_err(|_| io::ErrorKind::InvalidData)?;
    pipe.read_to_end(&mut Vec::new())?;
    Ok(Some(Group { number, executable }))
}

/// The process group of a kernel, which has its number.
struct Group {
    number: u32,
    executable: Metadata,
}

/// Killed processes go within milliseconds; one that does not waits for a disk that has failed, and will go later.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

impl Group {
    /// Kills its members until there are none.
    fn sweep(&self) -> ExitCode {
        let give_up = Instant::now() + PATIENCE;
        while self.kill_members() > 0 {
            if Instant::now() > give_up {
                return ExitCode::FAILURE;
            }
            std::thread::sleep(PAUSE);
        }
        ExitCode::SUCCESS
    }

    /// Kills all processes of the group, and returns their number.
    fn kill_members(&self) -> usize {
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        numbers.filter(|number| self.has(*number)).filter(|number| self.kill(*number)).count()
    }

    /// Whether that process is one of its members and has not ended.
    fn has(&self, process: i32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // proc_pid_stat(5): the name may have anything in it, and is followed by state, parent and group.
        let Some((_, rest)) = stat.rsplit_once(')') else { return false };
        let mut fields = rest.split_whitespace();
        let (state, group) = (fields.next(), fields.nth(1));
        if matches!(state, None | Some("Z" | "X")) || group.and_then(|text| text.parse().ok()) != Some(self.number) {
            return false;
        }
        // The number of a group whose members have all gone may be another's.
        let executable = fs::metadata(format!("/proc/{process}/exe"));
        executable.is_ok_and(|found| (found.dev(), found.ino()) == (self.executable.dev(), self.executable.ino()))
    }

    /// Kills a process if it is a member still once its number can't become another's any more.
    fn kill(&self, process: i32) -> bool {
        let Some(pid) = Pid::from_raw(process) else { return false };
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        self.has(process) && pidfd_send_signal(&held, Signal::KILL).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;

    fn sleeper(in_group_of: Option<u32>) -> Child {
        let group = in_group_of.map_or(0, |leader| leader as i32);
        Command::new("sleep").arg("1000").process_group(group).spawn().unwrap()
    }

    #[test]
    fn the_members_of_a_group_are_killed_and_nobody_else() {
        let (mut leader, mut other) = (sleeper(None), sleeper(None));
        let mut member = sleeper(Some(leader.id()));
        let executable = fs::metadata(format!("/proc/{}/exe", leader.id())).unwrap();
        let another = fs::metadata("/proc/self/exe").unwrap();
        // A group of that number, but of other programs.
        assert_eq!(Group { number: leader.id(), executable: another }.kill_members(), 0);
        let group = Group { number: leader.id(), executable };
        assert_eq!(group.sweep(), ExitCode::SUCCESS);
        assert!(!leader.wait().unwrap().success() && !member.wait().unwrap().success());
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
