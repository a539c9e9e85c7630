//! A virtual machine with a Debian kernel and nothing else: QEMU without an image, and a root made
//! for the occasion from busybox and programs of this host, in memory.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel that can be booted, and its modules.
pub struct Kernel {
    pub image: PathBuf,
    modules: PathBuf,
}

/// Printed by the guest's first process before its script's exit status.
pub const STATUS: &str = "machine: status ";

impl Kernel {
    /// The kernel in the folder that `CHRONODISK_TEST_KERNEL` names, in `target/test-kernel`, where
    /// `scripts/need test` unpacks one, or in this host's `/boot`.
    pub fn find() -> Option<Self> {
        Self::candidates().into_iter().next()
    }

    /// The first such kernel with this module. `target/test-kernel-ublk` is searched, too.
    pub fn find_with(module: &str) -> Option<Self> {
        Self::candidates().into_iter().find(|kernel| find_module(&kernel.modules.join("kernel"), module).is_some())
    }

    fn candidates() -> Vec<Self> {
        let named = std::env::var_os("CHRONODISK_TEST_KERNEL").map(PathBuf::from);
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let unpacked = ["test-kernel", "test-kernel-ublk"].map(|folder| target.join(folder));
        let roots = named.into_iter().chain(unpacked).chain([PathBuf::from("/")]);
        let kernels = roots.filter_map(|root| {
            let images = fs::read_dir(root.join("boot")).ok()?;
            let names = images.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let mut releases: Vec<String> =
                names.filter_map(|name| Some(name.strip_prefix("vmlinuz-")?.to_owned())).collect();
            releases.sort();
            releases.into_iter().rev().find_map(|release| {
                let image = root.join("boot").join(format!("vmlinuz-{release}"));
                fs::File::open(&image).ok()?;
                let folders = ["lib/modules", "usr/lib/modules"].map(|folder| root.join(folder).join(&release));
                let modules = folders.into_iter().find(|folder| folder.join("kernel").is_dir())?;
                Some(Kernel { image, modules })
            })
        });
        kernels.collect()
    }

    /// The files of a module and of those that it needs, in the order in which they must be
    /// loaded; nothing if it is built in.
    fn module_files(&self, name: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        self.collect(name, &mut files);
        files
    }

    fn collect(&self, name: &str, files: &mut Vec<PathBuf>) {
        let Some(file) = find_module(&self.modules.join("kernel"), name) else { return };
        // Debian compresses modules from release 13 on; a package that was only unpacked has no list of dependencies.
        let output = Command::new("modinfo").args(["-F", "depends"]).arg(&file).output();
        let depends = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        for dependency in depends.trim().split(',').filter(|dependency| !dependency.is_empty()) {
            self.collect(dependency, files);
        }
        if !files.contains(&file) {
            files.push(file);
        }
    }
}

/// A module's file anywhere under a folder; names in it have hyphens where the kernel has underscores.
fn find_module(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let path = entry.path();
            let file_name = entry.file_name().to_string_lossy().replace('-', "_");
            if entry.file_type().is_ok_and(|file_type| file_type.is_dir()) {
                folders.push(path);
            } else if file_name.split('.').next() == Some(name) && file_name.contains(".ko") {
                return Some(path);
            }
        }
    }
    None
}

/// Checks the host for a machine's requirements with these programs; prints the missing ones.
pub fn have(programs: &[(&str, &str)]) -> bool {
    let own = [("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static"), ("modinfo", "kmod")];
    for (program, package) in own.iter().chain(programs) {
        if program_path(program).is_none() {
            println!("SKIPPED: no {program} here (Debian: apt-get install {package})");
            return false;
        }
    }
    if !is_static(&program_path("busybox").expect("it was found")) {
        println!("SKIPPED: busybox needs libraries (Debian: apt-get install busybox-static)");
        return false;
    }
    true
}

fn program_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn is_static(program: &Path) -> bool {
    libraries(program).is_empty()
}

/// The shared libraries of a program, the loader among them.
fn libraries(program: &Path) -> BTreeSet<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd is part of the C library");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Writes a root for the guest: busybox, programs (names or absolute paths) with their libraries, and a first
/// process that loads the modules at once, has `later` ones in `/modules/NAME` for the function
/// `load`, runs the script, prints its exit status and ends the machine.
pub fn write_root(to: &Path, kernel: &Kernel, modules: &[&str], later: &[&str], programs: &[&str], script: &str) {
    let mut root = Archive::default();
    for folder in ["bin", "dev", "proc", "sys", "mnt", "tmp", "modules", "run", "etc"] {
        root.folder(folder);
    }
    root.host_file(&program_path("busybox").expect("asked for before"), "bin/busybox");
    for name in programs {
        let path = program_path(name).expect("asked for before");
        for library in libraries(&path) {
            root.host_file(&library, library.to_str().expect("a name of the distribution's").trim_start_matches('/'));
        }
        let name = Path::new(name).file_name().and_then(OsStr::to_str).expect("a program's name");
        root.host_file(&path, &format!("bin/{name}"));
    }
    let mut numbered = |names: &[&str]| -> String {
        names
            .iter()
            .flat_map(|name| kernel.module_files(name))
            .map(|file| {
                let name = file.file_name().and_then(OsStr::to_str).expect("a module's name").to_owned();
                root.host_file(&file, &format!("modules/{name}"));
                format!("/modules/{name} ")
            })
            .collect()
    };
    let (now, later) = (numbered(modules), later.iter().map(|name| (*name, numbered(&[*name]))).collect::<Vec<_>>());
    let cases: String = later.iter().map(|(name, files)| format!("        {name}) files='{files}' ;;\n")).collect();
    let init = format!(
        "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
insert() {{ for file in \"$@\"; do [ -e \"/run/${{file##*/}}\" ] || insmod \"$file\"; : >\"/run/${{file##*/}}\"; done }}
load() {{
    files=
    case $1 in
{cases}    esac
    insert $files
}}
insert {now}
(
set -e
{script}
)
echo \"{STATUS}$?\"
poweroff -f
"
    );
    root.file("init", 0o755, init.as_bytes());
    fs::write(to, root.finish()).unwrap();
}

/// The words of a command that boots `kernel` from `root`, with memory that others can share.
pub fn command(kernel: &Kernel, root: &Path, accelerator: &str, memory: &str, parameters: &str) -> Vec<String> {
    let path = |path: &Path| path.to_str().expect("paths of tests are ASCII").to_owned();
    let words = format!(
        "qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -serial stdio -accel {accelerator} \
         -cpu max -m {memory} -object memory-backend-memfd,id=memory,size={memory},share=on \
         -machine q35,memory-backend=memory"
    );
    let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    words.extend(["-kernel".into(), path(&kernel.image), "-initrd".into(), path(root)]);
    words.extend([
        "-append".into(),
        format!("console=ttyS0 quiet panic=-1 mitigations=off no_timer_check {parameters}"),
    ]);
    words
}

/// An archive in the kernel's form of an initial root ("newc", Documentation/driver-api/early-userspace/buffer-format).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Archive {
    fn folder(&mut self, name: &str) {
        if self.names.insert(name.to_owned()) {
            self.entry(name, 0o040_755, &[]);
        }
    }

    fn file(&mut self, name: &str, permissions: u32, bytes: &[u8]) {
        let mut parents: Vec<&Path> = Path::new(name).ancestors().skip(1).collect();
        parents.reverse();
        for parent in parents.into_iter().filter_map(Path::to_str).filter(|parent| !parent.is_empty()) {
            self.folder(parent);
        }
        if self.names.insert(name.to_owned()) {
            self.entry(name, 0o100_000 | permissions, bytes);
        }
    }

    fn host_file(&mut self, path: &Path, name: &str) {
        let permissions =
            fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions();
        self.file(name, permissions.mode() & 0o777, &fs::read(path).unwrap());
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        let inode = self.names.len() as u32;
        let name_bytes = name.len() as u32 + 1;
        let fields = [inode, mode, 0, 0, 1, 0, bytes.len() as u32, 0, 0, 0, 0, name_bytes, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(bytes);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
