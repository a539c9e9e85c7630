//! Loading the guest kernel's modules from the host's tree, by its own list of dependencies.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::system::finit_module;

/// The modules of one kernel; none by default, for one that has all built in.
#[derive(Default)]
pub(crate) struct Modules {
    folder: PathBuf,
    /// Path of each module in the folder, with those it needs, by its name.
    needs: BTreeMap<String, (String, Vec<String>)>,
}

impl Modules {
    /// Reads `modules.dep` in `folder`.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(folder.join("modules.dep"))?;
        let mut needs = BTreeMap::new();
        for line in text.lines() {
            let Some((path, dependencies)) = line.split_once(':') else { continue };
            let dependencies = dependencies.split_whitespace().map(str::to_owned).collect();
            needs.insert(name_of(path), (path.to_owned(), dependencies));
        }
        Ok(Modules { folder: folder.to_owned(), needs })
    }

    /// Loads a module and what it needs; one that the kernel has built in is not in the list.
    pub fn load(&self, name: &str) -> io::Result<()> {
        let Some((path, dependencies)) = self.needs.get(name) else { return Ok(()) };
        // modules.dep lists a module's needs nearest first, so they load from the last to the first.
        for needed in dependencies.iter().rev().chain([path]) {
            load_file(&self.folder.join(needed))
                .map_err(|error| io::Error::new(error.kind(), format!("{needed}: {error}")))?;
        }
        Ok(())
    }
}

/// Loads the module in a file; one that is there already is fine.
pub(crate) fn load_file(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    match finit_module(file.as_fd(), c"", 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_dependencies_is_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("modules.dep"),
            "kernel/fs/overlayfs/overlay.ko:\nkernel/drivers/block/virtio-blk.ko: kernel/b.ko kernel/a.ko\n",
        )
        .unwrap();
        let modules = Modules::open(folder.path()).unwrap();
        assert!(modules.needs["overlay"].1.is_empty());
        assert_eq!(modules.needs["virtio_blk"].1, ["kernel/b.ko", "kernel/a.ko"]);
        assert!(modules.load("builtin_thing").is_ok());
    }
}
