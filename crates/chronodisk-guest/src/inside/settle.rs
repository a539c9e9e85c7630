//! Waits for a file system's own work after mkfs and mount: ext4 reads its block bitmaps ahead and may write inode
//! tables, and a journal commits the changes of the mount. The command begins when the devices have been idle for a
//! while.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use crate::shared::device_names::device_name;
use crate::shared::spec::Settled;

/// Time without a request after which a device counts as idle, in the guest's time.
const QUIET: Duration = Duration::from_secs(1);
/// The wait ends after this much of the guest's time, even if the file system is still busy.
const WAIT_MAX: Duration = Duration::from_secs(3_600);
/// The thread that reads bitmaps ahead and writes inode tables (`fs/ext4/super.c`). It pauses between two groups for
/// ten times as long as the first took, and up to five seconds before it begins. It ends after its work.
const LAZY_THREAD: &str = "ext4lazyinit";

/// Waits for idle devices.
pub(crate) fn settle(devices: usize) -> io::Result<Settled> {
    rustix::fs::sync();
    let mut before = requests(devices)?;
    for _ in 0..WAIT_MAX.as_secs() / QUIET.as_secs() {
        thread::sleep(QUIET);
        let now = requests(devices)?;
        if now == before && now.in_flight == 0 && !lazy_thread_lives()? {
            return Ok(Settled::Idle);
        }
        before = now;
    }
    Ok(Settled::StillBusy)
}

/// Activity of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requests {
    completed: u64,
    in_flight: u64,
}

fn requests(devices: usize) -> io::Result<Requests> {
    let mut sum = Requests::default();
    for index in 0..devices {
        let file = format!("/sys/block/{}/stat", device_name(index));
        let text =
            fs::read_to_string(&file).map_err(|error| io::Error::new(error.kind(), format!("{file}: {error}")))?;
        let of_device = parse(&text).ok_or_else(|| io::Error::other(format!("{file}: {text:?} is no statistics")))?;
        sum.completed += of_device.completed;
        sum.in_flight += of_device.in_flight;
    }
    Ok(sum)
}

/// `Documentation/block/stat.rst`: completed reads, writes, discards and flushes are the fields 1, 5, 12 and 16 of 17;
/// field 9 is the number in flight. Older kernels have fewer fields.
fn parse(text: &str) -> Option<Requests> {
    let fields: Vec<u64> = text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let field = |number: usize| fields.get(number - 1).copied();
    let optional = [12, 16].into_iter().filter_map(field).sum::<u64>();
    Some(Requests { completed: field(1)? + field(5)? + optional, in_flight: field(9)? })
}

fn lazy_thread_lives() -> io::Result<bool> {
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        let is_process = path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        // A process that has ended meanwhile has no name.
        if is_process && fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == LAZY_THREAD) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_old_and_new_kernels_are_read() {
        let old = "10 0 80 1 20 0 160 2 3 4 5";
        assert_eq!(parse(old), Some(Requests { completed: 30, in_flight: 3 }));
        let new = "     10        0       80        1       20        0      160        2        0        4        5 \
                   7        0        8        9       11        1\n";
        assert_eq!(parse(new), Some(Requests { completed: 48, in_flight: 0 }));
        for wrong in ["", "1 2 3", "1 2 3 4 5 6 7 8 x 10 11", "-1 0 80 1 20 0 160 2 3 4 5"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn this_hosts_threads_are_no_file_systems() {
        // Works with any Linux's /proc, while processes start and end.
        assert!(lazy_thread_lives().is_ok());
    }
}
