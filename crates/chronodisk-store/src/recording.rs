//! A record of the changes to a store, to repeat them on another one.
//!
//! A record is a byte with the operation, offset and length as 64-bit little-endian numbers, and for a write the bytes.
//! Reads are not recorded.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::store_file::io_error;
use crate::{FileOperation, Store, StoreError, forward_to_store, len_of};

/// Forwards everything to a store, and records its changes.
pub struct RecordingStore {
    store: Box<dyn Store>,
    file: BufWriter<File>,
    path: PathBuf,
}

/// A change of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Bytes were written at an offset.
    Write(u64, Vec<u8>),
    /// Zeros were written: offset and length.
    WriteZeroes(u64, u64),
    /// Zeroes a range and reserves its space.
    ReserveZeroes(u64, u64),
    /// A range was given back.
    Discard(u64, u64),
    /// Makes all earlier changes durable.
    Flush,
}

impl Change {
    /// Applies the change to a store.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn apply(&self, store: &mut dyn Store) -> Result<(), StoreError> {
        match self {
            Change::Write(offset_bytes, bytes) => store.write(*offset_bytes, bytes),
            Change::WriteZeroes(offset_bytes, len_bytes) => store.write_zeroes(*offset_bytes, *len_bytes),
            Change::ReserveZeroes(offset_bytes, len_bytes) => store.reserve_zeroes(*offset_bytes, *len_bytes),
            Change::Discard(offset_bytes, len_bytes) => store.discard(*offset_bytes, *len_bytes),
            Change::Flush => store.flush(),
        }
    }
}

const WRITE: u8 = 1;
const WRITE_ZEROES: u8 = 2;
const RESERVE_ZEROES: u8 = 3;
const DISCARD: u8 = 4;
const FLUSH: u8 = 5;
/// No device gets longer requests.
const RECORD_BYTES_MAX: u64 = 1 << 30;

impl RecordingStore {
    /// Records the changes of `store` in a new file.
    ///
    /// # Errors
    /// [`StoreError::Io`], also if the file exists.
    pub fn new(store: Box<dyn Store>, path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let file = File::create_new(path).map_err(|source| io_error(path, FileOperation::Create, 0, 0, source))?;
        Ok(RecordingStore { store, file: BufWriter::new(file), path: path.to_owned() })
    }

    fn record(&mut self, kind: u8, offset_bytes: u64, len_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let parts = [&[kind][..], &offset_bytes.to_le_bytes(), &len_bytes.to_le_bytes(), bytes];
        let written = parts.into_iter().try_for_each(|part| self.file.write_all(part));
        written.map_err(|source| io_error(&self.path, FileOperation::Write, 0, len_bytes, source))
    }
}

impl Store for RecordingStore {
    forward_to_store!(self => self.store; capacity_bytes, read, extent, allocated_bytes, budget_bytes);
    forward_to_store!(self => self.store; statistics, measure_cpu, footprint, notices);

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.record(WRITE, offset_bytes, len_of(bytes), bytes)?;
        self.store.write(offset_bytes, bytes)
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.record(WRITE_ZEROES, offset_bytes, len_bytes, &[])?;
        self.store.write_zeroes(offset_bytes, len_bytes)
    }

    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.record(RESERVE_ZEROES, offset_bytes, len_bytes, &[])?;
        self.store.reserve_zeroes(offset_bytes, len_bytes)
    }

    fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.record(DISCARD, offset_bytes, len_bytes, &[])?;
        self.store.discard(offset_bytes, len_bytes)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.record(FLUSH, 0, 0, &[])?;
        self.store.flush()
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.file.flush().map_err(|source| io_error(&self.path, FileOperation::Write, 0, 0, source))?;
        self.store.close()
    }
}

/// The changes in a recording, in order.
#[derive(Debug)]
pub struct Recording {
    file: BufReader<File>,
}

impl Recording {
    /// Opens a recording.
    ///
    /// # Errors
    /// Errors of the host.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Recording { file: BufReader::new(File::open(path)?) })
    }

    fn read(&mut self) -> io::Result<Option<Change>> {
        let mut head = [0; 17];
        match self.file.read_exact(&mut head[..1]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        self.file.read_exact(&mut head[1..])?;
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (offset_bytes, len_bytes) = (number(1), number(9));
        Ok(Some(match head[0] {
            WRITE if len_bytes <= RECORD_BYTES_MAX => {
                let mut bytes = vec![0; len_bytes as usize];
                self.file.read_exact(&mut bytes)?;
                Change::Write(offset_bytes, bytes)
            }
            WRITE_ZEROES => Change::WriteZeroes(offset_bytes, len_bytes),
            RESERVE_ZEROES => Change::ReserveZeroes(offset_bytes, len_bytes),
            DISCARD => Change::Discard(offset_bytes, len_bytes),
            FLUSH => Change::Flush,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no recording of a store")),
        }))
    }
}

impl Iterator for Recording {
    type Item = io::Result<Change>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RamStore;

    #[test]
    fn what_was_recorded_makes_an_equal_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        let changes = [
            Change::Write(5000, vec![1, 2, 3]),
            Change::WriteZeroes(5001, 1),
            Change::Flush,
            Change::Write(100_000, vec![9; 9000]),
            Change::Discard(102_400, 4096),
            Change::ReserveZeroes(104_000, 100),
        ];
        let full = Box::new(RamStore::new(1 << 20, 1 << 20));
        let mut recording = RecordingStore::new(full, &path).unwrap();
        changes.iter().for_each(|change| change.apply(&mut recording).unwrap());
        recording.close().unwrap();
        let replayed: Vec<Change> = Recording::open(&path).unwrap().map(Result::unwrap).collect();
        assert_eq!(replayed, changes);
        let mut other = RamStore::new(1 << 20, 1 << 20);
        replayed.iter().for_each(|change| change.apply(&mut other).unwrap());
        let (mut expected, mut found) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        recording.read(0, &mut expected).unwrap();
        other.read(0, &mut found).unwrap();
        assert!(expected == found);
    }
}
