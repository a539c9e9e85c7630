//! A real device with a model beside it: the model-only mode of Agrawal et al., "Emulating Goliath
//! Storage Systems with David" (ACM TOS 7(4), 2012), section 6.1.

use std::path::Path;

use chronodisk_engine::twin;
use chronodisk_report::{Fidelity, ServedTwice, ShadowResult, plot_fidelity, read_log};
use chronodisk_sim::{Nanos, SECTOR_BYTES};
use chronodisk_store::{DeviceStore, Store};

use super::arguments::ServeArguments;
use crate::device::{self, Device};
use crate::failure::Failure;
use crate::notes::note;

/// A real device to be served.
pub struct Target {
    pub name: String,
    pub store: DeviceStore,
}

/// Opens the real device.
pub fn open(arguments: &ServeArguments, path: &Path) -> Result<Target, Failure> {
    let store = DeviceStore::open(path, arguments.read_only).map_err(|error| {
        Failure::usage(format!("--shadow {error}"))
            .help("the device must exist and be unused; add --read-only for a mounted device")
    })?;
    if store.capacity_bytes() == 0 {
        return Err(Failure::usage(format!("--shadow {}: expected at least 4 KiB", path.display())));
    }
    if !store.is_direct() {
        note(format_args!(
            "warning: {}: this file system does not support O_DIRECT, so requests are served from the host's page cache",
            path.display()
        ));
    }
    Ok(Target { name: path.display().to_string(), store })
}

/// The model beside it, with the same capacity unless the model's is fixed.
pub fn model(arguments: &ServeArguments, target: &Target) -> Result<Device, Failure> {
    if arguments.on.capacity.is_none()
        && let Ok(device) = device::load_one(&arguments.device, target.store.capacity_bytes(), arguments.on.seed)
    {
        return Ok(device);
    }
    device::load(&arguments.device, arguments.on.capacity, arguments.on.seed)?.without_zones()
}

/// Size offered to clients: the smaller of the two.
pub fn size_bytes(target: &Target, device: &Device) -> u64 {
    let model_bytes = device.info().capacity_sectors * SECTOR_BYTES;
    let block_bytes = u64::from(target.store.block_bytes().max(device.info().logical_block_bytes));
    let least_bytes = model_bytes.min(target.store.capacity_bytes());
    least_bytes - least_bytes % block_bytes
}

/// Description of the real device, after it was moved.
pub struct Described {
    pub name: String,
    pub direct: bool,
}

/// Compares the device's times with the model's, from the log.
pub fn compare(
    arguments: &ServeArguments,
    device: &Device,
    target: Described,
    log: &Path,
) -> Result<ShadowResult, Failure> {
    let records = read_log(log).map_err(Failure::host)?;
    let completed = records.iter().filter(|record| record.is_completed() && record.due != Nanos::MAX);
    let served: Vec<ServedTwice> = completed
        .map(|record| ServedTwice {
            op: record.op,
            measured: record.completed - record.arrival,
            simulated: record.service_time(),
        })
        .collect();
    let fidelity = Fidelity::of(device.name(), &target.name, &served);
    match (&arguments.plot, &fidelity) {
        (Some(path), Some(fidelity)) => plot_fidelity(path, fidelity, &served).map_err(Failure::host)?,
        (Some(_), None) => note("no plot was written: there were no requests"),
        (None, _) => {}
    }
    let alone =
        twin(vec![device.model()?], &records).map_err(|error| Failure::host(format!("{}: {error}", log.display())))?;
    Ok(ShadowResult {
        target: target.name,
        direct: target.direct,
        queue_depth: arguments.shadow_depth,
        fidelity,
        measured_total_ns: alone.logged,
        simulated_total_ns: alone.punctual,
    })
}
