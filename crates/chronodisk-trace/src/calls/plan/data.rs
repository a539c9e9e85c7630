//! The data that the device of a replay must hold, at least.

use std::collections::{BTreeMap, BTreeSet};

use crate::calls::record::CallRecord;
use crate::calls::table::{Effect, O_TRUNC, Signature};

const O_APPEND: u64 = 0o2000;
/// Modes of `fallocate` that only add space: none, and one that keeps the size.
const FALLOC_ADDS: [u64; 2] = [0, 1];

/// Follows the amount of data in the device's files. It is a lower bound: writes at unknown offsets, and removed files
/// that are still open, do not count.
#[derive(Debug, Default)]
pub(super) struct Data {
    /// Ranges with data of each file, by its path: first byte and end.
    files: BTreeMap<Vec<u8>, BTreeMap<u64, u64>>,
    /// Position of the next byte, by open file description.
    offsets: BTreeMap<u64, u64>,
    appending: BTreeSet<u64>,
    present_bytes: u64,
    peak_bytes: u64,
}

/// A call on a file of the device.
pub(super) struct Written<'a> {
    pub record: &'a CallRecord,
    /// The path of the call's first object.
    pub path: &'a [u8],
    /// The open file description, if there is one.
    pub description: Option<u64>,
}

impl Data {
    /// Largest amount at a time.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Notes that a file was opened.
    pub fn opened(&mut self, record: &CallRecord, known: &Signature, path: &[u8], description: Option<u64>) {
        let Effect::Open(flags) = known.effect else { return };
        let flags = flags.map_or(0, |at| record.arguments[at]);
        if flags & O_TRUNC != 0 || record.call.name() == "creat" {
            self.cut(path, 0);
        }
        if let Some(description) = description.filter(|_| flags & O_APPEND != 0) {
            self.appending.insert(description);
        }
    }

    /// A call on a file succeeded.
    pub fn called(&mut self, of: &Written<'_>) {
        let Written { record, path, description, .. } = *of;
        let Some(result) = record.result.and_then(|result| u64::try_from(result).ok()) else { return };
        let arguments = &record.arguments;
        match record.call.name() {
            "write" | "writev" => {
                let Some(description) = description else { return };
                let end = self.files.get(path).and_then(|ranges| ranges.last_key_value()).map_or(0, |(_, end)| *end);
                let at = self.offsets.get(&description).copied().unwrap_or(0);
                let at = if self.appending.contains(&description) { end } else { at };
                self.offsets.insert(description, at.saturating_add(result));
                self.add(path, at, result);
            }
            "read" | "readv" => {
                if let Some(description) = description {
                    let at = self.offsets.entry(description).or_default();
                    *at = at.saturating_add(result);
                }
            }
            "lseek" => {
                if let Some(description) = description {
                    self.offsets.insert(description, result);
                }
            }
            "pwrite64" | "pwritev" | "pwritev2" => self.add(path, arguments[3], result),
            "fallocate" if FALLOC_ADDS.contains(&arguments[1]) => self.add(path, arguments[2], arguments[3]),
            "fallocate" => self.cut(path, 0),
            "truncate" | "ftruncate" => self.cut(path, arguments[1]),
            "unlink" | "unlinkat" | "rmdir" => self.cut(path, 0),
            _ => {}
        }
    }

    /// Handles a rename of a name and of all names below it.
    pub fn renamed(&mut self, from: &[u8], to: &[u8], exchanged: bool) {
        let below = |path: &[u8], base: &[u8]| path.strip_prefix(base).is_some_and(|rest| rest.first() == Some(&b'/'));
        let is_of = |path: &[u8], base: &[u8]| path == base || below(path, base);
        let gone: Vec<Vec<u8>> =
            self.files.keys().filter(|path| is_of(path, to) || exchanged && is_of(path, from)).cloned().collect();
        gone.iter().for_each(|path| self.cut(path, 0));
        let moved: Vec<Vec<u8>> = self.files.keys().filter(|path| is_of(path, from)).cloned().collect();
        for path in moved {
            if let Some(ranges) = self.files.remove(&path) {
                self.files.insert([to, &path[from.len()..]].concat(), ranges);
            }
        }
    }

    fn add(&mut self, path: &[u8], first: u64, len: u64) {
        let end = first.saturating_add(len);
        if end == first {
            return;
        }
        let ranges = self.files.entry(path.to_vec()).or_default();
        let (mut first, mut end, mut new_bytes) = (first, end, end - first);
        // Ranges that touch become one.
        while let Some((&begin, &stop)) = ranges.range(..=end).next_back().filter(|(_, stop)| **stop >= first) {
            ranges.remove(&begin);
            let shared = end.min(stop).saturating_sub(first.max(begin));
            new_bytes -= shared.min(new_bytes);
            (first, end) = (first.min(begin), end.max(stop));
        }
        ranges.insert(first, end);
        self.present_bytes = self.present_bytes.saturating_add(new_bytes);
        self.peak_bytes = self.peak_bytes.max(self.present_bytes);
    }

    /// Drops the data beyond a byte.
    fn cut(&mut self, path: &[u8], at: u64) {
        let Some(ranges) = self.files.get_mut(path) else { return };
        let beyond = ranges.split_off(&at);
        let mut gone: u64 = beyond.iter().map(|(first, end)| end - first).sum();
        if let Some(mut last) = ranges.last_entry()
            && *last.get() > at
        {
            gone += *last.get() - at;
            last.insert(at);
        }
        if ranges.is_empty() {
            self.files.remove(path);
        }
        self.present_bytes = self.present_bytes.saturating_sub(gone);
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::Nanos;

    use super::*;
    use crate::calls::record::Call;
    use crate::calls::table::signature;

    fn call(data: &mut Data, name: &str, path: &str, arguments: [u64; 4], result: i64) {
        let mut record = CallRecord::new(1, name.parse::<Call>().unwrap(), Nanos::ZERO);
        record.arguments[..4].copy_from_slice(&arguments);
        record.result = Some(result);
        let known = signature(name).unwrap();
        match known.effect {
            Effect::Open(_) => data.opened(&record, known, path.as_bytes(), Some(result as u64)),
            _ => data.called(&Written { record: &record, path: path.as_bytes(), description: Some(arguments[0]) }),
        }
    }

    #[test]
    fn what_is_written_again_counts_once_and_what_is_removed_no_longer() {
        let mut data = Data::default();
        call(&mut data, "openat", "/m/a", [0, 0, 0o101, 0], 3);
        call(&mut data, "write", "/m/a", [3, 0, 100, 0], 100);
        call(&mut data, "write", "/m/a", [3, 0, 100, 0], 50);
        assert_eq!(data.peak_bytes(), 150);
        call(&mut data, "lseek", "/m/a", [3, 40, 0, 0], 40);
        call(&mut data, "write", "/m/a", [3, 0, 100, 0], 100);
        assert_eq!(data.peak_bytes(), 150);
        call(&mut data, "pwrite64", "/m/a", [3, 0, 100, 1_000], 100);
        call(&mut data, "pwrite64", "/m/a", [3, 0, 900, 120], 900);
        assert_eq!(data.peak_bytes(), 1_100);
        call(&mut data, "ftruncate", "/m/a", [3, 600, 0, 0], 0);
        call(&mut data, "fallocate", "/m/a", [3, 0, 600, 200], 0);
        assert_eq!((data.present_bytes, data.peak_bytes()), (800, 1_100));
        data.renamed(b"/m/a", b"/m/b", false);
        call(&mut data, "openat", "/m/b", [0, 0, 0o2001, 0], 4);
        call(&mut data, "write", "/m/b", [4, 0, 10, 0], 10);
        assert_eq!(data.present_bytes, 810);
        call(&mut data, "unlink", "/m/b", [0; 4], 0);
        assert_eq!((data.present_bytes, data.peak_bytes()), (0, 1_100));
    }

    #[test]
    fn directories_take_their_files_along() {
        let mut data = Data::default();
        call(&mut data, "pwrite64", "/m/d/a", [3, 0, 100, 0], 100);
        call(&mut data, "pwrite64", "/m/dd", [4, 0, 7, 0], 7);
        call(&mut data, "pwrite64", "/m/e", [5, 0, 30, 0], 30);
        data.renamed(b"/m/d", b"/m/x", false);
        call(&mut data, "unlink", "/m/d/a", [0; 4], 0);
        assert_eq!(data.present_bytes, 137);
        data.renamed(b"/m/x/a", b"/m/e", false);
        assert_eq!(data.present_bytes, 107, "what was there is gone");
        call(&mut data, "truncate", "/m/e", [0, 40, 0, 0], 0);
        assert_eq!((data.present_bytes, data.peak_bytes()), (47, 137));
    }

    #[test]
    fn failures_and_reads_write_nothing() {
        let mut data = Data::default();
        call(&mut data, "write", "/m/a", [3, 0, 100, 0], -28);
        call(&mut data, "read", "/m/a", [3, 0, 100, 0], 60);
        assert_eq!(data.peak_bytes(), 0);
        call(&mut data, "write", "/m/a", [3, 0, 100, 0], 1);
        assert_eq!(data.files[b"/m/a".as_slice()], BTreeMap::from([(60, 61)]));
    }
}
