//! Records the requests of a device and the changes of its store.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronodisk_sim::{Nanos, Request, RequestId, Status};

use super::format::{self, Encoded};
use super::{Change, RecordedDevice};
use crate::store_file::io_error;
use crate::{FileData, FileOperation, Store, StoreError, forward_to_store, len_of};

/// Writes a recording. Clones write to the same one.
///
/// The store records its changes, and the front end records arrivals and completions. An error of the file is kept and
/// returned by the next change or by [`close`](Self::close).
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<Writer>>);

#[derive(Debug)]
struct Writer {
    file: BufWriter<File>,
    path: PathBuf,
    entries: u64,
    failure: Option<io::Error>,
    is_closed: bool,
}

impl Recorder {
    /// Begins a recording of `device` in a new file.
    ///
    /// # Errors
    /// [`StoreError::Io`], also if the file exists.
    pub fn create(path: impl AsRef<Path>, device: &RecordedDevice) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let file = File::create_new(path).map_err(|source| io_error(path, FileOperation::Create, 0, 0, source))?;
        let mut file = BufWriter::new(file);
        file.write_all(&format::header(device))
            .map_err(|source| io_error(path, FileOperation::Write, 0, format::HEADER_BYTES as u64, source))?;
        let writer = Writer { file, path: path.to_owned(), entries: 0, failure: None, is_closed: false };
        Ok(Recorder(Arc::new(Mutex::new(writer))))
    }

    /// Records a change of the store.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn changed(&self, change: &Change) -> Result<(), StoreError> {
        self.put_change(&format::change(change))
    }

    /// Records an arrival, after the changes of the request.
    pub fn arrived(&self, request: &Request, at: Nanos, failed: bool) {
        self.writer().put(&format::arrival(request, at, failed));
    }

    /// Records a completion.
    pub fn completed(&self, id: RequestId, at: Nanos, status: Status) {
        self.writer().put(&format::completion(id, at, status));
    }

    /// Ends the recording; later entries are dropped.
    ///
    /// # Errors
    /// [`StoreError::Io`], also of an earlier entry.
    pub fn close(&self) -> Result<(), StoreError> {
        let mut writer = self.writer();
        if !writer.is_closed {
            let entries = writer.entries;
            writer.put(&format::end(entries));
            writer.is_closed = true;
            let flushed = writer.file.flush();
            writer.note(flushed);
        }
        writer.result(0)
    }

    fn put_change(&self, encoded: &Encoded<'_>) -> Result<(), StoreError> {
        let mut writer = self.writer();
        writer.put(encoded);
        writer.result(len_of(encoded.2))
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    fn put(&mut self, (kind, fixed, data): &Encoded<'_>) {
        if self.is_closed || self.failure.is_some() {
            return;
        }
        let len_bytes = fixed.len() as u64 + len_of(data);
        let Some(len_bytes) = u32::try_from(len_bytes).ok().filter(|len| *len <= format::PAYLOAD_BYTES_MAX) else {
            let message = format!("an entry has {len_bytes} bytes; expected at most {}", format::PAYLOAD_BYTES_MAX);
            return self.note(Err(io::Error::new(io::ErrorKind::InvalidInput, message)));
        };
        let checksum = format::checksum(*kind, len_bytes, [fixed, data]);
        let parts = [&[*kind][..], &len_bytes.to_le_bytes(), &checksum.to_le_bytes(), fixed, data];
        let written = parts.into_iter().try_for_each(|part| self.file.write_all(part));
        self.entries += 1;
        self.note(written);
    }

    fn note(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            self.failure.get_or_insert(error);
        }
    }

    /// The error so far. It remains, because the recording is incomplete.
    fn result(&self, len_bytes: u64) -> Result<(), StoreError> {
        match &self.failure {
            None => Ok(()),
            Some(error) => {
                let source = io::Error::new(error.kind(), error.to_string());
                Err(io_error(&self.path, FileOperation::Write, 0, len_bytes, source))
            }
        }
    }
}

/// Forwards everything to a store, and records its changes.
pub struct RecordingStore {
    store: Box<dyn Store>,
    recorder: Recorder,
}

impl RecordingStore {
    /// Records the changes of `store`.
    #[must_use]
    pub fn new(store: Box<dyn Store>, recorder: Recorder) -> Self {
        RecordingStore { store, recorder }
    }
}

impl Store for RecordingStore {
    forward_to_store!(self => self.store; capacity_bytes, read, extent, allocated_bytes, budget_bytes);
    forward_to_store!(self => self.store; statistics, measure_cpu, footprint, notices);

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.store.write(offset_bytes, bytes)?;
        self.recorder.put_change(&format::write(offset_bytes, bytes))
    }

    fn write_with_file_data(
        &mut self,
        offset_bytes: u64,
        bytes: &[u8],
        file_data: &[FileData],
    ) -> Result<(), StoreError> {
        self.store.write_with_file_data(offset_bytes, bytes, file_data)?;
        self.recorder.put_change(&format::write(offset_bytes, bytes))
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.store.write_zeroes(offset_bytes, len_bytes)?;
        self.recorder.changed(&Change::WriteZeroes(offset_bytes, len_bytes))
    }

    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.store.reserve_zeroes(offset_bytes, len_bytes)?;
        self.recorder.changed(&Change::ReserveZeroes(offset_bytes, len_bytes))
    }

    fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.store.discard(offset_bytes, len_bytes)?;
        self.recorder.changed(&Change::Discard(offset_bytes, len_bytes))
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.store.flush()?;
        self.recorder.changed(&Change::Flush)
    }

    fn close(&mut self) -> Result<(), StoreError> {
        let recorded = self.recorder.close();
        self.store.close().and(recorded)
    }
}
