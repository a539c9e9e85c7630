//! Requests from a seed.

use chronodisk_sim::{Lba, Nanos, Op, RandomStream, Request, RequestId, SECTOR_BYTES};

use crate::{Addresses, Workload};

/// Makes the requests of a workload, one after the other.
///
/// ```
/// use chronodisk_trace::{Generator, GeneratorOptions, Workload};
///
/// let options = GeneratorOptions::new(Workload::MixedSmall, 1 << 20, 42, 1_000);
/// let requests: Vec<_> = Generator::new(options).unwrap().collect();
/// assert_eq!(requests.len(), 1_000);
/// assert!(requests.iter().all(|request| request.sectors == 8));
/// ```
///
/// Where Griffin et al. leave room, this is how it is filled:
///
/// - A request is sequential with probability 0.2 (it begins where the previous one ended), local
///   with 0.3 (it begins up to 500 sectors before or after the *start* of the previous one, both
///   ends included, any sector equally likely), random otherwise. The first one is random.
/// - Random starts are equally likely multiples of 4 KiB at which the request fits.
/// - A range that would leave the device is moved back until it lies inside.
/// - On a device with zones all this is about the sectors that can be written, one zone's after the other; a range that
///   would leave its zone's capacity is moved back. Sequential writes and appends go on with the next zone where a
///   request does not fit any more, and reset it first if it was written in a round before, or before all that.
/// - Sizes, positions and operations come from random streams of their own.
#[derive(Clone, Debug)]
pub struct Generator {
    options: GeneratorOptions,
    remaining: u64,
    previous: Option<(u64, u32)>,
    /// Whether the sequential writes have begun again from the start.
    again: bool,
    /// Whether the zone in which the next sequential write begins is reset.
    is_reset: bool,
    kinds: RandomStream,
    sizes: RandomStream,
    positions: RandomStream,
    operations: RandomStream,
    thinks: RandomStream,
}

/// Options of a [`Generator`].
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratorOptions {
    /// The kind of workload.
    pub workload: Workload,
    /// Size of the device in sectors of 512 bytes.
    pub capacity_sectors: u64,
    /// Block size in bytes, for the workloads that [use it](Workload::uses_block_bytes); a
    /// multiple of 512.
    pub block_bytes: u64,
    /// Share of reads, 0 to 1, of the workloads that both read and write.
    pub read_share: f64,
    /// Equal seeds give equal requests.
    pub seed: u64,
    /// Number of requests.
    pub requests: u64,
    /// Every start and every length is a multiple of this many sectors: the device's logical
    /// block. Beyond 1, local starts are rounded down to it.
    pub align_sectors: u32,
    /// Think times are uniform integer nanoseconds from zero to this, both included.
    pub think_max: Nanos,
    /// Distribution of random starts.
    pub addresses: Addresses,
    /// Zones of the device, if it has such.
    pub zones: Option<Zones>,
}

/// Zones of a device. Each is written from its beginning to its capacity, and reset before that if it was written
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Distance between the beginnings of neighbouring zones, in sectors of 512 bytes.
    pub size_sectors: u64,
    /// Sectors of a zone that can be written, from its beginning on; at most its size.
    pub capacity_sectors: u64,
    /// Sectors of conventional zones before them, which no request addresses.
    pub first_sector: u64,
    /// Whether they may have been written before the first request, so that the first round resets them too.
    pub written: bool,
}

impl GeneratorOptions {
    /// The workload with its usual mixture of operations (67 % reads for Griffin et al.'s, 70 %
    /// for `random-mixed`), 4 KiB blocks, sector alignment and no think time.
    #[must_use]
    pub fn new(workload: Workload, capacity_sectors: u64, seed: u64, requests: u64) -> Self {
        GeneratorOptions {
            workload,
            capacity_sectors,
            block_bytes: 4096,
            read_share: if workload == Workload::RandomMixed { 0.7 } else { MEMULATOR_READ_SHARE },
            seed,
            requests,
            align_sectors: 1,
            think_max: Nanos::ZERO,
            addresses: Addresses::Uniform,
            zones: None,
        }
    }

    /// Writable sectors: all except those beyond the capacities of zones.
    fn writable_sectors(&self) -> u64 {
        match self.zones {
            Some(zones) => {
                self.capacity_sectors.saturating_sub(zones.first_sector) / zones.size_sectors * zones.capacity_sectors
            }
            None => self.capacity_sectors,
        }
    }
}

/// One request of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedRequest {
    /// Read or write; with zones also append or reset.
    pub op: Op,
    /// First sector.
    pub lba: Lba,
    /// Length in sectors of 512 bytes, at least one.
    pub sectors: u32,
    /// Pause between the completion that makes room for this request and its arrival.
    pub think: Nanos,
}

impl GeneratedRequest {
    /// Translates the request for a device.
    #[must_use]
    pub fn request(&self, id: RequestId) -> Request {
        Request { id, ..Request::new(0, self.op, self.lba.0, self.sectors) }
    }
}

impl Generator {
    /// Checks the options.
    ///
    /// # Errors
    /// A sentence that says which option can't be, and why.
    pub fn new(options: GeneratorOptions) -> Result<Self, String> {
        let align_sectors = u64::from(options.align_sectors);
        if align_sectors == 0 {
            return Err("the alignment is 0 sectors; expected at least 1".into());
        }
        if !(0.0..=1.0).contains(&options.read_share) {
            return Err(format!("the read share is {}; expected 0 to 1", options.read_share));
        }
        if options.workload.uses_block_bytes() {
            let unit_bytes = align_sectors * SECTOR_BYTES;
            if options.block_bytes == 0 || !options.block_bytes.is_multiple_of(unit_bytes) {
                return Err(format!(
                    "the block size is {} bytes; expected a multiple of {unit_bytes} bytes",
                    options.block_bytes
                ));
            }
            if options.block_bytes / SECTOR_BYTES > u64::from(u32::MAX) {
                return Err(format!("the block size is {} bytes; expected less than 2 TiB", options.block_bytes));
            }
        } else {
            let granule_sectors = granule_sectors(options.workload);
            if !granule_sectors.is_multiple_of(align_sectors) {
                return Err(format!(
                    "workload {} has requests in steps of {granule_sectors} sectors, which a device with blocks of \
                     {align_sectors} sectors can't take",
                    options.workload
                ));
            }
        }
        let longest_sectors = sectors_max(&options);
        if let Some(zones) = options.zones {
            let fits = (longest_sectors..=zones.size_sectors).contains(&zones.capacity_sectors);
            let last = options.capacity_sectors.checked_sub(zones.first_sector);
            if !fits || last.is_none_or(|sectors| sectors < zones.size_sectors) {
                return Err(format!(
                    "zones of {} sectors, of which {} can be written, are none of this device, or do not hold requests \
                     of {longest_sectors} sectors",
                    zones.size_sectors, zones.capacity_sectors
                ));
            }
        } else if options.workload == Workload::ZoneAppend {
            return Err(format!("workload {} needs a device with zones", options.workload));
        }
        if options.capacity_sectors < longest_sectors {
            return Err(format!(
                "the device has {} sectors, but workload {} needs requests of {longest_sectors} sectors",
                options.capacity_sectors, options.workload
            ));
        }
        let stream = |purpose| RandomStream::new(options.seed, options.workload.name(), purpose);
        Ok(Generator {
            remaining: options.requests,
            previous: None,
            again: options.zones.is_some_and(|zones| zones.written),
            is_reset: false,
            kinds: stream("kind"),
            sizes: stream("size"),
            positions: stream("position"),
            operations: stream("operation"),
            thinks: stream("think"),
            options,
        })
    }

    /// The options it was made with.
    #[must_use]
    pub fn options(&self) -> &GeneratorOptions {
        &self.options
    }

    fn sectors(&mut self) -> u32 {
        match self.options.workload {
            Workload::RandomSmall | Workload::MixedSmall => SMALL_SECTORS,
            Workload::RandomLarge | Workload::MixedLarge => LARGE_SECTORS,
            Workload::RandomUniform | Workload::MixedUniform => {
                UNIFORM_STEP_SECTORS * (1 + self.sizes.below(UNIFORM_STEPS) as u32)
            }
            _ => (self.options.block_bytes / SECTOR_BYTES) as u32,
        }
    }

    fn lba(&mut self, sectors: u32) -> u64 {
        let last_start = self.options.writable_sectors() - u64::from(sectors);
        let start = match self.options.workload {
            Workload::SequentialRead | Workload::SequentialWrite | Workload::ZoneAppend => {
                let next = self.previous.map_or(0, |(lba, sectors)| lba + u64::from(sectors));
                let next = self.next_that_fits(next, sectors);
                return if next > last_start { 0 } else { next };
            }
            Workload::MixedSmall | Workload::MixedUniform | Workload::MixedLarge => {
                let kind = self.kinds.unit();
                match self.previous {
                    Some((lba, sectors)) if kind < SEQUENTIAL_SHARE => lba + u64::from(sectors),
                    Some((lba, _)) if kind < SEQUENTIAL_SHARE + LOCAL_SHARE => {
                        (lba + self.positions.below(2 * LOCAL_SECTORS + 1)).saturating_sub(LOCAL_SECTORS)
                    }
                    _ => self.anywhere(RANDOM_ALIGN_SECTORS, last_start),
                }
            }
            Workload::RandomSmall | Workload::RandomUniform | Workload::RandomLarge => {
                self.anywhere(RANDOM_ALIGN_SECTORS, last_start)
            }
            Workload::RandomRead | Workload::RandomWrite | Workload::RandomMixed => {
                self.anywhere(u64::from(sectors), last_start)
            }
        };
        let start = start.min(last_start);
        start - start % u64::from(self.options.align_sectors)
    }

    /// This sector, or the beginning of the next zone if a request does not fit into the rest of this one.
    fn next_that_fits(&self, next: u64, sectors: u32) -> u64 {
        let Some(zones) = self.options.zones else { return next };
        let left = zones.capacity_sectors - next % zones.capacity_sectors;
        if u64::from(sectors) > left { next + left } else { next }
    }

    /// Beginning of a range of writable sectors on the device.
    fn place(&self, start: u64, sectors: u32) -> u64 {
        let Some(zones) = self.options.zones else { return start };
        let (zone, offset) = (start / zones.capacity_sectors, start % zones.capacity_sectors);
        let latest = zones.capacity_sectors - u64::from(sectors);
        zones.first_sector
            + zone * zones.size_sectors
            + (offset.min(latest) / u64::from(self.options.align_sectors) * u64::from(self.options.align_sectors))
    }

    /// The reset of the zone that a sequential write is about to begin again.
    fn reset(&mut self) -> Option<GeneratedRequest> {
        let zones = self.options.zones?;
        if !matches!(self.options.workload, Workload::SequentialWrite | Workload::ZoneAppend) {
            return None;
        }
        let block = (self.options.block_bytes / SECTOR_BYTES) as u32;
        let next = match self.previous {
            Some((lba, sectors)) => self.next_that_fits(lba + u64::from(sectors), block),
            None if self.again => 0,
            None => return None,
        };
        let wraps = next + u64::from(block) > self.options.writable_sectors();
        let next = if wraps { 0 } else { next };
        if !next.is_multiple_of(zones.capacity_sectors) || std::mem::take(&mut self.is_reset) {
            return None;
        }
        self.again |= wraps;
        self.is_reset = self.again;
        self.again.then_some(GeneratedRequest {
            op: Op::ZoneReset,
            lba: Lba(zones.first_sector + next / zones.capacity_sectors * zones.size_sectors),
            sectors: self.options.align_sectors,
            think: Nanos::ZERO,
        })
    }

    /// Any multiple of `unit` up to `last_start`, with equal probability unless the addresses are others.
    fn anywhere(&mut self, unit: u64, last_start: u64) -> u64 {
        unit * self.options.addresses.choose(last_start / unit + 1, &mut self.positions)
    }

    fn op(&mut self) -> Op {
        let reads = match self.options.workload {
            Workload::RandomRead | Workload::SequentialRead => true,
            Workload::RandomWrite | Workload::SequentialWrite => false,
            Workload::ZoneAppend => return Op::ZoneAppend,
            _ => self.operations.chance(self.options.read_share),
        };
        if reads { Op::Read } else { Op::Write }
    }
}

impl Iterator for Generator {
    type Item = GeneratedRequest;

    fn next(&mut self) -> Option<GeneratedRequest> {
        self.remaining = self.remaining.checked_sub(1)?;
        if let Some(reset) = self.reset() {
            return Some(reset);
        }
        let sectors = self.sectors();
        let start = self.lba(sectors);
        self.previous = Some((start, sectors));
        let lba = match self.options {
            // An append says only which zone.
            GeneratorOptions { workload: Workload::ZoneAppend, zones: Some(zones), .. } => {
                zones.first_sector + start / zones.capacity_sectors * zones.size_sectors
            }
            _ => self.place(start, sectors),
        };
        let think = match self.options.think_max.as_nanos() {
            0 => Nanos::ZERO,
            u64::MAX => Nanos::from_nanos(self.thinks.next_u64()),
            think_max_ns => Nanos::from_nanos(self.thinks.below(think_max_ns + 1)),
        };
        Some(GeneratedRequest { op: self.op(), lba: Lba(lba), sectors, think })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = usize::try_from(self.remaining);
        (remaining.unwrap_or(usize::MAX), remaining.ok())
    }
}

/// Griffin et al., section 5.1: "67% are reads".
const MEMULATOR_READ_SHARE: f64 = 0.67;
/// Section 5.1: "30% probability of 'local' access (within 500 LBNs of the previous request) and
/// 20% probability of sequential access".
const SEQUENTIAL_SHARE: f64 = 0.2;
const LOCAL_SHARE: f64 = 0.3;
const LOCAL_SECTORS: u64 = 500;
/// Section 5.1: "8-sector (4KB) requests".
const SMALL_SECTORS: u32 = 8;
/// Section 5.1: "256-sector (128KB) requests".
const LARGE_SECTORS: u32 = 256;
/// Section 5.1: "uniformly distributed request sizes in intervals of 2KB over the range [2KB, 130KB]".
const UNIFORM_STEP_SECTORS: u32 = 4;
const UNIFORM_STEPS: u64 = 65;
/// Our reading: "request starting locations are uniformly distributed across the storage
/// capacity", at the 4 KiB granularity of the reference outputs that the models are compared with.
const RANDOM_ALIGN_SECTORS: u64 = 8;

/// Divides the sizes and random starts of one of Griffin et al.'s workloads.
fn granule_sectors(workload: Workload) -> u64 {
    match workload {
        Workload::RandomUniform | Workload::MixedUniform => u64::from(UNIFORM_STEP_SECTORS),
        _ => u64::from(SMALL_SECTORS),
    }
}

fn sectors_max(options: &GeneratorOptions) -> u64 {
    match options.workload {
        Workload::RandomSmall | Workload::MixedSmall => u64::from(SMALL_SECTORS),
        Workload::RandomLarge | Workload::MixedLarge => u64::from(LARGE_SECTORS),
        Workload::RandomUniform | Workload::MixedUniform => u64::from(UNIFORM_STEP_SECTORS) * UNIFORM_STEPS,
        _ => options.block_bytes / SECTOR_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(workload: Workload, count: u64, change: impl Fn(&mut GeneratorOptions)) -> Vec<(Op, u64, u32)> {
        // Three zones of 1,024 sectors, 96 of them writable: two requests of 40 sectors.
        let mut options = GeneratorOptions {
            zones: Some(Zones { size_sectors: 1_024, capacity_sectors: 96, first_sector: 0, written: false }),
            block_bytes: 40 * SECTOR_BYTES,
            align_sectors: 8,
            ..GeneratorOptions::new(workload, 3 * 1_024, 1, count)
        };
        change(&mut options);
        let generated = Generator::new(options).expect("zones that fit");
        generated.map(|request| (request.op, request.lba.0, request.sectors)).collect()
    }

    #[test]
    fn zones_are_written_one_after_the_other_and_reset_before_the_second_round() {
        let write = |lba| (Op::Write, lba, 40);
        let reset = |lba| (Op::ZoneReset, lba, 8);
        let first = [0, 40, 1_024, 1_064, 2_048, 2_088].map(write);
        let again = [reset(0), write(0), write(40), reset(1_024), write(1_024)];
        let expected: Vec<_> = first.into_iter().chain(again).collect();
        assert_eq!(requests(Workload::SequentialWrite, 11, |_| {}), expected);
        let append = |lba| (Op::ZoneAppend, lba, 40);
        let expected: Vec<_> = [0, 0, 1_024, 1_024, 2_048, 2_048].map(append).into_iter().chain([reset(0)]).collect();
        assert_eq!(requests(Workload::ZoneAppend, 7, |_| {}), expected);
    }

    #[test]
    fn zones_that_were_written_before_are_reset_in_the_first_round_too() {
        let written = |options: &mut GeneratorOptions| options.zones.as_mut().expect("there are zones").written = true;
        for (workload, op) in [(Workload::SequentialWrite, Op::Write), (Workload::ZoneAppend, Op::ZoneAppend)] {
            let seen = requests(workload, 12, written);
            let (resets, writes): (Vec<_>, Vec<_>) = seen.into_iter().partition(|(op, ..)| *op == Op::ZoneReset);
            assert_eq!(resets, [0, 1_024, 2_048, 0].map(|lba| (Op::ZoneReset, lba, 8)));
            assert!(writes.len() == 8 && writes.iter().all(|write| write.0 == op), "{writes:?}");
            assert_eq!(requests(workload, 2, written)[0].0, Op::ZoneReset);
        }
        let reads = requests(Workload::SequentialRead, 3, written);
        assert!(reads.iter().all(|(op, ..)| *op == Op::Read), "{reads:?}");
    }

    #[test]
    fn one_zone_is_reset_each_time() {
        let ops = requests(Workload::SequentialWrite, 6, |options| options.capacity_sectors = 1_024);
        let ops: Vec<Op> = ops.into_iter().map(|(op, ..)| op).collect();
        assert_eq!(ops, [Op::Write, Op::Write, Op::ZoneReset, Op::Write, Op::Write, Op::ZoneReset]);
    }

    #[test]
    fn what_can_not_be_written_is_not_read_either() {
        for workload in [Workload::RandomRead, Workload::SequentialRead, Workload::RandomMixed] {
            for (_, lba, sectors) in requests(workload, 500, |_| {}) {
                assert!(lba % 1_024 + u64::from(sectors) <= 96, "{workload}: {lba}");
                assert!(lba < 3 * 1_024 && lba.is_multiple_of(8), "{workload}: {lba}");
            }
        }
    }

    #[test]
    fn zones_that_hold_no_request_are_refused() {
        let zones = Some(Zones { size_sectors: 1_024, capacity_sectors: 4, first_sector: 0, written: false });
        let options = GeneratorOptions { zones, ..GeneratorOptions::new(Workload::RandomRead, 1_024, 1, 1) };
        assert!(Generator::new(options).unwrap_err().contains("zones of 1024 sectors"));
        let options = GeneratorOptions::new(Workload::ZoneAppend, 1_024, 1, 1);
        assert!(Generator::new(options).unwrap_err().contains("needs a device with zones"));
    }
}
