//! Kernels that no distribution has, built once per user from the distribution's kernel source.
//!
//! | name | for | source |
//! |---|---|---|
//! | `exact` | `run --clock exact`, `run --notify-file-data` | Linux 6.1 with two patches |
//! | `zones` | guests with a zoned device | Linux 6.10 or later, unchanged |
//! | `processors` | `run --cpus` | Linux 7.2 with a patch and a clock; also for zoned devices |
//!
//! Linux can keep simulated time itself when it runs as a process (`CONFIG_UML_TIME_TRAVEL_SUPPORT`),
//! but Debian's `linux.uml` is built without. So [`build`] takes Debian's package `linux-source-6.1`,
//! applies two patches in `kernel/`: `time.patch` shows the kernel's time to the guest's clock, charges
//! computing of programs, and has lines to the launcher interrupt at instants of simulated time;
//! `file-data.patch` says in each write which bytes are contents of files. Then it puts the kernel into
//! the user's cache, where [`find`] looks for it. [`package`] makes an archive of it for hosts that
//! can't build it.
//!
//! Zoned devices need a kernel with `CONFIG_BLK_DEV_ZONED`, which Debian's `linux.uml` lacks. Since Linux 6.10 the
//! block layer keeps the writes to a zone in order with any I/O scheduler (`block/blk-zoned.c`, zone write plugging).

mod modules;
mod package;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};

use crate::kernel::installed::UserModeLinux;
use crate::kernel::programs::{HostLacks, require_program};

pub(crate) use modules::file_systems_beside;
pub use package::{PackageError, install, package};

const PATCH: &str = include_str!("../../../kernel/time.patch");
/// The patch for `run --notify-file-data`.
const FILE_DATA_PATCH: &str = include_str!("../../../kernel/file-data.patch");
const CONFIG: &str = include_str!("../../../kernel/config");
/// Differences of the kernel for zoned devices from `CONFIG`.
const ZONES_CONFIG: &str = include_str!("../../../kernel/config-zones");
/// Differences of the kernel for several processors from that.
const PROCESSORS_CONFIG: &str = include_str!("../../../kernel/config-processors");
const PROCESSORS_PATCH: &str = include_str!("../../../kernel/processors.patch");
/// New files of the kernel for several processors: its clock.
const PROCESSORS_FILES: [(&str, &str); 5] = [
    ("arch/um/os-Linux/processors.c", include_str!("../../../kernel/processors.c")),
    ("arch/um/os-Linux/processors_work.c", include_str!("../../../kernel/processors_work.c")),
    ("arch/um/os-Linux/processors_internal.h", include_str!("../../../kernel/processors_internal.h")),
    ("arch/um/include/shared/processors.h", include_str!("../../../kernel/processors.h")),
    ("arch/um/include/shared/chronodisk_page.h", include_str!("../../../shim/page.h")),
];
/// The directory of the packages with kernel sources.
const SOURCES: &str = "/usr/src";

/// A kernel that can be built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelVariant {
    /// For the exact clock.
    #[default]
    Exact,
    /// For guests with zoned devices.
    Zones,
    /// For guests with several processors.
    Processors,
}

impl KernelVariant {
    /// All of them.
    pub const ALL: [KernelVariant; 3] = [KernelVariant::Exact, KernelVariant::Zones, KernelVariant::Processors];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            KernelVariant::Exact => "exact",
            KernelVariant::Zones => "zones",
            KernelVariant::Processors => "processors",
        }
    }

    /// Its name in an error.
    const fn purpose(self) -> &'static str {
        match self {
            KernelVariant::Exact => "the kernel of the exact clock",
            KernelVariant::Zones => "the kernel for zoned devices",
            KernelVariant::Processors => "the kernel for several processors",
        }
    }

    /// The command that builds it.
    const fn command(self) -> &'static str {
        match self {
            KernelVariant::Exact => "chronodisk kernel build",
            KernelVariant::Zones => "chronodisk kernel build zones",
            KernelVariant::Processors => "chronodisk kernel build processors",
        }
    }

    /// A package that has its source; other releases may fit as well.
    const fn source_package(self) -> &'static str {
        match self {
            KernelVariant::Exact => "linux-source-6.1",
            KernelVariant::Zones => "linux-source-6.12",
            KernelVariant::Processors => "linux-source-7.2",
        }
    }

    /// Names of the patches that go with it, in order, and their texts.
    const fn patches(self) -> &'static [(&'static str, &'static str)] {
        match self {
            KernelVariant::Exact => &[("time.patch", PATCH), ("file-data.patch", FILE_DATA_PATCH)],
            KernelVariant::Zones => &[],
            KernelVariant::Processors => &[("processors.patch", PROCESSORS_PATCH)],
        }
    }

    /// New files in the source, by their path in it, and their texts.
    const fn files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            KernelVariant::Exact | KernelVariant::Zones => &[],
            KernelVariant::Processors => &PROCESSORS_FILES,
        }
    }

    /// Its configuration beside the defaults. Later files override earlier ones.
    const fn configs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            KernelVariant::Exact => &[("config", CONFIG)],
            KernelVariant::Zones => &[("config", CONFIG), ("config-zones", ZONES_CONFIG)],
            KernelVariant::Processors => {
                &[("config", CONFIG), ("config-zones", ZONES_CONFIG), ("config-processors", PROCESSORS_CONFIG)]
            }
        }
    }

    /// Whether the source of this release fits.
    fn takes(self, (major, minor): (u32, u32)) -> bool {
        match self {
            KernelVariant::Exact => (major, minor) == (6, 1),
            KernelVariant::Zones => (major, minor) >= (6, 10),
            KernelVariant::Processors => (major, minor) == (7, 2),
        }
    }

    /// Name of the folder of this version's kernel.
    fn folder_name(self) -> String {
        match self {
            KernelVariant::Exact => format!("kernel-{:016x}", self.recipe()),
            KernelVariant::Zones => format!("kernel-zones-{:016x}", self.recipe()),
            KernelVariant::Processors => format!("kernel-processors-{:016x}", self.recipe()),
        }
    }

    /// Identifies a kernel's recipe, so that a change is noticed: FNV-1a of patches and configuration.
    fn recipe(self) -> u64 {
        let texts = self.patches().iter().chain(self.configs()).chain(self.files());
        texts
            .flat_map(|(_, text)| text.bytes())
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}
/// Other programs for the build, each with its package.
const PROGRAMS: [(&str, &str); 7] = [
    ("gcc", "gcc"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("patch", "patch"),
    ("xz", "xz-utils"),
];
/// GNU make reads it before the kernel's own Makefile. The name of a kernel, in which its builder and its date are,
/// goes into its random numbers: two kernels that differ by a patch alone must not differ by that.
const GNU_MAKEFILE: &str = "\
export KBUILD_BUILD_TIMESTAMP := 1970-01-01
export KBUILD_BUILD_USER := chronodisk
export KBUILD_BUILD_HOST := chronodisk
export KBUILD_BUILD_VERSION := 1
include Makefile
";
/// Files that the compiler makes with these configurations, for the progress; found by counting.
const COMPILED_FILES: u32 = 1_060;

/// Source and options of a build.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// Which kernel.
    pub variant: KernelVariant,
    /// Archive of the kernel's source; the distribution's if `None`.
    pub source: Option<PathBuf>,
    /// Patches of the user's own, applied after ours: a changed file system, for example.
    pub patches: Vec<PathBuf>,
    /// Where the kernel goes; the user's cache if `None`.
    pub output: Option<PathBuf>,
    /// A new folder that keeps the source (`source`) and all that was built (`built`), for building modules, or the
    /// kernel again after a change.
    pub tree: Option<PathBuf>,
    /// Compilers at once; as many as there are processors if `None`.
    pub jobs: Option<usize>,
}

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The source is being unpacked and patched.
    Unpacking,
    /// It is being configured.
    Configuring,
    /// So many files are compiled, of about so many.
    Compiling {
        /// Files compiled.
        done: u32,
        /// Files in all, about.
        of: u32,
    },
}

/// Why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The host lacks something.
    #[error(transparent)]
    HostLacks(#[from] HostLacks),
    /// A step of the build failed.
    #[error("{step} failed; the last that it said:\n{output}")]
    Step {
        /// Which.
        step: String,
        /// The end of its output.
        output: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// It was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Finds the kernel in the user's cache, or where its package was installed.
///
/// # Errors
/// When it was not built yet, or by another version of this program.
pub fn find(variant: KernelVariant) -> Result<UserModeLinux, HostLacks> {
    let built = cached(variant).filter(|file| file.is_file());
    let package = || match variant {
        KernelVariant::Exact => "chronodisk kernel package",
        KernelVariant::Zones => "chronodisk kernel package zones",
        KernelVariant::Processors => "chronodisk kernel package processors",
    };
    let file = built.or_else(|| package::installed(variant)).ok_or_else(|| HostLacks {
        what: format!("{} is neither built nor installed", variant.purpose()),
        help: format!(
            "build it once, in 3 to 18 minutes: {} (needs Debian's {}); or install what another host has built: {}, \
             there, and chronodisk kernel install FILE",
            variant.command(),
            variant.source_package(),
            package()
        ),
    })?;
    // Its modules are built in; a folder of its release near it would be another kernel's.
    Ok(UserModeLinux { modules: None, ..UserModeLinux::at(&file)? })
}

/// Where the kernel of this version is in the user's cache, if it has been built.
#[must_use]
pub fn cached(variant: KernelVariant) -> Option<PathBuf> {
    Some(cache_folder()?.join(variant.folder_name()).join("linux"))
}

/// Builds the kernel, and returns where it is. `interrupted` ends it.
///
/// # Errors
/// When the host lacks something, or a step fails; nothing is left behind then.
pub fn build(
    options: &BuildOptions,
    interrupted: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<PathBuf, BuildError> {
    let variant = options.variant;
    let archive = find_source(variant, options.source.as_deref())?;
    for (program, package) in PROGRAMS {
        require_program(program, package)?;
    }
    let target = match &options.output {
        Some(file) => file.clone(),
        None => cached(variant).ok_or_else(no_home)?,
    };
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|source| BuildError::File { path: parent.to_owned(), source })?;
    let mut work = match &options.tree {
        Some(tree) => WorkFolder::at(tree.clone())?,
        None => WorkFolder::create(parent)?,
    };
    let steps = Steps { interrupted };

    on_progress(Progress::Unpacking);
    let source = unpack(options, &archive, &work.path, &steps)?;
    on_progress(Progress::Configuring);
    let tree = Tree { built: &work.path.join("built"), source: &source, steps: &steps };
    tree.configure(variant, &work.path)?;
    tree.compile(options, on_progress)?;
    if variant == KernelVariant::Exact && options.output.is_none() {
        tree.compile_file_systems(parent)?;
    }
    work.kept = options.tree.is_some();

    // Into place in one step, so that a kernel that is there is whole.
    let unfinished = target.with_extension(format!("unfinished-{}", std::process::id()));
    fs::copy(tree.built.join("linux"), &unfinished)
        .and_then(|_| fs::rename(&unfinished, &target))
        .map_err(|source| BuildError::File { path: target.clone(), source })?;
    if options.output.is_none() {
        let release = fs::read_to_string(tree.built.join("include/config/kernel.release")).unwrap_or_default();
        package::write_source_note(variant, &target, release.trim(), &archive)
            .map_err(|source| BuildError::File { path: target.clone(), source })?;
    }
    Ok(target)
}

/// Unpacks the source, adds the variant's files and applies all patches. Returns the source's folder.
fn unpack(options: &BuildOptions, archive: &Path, work: &Path, steps: &Steps<'_>) -> Result<PathBuf, BuildError> {
    let variant = options.variant;
    steps.run("unpacking the source", tar(archive, work), &mut |_| {})?;
    let unpacked = only_folder_in(work, archive)?;
    let source = work.join("source");
    fs::rename(&unpacked, &source).map_err(|error| BuildError::File { path: unpacked, source: error })?;
    write(&source.join("GNUmakefile"), GNU_MAKEFILE)?;
    for (path, text) in variant.files() {
        write(&source.join(path), text)?;
    }
    let mut ours = Vec::new();
    for (name, text) in variant.patches() {
        let file = work.join(name);
        write(&file, text)?;
        ours.push(file);
    }
    for patch in ours.iter().chain(&options.patches) {
        let input = File::open(patch).map_err(|source| BuildError::File { path: patch.clone(), source })?;
        let mut command = Command::new("patch");
        command.args(["-p1", "--batch", "--forward"]).current_dir(&source).stdin(input);
        steps.run(&format!("patching with {}", patch.display()), command, &mut |_| {})?;
    }
    Ok(source)
}

/// A kernel's source, and the folder of its build.
struct Tree<'a> {
    source: &'a Path,
    built: &'a Path,
    steps: &'a Steps<'a>,
}

impl Tree<'_> {
    fn make(&self, target: &str) -> Command {
        let mut command = Command::new("make");
        command.args(["ARCH=um", target]).arg(format!("O={}", self.built.display())).current_dir(self.source);
        command
    }

    /// Makes the folder of the build with the variant's configuration.
    fn configure(&self, variant: KernelVariant, work: &Path) -> Result<(), BuildError> {
        fs::create_dir(self.built).map_err(|source| BuildError::File { path: self.built.to_owned(), source })?;
        self.steps.run("configuring", self.make("defconfig"), &mut |_| {})?;
        let mut merge = Command::new("scripts/kconfig/merge_config.sh");
        merge.args(["-m", "-O"]).args([self.built, &self.built.join(".config")]).current_dir(self.source);
        for (name, text) in variant.configs() {
            let additions = work.join(name);
            write(&additions, text)?;
            merge.arg(additions);
        }
        self.steps.run("configuring", merge, &mut |_| {})?;
        self.steps.run("configuring", self.make("olddefconfig"), &mut |_| {})
    }

    fn compile(&self, options: &BuildOptions, on_progress: &mut dyn FnMut(Progress)) -> Result<(), BuildError> {
        let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let mut compile = self.make("linux");
        compile.arg(format!("-j{jobs}"));
        let mut done = 0;
        self.steps.run("compiling", compile, &mut |line| {
            if line.trim_start().starts_with("CC ") {
                done += 1;
                on_progress(Progress::Compiling { done, of: COMPILED_FILES.max(done) });
            }
        })?;
        if options.tree.is_some() {
            // Gives the list of the kernel's symbols, which modules are linked against.
            self.steps.run("compiling", self.make("modules"), &mut |_| {})?;
        }
        Ok(())
    }
}

fn tar(archive: &Path, into: &Path) -> Command {
    let mut command = Command::new("tar");
    command.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(into);
    command
}

fn find_source(variant: KernelVariant, given: Option<&Path>) -> Result<PathBuf, BuildError> {
    let Some(file) = given.map(Path::to_owned).or_else(|| newest_source(variant, Path::new(SOURCES))) else {
        let package = variant.source_package();
        return Err(BuildError::HostLacks(HostLacks {
            what: format!("the kernel's source, {SOURCES}/{package}.tar.xz, is not there"),
            help: format!(
                "Debian has it: apt-get install {package} flex bison bc make gcc patch xz-utils; or name another \
                 archive of {} with --source",
                match variant {
                    KernelVariant::Exact => "Linux 6.1",
                    KernelVariant::Zones => "Linux 6.10 or later",
                    KernelVariant::Processors => "Linux 7.2 (Debian 13 has it in trixie-backports)",
                }
            ),
        }));
    };
    match File::open(&file) {
        Ok(_) => Ok(file),
        Err(source) => Err(BuildError::File { path: file, source }),
    }
}

/// The newest source among the packages installed in `folder` that fits.
fn newest_source(variant: KernelVariant, folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let release = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        let (major, minor) = name.strip_prefix("linux-source-")?.strip_suffix(".tar.xz")?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let fitting = entries.filter_map(|path| release(&path).filter(|it| variant.takes(*it)).map(|it| (it, path)));
    fitting.max_by_key(|(release, _)| *release).map(|(_, path)| path)
}

fn only_folder_in(folder: &Path, archive: &Path) -> Result<PathBuf, BuildError> {
    let entries = fs::read_dir(folder).map_err(|source| BuildError::File { path: folder.to_owned(), source })?;
    let source = entries.flatten().map(|entry| entry.path()).find(|path| path.join("Kconfig").is_file());
    source.ok_or_else(|| BuildError::Step {
        step: "unpacking the source".into(),
        output: format!("{} holds no kernel's source: there is no Kconfig in its first folder", archive.display()),
    })
}

fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    fs::write(path, text).map_err(|source| BuildError::File { path: path.to_owned(), source })
}

fn no_home() -> HostLacks {
    HostLacks {
        what: "there is no folder for caches".into(),
        help: "set XDG_CACHE_HOME or HOME, or name the kernel's file with --output and --kernel".into(),
    }
}

/// The folder for files that Chronodisk keeps between runs.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("chronodisk"))
}

/// A folder for the build, which goes with it.
struct WorkFolder {
    path: PathBuf,
    /// It stays.
    kept: bool,
}

impl WorkFolder {
    fn create(parent: &Path) -> Result<Self, BuildError> {
        WorkFolder::at(parent.join(format!(".build-{}", std::process::id())))
    }

    fn at(path: PathBuf) -> Result<Self, BuildError> {
        fs::create_dir(&path).map_err(|source| BuildError::File { path: path.clone(), source })?;
        // make runs in other folders.
        let path = path.canonicalize().map_err(|source| BuildError::File { path, source })?;
        Ok(WorkFolder { path, kept: false })
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

struct Steps<'a> {
    interrupted: &'a AtomicBool,
}

impl Steps<'_> {
    /// Runs one step to its end; `on_line` gets its output.
    fn run(&self, step: &str, mut command: Command, on_line: &mut dyn FnMut(&str)) -> Result<(), BuildError> {
        let failed = |output: String| BuildError::Step { step: step.to_owned(), output };
        let (reader, writer) = io::pipe().map_err(|error| failed(error.to_string()))?;
        let errors = writer.try_clone().map_err(|error| failed(error.to_string()))?;
        // A group of its own, so that all of a build's processes can be ended at once.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.env("LC_ALL", "C").env_remove("MAKEFLAGS").stdout(writer).stderr(errors);
        let child = command.spawn().map_err(|error| failed(error.to_string()))?;
        // The writing ends in `command` would keep the reading end open.
        drop(command);
        let mut child = Group(child);
        let mut tail: Vec<String> = Vec::new();
        let mut lines = BufReader::new(reader);
        let mut line = Vec::new();
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(BuildError::Interrupted);
            }
            if lines.buffer().is_empty() && !readable_soon(lines.get_ref()) {
                continue;
            }
            if !lines.read_until(b'\n', &mut line).is_ok_and(|got| got > 0) {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            on_line(text.trim_end());
            tail.push(text.trim_end().to_owned());
            let excess = tail.len().saturating_sub(LINES_KEPT);
            tail.drain(..excess);
            line.clear();
        }
        let status = child.0.wait().map_err(|error| failed(error.to_string()))?;
        match (self.interrupted.load(Ordering::Relaxed), status.success()) {
            (true, _) => Err(BuildError::Interrupted),
            (false, true) => Ok(()),
            (false, false) => Err(failed(tail.join("\n"))),
        }
    }
}

/// Waits a moment for output, or its end: an interruption must not wait for a silent step.
fn readable_soon(reader: &io::PipeReader) -> bool {
    let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    let mut waits = [PollFd::new(reader, PollFlags::IN)];
    poll(&mut waits, Some(&moment)).is_ok_and(|ready| ready > 0)
}

/// So much of a failed step's output is told.
const LINES_KEPT: usize = 20;

/// A step's processes, which end with it.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // SAFETY: the child has not been waited for, so the group's number is still its own.
            unsafe { libc::kill(-(self.0.id() as libc::pid_t), libc::SIGKILL) };
            let _ = self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(folder: &Path, name: &str) -> PathBuf {
        let archive = folder.join("source.tar");
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("README"), "no kernel").unwrap();
        let status = Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(folder).arg(name).status().unwrap();
        assert!(status.success());
        archive
    }

    #[test]
    fn an_archive_without_a_kernel_is_refused_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("cache/linux");
        let options = BuildOptions {
            source: Some(archive(folder.path(), "something")),
            output: Some(output.clone()),
            ..BuildOptions::default()
        };
        match build(&options, &AtomicBool::new(false), &mut |_| {}) {
            Err(BuildError::Step { output, .. }) => assert!(output.contains("holds no kernel's source"), "{output}"),
            // A host without flex or bison says so first.
            Err(BuildError::HostLacks(lacks)) => {
                println!("SKIPPED: {lacks}");
                return;
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(fs::read_dir(output.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn the_newest_source_that_fits_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["6.1", "6.9", "6.12", "6.2", "x", "6.12.tar.xz", "7.2"] {
            fs::write(folder.path().join(format!("linux-source-{name}.tar.xz")), "").unwrap();
        }
        let newest = |variant| {
            let path = newest_source(variant, folder.path())?;
            Some(path.file_name().unwrap().to_str().unwrap().to_owned())
        };
        assert_eq!(newest(KernelVariant::Exact).unwrap(), "linux-source-6.1.tar.xz");
        assert_eq!(newest(KernelVariant::Zones).unwrap(), "linux-source-7.2.tar.xz");
        assert_eq!(newest(KernelVariant::Processors).unwrap(), "linux-source-7.2.tar.xz");
        fs::remove_file(folder.path().join("linux-source-7.2.tar.xz")).unwrap();
        assert_eq!(newest(KernelVariant::Zones).unwrap(), "linux-source-6.12.tar.xz");
        assert_eq!(newest(KernelVariant::Processors), None);
        fs::remove_file(folder.path().join("linux-source-6.12.tar.xz")).unwrap();
        assert_eq!(newest(KernelVariant::Zones), None);
    }

    #[test]
    fn an_interrupted_step_ends_at_once() {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do echo x; done"]);
        let interrupted = AtomicBool::new(false);
        let mut lines = 0;
        let result = Steps { interrupted: &interrupted }.run("looping", command, &mut |_| {
            lines += 1;
            interrupted.store(lines == 3, Ordering::Relaxed);
        });
        assert!(matches!(result, Err(BuildError::Interrupted)), "{result:?}");
    }

    #[test]
    fn a_failed_step_tells_its_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let result = Steps { interrupted: &AtomicBool::new(false) }.run("failing", command, &mut |_| {});
        match result {
            Err(BuildError::Step { step, output }) => assert_eq!((&*step, &*output), ("failing", "one\ntwo")),
            other => panic!("{other:?}"),
        }
    }
}
