//! A request's work on the store, and the data that go along.

use chronodisk_sim::Request;
use chronodisk_store::{Store, StoreError, forward_to_store};

/// A request's work on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub kind: WorkKind,
    pub offset_bytes: u64,
    pub len_bytes: u64,
    /// Written data are safe when it ends.
    pub flush: bool,
}

/// Work on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    Nothing,
    Read,
    Write,
    Discard,
    WriteZeroes,
    /// Zeros that take space.
    ReserveZeroes,
}

impl WorkKind {
    pub fn moves_data(self) -> bool {
        matches!(self, WorkKind::Read | WorkKind::Write)
    }

    pub fn changes_contents(self) -> bool {
        !matches!(self, WorkKind::Nothing | WorkKind::Read)
    }
}

impl Work {
    pub fn reaches_store(&self) -> bool {
        self.kind != WorkKind::Nothing || self.flush
    }

    /// Does it, with the data that go along.
    pub fn perform<T: AsRef<[u8]>>(&self, lent: &mut Lent<T>, store: &mut dyn Store) -> Result<(), StoreError> {
        let (offset_bytes, len_bytes) = (self.offset_bytes, self.len_bytes);
        match self.kind {
            WorkKind::Read => store.read(offset_bytes, lent.room(len_bytes as usize)?)?,
            WorkKind::Write => store.write(offset_bytes, lent.bytes()?)?,
            WorkKind::Discard => store.discard(offset_bytes, len_bytes)?,
            WorkKind::ReserveZeroes => store.reserve_zeroes(offset_bytes, len_bytes)?,
            WorkKind::WriteZeroes => store.write_zeroes(offset_bytes, len_bytes)?,
            WorkKind::Nothing => {}
        }
        if self.flush { store.flush() } else { Ok(()) }
    }
}

/// The data of a request while a helper moves them.
pub(super) enum Lent<T> {
    Nothing,
    /// Data of a write.
    Write(T),
    /// Buffer for the data of a read.
    Read(Box<[u8]>),
}

impl<T: AsRef<[u8]>> Lent<T> {
    fn room(&mut self, len: usize) -> Result<&mut [u8], StoreError> {
        match self {
            Lent::Read(buffer) if buffer.len() >= len => Ok(&mut buffer[..len]),
            _ => Err(StoreError::Damaged { what: "the room for a read".to_owned() }),
        }
    }

    pub fn bytes(&self) -> Result<&[u8], StoreError> {
        match self {
            Lent::Write(payload) => Ok(payload.as_ref()),
            _ => Err(StoreError::Damaged { what: "the payload of a write".to_owned() }),
        }
    }
}

/// A request that may wait for the host's disk.
pub(super) struct Slow<T> {
    pub slot: u32,
    pub request: Request,
    pub work: Work,
    pub lent: Lent<T>,
    pub counted_bytes: u64,
}

/// A request's work on the store until its completion.
pub(super) struct Late<T> {
    pub work: Work,
    /// The place among the changes of all connections, if it is one.
    pub order: Option<u64>,
    /// The data of a write.
    pub lent: Lent<T>,
}

/// A store that is asked not to wait for a disk.
pub(super) struct Attempt<'a>(pub &'a mut dyn Store);

impl Store for Attempt<'_> {
    forward_to_store!(self => self.0; capacity_bytes, write_zeroes, reserve_zeroes, discard, extent, flush);
    forward_to_store!(self => self.0; allocated_bytes, budget_bytes);

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.0.try_read(offset_bytes, bytes)
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.0.try_write(offset_bytes, bytes)
    }
}
