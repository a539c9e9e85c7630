//! A client that remembers all acknowledgements.
//!
//! It knows each sector's possible contents now, and those after the end of the process or the power. The rules:
//!
//! * A successful write, zeroing or discard is visible now. Without a volatile cache it is there afterwards; with one
//!   either it or any earlier possibility is.
//! * A failed one may have changed each of its sectors, or none.
//! * After a successful flush or orderly end the present contents are also those afterwards; a failed one promises
//!   nothing.
//! * After a failed synchronisation the sectors that it may have covered are old or new, for readers too, until they
//!   are written again.

use chronodisk_store::{Durability, FileOperation, StoreError};

pub const SECTOR_BYTES: u64 = 512;

/// Content of a sector: zero for zeros, or the number of the write.
type Value = u64;

#[derive(Clone, Debug)]
struct Sector {
    now: Vec<Value>,
    afterwards: Vec<Value>,
    /// Whether a synchronisation of it failed; the success of a later one then has no meaning.
    lost: bool,
}

pub struct Client {
    sectors: Vec<Sector>,
    next: Value,
    pub durability: Durability,
}

impl Client {
    pub fn new(capacity_bytes: u64, durability: Durability) -> Self {
        let sector = Sector { now: vec![0], afterwards: vec![0], lost: false };
        Client { sectors: vec![sector; (capacity_bytes / SECTOR_BYTES) as usize], next: 1, durability }
    }

    pub fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// The bytes of the next write, and their number.
    pub fn compose(&mut self, sector: u64, count: u64) -> (Value, Vec<u8>) {
        let value = self.next;
        self.next += 1;
        let mut bytes = vec![0; (count * SECTOR_BYTES) as usize];
        for (index, part) in bytes.chunks_mut(SECTOR_BYTES as usize).enumerate() {
            fill(part, value, sector + index as u64);
        }
        (value, bytes)
    }

    /// Notes the end of a write, zeroing or discard.
    pub fn changed(&mut self, sector: u64, count: u64, value: Value, result: &Result<(), StoreError>) {
        let write_through = self.durability.write_through;
        for sector in &mut self.sectors[sector as usize..(sector + count) as usize] {
            match result {
                Ok(()) => {
                    sector.now = vec![value];
                    sector.lost = false;
                    if write_through {
                        sector.afterwards = vec![value];
                    } else {
                        add(&mut sector.afterwards, value);
                    }
                }
                Err(_) => {
                    add(&mut sector.now, value);
                    add(&mut sector.afterwards, value);
                }
            }
        }
        self.note_failed_sync(result);
    }

    /// Notes the end of a flush or of an orderly end.
    pub fn flushed(&mut self, result: &Result<(), StoreError>) {
        if result.is_ok() {
            for sector in self.sectors.iter_mut().filter(|sector| !sector.lost) {
                sector.afterwards.clone_from(&sector.now);
            }
        }
        self.note_failed_sync(result);
    }

    fn note_failed_sync(&mut self, result: &Result<(), StoreError>) {
        if !matches!(result, Err(StoreError::Io { operation: FileOperation::Sync, .. })) {
            return;
        }
        for sector in self.sectors.iter_mut().filter(|sector| sector.now != sector.afterwards || sector.now.len() > 1) {
            let Sector { now, afterwards, lost } = sector;
            now.iter().for_each(|value| add(afterwards, *value));
            now.clone_from(afterwards);
            *lost = true;
        }
    }

    /// The process or the power has ended: the possible contents afterwards become the present ones. A power cut drops
    /// the data of a failed synchronisation from the host's memory.
    pub fn ended(&mut self, power_cut: bool) {
        for sector in &mut self.sectors {
            sector.now.clone_from(&sector.afterwards);
            sector.lost &= !power_cut;
        }
    }

    /// Compares the bytes of a successful read. Returns the wrong sector and its fault.
    pub fn read(&mut self, first: u64, bytes: &[u8]) -> Result<(), String> {
        let mut expected = [0; SECTOR_BYTES as usize];
        for (number, contents) in (first..).zip(bytes.chunks(SECTOR_BYTES as usize)) {
            let sector = &mut self.sectors[number as usize];
            let found = sector.now.iter().copied().find(|value| {
                fill(&mut expected, *value, number);
                expected == contents
            });
            match found {
                // A value that was read stays, until another one becomes possible.
                Some(value) if !sector.lost => sector.now = vec![value],
                Some(_) => {}
                None => {
                    let first = u64::from_le_bytes(contents[..8].try_into().expect("eight bytes"));
                    let possible = &sector.now;
                    return Err(format!("sector {number} begins with write {first}, expected one of {possible:?}"));
                }
            }
        }
        Ok(())
    }

    /// Values read are on the disk: the power was cut, or it never is.
    pub fn settle(&mut self) {
        for sector in &mut self.sectors {
            sector.afterwards.clone_from(&sector.now);
        }
    }
}

fn add(values: &mut Vec<Value>, value: Value) {
    if !values.contains(&value) {
        values.push(value);
    }
}

/// Fills a sector with contents without accidental zeros, different for each value and sector.
fn fill(bytes: &mut [u8], value: Value, sector: u64) {
    if value == 0 {
        bytes.fill(0);
        return;
    }
    let mut word = value;
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&word.to_le_bytes());
        word = (word ^ sector.rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) | 1;
    }
}
