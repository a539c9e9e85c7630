//! Programs that would run with other privileges if they were not traced.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SET_USER: u32 = 0o4000;
/// Set-group-id; without the right to execute it means something else.
const SET_GROUP: u32 = 0o2010;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;

/// Whether a program loses privileges because this process traces it.
pub fn are_lost(program: &Path) -> bool {
    let Ok(metadata) = fs::metadata(program) else { return false };
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let has_capabilities = rustix::fs::getxattr(program, "security.capability", &mut [0u8; 64]).is_ok();
    gains(metadata.mode(), (metadata.uid(), metadata.gid()), own, has_capabilities) && !may_trace_all()
}

/// Whether a file with this mode and owner grants more privileges than a process with these ids has.
fn gains(mode: u32, owner: (u32, u32), own: (u32, u32), has_capabilities: bool) -> bool {
    (mode & SET_USER != 0 && owner.0 != own.0)
        || (mode & SET_GROUP == SET_GROUP && owner.1 != own.1)
        || (has_capabilities && own.0 != 0)
}

/// Whether the filter needs no promise, and the tracer may trace privileged programs.
fn may_trace_all() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    [CAP_SYS_PTRACE, CAP_SYS_ADMIN].iter().all(|bit| effective >> bit & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_another_owner_gives_is_a_gain() {
        let user = (1000, 1000);
        assert!(gains(0o104755, (0, 0), user, false), "su");
        assert!(!gains(0o104755, (1000, 0), user, false), "one's own");
        assert!(gains(0o102755, (0, 43), user, false), "a program of a group");
        assert!(!gains(0o102644, (0, 43), user, false), "mandatory locks");
        assert!(!gains(0o100755, (0, 0), user, false));
        assert!(gains(0o100755, (0, 0), user, true), "ping with capabilities");
        assert!(!gains(0o100755, (0, 0), (0, 0), true));
    }
}
