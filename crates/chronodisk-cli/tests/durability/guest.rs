//! A guest program that writes to its device and prints completed writes and flushes.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use crate::command::{has, has_guest};
use crate::folder::{TestFolder, signal};
use crate::ledger::{BLOCKS, Ledger, Random};

/// Writes past the guest's page cache. Each line reports a completed write or a completed flush, with the number of the
/// last write.
const PROGRAM: &str = "
import mmap, os, struct, sys
blocks, flushes = int(sys.argv[1]), sys.argv[2] == 'flushes'
device = os.open('/dev/vda', os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
for write in range(1, 1 << 40):
    block = write * 7919 % blocks
    page[:] = struct.pack('<Q', write << 16 | block) * 512
    os.pwrite(device, page, block * 4096)
    if not flushes:
        os.write(1, b'%d\\n' % write)
    elif write % 8 == 0:
        os.fdatasync(device)
        os.write(1, b'%d\\n' % write)
";

/// Most writes that may have completed after the last line that was read.
const UNSEEN_WRITES_MAX: u64 = 20_000;

pub fn can_run() -> bool {
    has_guest() && has("python3", "python3")
}

/// Runs the program, kills every process of the run, and returns the completed operations.
pub fn write_until_killed(
    place: &TestFolder,
    device: &str,
    store: &[&str],
    has_cache: bool,
    random: &mut Random,
) -> Ledger {
    let (blocks, how) = (BLOCKS.to_string(), if has_cache { "flushes" } else { "writes" });
    let start = ["run", "--device", device, "--capacity", "16MiB", "--fs", "none"];
    let program = ["--", "python3", "-c", PROGRAM, &blocks, how];
    let mut child = place.chronodisk(&[&start, store, &program].concat()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last: u64 = 0;
    let mut see = |line: Option<Result<String, std::io::Error>>| match line.and_then(Result::ok) {
        Some(line) => line.trim().parse().inspect(|write| last = *write).is_ok(),
        None => false,
    };
    let first = see(lines.next());
    let pid = child.id();
    let delay = Duration::from_millis(random.below(1_000));
    let killer = std::thread::spawn(move || {
        std::thread::sleep(delay);
        let all = family(pid);
        all.iter().for_each(|pid| signal(*pid as i32, libc::SIGKILL));
        all
    });
    while see(lines.next()) {}
    let all = killer.join().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(first, "the guest wrote nothing: {}", String::from_utf8_lossy(&output.stderr));
    wait_until_gone(&all);

    let mut ledger = Ledger::new(has_cache);
    let mut write = |write: u64| {
        let block = write * 7919 % BLOCKS;
        ledger.sent(write, block..block + 1, false);
        if write <= last {
            ledger.completed(write);
            if write == last && has_cache {
                ledger.flushed();
            }
        }
    };
    (1..=last + UNSEEN_WRITES_MAX).for_each(&mut write);
    ledger
}

/// A process and all its descendants.
pub fn family(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let pid = found[next];
        let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        found.extend(listed.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        next += 1;
    }
    found
}

/// Waits until killed processes are gone and their locks are released.
pub fn wait_until_gone(pids: &[u32]) {
    let give_up = Instant::now() + Duration::from_secs(20);
    let is_there = |pid: &u32| std::path::Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok();
    while pids.iter().any(is_there) {
        assert!(Instant::now() < give_up, "processes are left");
        std::thread::sleep(Duration::from_millis(10));
    }
}
