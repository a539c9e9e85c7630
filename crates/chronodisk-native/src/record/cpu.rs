//! The CPU time of a task that is stopped.

use std::fs::File;
use std::os::unix::fs::FileExt;

use chronodisk_sim::Nanos;

/// Reads the CPU time of one task.
#[derive(Debug, Default)]
pub struct CpuClock {
    /// Scheduler statistics of a task in a group of several, because the kernel offers no clock for it.
    statistics: Option<File>,
}

/// `CPUCLOCK_SCHED` of the kernel's interface: the scheduler's precise count.
const CPUCLOCK_SCHED: i32 = 2;

impl CpuClock {
    /// Notes that the task is one of several of its group from now on.
    pub fn of_several(&mut self, group: u32, task: u32) {
        if self.statistics.is_none() {
            self.statistics = File::open(format!("/proc/{group}/task/{task}/schedstat")).ok();
        }
    }

    /// User and kernel time since the task began.
    pub fn read(&self, task: u32) -> Option<Nanos> {
        match &self.statistics {
            Some(file) => {
                let mut text = [0; 64];
                let length = file.read_at(&mut text, 0).ok()?;
                let text = std::str::from_utf8(&text[..length]).ok()?;
                text.split(' ').next()?.parse().ok().map(Nanos::from_nanos)
            }
            None => of_process(task),
        }
    }
}

#[allow(unsafe_code)]
fn of_process(process: u32) -> Option<Nanos> {
    let clock = !(process as i32) << 3 | CPUCLOCK_SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure, or refuses the clock.
    let refused = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (refused == 0).then(|| Nanos::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_of_a_process_agree() {
        let mut child =
            std::process::Command::new("sh").args(["-c", "i=0; while :; do i=$((i+1)); done"]).spawn().unwrap();
        let process = child.id();
        let (alone, mut several) = (CpuClock::default(), CpuClock::default());
        several.of_several(process, process);
        std::thread::sleep(std::time::Duration::from_millis(200));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        while !std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
        let times = (alone.read(process), several.read(process));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(times.0, times.1);
        assert!(times.0.is_some_and(|time| time > Nanos::from_nanos(1000)));
    }
}
