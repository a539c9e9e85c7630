//! Files for the guests that check states: the base, which all states share, and the difference of each.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use chronodisk_crash::{Content, History};
use chronodisk_sim::SECTOR_BYTES;
use chronodisk_store::{Change, RecordedDevice, Recorder};

use crate::failure::Failure;

/// Most bytes of one change in a difference.
const CHANGE_BYTES_MAX: usize = 1 << 20;

/// Beginning of the folder's name; the number of its process follows.
const PREFIX: &str = ".states-";

/// A folder for the files, removed when it is dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder in a directory.
    pub fn make(directory: &Path) -> Result<Self, Failure> {
        let absolute = std::path::absolute(directory).unwrap_or(directory.to_owned());
        remove_stale(&absolute);
        let path = absolute.join(format!("{PREFIX}{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Failure::host(format!("{}: can't create: {error}", path.display())))?;
        Ok(Scratch(path))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Removes the folders of killed processes.
fn remove_stale(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).filter(|number| number.parse::<u32>().is_ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing is left to do if the host refuses it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes the contents of a whole device to a sparse file.
pub(super) fn write_base(path: &Path, history: &History, contents: &BTreeMap<u64, Content>) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| Failure::host(format!("{}: can't write: {error}", path.display()));
    let file = File::create(path).map_err(cannot)?;
    for (block, content) in contents {
        let Some(bytes) = history.bytes(*content) else { continue };
        file.write_all_at(bytes, block * history.block_bytes()).map_err(cannot)?;
    }
    Ok(())
}

/// Writes the difference of a state as a recording of changes.
pub(super) fn write_difference(
    path: &Path,
    history: &History,
    capacity_bytes: u64,
    difference: &BTreeMap<u64, Content>,
) -> Result<(), Failure> {
    let device = RecordedDevice { capacity_bytes, logical_block_bytes: SECTOR_BYTES as u32 };
    let recorder = Recorder::create(path, &device)?;
    let zeros = vec![0; history.block_bytes() as usize];
    let mut run: Option<(u64, Vec<u8>)> = None;
    for (block, content) in difference {
        let bytes = history.bytes(*content).unwrap_or(&zeros);
        let at = block * history.block_bytes();
        match &mut run {
            Some((begin, run)) if *begin + run.len() as u64 == at && run.len() < CHANGE_BYTES_MAX => {
                run.extend_from_slice(bytes);
            }
            _ => {
                write_run(&recorder, run.take())?;
                run = Some((at, bytes.to_vec()));
            }
        }
    }
    write_run(&recorder, run)?;
    Ok(recorder.close()?)
}

fn write_run(recorder: &Recorder, run: Option<(u64, Vec<u8>)>) -> Result<(), Failure> {
    let Some((offset_bytes, bytes)) = run else { return Ok(()) };
    Ok(recorder.changed(&Change::Write(offset_bytes, bytes))?)
}
