//! How each call is made again: the one place that knows their arguments.

use super::order::POLLS;
use super::plan::{Action, Argument, Expected, HERE, on_device};
use super::record::CallRecord;
use super::resolve::Resolved;
use super::table::{AT_FDCWD, Base, F_DUPFD, F_DUPFD_CLOEXEC, O_CREAT, O_TRUNC, receives, sends, signature};
use super::tables::{CLOSE_RANGE_CLOEXEC, Kind};

/// Numbers of the calls on x86-64 (`arch/x86/entry/syscalls/syscall_64.tbl`).
mod number {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const CLOSE: u32 = 3;
    pub const FSTAT: u32 = 5;
    pub const LSEEK: u32 = 8;
    pub const PREAD64: u32 = 17;
    pub const PWRITE64: u32 = 18;
    pub const SENDFILE: u32 = 40;
    pub const FLOCK: u32 = 73;
    pub const FSYNC: u32 = 74;
    pub const FDATASYNC: u32 = 75;
    pub const TRUNCATE: u32 = 76;
    pub const FTRUNCATE: u32 = 77;
    pub const GETDENTS: u32 = 78;
    pub const CHDIR: u32 = 80;
    pub const FCHDIR: u32 = 81;
    pub const FCHMOD: u32 = 91;
    pub const FCHOWN: u32 = 93;
    pub const UMASK: u32 = 95;
    pub const STATFS: u32 = 137;
    pub const FSTATFS: u32 = 138;
    pub const SYNC: u32 = 162;
    pub const READAHEAD: u32 = 187;
    pub const SETXATTR: u32 = 188;
    pub const LSETXATTR: u32 = 189;
    pub const FSETXATTR: u32 = 190;
    pub const GETXATTR: u32 = 191;
    pub const LGETXATTR: u32 = 192;
    pub const FGETXATTR: u32 = 193;
    pub const LISTXATTR: u32 = 194;
    pub const LLISTXATTR: u32 = 195;
    pub const FLISTXATTR: u32 = 196;
    pub const REMOVEXATTR: u32 = 197;
    pub const LREMOVEXATTR: u32 = 198;
    pub const FREMOVEXATTR: u32 = 199;
    pub const GETDENTS64: u32 = 217;
    pub const FADVISE64: u32 = 221;
    pub const OPENAT: u32 = 257;
    pub const MKDIRAT: u32 = 258;
    pub const MKNODAT: u32 = 259;
    pub const FCHOWNAT: u32 = 260;
    pub const NEWFSTATAT: u32 = 262;
    pub const UNLINKAT: u32 = 263;
    pub const LINKAT: u32 = 265;
    pub const SYMLINKAT: u32 = 266;
    pub const READLINKAT: u32 = 267;
    pub const FCHMODAT: u32 = 268;
    pub const FACCESSAT: u32 = 269;
    pub const SYNC_FILE_RANGE: u32 = 277;
    pub const UTIMENSAT: u32 = 280;
    pub const FALLOCATE: u32 = 285;
    pub const DUP3: u32 = 292;
    pub const SYNCFS: u32 = 306;
    pub const RENAMEAT2: u32 = 316;
    pub const COPY_FILE_RANGE: u32 = 326;
    pub const STATX: u32 = 332;
}

const AT_REMOVEDIR: u64 = 0x200;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const O_WRONLY: u64 = 1;
/// Errors of calls that a signal, a full or empty pipe or a limit on the length of files has kept from doing anything:
/// `EINTR`, `EAGAIN`, `EFBIG`.
const NOTHING_DONE: [i64; 3] = [-4, -11, -27];
/// Flags of `pwritev2`: `RWF_DSYNC` and `RWF_SYNC`.
const RWF_DSYNC: u64 = 2;
const RWF_SYNC: u64 = 4;
/// The only extended attribute: names are not recorded.
const ATTRIBUTE: &[u8] = b"user.chronodisk";
/// One that no file has.
const ATTRIBUTE_ABSENT: &[u8] = b"user.absent";
/// `ENODATA`.
const NO_ATTRIBUTE: i64 = -61;
/// Most bytes of an extended attribute's value that Linux takes.
const ATTRIBUTE_BYTES_MAX: u64 = 65_536;
/// Most bytes that one call of Linux reads or writes.
const TRANSFER_BYTES_MAX: u64 = 0x7fff_f000;

/// Where a call is made.
pub(super) struct CallContext<'a> {
    pub mount: &'a [u8],
    /// Whether the task's working directory is on the device.
    pub in_device: bool,
    /// Kind of a descriptor of the task.
    pub kind: &'a dyn Fn(i32) -> Option<Kind>,
}

/// Translation of a call.
pub(super) enum Translated {
    Actions(Vec<Action>),
    /// It does not touch the device, and nothing needs it.
    Nothing,
    /// It touches the device and can't be made.
    Impossible,
}

fn number(value: u64) -> Argument {
    Argument::Number(value)
}

fn made(number: u32, arguments: impl IntoIterator<Item = Argument>, expected: Expected) -> Action {
    let mut all = [const { Argument::Number(0) }; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument;
    }
    Action::Call { number, arguments: all, expected }
}

pub(super) fn close(descriptor: i32) -> Action {
    made(number::CLOSE, [number(descriptor as u64)], Expected::Outcome(0))
}

pub(super) fn change_directory(path: &[u8]) -> Action {
    made(number::CHDIR, [Argument::Path(path.to_vec())], Expected::Outcome(0))
}

pub(super) fn sync() -> Action {
    made(number::SYNC, [], Expected::Outcome(0))
}

/// A call that changes its process alone, and through it later calls.
pub(super) fn of_process(record: &CallRecord) -> Option<Action> {
    // Its result is the mask before, which began as another.
    (record.call.name() == "umask").then(|| made(number::UMASK, [number(record.arguments[0])], Expected::Outcome(0)))
}

/// Whether a call that touches nothing was a sleep, alone or as a wait that ran out.
pub(super) fn sleeps(record: &CallRecord) -> bool {
    match record.call.name() {
        "nanosleep" | "clock_nanosleep" => true,
        name => POLLS.contains(&name) && record.result == Some(0),
    }
}

/// The same transfer on a pipe, if the call is one.
pub(super) fn stream(record: &CallRecord, kind: &dyn Fn(i32) -> Option<Kind>) -> Option<Action> {
    let descriptor = record.number(0);
    if kind(descriptor) != Some(Kind::Stream) {
        return None;
    }
    let bytes = u64::try_from(record.result?).ok()?;
    match record.call.name() {
        name if receives(name) => Some(Action::Receive { descriptor, bytes }),
        name if sends(name) && bytes > 0 => Some(Action::Send { descriptor, bytes }),
        _ => None,
    }
}

/// The descriptor that a call works on, if it works on one and not on paths.
pub(super) fn descriptor_of(record: &CallRecord) -> Option<i32> {
    let by_path = record.path.as_ref().is_some_and(|path| path.starts_with(b"/"));
    let known = signature(record.call.name())?;
    let base = known.paths.iter().flatten().find_map(|base| match base {
        Base::At(argument) => Some(*argument),
        _ => None,
    });
    match record.call.name() {
        "close" | "fcntl" | "dup" | "dup2" | "dup3" => Some(record.number(0)),
        _ if by_path => None,
        _ => known.descriptors.first().copied().or(base).map(|argument| record.number(argument)),
    }
}

/// Whether the result is a new descriptor.
pub(super) fn makes_descriptor(record: &CallRecord) -> bool {
    match record.call.name() {
        "open" | "openat" | "openat2" | "creat" | "dup" | "dup2" | "dup3" => true,
        "fcntl" => matches!(record.arguments[1], F_DUPFD | F_DUPFD_CLOEXEC),
        _ => false,
    }
}

/// Whether a call reads or changes the position of an open file description.
pub(super) fn moves_position(name: &str) -> bool {
    matches!(name, "read" | "readv" | "write" | "writev" | "lseek" | "getdents" | "getdents64" | "sendfile")
}

/// Whether a call makes, renames or removes names.
pub(super) fn changes_names(record: &CallRecord) -> bool {
    match record.call.name() {
        "mkdir" | "mkdirat" | "mknod" | "mknodat" | "link" | "linkat" | "symlink" | "symlinkat" | "rename"
        | "renameat" | "renameat2" | "unlink" | "unlinkat" | "rmdir" | "creat" => true,
        "open" => record.arguments[1] & O_CREAT != 0,
        "openat" | "openat2" => record.arguments[2] & O_CREAT != 0,
        _ => false,
    }
}

/// Whether a call takes or leaves a lock of a file.
pub(super) fn locks(record: &CallRecord) -> bool {
    // F_GETLK, F_SETLK, F_SETLKW and the same for open file descriptions.
    let locks = matches!(record.arguments[1], 5..=7 | 36..=38);
    matches!(record.call.name(), "flock") || record.call.name() == "fcntl" && locks
}

/// A call's use of a file's length.
pub(super) enum Extent {
    None,
    /// It uses or changes bytes up to here; `None` for up to its end.
    Of {
        end: Option<u64>,
    },
}

pub(super) fn extent(record: &CallRecord) -> Extent {
    let moved = record.result.and_then(|result| u64::try_from(result).ok()).unwrap_or(0);
    match record.call.name() {
        "pwrite64" | "pwritev" | "pwritev2" => Extent::Of { end: record.arguments[3].checked_add(moved) },
        "read" | "readv" | "pread64" | "preadv" | "preadv2" | "fstat" | "stat" | "lstat" | "newfstatat" | "statx"
        | "lseek" | "mmap" | "fsync" | "fdatasync" => Extent::Of { end: Some(0) },
        "write" | "writev" | "truncate" | "ftruncate" | "fallocate" | "copy_file_range" | "sendfile" | "splice" => {
            Extent::Of { end: None }
        }
        "open" if record.arguments[1] & O_TRUNC != 0 => Extent::Of { end: None },
        "openat" | "openat2" if record.arguments[2] & O_TRUNC != 0 => Extent::Of { end: None },
        _ => Extent::None,
    }
}

/// How a call is made again.
pub(super) fn translate(record: &CallRecord, resolved: &Resolved, place: &CallContext<'_>) -> Translated {
    let Some(result) = record.result else { return Translated::Nothing };
    if NOTHING_DONE.contains(&result) {
        return Translated::Nothing;
    }
    let call = Call { record, resolved, place, result };
    match signature(record.call.name()) {
        Some(known) if known.paths[0].is_some() && !call.names_descriptor() => call.by_path(),
        Some(_) => call.by_descriptor(),
        None => Translated::Nothing,
    }
}

struct Call<'a> {
    record: &'a CallRecord,
    resolved: &'a Resolved,
    place: &'a CallContext<'a>,
    result: i64,
}

fn one(action: Action) -> Translated {
    Translated::Actions(vec![action])
}

impl Call<'_> {
    fn argument(&self, index: usize) -> Argument {
        number(self.record.arguments[index])
    }

    fn raw(&self, index: usize) -> u64 {
        self.record.arguments[index]
    }

    fn outcome(&self) -> Expected {
        Expected::Outcome(self.result)
    }

    fn kind(&self, argument: usize) -> Option<Kind> {
        (self.place.kind)(self.record.number(argument))
    }

    /// Whether the call names a descriptor in place of a path.
    fn names_descriptor(&self) -> bool {
        let none = self.record.path.as_ref().is_none_or(Vec::is_empty);
        let at = signature(self.record.call.name()).and_then(|known| known.paths[0]);
        none && matches!(at, Some(Base::At(argument)) if self.record.number(argument) >= 0)
    }

    /// A path as a directory and a text that the replayer resolves as the program's kernel did; `None` if it is not on
    /// the device or not known.
    fn path(&self, which: usize) -> Option<[Argument; 2]> {
        let text = if which == 0 { self.record.path.as_deref() } else { self.record.path_2.as_deref() };
        let (text, path) = (text?, self.resolved.paths[which].as_ref()?);
        if !on_device(self.place.mount, &path.full) {
            return None;
        }
        let base = signature(self.record.call.name()).and_then(|known| known.paths[which]);
        let as_it_is = |directory| Some([directory, Argument::Path(text.to_vec())]);
        match base {
            _ if text.starts_with(b"/") => as_it_is(HERE),
            Some(Base::Directory) if self.place.in_device => as_it_is(HERE),
            Some(Base::At(at)) if self.record.number(at) == AT_FDCWD && self.place.in_device => as_it_is(HERE),
            Some(Base::At(at)) if self.kind(at) == Some(Kind::File) => as_it_is(self.argument(at)),
            _ => Some([HERE, Argument::Path(path.full.clone())]),
        }
    }

    /// Translation of a call with a path outside the device.
    fn elsewhere(&self) -> Translated {
        match self.resolved.unresolved && self.result >= 0 {
            true => Translated::Impossible,
            false => Translated::Nothing,
        }
    }

    fn by_path(&self) -> Translated {
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
            // These calls have no form with a directory.
            Argument::Number(_) if directory != HERE => Translated::Impossible,
            _ => one(made(call, std::iter::once(path.clone()).chain(further), outcome)),
        };
        match name {
            "open" => self.open(directory, path, self.raw(1), self.raw(2)),
            "creat" => self.open(directory, path, O_CREAT | O_TRUNC | O_WRONLY, self.raw(1)),
            "openat" => self.open(directory, path, self.raw(2), self.raw(3)),
            // The mode is in a structure.
            "openat2" => self.open(directory, path, self.raw(2), if self.raw(2) & O_CREAT != 0 { 0o644 } else { 0 }),
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
            "fchmodat" | "fchmodat2" => at(number::FCHMODAT, vec![self.argument(2)]),
            "chown" => at(number::FCHOWNAT, vec![self.argument(1), self.argument(2)]),
            "lchown" => at(number::FCHOWNAT, vec![self.argument(1), self.argument(2), number(AT_SYMLINK_NOFOLLOW)]),
            "fchownat" => at(number::FCHOWNAT, vec![self.argument(2), self.argument(3), self.argument(4)]),
            // Times are set to the present: the program's are not recorded.
            "utime" | "utimes" | "futimesat" => at(number::UTIMENSAT, vec![]),
            "utimensat" => at(number::UTIMENSAT, vec![number(0), self.argument(3)]),
            "truncate" => with_path(number::TRUNCATE, vec![self.argument(1)]),
            "statfs" => with_path(number::STATFS, vec![Argument::Scratch]),
            "getxattr" => with_path(number::GETXATTR, self.attribute(Argument::Scratch, self.raw(3))),
            "lgetxattr" => with_path(number::LGETXATTR, self.attribute(Argument::Scratch, self.raw(3))),
            "listxattr" => with_path(number::LISTXATTR, list_of_attributes()),
            "llistxattr" => with_path(number::LLISTXATTR, list_of_attributes()),
            "setxattr" => with_path(number::SETXATTR, self.attribute(Argument::Data, self.raw(3))),
            "lsetxattr" => with_path(number::LSETXATTR, self.attribute(Argument::Data, self.raw(3))),
            "removexattr" => with_path(number::REMOVEXATTR, self.attribute(Argument::Scratch, 0)),
            "lremovexattr" => with_path(number::LREMOVEXATTR, self.attribute(Argument::Scratch, 0)),
            // It does not reach the device.
            "inotify_add_watch" => Translated::Nothing,
            _ if self.result < 0 => Translated::Nothing,
            _ => Translated::Impossible,
        }
    }

    /// Name, value, size and flags of an extended attribute. One that was not there is not there now, although others
    /// that the file has got were given the one name.
    fn attribute(&self, value: Argument, bytes: u64) -> Vec<Argument> {
        let name = if self.result == NO_ATTRIBUTE { ATTRIBUTE_ABSENT } else { ATTRIBUTE };
        vec![Argument::Path(name.to_vec()), value, number(bytes.min(ATTRIBUTE_BYTES_MAX)), number(0)]
    }

    fn open(&self, directory: Argument, path: Argument, flags: u64, mode: u64) -> Translated {
        let expected = match i32::try_from(self.result) {
            Ok(descriptor) if descriptor >= 0 => Expected::Descriptor(descriptor),
            _ => self.outcome(),
        };
        one(made(number::OPENAT, [directory, path, number(flags), number(mode)], expected))
    }

    fn symbolic_link(&self) -> Translated {
        let Some([directory, path]) = self.path(1) else { return self.elsewhere() };
        let Some(contents) = self.record.path.clone() else { return Translated::Impossible };
        one(made(number::SYMLINKAT, [Argument::Path(contents), directory, path], self.outcome()))
    }

    fn two_paths(&self) -> Translated {
        let (Some([from, old]), Some([to, new])) = (self.path(0), self.path(1)) else {
            // From or to another file system: the part on the device can't be reproduced.
            let touches = self.path(0).is_some() || self.path(1).is_some();
            return if touches && self.result >= 0 { Translated::Impossible } else { self.elsewhere() };
        };
        let (call, flags) = match self.record.call.name() {
            "renameat2" => (number::RENAMEAT2, self.raw(4)),
            "rename" | "renameat" => (number::RENAMEAT2, 0),
            "linkat" => (number::LINKAT, self.raw(4)),
            _ => (number::LINKAT, 0),
        };
        one(made(call, [from, old, to, new, number(flags)], self.outcome()))
    }

    fn change_directory(&self) -> Translated {
        match self.path(0) {
            Some([_, path]) => one(made(number::CHDIR, [path], self.outcome())),
            // Relative paths begin elsewhere now, and are given as absolute ones.
            None if self.result == 0 && self.place.in_device => one(change_directory(b"/")),
            None => Translated::Nothing,
        }
    }

    fn by_descriptor(&self) -> Translated {
        let name = self.record.call.name();
        match name {
            "dup" | "dup2" | "dup3" | "fcntl" => return self.duplicate(),
            "pipe" | "pipe2" | "socketpair" => return self.pipe(),
            "close" => {
                let is_live = self.kind(0).is_some();
                return if is_live { one(close(self.record.number(0))) } else { Translated::Nothing };
            }
            "close_range" => return self.close_range(),
            "copy_file_range" | "sendfile" | "splice" | "tee" => return self.between_descriptors(),
            "mmap" => return self.map(),
            "fchdir" => {
                return match (self.kind(0), self.result) {
                    (Some(Kind::File), 0) => one(made(number::FCHDIR, [self.argument(0)], self.outcome())),
                    (None, 0) if self.place.in_device => one(change_directory(b"/")),
                    _ => Translated::Nothing,
                };
            }
            _ => {}
        }
        match self.kind(0) {
            Some(Kind::File) => self.of_file(),
            Some(Kind::Stream) => match stream(self.record, self.place.kind) {
                Some(action) => one(action),
                None => Translated::Nothing,
            },
            None => Translated::Nothing,
        }
    }

    /// A transfer with a size of its own: the transferred bytes, or the requested ones if it failed.
    fn transfer(&self, call: u32, memory: Argument, position: Option<u64>, asked: u64) -> Translated {
        let bytes = u64::try_from(self.result).unwrap_or(asked).min(TRANSFER_BYTES_MAX);
        let arguments = [self.argument(0), memory, number(bytes)].into_iter().chain(position.map(number));
        let expected = if self.result < 0 { self.outcome() } else { Expected::Exactly(self.result) };
        one(made(call, arguments, expected))
    }

    fn of_file(&self) -> Translated {
        let descriptor = self.argument(0);
        let outcome = self.outcome();
        let plain = |call: u32, further: Vec<Argument>| {
            one(made(call, std::iter::once(descriptor.clone()).chain(further), outcome))
        };
        // The requested bytes, which differ from the result at the end of a file.
        let read = |position: Option<u64>| {
            let asked = self.raw(2).min(TRANSFER_BYTES_MAX);
            let call = if position.is_some() { number::PREAD64 } else { number::READ };
            let arguments = [descriptor.clone(), Argument::Scratch, number(asked)];
            let expected = if self.result < 0 { outcome } else { Expected::Exactly(self.result) };
            one(made(call, arguments.into_iter().chain(position.map(number)), expected))
        };
        let (read_some, write) = (number::READ, number::WRITE);
        match self.record.call.name() {
            "read" => read(None),
            "pread64" => read(Some(self.raw(3))),
            // The lengths of the parts are not recorded.
            "readv" => self.transfer(read_some, Argument::Scratch, None, 0),
            "preadv2" if self.at_position() => self.transfer(read_some, Argument::Scratch, None, 0),
            "preadv" | "preadv2" => self.transfer(number::PREAD64, Argument::Scratch, Some(self.raw(3)), 0),
            "write" => self.transfer(write, Argument::Data, None, self.raw(2)),
            "writev" => self.transfer(write, Argument::Data, None, 0),
            "pwrite64" => self.transfer(number::PWRITE64, Argument::Data, Some(self.raw(3)), self.raw(2)),
            "pwritev2" => self.write_with_flags(),
            "pwritev" => self.transfer(number::PWRITE64, Argument::Data, Some(self.raw(3)), 0),
            "lseek" => plain(number::LSEEK, vec![self.argument(1), self.argument(2)]),
            "fstat" => plain(number::FSTAT, vec![Argument::Scratch]),
            "newfstatat" => plain(number::FSTAT, vec![Argument::Scratch]),
            "statx" => one(made(
                number::STATX,
                [descriptor.clone(), Argument::Path(Vec::new()), self.argument(2), self.argument(3), Argument::Scratch],
                outcome,
            )),
            "getdents" => plain(number::GETDENTS, vec![Argument::Scratch, self.argument(2)]),
            "getdents64" => plain(number::GETDENTS64, vec![Argument::Scratch, self.argument(2)]),
            "fsync" => plain(number::FSYNC, vec![]),
            "fdatasync" => plain(number::FDATASYNC, vec![]),
            "syncfs" => plain(number::SYNCFS, vec![]),
            "sync_file_range" => {
                plain(number::SYNC_FILE_RANGE, vec![self.argument(1), self.argument(2), self.argument(3)])
            }
            "ftruncate" => plain(number::FTRUNCATE, vec![self.argument(1)]),
            "fallocate" => plain(number::FALLOCATE, vec![self.argument(1), self.argument(2), self.argument(3)]),
            "fadvise64" => plain(number::FADVISE64, vec![self.argument(1), self.argument(2), self.argument(3)]),
            "readahead" => plain(number::READAHEAD, vec![self.argument(1), self.argument(2)]),
            "fchmod" => plain(number::FCHMOD, vec![self.argument(1)]),
            "fchown" => plain(number::FCHOWN, vec![self.argument(1), self.argument(2)]),
            "fstatfs" => plain(number::FSTATFS, vec![Argument::Scratch]),
            "flock" => plain(number::FLOCK, vec![self.argument(1)]),
            "utimensat" => plain(number::UTIMENSAT, vec![]),
            "fgetxattr" => plain(number::FGETXATTR, self.attribute(Argument::Scratch, self.raw(3))),
            "flistxattr" => plain(number::FLISTXATTR, list_of_attributes()),
            "fsetxattr" => plain(number::FSETXATTR, self.attribute(Argument::Data, self.raw(3))),
            "fremovexattr" => plain(number::FREMOVEXATTR, self.attribute(Argument::Scratch, 0)),
            // Requests have structures that are not recorded; those for terminals fail on files.
            "ioctl" if self.result < 0 || matches!(self.raw(1), TERMINAL_REQUESTS_FIRST..=TERMINAL_REQUESTS_LAST) => {
                Translated::Nothing
            }
            _ if self.result < 0 => Translated::Nothing,
            _ => Translated::Impossible,
        }
    }

    /// Whether `preadv2` or `pwritev2` works at the file's position, and moves it.
    fn at_position(&self) -> bool {
        self.raw(3) == u64::MAX
    }

    /// `pwritev2`: written data are synced according to its flags.
    fn write_with_flags(&self) -> Translated {
        let written = match self.at_position() {
            true => self.transfer(number::WRITE, Argument::Data, None, 0),
            false => self.transfer(number::PWRITE64, Argument::Data, Some(self.raw(3)), 0),
        };
        let sync = match self.raw(5) {
            flags if flags & RWF_SYNC != 0 => number::FSYNC,
            flags if flags & RWF_DSYNC != 0 => number::FDATASYNC,
            _ => return written,
        };
        match written {
            Translated::Actions(mut actions) if self.result > 0 => {
                actions.push(made(sync, [self.argument(0)], Expected::Outcome(0)));
                Translated::Actions(actions)
            }
            other => other,
        }
    }

    fn duplicate(&self) -> Translated {
        let (from, result) = (self.record.number(0), i32::try_from(self.result).ok().filter(|&result| result >= 0));
        let (to, name) = (self.record.number(1), self.record.call.name());
        if name == "fcntl" && !matches!(self.raw(1), F_DUPFD | F_DUPFD_CLOEXEC) {
            return Translated::Nothing;
        }
        let Some(result) = result else { return Translated::Nothing };
        let onto = matches!(name, "dup2" | "dup3");
        match self.kind(0) {
            Some(_) if onto && from == to => Translated::Nothing,
            Some(_) => {
                one(made(number::DUP3, [number(from as u64), number(result as u64), number(0)], Expected::Outcome(0)))
            }
            // Something else takes the number.
            None if onto && self.kind(1).is_some() => one(close(to)),
            None => Translated::Nothing,
        }
    }

    fn pipe(&self) -> Translated {
        match self.record.pipe {
            Some(descriptors) if self.result == 0 => {
                let sockets = self.record.call.name() == "socketpair";
                one(Action::Pipe { sockets, descriptors })
            }
            _ => Translated::Nothing,
        }
    }

    fn close_range(&self) -> Translated {
        if self.raw(2) & CLOSE_RANGE_CLOEXEC != 0 || self.result < 0 {
            return Translated::Nothing;
        }
        // Descriptors that are open in the replayer are among the lowest.
        let (first, last) = (self.raw(0) as u32, (self.raw(1) as u32).min(DESCRIPTORS_MAX));
        let live = (first..=last).map(|number| number as i32).filter(|&number| (self.place.kind)(number).is_some());
        match live.map(close).collect::<Vec<_>>() {
            none if none.is_empty() => Translated::Nothing,
            actions => Translated::Actions(actions),
        }
    }

    /// Bytes from one descriptor to another. Each side that is not on the device is left out.
    fn between_descriptors(&self) -> Translated {
        let name = self.record.call.name();
        let (input, output) = match name {
            "sendfile" => (1, 0),
            "tee" => (0, 1),
            _ => (0, 2),
        };
        let Ok(bytes @ 1..) = u64::try_from(self.result) else { return Translated::Nothing };
        let exactly = Expected::Exactly(self.result);
        let receive = |at: usize| Action::Receive { descriptor: self.record.number(at), bytes };
        let send = |at: usize| Action::Send { descriptor: self.record.number(at), bytes };
        let read = || made(number::READ, [self.argument(input), Argument::Scratch, number(bytes)], exactly);
        let write = || made(number::WRITE, [self.argument(output), Argument::Data, number(bytes)], exactly);
        let actions = match (self.kind(input), self.kind(output)) {
            (Some(Kind::File), Some(Kind::File)) => {
                let arguments = match name {
                    "sendfile" => [self.argument(0), self.argument(1), number(0), number(bytes), number(0), number(0)],
                    _ => [self.argument(0), number(0), self.argument(2), number(0), number(bytes), number(0)],
                };
                let call = if name == "sendfile" { number::SENDFILE } else { number::COPY_FILE_RANGE };
                vec![made(call, arguments, exactly)]
            }
            (Some(Kind::File), Some(Kind::Stream)) => vec![read(), send(output)],
            (Some(Kind::Stream), Some(Kind::File)) => vec![receive(input), write()],
            (Some(Kind::Stream), Some(Kind::Stream)) if name == "tee" => vec![send(output)],
            (Some(Kind::Stream), Some(Kind::Stream)) => vec![receive(input), send(output)],
            (Some(Kind::File), None) => vec![read()],
            (None, Some(Kind::File)) => vec![write()],
            (Some(Kind::Stream), None) if name != "tee" => vec![receive(input)],
            (None, Some(Kind::Stream)) => vec![send(output)],
            _ => return Translated::Nothing,
        };
        Translated::Actions(actions)
    }

    /// A mapping of a file of the device is touched whole, since its page faults are not in the trace.
    fn map(&self) -> Translated {
        let descriptor = self.record.number(4);
        // A result is an address, which may look negative in no program.
        if self.raw(3) & MAP_ANONYMOUS != 0 || self.result < 0 || self.kind(4) != Some(Kind::File) {
            return Translated::Nothing;
        }
        one(Action::Touch { descriptor, offset: self.raw(5), bytes: self.raw(1) })
    }
}

const MAP_ANONYMOUS: u64 = 0x20;
/// `TCGETS` to `TIOCGEXCL` and beyond.
const TERMINAL_REQUESTS_FIRST: u64 = 0x5401;
const TERMINAL_REQUESTS_LAST: u64 = 0x5460;
/// Descriptors of a task are below this.
const DESCRIPTORS_MAX: u32 = 1 << 16;

fn list_of_attributes() -> Vec<Argument> {
    vec![Argument::Scratch, number(ATTRIBUTE_BYTES_MAX)]
}
