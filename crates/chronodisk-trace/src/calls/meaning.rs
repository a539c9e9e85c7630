//! Arguments of calls that have a meaning without the program's memory.

use super::record::CallRecord;

/// Arguments of common calls that are neither addresses of memory nor registers that the call does not take.
const MEANING: &[(&str, &[usize])] = &[
    ("access", &[1]),
    ("chdir", &[]),
    ("chmod", &[1]),
    ("close", &[0]),
    ("connect", &[0, 2]),
    ("dup", &[0]),
    ("dup2", &[0, 1]),
    ("dup3", &[0, 1, 2]),
    ("execve", &[]),
    ("exit", &[0]),
    ("exit_group", &[0]),
    ("faccessat", &[0, 2]),
    ("faccessat2", &[0, 2, 3]),
    ("fadvise64", &[0, 1, 2, 3]),
    ("fchdir", &[0]),
    ("fchmod", &[0, 1]),
    ("fcntl", &[0, 1, 2]),
    ("fdatasync", &[0]),
    ("fork", &[]),
    ("fstat", &[0]),
    ("fstatfs", &[0]),
    ("fsync", &[0]),
    ("ftruncate", &[0, 1]),
    ("getdents", &[0, 2]),
    ("getdents64", &[0, 2]),
    ("getxattr", &[3]),
    ("lgetxattr", &[3]),
    ("link", &[]),
    ("linkat", &[0, 2, 4]),
    ("lseek", &[0, 1, 2]),
    ("lstat", &[]),
    ("mkdir", &[1]),
    ("mkdirat", &[0, 2]),
    ("newfstatat", &[0, 3]),
    ("open", &[1, 2]),
    ("openat", &[0, 2, 3]),
    ("pipe", &[]),
    ("pipe2", &[1]),
    ("pread64", &[0, 2, 3]),
    ("pwrite64", &[0, 2, 3]),
    ("read", &[0, 2]),
    ("readlink", &[2]),
    ("readlinkat", &[0, 3]),
    ("rename", &[]),
    ("renameat", &[0, 2]),
    ("renameat2", &[0, 2, 4]),
    ("rmdir", &[]),
    ("stat", &[]),
    ("statfs", &[]),
    ("statx", &[0, 2, 3]),
    ("symlink", &[]),
    ("symlinkat", &[1]),
    ("syncfs", &[0]),
    ("umask", &[0]),
    ("unlink", &[]),
    ("unlinkat", &[0, 2]),
    ("vfork", &[]),
    ("wait4", &[0, 2]),
    ("write", &[0, 2]),
];

/// The arguments of a record, with zeros for those without a meaning in a replay. Unlisted calls keep all.
pub(super) fn meaningful_arguments(record: &CallRecord) -> [u64; 6] {
    let name = record.call.name();
    match MEANING.binary_search_by(|(listed, _)| (*listed).cmp(name)) {
        Ok(at) => std::array::from_fn(|index| if MEANING[at].1.contains(&index) { record.arguments[index] } else { 0 }),
        Err(_) => record.arguments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order() {
        assert!(MEANING.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
