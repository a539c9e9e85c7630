//! File systems without a classifier, as modules beside the kernel of the exact clock: `run --notify-file-data` loads
//! them. They are no part of the kernel, because its size changes the times of runs by the memory that is left.

use std::fs;
use std::path::{Path, PathBuf};

use super::{BuildError, Tree};
use crate::kernel::installed::UserModeLinux;

/// A folder of the kernel's source, with the variables of its modules for make.
struct Source {
    folder: &'static str,
    variables: &'static [&'static str],
}

const SOURCES: [Source; 4] = [
    Source { folder: "fs/jfs", variables: &["CONFIG_JFS_FS=m"] },
    Source { folder: "fs/minix", variables: &["CONFIG_MINIX_FS=m"] },
    Source {
        folder: "fs/exfat",
        variables: &["CONFIG_EXFAT_FS=m", r#"KCFLAGS=-DCONFIG_EXFAT_DEFAULT_IOCHARSET=\"utf8\""#],
    },
    // FAT, which is built in, needs them by default.
    Source { folder: "fs/nls", variables: &["CONFIG_NLS_CODEPAGE_437=m", "CONFIG_NLS_ISO8859_1=m"] },
];

const EXTENSION: &str = "ko";

impl Tree<'_> {
    /// Builds the modules, and puts them into a folder.
    pub(super) fn compile_file_systems(&self, into: &Path) -> Result<(), BuildError> {
        self.steps.run("preparing modules", self.make("modules_prepare"), &mut |_| {})?;
        for source in &SOURCES {
            let mut make = self.make("modules");
            // The kernel's list of symbols is made with all of its modules only; without it, make warns.
            make.arg("KBUILD_MODPOST_WARN=1").arg(format!("M={}", source.folder)).args(source.variables);
            self.steps.run(&format!("compiling {}", source.folder), make, &mut |_| {})?;
            for file in modules_in(&self.built.join(source.folder)) {
                let target = into.join(file.file_name().unwrap_or_default());
                fs::copy(&file, &target).map_err(|source| BuildError::File { path: target, source })?;
            }
        }
        Ok(())
    }
}

/// The modules beside a kernel that was built or installed.
pub(crate) fn file_systems_beside(kernel: &UserModeLinux) -> Vec<PathBuf> {
    kernel.executable.parent().map(modules_in).unwrap_or_default()
}

/// The modules in a folder, in the order of their names.
pub(super) fn modules_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut modules: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION)).collect();
    modules.sort();
    modules
}
