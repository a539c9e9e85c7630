//! A built kernel as an archive for other hosts: what one host has built, others install.
//!
//! ```text
//!  lib/chronodisk/kernel-RECIPE/linux            the kernel, an ordinary program
//!  lib/chronodisk/kernel-RECIPE/NAME.ko          its modules, if it has any
//!  lib/chronodisk/kernel-RECIPE/SOURCE           what it was built from
//!  lib/chronodisk/kernel-RECIPE/time.patch       the patches, if it has any
//!  lib/chronodisk/kernel-RECIPE/config           what its configuration has beside the defaults
//!  lib/chronodisk/kernel-RECIPE/config-zones     likewise, for zoned devices
//!  lib/chronodisk/kernel-RECIPE/COPYING          the GNU General Public License, version 2
//! ```
//!
//! Unpacked below the prefix of an executable (`/usr`, `/usr/local`, `~/.local`), it is found from there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::modules::modules_in;
use super::{KernelVariant, cached, no_home};
use crate::kernel::programs::{HostLacks, require_program};

/// Where Debian keeps the kernel's licence.
const LICENCE: &str = "/usr/share/common-licenses/GPL-2";
/// Beside the kernel, since it was built.
const SOURCE_NOTE: &str = "SOURCE";
/// Below a prefix.
const BELOW_PREFIX: &str = "lib/chronodisk";

/// Why there is no package, or why it was not installed.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The host lacks something.
    #[error(transparent)]
    HostLacks(#[from] HostLacks),
    /// The archive is none of this version's kernel.
    #[error("{file}: {problem}")]
    Archive {
        /// Which.
        file: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
}

fn at(path: &Path) -> impl Fn(io::Error) -> PackageError + '_ {
    |source| PackageError::File { path: path.to_owned(), source }
}

/// Description of a kernel's source for its recipients.
pub(super) fn source_note(variant: KernelVariant, release: &str, archive: &Path) -> String {
    let archive = archive.file_name().unwrap_or_default().to_string_lossy();
    let names = variant.patches().iter().chain(variant.configs()).map(|(name, _)| *name);
    format!(
        "Linux {release}, from {archive} (Debian: apt-get install {}), with {} beside this file.\n`{}` builds it.\n",
        variant.source_package(),
        names.collect::<Vec<_>>().join(" and "),
        variant.command()
    )
}

/// Writes that note beside a kernel.
pub(super) fn write_source_note(
    variant: KernelVariant,
    kernel: &Path,
    release: &str,
    archive: &Path,
) -> io::Result<()> {
    fs::write(kernel.with_file_name(SOURCE_NOTE), source_note(variant, release, archive))
}

/// Where a kernel that was installed as a package is: below the prefix of this executable, and below the usual ones.
pub(super) fn installed(variant: KernelVariant) -> Option<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|file| Some(file.parent()?.parent()?.to_owned()));
    let prefixes = own.into_iter().chain(["/usr/local", "/usr"].map(PathBuf::from));
    let name = variant.folder_name();
    prefixes.map(|prefix| prefix.join(BELOW_PREFIX).join(&name).join("linux")).find(|file| file.is_file())
}

/// Writes a kernel of the user's cache as an archive into a folder, and returns its path. Equal kernels give equal
/// bytes.
///
/// # Errors
/// When the kernel has not been built, or a file can't be read or written.
pub fn package(variant: KernelVariant, folder: &Path) -> Result<PathBuf, PackageError> {
    let kernel = cached(variant).ok_or_else(no_home)?;
    let lacks = |what: String, help: &str| HostLacks { what, help: help.to_owned() };
    if !kernel.is_file() {
        let help = format!("build it: {}", variant.command());
        return Err(lacks("the kernel has not been built here".into(), &help).into());
    }
    let note = fs::read(kernel.with_file_name(SOURCE_NOTE)).map_err(|_| {
        let what = "the kernel in the cache does not say what it was built from".into();
        lacks(what, &format!("build it again: {} --force", variant.command()))
    })?;
    let licence = fs::read(LICENCE)
        .map_err(|_| lacks(format!("{LICENCE}, which belongs to the kernel, is not there"), "install base-files"))?;
    require_program("tar", "tar")?;
    if folder.is_file() {
        let problem = "is a file; expected a directory".to_owned();
        return Err(PackageError::Archive { file: folder.to_owned(), problem });
    }
    fs::create_dir_all(folder).map_err(at(folder))?;
    let stage = Stage::make(folder)?;
    let into = stage.0.join(BELOW_PREFIX).join(variant.folder_name());
    fs::create_dir_all(&into).map_err(at(&into))?;
    let program = into.join("linux");
    fs::copy(&kernel, &program).map_err(at(&kernel))?;
    let texts = variant.patches().iter().chain(variant.configs());
    let texts = texts.map(|&(name, text)| (name, text.as_bytes()));
    for module in modules_in(kernel.parent().unwrap_or(Path::new("."))) {
        fs::copy(&module, into.join(module.file_name().unwrap_or_default())).map_err(at(&module))?;
    }
    for (name, bytes) in texts.chain([(SOURCE_NOTE, &note[..]), ("COPYING", &licence)]) {
        let file = into.join(name);
        fs::write(&file, bytes).map_err(at(&file))?;
    }
    let archive = folder.join(format!("chronodisk-{}-x86_64.tar.gz", variant.folder_name()));
    let unfinished = archive.with_extension("unfinished");
    let mut tar = Command::new("tar");
    // gzip otherwise writes the time into its output.
    tar.args(["--create", "--use-compress-program", "gzip --no-name", "--sort=name", "--mtime=@0"]);
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
    tar.arg("--file").arg(&unfinished).arg("--directory").arg(&stage.0).arg("lib");
    run(variant, tar, &unfinished)?;
    fs::rename(&unfinished, &archive).map_err(at(&archive))?;
    Ok(archive)
}

/// Installs the kernel of an archive, whichever it is, into the user's cache, and returns where it is.
///
/// # Errors
/// When the archive is not of this version's kernel, or a file can't be written.
pub fn install(archive: &Path) -> Result<PathBuf, PackageError> {
    let mut refusal = None;
    for variant in KernelVariant::ALL {
        match install_variant(variant, archive) {
            Err(error @ PackageError::Archive { .. }) => refusal.get_or_insert(error),
            installed => return installed,
        };
    }
    Err(refusal.expect("there are variants"))
}

fn install_variant(variant: KernelVariant, archive: &Path) -> Result<PathBuf, PackageError> {
    let kernel = cached(variant).ok_or_else(no_home)?;
    fs::File::open(archive)
        .map_err(|error| PackageError::Archive { file: archive.to_owned(), problem: error.to_string() })?;
    require_program("tar", "tar")?;
    let folder = kernel.parent().unwrap_or(Path::new("/"));
    let parent = folder.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(at(parent))?;
    let stage = Stage::make(parent)?;
    let within = Path::new(BELOW_PREFIX).join(variant.folder_name());
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(archive).arg("--directory").arg(&stage.0);
    tar.args(["--no-same-owner", "--no-same-permissions"]).arg(&within);
    run(variant, tar, archive)?;
    let unpacked = stage.0.join(&within);
    let program = unpacked.join("linux");
    if !fs::symlink_metadata(&program).is_ok_and(|file| file.is_file() && file.len() > 0) {
        let problem = format!("holds no {}", within.join("linux").display());
        return Err(PackageError::Archive { file: archive.to_owned(), problem });
    }
    fs::create_dir_all(folder).map_err(at(folder))?;
    for entry in fs::read_dir(&unpacked).map_err(at(&unpacked))? {
        let from = entry.map_err(at(&unpacked))?.path();
        let to = folder.join(from.file_name().unwrap_or_default());
        fs::rename(&from, &to).map_err(at(&to))?;
    }
    Ok(kernel)
}

/// Runs tar on an archive.
fn run(variant: KernelVariant, mut tar: Command, archive: &Path) -> Result<(), PackageError> {
    let output = tar.env("LC_ALL", "C").output().map_err(at(Path::new("tar")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let problem = match said.contains("Not found in archive") {
        true => format!("is no package of this version's kernel, {}", variant.folder_name()),
        false => said.trim().to_owned(),
    };
    Err(PackageError::Archive { file: archive.to_owned(), problem })
}

/// A folder that goes with its owner.
struct Stage(PathBuf);

impl Stage {
    fn make(parent: &Path) -> Result<Self, PackageError> {
        let path = parent.join(format!(".kernel-package-{}", std::process::id()));
        fs::create_dir(&path).map_err(at(&path))?;
        Ok(Stage(path))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
