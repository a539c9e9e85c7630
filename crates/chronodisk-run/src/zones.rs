//! The zones with which a run's devices began: kept in the run's directory, since the run changes the write pointers
//! beside the store, and read for a replay.

use chronodisk_device::{DeviceInfo, ZoneMap, ZoneReport};
use chronodisk_guest::{RunOptions, StoreChoice, ZonesBegan, zone_shape};
use chronodisk_report::{DeviceUsed, RunResult, ZonesFile};
use chronodisk_sim::SECTOR_BYTES;

use crate::failure::Failure;
use crate::folder::RunDirectory;
use crate::hash::hash_of;

/// Names the zones of each device that began with some of them written in the result. Returns their files.
pub(crate) fn name_began(result: &mut RunResult, options: &RunOptions, began: &[ZonesBegan]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for zones in began {
        let used = match zones.device {
            0 => &mut result.device,
            further => &mut result.further_devices[further - 1],
        };
        if let StoreChoice::File { path } = &options.devices[zones.device].store {
            used.zones_of = Some(path.display().to_string());
        }
        let (name, bytes) = (RunDirectory::zones_name(zones.device), zones.file());
        used.zones_began = Some(ZonesFile { file: name.clone(), hash: hash_of(bytes.iter().copied()) });
        files.push((name, bytes));
    }
    files
}

/// The zones with which this device of a run began; none if all were empty.
pub(crate) fn read(used: &DeviceUsed, directory: &RunDirectory, info: &DeviceInfo) -> Result<Vec<ZoneReport>, Failure> {
    let Some(began) = &used.zones_began else {
        return match &used.zones_of {
            None => Ok(Vec::new()),
            // Earlier versions kept no zones with a run.
            Some(file) => Err(Failure::usage(format!(
                "the run's zones began as {file}.zones had them, and the result does not name a copy (zones_began)"
            ))
            .help("run it again with this version, or with --store ram")),
        };
    };
    let (Some(shape), Some(layout)) = (zone_shape(info), info.zones) else {
        return Err(Failure::usage(format!("{} has no zones, but the run's device had", info.name)));
    };
    let bytes = directory.read_sized(&began.file, shape.file_bytes())?;
    let path = directory.path().join(&began.file);
    let wrong = |what: String| Failure::usage(format!("{}: {what}", path.display()));
    let kept = shape.decode(&bytes).map_err(wrong)?;
    let found = hash_of(bytes.iter().copied());
    if found != began.hash {
        return Err(wrong(format!("its hash is {found}; expected {} (zones_began.hash)", began.hash))
            .help("the file was changed after the run"));
    }
    let mut map = ZoneMap::new(layout, info.capacity_sectors);
    let zones: Vec<_> = kept.iter().map(|zone| (zone.written_sectors, zone.full)).collect();
    map.begin_with(&zones, u64::from(info.logical_block_bytes) / SECTOR_BYTES).map_err(wrong)?;
    Ok(map.reports().collect())
}
