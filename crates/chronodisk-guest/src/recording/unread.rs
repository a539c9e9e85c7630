//! Paths that the clock could not read, because the host had not mapped their page of the program.
//!
//! Nearly all of them are constants of libraries. A mapping of the host's tree is also in the host's file.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use chronodisk_trace::calls::{AT_FDCWD, CallRecord, PATH_BYTES_MAX, is_below, recorded_arguments};

/// A process's mappings of the host's files.
#[derive(Clone, Debug, Default)]
struct Process {
    files: BTreeMap<i32, Vec<u8>>,
    /// First and last address, file and offset, the latest last.
    areas: Vec<(u64, u64, Vec<u8>, u64)>,
}

/// All processes by their ids.
#[derive(Debug)]
pub(super) struct HostFiles<'a> {
    mount: &'a str,
    processes: BTreeMap<u32, Process>,
}

/// Areas of a process that are looked at.
const AREAS_MAX: usize = 4096;
const MAP_ANONYMOUS: u64 = 0x20;

impl<'a> HostFiles<'a> {
    /// Files below the mount point are not the host's.
    pub fn new(mount: &'a str) -> Self {
        HostFiles { mount, processes: BTreeMap::new() }
    }

    /// Fills in the paths that the record lacks; returns whether it has all of them.
    pub fn fill(&self, record: &mut CallRecord) -> bool {
        let arguments = recorded_arguments(record.call.name());
        let Some(process) = self.processes.get(&record.group) else { return false };
        let mut is_whole = true;
        for (which, argument) in arguments.paths.into_iter().enumerate() {
            let address = argument.map_or(0, |argument| record.arguments[argument]);
            let path = if which == 0 { &mut record.path } else { &mut record.path_2 };
            if address != 0 && path.is_none() {
                *path = process.string_at(address);
                is_whole &= path.is_some();
            }
        }
        is_whole
    }

    /// The next call.
    pub fn follow(&mut self, record: &CallRecord) {
        let Some(result) = record.result.filter(|&result| result >= 0) else { return };
        if let Some(child) = record.child() {
            let copy = self.processes.get(&record.group).cloned().unwrap_or_default();
            // A thread's group has its own entry already.
            self.processes.entry(child).or_insert(copy);
            return;
        }
        let process = self.processes.entry(record.group).or_default();
        match record.call.name() {
            "open" | "openat" => {
                let is_here = record.call.name() == "open" || record.number(0) == AT_FDCWD;
                let absolute = record
                    .path
                    .as_ref()
                    .filter(|path| path.starts_with(b"/") && is_here && !is_below(self.mount.as_bytes(), path));
                match absolute {
                    Some(path) => process.files.insert(result as i32, path.clone()),
                    None => process.files.remove(&(result as i32)),
                };
            }
            "close" => drop(process.files.remove(&record.number(0))),
            "mmap" => {
                let [_, bytes, _, flags, _, offset] = record.arguments;
                let file = process.files.get(&record.number(4)).filter(|_| flags & MAP_ANONYMOUS == 0);
                let end = (result as u64).checked_add(bytes);
                if let (Some(file), Some(end), true) = (file, end, process.areas.len() < AREAS_MAX) {
                    process.areas.push((result as u64, end, file.clone(), offset));
                }
            }
            "execve" | "execveat" => {
                *process = Process { areas: Vec::new(), files: std::mem::take(&mut process.files) }
            }
            _ => {}
        }
    }
}

impl Process {
    fn string_at(&self, address: u64) -> Option<Vec<u8>> {
        let inside = |area: &&(u64, u64, Vec<u8>, u64)| (area.0..area.1).contains(&address);
        let (start, _, path, offset) = self.areas.iter().rev().find(inside)?;
        let file = File::open(Path::new(std::ffi::OsStr::from_bytes(path))).ok()?;
        let mut bytes = vec![0; PATH_BYTES_MAX + 1];
        let got = file.read_at(&mut bytes, offset.checked_add(address - start)?).ok()?;
        let end = bytes[..got].iter().position(|&byte| byte == 0)?;
        bytes.truncate(end);
        Some(bytes)
    }
}
