//! The command's root on the device: its own files are copied there before it runs, so that loading them takes device
//! time.
//!
//! The root is an overlay. Its upper layer is a folder of the device's file system, with copies of the program, its
//! libraries, the files that its command line names and those that the user lists. Its lower layer is the host's tree.
//! So copied files are read from the device, all writes of the command go to the device, and other files are still
//! found, without device time. Not modelled: a real root has everything on one file system, while a look-up here visits
//! both layers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, unmount};

use crate::shared::spec::GuestSpec;

/// Mount point of the device's file system in the first process's own tree, which the command does not see.
pub(crate) const DEVICE_TREE: &str = "/.chronodisk-device";
/// The command's root in that tree.
pub(crate) const ROOT: &str = "/.chronodisk-root";
/// Folders of the device's file system: the root's upper layer, the overlay's work folder, and the folder at the mount
/// point.
const UPPER: &str = "root";
const WORK: &str = "work";
const AT_MOUNT_POINT: &str = "mount";
/// The kernel's own, which no device holds.
const KERNEL_TREES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The host's tree below the first process's overlay, for another overlay.
pub(crate) fn open_host_tree() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The action that failed, with its error.
pub(crate) type Trouble = (String, io::Error);

/// Adds the attempted action.
fn doing<T, E: Into<io::Error>>(result: Result<T, E>, what: impl FnOnce() -> String) -> Result<T, Trouble> {
    result.map_err(|error| (what(), error.into()))
}

/// Fills the device, which is mounted at [`DEVICE_TREE`], and makes the root over it.
pub(crate) fn build(spec: &GuestSpec, files: &[PathBuf], host_tree: &OwnedFd) -> Result<(), Trouble> {
    let on_device = |name: &str| Path::new(DEVICE_TREE).join(name);
    for name in [UPPER, WORK, AT_MOUNT_POINT] {
        doing(fs::create_dir(on_device(name)), || format!("a folder on the device, {name}"))?;
    }
    let mut copier = doing(Copier::new(Path::new("/"), &on_device(UPPER)), || "the root's folder".into())?;
    let own = own_files(spec);
    for path in own.iter().chain(files) {
        // Unreadable files that the command's words happen to name stay on the host.
        let copied = copier.copy(path).or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied if !files.contains(path) => Ok(()),
            _ => Err(error),
        });
        doing(copied, || format!("putting {} on the device", path.display()))?;
    }
    doing(copier.finish(), || "the times of the device's folders".into())?;
    doing(mount_root(host_tree), || "an overlay whose upper layer is on the device".into())?;
    for tree in KERNEL_TREES {
        let at = below_root(tree);
        let bound = fs::create_dir_all(&at).and_then(|()| Ok(mount_bind_recursive(tree, &at)?));
        doing(bound, || format!("{tree} in the root on the device"))?;
    }
    let at = below_root(&spec.mount_point);
    let bound = fs::create_dir_all(&at).and_then(|()| Ok(mount_bind(on_device(AT_MOUNT_POINT), &at)?));
    doing(bound, || format!("mount point {}", spec.mount_point))?;
    let owner = (Some(spec.uid), Some(spec.gid));
    doing(std::os::unix::fs::chown(&at, owner.0, owner.1), || at.display().to_string())?;
    rustix::fs::sync();
    Ok(())
}

/// A path of the command's, as the first process sees it.
pub(crate) fn below_root(path: impl AsRef<Path>) -> PathBuf {
    Path::new(ROOT).join(path.as_ref().strip_prefix("/").unwrap_or(path.as_ref()))
}

fn mount_root(host_tree: &OwnedFd) -> io::Result<()> {
    fs::create_dir_all(ROOT)?;
    let host = host_tree.as_raw_fd();
    let options = format!("lowerdir=/proc/self/fd/{host},upperdir={DEVICE_TREE}/{UPPER},workdir={DEVICE_TREE}/{WORK}");
    let options = CString::new(options).expect("no zero byte");
    Ok(mount("overlay", ROOT, "overlay", MountFlags::empty(), options.as_c_str())?)
}

/// Takes the root away with all that is mounted in it; the device can be unmounted after that.
pub(crate) fn take_down() -> io::Result<()> {
    Ok(unmount(ROOT, UnmountFlags::DETACH)?)
}

/// Copies files into a tree at the paths that they have in another, with the folders and links on the way.
struct Copier {
    from: PathBuf,
    to: PathBuf,
    /// Device of the first tree: mounts inside it are not copied.
    device: u64,
    done: HashSet<PathBuf>,
    /// The first copy of files with several names, by device and inode.
    linked: HashMap<(u64, u64), PathBuf>,
    /// Their times are set last, because creating files in them changes these.
    folders: Vec<(PathBuf, Metadata)>,
}

impl Copier {
    fn new(from: &Path, to: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(from)?;
        let copier = Copier {
            from: from.to_owned(),
            to: to.to_owned(),
            device: metadata.dev(),
            done: HashSet::new(),
            linked: HashMap::new(),
            folders: vec![(to.to_owned(), metadata.clone())],
        };
        own_and_mode(to, &metadata)?;
        Ok(copier)
    }

    /// Copies the file at an absolute path, or a folder with its content.
    fn copy(&mut self, path: &Path) -> io::Result<()> {
        let mut rest: VecDeque<OsString> = names(path);
        let mut at = PathBuf::new();
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            let metadata = fs::symlink_metadata(self.from.join(&next))?;
            if metadata.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    return Err(rustix::io::Errno::LOOP.into());
                }
                self.copy_one(&next, &metadata)?;
                let target = fs::read_link(self.from.join(&next))?;
                if target.is_absolute() {
                    at = PathBuf::new();
                }
                for name in names(&target).into_iter().rev() {
                    rest.push_front(name);
                }
                continue;
            }
            at = next;
            if self.is_another_tree(&metadata) {
                return Ok(());
            }
            self.copy_one(&at, &metadata)?;
        }
        self.copy_contents(at)
    }

    /// Copies the contents of a folder; ignores other kinds of files.
    fn copy_contents(&mut self, at: PathBuf) -> io::Result<()> {
        let mut folders = vec![at];
        while let Some(folder) = folders.pop() {
            if !fs::metadata(self.from.join(&folder))?.is_dir() {
                continue;
            }
            let entries = match fs::read_dir(self.from.join(&folder)) {
                // The command could not read a file that the caller may not read.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
                entries => entries?,
            };
            // In the order of names, so that runs repeat for any order on the host.
            let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
            names.sort_unstable();
            for name in names {
                let path = folder.join(name);
                let metadata = match fs::symlink_metadata(self.from.join(&path)) {
                    // The file was removed meanwhile, because the host's tree is in use.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    metadata => metadata?,
                };
                if self.is_another_tree(&metadata) {
                    continue;
                }
                match self.copy_one(&path, &metadata) {
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
                    copied => copied?,
                }
                if metadata.is_dir() {
                    folders.push(path);
                }
            }
        }
        Ok(())
    }

    fn is_another_tree(&self, metadata: &Metadata) -> bool {
        // An overlay shows its files under several devices, but all of its folders under one.
        metadata.is_dir() && metadata.dev() != self.device
    }

    /// Copies a file, a symbolic link or an empty folder into an existing parent.
    fn copy_one(&mut self, path: &Path, metadata: &Metadata) -> io::Result<()> {
        if !self.done.insert(path.to_owned()) {
            return Ok(());
        }
        let (from, to) = (self.from.join(path), self.to.join(path));
        if metadata.is_dir() {
            fs::create_dir(&to)?;
            self.folders.push((to.clone(), metadata.clone()));
            return own_and_mode(&to, metadata);
        }
        if metadata.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
            std::os::unix::fs::lchown(&to, Some(metadata.uid()), Some(metadata.gid()))?;
            let times = Timestamps { last_access: accessed(metadata), last_modification: modified(metadata) };
            return Ok(rustix::fs::utimensat(CWD, &to, &times, AtFlags::SYMLINK_NOFOLLOW)?);
        }
        if !metadata.is_file() {
            return Ok(());
        }
        if metadata.nlink() > 1 {
            match self.linked.get(&(metadata.dev(), metadata.ino())) {
                Some(first) => return fs::hard_link(first, &to),
                None => drop(self.linked.insert((metadata.dev(), metadata.ino()), to.clone())),
            }
        }
        let mut source = File::open(&from)?;
        let mut copy = File::create_new(&to)?;
        io::copy(&mut source, &mut copy)?;
        own_and_mode(&to, metadata)?;
        copy.set_times(times(metadata)?)
    }

    fn finish(self) -> io::Result<()> {
        self.folders.iter().rev().try_for_each(|(folder, metadata)| File::open(folder)?.set_times(times(metadata)?))
    }
}

/// Most symbolic links that a look-up follows (`MAXSYMLINKS` of `include/linux/namei.h`).
const LINKS_MAX: u32 = 40;

/// The names on a path, which may have `..` among them.
fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().filter_map(name).collect()
}

fn own_and_mode(path: &Path, metadata: &Metadata) -> io::Result<()> {
    std::os::unix::fs::chown(path, Some(metadata.uid()), Some(metadata.gid()))?;
    // After the change of the owner, which clears the set-user-ID bit.
    fs::set_permissions(path, Permissions::from_mode(metadata.mode() & 0o7777))
}

fn times(metadata: &Metadata) -> io::Result<FileTimes> {
    Ok(FileTimes::new().set_accessed(metadata.accessed()?).set_modified(metadata.modified()?))
}

fn accessed(metadata: &Metadata) -> Timespec {
    Timespec { tv_sec: metadata.atime(), tv_nsec: metadata.atime_nsec() as _ }
}

fn modified(metadata: &Metadata) -> Timespec {
    Timespec { tv_sec: metadata.mtime(), tv_nsec: metadata.mtime_nsec() as _ }
}

/// The program, its interpreter and libraries, and every file named by a word of the command; in that order, each once.
///
/// Words end at blanks and the shell's own characters, so that programs in the text of `sh -c` are found as well. A
/// word that only looks like a file's name costs some room on the device.
fn own_files(spec: &GuestSpec) -> Vec<PathBuf> {
    let mut found = OwnFiles::new(spec);
    for argument in &spec.command {
        found.add_word(argument);
        for word in argument.split(|byte| byte.is_ascii_whitespace() || SHELL_SEPARATORS.contains(byte)) {
            found.add_word(word);
        }
    }
    found.follow();
    found.files
}

/// Characters besides blanks that end a word in a shell's text.
const SHELL_SEPARATORS: &[u8] = b";&|<>()`'\"$=";

struct OwnFiles<'a> {
    spec: &'a GuestSpec,
    path: Vec<PathBuf>,
    files: Vec<PathBuf>,
    seen: HashSet<PathBuf>,
    /// Index of the first file whose dependencies have not been looked up.
    followed: usize,
}

impl<'a> OwnFiles<'a> {
    fn new(spec: &'a GuestSpec) -> Self {
        let path = spec.environment.iter().find_map(|variable| variable.strip_prefix(b"PATH="));
        let path = std::env::split_paths(OsStr::from_bytes(path.unwrap_or_default())).collect();
        OwnFiles { spec, path, files: Vec::new(), seen: HashSet::new(), followed: 0 }
    }

    fn working_directory(&self) -> &'a Path {
        Path::new(OsStr::from_bytes(&self.spec.working_directory))
    }

    /// Adds the program and the file of this name.
    fn add_word(&mut self, word: &[u8]) {
        if word.is_empty() || word.contains(&0) || word.len() > PATH_BYTES_MAX {
            return;
        }
        let word = Path::new(OsStr::from_bytes(word));
        if !word.as_os_str().as_bytes().contains(&b'/') {
            let program = self.path.iter().map(|folder| folder.join(word)).find(|file| is_program(file));
            program.into_iter().for_each(|program| self.add(program));
        }
        self.add(self.working_directory().join(word));
    }

    /// Adds a file that is one.
    fn add(&mut self, file: PathBuf) {
        let hidden = |tree: &str| file.starts_with(tree);
        let elsewhere = KERNEL_TREES.into_iter().any(hidden) || hidden(&self.spec.mount_point);
        if file.is_absolute() && !elsewhere && file.is_file() && self.seen.insert(file.clone()) {
            self.files.push(file);
        }
    }

    /// Adds the files' dependencies, recursively.
    fn follow(&mut self) {
        while let Some(file) = self.files.get(self.followed).cloned() {
            self.followed += 1;
            let mut head = Vec::new();
            let read = File::open(&file).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
            if read.is_err() || !is_program(&file) {
                continue;
            }
            if let Some(line) = head.strip_prefix(b"#!") {
                let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
                line.split(u8::is_ascii_whitespace).for_each(|word| self.add_word(word));
            } else if let Some(loader) = loader_of(&head) {
                let libraries = self.libraries(&loader, &file);
                let configuration = LOADER_FILES.map(PathBuf::from);
                [loader].into_iter().chain(configuration).chain(libraries).for_each(|file| self.add(file));
            }
        }
    }

    /// Libraries that the loader would load for the program, which is not run; empty if the loader can't tell.
    fn libraries(&self, loader: &Path, program: &Path) -> Vec<PathBuf> {
        let mut command = Command::new(loader);
        command.arg("--list").arg(program).current_dir(self.working_directory()).stdin(Stdio::null()).env_clear();
        for variable in self.spec.environment.iter().filter(|variable| variable.starts_with(b"LD_")) {
            if let Some(equals) = variable.iter().position(|&byte| byte == b'=') {
                let (name, value) = variable.split_at(equals);
                command.env(OsStr::from_bytes(name), OsStr::from_bytes(&value[1..]));
            }
        }
        command.output().map(|output| listed_libraries(&output.stdout)).unwrap_or_default()
    }
}

/// A loader's list: `NAME => PATH (ADDRESS)` or `PATH (ADDRESS)` in each line.
fn listed_libraries(list: &[u8]) -> Vec<PathBuf> {
    let path = |line: &[u8]| {
        let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        words.into_iter().find(|word| word.starts_with(b"/")).map(|word| PathBuf::from(OsStr::from_bytes(word)))
    };
    // `/lib/ld.so => /lib64/ld.so`: the loaded file follows the arrow.
    let behind = |line: &[u8]| line.windows(2).position(|pair| pair == b"=>").map_or(0, |arrow| arrow + 2);
    list.split(|&byte| byte == b'\n').filter_map(|line| path(&line[behind(line)..])).collect()
}

/// Files that the loader reads besides libraries (ld.so(8)).
const LOADER_FILES: [&str; 2] = ["/etc/ld.so.cache", "/etc/ld.so.preload"];
/// The loader's name is near the file's begin, as the kernel wants it.
const HEAD_BYTES: u64 = 64 << 10;
const PATH_BYTES_MAX: usize = 4_096;

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
}

/// The loader of a 64-bit program of this byte order; `None` for other files and statically linked ones. Offsets are
/// those of `Elf64_Ehdr` and `Elf64_Phdr` (elf(5)).
fn loader_of(head: &[u8]) -> Option<PathBuf> {
    const MAGIC: &[u8] = b"\x7fELF\x02\x01";
    const INTERPRETER: u32 = 3;
    let bytes = |at: usize, len: usize| head.get(at..at.checked_add(len)?);
    let half = |at| Some(u16::from_le_bytes(bytes(at, 2)?.try_into().ok()?) as usize);
    let word = |at| Some(u32::from_le_bytes(bytes(at, 4)?.try_into().ok()?));
    let long = |at| usize::try_from(u64::from_le_bytes(bytes(at, 8)?.try_into().ok()?)).ok();
    if !head.starts_with(MAGIC) {
        return None;
    }
    let (headers, size, count) = (long(32)?, half(54)?, half(56)?);
    let header = (0..count)
        .filter_map(|index| headers.checked_add(index * size))
        .find(|&header| word(header) == Some(INTERPRETER))?;
    let name = bytes(long(header.checked_add(8)?)?, long(header.checked_add(32)?)?)?;
    let name = name.split(|&byte| byte == 0).next()?;
    let path = PathBuf::from(OsStr::from_bytes(name));
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::filesystem::FileSystem;
    use crate::shared::spec::RootChoice;

    fn spec(command: &[&str], working_directory: &Path) -> GuestSpec {
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().into()).collect();
        GuestSpec {
            replays: false,
            records: false,
            checks_states: None,
            acknowledges: false,
            makes_file_system: true,
            command: words(command),
            environment: words(&["PATH=/usr/local/bin:/usr/bin:/bin"]),
            working_directory: working_directory.as_os_str().as_bytes().into(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            umask: 0o22,
            terminals: [false; 3],
            window_size: None,
            devices: 1,
            rotational: vec![true],
            zoned: vec![false],
            file_system: FileSystem::Ext4,
            mkfs_options: Vec::new(),
            mount_options: None,
            mount_type: None,
            mount_point: "/mnt".into(),
            scheduler: None,
            seed: 1,
            host_writes: false,
            root: RootChoice::Device { files: Vec::new() },
            settles: false,
            drop_caches: false,
            check: false,
            modules: None,
            own_modules: Vec::new(),
        }
    }

    fn has(files: &[PathBuf], end: &str) -> bool {
        files.iter().any(|file| file.to_string_lossy().contains(end))
    }

    #[test]
    fn a_program_comes_with_its_loader_its_libraries_and_its_input() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("input"), "x").unwrap();
        fs::write(folder.path().join("not named"), "x").unwrap();
        let files = own_files(&spec(&["sh", "-c", "wc -l <input >/dev/null; sync"], folder.path()));
        for name in ["/sh", "/wc", "/sync", "/libc.so", "/ld-linux", "/input"] {
            assert!(has(&files, name), "{name} is missing: {files:?}");
        }
        assert!(!has(&files, "not named") && !has(&files, "/dev/null"), "{files:?}");
        let unique: HashSet<_> = files.iter().collect();
        assert_eq!(unique.len(), files.len());
    }

    #[test]
    fn a_script_comes_with_what_runs_it() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        fs::write(&script, "#!/usr/bin/env sh\nexit 0\n").unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        let files = own_files(&spec(&["./script"], folder.path()));
        for name in ["/script", "/usr/bin/env", "bin/sh", "/libc.so"] {
            assert!(has(&files, name), "{name} is missing: {files:?}");
        }
    }

    #[test]
    fn a_loader_is_read_from_whole_headers_only() {
        let head = fs::read("/bin/sh").unwrap();
        let loader = loader_of(&head[..4_096]).unwrap();
        assert!(loader.exists(), "{}", loader.display());
        // With any truncation or overwritten byte, no byte beyond the end is read.
        for end in 0..1_024 {
            let _ = loader_of(&head[..end]);
        }
        for at in 6..128 {
            let mut hostile = head[..4_096].to_vec();
            hostile[at] ^= 0xff;
            let _ = loader_of(&hostile);
        }
        assert_eq!(loader_of(b"#!/bin/sh"), None);
    }

    #[test]
    fn the_list_of_a_loader_has_names_and_paths() {
        let list = b"\tlinux-vdso.so.1 (0x7ff)\n\tlibz.so.1 => /lib/libz.so.1 (0x7f0)\n\t/lib64/ld.so (0x7e0)\n\
            \tlibmissing.so => not found\n\t/lib/a.so => /lib/b.so (0x1)\n";
        let paths: Vec<_> = ["/lib/libz.so.1", "/lib64/ld.so", "/lib/b.so"].map(PathBuf::from).into();
        assert_eq!(listed_libraries(list), paths);
    }

    #[test]
    fn copies_keep_links_modes_and_times() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        for path in ["usr/lib/deep", "elsewhere"] {
            fs::create_dir_all(from.join(path)).unwrap();
        }
        fs::create_dir(&to).unwrap();
        fs::write(from.join("usr/lib/a.so.1"), "library").unwrap();
        fs::hard_link(from.join("usr/lib/a.so.1"), from.join("usr/lib/deep/again")).unwrap();
        fs::set_permissions(from.join("usr/lib/a.so.1"), Permissions::from_mode(0o4755)).unwrap();
        fs::write(from.join("elsewhere/not"), "x").unwrap();
        for (target, link) in [("usr/lib", "lib"), ("a.so.1", "usr/lib/a.so"), ("/usr/../usr/lib/deep", "usr/abs")] {
            std::os::unix::fs::symlink(target, from.join(link)).unwrap();
        }
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
        let old = FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
        for path in ["usr/lib/a.so.1", "usr/lib"] {
            File::open(from.join(path)).unwrap().set_times(old).unwrap();
        }

        let mut copier = Copier::new(&from, &to).unwrap();
        for path in ["/lib/a.so", "/usr/abs", "/lib/a.so"] {
            copier.copy(Path::new(path)).unwrap();
        }
        assert_eq!(copier.copy(Path::new("/missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
        copier.finish().unwrap();

        assert_eq!(fs::read_link(to.join("lib")).unwrap(), Path::new("usr/lib"));
        assert_eq!(fs::read_link(to.join("usr/lib/a.so")).unwrap(), Path::new("a.so.1"));
        let file = fs::metadata(to.join("lib/a.so")).unwrap();
        assert_eq!((file.mode() & 0o7777, file.nlink(), file.modified().unwrap()), (0o4755, 2, long_ago));
        assert_eq!(file.ino(), fs::metadata(to.join("usr/lib/deep/again")).unwrap().ino());
        assert_eq!(fs::metadata(to.join("usr/lib")).unwrap().modified().unwrap(), long_ago);
        assert!(!to.join("elsewhere").exists());
    }

    #[test]
    fn links_in_a_circle_end() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir(&to).unwrap();
        std::os::unix::fs::symlink("there", from.join("here")).unwrap();
        std::os::unix::fs::symlink("here", from.join("there")).unwrap();
        assert!(Copier::new(&from, &to).unwrap().copy(Path::new("/here")).is_err());
    }
}
