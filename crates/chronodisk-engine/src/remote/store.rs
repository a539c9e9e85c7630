//! A device's bytes at an emulator server.

use std::io;
use std::path::PathBuf;

use chronodisk_store::{FileOperation, Store, StoreError};

use super::link::{SharedLink, lock};
use crate::fault::ModelFault;
use crate::protocol::{Answer, CLEAR_BYTES_MAX, Clear, Command, DATA_BYTES_MAX, ErrorCode};

/// A store at the other end of a link. A failure there is an I/O error of the request; a failure of the link is also a
/// fault of its model.
pub struct RemoteStore {
    link: SharedLink,
    capacity_bytes: u64,
}

impl RemoteStore {
    pub(super) fn new(link: SharedLink, capacity_bytes: u64) -> Self {
        RemoteStore { link, capacity_bytes }
    }

    fn done(&self, command: Command, part: Part) -> Result<(), StoreError> {
        let mut link = lock(&self.link);
        let answer = link.call(command).map_err(|fault| part.failed(&fault))?;
        match answer {
            Answer::Done => Ok(()),
            answer => Err(part.refused(&mut link, &answer)),
        }
    }

    fn check(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        let capacity_bytes = self.capacity_bytes;
        match offset_bytes.checked_add(len_bytes) {
            Some(end) if end <= capacity_bytes => Ok(()),
            _ => Err(StoreError::OutOfRange { offset_bytes, len_bytes, capacity_bytes }),
        }
    }

    fn clear(&mut self, how: Clear, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.check(offset_bytes, len_bytes)?;
        let end = offset_bytes + len_bytes;
        let mut offset_bytes = offset_bytes;
        while offset_bytes < end {
            let len_bytes = (end - offset_bytes).min(CLEAR_BYTES_MAX);
            let part = Part { operation: FileOperation::Punch, offset_bytes, len_bytes };
            self.done(Command::Clear { how, offset_bytes, len_bytes }, part)?;
            offset_bytes += len_bytes;
        }
        Ok(())
    }
}

/// The operation that was tried, for errors.
#[derive(Clone, Copy)]
struct Part {
    operation: FileOperation,
    offset_bytes: u64,
    len_bytes: u64,
}

impl Part {
    fn failed(self, fault: &ModelFault) -> StoreError {
        self.error(&fault.who, &fault.what)
    }

    fn refused(self, link: &mut super::Link, answer: &Answer) -> StoreError {
        match answer {
            Answer::Error { code: ErrorCode::Store, reason } => self.error(link.who(), reason),
            answer => self.failed(&link.refused(answer)),
        }
    }

    fn error(self, who: &str, what: &str) -> StoreError {
        let Part { operation, offset_bytes, len_bytes } = self;
        StoreError::Io { path: PathBuf::from(who), operation, offset_bytes, len_bytes, source: io::Error::other(what) }
    }
}

impl Store for RemoteStore {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.check(offset_bytes, bytes.len() as u64)?;
        let mut offset_bytes = offset_bytes;
        for piece in bytes.chunks_mut(DATA_BYTES_MAX) {
            let part = Part { operation: FileOperation::Read, offset_bytes, len_bytes: piece.len() as u64 };
            let mut link = lock(&self.link);
            let command = Command::Read { offset_bytes, len_bytes: piece.len() as u32 };
            match link.call(command).map_err(|fault| part.failed(&fault))? {
                Answer::Data(data) => piece.copy_from_slice(&data),
                answer => return Err(part.refused(&mut link, &answer)),
            }
            offset_bytes += piece.len() as u64;
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.check(offset_bytes, bytes.len() as u64)?;
        let mut offset_bytes = offset_bytes;
        for piece in bytes.chunks(DATA_BYTES_MAX) {
            let part = Part { operation: FileOperation::Write, offset_bytes, len_bytes: piece.len() as u64 };
            self.done(Command::Write { offset_bytes, data: piece.to_vec() }, part)?;
            offset_bytes += piece.len() as u64;
        }
        Ok(())
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear(Clear::WriteZeroes, offset_bytes, len_bytes)
    }

    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear(Clear::Reserve, offset_bytes, len_bytes)
    }

    fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.clear(Clear::Discard, offset_bytes, len_bytes)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let part = Part { operation: FileOperation::Sync, offset_bytes: 0, len_bytes: 0 };
        self.done(Command::Flush, part)
    }

    /// This machine stores no bytes.
    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn budget_bytes(&self) -> Option<u64> {
        None
    }
}
