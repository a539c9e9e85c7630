//! In the launcher: records the system calls of the guest's programs, which the guest's clock sees anyway
//! (`shim/record.c`).
//!
//! The clock notes them unchanged in the launcher's memory: numbers, registers, paths. [`Recording::take`] makes a
//! trace of them. Recording takes no virtual time, and the records survive a kill of the guest.

mod decode;
pub(crate) mod names;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronodisk_trace::calls::{CallTrace, Clock, recorded_arguments};
use memmap2::MmapMut;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

pub(crate) use decode::Recorded;

use crate::shared::layout::{Launcher, Listed, RECORD_EVENTS_OFFSET, RecorderState, RecordingWords};

/// Memory in which a guest's system calls are recorded.
#[derive(Clone, Debug)]
pub struct Recording {
    file: Arc<File>,
    mapped: Arc<MmapMut>,
    /// Whether an unrecordable call was reported.
    has_told: Arc<AtomicBool>,
}

/// Reason why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The guest ended before its command began.
    #[error("no system call was recorded: the command did not begin")]
    NothingBegan,
    /// The kernel keeps its tasks in a way that was not found out.
    #[error(
        "system calls can't be recorded with this kernel: it was not found where it keeps ids and page tables of tasks"
    )]
    UnknownKernel,
    /// The recording is inconsistent.
    #[error("the recording of system calls is damaged at byte {at}: {what}")]
    Damaged {
        /// Offset of the damage in bytes.
        at: usize,
        /// The value found.
        what: &'static str,
    },
    /// The memory is unreadable.
    #[error("the recording of system calls can't be read: {0}")]
    Unreadable(#[from] io::Error),
}

impl Recording {
    /// Memory for one run.
    ///
    /// # Errors
    /// If the host has no memory for it.
    pub fn new() -> io::Result<Self> {
        let file = File::from(memfd_create("chronodisk-recording", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, RECORD_EVENTS_OFFSET as u64)?;
        // SAFETY: the file is not shared yet.
        let mut mapped = unsafe { MmapMut::map_mut(&file)? };
        // SAFETY: the mapping is as large and aligned to a page, and zeros are a header.
        let words = unsafe { &*mapped.as_mut_ptr().cast::<RecordingWords>() };
        for (number, word) in words.calls.iter().enumerate() {
            word.set(&Launcher, names::name(number).map_or(0, listed));
        }
        Ok(Recording { file: Arc::new(file), mapped: Arc::new(mapped), has_told: Arc::default() })
    }

    /// The first successful call that a replay can't make; reported once.
    pub(crate) fn unrecordable(&self) -> Option<&'static str> {
        // SAFETY: the mapping is as large and aligned to a page, and the words are atomic.
        let words = unsafe { &*self.mapped.as_ptr().cast::<RecordingWords>() };
        let number = usize::try_from(words.unrecordable.get().checked_sub(1)?).ok()?;
        let name = names::name(number)?;
        (!self.has_told.swap(true, Ordering::Relaxed)).then_some(name)
    }

    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// The trace of the records so far, of a file system at `mount` and a command that began in `directory`.
    ///
    /// # Errors
    /// If there are no records, or they are inconsistent.
    pub fn take(&self, clock: Clock, mount: &str, directory: &str) -> Result<CallTrace, RecordingError> {
        let mut bytes = Vec::new();
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut bytes)?;
        let word = |offset: usize| {
            let bytes = bytes.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        let state = word(std::mem::offset_of!(RecordingWords, state));
        let is_whole = match STATES.into_iter().find(|&known| known as u64 == state) {
            Some(RecorderState::Begun) => false,
            Some(RecorderState::Ended) => true,
            Some(RecorderState::Impossible) => return Err(RecordingError::UnknownKernel),
            Some(RecorderState::NotBegun) | None => return Err(RecordingError::NothingBegan),
        };
        let count = word(std::mem::offset_of!(RecordingWords, events_bytes)) as usize;
        let events = bytes.get(RECORD_EVENTS_OFFSET..).unwrap_or_default();
        let recorded = Recorded {
            events: &events[..count.min(events.len())],
            lost: word(std::mem::offset_of!(RecordingWords, lost)),
            is_whole,
            clock,
            mount,
            directory,
        };
        recorded.trace()
    }
}

const STATES: [RecorderState; 4] =
    [RecorderState::NotBegun, RecorderState::Begun, RecorderState::Ended, RecorderState::Impossible];

/// The clock's instructions for a call, in the form of the table.
fn listed(name: &str) -> u64 {
    let recorded = recorded_arguments(name);
    let place = |number: Option<usize>, what: Listed| number.map_or(0, |number| (number as u64 + 1) << what as u64);
    let [words, second_words] = recorded.words;
    place(recorded.paths[0], Listed::Path)
        | place(recorded.paths[1], Listed::SecondPath)
        | place(recorded.pair, Listed::Pair)
        | place(words.map(|(argument, _)| argument), Listed::Words)
        | place(words.map(|(_, count)| count), Listed::WordCount)
        | place(second_words.map(|(argument, _)| argument), Listed::SecondWords)
        | place(recorded.is_unsupported.then_some(0), Listed::Unsupported)
}

const _: () = assert!(size_of::<RecordingWords>() <= RECORD_EVENTS_OFFSET);
