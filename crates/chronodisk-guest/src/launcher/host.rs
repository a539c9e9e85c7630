//! Facts about the host for the launcher: the guest's kernel, the caller's identity and terminal, the rate of the
//! time-stamp counter.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::kernel::built::{self, KernelVariant};
use crate::shared::time::GuestTime;

/// The host lacks something that a guest needs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct HostLacks {
    /// The missing thing.
    pub what: String,
    /// Advice.
    pub help: String,
}

/// A User Mode Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserModeLinux {
    /// The kernel, an ordinary program.
    pub executable: PathBuf,
    /// Folder of its modules; `None` if all modules of a guest are built in.
    pub modules: Option<PathBuf>,
}

const KERNEL: &str = "linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";

impl UserModeLinux {
    /// A kernel of the user's own: from a package in `PREFIX/bin`, with its modules in `PREFIX/lib/uml/modules`, or one
    /// with all modules built in.
    ///
    /// # Errors
    /// If the program does not exist.
    pub fn at(file: &Path) -> Result<Self, HostLacks> {
        if !is_executable(file) {
            return Err(HostLacks {
                what: format!("{} is no kernel that can be run", file.display()),
                help: "expected the program `linux` that a kernel's build with ARCH=um makes".into(),
            });
        }
        let executable = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let prefix = executable.parent().and_then(Path::parent);
        let modules = prefix.and_then(|prefix| release_of(&executable, releases_in(&prefix.join("lib/uml/modules"))));
        Ok(UserModeLinux { executable, modules })
    }

    /// The kernel of a guest with this clock: `file`, or the installed one for the clock.
    ///
    /// # Errors
    /// If it does not exist.
    pub(crate) fn for_clock(time: &GuestTime, file: Option<&Path>) -> Result<Self, HostLacks> {
        match (file, time) {
            (Some(file), _) => UserModeLinux::at(file),
            (None, GuestTime::Exact { .. }) => built::find(KernelVariant::Exact),
            (None, GuestTime::Several { .. }) => built::find(KernelVariant::Processors),
            (None, GuestTime::Stopping { .. } | GuestTime::Real) => UserModeLinux::find_any(),
        }
    }

    /// The kernel of a guest with a zoned device: `file`, or the one that was built for it.
    ///
    /// # Errors
    /// When it is not there, or knows no zoned devices.
    pub(crate) fn with_zones(time: &GuestTime, file: Option<&Path>) -> Result<Self, HostLacks> {
        let Some(file) = file else {
            return built::find(match time {
                GuestTime::Several { .. } => KernelVariant::Processors,
                _ => KernelVariant::Zones,
            });
        };
        let kernel = UserModeLinux::at(file)?;
        match first_in_image(&kernel.executable, &[ZONED_SYMBOL.to_vec()]) {
            Some(_) => Ok(kernel),
            None => Err(HostLacks {
                what: format!("the kernel {} was built without BLK_DEV_ZONED", file.display()),
                help: "a zoned device needs it: leave --kernel out after `chronodisk kernel build zones`, or build \
                       your own with CONFIG_BLK_DEV_ZONED=y"
                    .into(),
            }),
        }
    }

    /// The distribution's kernel, or, without it, the kernel of the exact clock, which can keep this host's time, too.
    /// # Errors
    /// If neither is installed.
    pub fn find_any() -> Result<Self, HostLacks> {
        UserModeLinux::find().or_else(|mut lacks| {
            built::find(KernelVariant::Exact).map_err(|_| {
                lacks.help += "; or the kernel of the exact clock: chronodisk help kernel";
                lacks
            })
        })
    }

    /// Finds the distribution's kernel in its usual place.
    ///
    /// # Errors
    /// If it is not installed.
    pub fn find() -> Result<Self, HostLacks> {
        let lacks = |what: String| HostLacks {
            what,
            help: "Debian has it: apt-get install user-mode-linux (as root; no other right or module is needed)".into(),
        };
        let executable = find_program(KERNEL)
            .ok_or_else(|| lacks(format!("{KERNEL}, the kernel that guests run, is not in PATH")))?;
        let mut releases = releases_in(Path::new(MODULES));
        // Most hosts have one release, and need no look into the image.
        let modules = if releases.len() == 1 { releases.pop() } else { release_of(&executable, releases) };
        let modules = modules.ok_or_else(|| lacks(format!("the modules of {KERNEL} are not in {MODULES}")))?;
        Ok(UserModeLinux { executable, modules: Some(modules) })
    }
}

/// A symbol of kernels with `CONFIG_BLK_DEV_ZONED` alone, exported to modules (`block/blk-zoned.c`).
const ZONED_SYMBOL: &[u8] = b"blk_revalidate_disk_zones";

/// The releases in a folder of modules.
fn releases_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.join("modules.dep").is_file()).collect()
}

/// The release according to a kernel's image. The kernel is not run for this, since it would not be confined.
fn release_of(kernel: &Path, releases: Vec<PathBuf>) -> Option<PathBuf> {
    if releases.is_empty() {
        return None;
    }
    // The beginning of the kernel's banner, as in /proc/version.
    let banner = |release: &PathBuf| {
        let name = release.file_name().unwrap_or_default().as_encoded_bytes();
        [b"Linux version ", name, b" "].concat()
    };
    let banners: Vec<Vec<u8>> = releases.iter().map(banner).collect();
    first_in_image(kernel, &banners).and_then(|found| releases.into_iter().nth(found))
}

/// The index of the text that a kernel's image has first.
fn first_in_image(kernel: &Path, texts: &[Vec<u8>]) -> Option<usize> {
    let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
    let mut image = File::open(kernel).ok()?;
    let (mut part, mut kept) = (vec![0; IMAGE_PART_BYTES], 0);
    loop {
        let read = image.read(&mut part[kept..]).ok()?;
        if read == 0 {
            return None;
        }
        let seen = &part[..kept + read];
        let has = |text: &Vec<u8>| seen.windows(text.len()).any(|window| window == text);
        if let Some(found) = texts.iter().position(has) {
            return Some(found);
        }
        // A text may go on in the next part.
        let (end, next) = (kept + read, longest.min(kept + read));
        part.copy_within(end - next..end, 0);
        kept = next;
    }
}

/// Bytes of a kernel's image that are searched at once.
const IMAGE_PART_BYTES: usize = 1 << 20;

/// Looks a program up in PATH.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Refuses early when the guest would lack a program; it also looks where only root's PATH does.
pub(crate) fn require_program(name: &str, package: &str) -> Result<(), HostLacks> {
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];
    if system.iter().any(|folder| is_executable(&Path::new(folder).join(name))) {
        return Ok(());
    }
    Err(HostLacks {
        what: format!("{name} is not installed"),
        help: format!("Debian has it: apt-get install {package}"),
    })
}

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

/// A CPU of the host for one guest and its device, claimed until this is dropped.
///
/// The claim is an abstract socket name, which is released with its last descriptor.
pub(crate) struct HostCpu {
    pub number: usize,
    _claim: Option<UnixDatagram>,
}

impl HostCpu {
    /// Claims a CPU that no other guest of this host has claimed, preferably this thread's own; its own if all are
    /// claimed.
    pub fn claim() -> Self {
        let own = rustix::thread::sched_getcpu();
        let allowed = rustix::thread::sched_getaffinity(None).ok();
        let others = (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|&cpu| cpu != own && allowed.as_ref().is_some_and(|allowed| allowed.is_set(cpu)));
        for number in [own].into_iter().chain(others) {
            let name = format!("chronodisk-cpu-{number}");
            let claim = SocketAddr::from_abstract_name(name).and_then(|name| UnixDatagram::bind_addr(&name));
            if let Ok(claim) = claim {
                return HostCpu { number, _claim: Some(claim) };
            }
        }
        HostCpu { number: own, _claim: None }
    }
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
    /// Guest programs see a counter of exactly this rate that follows the guest's time, so an error here shows in
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
    fn a_kernel_has_the_modules_of_its_own_release() {
        let prefix = tempfile::tempdir().unwrap();
        let path = |name: &str| prefix.path().join(name);
        let kernel = path("linux.uml");
        for release in ["6.1.176", "6.12.113", "7.2.7"] {
            fs::create_dir(path(release)).unwrap();
            fs::write(path(release).join("modules.dep"), "").unwrap();
        }
        let of = |image: &[u8]| {
            fs::write(&kernel, image).unwrap();
            release_of(&kernel, releases_in(prefix.path()))
        };
        assert_eq!(of(b"\x7fELF\0%s\0Linux version 6.12.113 (buildd@x) #1\0"), Some(path("6.12.113")));
        assert_eq!(of(b"\x7fELF\0Linux version 6.1.17 (x)\0 6.1.176 \0"), None);
        assert_eq!(of(b"Linux version "), None);
        // At the boundary of two parts.
        for before in [30, 20, 1].map(|earlier| IMAGE_PART_BYTES - earlier) {
            let image = [&vec![b'L'; before][..], b"Linux version 7.2.7 (x)"].concat();
            assert_eq!(of(&image), Some(path("7.2.7")), "{before}");
        }
        assert!(releases_in(&path("none")).is_empty());
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = require_program("mkfs.no-such-thing", "some-package").unwrap_err();
        assert!(error.what.contains("mkfs.no-such-thing"));
        assert!(error.help.contains("apt-get install some-package"));
    }

    #[test]
    fn the_counter_has_a_plausible_rate() {
        let hertz = CounterReading::first().hertz_since();
        assert!((100_000_000..20_000_000_000).contains(&hertz), "{hertz} Hz");
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
