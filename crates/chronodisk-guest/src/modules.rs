//! The guest kernel's modules: which of them a guest needs, found by the launcher in their list of dependencies, which
//! a guest would take longer to read than to load them; and loading them from the host's tree.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::system::finit_module;

use crate::filesystem::FileSystem;
use crate::spec::GuestSpec;

/// The modules of one kernel.
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

    /// The files of a guest's modules, in load order; built-in modules have none.
    pub fn needed_by(&self, spec: &GuestSpec) -> Vec<PathBuf> {
        names_for(spec).into_iter().flat_map(|name| self.files_of(name)).collect()
    }

    /// The files of a module and of its dependencies.
    fn files_of(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        // modules.dep lists a module's needs nearest first, so they load from the last to the first.
        let found = self.needs.get(name).into_iter();
        found.flat_map(|(path, needed)| needed.iter().rev().chain([path])).map(move |path| self.folder.join(path))
    }
}

/// Names of the modules that a guest needs. One that its kernel has built in is not in the kernel's list.
fn names_for(spec: &GuestSpec) -> Vec<&'static str> {
    let mut names = vec!["virtio_blk"];
    if spec.scheduler.as_deref() == Some("bfq") {
        names.push("bfq");
    }
    if spec.file_system != FileSystem::None {
        names.push(spec.file_system.name());
    }
    if matches!(spec.file_system, FileSystem::Ext2 | FileSystem::Ext3 | FileSystem::Ext4) {
        // A mount with quotas requests these from the module loader, which looks among the host's.
        names.extend(["quota_v1", "quota_v2"]);
    }
    if spec.devices > 1 {
        // The command may make an array of them, and has no way to load these by itself.
        names.extend(["raid0", "raid1", "raid10", "raid456"]);
    }
    if !spec.host_writes {
        names.push("overlay");
    }
    names
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
        let files = |name: &str| -> Vec<String> {
            let name_in = |file: PathBuf| file.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned();
            modules.files_of(name).map(name_in).collect()
        };
        assert_eq!(files("overlay"), ["kernel/fs/overlayfs/overlay.ko"]);
        assert_eq!(files("virtio_blk"), ["kernel/a.ko", "kernel/b.ko", "kernel/drivers/block/virtio-blk.ko"]);
        assert!(files("builtin_thing").is_empty());
    }
}
