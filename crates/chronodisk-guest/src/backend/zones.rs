//! Write pointers of zoned devices between runs: kept beside the file of the store, read before the guest starts, and
//! given to the model, whose zones begin as they were.

use std::error::Error;
use std::path::PathBuf;

use chronodisk_engine::ModelPort;
use chronodisk_front::vhost_user::VhostUserSession;
use chronodisk_sim::SECTOR_BYTES;
use chronodisk_store::{Durability, KeptZone, Store, ZoneFile, ZoneShape, discard_unwritten};

use super::stores::durability;
use crate::shared::device_options::{DeviceOptions, StoreChoice};
use crate::shared::filesystem::FileSystem;
use crate::shared::zones::{ZonesBegan, zone_shape};

/// Size of a zone in bytes, if the device has zones.
pub(crate) fn zone_bytes(port: &ModelPort) -> Option<u64> {
    port.info().zones.map(|zones| zones.size_sectors * SECTOR_BYTES)
}

/// The block size that all devices show at least: mkfs.f2fs refuses devices of different ones together. Zero if each
/// has its own.
pub(crate) fn common_block_bytes(file_system: FileSystem, ports: &[ModelPort]) -> u32 {
    let is_joined = file_system == FileSystem::F2fs && ports.iter().any(|port| port.info().zones.is_some());
    let sizes = ports.iter().map(|port| port.info().logical_block_bytes);
    if is_joined { sizes.max().unwrap_or(0) } else { 0 }
}

/// Write pointers that belong beside the file of a store.
pub(crate) struct Beside {
    store: PathBuf,
    shape: ZoneShape,
    durability: Durability,
}

/// Write pointers beside the store of a zoned device in a file. Those of a new store are made before it: a store
/// without them is refused.
pub(crate) fn expect_beside(device: &DeviceOptions, port: &ModelPort) -> Result<Option<Beside>, Box<dyn Error>> {
    let (Some(shape), StoreChoice::File { path }) = (zone_shape(port.info()), &device.store) else { return Ok(None) };
    let beside = Beside { store: path.clone(), shape, durability: durability(device, port) };
    if !path.exists() {
        ZoneFile::open(path, true, &shape, beside.durability)?;
    }
    Ok(Some(beside))
}

impl Beside {
    /// Opens them after the store, which is in no other device's use then.
    pub(crate) fn open(self, store: &mut dyn Store) -> Result<Kept, Box<dyn Error>> {
        let (file, zones) = ZoneFile::open(&self.store, false, &self.shape, self.durability)?;
        discard_unwritten(store, &self.shape, &zones)?;
        Ok(Kept { file, shape: self.shape, zones })
    }
}

/// Write pointers beside a store, as they were when it was opened.
pub(crate) struct Kept {
    file: ZoneFile,
    shape: ZoneShape,
    zones: Vec<KeptZone>,
}

impl Kept {
    /// The zones with which this device begins, if any of them is written.
    pub(crate) fn began(&self, device: usize) -> Option<ZonesBegan> {
        ZonesBegan::of(device, &self.shape, &self.zones)
    }
}

/// The session and the model begin with these zones.
pub(crate) fn begin(session: &mut VhostUserSession, port: &mut ModelPort, kept: Kept) -> Result<(), Box<dyn Error>> {
    let reports = session.keep_zones(&kept.zones, kept.file)?;
    let begins = match port {
        ModelPort::Local(model) => model.begin_with_zones(&reports),
        ModelPort::Remote(_) => false,
    };
    match begins {
        true => Ok(()),
        false => Err("the device's model can't begin with zones that are written".into()),
    }
}
