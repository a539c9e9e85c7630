//! The parameters of a fault.

use std::ops::Range;

use chronodisk_sim::{Nanos, Op, Request, SECTOR_BYTES};

use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::quantity::Bytes;

/// Most bad sectors that are drawn for one fault.
pub(super) const MOST_BAD_SECTORS: u64 = 1 << 20;
/// Longest range of bad sectors, in bytes.
const LONGEST_BAD_RANGE: Bytes = Bytes(1 << 30);
/// Unit of a rate, which is a probability or a share.
pub(super) const MILLION: u64 = 1_000_000;
/// Largest factor of a slow device, in thousandths.
const LARGEST_FACTOR: u64 = 1_000_000;

/// A fault of a device.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) effect: Effect,
    pub(super) period: Period,
    /// Sectors of the requests that it may hit.
    pub(super) region: Range<u64>,
    pub(super) operation: Operation,
    pub(super) selection: Selection,
}

/// The kind of a fault, with its own parameters.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    /// All sectors of the region are bad, or a share of them in millionths.
    Latent {
        share: Option<u64>,
        retry_time: Nanos,
    },
    Transient {
        retry_time: Nanos,
    },
    Recovered {
        retry_time: Nanos,
    },
    /// A slow drive, in thousandths of its profile's times.
    SlowDrive {
        factor: u64,
    },
    SlowRegion {
        factor: u64,
    },
    Hang,
    Death,
    WearOut,
    LyingFlush,
    TornWrite {
        sectors: u32,
    },
}

/// The time in which a fault is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    /// Not before this instant.
    pub(super) from: Nanos,
    /// [`Nanos::MAX`] for ever.
    pub(super) duration: Nanos,
    /// Not before this number of requests has arrived.
    pub(super) after_requests: u64,
    /// Not before writes of this number of bytes have arrived.
    pub(super) after_written: u64,
}

/// The operations that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Reads,
    Writes,
    Any,
}

/// The requests that a fault hits, out of those that it may hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    All,
    /// Each n-th.
    Every(u64),
    /// Each with this probability, in millionths.
    Rate(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Latent,
    Transient,
    Recovered,
    Slow,
    Hang,
    Death,
    WearOut,
    LyingFlush,
    TornWrite,
}

pub(super) const KINDS: &[(&str, Kind)] = &[
    ("latent", Kind::Latent),
    ("transient", Kind::Transient),
    ("recovered", Kind::Recovered),
    ("slow", Kind::Slow),
    ("hang", Kind::Hang),
    ("death", Kind::Death),
    ("wear-out", Kind::WearOut),
    ("lying-flush", Kind::LyingFlush),
    ("torn-write", Kind::TornWrite),
];

const OPERATIONS: &[(&str, Operation)] =
    &[("read", Operation::Reads), ("write", Operation::Writes), ("any", Operation::Any)];

impl Effect {
    /// Whether a request may end in an error.
    pub(super) fn fails_requests(&self) -> bool {
        match self {
            Effect::Latent { .. } | Effect::Transient { .. } | Effect::Death => true,
            Effect::WearOut | Effect::TornWrite { .. } => true,
            Effect::Recovered { .. } | Effect::SlowDrive { .. } | Effect::SlowRegion { .. } => false,
            Effect::Hang | Effect::LyingFlush => false,
        }
    }

    pub(super) fn is_torn_write(&self) -> bool {
        matches!(self, Effect::TornWrite { .. })
    }

    /// The name of its counter in the statistics.
    pub(super) fn counter(&self) -> &'static str {
        match self {
            Effect::Latent { .. } => "latent-errors",
            Effect::Transient { .. } => "transient-errors",
            Effect::Recovered { .. } => "recovered-errors",
            Effect::SlowDrive { .. } | Effect::SlowRegion { .. } => "slow-requests",
            Effect::Hang => "hung-requests",
            Effect::Death => "requests-after-death",
            Effect::WearOut => "writes-after-wear-out",
            Effect::LyingFlush => "lost-flushes",
            Effect::TornWrite { .. } => "torn-writes",
        }
    }
}

impl Fault {
    /// Reads a table `[[faults]]`.
    pub(super) fn parse(table: &mut Fields<'_>) -> Result<Fault, ProfileError> {
        let kind = table.choice("kind", KINDS)?;
        let period = Period::parse(table, kind)?;
        let has_region = table.has("offset") || table.has("length");
        let region = match kind {
            Kind::Latent | Kind::Transient | Kind::Recovered | Kind::Slow | Kind::TornWrite => region(table)?,
            Kind::Hang | Kind::Death | Kind::WearOut | Kind::LyingFlush => 0..u64::MAX,
        };
        let operation = match kind {
            Kind::Transient | Kind::Recovered => table.choice_or("operation", OPERATIONS, Operation::Any)?,
            Kind::TornWrite | Kind::WearOut => Operation::Writes,
            _ => Operation::Any,
        };
        let selection = match kind {
            Kind::Transient | Kind::Recovered | Kind::TornWrite => Selection::parse(table, true)?,
            Kind::LyingFlush => Selection::parse(table, false)?,
            _ => Selection::All,
        };
        let effect = match kind {
            Kind::Latent => latent(table, &region)?,
            Kind::Transient => Effect::Transient { retry_time: table.quantity_or("retry-time", Nanos::ZERO)? },
            Kind::Recovered => Effect::Recovered { retry_time: table.positive("retry-time")? },
            Kind::Slow => {
                let factor = factor(table)?;
                if has_region { Effect::SlowRegion { factor } } else { Effect::SlowDrive { factor } }
            }
            Kind::Hang => Effect::Hang,
            Kind::Death => Effect::Death,
            Kind::WearOut => Effect::WearOut,
            Kind::LyingFlush => Effect::LyingFlush,
            Kind::TornWrite => Effect::TornWrite { sectors: table.optional_count("sectors", 0..=65_536)?.unwrap_or(1) },
        };
        Ok(Fault { effect, period, region, operation, selection })
    }

    /// Whether it may hit a request.
    pub(super) fn may_hit(&self, request: &Request) -> bool {
        if self.effect == Effect::LyingFlush {
            return request.op == Op::Flush || request.fua;
        }
        let is_operation = match self.operation {
            Operation::Reads => request.op == Op::Read,
            Operation::Writes if self.effect.is_torn_write() => request.op == Op::Write,
            Operation::Writes => !matches!(request.op, Op::Read | Op::Flush),
            Operation::Any => request.op != Op::Flush,
        };
        is_operation && request.lba.0 < self.region.end && request.end().0 > self.region.start
    }

    /// Most memory of its state, in bytes.
    pub(super) fn memory_bytes_max(&self) -> u64 {
        // Each second sector rewritten: an entry of a tree, which is at least half full.
        const RANGE_BYTES: u64 = 64;
        match self.effect {
            Effect::Latent { share: None, .. } => (self.region.end - self.region.start).saturating_mul(RANGE_BYTES / 2),
            Effect::Latent { share: Some(_), .. } => {
                footprint::array_bytes::<u64>(MOST_BAD_SECTORS) + MOST_BAD_SECTORS * RANGE_BYTES
            }
            _ => footprint::DEVICE_BYTES,
        }
    }
}

impl Period {
    fn parse(table: &mut Fields<'_>, kind: Kind) -> Result<Period, ProfileError> {
        let begin = match kind {
            Kind::Hang | Kind::Death | Kind::WearOut => "at",
            _ => "from",
        };
        let begins = [begin, "after-requests", "after-written"];
        if begin == "at" && !begins.iter().any(|key| table.has(key)) {
            return Err(table.error("no beginning; expected `at`, `after-requests` or `after-written`"));
        }
        let from = table.quantity_or(begin, Nanos::ZERO)?;
        let duration = match kind {
            Kind::Hang => table.positive("for")?,
            _ if table.has("for") => table.positive("for")?,
            _ => table.quantity_or("for", Nanos::MAX)?,
        };
        let after_requests = table.optional_count("after-requests", 1..=u32::MAX)?.map_or(0, u64::from);
        let Bytes(after_written) = table.quantity_or("after-written", Bytes(0))?;
        Ok(Period { from, duration, after_requests, after_written })
    }

    /// Whether it begins at an instant that is known from the start.
    pub(super) fn is_timed(&self) -> bool {
        self.after_requests == 0 && self.after_written == 0
    }
}

impl Selection {
    fn parse(table: &mut Fields<'_>, is_required: bool) -> Result<Selection, ProfileError> {
        let every = table.optional_count("every", 1..=u32::MAX)?;
        let rate = rate(table)?;
        match (every, rate) {
            (Some(_), Some(_)) => Err(table.error_at("rate", "there is `every` already; expected one of them")),
            (Some(every), None) => Ok(Selection::Every(every.into())),
            (None, Some(rate)) => Ok(Selection::Rate(rate)),
            (None, None) if is_required => Err(table.error("neither `every` nor `rate`; expected one of them")),
            (None, None) => Ok(Selection::All),
        }
    }
}

fn rate(table: &mut Fields<'_>) -> Result<Option<u64>, ProfileError> {
    let rate = table.optional_millionths("rate")?;
    match rate {
        Some(0) => Err(table.error_at("rate", "zero; expected a number from 0.000001 to 1")),
        Some(rate) if rate > MILLION => Err(table.error_at("rate", "above 1; expected a number from 0.000001 to 1")),
        rate => Ok(rate),
    }
}

fn factor(table: &mut Fields<'_>) -> Result<u64, ProfileError> {
    if !table.has("factor") {
        table.know("factor");
        return Err(table.error("`factor` is missing; expected a number above 1, such as 10"));
    }
    let factor = table.factor_thousandths("factor")?;
    match factor {
        1_001..=LARGEST_FACTOR => Ok(factor),
        _ => Err(table.error_at("factor", "out of range; expected a number above 1 and up to 1000")),
    }
}

/// The sectors from `offset` on, `length` of them; to the end of any device without `length`.
fn region(table: &mut Fields<'_>) -> Result<Range<u64>, ProfileError> {
    let whole = |table: &Fields<'_>, key: &'static str, Bytes(bytes): Bytes| match bytes.is_multiple_of(SECTOR_BYTES) {
        true => Ok(bytes / SECTOR_BYTES),
        false => Err(table.error_at(key, format!("{}; expected a multiple of 512 B", Bytes(bytes)))),
    };
    let offset = table.quantity_or("offset", Bytes(0))?;
    let start = whole(table, "offset", offset)?;
    if !table.has("length") {
        table.quantity_or("length", Bytes(0))?;
        return Ok(start..u64::MAX);
    }
    let length = table.positive("length")?;
    Ok(start..start + whole(table, "length", length)?)
}

fn latent(table: &mut Fields<'_>, region: &Range<u64>) -> Result<Effect, ProfileError> {
    let retry_time = table.quantity_or("retry-time", Nanos::ZERO)?;
    let share = rate(table)?;
    if share.is_none() && region.end == u64::MAX {
        return Err(table.error("neither `length` nor `rate`; expected one of them"));
    }
    if share.is_none() && region.end - region.start > LONGEST_BAD_RANGE.0 / SECTOR_BYTES {
        return Err(table.error_at("length", format!("expected at most {LONGEST_BAD_RANGE}, or a `rate`")));
    }
    Ok(Effect::Latent { share, retry_time })
}
