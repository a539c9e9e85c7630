//! Modules of the guest's kernel. The launcher finds the modules that a guest needs in their list of dependencies,
//! because reading it would take a guest longer than loading them. The guest loads them from the host's tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::shared::filesystem::FileSystem;
use crate::shared::spec::GuestSpec;

/// The modules of one kernel.
pub(crate) struct Modules {
    folder: PathBuf,
    /// By module name: path in the folder, and the modules that it needs.
    needs: BTreeMap<String, (String, Vec<String>)>,
    /// By module name: soft dependencies, modules loaded before it although it does not need their symbols.
    wants: BTreeMap<String, Vec<String>>,
}

/// Modules that a module requests from the loader at its start. A guest has no loader that would find them. Since Linux
/// 6.7, `cbc` needs `ecb`.
const ASKS_FOR: [(&str, &[&str]); 2] =
    [("encrypted_keys", &["ecb", "cbc", "hmac", "sha256"]), ("dm_crypt", &["xts", "cbc", "essiv", "ecb"])];

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
        let mut wants: BTreeMap<String, Vec<String>> = BTreeMap::new();
        // Custom kernels may lack this file.
        let soft = fs::read_to_string(folder.join("modules.softdep")).unwrap_or_default();
        let asked = ASKS_FOR.into_iter().map(|(name, wanted)| (name.to_owned(), wanted.join(" ")));
        for (name, wanted) in soft.lines().filter_map(soft_needs_in).chain(asked) {
            wants.entry(name).or_default().extend(wanted.split_whitespace().map(|name| name.replace('-', "_")));
        }
        Ok(Modules { folder: folder.to_owned(), needs, wants })
    }

    /// The files of a guest's modules, in load order; built-in modules have none.
    pub fn needed_by(&self, spec: &GuestSpec) -> Vec<PathBuf> {
        names_for(spec).into_iter().flat_map(|name| self.files_of(name)).collect()
    }

    /// Files of the user's own modules, each after the kernel modules that it needs. Needed modules that are built in,
    /// or that the kernel lacks, are omitted.
    pub fn with_needs(&self, own: &[PathBuf]) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = Vec::new();
        let mut there: BTreeSet<String> = BTreeSet::new();
        for module in own {
            for needed in needs_in(&fs::read(module).unwrap_or_default()) {
                let needed: Vec<PathBuf> = self.files_of(&needed).collect();
                needed.into_iter().for_each(|file| self.add(file, &mut all, &mut there));
            }
            let name = name_of(&module.to_string_lossy());
            self.add_wanted(&name, &mut all, &mut there);
            there.insert(name);
            all.push(module.clone());
        }
        all
    }

    /// Adds a module's file after its dependencies, unless a module of that name is in the list: the user may have
    /// given a replacement.
    fn add(&self, file: PathBuf, all: &mut Vec<PathBuf>, there: &mut BTreeSet<String>) {
        let name = name_of(&file.to_string_lossy());
        if there.insert(name.clone()) {
            self.add_wanted(&name, all, there);
            all.push(file);
        }
    }

    fn add_wanted(&self, name: &str, all: &mut Vec<PathBuf>, there: &mut BTreeSet<String>) {
        for wanted in self.wants.get(name).into_iter().flatten() {
            let files: Vec<PathBuf> = self.files_of(wanted).collect();
            files.into_iter().for_each(|file| self.add(file, all, there));
        }
    }

    /// The files of a module and of its dependencies.
    fn files_of(&self, name: &str) -> impl Iterator<Item = PathBuf> {
        // modules.dep lists a module's dependencies nearest first, so they are loaded from the last to the first.
        let found = self.needs.get(name).into_iter();
        found.flat_map(|(path, needed)| needed.iter().rev().chain([path])).map(move |path| self.folder.join(path))
    }
}

/// Parses a line `softdep NAME pre: NAME NAME post: NAME` of `modules.softdep` into the module and those before it.
fn soft_needs_in(line: &str) -> Option<(String, String)> {
    let (name, rest) = line.strip_prefix("softdep ")?.split_once(' ')?;
    let (_, before) = rest.split_once("pre:")?;
    let before = before.split("post:").next().unwrap_or_default();
    Some((name.replace('-', "_"), before.to_owned()))
}

/// Names of the modules that a module needs, from its section `.modinfo`. The section consists of strings that end with
/// a zero byte, including `depends=NAME,NAME`. A compressed module gives no names.
fn needs_in(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = &module[at + KEY.len()..];
    let value = &value[..value.iter().position(|byte| *byte == 0).unwrap_or(0)];
    let names = value.split(|byte| *byte == b',').filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).replace('-', "_")).collect()
}

/// Names of the modules that a guest needs. Built-in modules are not in the kernel's list.
fn names_for(spec: &GuestSpec) -> Vec<&'static str> {
    let mut names = vec!["virtio_blk"];
    if spec.scheduler.as_deref() == Some("bfq") {
        names.push("bfq");
    }
    let file_system = spec.checks_states.unwrap_or(spec.file_system);
    if file_system != FileSystem::None {
        names.push(file_system.name());
    }
    if file_system == FileSystem::F2fs {
        // It requests this from the loader as it is mounted.
        names.push("crc32_generic");
    }
    if matches!(file_system, FileSystem::Ext2 | FileSystem::Ext3 | FileSystem::Ext4) {
        // A mount with quotas requests these from the module loader, which would find none in the guest.
        names.extend(["quota_v1", "quota_v2"]);
    }
    if spec.devices > 1 && spec.checks_states.is_none() {
        // The command may build an array, and can't load these modules itself.
        names.extend(["raid0", "raid1", "raid10", "raid456"]);
    }
    if !spec.host_writes {
        names.push("overlay");
    }
    names
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

    #[test]
    fn what_a_module_of_the_users_own_needs_comes_before_it_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let list = "kernel/a.ko:\nkernel/b-b.ko: kernel/a.ko\nkernel/c.ko: kernel/b-b.ko kernel/a.ko\nkernel/s.ko:\n";
        fs::write(folder.path().join("modules.dep"), list).unwrap();
        let soft = "# what may be\nsoftdep c pre: s builtin post: a\nsoftdep s pre: c\nsoftdep wrong\n";
        fs::write(folder.path().join("modules.softdep"), soft).unwrap();
        let module = |name: &str, needs: &str| {
            let path = folder.path().join(name);
            fs::write(&path, format!("\x7fELF\0license=GPL\0depends={needs}\0name=x\0")).unwrap();
            path
        };
        let own = [module("a.ko", ""), module("mine.ko", "b-b,nowhere"), module("yours.ko", "mine,c")];
        let loaded = Modules::open(folder.path()).unwrap().with_needs(&own);
        let names: Vec<_> = loaded.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a.ko", "b-b.ko", "mine.ko", "s.ko", "c.ko", "yours.ko"]);
        assert!(loaded.contains(&folder.path().join("a.ko")), "the user's own goes before the kernel's");
        assert!(needs_in(b"no module").is_empty() && needs_in(b"\0depends=cut").is_empty());
    }
}
