//! Facts about the host for the launcher: the caller's identity and terminal, its processor, and the rate of the
//! time-stamp counter.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use chronodisk_engine::real_host;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::shared::page::ProgramCpu;

/// For each of standard input, output and error, whether it is a terminal.
pub(crate) fn terminals() -> [bool; 3] {
    [io::stdin().is_terminal(), io::stdout().is_terminal(), io::stderr().is_terminal()]
}

/// Rows and columns of the terminal; `None` without one.
pub(crate) fn window_size() -> Option<(u16, u16)> {
    let of = |size: rustix::termios::Winsize| (size.ws_row, size.ws_col);
    rustix::termios::tcgetwinsize(io::stdout())
        .or_else(|_| rustix::termios::tcgetwinsize(io::stdin()))
        .or_else(|_| rustix::termios::tcgetwinsize(io::stderr()))
        .ok()
        .map(of)
}

/// Whether standard input may be read: it is no terminal, or not the terminal of another job.
pub(crate) fn owns_terminal() -> bool {
    !io::stdin().is_terminal()
        || rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// The caller's identity.
pub(crate) struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub umask: u32,
}

pub(crate) fn identity() -> Identity {
    use rustix::process::{getegid, geteuid, getgroups, umask};
    // The mask can only be read by setting it.
    let mask = umask(rustix::fs::Mode::empty());
    umask(mask);
    Identity {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        groups: getgroups().unwrap_or_default().iter().map(|group| group.as_raw()).collect(),
        umask: mask.bits(),
    }
}

/// CPUs of the host for one guest and its device, claimed until this is dropped.
pub(crate) struct HostCpus {
    /// For the guest's kernel and the device, which take turns. With several processors: the first processor's CPU.
    pub kernel: usize,
    /// For the guest's programs.
    pub programs: ProgramCpu,
    /// Affinity of the guest's kernel. Empty: any CPU.
    pub only: Vec<usize>,
    _claims: Vec<UnixDatagram>,
}

impl HostCpus {
    /// Claims a CPU that no other guest of this host has claimed, preferably this thread's own. Programs that are to
    /// have another one get it likewise, preferably with the same last cache. If all are claimed, other guests use
    /// them, too, and the host places the programs.
    pub fn claim(programs_have_own: bool) -> Self {
        let all = usable_cpus();
        let own = all[0];
        let mut claims = Vec::new();
        let mut first_free = |cpus: &[usize]| {
            cpus.iter().copied().find_map(|cpu| {
                claims.push(claim(cpu)?);
                Some(cpu)
            })
        };
        let kernel = first_free(&all).unwrap_or(own);
        let near = sharing_last_cache(kernel);
        let (near, far): (Vec<_>, Vec<_>) =
            all.into_iter().filter(|&cpu| cpu != kernel).partition(|cpu| near.contains(cpu));
        let others = [near, far].concat();
        let programs = match programs_have_own && !others.is_empty() {
            true => first_free(&others).map_or(ProgramCpu::Another, ProgramCpu::Only),
            false => ProgramCpu::Kernels,
        };
        HostCpus { kernel, programs, only: vec![kernel], _claims: claims }
    }

    /// Claims CPUs for a guest with this number of processors. Each processor shares its CPU with its programs, if
    /// [stops are cheapest](programs_have_own_cpu) that way. Otherwise the host places all of them.
    pub fn claim_for_several(processors: usize) -> Self {
        let all = usable_cpus();
        let most = if programs_have_own_cpu() { 0 } else { processors };
        let free = all.iter().filter_map(|&cpu| Some((cpu, claim(cpu)?)));
        let (only, claims): (Vec<_>, Vec<_>) = free.take(most).unzip();
        let kernel = only.first().copied().unwrap_or(all[0]);
        // The host also places the processors if other guests have claimed all CPUs.
        let programs = if only.is_empty() { ProgramCpu::Another } else { ProgramCpu::Kernels };
        HostCpus { kernel, programs, only, _claims: claims }
    }
}

/// Whether guests of this process have a CPU of the host for their programs, beside their kernel's.
///
/// Without process-context identifiers, each switch between a program and the kernel on one CPU empties its
/// translation buffers, and the program takes longer than natively: 2.3 times as long in RocksDB's `db_bench` on an AMD
/// EPYC. With identifiers the buffers stay as they are, and a stop is cheapest on one CPU. There, a stop took 1.5 to 4
/// µs of CPU time on an Intel Xeon under a hypervisor, and 21 to 38 µs if another CPU had to be woken
/// (`experiments/kernel_work`).
pub(crate) fn programs_have_own_cpu() -> bool {
    !Processor::of_host().has_process_contexts && real_host::usable_cpus().len() > 1
}

/// The host's processor. All CPUs of a host are taken to be equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Processor {
    /// Name of its model.
    pub model: String,
    /// Whether its translation buffers keep their entries when it switches to another address space (PCID; Intel SDM
    /// volume 3, 5.10.1).
    pub has_process_contexts: bool,
}

/// Enough of `/proc/cpuinfo` for its first CPU, which takes 1 to 3 KiB.
const FIRST_CPU_BYTES: u64 = 8 << 10;

impl Processor {
    pub fn of_host() -> &'static Self {
        static OF_HOST: OnceLock<Processor> = OnceLock::new();
        OF_HOST.get_or_init(|| {
            let mut first = Vec::new();
            let read = |file: fs::File| file.take(FIRST_CPU_BYTES).read_to_end(&mut first);
            // A file that can't be read has no flags.
            let _ = fs::File::open("/proc/cpuinfo").and_then(read);
            Self::of_information(&String::from_utf8_lossy(&first))
        })
    }

    fn of_information(information: &str) -> Self {
        let value = |name: &str| {
            let of_name = |line: &str| {
                let (key, value) = line.split_once(':')?;
                (key.trim_end() == name).then(|| value.trim().to_owned())
            };
            information.lines().find_map(of_name)
        };
        let flags = value("flags").unwrap_or_default();
        Processor {
            model: value("model name").unwrap_or_else(|| "unknown".to_owned()),
            has_process_contexts: flags.split(' ').any(|flag| flag == "pcid"),
        }
    }
}

/// CPUs that this process may use: this thread's own, then the others.
fn usable_cpus() -> Vec<usize> {
    let own = rustix::thread::sched_getcpu();
    let others = real_host::usable_cpus().into_iter().filter(|&cpu| cpu != own);
    [own].into_iter().chain(others).collect()
}

/// A claim is an abstract socket name, which is released with its last descriptor.
fn claim(cpu: usize) -> Option<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("chronodisk-cpu-{cpu}")).ok()?;
    UnixDatagram::bind_addr(&name).ok()
}

/// CPUs that share the cache of the highest level with this one; none if the host does not say.
fn sharing_last_cache(cpu: usize) -> Vec<usize> {
    let caches = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    let list = |level: u32| fs::read_to_string(format!("{caches}/index{level}/shared_cpu_list"));
    let last = (0..).map_while(|level| list(level).ok()).last();
    last.and_then(|list| real_host::listed_cpus(&list)).unwrap_or_default()
}

/// Puts a command into its own process group, because the launcher handles the terminal's Ctrl-C.
pub(crate) fn own_process_group(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

/// A descriptor that becomes readable when the child ends.
pub(crate) fn pidfd_of(child: &Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}

/// A reading of the host's time stamp counter and its monotonic clock at nearly one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterReading {
    /// Value of the counter in the middle between a read before the clock's reading and one after it.
    ticks: u64,
    clock: Instant,
}

impl CounterReading {
    /// The tightest of many readings: few are disturbed by an interrupt, or by the loss of the processor.
    pub fn now() -> Self {
        let mut tightest = Self::once();
        for _ in 1..READINGS {
            let next = Self::once();
            if next.0 < tightest.0 {
                tightest = next;
            }
        }
        tightest.1
    }

    /// One, after the counter's ticks that it took.
    fn once() -> (u64, Self) {
        // SAFETY: the instruction has no effect but its result.
        let read = || unsafe { core::arch::x86_64::_rdtsc() };
        let before = read();
        let clock = Instant::now();
        let gap = read().saturating_sub(before);
        (gap, CounterReading { ticks: before + gap / 2, clock })
    }

    /// The first that this process made.
    pub fn first() -> Self {
        static FIRST: OnceLock<CounterReading> = OnceLock::new();
        *FIRST.get_or_init(Self::now)
    }

    /// The counter's rate in hertz from this reading until now; waits if the interval is too short.
    /// Guest programs see a counter of exactly this rate that follows the guest's time, so an error only affects a
    /// printed clock rate. A tight reading is uncertain by some 20 ns, which is 10 ppm of the shortest interval, and
    /// less of a longer one.
    pub fn hertz_since(self) -> u64 {
        std::thread::sleep(MEASURED_MIN.saturating_sub(self.clock.elapsed()));
        self.hertz_until(Self::now())
    }

    fn hertz_until(self, last: Self) -> u64 {
        let nanos = (last.clock - self.clock).as_nanos().max(1);
        let ticks = u128::from(last.ticks.saturating_sub(self.ticks));
        ((ticks * 1_000_000_000 + nanos / 2) / nanos).max(1) as u64
    }
}

const READINGS: u32 = 64;
/// Shortest measurement of the rate. A run waits as long for its device's process, so usually no thread sleeps.
const MEASURED_MIN: Duration = Duration::from_millis(4);

/// Waits for any of them; an interruption is as good as an event.
pub(crate) fn wait_for(waits: &mut [PollFd<'_>], most: Duration) -> io::Result<()> {
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    match poll(waits, Some(&most)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a reader of standard input could block: a regular file is always ready.
pub(crate) fn may_wait(stdin: &io::Stdin) -> bool {
    let is_file = rustix::fs::fstat(stdin)
        .is_ok_and(|status| rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::RegularFile);
    let mut wait = [PollFd::new(stdin, PollFlags::IN)];
    !is_file && wait_for(&mut wait, Duration::ZERO).is_ok() && wait[0].revents().is_empty()
}

/// Whether the command is a shell that a person will type into.
pub(crate) fn is_shell(command: &[OsString]) -> bool {
    let name = command.first().and_then(|program| Path::new(program).file_name());
    command.len() == 1 && name.is_some_and(|name| SHELLS.iter().any(|&shell| name == shell))
}

const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "fish"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_has_a_plausible_rate() {
        let hertz = CounterReading::first().hertz_since();
        assert!((100_000_000..20_000_000_000).contains(&hertz), "{hertz} Hz");
    }

    #[test]
    fn a_processor_is_described_by_the_first_one_of_the_list() {
        let of = |flags: &str| format!("processor\t: 0\nmodel name\t: A 5\nflags\t\t: {flags}\nvmx flags\t: pcid\n\n");
        let with = Processor { model: "A 5".to_owned(), has_process_contexts: true };
        assert_eq!(Processor::of_information(&(of("fpu pcid sse") + &of("fpu"))), with);
        assert!(!Processor::of_information(&(of("fpu invpcid pcid_") + &of("pcid"))).has_process_contexts);
        let unknown = Processor { model: "unknown".to_owned(), has_process_contexts: false };
        assert_eq!(Processor::of_information("nothing"), unknown);
        assert_ne!(Processor::of_host().model, "unknown");
    }

    #[test]
    fn programs_have_another_cpu_than_their_kernel_if_there_is_one() {
        let cpus = HostCpus::claim(true);
        assert_eq!(cpus.programs != ProgramCpu::Kernels, real_host::usable_cpus().len() > 1);
        assert_ne!(cpus.programs, ProgramCpu::Only(cpus.kernel));
        assert_eq!(HostCpus::claim(false).programs, ProgramCpu::Kernels);
    }

    #[test]
    fn several_processors_have_distinct_cpus_or_are_placed_by_the_host() {
        let usable = real_host::usable_cpus();
        let cpus = HostCpus::claim_for_several(4);
        assert!(cpus.only.len() <= usable.len().min(4));
        assert!(cpus.only.iter().all(|cpu| usable.contains(cpu)));
        let distinct: std::collections::BTreeSet<_> = cpus.only.iter().collect();
        assert_eq!(distinct.len(), cpus.only.len());
        assert_eq!(cpus.programs == ProgramCpu::Kernels, !cpus.only.is_empty());
        // Another guest gets none of these.
        let others = HostCpus::claim_for_several(4);
        assert!(others.only.iter().all(|cpu| !cpus.only.contains(cpu)));
    }

    #[test]
    fn a_rate_is_ticks_by_time_to_the_nearest_hertz() {
        let first = CounterReading { ticks: 1_000, clock: Instant::now() };
        let after = |ticks: u64, clock: Duration| CounterReading { ticks: 1_000 + ticks, clock: first.clock + clock };
        assert_eq!(first.hertz_until(after(21_000_000, Duration::from_millis(10))), 2_100_000_000);
        assert_eq!(first.hertz_until(after(2, Duration::from_nanos(3))), 666_666_667);
        // After a move to a processor with another counter, the difference may be zero: no division by zero.
        assert_eq!(first.hertz_until(first), 1);
    }

    #[test]
    fn a_reading_is_between_those_around_it() {
        let [before, between, after] = [(); 3].map(|()| CounterReading::now());
        assert!(before.ticks < between.ticks && between.ticks < after.ticks);
        assert!(before.clock <= between.clock && between.clock <= after.clock);
    }
}
