//! The journal's file: mapped, so that its content survives the end of this process for any cause.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, compiler_fence};

use chronodisk_trace::calls::{Entry, MAGIC};
use memmap2::{MmapMut, MmapOptions};

use crate::error::NativeError;

/// Bytes that are mapped at once. Windows begin at multiples of a page.
const WINDOW_BYTES: u64 = 4 << 20;
const PAGE_BYTES: u64 = 4096;

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    window: MmapMut,
    /// Offset of the window.
    begin: u64,
    /// Offset of the next entry.
    end: u64,
    entry: Vec<u8>,
}

impl Journal {
    /// A new file.
    pub fn create(path: &Path) -> Result<Self, NativeError> {
        let failed = |source| failure(path, source);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(failed)?;
        let begun = window(&file, 0).map_err(failed).and_then(|window| {
            let mut journal = Journal { path: path.to_owned(), file, window, begin: 0, end: 0, entry: Vec::new() };
            journal.entry.extend_from_slice(MAGIC);
            journal.put()?;
            Ok(journal)
        });
        // An empty journal would look like a killed recorder's.
        begun.inspect_err(|_| drop(std::fs::remove_file(path)))
    }

    pub fn append(&mut self, entry: &Entry) -> Result<(), NativeError> {
        self.entry.clear();
        entry.encode(&mut self.entry);
        self.put()
    }

    fn put(&mut self) -> Result<(), NativeError> {
        let length = self.entry.len();
        if self.end + length as u64 > self.begin + WINDOW_BYTES {
            let begin = self.end / PAGE_BYTES * PAGE_BYTES;
            self.window = window(&self.file, begin).map_err(|source| failure(&self.path, source))?;
            self.begin = begin;
        }
        let at = (self.end - self.begin) as usize;
        // The length is written last: an entry without a length does not exist.
        let (head, rest) = self.window[at..at + length].split_at_mut(4);
        rest.copy_from_slice(&self.entry[4..]);
        compiler_fence(Ordering::Release);
        head.copy_from_slice(&self.entry[..4]);
        self.end += length as u64;
        Ok(())
    }

    /// Truncates the unused reservation.
    pub fn finish(self) -> Result<(), NativeError> {
        drop(self.window);
        self.file.set_len(self.end).map_err(|source| failure(&self.path, source))
    }
}

fn failure(path: &Path, source: io::Error) -> NativeError {
    NativeError::System { doing: format!("{}: can't write the journal", path.display()), source }
}

/// Reserves space first: a full file system then is an error, and not a signal.
#[allow(unsafe_code)]
fn window(file: &File, begin: u64) -> io::Result<MmapMut> {
    let reserved = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), begin, WINDOW_BYTES);
    match reserved {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(begin + WINDOW_BYTES)?,
        other => other?,
    }
    // SAFETY: the file is new and this process's own; changes by other processes affect bytes that are never read here.
    unsafe { MmapOptions::new().offset(begin).len(WINDOW_BYTES as usize).map_mut(file) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronodisk_trace::calls::JournalReader;

    #[test]
    fn entries_go_on_from_window_to_window() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::create(&path).unwrap();
        assert!(Journal::create(&path).is_err(), "another recorder's journal stays");
        let reason = "x".repeat(60);
        let entries = (2 * WINDOW_BYTES / 60) as usize;
        for _ in 0..entries {
            journal.append(&Entry::Incomplete(reason.clone())).unwrap();
        }
        let count = || {
            let mut reader = JournalReader::new(io::BufReader::new(File::open(&path).unwrap())).unwrap();
            std::iter::from_fn(|| reader.entry().unwrap()).count()
        };
        // As after a kill, the reserved space is still there.
        assert_eq!(count(), entries);
        journal.finish().unwrap();
        assert_eq!(count(), entries);
    }
}
