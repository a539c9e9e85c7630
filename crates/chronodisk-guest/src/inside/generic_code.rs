//! Work for which the guest's kernel has only generic code: AES, SHA, CRC32C, parity. A native kernel uses instructions
//! of the processor, so it takes a fraction of the time.
//!
//! The kernel does not count such work. Its state at the command's end shows the users of the code: mounted file
//! systems, assembled arrays, users of its crypto interface. File systems that the command has unmounted and sockets of
//! `AF_ALG` that it has closed are missed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::shared::spec::GenericCode;

/// Algorithms for which x86-64 kernels use special instructions, by the name of their generic code in the crypto
/// interface.
const ALGORITHMS: [(&str, &str); 11] = [
    ("aes-generic", "AES"),
    ("aes-fixed-time", "AES"),
    ("sha1-generic", "SHA-1"),
    ("sha256-generic", SHA_256),
    ("sha512-generic", "SHA-512"),
    ("ghash-generic", "GHASH"),
    ("chacha20-generic", "ChaCha20"),
    ("poly1305-generic", "Poly1305"),
    ("crc32c-generic", CRC32C),
    ("crc32-generic", "CRC32"),
    ("crct10dif-generic", "CRC-T10DIF"),
];
const SHA_256: &str = "SHA-256";
const CRC32C: &str = "CRC32C";
const RAID_6: &str = "RAID 6 parity";

/// Users of each algorithm of the kernel's crypto interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CryptoUsers(BTreeMap<String, u64>);

impl CryptoUsers {
    /// The current users; empty on a kernel without the interface.
    pub fn now() -> Self {
        CryptoUsers::parse(&fs::read_to_string("/proc/crypto").unwrap_or_default())
    }

    /// `/proc/crypto` has a paragraph for each algorithm, with `driver` and `refcnt` among its lines.
    fn parse(text: &str) -> Self {
        let mut users = BTreeMap::new();
        let mut driver = None;
        for line in text.lines() {
            match line.split_once(':').map(|(key, value)| (key.trim(), value.trim())) {
                Some(("driver", name)) => driver = Some(name.to_owned()),
                Some(("refcnt", count)) => {
                    if let (Some(driver), Ok(count)) = (driver.take(), count.parse::<u64>()) {
                        *users.entry(driver).or_default() += count;
                    }
                }
                _ => {}
            }
        }
        CryptoUsers(users)
    }

    /// Algorithms that have more users than before. One that is made of others, such as `xts(ecb(aes-generic))`, names
    /// them.
    fn more_than(&self, before: &CryptoUsers) -> BTreeSet<&'static str> {
        let grown = |(driver, users): &(&String, &u64)| **users > before.0.get(*driver).copied().unwrap_or(0);
        let names = |(driver, _): (&String, &u64)| {
            ALGORITHMS.iter().filter(|(generic, _)| driver.contains(generic)).map(|(_, name)| *name).collect::<Vec<_>>()
        };
        self.0.iter().filter(grown).flat_map(names).collect()
    }
}

/// Users in the guest's kernel that did not exist `before`.
pub(crate) fn held_since(before: &CryptoUsers) -> Vec<GenericCode> {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let mut held = Held::default();
    held.add_users(&CryptoUsers::now().more_than(before), &kinds_mounted(&read("/proc/self/mounts")));
    held.add_arrays(&read("/proc/mdstat"));
    for folder in fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten() {
        let path = folder.path();
        if let Ok(checksum) = fs::read_to_string(path.join("checksum")) {
            held.add_btrfs(&checksum);
        }
        if ["data", "metadata"].iter().any(|kind| path.join("allocation").join(kind).join("raid6").is_dir()) {
            held.add(RAID_6, Some("btrfs"));
        }
    }
    held.into_list()
}

/// Types of the mounted file systems: the third field of each line.
fn kinds_mounted(mounts: &str) -> BTreeSet<&str> {
    mounts.lines().filter_map(|line| line.split(' ').nth(2)).collect()
}

/// Holders of each algorithm.
#[derive(Debug, Default)]
struct Held(BTreeMap<&'static str, BTreeSet<String>>);

impl Held {
    fn add(&mut self, algorithm: &'static str, holder: Option<&str>) {
        self.0.entry(algorithm).or_default().extend(holder.map(str::to_owned));
    }

    fn add_users(&mut self, algorithms: &BTreeSet<&'static str>, mounted: &BTreeSet<&str>) {
        for algorithm in algorithms {
            self.add(algorithm, None);
        }
        // XFS has no user of its own in the list: it calls a library that holds the code from boot.
        if mounted.contains("xfs") {
            self.add(CRC32C, Some("xfs"));
        }
        for kind in ["ext2", "ext3", "ext4"] {
            if mounted.contains(kind) && algorithms.contains(CRC32C) {
                self.add(CRC32C, Some(kind));
            }
        }
    }

    /// `/proc/mdstat` has a line such as `md0 : active raid6 vdd[3] vdc[2] vdb[1] vda[0]` for each array.
    fn add_arrays(&mut self, mdstat: &str) {
        if mdstat.lines().any(|line| line.contains(" : active") && line.split(' ').any(|word| word == "raid6")) {
            self.add(RAID_6, Some("md"));
        }
    }

    /// `checksum` is a text such as `sha256 (sha256-generic)`. Checksums for which native kernels have only generic
    /// code, too, such as xxHash, do not count.
    fn add_btrfs(&mut self, checksum: &str) {
        match checksum.split_whitespace().next() {
            Some("crc32c") => self.add(CRC32C, Some("btrfs")),
            Some("sha256") => self.add(SHA_256, Some("btrfs")),
            _ => {}
        }
    }

    fn into_list(self) -> Vec<GenericCode> {
        let entry = |(algorithm, holders): (&str, BTreeSet<String>)| GenericCode {
            algorithm: algorithm.to_owned(),
            holders: holders.into_iter().collect(),
        };
        self.0.into_iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTED: &str = "name         : crc32c
driver       : crc32c-generic
module       : kernel
priority     : 100
refcnt       : 2
selftest     : passed

name         : aes
driver       : aes-generic
module       : kernel
refcnt       : 1
";

    fn grown(after: &str) -> Vec<&'static str> {
        CryptoUsers::parse(after).more_than(&CryptoUsers::parse(BOOTED)).into_iter().collect()
    }

    #[test]
    fn users_since_boot_are_found() {
        assert!(grown(BOOTED).is_empty());
        assert_eq!(grown(&BOOTED.replace("refcnt       : 2", "refcnt       : 3")), ["CRC32C"]);
        let encrypted = format!("{BOOTED}\nname : xts(aes)\ndriver : xts(ecb(aes-generic))\nrefcnt : 1\n");
        assert_eq!(grown(&encrypted), ["AES"]);
        let unknown = format!("{BOOTED}\nname : xxhash64\ndriver : xxhash64-generic\nrefcnt : 9\n");
        assert!(grown(&unknown).is_empty(), "a native kernel has no other code for it");
        for nothing in ["", "refcnt : 3", "driver : crc32c-generic\nrefcnt : many\n"] {
            assert_eq!(CryptoUsers::parse(nothing), CryptoUsers::default());
        }
    }

    #[test]
    fn holders_are_named() {
        let list = |fill: &dyn Fn(&mut Held)| {
            let mut held = Held::default();
            fill(&mut held);
            held.into_list().into_iter().map(|code| (code.algorithm, code.holders.join(" "))).collect::<Vec<_>>()
        };
        let of = |algorithm: &str, holders: &str| (algorithm.to_owned(), holders.to_owned());
        let mounts = kinds_mounted("/dev/vda /mnt ext4 rw 0 0\n/dev/vdb /a xfs rw 0 0\ntmpfs /t tmpfs rw 0 0\n");
        let users = BTreeSet::from([CRC32C, "AES"]);
        assert_eq!(list(&|held| held.add_users(&users, &mounts)), [of("AES", ""), of("CRC32C", "ext4 xfs")]);
        assert_eq!(list(&|held| held.add_users(&BTreeSet::new(), &mounts)), [of("CRC32C", "xfs")]);
        assert_eq!(list(&|held| held.add_btrfs("sha256 (sha256-generic)\n")), [of("SHA-256", "btrfs")]);
        assert_eq!(list(&|held| held.add_btrfs("xxhash64 (xxhash64-generic)\n")), []);
        let mdstat = "Personalities : [raid6]\nmd0 : active (auto-read-only) raid6 vdb[1] vda[0]\n      8 blocks\n";
        assert_eq!(list(&|held| held.add_arrays(mdstat)), [of("RAID 6 parity", "md")]);
        assert_eq!(list(&|held| held.add_arrays("Personalities : [raid6]\nmd0 : active raid1 vda[0]\n")), []);
    }
}
