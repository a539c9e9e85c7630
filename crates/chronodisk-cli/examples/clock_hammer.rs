//! A guest program that tests clocks: four processes read every clock in a loop for a number of seconds of the guest's
//! time, while a fifth keeps a file busy.
//!
//! `clock_hammer SECONDS [FILE]` ends with status 0 if no clock ever stepped back, in any process or between processes,
//! and all clocks advanced equally; otherwise it prints the error.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Clocks in nanoseconds, by name.
const CLOCKS: [(&str, libc::clockid_t); 4] = [
    ("CLOCK_MONOTONIC", libc::CLOCK_MONOTONIC),
    ("CLOCK_REALTIME", libc::CLOCK_REALTIME),
    ("CLOCK_MONOTONIC_RAW", libc::CLOCK_MONOTONIC_RAW),
    ("CLOCK_BOOTTIME", libc::CLOCK_BOOTTIME),
];
const HAMMERS: usize = 4;
/// Accepted difference between clocks. The guest kernel reads its own clock in steps of 256 ns, and reads of several
/// clocks take a while.
const SKEW_MAX_NANOS: u64 = 5_000_000;
/// Clocks are compared only if all were read within this time. Another process may run in between, for a tick of 10 ms
/// or more.
const MOMENT_NANOS: u64 = SKEW_MAX_NANOS / 2;
const ATTEMPTS_MAX: usize = 1_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let seconds: f64 = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let result = match arguments.get(2).map(String::as_str) {
        Some("--hammer") => hammer(seconds, &arguments[3]),
        file => conduct(seconds, file),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("clock_hammer: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the hammers, writes to the file meanwhile, and compares sleeping with the clocks.
fn conduct(seconds: f64, file: Option<&str>) -> Result<(), String> {
    let shared = "/dev/shm/clock-hammer";
    std::fs::write(shared, [0; 4096]).map_err(|error| format!("{shared}: {error}"))?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let hammers: Result<Vec<Child>, _> =
        (0..HAMMERS).map(|_| Command::new(&own).args([&seconds.to_string(), "--hammer", shared]).spawn()).collect();
    let hammers = hammers.map_err(|error| error.to_string())?;
    if let Some(file) = file {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).custom_flags(libc::O_SYNC).open(file);
        let file = file.as_mut().map_err(|error| error.to_string())?;
        let end = read(libc::CLOCK_MONOTONIC) + nanos(seconds);
        while read(libc::CLOCK_MONOTONIC) < end {
            file.write_all(&[1; 4096]).map_err(|error| error.to_string())?;
        }
    }
    for mut hammer in hammers {
        if !hammer.wait().map_err(|error| error.to_string())?.success() {
            return Err("a hammer failed".into());
        }
    }
    sleeps_agree()
}

/// Reads all clocks until the time is over; the shared word holds the latest monotonic instant that
/// any process has seen.
fn hammer(seconds: f64, shared: &str) -> Result<(), String> {
    let file = OpenOptions::new().read(true).write(true).open(shared).map_err(|error| error.to_string())?;
    // SAFETY: the file is a page long, and all that touch it use the one atomic word.
    let latest = unsafe {
        use std::os::fd::AsRawFd;
        let map = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        if map == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().to_string());
        }
        &*map.cast::<AtomicU64>()
    };
    let first = read_together()?;
    let first_ticks = ticks();
    let mut last = first;
    let mut last_ticks = first_ticks;
    let mut rounds = 0u64;
    while last[0] < first[0] + nanos(seconds) {
        let seen = latest.load(Ordering::SeqCst);
        for (index, (name, clock)) in CLOCKS.into_iter().enumerate() {
            let now = read(clock);
            if now < last[index] {
                return Err(format!("{name} stepped back by {} ns after {rounds} rounds", last[index] - now));
            }
            last[index] = now;
        }
        if last[0] < seen {
            return Err(format!("CLOCK_MONOTONIC is {} ns behind what another process saw", seen - last[0]));
        }
        latest.fetch_max(last[0], Ordering::SeqCst);
        let now = ticks();
        if now < last_ticks {
            return Err(format!("the time stamp counter stepped back by {}", last_ticks - now));
        }
        last_ticks = now;
        rounds += 1;
    }
    let last = read_together()?;
    let elapsed = last[0] - first[0];
    for (index, (name, _)) in CLOCKS.into_iter().enumerate() {
        let own = last[index] - first[index];
        if own.abs_diff(elapsed) > SKEW_MAX_NANOS {
            return Err(format!("{name} advanced by {own} ns while CLOCK_MONOTONIC advanced by {elapsed}"));
        }
    }
    println!("rounds {rounds} elapsed_ns {elapsed} ticks {}", last_ticks - first_ticks);
    Ok(())
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Checks that a sleep, a timer and the clocks agree on the length of a while.
fn sleeps_agree() -> Result<(), String> {
    let asked = Duration::from_millis(500);
    let begun = read(libc::CLOCK_MONOTONIC);
    std::thread::sleep(asked);
    let slept = read(libc::CLOCK_MONOTONIC) - begun;
    let waited = wait_for_timer(asked)?;
    for (name, took) in [("nanosleep", slept), ("timerfd", waited)] {
        if took < asked.as_nanos() as u64 || took > asked.as_nanos() as u64 + 20_000_000 {
            return Err(format!("{name} of {asked:?} took {took} ns"));
        }
    }
    Ok(())
}

fn wait_for_timer(wait: Duration) -> Result<u64, String> {
    // SAFETY: plain system calls on a descriptor of our own and on local memory.
    unsafe {
        let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
        let mut value: libc::itimerspec = std::mem::zeroed();
        value.it_value.tv_sec = wait.as_secs() as libc::time_t;
        value.it_value.tv_nsec = libc::c_long::from(wait.subsec_nanos());
        let begun = read(libc::CLOCK_MONOTONIC);
        if timer < 0 || libc::timerfd_settime(timer, 0, &value, std::ptr::null_mut()) < 0 {
            return Err(std::io::Error::last_os_error().to_string());
        }
        let mut expirations = 0u64;
        if libc::read(timer, (&raw mut expirations).cast(), 8) != 8 {
            return Err(std::io::Error::last_os_error().to_string());
        }
        libc::close(timer);
        Ok(read(libc::CLOCK_MONOTONIC) - begun)
    }
}

/// Reads all clocks at nearly the same time.
fn read_together() -> Result<[u64; CLOCKS.len()], String> {
    for _ in 0..ATTEMPTS_MAX {
        let all = CLOCKS.map(|(_, clock)| read(clock));
        if read(CLOCKS[0].1) - all[0] <= MOMENT_NANOS {
            return Ok(all);
        }
    }
    Err(format!("{ATTEMPTS_MAX} times the clocks could not be read within {MOMENT_NANOS} ns"))
}

fn read(clock: libc::clockid_t) -> u64 {
    // SAFETY: the time is written to local memory.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn ticks() -> u64 {
    // SAFETY: the instruction has no effect but its result.
    unsafe { core::arch::x86_64::_rdtsc() }
}
