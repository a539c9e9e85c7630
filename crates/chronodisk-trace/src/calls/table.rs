//! The one table of calls that name a path or a descriptor, change a task's state, or wait.

/// Descriptor that stands for the working directory.
pub const AT_FDCWD: i32 = -100;
/// Flag of `open`: create the file if it does not exist.
pub const O_CREAT: u64 = 0o100;
/// Flag of `open`: remove the file's contents.
pub const O_TRUNC: u64 = 0o1000;
/// Flag of `open`, `dup3` and `pipe2`: close the descriptor at `execve`.
pub const O_CLOEXEC: u64 = 0o2_000_000;
/// `fcntl`: duplicate.
pub const F_DUPFD: u64 = 0;
/// `fcntl`: set the descriptor's flags.
pub const F_SETFD: u64 = 2;
/// `fcntl`: duplicate, and close at `execve`.
pub const F_DUPFD_CLOEXEC: u64 = 1030;
/// Flag of `clone`: same memory.
pub const CLONE_VM: u64 = 0x100;
/// Flag of `clone`: same directory.
pub const CLONE_FS: u64 = 0x200;
/// Flag of `clone`: same table of descriptors.
pub const CLONE_FILES: u64 = 0x400;
/// Flag of `clone`: the parent waits until the child executes a program or ends.
pub const CLONE_VFORK: u64 = 0x4000;
/// Flag of `clone`: same thread group.
pub const CLONE_THREAD: u64 = 0x1_0000;

/// Flag of `clone` and `unshare`: same adjustments of semaphores.
pub(super) const CLONE_SYSVSEM: u64 = 0x4_0000;

/// A page fault on a mapped file, which is recorded like a call: the address, and 1 if the program wrote.
pub const PAGE_FAULT: &str = "page_fault";

/// The directory at which a relative path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The task's working directory.
    Directory,
    /// The descriptor in this argument.
    At(usize),
    /// The directory of the second path, since this one is the contents of a symbolic link.
    Target,
    /// No path, but the name of an extended attribute in argument 1.
    Name,
}

/// Effect of a successful call on its task's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    /// Makes a descriptor; its flags are in this argument.
    Open(Option<usize>),
    Duplicate,
    /// `dup2`, `dup3`: onto argument 1; the flags are argument 2 of `dup3`.
    DuplicateTo {
        flags: bool,
    },
    /// `fcntl`.
    Control,
    Close,
    CloseRange,
    ChangeDirectory,
    ChangeDirectoryTo,
    /// Two descriptors; the flags are in this argument.
    Pipe(Option<usize>),
    Fork,
    Execute,
    Exit,
    /// Renames; the flags are in this argument.
    Rename(Option<usize>),
    /// `unshare`: can be replayed if only descriptors and the directory are unshared.
    Unshare,
    /// May wait: its duration is no CPU time.
    Wait,
    /// Can't be replayed.
    Unsupported,
}

/// Objects that a successful call changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    Nothing,
    /// All paths and descriptors.
    All,
    /// The descriptor at this place of the list.
    Listed(usize),
    /// The last path, which the call makes.
    Makes,
    /// The path, if this argument has `O_CREAT` (made) or `O_TRUNC`.
    Flags(usize),
    /// The descriptor, if it is mapped shared and writable.
    Mapping,
}

/// Properties of a call.
#[derive(Debug)]
pub(crate) struct Signature {
    pub name: &'static str,
    pub paths: [Option<Base>; 2],
    /// Arguments that are descriptors, except those of [`Base::At`].
    pub descriptors: &'static [usize],
    pub effect: Effect,
    pub changes: Changes,
}

/// Whether a call takes bytes from a pipe or a socket.
pub(super) fn receives(name: &str) -> bool {
    matches!(name, "read" | "readv" | "recvfrom" | "recvmsg")
}

/// Whether a call puts bytes into a pipe or a socket.
pub(super) fn sends(name: &str) -> bool {
    matches!(name, "write" | "writev" | "sendto" | "sendmsg" | "vmsplice")
}

/// The entry of a call.
pub(crate) fn signature(name: &str) -> Option<&'static Signature> {
    TABLE.binary_search_by(|signature| signature.name.cmp(name)).ok().map(|index| &TABLE[index])
}

const D: Option<Base> = Some(Base::Directory);
const AT0: Option<Base> = Some(Base::At(0));
const AT1: Option<Base> = Some(Base::At(1));
const AT2: Option<Base> = Some(Base::At(2));
const TARGET: Option<Base> = Some(Base::Target);
const NAME: Option<Base> = Some(Base::Name);

impl Base {
    /// The argument that points to the text of the path `which`.
    pub const fn argument(self, which: usize) -> usize {
        match self {
            Base::Directory => which,
            Base::At(argument) => argument + 1,
            Base::Target => 0,
            Base::Name => 1,
        }
    }
}

const fn call(
    name: &'static str,
    paths: [Option<Base>; 2],
    descriptors: &'static [usize],
    effect: Effect,
    changes: Changes,
) -> Signature {
    Signature { name, paths, descriptors, effect, changes }
}

const fn attribute(
    name: &'static str,
    path: Option<Base>,
    descriptors: &'static [usize],
    changes: Changes,
) -> Signature {
    call(name, [path, NAME], descriptors, Effect::Nothing, changes)
}

const fn path(name: &'static str, base: Option<Base>, changes: Changes) -> Signature {
    call(name, [base, None], &[], Effect::Nothing, changes)
}

const fn uses(name: &'static str, changes: Changes) -> Signature {
    call(name, [None, None], &[0], Effect::Nothing, changes)
}

const fn task(name: &'static str, effect: Effect) -> Signature {
    call(name, [None, None], &[], effect, Nothing)
}

use Changes::{All, Flags, Listed, Makes, Mapping, Nothing};

/// In order of the names.
pub(super) static TABLE: &[Signature] = &[
    task("accept", Effect::Wait),
    task("accept4", Effect::Wait),
    path("access", D, Nothing),
    task("acct", Effect::Unsupported),
    // A socket's address has a path if the socket is local.
    call("bind", [None, D], &[], Effect::Nothing, Makes),
    call("chdir", [D, None], &[], Effect::ChangeDirectory, Nothing),
    path("chmod", D, All),
    path("chown", D, All),
    task("chroot", Effect::Unsupported),
    task("clock_nanosleep", Effect::Wait),
    task("clone", Effect::Fork),
    task("clone3", Effect::Fork),
    call("close", [None, None], &[], Effect::Close, Nothing),
    task("close_range", Effect::CloseRange),
    task("connect", Effect::Wait),
    call("copy_file_range", [None, None], &[0, 2], Effect::Nothing, Listed(1)),
    call("creat", [D, None], &[], Effect::Open(None), Makes),
    call("dup", [None, None], &[], Effect::Duplicate, Nothing),
    call("dup2", [None, None], &[], Effect::DuplicateTo { flags: false }, Nothing),
    call("dup3", [None, None], &[], Effect::DuplicateTo { flags: true }, Nothing),
    task("epoll_pwait", Effect::Wait),
    task("epoll_pwait2", Effect::Wait),
    task("epoll_wait", Effect::Wait),
    call("execve", [D, None], &[], Effect::Execute, Nothing),
    call("execveat", [AT0, None], &[], Effect::Execute, Nothing),
    task("exit", Effect::Exit),
    task("exit_group", Effect::Exit),
    path("faccessat", AT0, Nothing),
    path("faccessat2", AT0, Nothing),
    uses("fadvise64", Nothing),
    uses("fallocate", All),
    task("fanotify_mark", Effect::Unsupported),
    call("fchdir", [None, None], &[0], Effect::ChangeDirectoryTo, Nothing),
    uses("fchmod", All),
    path("fchmodat", AT0, All),
    path("fchmodat2", AT0, All),
    uses("fchown", All),
    path("fchownat", AT0, All),
    call("fcntl", [None, None], &[], Effect::Control, Nothing),
    uses("fdatasync", Nothing),
    attribute("fgetxattr", None, &[0], Nothing),
    uses("flistxattr", Nothing),
    call("flock", [None, None], &[0], Effect::Wait, Nothing),
    task("fork", Effect::Fork),
    attribute("fremovexattr", None, &[0], All),
    attribute("fsetxattr", None, &[0], All),
    task("fsmount", Effect::Unsupported),
    task("fsopen", Effect::Unsupported),
    task("fspick", Effect::Unsupported),
    uses("fstat", Nothing),
    uses("fstatfs", Nothing),
    uses("fsync", Nothing),
    uses("ftruncate", All),
    task("futex", Effect::Wait),
    path("futimesat", AT0, All),
    uses("getdents", Nothing),
    uses("getdents64", Nothing),
    attribute("getxattr", D, &[], Nothing),
    task("getxattrat", Effect::Unsupported),
    // Its path is its second argument.
    call("inotify_add_watch", [None, D], &[], Effect::Nothing, Nothing),
    task("io_getevents", Effect::Unsupported),
    task("io_pgetevents", Effect::Unsupported),
    task("io_setup", Effect::Unsupported),
    task("io_submit", Effect::Unsupported),
    task("io_uring_enter", Effect::Unsupported),
    task("io_uring_setup", Effect::Unsupported),
    uses("ioctl", Nothing),
    task("kill", Effect::Wait),
    path("lchown", D, All),
    attribute("lgetxattr", D, &[], Nothing),
    call("link", [D, D], &[], Effect::Nothing, Makes),
    call("linkat", [AT0, AT2], &[], Effect::Nothing, Makes),
    path("listxattr", D, Nothing),
    task("listxattrat", Effect::Unsupported),
    path("llistxattr", D, Nothing),
    attribute("lremovexattr", D, &[], All),
    uses("lseek", Nothing),
    attribute("lsetxattr", D, &[], All),
    path("lstat", D, Nothing),
    path("mkdir", D, Makes),
    path("mkdirat", AT0, Makes),
    path("mknod", D, Makes),
    path("mknodat", AT0, Makes),
    call("mmap", [None, None], &[4], Effect::Nothing, Mapping),
    task("mount", Effect::Unsupported),
    task("mount_setattr", Effect::Unsupported),
    task("move_mount", Effect::Unsupported),
    path("name_to_handle_at", AT0, Nothing),
    task("nanosleep", Effect::Wait),
    path("newfstatat", AT0, Nothing),
    call("open", [D, None], &[], Effect::Open(Some(1)), Flags(1)),
    task("open_by_handle_at", Effect::Unsupported),
    task("open_tree", Effect::Unsupported),
    call("openat", [AT0, None], &[], Effect::Open(Some(2)), Flags(2)),
    call("openat2", [AT0, None], &[], Effect::Open(Some(2)), Flags(2)),
    task("pause", Effect::Wait),
    task("pidfd_getfd", Effect::Unsupported),
    call("pipe", [None, None], &[], Effect::Pipe(None), Nothing),
    call("pipe2", [None, None], &[], Effect::Pipe(Some(1)), Nothing),
    task("pivot_root", Effect::Unsupported),
    task("poll", Effect::Wait),
    task("ppoll", Effect::Wait),
    uses("pread64", Nothing),
    uses("preadv", Nothing),
    uses("preadv2", Nothing),
    task("pselect6", Effect::Wait),
    uses("pwrite64", All),
    uses("pwritev", All),
    uses("pwritev2", All),
    task("quotactl", Effect::Unsupported),
    task("quotactl_fd", Effect::Unsupported),
    uses("read", Nothing),
    uses("readahead", Nothing),
    path("readlink", D, Nothing),
    path("readlinkat", AT0, Nothing),
    uses("readv", Nothing),
    call("recvfrom", [None, None], &[0], Effect::Wait, Nothing),
    call("recvmmsg", [None, None], &[0], Effect::Wait, Nothing),
    call("recvmsg", [None, None], &[0], Effect::Wait, Nothing),
    attribute("removexattr", D, &[], All),
    task("removexattrat", Effect::Unsupported),
    call("rename", [D, D], &[], Effect::Rename(None), Makes),
    call("renameat", [AT0, AT2], &[], Effect::Rename(None), Makes),
    call("renameat2", [AT0, AT2], &[], Effect::Rename(Some(4)), Makes),
    path("rmdir", D, All),
    task("rt_sigsuspend", Effect::Wait),
    task("rt_sigtimedwait", Effect::Wait),
    task("select", Effect::Wait),
    call("sendfile", [None, None], &[0, 1], Effect::Nothing, Listed(0)),
    call("sendmmsg", [None, None], &[0], Effect::Wait, Nothing),
    call("sendmsg", [None, None], &[0], Effect::Wait, Nothing),
    call("sendto", [None, None], &[0], Effect::Wait, Nothing),
    task("setns", Effect::Unsupported),
    attribute("setxattr", D, &[], All),
    task("setxattrat", Effect::Unsupported),
    call("socketpair", [None, None], &[], Effect::Pipe(Some(1)), Nothing),
    call("splice", [None, None], &[0, 2], Effect::Nothing, Listed(1)),
    path("stat", D, Nothing),
    path("statfs", D, Nothing),
    path("statx", AT0, Nothing),
    task("swapoff", Effect::Unsupported),
    task("swapon", Effect::Unsupported),
    call("symlink", [TARGET, D], &[], Effect::Nothing, Makes),
    call("symlinkat", [TARGET, AT1], &[], Effect::Nothing, Makes),
    task("sync", Effect::Wait),
    uses("sync_file_range", Nothing),
    uses("syncfs", Nothing),
    call("tee", [None, None], &[0, 1], Effect::Nothing, Listed(1)),
    task("tgkill", Effect::Wait),
    task("tkill", Effect::Wait),
    path("truncate", D, All),
    task("umount2", Effect::Unsupported),
    path("unlink", D, All),
    path("unlinkat", AT0, All),
    task("unshare", Effect::Unshare),
    task("uselib", Effect::Unsupported),
    path("utime", D, All),
    path("utimensat", AT0, All),
    path("utimes", D, All),
    task("vfork", Effect::Fork),
    call("vmsplice", [None, None], &[0], Effect::Wait, Nothing),
    task("wait4", Effect::Wait),
    task("waitid", Effect::Wait),
    uses("write", All),
    uses("writev", All),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(TABLE.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert_eq!(signature("openat").map(|known| known.name), Some("openat"));
        assert!(signature("getpid").is_none());
    }
}
