//! Settings that programs expect of a machine: a resolvable host name, and the drive's queue limits.
//!
//! A virtio disk reports block sizes, discard and the write cache by itself. It can't report that a drive is not
//! rotational, on which btrfs and ext4 base their allocation.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::mount_bind;
use rustix::system::sethostname;

use crate::shared::device_names::device_name;

/// Equal on all hosts, because program output may depend on it.
const HOST_NAME: &str = "chronodisk";
const HOSTS: &str = "/etc/hosts";
/// Place in a file system in memory that every guest has.
const HOSTS_FOR_NOW: &str = "/dev/shm/.chronodisk-hosts";
/// Debian's address for a host without a permanent one.
const ADDRESS: &str = "127.0.1.1";

/// Names the guest, and lets its name resolve.
pub(crate) fn name() -> io::Result<()> {
    sethostname(HOST_NAME.as_bytes())?;
    // A tree without the file resolves no names by it.
    let Ok(hosts) = fs::read(HOSTS) else { return Ok(()) };
    fs::write(HOSTS_FOR_NOW, with_own_name(hosts))?;
    Ok(mount_bind(HOSTS_FOR_NOW, HOSTS)?)
}

/// Mounts the list of hosts in the command's root, too, if that differs, and unlinks the file, which stays available
/// through the mounts.
pub(crate) fn hosts_are_shown_in(root: Option<&Path>) -> io::Result<()> {
    if !Path::new(HOSTS_FOR_NOW).exists() {
        return Ok(());
    }
    if let Some(root) = root {
        mount_bind(HOSTS_FOR_NOW, root.join(HOSTS.trim_start_matches('/')))?;
    }
    fs::remove_file(HOSTS_FOR_NOW)
}

fn with_own_name(mut hosts: Vec<u8>) -> Vec<u8> {
    if hosts.last().is_some_and(|last| *last != b'\n') {
        hosts.push(b'\n');
    }
    hosts.extend(format!("{ADDRESS}\t{HOST_NAME}\n").bytes());
    hosts
}

/// Sets for each device whether it is rotational.
pub(crate) fn set_queues(rotational: &[bool]) -> io::Result<()> {
    for (index, turns) in rotational.iter().enumerate() {
        let file = format!("/sys/block/{}/queue/rotational", device_name(index));
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
        fs::write(&file, if *turns { "1" } else { "0" }).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_name_follows_what_the_host_knows() {
        assert_eq!(with_own_name(b"127.0.0.1 localhost".to_vec()), b"127.0.0.1 localhost\n127.0.1.1\tchronodisk\n");
        assert_eq!(with_own_name(Vec::new()), b"127.0.1.1\tchronodisk\n");
    }
}
