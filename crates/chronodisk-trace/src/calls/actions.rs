//! Translates each call for a replay: the only module that knows their arguments.

use super::attributes::{attribute, list_of_attributes};
use super::descriptors::{CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE, range_of};
use super::order::POLLS;
use super::record::CallRecord;
use super::resolve::{Resolved, descriptor_in, on_device, operands, resolves_in_root};
use super::steps::{Action, Argument, Expected, HERE};
use super::table::{
    AT_FDCWD, Base, CLONE_FILES, CLONE_FS, Effect, F_DUPFD, F_DUPFD_CLOEXEC, O_CREAT, O_TRUNC, receives, sends,
    signature,
};
use super::tables::{Kind, Tables};
use super::words::{READ, offset, request};

mod paths;

/// Numbers of the calls on x86-64 (`arch/x86/entry/syscalls/syscall_64.tbl`).
mod number {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const CLOSE: u32 = 3;
    pub const FSTAT: u32 = 5;
    pub const LSEEK: u32 = 8;
    pub const PREAD64: u32 = 17;
    pub const IOCTL: u32 = 16;
    pub const PWRITE64: u32 = 18;
    pub const DUP: u32 = 32;
    pub const SENDFILE: u32 = 40;
    pub const FCNTL: u32 = 72;
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
    pub const UNSHARE: u32 = 272;
    pub const SYNC_FILE_RANGE: u32 = 277;
    pub const UTIMENSAT: u32 = 280;
    pub const FALLOCATE: u32 = 285;
    pub const SYNCFS: u32 = 306;
    pub const RENAMEAT2: u32 = 316;
    pub const COPY_FILE_RANGE: u32 = 326;
    pub const PREADV2: u32 = 327;
    pub const PWRITEV2: u32 = 328;
    pub const STATX: u32 = 332;
    pub const OPENAT2: u32 = 437;
}

/// Errors of calls without effect: for a signal, a full or empty pipe, a limit on the length of files, or a kernel
/// without the call (`EINTR`, `EAGAIN`, `EFBIG`, `ENOSYS`).
const NOTHING_DONE: [i64; 4] = [-4, -11, -27, -38];
/// `RWF_NOWAIT` of `preadv2` and `pwritev2`: a call that waits in the replay did not wait in the program.
const RWF_NOWAIT: u64 = 8;
const AT_EMPTY_PATH: u64 = 0x1000;
/// `fcntl`: sets the flags that `open` has set.
const F_SETFL: u64 = 4;
/// Most bytes that one call of Linux reads or writes.
const TRANSFER_BYTES_MAX: u64 = 0x7fff_f000;

/// Context of a call.
pub(super) struct CallContext<'a> {
    pub mount: &'a [u8],
    /// Whether the task's working directory is on the device.
    pub in_device: bool,
    /// The task's descriptors.
    pub tables: &'a Tables,
    pub task: usize,
}

impl CallContext<'_> {
    fn kind(&self, descriptor: i32) -> Option<Kind> {
        self.tables.kind(self.task, descriptor)
    }

    /// A descriptor that the replayer has.
    fn slot(&self, descriptor: i32) -> Option<u32> {
        self.tables.slot(self.task, descriptor)
    }
}

/// Translation of a call.
pub(super) enum Translated {
    Actions(Vec<Action>),
    /// The call does not touch the device, and no other call needs it.
    Nothing,
    /// The call touches the device and can't be replayed.
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

pub(super) fn close(slot: u32) -> Action {
    made(number::CLOSE, [Argument::Descriptor(slot)], Expected::Outcome(0))
}

pub(super) fn change_directory(path: &[u8]) -> Action {
    made(number::CHDIR, [Argument::Path(path.to_vec())], Expected::Outcome(0))
}

pub(super) fn sync() -> Action {
    made(number::SYNC, [], Expected::Outcome(0))
}

/// A call that changes its process alone, and through it later calls.
pub(super) fn of_process(record: &CallRecord) -> Option<Action> {
    // Its result is the mask before, which differs at the start.
    (record.call.name() == "umask").then(|| made(number::UMASK, [number(record.arguments[0])], Expected::Outcome(0)))
}

/// Whether a call without objects was a sleep, by itself or as a wait until its timeout.
pub(super) fn sleeps(record: &CallRecord) -> bool {
    match record.call.name() {
        "nanosleep" | "clock_nanosleep" => true,
        name => POLLS.contains(&name) && record.result == Some(0),
    }
}

/// The action for a transfer on a pipe, if the call is one.
pub(super) fn stream(record: &CallRecord, tables: &Tables, task: usize) -> Option<Action> {
    let descriptor = tables.slot(task, record.number(0))?;
    if tables.kind(task, record.number(0)) != Some(Kind::Stream) {
        return None;
    }
    let bytes = u64::try_from(record.result?).ok()?;
    match record.call.name() {
        name if receives(name) => Some(Action::Receive { descriptor, bytes }),
        name if sends(name) && bytes > 0 => Some(Action::Send { descriptor, bytes }),
        _ => None,
    }
}

/// The descriptor to which a call has written data; `None` if it wrote none.
pub(super) fn written_to(record: &CallRecord) -> Option<i32> {
    record.result.filter(|&result| result > 0)?;
    match record.call.name() {
        "splice" => Some(record.number(2)),
        "tee" => Some(record.number(1)),
        "sendfile" | "vmsplice" => Some(record.number(0)),
        name => sends(name).then(|| record.number(0)),
    }
}

/// The descriptors used by a call; the first one's position may move.
pub(super) fn descriptors_of(record: &CallRecord) -> Vec<i32> {
    let Some(known) = signature(record.call.name()) else { return Vec::new() };
    let texts = [record.path.as_deref(), record.path_2.as_deref()];
    let bases = known.paths.iter().zip(texts).filter_map(|(base, text)| match base {
        Some(Base::At(argument)) if !text.is_some_and(|text| text.starts_with(b"/")) => Some(*argument),
        _ => None,
    });
    let own = match known.effect {
        Effect::Close | Effect::Control | Effect::Duplicate | Effect::DuplicateTo { .. } => &[0],
        _ => operands(record, known).0,
    };
    let named = texts.into_iter().flatten().filter_map(|text| descriptor_in(text).map(|(descriptor, _)| descriptor));
    own.iter().copied().chain(bases).map(|argument| record.number(argument)).chain(named).collect()
}

/// The descriptors that a call makes, if it succeeded.
pub(super) fn descriptors_made(record: &CallRecord) -> Vec<i32> {
    let result = record.result.and_then(|result| i32::try_from(result).ok()).filter(|&result| result >= 0);
    match result {
        Some(made) if makes_descriptor(record) => vec![made],
        Some(_) => record.pipe.into_iter().flatten().collect(),
        None => Vec::new(),
    }
}

/// Whether the result is a new descriptor.
fn makes_descriptor(record: &CallRecord) -> bool {
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
    /// The call uses or changes bytes up to here; `None` for up to the end.
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
        "ioctl"
            if matches!(
                record.arguments[1],
                request::FICLONE | request::FICLONERANGE | request::FIDEDUPERANGE | request::FITRIM
            ) =>
        {
            Extent::Of { end: None }
        }
        "open" if record.arguments[1] & O_TRUNC != 0 => Extent::Of { end: None },
        "openat" | "openat2" if record.arguments[2] & O_TRUNC != 0 => Extent::Of { end: None },
        _ => Extent::None,
    }
}

/// Translates a call.
pub(super) fn translate(record: &CallRecord, resolved: &Resolved, place: &CallContext<'_>) -> Translated {
    let Some(result) = record.result else { return Translated::Nothing };
    if NOTHING_DONE.contains(&result) {
        return Translated::Nothing;
    }
    let call = Call { record, resolved, place, result };
    match signature(record.call.name()) {
        Some(known) if known.name == "inotify_add_watch" => call.watch(),
        Some(known) if known.name == "bind" => call.bind(),
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
        self.place.kind(self.record.number(argument))
    }

    /// An argument that is a descriptor; without a slot, it is an invalid one.
    fn descriptor(&self, index: usize) -> Argument {
        self.place.slot(self.record.number(index)).map_or(number(u64::MAX), Argument::Descriptor)
    }

    /// The descriptor that the call makes.
    fn new_descriptor(&self) -> Expected {
        Expected::Descriptor(self.place.tables.next_slots(self.place.task)[0])
    }

    /// Whether the call names a descriptor in place of a path.
    fn names_descriptor(&self) -> bool {
        let none = self.record.path.as_ref().is_none_or(Vec::is_empty);
        let at = signature(self.record.call.name()).and_then(|known| known.paths[0]);
        none && matches!(at, Some(Base::At(argument)) if self.record.number(argument) >= 0)
    }

    /// A path as a directory and a text, which the replayer resolves as the program's kernel did; `None` if it is
    /// unknown or not on the device.
    fn path(&self, which: usize) -> Option<[Argument; 2]> {
        let text = if which == 0 { self.record.path.as_deref() } else { self.record.path_2.as_deref() };
        let (text, path) = (text?, self.resolved.paths[which].as_ref()?);
        if !on_device(self.place.mount, &path.full) {
            return None;
        }
        let base = signature(self.record.call.name()).and_then(|known| known.paths[which]);
        let as_it_is = |directory| Some([directory, Argument::Path(text.to_vec())]);
        if let Some((descriptor, rest)) = descriptor_in(text) {
            let slot = self.place.slot(descriptor)?;
            return Some([HERE, Argument::DescriptorPath(slot, rest.to_vec())]);
        }
        match base {
            Some(Base::At(at)) if resolves_in_root(self.record) && self.kind(at) == Some(Kind::File) => {
                as_it_is(self.descriptor(at))
            }
            _ if text.starts_with(b"/") => as_it_is(HERE),
            Some(Base::Directory) if self.place.in_device => as_it_is(HERE),
            Some(Base::At(at)) if self.record.number(at) == AT_FDCWD && self.place.in_device => as_it_is(HERE),
            Some(Base::At(at)) if self.kind(at) == Some(Kind::File) => as_it_is(self.descriptor(at)),
            _ => Some([HERE, Argument::Path(path.full.clone())]),
        }
    }

    fn by_descriptor(&self) -> Translated {
        let name = self.record.call.name();
        match name {
            "dup" | "dup2" | "dup3" | "fcntl" => return self.duplicate(),
            "pipe" | "pipe2" | "socketpair" => return self.pipe(),
            "close" => return self.place.slot(self.record.number(0)).map_or(Translated::Nothing, |at| one(close(at))),
            "linkat" => return self.two_paths(),
            "unshare" => {
                let flags = number(self.raw(0) & (CLONE_FILES | CLONE_FS));
                return one(made(number::UNSHARE, [flags], self.outcome()));
            }
            "close_range" => return self.close_range(),
            "copy_file_range" | "sendfile" | "splice" | "tee" => return self.between_descriptors(),
            "mmap" => return self.map(),
            "fchdir" => {
                return match (self.kind(0), self.result) {
                    (Some(Kind::File), 0) => one(made(number::FCHDIR, [self.descriptor(0)], self.outcome())),
                    (None, 0) if self.place.in_device => one(change_directory(b"/")),
                    _ => Translated::Nothing,
                };
            }
            _ => {}
        }
        match self.kind(0) {
            Some(Kind::File) => self.of_file(),
            Some(Kind::Stream) => match stream(self.record, self.place.tables, self.place.task) {
                Some(action) => one(action),
                None => Translated::Nothing,
            },
            None => Translated::Nothing,
        }
    }

    /// A transfer with a size of its own: the transferred bytes, or the requested ones if it failed.
    fn transfer(&self, call: u32, memory: Argument, position: Option<u64>, asked: u64) -> Translated {
        let bytes = u64::try_from(self.result).unwrap_or(asked).min(TRANSFER_BYTES_MAX);
        let arguments = [self.descriptor(0), memory, number(bytes)].into_iter().chain(position.map(number));
        let expected = if self.result < 0 { self.outcome() } else { Expected::Exactly(self.result) };
        one(made(call, arguments, expected))
    }

    fn of_file(&self) -> Translated {
        let descriptor = self.descriptor(0);
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
            "preadv2" => self.transfer_with_flags(number::PREADV2, Argument::Scratch),
            "preadv" => self.transfer(number::PREAD64, Argument::Scratch, Some(self.raw(3)), 0),
            "write" => self.transfer(write, Argument::Data, None, self.raw(2)),
            "writev" => self.transfer(write, Argument::Data, None, 0),
            "pwrite64" => self.transfer(number::PWRITE64, Argument::Data, Some(self.raw(3)), self.raw(2)),
            "pwritev2" => self.transfer_with_flags(number::PWRITEV2, Argument::Data),
            "pwritev" => self.transfer(number::PWRITE64, Argument::Data, Some(self.raw(3)), 0),
            "lseek" => plain(number::LSEEK, vec![self.argument(1), self.argument(2)]),
            "fstat" => plain(number::FSTAT, vec![Argument::Scratch]),
            "newfstatat" | "name_to_handle_at" | "faccessat2" => plain(number::FSTAT, vec![Argument::Scratch]),
            "fchownat" => {
                let [owner, group] = [2, 3].map(|index| self.argument(index));
                plain(number::FCHOWNAT, vec![Argument::Path(Vec::new()), owner, group, number(AT_EMPTY_PATH)])
            }
            "fchmodat2" => self.change_mode_by_path(),
            "readlinkat" => {
                plain(number::READLINKAT, vec![Argument::Path(Vec::new()), Argument::Scratch, number(4096)])
            }
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
            "fgetxattr" => plain(number::FGETXATTR, attribute(self.record, Argument::Scratch, self.raw(3))),
            "flistxattr" => plain(number::FLISTXATTR, list_of_attributes()),
            "fsetxattr" => plain(number::FSETXATTR, attribute(self.record, Argument::Data, self.raw(3))),
            "fremovexattr" => plain(number::FREMOVEXATTR, attribute(self.record, Argument::Scratch, 0)),
            "ioctl" => self.request(),
            _ if self.result < 0 => Translated::Nothing,
            _ => Translated::Impossible,
        }
    }

    /// A descriptor of `O_PATH` takes no `fchmod`.
    fn change_mode_by_path(&self) -> Translated {
        let Some(slot) = self.place.slot(self.record.number(0)) else { return Translated::Impossible };
        let path = Argument::DescriptorPath(slot, Vec::new());
        one(made(number::FCHMODAT, [HERE, path, self.argument(2)], self.outcome()))
    }

    /// `preadv2` and `pwritev2`: the position is -1 for the file's own, and the flags say when data are on the device.
    fn transfer_with_flags(&self, call: u32, memory: Argument) -> Translated {
        let bytes = u64::try_from(self.result).unwrap_or(0).min(TRANSFER_BYTES_MAX);
        let flags = number(self.raw(5) & !RWF_NOWAIT);
        let expected = if self.result < 0 { self.outcome() } else { Expected::Exactly(self.result) };
        one(made(call, [self.descriptor(0), memory, number(bytes), self.argument(3), flags], expected))
    }

    /// A request of `ioctl` to a file.
    fn request(&self) -> Translated {
        let request = self.raw(1);
        // Other file systems and devices do not know it: the program went on without.
        if self.result < 0 || matches!(request, TERMINAL_REQUESTS_FIRST..=TERMINAL_REQUESTS_LAST) {
            return Translated::Nothing;
        }
        let with = |argument: Argument| {
            one(made(number::IOCTL, [self.descriptor(0), number(request), argument], Expected::Outcome(self.result)))
        };
        let is_read = self.raw(2) & READ != 0;
        let first = self.raw(2) & !READ;
        match request {
            request::FICLONE if self.kind(2) == Some(Kind::File) => with(self.descriptor(2)),
            request::FICLONERANGE if is_read => {
                // The source is the structure's first word.
                let Some(source) = self.place.slot(first as u32 as i32) else { return Translated::Impossible };
                with(Argument::WordsOf(source, 0, vec![0, self.raw(3), self.raw(4), self.raw(5)]))
            }
            request::FIDEDUPERANGE if is_read && self.raw(4) >> 32 == 1 => {
                let Some(target) = self.place.slot(self.raw(4) as u32 as i32) else { return Translated::Impossible };
                with(Argument::WordsOf(target, 3, vec![first, self.raw(3), 1, 0, self.raw(5), 0, 0]))
            }
            request::FS_IOC_SETFLAGS if is_read => with(Argument::Words(vec![first])),
            request::FS_IOC_FSSETXATTR if is_read => with(Argument::Words(vec![first, self.raw(3), self.raw(4), 0])),
            // Extents are queried, but none is returned.
            request::FS_IOC_FIEMAP if is_read => with(Argument::Words(vec![first, self.raw(3), self.raw(4), 0])),
            request::FITRIM if is_read => with(Argument::Words(vec![first, self.raw(3), self.raw(4)])),
            // The number of the block is not recorded.
            request::FIBMAP => with(Argument::Words(vec![0])),
            request::FIGETBSZ => with(Argument::Scratch),
            _ if gives_only(request) => with(Argument::Scratch),
            _ => Translated::Impossible,
        }
    }

    fn duplicate(&self) -> Translated {
        let (from, to, name) = (self.record.number(0), self.record.number(1), self.record.call.name());
        if name == "fcntl" && self.raw(1) == F_SETFL && self.kind(0) == Some(Kind::File) {
            return one(made(number::FCNTL, [self.descriptor(0), number(F_SETFL), self.argument(2)], self.outcome()));
        }
        if name == "fcntl" && !matches!(self.raw(1), F_DUPFD | F_DUPFD_CLOEXEC) || self.result < 0 {
            return Translated::Nothing;
        }
        let onto = matches!(name, "dup2" | "dup3");
        if onto && from == to {
            return Translated::Nothing;
        }
        let copy =
            self.place.slot(from).map(|from| made(number::DUP, [Argument::Descriptor(from)], self.new_descriptor()));
        // The previous file of the number.
        let closed = self.place.slot(to).filter(|_| onto).map(close);
        match copy.into_iter().chain(closed).collect::<Vec<_>>() {
            none if none.is_empty() => Translated::Nothing,
            actions => Translated::Actions(actions),
        }
    }

    fn pipe(&self) -> Translated {
        match self.record.pipe {
            Some(_) if self.result == 0 => {
                let sockets = self.record.call.name() == "socketpair";
                one(Action::Pipe { sockets, descriptors: self.place.tables.next_slots(self.place.task) })
            }
            _ => Translated::Nothing,
        }
    }

    fn close_range(&self) -> Translated {
        if self.result < 0 {
            return Translated::Nothing;
        }
        let own = (self.raw(2) & CLOSE_RANGE_UNSHARE != 0).then_some(Action::OwnFiles);
        let closes = self.raw(2) & CLOSE_RANGE_CLOEXEC == 0;
        let inside = self.place.tables.within(self.place.task, range_of(self.record));
        let closed = inside.into_iter().filter(|_| closes).filter_map(|at| self.place.slot(at)).map(close);
        match own.into_iter().chain(closed).collect::<Vec<_>>() {
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
        // Offsets by pointers, of the input and of the output.
        let at = match name {
            "sendfile" => [offset(self.record, 2), None],
            "tee" => [None, None],
            _ => [offset(self.record, 1), offset(self.record, 3)],
        };
        let slot = |argument: usize| self.place.slot(self.record.number(argument)).unwrap_or(u32::MAX);
        let receive = || Action::Receive { descriptor: slot(input), bytes };
        let send = || Action::Send { descriptor: slot(output), bytes };
        let moves = |calls: [u32; 2], argument: usize, memory: Argument, at: Option<u64>| {
            let arguments = [self.descriptor(argument), memory, number(bytes)];
            made(calls[usize::from(at.is_some())], arguments.into_iter().chain(at.map(number)), exactly)
        };
        let read = || moves([number::READ, number::PREAD64], input, Argument::Scratch, at[0]);
        let write = || moves([number::WRITE, number::PWRITE64], output, Argument::Data, at[1]);
        let pointer = |at: Option<u64>| at.map_or(number(0), |at| Argument::Words(vec![at]));
        let actions = match (self.kind(input), self.kind(output)) {
            (Some(Kind::File), Some(Kind::File)) if name == "sendfile" => {
                let ends = [self.descriptor(0), self.descriptor(1), pointer(at[0])];
                vec![made(number::SENDFILE, ends.into_iter().chain([number(bytes)]), exactly)]
            }
            (Some(Kind::File), Some(Kind::File)) => {
                let ends = [self.descriptor(0), pointer(at[0]), self.descriptor(2), pointer(at[1])];
                vec![made(number::COPY_FILE_RANGE, ends.into_iter().chain([number(bytes)]), exactly)]
            }
            (Some(Kind::File), Some(Kind::Stream)) => vec![read(), send()],
            (Some(Kind::Stream), Some(Kind::File)) => vec![receive(), write()],
            (Some(Kind::Stream), Some(Kind::Stream)) if name == "tee" => vec![send()],
            (Some(Kind::Stream), Some(Kind::Stream)) => vec![receive(), send()],
            (Some(Kind::File), None) => vec![read()],
            (None, Some(Kind::File)) => vec![write()],
            (Some(Kind::Stream), None) if name != "tee" => vec![receive()],
            (None, Some(Kind::Stream)) => vec![send()],
            _ => return Translated::Nothing,
        };
        Translated::Actions(actions)
    }

    /// A mapping of a file of the device is touched whole, since its page faults are not in the trace.
    fn map(&self) -> Translated {
        let Some(descriptor) = self.place.slot(self.record.number(4)) else { return Translated::Nothing };
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

/// Whether a request of `ioctl` reads nothing from the program's memory but writes data of a bounded size
/// (`asm-generic/ioctl.h`).
const fn gives_only(request: u64) -> bool {
    const GIVES: u64 = 2;
    request >> 30 == GIVES
}
