//! The request queue of a host's kernel in front of a device, kind `host-queue` (Agrawal et al., "Emulating Goliath
//! Storage Systems with David", ACM TOS 7(4), 2012, section 6.2), for traces and generated workloads and to imitate
//! another kernel. Under a real kernel, which has a queue of its own, it would count twice.
//!
//! ```toml
//! kind = "host-queue"
//! member = "first-disk"             # the device behind it
//! elevator = "noop"                 # the default; deadline, cfq, c-look
//! queue-limit = 128                 # places for reads, and as many for writes (1)
//! queue-limit-batching = 160        # and with the privilege to batch (1)
//! batch-requests = 32               # of a process that has waited for a place (2)
//! batch-time = "20 ms"              # (2)
//! merge = "both"                    # both, back, none
//! max-request = "512 KiB"           # most bytes of a merged request; longer requests are split (2)
//! plug-delay = "3 ms"               # a queue that was empty waits for more; 0 ms: never (1)
//! unplug-threshold = 4              # or until there are as many (2)
//! unplug-at = "reads"               # or until a caller waits for a read; all (direct I/O), never
//! device-depth = 1                  # requests in the device at once; 1 without command queueing
//! ```
//!
//! `deadline` has `read-expire = "500 ms"`, `write-expire = "5 s"`, `fifo-batch = 16`, `writes-starved = 2` (3); `cfq`
//! has `slice-sync = "100 ms"`, `slice-async = "40 ms"`, `slice-idle = "8 ms"` (4).
//!
//! 1. David, table I, with Linux's division of places between reads and writes.
//! 2. Linux 2.6.23, the kernel that David imitates: `BLK_BATCH_REQ`, `BLK_BATCH_TIME`, `BLK_DEF_MAX_SECTORS` and
//!    `unplug_thresh` in `block/ll_rw_blk.c` and `include/linux/blkdev.h`.
//! 3. `block/deadline-iosched.c`.
//! 4. `block/cfq-iosched.c`.
//!
//! Modelled: see the modules `line` (places and the requests that wait for them), `elevator` (the order) and `policy`
//! (merging, plugging, dispatch). A request that is merged into another needs no place, and two requests that become
//! adjacent are merged. Flushes go to the device before all other requests and need no place. Discards and writes of
//! zeros count as writes and are not merged; `fua` writes are not merged, either. Not modelled: processor time,
//! priorities, and the blocking of a process that waits for a place: its later requests wait behind the first instead.

mod elevator;
mod line;
mod policy;

use std::sync::Arc;

use chronodisk_sim::{Nanos, SECTOR_BYTES};

use crate::composite::{Composite, Members};
use crate::fields::{Fields, MAX_CHANNELS, ProfileError};
use crate::models::blueprint::{Blueprint, BuildOptions, Design, FindMembers};
use crate::quantity::Bytes;
use crate::{DeviceInfo, DeviceModel, footprint};
use elevator::Scheduler;
use line::Limits;
use policy::{HostQueue, Merge, Parameters, UnplugAt};

/// The elevators by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Noop,
    Deadline,
    Cfq,
    CLook,
}

const ELEVATORS: &[(&str, Name)] =
    &[("noop", Name::Noop), ("deadline", Name::Deadline), ("cfq", Name::Cfq), ("c-look", Name::CLook)];

const MERGES: &[(&str, Merge)] = &[("both", Merge::Both), ("back", Merge::Back), ("none", Merge::Off)];

const UNPLUGS: &[(&str, UnplugAt)] = &[("reads", UnplugAt::Reads), ("all", UnplugAt::All), ("never", UnplugAt::Never)];

/// Most places of a queue; waiting requests are searched linearly.
const MOST_PLACES: u32 = 8_192;

/// Kind `host-queue`: the keys as the module shows them.
pub(crate) fn parse(fields: &mut Fields<'_>, members: &mut dyn FindMembers) -> Result<Blueprint, ProfileError> {
    let member = members.one(fields, "member")?;
    let parameters = parse_parameters(fields, member.logical_block_bytes())?;
    Ok(blueprint(&member, parameters))
}

/// The queue of David, with the elevator of this name, in front of a device.
pub(crate) fn in_front_of(member: &Arc<Design>, elevator: &str) -> Result<Blueprint, String> {
    let Some(&(_, name)) = ELEVATORS.iter().find(|(known, _)| *known == elevator) else {
        let names: Vec<String> = ELEVATORS.iter().map(|entry| format!("\"{}\"", entry.0)).collect();
        return Err(format!("no elevator is called \"{elevator}\"; expected {}", names.join(", ")));
    };
    Ok(blueprint(member, of_david(default_scheduler(name))))
}

fn blueprint(member: &Arc<Design>, parameters: Parameters) -> Blueprint {
    let (behind, measured, parameters) = (Arc::clone(member), Arc::clone(member), Arc::new(parameters));
    let make = move |info: DeviceInfo, seed: u64| -> Box<dyn DeviceModel> {
        let options = BuildOptions {
            capacity_bytes: Some(info.capacity_sectors * SECTOR_BYTES),
            seed,
            ..BuildOptions::default()
        };
        // The largest multiple of the member's block within its capacity.
        let member = behind.build(&options).expect("the member takes every capacity up to its own");
        let (volatile_cache, discard_unit_sectors) = (member.info().volatile_cache, member.info().discard_unit_sectors);
        let info = DeviceInfo { volatile_cache, discard_unit_sectors, ..info };
        Box::new(Composite::new(info, Members::new(vec![member], None), HostQueue::new(Arc::clone(&parameters))))
    };
    let memory = move |info: &DeviceInfo| {
        let options = BuildOptions {
            capacity_bytes: Some(info.capacity_sectors * SECTOR_BYTES),
            seed: 0,
            ..BuildOptions::default()
        };
        measured.memory_bytes_max_with(&options).unwrap_or(u64::MAX).saturating_add(footprint::DEVICE_BYTES)
    };
    let capacity_bytes = member.capacity_bytes();
    Blueprint::new(memory, make).sized(capacity_bytes).over(std::slice::from_ref(member)).with_host_queue()
}

/// The queue of David with this elevator: the defaults of all keys.
fn of_david(scheduler: Scheduler) -> Parameters {
    Parameters {
        scheduler,
        limits: Limits { limit: 128, limit_batching: 160, batch_requests: 32, batch_time: Nanos::from_millis(20) },
        merge: Merge::Both,
        longest_sectors: 1_024,
        plug_delay: Nanos::from_millis(3),
        unplug_threshold: 4,
        unplug_at: UnplugAt::Reads,
        device_depth: 1,
    }
}

fn parse_parameters(fields: &mut Fields<'_>, block_bytes: u64) -> Result<Parameters, ProfileError> {
    let default = of_david(parse_scheduler(fields)?);
    let places = |fields: &mut Fields<'_>, key, default| {
        Ok::<u32, ProfileError>(fields.optional_count(key, 1..=MOST_PLACES)?.unwrap_or(default))
    };
    let limit = places(fields, "queue-limit", default.limits.limit)?;
    let limit_batching = places(fields, "queue-limit-batching", limit + limit / 4)?;
    if limit_batching < limit {
        let what = format!("expected at least the queue-limit, {limit}");
        return Err(fields.error_at("queue-limit-batching", what));
    }
    let batch_requests = places(fields, "batch-requests", default.limits.batch_requests)?;
    let batch_time = fields.quantity_or("batch-time", default.limits.batch_time)?;
    let merge = fields.choice_or("merge", MERGES, default.merge)?;
    let Bytes(longest) = fields.quantity_or("max-request", Bytes(u64::from(default.longest_sectors) * SECTOR_BYTES))?;
    if longest == 0 || !longest.is_multiple_of(block_bytes) || longest > 1 << 30 {
        let what = format!("expected a multiple of the device's block, {}, up to 1 GiB", Bytes(block_bytes));
        return Err(fields.error_at("max-request", what));
    }
    Ok(Parameters {
        scheduler: default.scheduler,
        limits: Limits { limit, limit_batching, batch_requests, batch_time },
        merge,
        longest_sectors: (longest / SECTOR_BYTES) as u32,
        plug_delay: fields.quantity_or("plug-delay", default.plug_delay)?,
        unplug_threshold: places(fields, "unplug-threshold", default.unplug_threshold)?,
        unplug_at: fields.choice_or("unplug-at", UNPLUGS, default.unplug_at)?,
        device_depth: fields.optional_count("device-depth", 1..=MAX_CHANNELS)?.unwrap_or(default.device_depth),
    })
}

/// An elevator with the constants of Linux 2.6.23.
fn default_scheduler(name: Name) -> Scheduler {
    match name {
        Name::Noop => Scheduler::Noop,
        Name::CLook => Scheduler::CLook,
        Name::Deadline => Scheduler::Deadline {
            read_expire: Nanos::from_millis(500),
            write_expire: Nanos::from_secs(5),
            fifo_batch: 16,
            writes_starved: 2,
        },
        Name::Cfq => Scheduler::Cfq {
            slice_sync: Nanos::from_millis(100),
            slice_async: Nanos::from_millis(40),
            slice_idle: Nanos::from_millis(8),
        },
    }
}

fn parse_scheduler(fields: &mut Fields<'_>) -> Result<Scheduler, ProfileError> {
    Ok(match default_scheduler(fields.choice_or("elevator", ELEVATORS, Name::Noop)?) {
        Scheduler::Deadline { read_expire, write_expire, fifo_batch, writes_starved } => Scheduler::Deadline {
            read_expire: fields.quantity_or("read-expire", read_expire)?,
            write_expire: fields.quantity_or("write-expire", write_expire)?,
            fifo_batch: fields.optional_count("fifo-batch", 1..=MOST_PLACES)?.unwrap_or(fifo_batch),
            writes_starved: fields.optional_count("writes-starved", 0..=MOST_PLACES)?.unwrap_or(writes_starved),
        },
        Scheduler::Cfq { slice_sync, slice_async, slice_idle } => Scheduler::Cfq {
            slice_sync: fields.quantity_or("slice-sync", slice_sync)?,
            slice_async: fields.quantity_or("slice-async", slice_async)?,
            slice_idle: fields.quantity_or("slice-idle", slice_idle)?,
        },
        plain => plain,
    })
}

#[cfg(test)]
mod tests;
