//! Write pointers of zoned devices between runs: kept beside the file of the store, read before the guest starts, and
//! given to the model, whose zones begin as they were.

use std::error::Error;
use std::path::PathBuf;

use chronodisk_engine::ModelPort;
use chronodisk_front::vhost_user::VhostUserSession;
use chronodisk_sim::SECTOR_BYTES;
use chronodisk_store::{Durability, KeptZone, Store, ZoneFile, ZoneShape, discard_unwritten};

use crate::backend::durability;
use crate::filesystem::FileSystem;
use crate::launch::{DeviceOptions, StoreChoice};

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
    let (Some(zones), StoreChoice::File { path }) = (port.info().zones, &device.store) else { return Ok(None) };
    let count = u32::try_from(port.info().capacity_sectors / zones.size_sectors)?;
    let shape = ZoneShape { count, size_sectors: zones.size_sectors, capacity_sectors: zones.capacity_sectors };
    let beside = Beside { store: path.clone(), shape, durability: durability(device, port) };
    if !path.exists() {
        ZoneFile::open(path, true, &shape, beside.durability)?;
    }
    Ok(Some(beside))
}

impl Beside {
    /// Opens them after the store, which is in no other device's use then.
    pub(crate) fn open(self, store: &mut dyn Store) -> Result<(ZoneFile, Vec<KeptZone>), Box<dyn Error>> {
        let (file, zones) = ZoneFile::open(&self.store, false, &self.shape, self.durability)?;
        discard_unwritten(store, &self.shape, &zones)?;
        Ok((file, zones))
    }
}

/// The session and the model begin with these zones.
pub(crate) fn begin(
    session: &mut VhostUserSession,
    port: &mut ModelPort,
    kept: &[KeptZone],
    file: ZoneFile,
) -> Result<(), Box<dyn Error>> {
    let reports = session.keep_zones(kept, file)?;
    let begins = match port {
        ModelPort::Local(model) => model.begin_with_zones(&reports),
        ModelPort::Remote(_) => false,
    };
    match begins {
        true => Ok(()),
        false => Err("the device's model can't begin with zones that are written".into()),
    }
}
