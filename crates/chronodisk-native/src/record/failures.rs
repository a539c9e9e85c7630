//! Failures of tracing: of the host's kernel, or of its permission.

use std::io;

use rustix::io::Errno;

use crate::error::NativeError;

const ELSEWHERE: &str = "record in a guest, which needs no permission: chronodisk run --record-calls";

/// The host does not let this process trace its child.
pub fn forbidden(errno: Errno) -> NativeError {
    NativeError::HostLacks {
        what: format!("this host does not permit tracing with ptrace: {errno}"),
        help: format!(
            "another tracer, /proc/sys/kernel/yama/ptrace_scope or a container's profile may forbid it; {ELSEWHERE}"
        ),
    }
}

pub fn no_filter(source: &io::Error) -> NativeError {
    NativeError::HostLacks {
        what: format!("this host's kernel refuses the filter of system calls (seccomp): {source}"),
        help: ELSEWHERE.to_owned(),
    }
}

pub fn no_process(source: io::Error) -> NativeError {
    NativeError::System { doing: "starting the program".to_owned(), source }
}

pub fn lost_hold(errno: Errno) -> NativeError {
    NativeError::System { doing: "tracing the program".to_owned(), source: errno.into() }
}
