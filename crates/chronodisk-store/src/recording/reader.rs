//! Reads recordings, also damaged ones.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::format::{self, Decoded, HEAD_BYTES, HEADER_BYTES};
use super::{Change, RecordedDevice, RecordedEntry};

/// Reason why a recording can't be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The host's error.
    #[error("{label}: can't read: {source}")]
    Io {
        /// Name of the recording.
        label: String,
        /// The host's error.
        source: io::Error,
    },
    /// The bytes are not a recording.
    #[error("{label}: not a recording of a store: {what}")]
    Header {
        /// Name of the recording.
        label: String,
        /// The field, with its found and expected values.
        what: String,
    },
    /// An entry is damaged.
    #[error("{label}: entry {entry} is damaged: {what}")]
    Damaged {
        /// Name of the recording.
        label: String,
        /// Number of the entry, counted from 1.
        entry: u64,
        /// The field, with its found and expected values.
        what: String,
    },
}

/// The entries of a recording, in order. After an error the iterator ends.
///
/// An entry takes memory up to its size in the file.
#[derive(Debug)]
pub struct Recording<R> {
    file: R,
    label: String,
    device: RecordedDevice,
    entries: u64,
    is_over: bool,
}

impl Recording<BufReader<File>> {
    /// Opens a recording.
    ///
    /// # Errors
    /// If the file can't be read, or does not begin as a recording does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let label = path.as_ref().display().to_string();
        let file = File::open(path).map_err(|source| RecordingError::Io { label: label.clone(), source })?;
        Recording::read(BufReader::new(file), label)
    }
}

impl<R: Read> Recording<R> {
    /// Reads a recording from bytes; errors mention `label`.
    ///
    /// # Errors
    /// If the bytes can't be read, or do not begin as a recording does.
    pub fn read(mut file: R, label: impl Into<String>) -> Result<Self, RecordingError> {
        let label = label.into();
        let mut header = Vec::with_capacity(HEADER_BYTES);
        let read = (&mut file).take(HEADER_BYTES as u64).read_to_end(&mut header);
        read.map_err(|source| RecordingError::Io { label: label.clone(), source })?;
        let device = match <&[u8; HEADER_BYTES]>::try_from(&header[..]) {
            Ok(header) => format::device_of(header),
            Err(_) => Err(format!("it has {} bytes; expected at least {HEADER_BYTES}", header.len())),
        };
        match device {
            Ok(device) => Ok(Recording { file, label, device, entries: 0, is_over: false }),
            Err(what) => Err(RecordingError::Header { label, what }),
        }
    }

    /// The recorded device.
    #[must_use]
    pub fn device(&self) -> RecordedDevice {
        self.device
    }

    /// The changes of the bytes alone.
    pub fn changes(self) -> impl Iterator<Item = Result<Change, RecordingError>> {
        self.filter_map(|entry| match entry {
            Ok(RecordedEntry::Change(change)) => Some(Ok(change)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn next_entry(&mut self) -> Result<Option<RecordedEntry>, RecordingError> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        self.fill(&mut head, HEAD_BYTES as u64)?;
        let (kind, len_bytes, expected) = (head[0], format::u32_at(&head, 1), format::u32_at(&head, 5));
        if len_bytes > format::PAYLOAD_BYTES_MAX {
            let most = format::PAYLOAD_BYTES_MAX;
            return Err(self.damaged(format!("the payload has {len_bytes} bytes; expected at most {most}")));
        }
        let mut payload = Vec::new();
        self.fill(&mut payload, u64::from(len_bytes))?;
        let found = format::checksum(kind, len_bytes, [&payload, &[]]);
        if found != expected {
            return Err(self.damaged(format!("the checksum is {found:08x}; expected {expected:08x}")));
        }
        match format::decode(kind, &payload, &self.device).map_err(|what| self.damaged(what))? {
            Decoded::Entry(entry) => {
                self.entries += 1;
                Ok(Some(entry))
            }
            Decoded::End(count) if count != self.entries => {
                Err(self.damaged(format!("the end counts {count} entries; expected {}", self.entries)))
            }
            Decoded::End(_) => {
                let mut rest = Vec::new();
                let read = (&mut self.file).take(1).read_to_end(&mut rest);
                match read.map_err(|source| self.unreadable(source))? {
                    0 => Ok(None),
                    _ => Err(self.damaged("bytes follow the end; expected none".to_owned())),
                }
            }
        }
    }

    /// Reads this number of bytes. The buffer grows with the bytes that are there, not with a damaged length.
    fn fill(&mut self, bytes: &mut Vec<u8>, len_bytes: u64) -> Result<(), RecordingError> {
        let read = (&mut self.file).take(len_bytes).read_to_end(bytes);
        let found = read.map_err(|source| self.unreadable(source))? as u64;
        match found == len_bytes {
            true => Ok(()),
            false => Err(self.damaged(format!("it is cut off after {found} bytes; expected {len_bytes}"))),
        }
    }

    fn unreadable(&self, source: io::Error) -> RecordingError {
        RecordingError::Io { label: self.label.clone(), source }
    }

    fn damaged(&self, what: String) -> RecordingError {
        RecordingError::Damaged { label: self.label.clone(), entry: self.entries + 1, what }
    }
}

impl<R: Read> Iterator for Recording<R> {
    type Item = Result<RecordedEntry, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.next_entry().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}
