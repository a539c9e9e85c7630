//! Loads with CPU time in the kernel's own work: random numbers, compression, copies. A guest runs the same code as a
//! native kernel, except where processors have instructions (AES, SHA-256, CRC32C, parity): User Mode Linux has only
//! generic code for these. So a load of SHA-256 and one of CRC32C are measured and not judged. Neither is zstd at level
//! 15 if the two kernels have different versions of it: 1.4.9 took 0.62 to 0.80 of the CPU time of 1.5.6 for these
//! files, outside of any kernel, and made them nearly twice as large. At level 3, the usual one, both took as long.
//!
//! The check compares CPU times. The guest's CPU time is its time without idle time, minus the CPU time of a run that
//! only prepares the load. The native CPU time covers the load's processes and the kernel's threads for write-back and
//! compression.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use chronodisk_guest::calibration::{KernelThreads, NativeFolder, Processors, native_run};
use chronodisk_guest::{FileSystem, KernelCosts, RunError, Stage};
use serde::Serialize;

use super::super::{MOUNT_POINT, guest};
use super::pairs::median_and_range;
use crate::output;

/// A load. It works in the folder `$1`; its prepared files are in the folder in memory `$2`.
pub(super) struct Load {
    pub name: &'static str,
    file_system: FileSystem,
    mkfs_options: &'static [&'static str],
    mount_options: Option<&'static str>,
    /// The algorithm that takes most of its time, if a guest has generic code only for it.
    generic_code: Option<&'static str>,
    /// Whether how much the kernel computes depends on its version of zstd.
    depends_on_zstd: bool,
    prepares: &'static str,
    does: &'static str,
}

/// Their names.
pub(super) const NAMES: [&str; 7] =
    ["urandom", "copy-1m", "btrfs-zstd", "btrfs-zstd-3", "btrfs-lzo", "btrfs-crc32c", "btrfs-sha256"];

const COMPRESSIBLE: &str = "for i in $(seq 20); do seq $((i * 1000)) $((i * 1000 + 60000)) > \"$2/$i\"; done";
const COPIES: &str = "cp \"$2\"/* \"$1\"; sync -f \"$1\"";
/// A load of less than half a second is not conclusive: its preparation takes as long, and is subtracted.
const MANY_COPIES: &str = "for i in $(seq 12); do cp \"$2\"/* \"$1\"; sync -f \"$1\"; done";

pub(super) const LOADS: [Load; NAMES.len()] = [
    Load {
        name: NAMES[0],
        file_system: FileSystem::Ext4,
        mkfs_options: &[],
        mount_options: None,
        generic_code: None,
        depends_on_zstd: false,
        prepares: ":",
        does: "dd if=/dev/urandom of=/dev/null bs=1M count=64 status=none",
    },
    Load {
        name: NAMES[1],
        file_system: FileSystem::Ext4,
        mkfs_options: &[],
        mount_options: None,
        generic_code: None,
        depends_on_zstd: false,
        prepares: "head -c 64M /dev/zero > \"$1/file\"; sync; cat \"$1/file\" > /dev/null",
        does: "for i in $(seq 48); do dd if=\"$1/file\" of=/dev/null bs=1M status=none; done",
    },
    Load {
        name: NAMES[2],
        file_system: FileSystem::Btrfs,
        mkfs_options: &[],
        mount_options: Some("compress-force=zstd:15"),
        generic_code: None,
        depends_on_zstd: true,
        prepares: COMPRESSIBLE,
        does: COPIES,
    },
    Load {
        name: NAMES[3],
        file_system: FileSystem::Btrfs,
        mkfs_options: &[],
        mount_options: Some("compress-force=zstd:3"),
        generic_code: None,
        depends_on_zstd: false,
        prepares: COMPRESSIBLE,
        does: MANY_COPIES,
    },
    Load {
        name: NAMES[4],
        file_system: FileSystem::Btrfs,
        mkfs_options: &[],
        mount_options: Some("compress-force=lzo"),
        generic_code: None,
        depends_on_zstd: false,
        prepares: COMPRESSIBLE,
        does: MANY_COPIES,
    },
    Load {
        name: NAMES[5],
        file_system: FileSystem::Btrfs,
        mkfs_options: &["--csum", "crc32c"],
        mount_options: None,
        generic_code: Some("CRC32C"),
        depends_on_zstd: false,
        prepares: COMPRESSIBLE,
        does: MANY_COPIES,
    },
    Load {
        name: NAMES[6],
        file_system: FileSystem::Btrfs,
        mkfs_options: &["--csum", "sha256"],
        mount_options: None,
        generic_code: Some("SHA-256"),
        depends_on_zstd: false,
        prepares: COMPRESSIBLE,
        does: MANY_COPIES,
    },
];

/// A load on both sides.
#[derive(Debug, Serialize)]
pub(super) struct LoadRow {
    load: &'static str,
    /// Medians, and the least and the greatest, in seconds.
    native_cpu_s: [f64; 3],
    guest_cpu_s: [f64; 3],
    /// Ratio of the medians.
    pub ratio: f64,
    /// Reason why the ratio is not judged: the native kernel uses special instructions of the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    generic_code: Option<&'static str>,
    /// Reason why the ratio is not judged: the native kernel has another version of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_code: Option<String>,
}

/// Between these a load's ratio is credible.
pub(super) const RATIO_MIN: f64 = 0.8;
pub(super) const RATIO_MAX: f64 = 1.25;

impl LoadRow {
    pub fn is_credible(&self) -> bool {
        self.generic_code.is_some() || self.other_code.is_some() || (RATIO_MIN..=RATIO_MAX).contains(&self.ratio)
    }
}

/// Measures a load in turn on both sides; `None` if this process can't mount its file system natively.
pub(super) fn measure(
    load: &Load,
    reps: u32,
    processors: usize,
    costs: &KernelCosts,
) -> Result<Option<LoadRow>, RunError> {
    let (mut natives, mut guests, mut guests_kernel) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..reps {
        let Some(native) = natively(load)? else { return Ok(None) };
        natives.push(native);
        let (prepared, _) = busy_in_guest(load, false, processors, costs)?;
        let (busy, kernel_release) = busy_in_guest(load, true, processors, costs)?;
        guests.push((busy - prepared).max(0.0));
        guests_kernel = kernel_release;
    }
    let (native_cpu_s, guest_cpu_s) = (median_and_range(natives), median_and_range(guests));
    let ratio = guest_cpu_s[0] / native_cpu_s[0];
    let hosts_kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let other_code = if load.depends_on_zstd { other_zstd(&guests_kernel, hosts_kernel.trim()) } else { None };
    let (load, generic_code) = (load.name, load.generic_code);
    Ok(Some(LoadRow { load, native_cpu_s, guest_cpu_s, ratio, generic_code, other_code }))
}

/// Both versions of zstd, if the two kernels' versions differ in their amount of computing.
fn other_zstd(guest: &str, native: &str) -> Option<String> {
    let (in_guest, natively) = (zstd_of(guest)?, zstd_of(native)?);
    (in_guest != natively).then(|| format!("zstd {in_guest} in the guest, {natively} natively"))
}

/// The version of zstd in a release of Linux, as far as the search for matches differs: Linux 5.16 came with 1.4.10,
/// and 6.2 with 1.5.2, whose row-based search later versions keep. `None` if the release can't be parsed.
fn zstd_of(kernel_release: &str) -> Option<&'static str> {
    let mut numbers = kernel_release.split(['.', '-']).map(|word| word.parse::<u32>().ok());
    let release = (numbers.next()??, numbers.next()??);
    Some(if release < (5, 16) {
        "1.3"
    } else if release < (6, 2) {
        "1.4"
    } else {
        "1.5"
    })
}

/// CPU seconds of the load and of the kernel's threads meanwhile.
fn natively(load: &Load) -> Result<Option<f64>, RunError> {
    let failed = |source| RunError::Io { doing: "preparing a load", source };
    let folder = NativeFolder::make_with(load.file_system, load.mkfs_options, load.mount_options).map_err(failed)?;
    if folder.file_system() != load.file_system {
        output::note(format_args!("{}: this process can't mount {} here", load.name, load.file_system));
        return Ok(None);
    }
    let memory = Memory::make().map_err(failed)?;
    let run = |script: &str| {
        let words = words(script, folder.path(), &memory.0);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(io::stderr());
        native_run(&mut command, Processors::Only(1))
    };
    run(load.prepares)?;
    let threads_before = KernelThreads::now().map_err(failed)?;
    let took = run(load.does)?.cpu();
    let of_threads = KernelThreads::now().map_err(failed)?.since(&threads_before);
    Ok(Some((took + of_threads).as_secs_f64()))
}

/// A temporary folder in memory.
struct Memory(PathBuf);

impl Memory {
    fn make() -> io::Result<Self> {
        let path = PathBuf::from(format!("/dev/shm/chronodisk-load-{}", std::process::id()));
        fs::create_dir(&path).map(|()| Memory(path))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The folder's name contains this process's id: at worst it stays until the next boot.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Seconds in which the guest was busy, and the release of its kernel.
fn busy_in_guest(load: &Load, does: bool, processors: usize, costs: &KernelCosts) -> Result<(f64, String), RunError> {
    let script = if does { format!("{}\n{}", load.prepares, load.does) } else { load.prepares.to_owned() };
    let words = words(&script, Path::new(MOUNT_POINT), Path::new("/dev/shm"));
    let mut options =
        guest(words, load.file_system, processors, *costs).map_err(|error| RunError::Device(error.to_string()))?;
    options.mkfs_options = load.mkfs_options.iter().map(|&word| word.to_owned()).collect();
    options.mount_options = load.mount_options.map(str::to_owned);
    let outcome = chronodisk_guest::run(&options, &mut |_| {})?;
    if outcome.exit_status != 0 {
        let message = format!("{} ended with status {}", load.name, outcome.exit_status);
        return Err(RunError::Stage(Stage::Command, message));
    }
    let (before, after) = &outcome.counters_at;
    let idle_nanos = after.jumped_nanos.saturating_sub(before.jumped_nanos);
    let run_nanos = outcome.command.1.saturating_sub(outcome.command.0).as_nanos();
    Ok((run_nanos.saturating_sub(idle_nanos) as f64 / 1e9, outcome.kernel_release))
}

fn words(script: &str, folder: &Path, memory: &Path) -> Vec<OsString> {
    ["sh".into(), "-ec".into(), script.into(), "sh".into(), folder.into(), memory.into()].into()
}

/// A table of loads.
pub(super) fn table(rows: &[LoadRow]) -> String {
    let mut text = format!("\n{:<12}{:>14}{:>14}{:>9}\n", "kernel work", "native CPU s", "guest CPU s", "ratio");
    for row in rows {
        let [native, ..] = row.native_cpu_s;
        let [guest, ..] = row.guest_cpu_s;
        let why = row.generic_code.map(|name| format!("generic code of {name}")).or(row.other_code.clone());
        let not_judged = why.map_or(String::new(), |why| format!("  not judged: {why}"));
        text += &format!("{:<12}{native:>14.3}{guest:>14.3}{:>9.2}{not_judged}\n", row.load, row.ratio);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_run_natively_where_they_may() {
        for load in LOADS.iter().filter(|load| load.file_system == FileSystem::Ext4) {
            match natively(load).unwrap() {
                Some(cpu_s) => assert!(cpu_s > 1e-3, "{}: {cpu_s}", load.name),
                None => println!("SKIPPED: this process can't mount {}", load.file_system),
            }
        }
    }

    #[test]
    fn credible_is_between_the_bounds() {
        let of = |ratio, generic_code| LoadRow {
            load: "x",
            native_cpu_s: [1.0; 3],
            guest_cpu_s: [ratio; 3],
            ratio,
            generic_code,
            other_code: None,
        };
        let row = |ratio| of(ratio, None);
        assert_eq!(
            [0.79, 0.8, 1.0, 1.25, 1.26].map(|ratio| row(ratio).is_credible()),
            [false, true, true, true, false]
        );
        assert!(of(9.0, Some("AES")).is_credible(), "what is other code natively is not judged");
        assert!(table(&[of(9.0, Some("AES"))]).ends_with("     9.00  not judged: generic code of AES\n"));
        let other = LoadRow { other_code: other_zstd("6.1.176", "6.18.44-fc"), ..of(0.7, None) };
        assert!(other.is_credible(), "what is another version natively is not judged");
        assert!(table(&[other]).ends_with("     0.70  not judged: zstd 1.4 in the guest, 1.5 natively\n"));
    }

    #[test]
    fn versions_of_zstd_are_those_of_the_kernels() {
        let releases = ["5.15.0-91-generic", "5.16.0", "6.1.176", "6.2", "6.18.44-fc-v595", "10.0.1"];
        let versions = releases.map(|release| zstd_of(release).unwrap());
        assert_eq!(versions, ["1.3", "1.4", "1.4", "1.5", "1.5", "1.5"]);
        assert_eq!(["", "6", "six.one"].map(zstd_of), [None; 3]);
        assert_eq!(other_zstd("6.1.176", "6.1.0-49-amd64"), None, "the same on both sides is judged");
    }
}
