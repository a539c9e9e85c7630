//! `chronodisk run --record-calls`: a trace of the program's system calls.

use std::collections::BTreeSet;
use std::path::PathBuf;

use chronodisk_guest::{FileSystem, Recording, RecordingError};
use chronodisk_report::write_calls;
use chronodisk_trace::calls;

use super::arguments::{Clock, Cpu, GuestArguments, Root};
use super::snapshot;
use crate::arguments::Reps;
use crate::failure::Failure;
use crate::notes::note;
use crate::place::expect_place;

/// A recording, and the file for its trace.
pub struct RecordedCalls {
    recording: Recording,
    file: PathBuf,
    clock: calls::Clock,
    free_computing: bool,
    mount: String,
    directory: String,
    file_system_uuid: Option<String>,
}

impl RecordedCalls {
    /// Prepares a recording to this file.
    pub fn prepare(file: PathBuf, guest: &GuestArguments) -> Result<Self, Failure> {
        if guest.fs == FileSystem::None {
            return Err(Failure::usage("--record-calls needs a file system; it can't be used with --fs none"));
        }
        if guest.root == Root::Device {
            return Err(Failure::usage("--record-calls can't be used with --root device: a replay has no other root"));
        }
        if guest.reps != Reps::Fixed(1) {
            return Err(Failure::usage("--record-calls records one run; it can't be used with --reps"));
        }
        expect_place(&file)?;
        let directory =
            std::env::current_dir().map_err(|error| Failure::host(format!("working directory: {error}")))?;
        let recording = Recording::new().map_err(|error| Failure::host(format!("--record-calls: {error}")))?;
        Ok(RecordedCalls {
            recording,
            file,
            clock: match guest.clock {
                Clock::Guest => calls::Clock::Guest,
                Clock::Exact => calls::Clock::Exact,
                Clock::Real => calls::Clock::Host,
            },
            free_computing: matches!((guest.clock, guest.cpu), (Clock::Exact, None | Some(Cpu::Zero))),
            mount: guest.mount.clone(),
            directory: directory.to_string_lossy().into_owned(),
            file_system_uuid: guest.snapshot.as_deref().map(snapshot::examine).transpose()?.map(|found| found.uuid),
        })
    }

    /// The recording, for the guest.
    pub(super) fn recording(&self) -> Recording {
        self.recording.clone()
    }

    /// Writes the recorded trace, also after a failed run.
    pub fn keep(&self) -> Result<(), Failure> {
        let mut trace = match self.recording.take(self.clock, &self.mount, &self.directory) {
            Ok(trace) => trace,
            // The run's own error gives the reason.
            Err(RecordingError::NothingBegan) => return Ok(()),
            Err(error) => return Err(Failure::host(&error)),
        };
        trace.header.free_computing = self.free_computing;
        trace.header.file_system_uuid.clone_from(&self.file_system_uuid);
        write_calls(&self.file, &trace).map_err(Failure::host)?;
        let tasks: BTreeSet<u32> = trace.records.iter().map(|record| record.task).collect();
        let (path, calls) = (self.file.display(), trace.records.len());
        note(format_args!("{path}: {calls} calls of {} tasks", tasks.len()));
        if let Some(missing) = trace.header.missing() {
            note(format_args!("warning: the trace is incomplete: {missing}"));
        }
        Ok(())
    }
}
