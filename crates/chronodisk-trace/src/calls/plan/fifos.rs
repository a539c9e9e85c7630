//! Named pipes of the device, as far as the trace makes them.
//!
//! An open waits until the other side is opened as well, and a write to a full pipe waits for a reader. So calls on
//! named pipes are not ordered like those on files: the pipe itself makes its users wait, in the replay as in the
//! program.

use std::collections::BTreeSet;

use super::super::record::CallRecord;
use super::super::resolve::Resolved;

/// `S_IFMT` and `S_IFIFO` of `stat.h`.
const TYPE: u64 = 0o170_000;
const FIFO: u64 = 0o010_000;
/// `RENAME_EXCHANGE`.
const EXCHANGE: u64 = 2;

/// Absolute paths of named pipes.
#[derive(Debug, Default)]
pub(super) struct Fifos {
    paths: BTreeSet<Vec<u8>>,
}

impl Fifos {
    pub fn has(&self, path: &[u8]) -> bool {
        self.paths.contains(path)
    }

    /// Lets a call take effect on names.
    pub fn called(&mut self, record: &CallRecord, resolved: &Resolved) {
        let Some(path) = resolved.paths[0].as_ref().filter(|_| record.succeeded()).map(|path| &path.full) else {
            return;
        };
        let other = resolved.paths[1].as_ref().map(|path| &path.full);
        match (record.call.name(), other) {
            ("mknod", _) => self.made(path, record.arguments[1]),
            ("mknodat", _) => self.made(path, record.arguments[2]),
            ("unlink" | "unlinkat", _) => drop(self.paths.remove(path)),
            ("link" | "linkat", Some(name)) if self.has(path) => drop(self.paths.insert(name.clone())),
            ("rename" | "renameat" | "renameat2", Some(name)) => {
                let exchanges = record.call.name() == "renameat2" && record.arguments[4] & EXCHANGE != 0;
                let (moved, replaced) = (self.paths.remove(path), self.paths.remove(name));
                if moved {
                    self.paths.insert(name.clone());
                }
                if replaced && exchanges {
                    self.paths.insert(path.clone());
                }
            }
            _ => {}
        }
    }

    fn made(&mut self, path: &[u8], mode: u64) {
        if mode & TYPE == FIFO {
            self.paths.insert(path.to_vec());
        }
    }
}
