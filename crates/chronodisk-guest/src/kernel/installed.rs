//! Kernels of the host's files: the distribution's, or one that the user names; and their modules.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::programs::{HostLacks, find_program, is_executable};

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
pub(super) fn first_in_image(kernel: &Path, texts: &[Vec<u8>]) -> Option<usize> {
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
}
