//! The guest's first process: sets up the host's tree and the device, runs the command as the calling user, relays its
//! input and output, and powers the guest off.
//!
//! It is this same executable, which the guest's kernel starts from the host's tree.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use chronodisk_sim::SECTOR_BYTES;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_move, unmount};
use rustix::process::{Gid, Signal, Uid, WaitOptions};
use rustix::system::{RebootCommand, reboot, sysinfo};

use super::dropped::UpperLayer;
use super::generic_code::{self, CryptoUsers};
use super::kernel_log::{KernelLog, LogPlace};
use super::learning;
use super::leftovers::Mounts;
use super::machine;
use super::modules;
use super::relay::{self, CommandEnd, Serial};
use super::root;
use super::settle::settle;
use super::trap_probe;
use super::zonefs;
use crate::shared::device_names::{DEVICE, device_name};
use crate::shared::filesystem::{FileSystem, uuid_of};
use crate::shared::spec::{CheckResult, Ending, Exited, GuestSpec, Mark, RootChoice, Settled, Stage};

/// The serial line to the launcher.
const SERIAL: &str = "/dev/ttyS0";
/// Usual folders of programs, including those that only root calls.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs as the guest's first process and powers the guest off; never returns.
pub fn guest_init() -> ! {
    // SAFETY: no other thread runs in this process yet.
    unsafe { std::env::set_var("PATH", SYSTEM_PATH) };
    match Serial::open(SERIAL) {
        Ok(mut serial) => {
            let ending = match live(&mut serial) {
                Ok(ending) => ending,
                Err(failure) => Ending::Failed { stage: failure.stage, message: failure.message },
            };
            serial.send_ending(&ending);
        }
        Err(error) => eprintln!("chronodisk guest: {SERIAL}: {error}"),
    }
    rustix::fs::sync();
    let error = reboot(RebootCommand::PowerOff);
    panic!("the guest could not be powered off: {error:?}");
}

/// Reason why the guest could not do its work.
struct Failure {
    stage: Stage,
    message: String,
}

impl Failure {
    /// Adds the guest kernel's log messages about the failure.
    fn explained_by(mut self, log: &LogPlace) -> Self {
        let complaints = log.complaints();
        if !complaints.is_empty() {
            self.message = format!("{}\nthe guest's kernel logged: {complaints}", self.message);
        }
        self
    }
}

trait At<T> {
    /// Adds the stage and the attempted action.
    fn at(self, stage: Stage, doing: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: std::fmt::Display> At<T> for Result<T, E> {
    fn at(self, stage: Stage, doing: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure { stage, message: format!("{}: {error}", doing()) })
    }
}

fn live(serial: &mut Serial) -> Result<Ending, Failure> {
    let spec = serial.receive_hello().at(Stage::Boot, || "no instructions came from the launcher".into())?;
    let Prepared { host_tree, upper } = prepare(&spec)?;
    let crypto_users = CryptoUsers::now();
    mark(serial, Stage::Boot);

    make_file_system(&spec)?;
    mark(serial, Stage::Mkfs);
    let folders_made = mount_file_system(&spec, &host_tree)?;
    let root = (spec.root != RootChoice::Host).then_some(Path::new(root::ROOT));
    machine::hosts_are_shown_in(root).at(Stage::Mount, || "the list of hosts".into())?;
    mark(serial, Stage::Mount);
    let settled = match spec.settles {
        true => settle(spec.devices).at(Stage::Settle, || "waiting for the file system".into())?,
        false => Settled::NotAwaited,
    };
    mark(serial, Stage::Settle);
    find_working_directory(&spec)?;
    let mut log = KernelLog::from_now();
    let mounts = Mounts::now().at(Stage::Command, || "the list of mounts".into())?;
    trap_probe::run();
    learning::reveal_ids();
    if spec.drop_caches || spec.root != RootChoice::Host {
        drop_caches()?;
    }

    if spec.replays {
        allow_all_task_ids()?;
    }
    let CommandEnd { status, was_asked_for } = relay::run_command(serial, &spec, |serial| mark(serial, Stage::Command))
        .at(Stage::Command, || "the command could not be run".into())?;

    let generic_code = generic_code::held_since(&crypto_users);
    end_all_processes(if was_asked_for { LOOKS_IN_HASTE } else { LOOKS_AFTER_TERM });
    mounts.take_away_newer().at(Stage::Unmount, || "the command's mounts".into())?;
    unmount_file_system(&spec)?;
    remove_folders(&folders_made);
    mark(serial, Stage::Unmount);
    let check = check_file_system(&spec)?;
    mark(serial, Stage::Check);
    let kernel_release = rustix::system::uname().release().to_string_lossy().into_owned();
    let dropped = upper.filter(|_| spec.root == RootChoice::Host).map(|upper| upper.files()).unwrap_or_default();
    let kernel_warnings = log.warnings();
    Ok(Ending::Exited(Exited { status, kernel_release, check, kernel_warnings, settled, dropped, generic_code }))
}

fn mark(serial: &mut Serial, stage: Stage) {
    // SAFETY: the instruction only returns a value. Under the guest's clock it is trapped and answered in virtual time,
    // as intended here.
    let time_stamp_counter = unsafe { core::arch::x86_64::_rdtsc() };
    serial.send_mark(&Mark { stage, time_stamp_counter });
}

/// Results of the preparations before the first mount.
struct Prepared {
    /// The host's tree below the overlay.
    host_tree: OwnedFd,
    /// Upper layer for the guest's writes to that tree; `None` if the guest writes to the tree itself.
    upper: Option<UpperLayer>,
}

/// Sets up the host's tree, the kernel's own file systems, and the device.
fn prepare(spec: &GuestSpec) -> Result<Prepared, Failure> {
    let host_tree = root::open_host_tree().at(Stage::Boot, || "the host's tree".into())?;
    // The user's own modules come first, because they may replace the kernel's.
    for path in spec.own_modules.iter().chain(spec.modules.iter().flatten()) {
        let path = Path::new(OsStr::from_bytes(path));
        let log = LogPlace::now();
        modules::load_file(path)
            .at(Stage::Boot, || format!("kernel module {}", path.display()))
            .map_err(|failure| failure.explained_by(&log))?;
    }
    let mut upper = None;
    if !spec.host_writes {
        upper = Some(enter_overlay().at(Stage::Boot, || "an overlay over the host's tree".into())?);
    }
    mount_kernel_file_systems();
    machine::name().at(Stage::Boot, || "the guest's host name".into())?;
    bring_loopback_up();
    for index in 0..spec.devices {
        let name = device_name(index);
        wait_for_device(&name)?;
        expect_zones(spec, index, &name)?;
        if let Some(scheduler) = &spec.scheduler {
            let file = format!("/sys/block/{name}/queue/scheduler");
            fs::write(&file, scheduler).at(Stage::Boot, || format!("I/O scheduler '{scheduler}' ({file})"))?;
        }
    }
    machine::set_queues(&spec.rotational).at(Stage::Boot, || "the devices' queues".into())?;
    own_bare_devices(spec)?;
    Ok(Prepared { host_tree, upper })
}

/// Makes a writable copy of the tree whose changes stay in the guest's memory, and enters it.
fn enter_overlay() -> io::Result<UpperLayer> {
    let below = ["/tmp", "/mnt", "/run"]
        .into_iter()
        .find(|folder| Path::new(folder).is_dir())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the tree has none of /tmp, /mnt, /run"))?;
    let options = c_string(format!("size={},mode=0755", bytes_for_files()));
    mount("chronodisk", below, "tmpfs", MountFlags::empty(), options.as_c_str())?;
    let folder = |name: &str| format!("{below}/{name}");
    for name in ["upper", "work", "root"] {
        fs::create_dir(folder(name))?;
    }
    let upper = UpperLayer::open(&folder("upper"))?;
    let options = c_string(format!("lowerdir=/,upperdir={},workdir={}", folder("upper"), folder("work")));
    mount("overlay", folder("root"), "overlay", MountFlags::empty(), options.as_c_str())?;
    rustix::process::chdir(folder("root"))?;
    mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")?;
    Ok(upper)
}

fn c_string(text: String) -> CString {
    CString::new(text).expect("no zero byte")
}

/// Memory that files of the overlay may fill. Programs that write more get an error, and there is memory left for them
/// and the kernel, which otherwise would kill them or panic.
fn bytes_for_files() -> u64 {
    const RESERVE_BYTES_MIN: u64 = 16 << 20;
    let memory = sysinfo();
    let unit = u64::from(memory.mem_unit);
    let reserve = (memory.totalram * unit / 20).max(RESERVE_BYTES_MIN);
    (memory.freeram * unit).saturating_sub(reserve).max(1 << 20)
}

/// Mounts the kernel's file systems; those without a folder in the tree are omitted, as on a host without them.
fn mount_kernel_file_systems() {
    let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mounts: [(&str, &str, MountFlags, &std::ffi::CStr); 5] = [
        ("proc", "/proc", plain, c""),
        ("sysfs", "/sys", plain, c""),
        ("devtmpfs", "/dev", MountFlags::NOSUID, c"mode=0755"),
        ("devpts", "/dev/pts", MountFlags::NOSUID | MountFlags::NOEXEC, c"mode=0620,ptmxmode=0666"),
        ("tmpfs", "/dev/shm", MountFlags::NOSUID | MountFlags::NODEV, c"mode=1777"),
    ];
    for (kind, folder, flags, options) in mounts {
        if folder.starts_with("/dev/") {
            let _ = fs::create_dir(folder);
        }
        let _ = mount(kind, folder, kind, flags, options);
    }
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        let _ = std::os::unix::fs::symlink(target, link);
    }
}

/// Brings up 127.0.0.1, which some programs use to communicate. The guest has no other network.
fn bring_loopback_up() {
    // SAFETY: an ifreq of zeros is valid, and the socket is closed on every path.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return;
        }
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request);
        libc::close(socket);
    }
}

fn wait_for_device(name: &str) -> Result<(), Failure> {
    let device = format!("/dev/{name}");
    for _ in 0..500 {
        if Path::new(&device).exists() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(Failure { stage: Stage::Boot, message: format!("{device} did not appear in the guest") })
}

/// A kernel that knows no zones would take the device for an ordinary one, and fail at its writes.
fn expect_zones(spec: &GuestSpec, index: usize, name: &str) -> Result<(), Failure> {
    let file = format!("/sys/block/{name}/queue/zoned");
    let shown = fs::read_to_string(&file).unwrap_or_default();
    if !spec.is_zoned(index) || shown.trim() == "host-managed" {
        return Ok(());
    }
    let message = format!(
        "the guest's kernel shows /dev/{name} as no zoned device; it needs CONFIG_BLK_DEV_ZONED and Linux 6.4 or later: \
         chronodisk kernel build zones"
    );
    Err(Failure { stage: Stage::Boot, message })
}

/// Gives the caller the devices without a file system of ours, since the caller can't become root in the guest.
fn own_bare_devices(spec: &GuestSpec) -> Result<(), Failure> {
    let first = usize::from(spec.file_system != FileSystem::None);
    for index in (first..spec.devices).filter(|&index| index == 0 || index != spec.mounted_device()) {
        let device = format!("/dev/{}", device_name(index));
        rustix::fs::chown(&device, Some(Uid::from_raw(spec.uid)), Some(Gid::from_raw(spec.gid)))
            .at(Stage::Boot, || device)?;
    }
    Ok(())
}

/// Capacity of the device for the file system.
fn device_bytes(stage: Stage) -> Result<u64, Failure> {
    Ok(number_of_device(stage, "size")? * SECTOR_BYTES)
}

/// A number in the first device's folder of /sys.
fn number_of_device(stage: Stage, name: &str) -> Result<u64, Failure> {
    let path = format!("/sys/class/block/{}/{name}", DEVICE.trim_start_matches("/dev/"));
    let text = fs::read_to_string(&path).at(stage, || path.clone())?;
    text.trim().parse().map_err(|_| Failure { stage, message: format!("{path}: {text:?}") })
}

/// The device that is mounted.
fn mounted_device(spec: &GuestSpec) -> String {
    format!("/dev/{}", device_name(spec.mounted_device()))
}

fn make_file_system(spec: &GuestSpec) -> Result<(), Failure> {
    if spec.file_system == FileSystem::Zonefs && spec.makes_file_system {
        return make_zonefs(spec);
    }
    let Some((program, package)) = spec.file_system.maker().filter(|_| spec.makes_file_system) else { return Ok(()) };
    let log = LogPlace::now();
    let device = mounted_device(spec);
    let mut command = Command::new(program);
    if spec.is_zoned(0) {
        command.args(spec.file_system.zoned_arguments());
    }
    if device != DEVICE {
        command.args(["-c", DEVICE]);
    }
    let output = command
        .args(spec.file_system.maker_arguments(spec.seed, &device, device_bytes(Stage::Mkfs)?, &spec.mkfs_options))
        .output()
        .at(Stage::Mkfs, || format!("{program} (Debian: apt-get install {package})"))?;
    if output.status.success() {
        return Ok(());
    }
    let failed = Failure { stage: Stage::Mkfs, message: format!("{program} failed: {}", text_of(&output)) };
    Err(failed.explained_by(&log))
}

fn make_zonefs(spec: &GuestSpec) -> Result<(), Failure> {
    let zone_sectors = number_of_device(Stage::Mkfs, "queue/chunk_sectors")?;
    let sectors = number_of_device(Stage::Mkfs, "size")?;
    zonefs::make(DEVICE, sectors, zone_sectors, &uuid_of(spec.seed), spec.uid, spec.gid)
        .at(Stage::Mkfs, || format!("making zonefs on {DEVICE}"))
}

/// Mounts the file system. Returns the folders made for the mount point, the innermost first.
fn mount_file_system(spec: &GuestSpec, host_tree: &OwnedFd) -> Result<Vec<PathBuf>, Failure> {
    if spec.file_system == FileSystem::None {
        return Ok(Vec::new());
    }
    if let RootChoice::Device { files } = &spec.root {
        mount_at(spec, Path::new(root::DEVICE_TREE))?;
        let built = root::build(spec, files, host_tree);
        return built
            .map(|()| Vec::new())
            .map_err(|(doing, error)| Failure { stage: Stage::Mount, message: format!("{doing}: {error}") });
    }
    let at = Path::new(&spec.mount_point);
    let folders_made: Vec<PathBuf> =
        at.ancestors().take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect();
    let mounted = mount_at(spec, at).and_then(|()| {
        // Existing folders of a file system keep their owners. Folders of zonefs can't be changed.
        if !spec.makes_file_system || spec.file_system == FileSystem::Zonefs {
            return Ok(());
        }
        rustix::fs::chown(at, Some(Uid::from_raw(spec.uid)), Some(Gid::from_raw(spec.gid)))
            .at(Stage::Mount, || at.display().to_string())
    });
    if mounted.is_err() {
        remove_folders(&folders_made);
    }
    mounted.map(|()| folders_made)
}

fn mount_at(spec: &GuestSpec, at: &Path) -> Result<(), Failure> {
    fs::create_dir_all(at).at(Stage::Mount, || format!("mount point {}", at.display()))?;
    let kind = spec.mount_type.as_deref().unwrap_or(spec.file_system.name());
    let own = spec.file_system.mount_options(device_bytes(Stage::Mount)?);
    let options: Vec<&str> = own.into_iter().chain(spec.mount_options.as_deref()).collect();
    // Without options, mount(8) makes only this call, and starting it takes a tenth of a short run. A kernel without
    // modules may be an exact one, whose instants must be equal in each version: there mount(8) is started.
    let makes_the_call = options.is_empty() && spec.modules.is_some();
    let device = mounted_device(spec);
    if makes_the_call && mount(&device, at, kind, MountFlags::empty(), c"").is_ok() {
        return Ok(());
    }
    let log = LogPlace::now();
    // mount(8) knows which options are flags and which are the file system's, and explains errors well.
    let mut command = Command::new("mount");
    command.args(["-t", kind]);
    if !options.is_empty() {
        command.args(["-o", &options.join(",")]);
    }
    let output = command.arg(&device).arg(at).output().at(Stage::Mount, || "mount".into())?;
    if !output.status.success() {
        return Err(Failure { stage: Stage::Mount, message: text_of(&output) }.explained_by(&log));
    }
    Ok(())
}

/// Removes the folders made for the mount point; folders that are no longer empty stay.
fn remove_folders(folders: &[PathBuf]) {
    for folder in folders {
        let _ = fs::remove_dir(folder);
    }
}

/// Reports a working directory that a mount hides; it would otherwise appear as a command that is not found.
fn find_working_directory(spec: &GuestSpec) -> Result<(), Failure> {
    let folder = Path::new(OsStr::from_bytes(&spec.working_directory));
    let doing = || format!("the guest does not have the working directory {}", folder.display());
    let seen_from_here = match spec.root {
        RootChoice::Host => folder.to_owned(),
        RootChoice::Device { .. } => root::below_root(folder),
    };
    let metadata = fs::metadata(seen_from_here)
        .at(Stage::Command, || format!("{}; its own /dev, /proc, /sys and mount point hide the host's", doing()))?;
    if !metadata.is_dir() {
        return Err(Failure { stage: Stage::Command, message: doing() });
    }
    Ok(())
}

/// Drops pages, dentries and inodes (`Documentation/admin-guide/sysctl/vm.rst`, `drop_caches`).
fn drop_caches() -> Result<(), Failure> {
    const FILE: &str = "/proc/sys/vm/drop_caches";
    rustix::fs::sync();
    fs::write(FILE, "3").at(Stage::Command, || FILE.into())
}

/// Allows all task ids up to the kernel's maximum, as recorded tasks may have, and many tasks at once.
fn allow_all_task_ids() -> Result<(), Failure> {
    for (file, most) in [("/proc/sys/kernel/pid_max", "4194304"), ("/proc/sys/kernel/threads-max", "1000000")] {
        fs::write(file, most).at(Stage::Command, || file.into())?;
    }
    Ok(())
}

fn unmount_file_system(spec: &GuestSpec) -> Result<(), Failure> {
    rustix::fs::sync();
    if spec.file_system == FileSystem::None {
        return Ok(());
    }
    let at = match spec.root {
        RootChoice::Host => spec.mount_point.as_str(),
        RootChoice::Device { .. } => {
            root::take_down().at(Stage::Unmount, || root::ROOT.into())?;
            root::DEVICE_TREE
        }
    };
    for _ in 0..50 {
        match unmount(at, UnmountFlags::empty()) {
            // The command may have unmounted it.
            Ok(()) | Err(rustix::io::Errno::INVAL) => return Ok(()),
            Err(rustix::io::Errno::BUSY) => thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(Failure { stage: Stage::Unmount, message: format!("{at}: {error}") }),
        }
    }
    Err(Failure { stage: Stage::Unmount, message: format!("{at} stayed busy") })
}

fn check_file_system(spec: &GuestSpec) -> Result<Option<CheckResult>, Failure> {
    let Some(words) = spec.file_system.checker(&mounted_device(spec)).filter(|_| spec.check) else { return Ok(None) };
    let command = words.join(" ");
    let output = Command::new(&words[0]).args(&words[1..]).output().at(Stage::Check, || command.clone())?;
    Ok(Some(CheckResult { clean: output.status.success(), command, output: text_of(&output) }))
}

fn text_of(output: &std::process::Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// Checks for processes left by the command, at intervals of 20 ms of the guest's time. They get a second before they
/// are killed, or less if the user waits for the end. Killed processes get an hour to end, because they may wait for a
/// slow device.
const LOOKS_AFTER_TERM: u32 = 50;
const LOOKS_IN_HASTE: u32 = 5;
const LOOKS_AFTER_KILL: u32 = 180_000;

/// Ends the processes that the command left running, so that the file system can be unmounted.
fn end_all_processes(looks_after_term: u32) {
    let everyone = |signal: libc::c_int| {
        // SAFETY: -1 stands for every process but this one, and the call only sends a signal.
        unsafe { libc::kill(-1, signal) == 0 }
    };
    for (signal, looks) in [(Signal::TERM, looks_after_term), (Signal::KILL, LOOKS_AFTER_KILL)] {
        for look in 0..looks {
            // A process that ignores SIGTERM may have started others. A stopped process must continue to receive the
            // signal.
            if (look == 0 || signal == Signal::KILL) && !everyone(signal.as_raw()) {
                return;
            }
            if look == 0 {
                everyone(libc::SIGCONT);
            }
            let left = loop {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) => {}
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            if !left {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
