//! Faults of a device of any kind: errors of the medium, retries, slow and dead drives, lost flushes, torn writes.
//!
//! ```toml
//! [[faults]]
//! kind = "recovered"        # latent, transient, recovered, slow, hang, death, wear-out, lying-flush or torn-write
//! every = 9                 # each ninth request that the fault may hit
//! retry-time = "1 s"        # time that the drive spends on retries
//! ```
//!
//! | kind | effect | keys |
//! |---|---|---|
//! | `latent` | reads of bad sectors fail until they are rewritten | `length` (all are bad) or `rate` (a share) |
//! | `transient` | a request fails, and its repetition succeeds | `every` or `rate`, `operation`, `retry-time` |
//! | `recovered` | a request takes longer, without an error | `retry-time`, `every` or `rate`, `operation` |
//! | `slow` | all times of the device, or of requests to a region, are multiplied | `factor`, `offset`, `length` |
//! | `hang` | nothing completes for a while | `at`, `for` |
//! | `death` | all requests fail | `at` |
//! | `wear-out` | writes fail, reads succeed | `after-written` |
//! | `lying-flush` | flushes complete at once without effect | `every` or `rate` |
//! | `torn-write` | a write fails after its first sectors | `every` or `rate`, `sectors` |
//!
//! A fault begins at `from` (`at` for `hang`, `death` and `wear-out`) and lasts for the time `for`. With
//! `after-requests` and `after-written` it begins after this number of requests and of written bytes. `offset` and
//! `length` bound its addresses. The module `parameters` reads the keys.
//!
//! Modelled: retries halt the whole drive, as they do a disk with one arm, so that later requests wait behind them. A
//! slow region multiplies the time from the drive's last completion, or the request's arrival if that is later, to the
//! request's completion. A slow drive is slow as a whole, its work in idle times included. A dead or worn-out drive
//! rejects requests at once; requests that are in a drive at its death fail when they would have completed. A
//! successful write heals the bad sectors that it covers, and so does a discard. Reads fail with a media error, and so
//! do torn writes; a rejected request is aborted. A flush that lies leaves dirty sectors in the cache, where they stay
//! volatile until the drive writes them back by itself. It also clears the force-unit-access flag of writes.
//!
//! Not modelled: retries of one die of a flash drive while others work, sense data, remapped sectors with other service
//! times, and errors that depend on neighbouring data or on temperature. On zoned devices only faults without errors
//! are possible, because the write pointer after a failed write depends on the drive.

mod device;
pub(crate) mod option;
mod parameters;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::fields::{Fields, ProfileError};
use crate::models::blueprint::Blueprint;
use crate::{DeviceModel, footprint};
use device::Faulty;
use parameters::{Effect, Fault};

/// The key of the tables.
pub(crate) const TABLE: &str = "faults";

/// Most faults of a device.
const MOST: usize = 16;

/// The device with the faults of its profile, if there are any.
pub(crate) fn within(fields: &mut Fields<'_>, device: Blueprint) -> Result<Blueprint, ProfileError> {
    let mut faults = Vec::new();
    for mut table in fields.tables_or_none(TABLE, MOST)? {
        let fault = Fault::parse(&mut table)?;
        if device.is_zoned() && fault.effect.fails_requests() {
            let problem = "requests to a zoned device can't fail; expected recovered, slow, hang or lying-flush";
            return Err(table.error_at("kind", problem));
        }
        if faults.iter().any(|other: &Fault| other.effect.is_torn_write() && fault.effect.is_torn_write()) {
            return Err(table.error_at("kind", "a second torn-write; expected at most one"));
        }
        table.finish()?;
        faults.push(fault);
    }
    if faults.is_empty() {
        return Ok(device);
    }
    let torn_sectors = faults.iter().find_map(|fault| match fault.effect {
        Effect::TornWrite { sectors } => Some(sectors),
        _ => None,
    });
    let can_fail = faults.iter().any(|fault| fault.effect.fails_requests());
    let own_bytes = footprint::sum(faults.iter().map(Fault::memory_bytes_max)).saturating_add(footprint::DEVICE_BYTES);
    let faults: Arc<[Fault]> = faults.into();
    let device = device.failing(can_fail.then_some(torn_sectors.unwrap_or(0)));
    Ok(device.within(own_bytes, move |device, seed| -> Box<dyn DeviceModel> {
        Box::new(Faulty::new(device, Arc::clone(&faults), seed))
    }))
}
