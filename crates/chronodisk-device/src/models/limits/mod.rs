//! Limits around a device of any kind, as a cloud volume or a container has them: requests and bytes a second, with
//! burst credits, and a delay added to each operation.
//!
//! ```toml
//! [limits]
//! iops = 3000                         # requests a second, reads and writes together; from 1
//! iops-burst = 6000                   # requests a second while there are credits
//! iops-credits = 5400000              # requests; full at first, refilled at `iops`
//! bandwidth = "125 MiB/s"             # bytes a second, reads and writes together; from 1 kB/s
//! bandwidth-burst = "250 MiB/s"
//! bandwidth-credits = "100 GiB"
//! request-size = "256 KiB"            # a longer request counts as several of this size (default: as one)
//! ```
//!
//! `read-iops`, `write-iops`, `read-bandwidth` and `write-bandwidth`, each with its `-burst` and `-credits`, limit one
//! direction. The table `[limits.read-delay]` adds a delay to each read, `[limits.write-delay]` to each write and
//! `[limits.flush-delay]` to each flush; see the module `delay`.
//!
//! Modelled: each limit is a token bucket (Turner, "New Directions in Communications", IEEE Communications Magazine
//! 24(10), 1986), computed by the virtual scheduling algorithm of ITU-T recommendation I.371; see the module `bucket`.
//! Reads wait in one queue, writes in another, each in order of arrival; the first of a queue enters the device at the
//! instant at which all limits of its direction permit it. A read does not wait for the limits of writes. Discards and
//! writes of zeros wait with the writes and count as requests without bytes. Flushes do not wait, since volumes do not
//! count them. A delay begins when the device completes the request, so that delays overlap.
//!
//! Not modelled: the periods within which a cloud measures a volume, limits of a virtual machine over all its volumes,
//! and a queue of limited length in front of the volume.

mod bucket;
mod delay;
pub(crate) mod option;
mod policy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::composite::{Composite, Members};
use crate::fields::{Fields, ProfileError};
use crate::models::blueprint::Blueprint;
use crate::quantity::{Bytes, Quantity, Rate};
use crate::{DeviceModel, footprint};
use bucket::Bucket;
use delay::Delay;
use policy::Limiter;

/// The key of the table.
pub(crate) const TABLE: &str = "limits";

/// The parameters of a limiter.
#[derive(Clone, Debug, Default, PartialEq)]
struct Limits {
    /// Buckets for reads, for writes, and for both together.
    buckets: Vec<(Scope, Unit, Bucket)>,
    /// A longer request counts as several.
    request_bytes: Option<u64>,
    read_delay: Option<Delay>,
    write_delay: Option<Delay>,
    flush_delay: Option<Delay>,
}

/// The requests that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Reads,
    Writes,
    Both,
}

/// The unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Requests,
    Bytes,
}

/// The keys of a limit: sustained rate, burst rate, credits.
type Keys = [&'static str; 3];

const IOPS: [(Scope, Keys); 3] = [
    (Scope::Both, ["iops", "iops-burst", "iops-credits"]),
    (Scope::Reads, ["read-iops", "read-iops-burst", "read-iops-credits"]),
    (Scope::Writes, ["write-iops", "write-iops-burst", "write-iops-credits"]),
];

const BANDWIDTHS: [(Scope, Keys); 3] = [
    (Scope::Both, ["bandwidth", "bandwidth-burst", "bandwidth-credits"]),
    (Scope::Reads, ["read-bandwidth", "read-bandwidth-burst", "read-bandwidth-credits"]),
    (Scope::Writes, ["write-bandwidth", "write-bandwidth-burst", "write-bandwidth-credits"]),
];

/// Least bandwidth, in bytes per second; a request of 2 TiB still completes within the range of the clock.
const LEAST_BANDWIDTH: Rate = Rate(1_000);

/// The device within the limits of its profile, if there are any.
pub(crate) fn within(fields: &mut Fields<'_>, device: Blueprint) -> Result<Blueprint, ProfileError> {
    let Some(mut table) = fields.optional_table(TABLE)? else { return Ok(device) };
    let limits = parse(&mut table)?;
    let nothing = table.error("no limit and no delay; expected `iops`, `bandwidth`, [limits.read-delay] or another");
    table.finish()?;
    if limits == Limits::default() {
        return Err(nothing);
    }
    let limits = Arc::new(limits);
    let own_bytes =
        footprint::DEVICE_BYTES + footprint::array_bytes::<(Scope, Unit, Bucket)>(limits.buckets.len() as u64);
    Ok(device.within(own_bytes, move |device, seed| -> Box<dyn DeviceModel> {
        let (info, limiter) = (device.info().clone(), Limiter::new(Arc::clone(&limits), seed));
        Box::new(Composite::new(info, Members::new(vec![device], None), limiter))
    }))
}

fn parse(table: &mut Fields<'_>) -> Result<Limits, ProfileError> {
    let mut limits = Limits::default();
    for (scope, keys) in IOPS {
        let [rate, burst, credits] = keys.map(|key| table.optional_count(key, 1..=u32::MAX));
        let (rate, burst, credits) = (rate?.map(u64::from), burst?.map(u64::from), credits?.map(u64::from));
        limits.add(table, scope, Unit::Requests, keys, (rate, burst, credits))?;
    }
    for (scope, keys) in BANDWIDTHS {
        let [rate, burst, credits] = keys;
        let rate = optional::<Rate>(table, rate, LEAST_BANDWIDTH)?.map(|rate| rate.0);
        let burst = optional::<Rate>(table, burst, LEAST_BANDWIDTH)?.map(|rate| rate.0);
        let credits = optional::<Bytes>(table, credits, Bytes(1))?.map(|credits| credits.0);
        limits.add(table, scope, Unit::Bytes, keys, (rate, burst, credits))?;
    }
    limits.request_bytes = optional::<Bytes>(table, "request-size", Bytes(512))?.map(|size| size.0);
    if limits.request_bytes.is_some() && !limits.buckets.iter().any(|(_, unit, _)| *unit == Unit::Requests) {
        return Err(table.error_at("request-size", "there is no limit of requests; expected `iops` or another one"));
    }
    limits.read_delay = Delay::parse(table, "read-delay")?;
    limits.write_delay = Delay::parse(table, "write-delay")?;
    limits.flush_delay = Delay::parse(table, "flush-delay")?;
    Ok(limits)
}

/// A quantity of at least `least`, if the key is there.
fn optional<Q: Quantity>(table: &mut Fields<'_>, key: &'static str, least: Q) -> Result<Option<Q>, ProfileError> {
    let is_given = table.has(key);
    let value = table.quantity_or(key, least)?;
    if value < least {
        return Err(table.error_at(key, format!("{value}; expected at least {least}")));
    }
    Ok(is_given.then_some(value))
}

impl Limits {
    /// Adds the limit with these keys, if it is present.
    fn add(
        &mut self,
        table: &Fields<'_>,
        scope: Scope,
        unit: Unit,
        keys: Keys,
        values: (Option<u64>, Option<u64>, Option<u64>),
    ) -> Result<(), ProfileError> {
        let [rate_key, burst_key, credits_key] = keys;
        let bucket = match values {
            (None, None, None) => return Ok(()),
            (None, Some(_), _) => return Err(table.error_at(burst_key, format!("there is no `{rate_key}`"))),
            (None, None, Some(_)) => return Err(table.error_at(credits_key, format!("there is no `{rate_key}`"))),
            (Some(_), Some(_), None) => {
                return Err(table.error_at(burst_key, format!("a burst needs `{credits_key}`")));
            }
            (Some(rate), Some(burst), Some(_)) if burst <= rate => {
                return Err(table.error_at(burst_key, format!("expected more than `{rate_key}`")));
            }
            (Some(rate), burst, credits) => Bucket::new(rate, credits.unwrap_or(0), burst),
        };
        self.buckets.push((scope, unit, bucket));
        Ok(())
    }
}
