//! Calls that name files by paths.

use super::super::attributes::{attribute, list_of_attributes};
use super::super::steps::{Argument, Expected, HERE};
use super::super::table::{O_CREAT, O_TRUNC};
use super::super::words::READ;
use super::{Call, Translated, change_directory, made, number, one};

const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_REMOVEDIR: u64 = 0x200;
const O_WRONLY: u64 = 1;
const AT_SYMLINK_FOLLOW: u64 = 0x400;
const S_IFSOCK: u64 = 0o140_000;
const EADDRINUSE: i64 = -98;
const IN_DONT_FOLLOW: u64 = 0x0200_0000;
const EOPNOTSUPP: i64 = -95;

impl Call<'_> {
    /// Translation of a call with a path outside the device.
    pub(super) fn elsewhere(&self) -> Translated {
        match self.resolved.unresolved && self.result >= 0 {
            true => Translated::Impossible,
            false => Translated::Nothing,
        }
    }

    pub(super) fn by_path(&self) -> Translated {
        let name = self.record.call.name();
        match name {
            "symlink" | "symlinkat" => return self.symbolic_link(),
            "rename" | "renameat" | "renameat2" | "link" | "linkat" => return self.two_paths(),
            "chdir" => return self.change_directory(),
            "execve" | "execveat" => return Translated::Nothing,
            _ => {}
        }
        let Some([directory, path]) = self.path(0) else { return self.elsewhere() };
        let outcome = self.outcome();
        let at = |call: u32, further: Vec<Argument>| {
            one(made(call, [directory.clone(), path.clone()].into_iter().chain(further), outcome))
        };
        let with_path = |call: u32, further: Vec<Argument>| match &directory {
            // These calls have no variant with a directory.
            Argument::Number(_) if directory != HERE => Translated::Impossible,
            _ => one(made(call, std::iter::once(path.clone()).chain(further), outcome)),
        };
        match name {
            "open" => self.open(directory, path, self.raw(1), self.raw(2)),
            "creat" => self.open(directory, path, O_CREAT | O_TRUNC | O_WRONLY, self.raw(1)),
            "openat" => self.open(directory, path, self.raw(2), self.raw(3)),
            "openat2" => self.open_how(directory, path),
            // The call looks the file up.
            "name_to_handle_at" => {
                let follows = self.raw(4) & AT_SYMLINK_FOLLOW != 0;
                let flags = if follows { 0 } else { AT_SYMLINK_NOFOLLOW };
                at(number::NEWFSTATAT, vec![Argument::Scratch, number(flags)])
            }
            "stat" => at(number::NEWFSTATAT, vec![Argument::Scratch]),
            "lstat" => at(number::NEWFSTATAT, vec![Argument::Scratch, number(AT_SYMLINK_NOFOLLOW)]),
            "newfstatat" => at(number::NEWFSTATAT, vec![Argument::Scratch, self.argument(3)]),
            "statx" => at(number::STATX, vec![self.argument(2), self.argument(3), Argument::Scratch]),
            "access" => at(number::FACCESSAT, vec![self.argument(1)]),
            "faccessat" | "faccessat2" => at(number::FACCESSAT, vec![self.argument(2)]),
            "readlink" => at(number::READLINKAT, vec![Argument::Scratch, number(4096)]),
            "readlinkat" => at(number::READLINKAT, vec![Argument::Scratch, number(4096)]),
            "mkdir" => at(number::MKDIRAT, vec![self.argument(1)]),
            "mkdirat" => at(number::MKDIRAT, vec![self.argument(2)]),
            "mknod" => at(number::MKNODAT, vec![self.argument(1), self.argument(2)]),
            "mknodat" => at(number::MKNODAT, vec![self.argument(2), self.argument(3)]),
            "unlink" => at(number::UNLINKAT, vec![]),
            "unlinkat" => at(number::UNLINKAT, vec![self.argument(2)]),
            "rmdir" => at(number::UNLINKAT, vec![number(AT_REMOVEDIR)]),
            "chmod" => at(number::FCHMODAT, vec![self.argument(1)]),
            "fchmodat" => at(number::FCHMODAT, vec![self.argument(2)]),
            "fchmodat2" => self.change_mode(directory, path),
            "chown" => at(number::FCHOWNAT, vec![self.argument(1), self.argument(2)]),
            "lchown" => at(number::FCHOWNAT, vec![self.argument(1), self.argument(2), number(AT_SYMLINK_NOFOLLOW)]),
            "fchownat" => at(number::FCHOWNAT, vec![self.argument(2), self.argument(3), self.argument(4)]),
            // Times are set to the present: the program's are not recorded.
            "utime" | "utimes" | "futimesat" => at(number::UTIMENSAT, vec![]),
            "utimensat" => at(number::UTIMENSAT, vec![number(0), self.argument(3)]),
            "truncate" => with_path(number::TRUNCATE, vec![self.argument(1)]),
            "statfs" => with_path(number::STATFS, vec![Argument::Scratch]),
            "getxattr" => with_path(number::GETXATTR, attribute(self.record, Argument::Scratch, self.raw(3))),
            "lgetxattr" => with_path(number::LGETXATTR, attribute(self.record, Argument::Scratch, self.raw(3))),
            "listxattr" => with_path(number::LISTXATTR, list_of_attributes()),
            "llistxattr" => with_path(number::LLISTXATTR, list_of_attributes()),
            "setxattr" => with_path(number::SETXATTR, attribute(self.record, Argument::Data, self.raw(3))),
            "lsetxattr" => with_path(number::LSETXATTR, attribute(self.record, Argument::Data, self.raw(3))),
            "removexattr" => with_path(number::REMOVEXATTR, attribute(self.record, Argument::Scratch, 0)),
            "lremovexattr" => with_path(number::LREMOVEXATTR, attribute(self.record, Argument::Scratch, 0)),
            _ if self.result < 0 => Translated::Nothing,
            _ => Translated::Impossible,
        }
    }

    /// `fchmodat2`, which the kernel of a replay may lack. No file system changes the mode of a symbolic link: a call
    /// that does not follow it looks it up and fails.
    fn change_mode(&self, directory: Argument, path: Argument) -> Translated {
        if self.raw(3) & AT_SYMLINK_NOFOLLOW != 0 && self.result == EOPNOTSUPP {
            let look_up = [directory, path, Argument::Scratch, number(AT_SYMLINK_NOFOLLOW)];
            return one(made(number::NEWFSTATAT, look_up, Expected::Outcome(0)));
        }
        one(made(number::FCHMODAT, [directory, path, self.argument(2)], self.outcome()))
    }

    /// Translates a bind to a path, which creates a file; an existing file is looked up.
    pub(super) fn bind(&self) -> Translated {
        let Some([directory, path]) = self.path(1) else { return Translated::Nothing };
        match self.result {
            0 => one(made(number::MKNODAT, [directory, path, number(S_IFSOCK | 0o777)], self.outcome())),
            EADDRINUSE => one(made(
                number::NEWFSTATAT,
                [directory, path, Argument::Scratch, number(AT_SYMLINK_NOFOLLOW)],
                Expected::Outcome(0),
            )),
            _ => Translated::Nothing,
        }
    }

    /// A watch looks the file up.
    pub(super) fn watch(&self) -> Translated {
        let Some([directory, path]) = self.path(1) else { return Translated::Nothing };
        let flags = if self.raw(2) & IN_DONT_FOLLOW != 0 { AT_SYMLINK_NOFOLLOW } else { 0 };
        one(made(number::NEWFSTATAT, [directory, path, Argument::Scratch, number(flags)], self.outcome()))
    }

    /// The structure of `openat2`: flags, mode and limits of the path's resolution.
    fn open_how(&self, directory: Argument, path: Argument) -> Translated {
        if self.raw(4) & READ == 0 {
            return self.open(directory, path, self.raw(2), if self.raw(2) & O_CREAT != 0 { 0o644 } else { 0 });
        }
        let how = vec![self.raw(2), self.raw(4) & !READ, self.raw(5)];
        let size = number(how.len() as u64 * 8);
        let expected = if self.result >= 0 { self.new_descriptor() } else { self.outcome() };
        one(made(number::OPENAT2, [directory, path, Argument::Words(how), size], expected))
    }

    fn open(&self, directory: Argument, path: Argument, flags: u64, mode: u64) -> Translated {
        let expected = if self.result >= 0 { self.new_descriptor() } else { self.outcome() };
        one(made(number::OPENAT, [directory, path, number(flags), number(mode)], expected))
    }

    fn symbolic_link(&self) -> Translated {
        let Some([directory, path]) = self.path(1) else { return self.elsewhere() };
        let Some(contents) = self.record.path.clone() else { return Translated::Impossible };
        one(made(number::SYMLINKAT, [Argument::Path(contents), directory, path], self.outcome()))
    }

    pub(super) fn two_paths(&self) -> Translated {
        let (Some([from, old]), Some([to, new])) = (self.old_path(), self.path(1)) else {
            // The rename is from or to another file system: the half on the device can't be replayed alone.
            let touches = self.path(0).is_some() || self.path(1).is_some();
            return if touches && self.result >= 0 { Translated::Impossible } else { self.elsewhere() };
        };
        let (call, flags) = match self.record.call.name() {
            "renameat2" => (number::RENAMEAT2, self.raw(4)),
            "rename" | "renameat" => (number::RENAMEAT2, 0),
            // The name of a descriptor is a symbolic link.
            "linkat" if matches!(old, Argument::DescriptorPath(..)) => (number::LINKAT, AT_SYMLINK_FOLLOW),
            "linkat" => (number::LINKAT, self.raw(4)),
            _ => (number::LINKAT, 0),
        };
        one(made(call, [from, old, to, new, number(flags)], self.outcome()))
    }

    /// The first path of a call with two. An empty one, as in `linkat`, stands for a descriptor, which takes a
    /// privilege that the replayer may lack. Its name in `/proc` takes none.
    fn old_path(&self) -> Option<[Argument; 2]> {
        let slot = self.place.slot(self.record.number(0)).filter(|_| self.names_descriptor());
        slot.map_or_else(|| self.path(0), |slot| Some([HERE, Argument::DescriptorPath(slot, Vec::new())]))
    }

    fn change_directory(&self) -> Translated {
        match self.path(0) {
            Some([_, path]) => one(made(number::CHDIR, [path], self.outcome())),
            // Relative paths begin elsewhere now, and are given as absolute ones.
            None if self.result == 0 && self.place.in_device => one(change_directory(b"/")),
            None => Translated::Nothing,
        }
    }
}
