//! `chronodisk doctor`: present and missing parts of this host, with the commands to install them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use chronodisk_guest::built_kernel::{self, KernelVariant};
use chronodisk_guest::{UserModeLinux, calibration};
use chronodisk_run::memory::host_memory_bytes;
use chronodisk_run::{RunDirectory, RunFolder};
use clap::Args;
use serde::Serialize;

use crate::failure::{Outcome, status};
use crate::output;

/// Checks this host for missing programs and permissions, and prints the commands to install them
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 if `chronodisk run` works here, 3 if not.\n\nExample: chronodisk doctor")]
pub struct Arguments {
    /// Does not boot a guest, which takes about two seconds
    #[arg(long)]
    no_guest: bool,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Name and version of the JSON form; added fields don't change it.
const SCHEMA: &str = "chronodisk.doctor/1";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// The item is present.
    Ok,
    /// The item is missing, but optional.
    Optional,
    /// `chronodisk run` needs it.
    Missing,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    /// Purpose.
    needed_for: &'static str,
    state: State,
    found: String,
    /// Command to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    /// Whether `chronodisk run` works here.
    can_run: bool,
    checks: Vec<Check>,
}

const RUN: &str = "run";
const REAL_TIME: &str = "serve, mount";
const MOUNT: &str = "mount, serve --attach";
const WHATIF: &str = "whatif";

/// Checks everything, and prints the findings.
pub fn execute(arguments: Arguments) -> Outcome {
    let mut checks = vec![host(), memory(), space()];
    checks.push(guest_kernel());
    checks.extend(MAKERS.iter().map(maker));
    let ready = checks.iter().all(|check| check.state != State::Missing);
    if !arguments.no_guest {
        checks.push(if ready { guest() } else { no_guest() });
    }
    checks.extend(KernelVariant::ALL.map(built));
    checks.extend([calibrated(), priority()]);
    let privileges = Privileges::read();
    checks.extend([
        device_file("/dev/ublk-control", "ublk_drv"),
        device_file("/dev/fuse", "fuse"),
        device_file("/dev/loop-control", "loop"),
        administrator(&privileges),
    ]);
    checks.extend([btf(), cgroup(), bpf(&privileges)]);
    let can_run = checks.iter().all(|check| check.state != State::Missing);
    let report = Report { schema: SCHEMA, can_run, checks };
    if arguments.json {
        output::json(&report)?;
    } else {
        output::data(&render(&report))?;
    }
    Ok(if can_run { status::FINE } else { status::HOST_LACKS })
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let state = match check.state {
            State::Ok => "ok",
            State::Optional => "-",
            State::Missing => "MISSING",
        };
        text.push_str(&format!("{state:<8} {:<18} {}\n", check.name, check.found));
        if let Some(remedy) = &check.remedy {
            text.push_str(&format!("{:8} {:18} for {}: {remedy}\n", "", "", check.needed_for));
        }
    }
    text.push_str(match report.can_run {
        true => "\n`chronodisk run` works here.\n",
        false => "\n`chronodisk run` does not work here yet: see the lines with MISSING.\n",
    });
    text
}

fn fine(name: &'static str, needed_for: &'static str, found: impl Into<String>) -> Check {
    Check { name, needed_for, state: State::Ok, found: found.into(), remedy: None }
}

impl Check {
    fn lacks(mut self, state: State, remedy: impl Into<String>) -> Self {
        self.state = state;
        self.remedy = Some(remedy.into());
        self
    }
}

fn host() -> Check {
    let host = chronodisk_sweep::host_info();
    let found = format!("{}, {} CPUs, Linux {}", host.cpu_model, host.cores, host.kernel);
    let check = fine("host", RUN, found);
    if cfg!(target_arch = "x86_64") {
        check
    } else {
        check.lacks(State::Missing, "use a host with an x86-64 processor")
    }
}

/// The guest's own by default, and its device's bytes.
const MEMORY_BYTES: u64 = 1 << 30;

fn memory() -> Check {
    let total = host_memory_bytes();
    let available = of_meminfo("MemAvailable:").unwrap_or(total);
    let found = format!("{} available of {}", output::size(available), output::size(total));
    let check = fine("memory", RUN, found);
    match available {
        MEMORY_BYTES.. => check,
        _ => check.lacks(State::Optional, "end other programs, or run with --memory 128MiB --ram-budget 256MiB"),
    }
}

fn of_meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// Room for some results; a request takes about 20 bytes of a log.
const SPACE_BYTES: u64 = 100 << 20;

fn space() -> Check {
    let folder = match RunFolder::of_user() {
        Ok(folder) => folder,
        Err(failure) => {
            return fine("results", RUN, failure.to_string()).lacks(State::Missing, "export HOME=DIRECTORY");
        }
    };
    let shown = folder.path().display().to_string();
    if let Err(failure) = RunDirectory::at(folder.path()).expect_place() {
        return fine("results", RUN, failure.to_string()).lacks(State::Optional, "run with --output DIRECTORY");
    }
    let there = folder.path().ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let free = rustix::fs::statvfs(there).map_or(0, |free| free.f_bavail.saturating_mul(free.f_frsize));
    let check = fine("results", RUN, format!("{} free in {shown}", output::size(free)));
    match free {
        SPACE_BYTES.. => check,
        _ => check.lacks(State::Optional, "chronodisk rm --older-than 30d"),
    }
}

fn guest_kernel() -> Check {
    match UserModeLinux::find_any() {
        Ok(kernel) if kernel.modules.is_none() => {
            fine("guest kernel", RUN, format!("{}, that of the exact clock", kernel.executable.display()))
        }
        Ok(kernel) => {
            let modules = kernel.modules.as_ref().and_then(|folder| folder.file_name());
            let release = modules.map_or(String::new(), |name| format!(", Linux {}", name.to_string_lossy()));
            fine("guest kernel", RUN, format!("{}{release}", kernel.executable.display()))
        }
        Err(lacks) => fine("guest kernel", RUN, lacks.what).lacks(State::Missing, INSTALL_GUEST),
    }
}

const INSTALL_GUEST: &str = "apt-get install user-mode-linux (as root; other distributions: chronodisk kernel install \
    FILE, with what `chronodisk kernel package` wrote on a Debian)";

/// A program that makes or mounts a file system: its name, its user, and its package.
struct Maker(&'static str, &'static str, &'static str);

/// The default file system's programs come first.
const MAKERS: [Maker; 4] = [
    Maker("mount", "run with any file system", "mount"),
    Maker("mkfs.ext4", "run --fs ext4, the default", "e2fsprogs"),
    Maker("mkfs.xfs", "run --fs xfs", "xfsprogs"),
    Maker("mkfs.btrfs", "run --fs btrfs", "btrfs-progs"),
];

fn maker(Maker(program, needed_for, package): &Maker) -> Check {
    let folders = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];
    match folders.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.exists()) {
        Some(path) => fine(program, needed_for, path.display().to_string()),
        None => {
            let state = if ["mount", "mkfs.ext4"].contains(program) { State::Missing } else { State::Optional };
            fine(program, needed_for, "not installed").lacks(state, format!("apt-get install {package} (as root)"))
        }
    }
}

/// Longest wait for a guest's answer.
const GUEST_MAX: Duration = Duration::from_secs(60);

/// Boots a guest as a user would, in a process of its own.
fn guest() -> Check {
    const NAME: &str = "guest";
    let broken = |what: String| {
        let remedy = "chronodisk run --device null -- true, and report its message";
        fine(NAME, RUN, what).lacks(State::Missing, remedy)
    };
    let folder = Folder(std::env::temp_dir().join(format!("chronodisk-doctor-{}", std::process::id())));
    let Ok(program) = std::env::current_exe() else { return broken("this executable can't be found".into()) };
    let begun = Instant::now();
    let child = Command::new(program)
        .args(["run", "--device", "null", "--fs", "ext4", "--capacity", "64MiB", "--memory", "128MiB", "--output"])
        .args([folder.0.as_os_str(), "--".as_ref(), "true".as_ref()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return broken(format!("can't start: {error}")),
    };
    while begun.elapsed() < GUEST_MAX {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Ok(Some(status)) if status.success() => {
                return fine(
                    NAME,
                    RUN,
                    format!("boots, mounts ext4 and ends in {:.1} s", begun.elapsed().as_secs_f64()),
                );
            }
            Ok(Some(status)) => return broken(format!("{status}: {}", last_line(child))),
            Err(error) => return broken(error.to_string()),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    broken(format!("not done after {} s", GUEST_MAX.as_secs()))
}

fn last_line(child: std::process::Child) -> String {
    let said = child.wait_with_output().map(|output| output.stderr).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    output::shortened(said.lines().find(|line| line.contains("error")).unwrap_or("it said nothing"), 160)
}

/// A temporary folder.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn no_guest() -> Check {
    fine("guest", RUN, "not tried").lacks(State::Missing, "follow the lines above")
}

/// A kernel that `kernel build` makes.
fn built(variant: KernelVariant) -> Check {
    let (name, needed_for) = match variant {
        KernelVariant::Exact => ("exact kernel", "run --clock exact, whose runs repeat to the nanosecond"),
        KernelVariant::Zones => ("zones kernel", "run on devices with zones"),
        KernelVariant::Processors => ("processors kernel", "run --cpus, guests with several processors"),
    };
    match built_kernel::find(variant) {
        Ok(kernel) => fine(name, needed_for, kernel.executable.display().to_string()),
        Err(lacks) => fine(name, needed_for, lacks.what).lacks(
            State::Optional,
            format!("chronodisk kernel build {}; or chronodisk kernel install FILE, a package of it", variant.name()),
        ),
    }
}

fn calibrated() -> Check {
    const FOR: &str = "CPU times of guests on this machine";
    let age = || calibration::file().and_then(|file| fs::metadata(file).ok()?.modified().ok()?.elapsed().ok());
    match (calibration::kept(), age()) {
        (Some(_), Some(age)) => fine("calibration", FOR, format!("{} days old", age.as_secs() / 86_400)),
        (Some(_), None) => fine("calibration", FOR, "there"),
        (None, Some(_)) => fine("calibration", FOR, "of another machine, kernel or version")
            .lacks(State::Optional, "chronodisk calibrate"),
        (None, None) => fine("calibration", FOR, "none; kernel time by built-in costs")
            .lacks(State::Optional, "chronodisk calibrate"),
    }
}

fn priority() -> Check {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max realtime priority"));
    let permitted = limit.and_then(|line| line.split_whitespace().next()).is_some_and(|soft| soft != "0");
    if permitted || Privileges::read().has(CAP_SYS_NICE) {
        return fine("real-time priority", REAL_TIME, "permitted");
    }
    fine("real-time priority", REAL_TIME, "not permitted; replies are later on a busy host")
        .lacks(State::Optional, "run as root, or set `USER - rtprio 20` in /etc/security/limits.conf and log in again")
}

fn device_file(path: &'static str, module: &str) -> Check {
    let name = path;
    match rustix::fs::access(path, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK) {
        Ok(()) => fine(name, MOUNT, "there"),
        Err(rustix::io::Errno::NOENT) => {
            let remedy = format!("modprobe {module} (as root; in a container, pass {path} to it)");
            fine(name, MOUNT, "does not exist").lacks(State::Optional, remedy)
        }
        Err(error) => fine(name, MOUNT, error.to_string()).lacks(State::Optional, "run as root"),
    }
}

const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_NICE: u32 = 23;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Effective capabilities, as a mask.
struct Privileges(u64);

impl Privileges {
    fn read() -> Self {
        let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Privileges(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    fn has(&self, capability: u32) -> bool {
        self.0 >> capability & 1 == 1
    }
}

fn administrator(privileges: &Privileges) -> Check {
    const NAME: &str = "CAP_SYS_ADMIN";
    match privileges.has(CAP_SYS_ADMIN) {
        true => fine(NAME, MOUNT, "there"),
        false => fine(NAME, MOUNT, "absent").lacks(State::Optional, "run it as root: sudo chronodisk mount ..."),
    }
}

fn btf() -> Check {
    const NAME: &str = "BTF";
    let path = "/sys/kernel/btf/vmlinux";
    match fs::File::open(path) {
        Ok(_) => fine(NAME, WHATIF, path),
        Err(error) => fine(NAME, WHATIF, format!("{path}: {error}"))
            .lacks(State::Optional, "boot a kernel with CONFIG_DEBUG_INFO_BTF, such as Debian's"),
    }
}

fn cgroup() -> Check {
    const NAME: &str = "cgroup v2";
    let found = ["/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/unified/cgroup.controllers"];
    match found.into_iter().find(|path| Path::new(path).exists()) {
        Some(path) => fine(NAME, WHATIF, path.trim_end_matches("/cgroup.controllers")),
        None => fine(NAME, WHATIF, "not mounted in /sys/fs/cgroup")
            .lacks(State::Optional, "mount -t cgroup2 none /sys/fs/cgroup (as root)"),
    }
}

fn bpf(privileges: &Privileges) -> Check {
    const NAME: &str = "CAP_BPF";
    let has = privileges.has(CAP_SYS_ADMIN) || (privileges.has(CAP_BPF) && privileges.has(CAP_PERFMON));
    match has {
        true => fine(NAME, WHATIF, "there"),
        false => fine(NAME, WHATIF, "absent").lacks(State::Optional, "run as root"),
    }
}
