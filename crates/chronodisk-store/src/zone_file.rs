//! The write pointers of a zoned device, in a file beside its bytes.
//!
//! ```text
//!  offset  bytes  content
//!       0      8  "CDZONES\0"
//!       8      4  version: 1, or 2 if there are conventional zones
//!      12      4  number of zones
//!      16      8  size of a zone in sectors of 512 bytes
//!      24      8  sectors of a zone that can be written
//!      32      4  number of conventional zones, at the beginning of the device
//!   4,096    8 n  a word for each zone: the sectors written, and bit 63 if it is full
//! ```
//!
//! Numbers are little-endian. A word lies within a sector, so that a power cut leaves the old one or the new one. The
//! owner keeps a word after the zone's data: a zone's pointer is never ahead of its data where completed writes survive
//! a power cut. The word of a conventional zone, which has no pointer, is zero. Open zones are not told apart from
//! closed ones: no zone is open after a loss of power.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::host::{Host, OpenMode, RealHost};
use crate::image_files::append_name;
use crate::{Durability, FileOperation, Store, StoreError, StoreFile};

/// Zones of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneShape {
    /// Their number.
    pub count: u32,
    /// Distance between the beginnings of neighbouring zones, in sectors of 512 bytes.
    pub size_sectors: u64,
    /// Sectors that can be written, from the beginning of the zone on.
    pub capacity_sectors: u64,
    /// Zones at the beginning that are written anywhere.
    pub conventional: u32,
}

/// A zone without power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptZone {
    /// Sectors written, from the beginning of the zone on.
    pub written_sectors: u64,
    /// Nothing more can be written.
    pub full: bool,
}

/// The file with the write pointers of one device.
#[derive(Debug)]
pub struct ZoneFile {
    file: StoreFile,
    durability: Durability,
}

const MAGIC: &[u8; 8] = b"CDZONES\0";
/// Programs that know no conventional zones would discard their data: they refuse the second version.
const VERSION: u32 = 1;
const VERSION_CONVENTIONAL: u32 = 2;
const WORDS_AT: u64 = 4096;
const WORD_BYTES: u64 = 8;
const FULL: u64 = 1 << 63;
const SECTOR_BYTES: u64 = 512;

/// The file with the write pointers of the device whose bytes are in `store`.
#[must_use]
pub fn zones_path(store: &Path) -> PathBuf {
    append_name(store, ".zones")
}

impl ZoneFile {
    /// Opens the write pointers beside the file of a store, or makes them before a store that `is_new`, with all zones
    /// empty.
    ///
    /// # Errors
    /// [`StoreError::Incomplete`] if the pointers or the store are missing, [`StoreError::Image`] if the pointers are
    /// of other zones or damaged; [`StoreError::Io`].
    pub fn open(
        store: &Path,
        is_new: bool,
        shape: &ZoneShape,
        durability: Durability,
    ) -> Result<(Self, Vec<KeptZone>), StoreError> {
        let host: Arc<dyn Host> = Arc::new(RealHost);
        ZoneFile::open_on(&host, store, is_new, shape, durability)
    }

    /// Like [`open`](Self::open), with files of `host`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(
        host: &Arc<dyn Host>,
        store: &Path,
        is_new: bool,
        shape: &ZoneShape,
        durability: Durability,
    ) -> Result<(Self, Vec<KeptZone>), StoreError> {
        let path = zones_path(store);
        match (is_new, StoreFile::exists(host, &path)?) {
            (true, false) => {
                let file = StoreFile::open(host, &path, OpenMode::CreateNew)?;
                ZoneFile::make(file, shape, durability)
            }
            (false, false) => Err(StoreError::Incomplete {
                image: store.to_owned(),
                missing: vec![path],
                there: vec![store.to_owned()],
            }),
            (_, true) => {
                let opened = ZoneFile::open_existing(host, &path, shape, durability)?;
                // A killed creation leaves empty zones without the store.
                match is_new && opened.1.iter().any(|zone| *zone != KeptZone::default()) {
                    false => Ok(opened),
                    true => Err(StoreError::Incomplete {
                        image: store.to_owned(),
                        missing: vec![store.to_owned()],
                        there: vec![path],
                    }),
                }
            }
        }
    }

    /// All zones are empty.
    fn make(file: StoreFile, shape: &ZoneShape, durability: Durability) -> Result<(Self, Vec<KeptZone>), StoreError> {
        file.set_len(shape.file_bytes(), FileOperation::Create)?;
        file.write(0, &header(shape))?;
        if durability.power_cut {
            file.sync()?;
            file.sync_folder()?;
        }
        Ok((ZoneFile { file, durability }, vec![KeptZone::default(); shape.count as usize]))
    }

    fn open_existing(
        host: &Arc<dyn Host>,
        path: &Path,
        shape: &ZoneShape,
        durability: Durability,
    ) -> Result<(Self, Vec<KeptZone>), StoreError> {
        let damaged = |reason: String| StoreError::Image { path: path.to_owned(), reason };
        let file = StoreFile::open(host, path, OpenMode::ReadWrite)?;
        let len_bytes = shape.file_bytes();
        let found_bytes = file.size()?.len_bytes;
        let mut found = vec![0; HEADER_BYTES];
        if found_bytes >= HEADER_BYTES as u64 {
            file.read(0, &mut found)?;
        }
        // A killed creation leaves no header; the device has no data then.
        if found.iter().all(|&byte| byte == 0) && (found_bytes == 0 || found_bytes == len_bytes) {
            return ZoneFile::make(file, shape, durability);
        }
        let mut bytes = vec![0; found_bytes.min(len_bytes) as usize];
        file.read(0, &mut bytes)?;
        shape.check_header(&bytes, found_bytes).map_err(damaged)?;
        let zones = shape.decode(&bytes).map_err(damaged)?;
        Ok((ZoneFile { file, durability }, zones))
    }

    /// Keeps a zone's pointer, as safe as a completed write must be.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep(&self, zone: u32, kept: KeptZone) -> Result<(), StoreError> {
        self.file.write(WORDS_AT + u64::from(zone) * WORD_BYTES, &kept.word().to_le_bytes())?;
        match self.durability.write_through && self.durability.power_cut {
            true => self.file.sync(),
            false => Ok(()),
        }
    }

    /// Makes earlier pointers as safe as a completed flush must.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn flush(&self) -> Result<(), StoreError> {
        if self.durability.power_cut { self.file.sync() } else { Ok(()) }
    }
}

impl ZoneShape {
    /// Size of a file with the write pointers of these zones.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        WORDS_AT + u64::from(self.count) * WORD_BYTES
    }

    /// The contents of the file with these write pointers.
    #[must_use]
    pub fn encode(&self, zones: &[KeptZone]) -> Vec<u8> {
        let mut bytes = header(self);
        bytes.resize(WORDS_AT as usize, 0);
        bytes.extend(zones.iter().flat_map(|zone| zone.word().to_le_bytes()));
        bytes
    }

    /// The write pointers in the contents of a file.
    ///
    /// # Errors
    /// The first field that does not fit these zones.
    pub fn decode(&self, bytes: &[u8]) -> Result<Vec<KeptZone>, String> {
        self.check_header(bytes, bytes.len() as u64)?;
        let words = bytes[WORDS_AT as usize..].chunks_exact(WORD_BYTES as usize);
        let mut zones = Vec::with_capacity(self.count as usize);
        for (number, word) in words.enumerate() {
            let zone = KeptZone::of_word(u64::from_le_bytes(word.try_into().expect("eight bytes")));
            if number < self.conventional as usize && zone != KeptZone::default() {
                return Err(format!("zone {number} is conventional, and has a write pointer"));
            }
            if zone.written_sectors > self.capacity_sectors {
                let (found, most) = (zone.written_sectors, self.capacity_sectors);
                return Err(format!("zone {number} has {found} sectors written; expected at most {most}"));
            }
            zones.push(zone);
        }
        Ok(zones)
    }

    fn version(&self) -> u32 {
        if self.conventional > 0 { VERSION_CONVENTIONAL } else { VERSION }
    }

    /// Whether a file of this size that begins with `bytes` is of these zones.
    fn check_header(&self, bytes: &[u8], len_bytes: u64) -> Result<(), String> {
        let wrong = |found: String, expected: String| Err(format!("{found}; expected {expected}"));
        let Some(found) = bytes.get(..HEADER_BYTES) else {
            return wrong(format!("{len_bytes} bytes of write pointers"), self.file_bytes().to_string());
        };
        if found[..8] != *MAGIC {
            return Err("the magic number of a file of write pointers is missing".to_owned());
        }
        let number =
            |range: Range<usize>| found[range].iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        let fields = [
            ("conventional zones", 32..36, u64::from(self.conventional)),
            ("version", 8..12, self.version().into()),
            ("number of zones", 12..16, self.count.into()),
            ("sectors of a zone", 16..24, self.size_sectors),
            ("writable sectors of a zone", 24..32, self.capacity_sectors),
        ];
        for (name, range, expected) in fields {
            let found = number(range);
            if found != expected {
                return wrong(format!("{name}: {found}"), expected.to_string());
            }
        }
        match len_bytes == self.file_bytes() {
            true => Ok(()),
            false => wrong(format!("{len_bytes} bytes of write pointers"), self.file_bytes().to_string()),
        }
    }
}

impl KeptZone {
    fn word(self) -> u64 {
        self.written_sectors | if self.full { FULL } else { 0 }
    }

    fn of_word(word: u64) -> Self {
        KeptZone { written_sectors: word & !FULL, full: word & FULL != 0 }
    }
}

const HEADER_BYTES: usize = 36;

fn header(shape: &ZoneShape) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(shape.version().to_le_bytes());
    bytes.extend(shape.count.to_le_bytes());
    bytes.extend(shape.size_sectors.to_le_bytes());
    bytes.extend(shape.capacity_sectors.to_le_bytes());
    bytes.extend(shape.conventional.to_le_bytes());
    bytes
}

/// Discards data beyond the pointers: a write that a kill or a power cut has interrupted must not be read. Conventional
/// zones, which have no pointer, keep their data.
///
/// # Errors
/// [`StoreError::Io`].
pub fn discard_unwritten(store: &mut dyn Store, shape: &ZoneShape, zones: &[KeptZone]) -> Result<(), StoreError> {
    for (number, zone) in (0_u64..).zip(zones).skip(shape.conventional as usize) {
        let begin = number * shape.size_sectors + zone.written_sectors;
        let end = (number + 1) * shape.size_sectors;
        let (offset_bytes, len_bytes) = (begin * SECTOR_BYTES, (end - begin) * SECTOR_BYTES);
        if len_bytes == 0 {
            continue;
        }
        // Most zones have nothing there, and a durable store synchronises each discard.
        let extent = store.extent(offset_bytes, len_bytes)?;
        if extent.allocated || extent.len_bytes < len_bytes {
            store.discard(offset_bytes, len_bytes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileStore;
    use crate::simulated::{SimulatedHost, SimulatedOptions};

    const SHAPE: ZoneShape = ZoneShape { count: 4, size_sectors: 64, capacity_sectors: 40, conventional: 0 };
    const DURABLE: Durability = Durability { write_through: true, power_cut: true };

    struct Zoned {
        store: FileStore,
        file: ZoneFile,
        zones: Vec<KeptZone>,
    }

    impl Zoned {
        fn open(host: &Arc<dyn Host>) -> Result<Self, StoreError> {
            Zoned::open_shaped(host, &SHAPE)
        }

        fn open_shaped(host: &Arc<dyn Host>, shape: &ZoneShape) -> Result<Self, StoreError> {
            let path = Path::new("/disk");
            let is_new = !StoreFile::exists(host, path)?;
            let bytes = u64::from(SHAPE.count) * SHAPE.size_sectors * SECTOR_BYTES;
            // The pointers come first: a store without them would be refused.
            if is_new {
                ZoneFile::open_on(host, path, true, shape, DURABLE)?;
            }
            let mut store = match is_new {
                true => FileStore::create_on(host, path, bytes, DURABLE)?,
                false => FileStore::open_on(host, path, bytes, DURABLE)?,
            };
            let (file, zones) = ZoneFile::open_on(host, path, false, shape, DURABLE)?;
            discard_unwritten(&mut store, shape, &zones)?;
            Ok(Zoned { store, file, zones })
        }

        /// Writes a sector at the pointer of a zone, or resets the zone if it is full.
        fn step(&mut self, zone: u32, mark: u8) -> Result<(), StoreError> {
            let kept = &mut self.zones[zone as usize];
            let begin = u64::from(zone) * SHAPE.size_sectors;
            if kept.written_sectors == SHAPE.capacity_sectors {
                self.file.keep(zone, KeptZone::default())?;
                self.store.discard(begin * SECTOR_BYTES, SHAPE.capacity_sectors * SECTOR_BYTES)?;
                *kept = KeptZone::default();
                return Ok(());
            }
            let at = begin + kept.written_sectors;
            self.store.write(at * SECTOR_BYTES, &[mark; SECTOR_BYTES as usize])?;
            kept.written_sectors += 1;
            kept.full = kept.written_sectors == SHAPE.capacity_sectors;
            self.file.keep(zone, *kept)
        }
    }

    fn host(seed: u64) -> SimulatedHost {
        SimulatedHost::new(&SimulatedOptions::new(seed))
    }

    #[test]
    fn pointers_are_there_again() {
        let simulated = host(1);
        let host: Arc<dyn Host> = Arc::new(simulated.clone());
        let mut zoned = Zoned::open(&host).unwrap();
        for step in 0..50 {
            zoned.step(step % 3, 1).unwrap();
        }
        let before = zoned.zones.clone();
        drop(zoned);
        assert_eq!(Zoned::open(&host).unwrap().zones, before);
        let other = ZoneShape { capacity_sectors: 41, ..SHAPE };
        let refused = ZoneFile::open_on(&host, Path::new("/disk"), false, &other, DURABLE).unwrap_err();
        assert!(refused.to_string().contains("writable sectors of a zone: 40; expected 41"), "{refused}");
        let missing = ZoneFile::open_on(&host, Path::new("/disk"), true, &SHAPE, DURABLE).unwrap_err();
        assert!(missing.to_string().contains("/disk is missing, but /disk.zones is there"), "{missing}");
        host.remove(Path::new("/disk.zones")).unwrap();
        let missing = ZoneFile::open_on(&host, Path::new("/disk"), false, &SHAPE, DURABLE).unwrap_err();
        assert!(missing.to_string().contains("/disk.zones is missing, but /disk is there"), "{missing}");
    }

    #[test]
    fn contents_are_decoded_or_refused() {
        let kept = |written_sectors, full| KeptZone { written_sectors, full };
        let zones = [kept(0, false), kept(7, false), kept(40, true), kept(3, true)];
        let sound = SHAPE.encode(&zones);
        assert_eq!(sound.len() as u64, SHAPE.file_bytes());
        assert_eq!(SHAPE.decode(&sound).unwrap(), zones);
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = sound.clone();
            change(&mut bytes);
            SHAPE.decode(&bytes).unwrap_err()
        };
        let messages = [
            (refused(&|bytes| bytes.truncate(35)), "35 bytes of write pointers; expected 4128"),
            (refused(&|bytes| bytes.truncate(4127)), "4127 bytes of write pointers; expected 4128"),
            (refused(&|bytes| bytes.push(0)), "4129 bytes of write pointers; expected 4128"),
            (refused(&|bytes| bytes[0] = 0), "the magic number of a file of write pointers is missing"),
            (refused(&|bytes| bytes[11] = 1), "version: 16777217; expected 1"),
            (refused(&|bytes| bytes[12] = 5), "number of zones: 5; expected 4"),
            (refused(&|bytes| bytes[16] = 65), "sectors of a zone: 65; expected 64"),
            (refused(&|bytes| bytes[24] = 41), "writable sectors of a zone: 41; expected 40"),
            (refused(&|bytes| bytes[4104] = 41), "zone 1 has 41 sectors written; expected at most 40"),
        ];
        for (found, expected) in messages {
            assert_eq!(found, expected);
        }
        // Any change of a byte is refused, or gives zones within their capacity.
        for (place, bit) in (0..sound.len()).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
            let mut bytes = sound.clone();
            bytes[place] ^= 1 << bit;
            let zones = SHAPE.decode(&bytes).unwrap_or_default();
            assert!(zones.iter().all(|zone| zone.written_sectors <= 40), "byte {place}, bit {bit}");
        }
    }

    #[test]
    fn conventional_zones_have_no_pointer() {
        let shape = ZoneShape { conventional: 1, ..SHAPE };
        let mut zones = vec![KeptZone::default(), KeptZone { written_sectors: 7, full: false }];
        zones.resize(4, KeptZone::default());
        let sound = shape.encode(&zones);
        assert_eq!((sound[8], sound[32]), (2, 1), "a version that older programs refuse");
        assert_eq!(shape.decode(&sound).unwrap(), zones);
        assert_eq!(SHAPE.decode(&sound).unwrap_err(), "conventional zones: 1; expected 0");
        assert_eq!(shape.decode(&SHAPE.encode(&zones)).unwrap_err(), "conventional zones: 0; expected 1");
        for place in [4096, 4103] {
            let mut bytes = sound.clone();
            bytes[place] ^= 0x80;
            assert_eq!(shape.decode(&bytes).unwrap_err(), "zone 0 is conventional, and has a write pointer");
        }
    }

    /// Data anywhere in a conventional zone are no data beyond a pointer.
    #[test]
    fn completed_writes_to_conventional_zones_stay_after_any_power_cut() {
        use crate::simulated::{Call, Fault};
        let shape = ZoneShape { conventional: 2, ..SHAPE };
        let mut cuts = 0;
        for seed in 0..200 {
            let simulated = host(seed);
            let host: Arc<dyn Host> = Arc::new(simulated.clone());
            let fault = if seed % 2 == 0 { Fault::PowerCut } else { Fault::Kill };
            let mut expected = vec![0_u8; 128];
            let mut changing = None;
            simulated.inject(Call::Any, 1 + seed * 7 % 500, fault);
            if let Ok(mut zoned) = Zoned::open_shaped(&host, &shape) {
                for step in 0..300_u32 {
                    let mark = 1 + (step % 200) as u8;
                    if step % 3 == 0 {
                        match zoned.step(2 + step % 2, mark) {
                            Ok(()) => continue,
                            Err(_) => break,
                        }
                    }
                    let sector = (step * step * 7 % 128) as usize;
                    changing = Some(sector);
                    if zoned.store.write(sector as u64 * SECTOR_BYTES, &[mark; SECTOR_BYTES as usize]).is_err() {
                        break;
                    }
                    expected[sector] = mark;
                    changing = None;
                }
            }
            cuts += u32::from(simulated.is_dead());
            simulated.repair();
            simulated.restart();
            let mut again = Zoned::open_shaped(&host, &shape).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let mut bytes = vec![0; expected.len() * SECTOR_BYTES as usize];
            again.store.read(0, &mut bytes).unwrap();
            for (sector, (bytes, expected)) in bytes.chunks_exact(SECTOR_BYTES as usize).zip(expected).enumerate() {
                if changing != Some(sector) {
                    assert!(bytes.iter().all(|&byte| byte == expected), "seed {seed}, sector {sector}");
                }
            }
        }
        assert!(cuts > 100, "{cuts} cuts");
    }

    #[test]
    fn completed_writes_are_below_the_pointer_after_any_power_cut() {
        use crate::simulated::{Call, Fault};
        let mut cuts = 0;
        for seed in 0..400 {
            let simulated = host(seed);
            let host: Arc<dyn Host> = Arc::new(simulated.clone());
            let fault = if seed % 2 == 0 { Fault::PowerCut } else { Fault::Kill };
            let mut expected = vec![KeptZone::default(); SHAPE.count as usize];
            let mut changing = None;
            simulated.inject(Call::Any, 1 + seed * 7 % 500, fault);
            if let Ok(mut zoned) = Zoned::open(&host) {
                for step in 0..300_u32 {
                    let zone = step * step % SHAPE.count;
                    changing = Some(zone);
                    if zoned.step(zone, 1 + (step % 200) as u8).is_err() {
                        break;
                    }
                    expected.clone_from(&zoned.zones);
                    changing = None;
                }
            }
            cuts += u32::from(simulated.is_dead());
            simulated.repair();
            simulated.restart();
            let mut again = Zoned::open(&host).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            for zone in 0..SHAPE.count {
                let (found, expected) = (again.zones[zone as usize], expected[zone as usize]);
                if changing != Some(zone) {
                    assert_eq!(found, expected, "seed {seed}, zone {zone}");
                }
                let mut bytes = vec![0; (SHAPE.size_sectors * SECTOR_BYTES) as usize];
                let at = u64::from(zone) * SHAPE.size_sectors * SECTOR_BYTES;
                again.store.read(at, &mut bytes).unwrap();
                for (sector, bytes) in (0..).zip(bytes.chunks_exact(SECTOR_BYTES as usize)) {
                    let written = sector < found.written_sectors;
                    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "seed {seed}: a torn sector");
                    assert_eq!(bytes[0] != 0, written, "seed {seed}, zone {zone}, sector {sector}, {found:?}");
                }
            }
        }
        assert!(cuts > 200, "{cuts} cuts");
    }
}
