//! Saved states of flash drives in files: mapped copy-on-write when loaded, and complete or absent after saving.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use chronodisk_device::{
    BuildOptions, DeviceModel, FlashState, Profile, ProfileError, StateError, StateSource, TableMemory,
};
use memmap2::{MmapMut, MmapOptions};

/// Reason why a device could not be made from its profile and state.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The profile does not allow it.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The state was refused.
    #[error("{}: {error}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        error: StateError,
    },
    /// The file can't be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Makes a new device at instant zero: erased, or with the state in a file. Also returns an identifier of that state,
/// to recognise it later.
///
/// # Errors
/// If the profile, the file or the state is invalid.
pub fn build(
    profile: &Profile,
    options: &BuildOptions,
    state: Option<&Path>,
) -> Result<(Box<dyn DeviceModel>, Option<u64>), BuildError> {
    let Some(path) = state else { return Ok((profile.build(options)?, None)) };
    let state = load(profile, options, path)?;
    let fingerprint = state.fingerprint();
    Ok((profile.build_from_state(options, state)?, Some(fingerprint)))
}

/// Reads the state of a device from a file.
///
/// # Errors
/// A profile, a file or a state that does not do.
pub fn load(profile: &Profile, options: &BuildOptions, path: &Path) -> Result<FlashState, BuildError> {
    let file = StateFile::open(path).map_err(|error| BuildError::File { path: path.to_owned(), error })?;
    profile.read_state(options, &file).map_err(|error| BuildError::State { path: path.to_owned(), error })
}

/// Writes a state to a file, which gets its name only once it is complete. `advance` receives the number of bytes
/// written, and may stop.
///
/// # Errors
/// The host's error, or `Interrupted` if `advance` stopped. No file is left behind then.
pub fn save(state: &FlashState, path: &Path, advance: &mut dyn FnMut(u64) -> ControlFlow<()>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let unfinished = path.with_file_name(name);
    let written = write(state, &unfinished, advance).and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // The removal can fail only if the creation failed.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn write(state: &FlashState, path: &Path, advance: &mut dyn FnMut(u64) -> ControlFlow<()>) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    state.write(&mut |piece| match advance(piece.len() as u64) {
        ControlFlow::Continue(()) => file.write_all(piece),
        ControlFlow::Break(()) => Err(io::ErrorKind::Interrupted.into()),
    })
}

/// A state file with mapped parts.
struct StateFile {
    file: File,
    len: u64,
}

impl StateFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(StateFile { file, len })
    }
}

impl StateSource for StateFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn part(&self, offset: u64, len: u64) -> Result<Box<dyn TableMemory>, String> {
        let mut options = MmapOptions::new();
        options.offset(offset).len(usize::try_from(len).map_err(|error| error.to_string())?);
        // SAFETY: the mapping is private, so no write here changes the file. Another process that changes the file may
        // change untouched pages, as with any mapped file, and shortening it would end this process with SIGBUS. States
        // are replaced by renaming, never written in place.
        let memory: MmapMut = unsafe { options.map_copy(&self.file) }.map_err(|error| error.to_string())?;
        Ok(Box::new(memory))
    }
}
