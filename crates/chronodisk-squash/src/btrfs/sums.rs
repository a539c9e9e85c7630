//! Checksums of dropped sectors that no committed checksum tree has yet.

use std::collections::BTreeMap;

use crate::runs::RunMap;

/// Checksums by block of the device, in groups of neighbours.
///
/// btrfs writes contents first and their checksums with a later commit, and may read the contents in between.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    groups: BTreeMap<u64, Group>,
}

#[derive(Debug)]
struct Group {
    /// A bit for each checksum that is known.
    known: u64,
    sums: Box<[u32; GROUP_LEN as usize]>,
    /// Number of commits without any of the known checksums.
    commits: u32,
}

const GROUP_LEN: u64 = 64;
/// Groups for 64 GiB of contents in 75 MiB of memory.
const GROUPS_MAX: usize = 1 << 18;
/// Commits without checksums after which a group counts as files without checksums. It stays until its room is needed.
const COMMITS_MAX: u32 = 8;

impl Sums {
    /// Whether the table is full.
    pub(crate) fn is_full(&self) -> bool {
        self.groups.len() >= GROUPS_MAX
    }

    pub(crate) fn get(&self, block: u64) -> Option<u32> {
        let (group, at) = (self.groups.get(&(block / GROUP_LEN))?, block % GROUP_LEN);
        (group.known & 1 << at != 0).then(|| group.sums[at as usize])
    }

    /// Notes the checksum of a block that was dropped.
    pub(crate) fn set(&mut self, block: u64, sum: u32) {
        let group = self.groups.entry(block / GROUP_LEN).or_insert_with(|| Group {
            known: 0,
            sums: Box::new([0; GROUP_LEN as usize]),
            commits: 0,
        });
        let at = block % GROUP_LEN;
        group.known |= 1 << at;
        group.sums[at as usize] = sum;
        group.commits = 0;
    }

    /// Removes the checksums of changed blocks.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        let groups = self.groups.range_mut(start / GROUP_LEN..end.div_ceil(GROUP_LEN).max(start / GROUP_LEN));
        let mut empty = Vec::new();
        for (&index, group) in groups {
            let (first, last) = (start.max(index * GROUP_LEN), end.min((index + 1) * GROUP_LEN));
            (first..last).for_each(|block| group.known &= !(1 << (block % GROUP_LEN)));
            if group.known == 0 {
                empty.push(index);
            }
        }
        for index in empty {
            self.groups.remove(&index);
        }
    }

    /// Ranges of blocks to look for in a committed tree.
    pub(crate) fn unconfirmed(&self) -> Vec<(u64, u64)> {
        let mut ranges = RunMap::<()>::default();
        for (index, _) in self.groups.iter().filter(|(_, group)| group.commits < COMMITS_MAX) {
            ranges.set(index * GROUP_LEN, (index + 1) * GROUP_LEN, ());
        }
        ranges.all().map(|(start, end, ())| (start, end)).collect()
    }

    /// Compares a checksum in a committed tree: if it equals the known one, later reads use the tree.
    pub(crate) fn confirm(&mut self, block: u64, sum: u32) {
        if self.get(block) == Some(sum) {
            self.remove(block, block + 1);
        }
    }

    /// Called when all unconfirmed checksums have been looked up in a committed tree.
    pub(crate) fn commit(&mut self) {
        self.groups.values_mut().for_each(|group| group.commits = group.commits.saturating_add(1));
        if self.groups.len() > GROUPS_MAX / 2 {
            self.groups.retain(|_, group| group.commits < COMMITS_MAX);
        }
    }

    /// Memory that the checksums take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.groups.len() as u64 * (size_of::<(u64, Group)>() as u64 + GROUP_LEN * size_of::<u32>() as u64)
    }

    /// Entries that are held in memory.
    pub(crate) fn entries(&self) -> u64 {
        self.groups.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_checksums_are_confirmed() {
        let mut sums = Sums::default();
        (60..70).for_each(|block| sums.set(block, block as u32 * 3));
        sums.remove(62, 65);
        sums.confirm(60, 180);
        sums.confirm(61, 7);
        let known: Vec<_> = (55..75).filter_map(|block| sums.get(block)).collect();
        assert_eq!(known, [183, 195, 198, 201, 204, 207]);
        assert_eq!(sums.unconfirmed(), [(0, 128)]);
        sums.remove(0, 100);
        assert_eq!(sums.entries(), 0);
    }

    #[test]
    fn what_no_commit_has_stays_only_while_there_is_room() {
        let mut sums = Sums::default();
        sums.set(0, 1);
        (0..COMMITS_MAX).for_each(|_| sums.commit());
        assert_eq!((sums.get(0), sums.unconfirmed()), (Some(1), vec![]));
        let mut block = GROUP_LEN;
        while !sums.is_full() {
            sums.set(block, 2);
            block += GROUP_LEN;
        }
        sums.commit();
        assert_eq!((sums.get(0), sums.get(GROUP_LEN)), (None, Some(2)));
    }
}
