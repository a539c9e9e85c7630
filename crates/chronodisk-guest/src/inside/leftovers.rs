//! Removes a command's leftovers that keep a file system from being unmounted: mounts, swap, and loop devices on its
//! files.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};

/// Ids of the mounts before the command.
pub(crate) struct Mounts(BTreeSet<u64>);

/// One line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    number: u64,
    at: PathBuf,
}

/// Attempts to unmount a busy file system: a killed process may hold it for a moment.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

impl Mounts {
    /// The current mounts.
    pub fn now() -> io::Result<Self> {
        Ok(Mounts(mounts()?.into_iter().map(|mount| mount.number).collect()))
    }

    /// Ends swap, unmounts newer mounts from the last to the first, and frees loop devices. Busy mounts are detached,
    /// so that they disappear with their last user.
    pub fn take_away_newer(&self) -> io::Result<()> {
        end_swap()?;
        for attempt in 1.. {
            let mut newer = mounts()?;
            newer.retain(|mount| !self.0.contains(&mount.number));
            // A loop device is freed with the mount on it, or keeps the mount of its file busy.
            let held = newer.iter().rev().filter(|mount| unmount(&mount.at, UnmountFlags::NOFOLLOW).is_err()).count();
            free_loop_devices();
            match held {
                0 => return Ok(()),
                _ if attempt < ATTEMPTS => thread::sleep(PAUSE),
                _ => {
                    for mount in newer.iter().rev() {
                        let _ = unmount(&mount.at, UnmountFlags::DETACH);
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn mounts() -> io::Result<Vec<Mount>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(mount_in).collect())
}

/// Parses number, parent, device, root, mount point; blanks and backslashes in names are octal.
fn mount_in(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let number = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    Some(Mount { number, at: unescaped(words.nth(3)?) })
}

fn unescaped(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| after.get(..3)).flatten();
        let code = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        (rest, bytes) = match code {
            Some(code) => (&after[3..], [bytes, vec![code]].concat()),
            None => (after, [bytes, vec![first]].concat()),
        };
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

/// Disables all swap: the guest has none before its command.
fn end_swap() -> io::Result<()> {
    // A kernel without swap has no such file.
    let Ok(text) = fs::read("/proc/swaps") else { return Ok(()) };
    for line in text.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty()) {
        let name = unescaped(line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default());
        let path = CString::new(name.as_os_str().as_bytes())?;
        // SAFETY: the name is a string that ends with a zero byte.
        if unsafe { libc::swapoff(path.as_ptr()) } != 0 {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(error.kind(), format!("swapoff {}: {error}", name.display())));
        }
    }
    Ok(())
}

/// `linux/loop.h`.
const LOOP_CLR_FD: libc::c_ulong = 0x4c01;

/// Detaches loop devices from their files. A busy one is detached with its last user.
fn free_loop_devices() {
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let has_file = entry.path().join("loop/backing_file").exists();
        if !has_file {
            continue;
        }
        if let Ok(device) = File::open(Path::new("/dev").join(entry.file_name())) {
            // SAFETY: the request takes no argument.
            unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD as _, 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_have_their_blanks_back() {
        let line = br"36 35 98:0 /mnt1 /mnt/a\040b\134c rw,noatime shared:1 - ext3 /dev/root rw";
        assert_eq!(mount_in(line), Some(Mount { number: 36, at: PathBuf::from("/mnt/a b\\c") }));
        for wrong in [&b""[..], b"36 35", b"x 35 98:0 / /mnt"] {
            assert_eq!(mount_in(wrong), None);
        }
        assert_eq!(unescaped(br"\0"), PathBuf::from("\\0"));
        assert!(!Mounts::now().unwrap().0.is_empty());
    }
}
