//! Requests from a seed.

use chronodisk_sim::{Lba, Nanos, Op, RandomStream, Request, RequestId, SECTOR_BYTES};

use crate::Workload;

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
/// - Sizes, positions and operations come from random streams of their own.
#[derive(Clone, Debug)]
pub struct Generator {
    options: GeneratorOptions,
    remaining: u64,
    previous: Option<(u64, u32)>,
    kinds: RandomStream,
    sizes: RandomStream,
    positions: RandomStream,
    operations: RandomStream,
    thinks: RandomStream,
}

/// What a [`Generator`] makes.
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
        }
    }
}

/// One request of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedRequest {
    /// Read or write.
    pub op: Op,
    /// First sector.
    pub lba: Lba,
    /// Length in sectors of 512 bytes, at least one.
    pub sectors: u32,
    /// Pause between the completion that makes room for this request and its arrival.
    pub think: Nanos,
}

impl GeneratedRequest {
    /// As a request for a device.
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
        let last_start = self.options.capacity_sectors - u64::from(sectors);
        let start = match self.options.workload {
            Workload::SequentialRead | Workload::SequentialWrite => {
                let next = self.previous.map_or(0, |(lba, sectors)| lba + u64::from(sectors));
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

    /// Any multiple of `unit` up to `last_start` with equal probability.
    fn anywhere(&mut self, unit: u64, last_start: u64) -> u64 {
        unit * self.positions.below(last_start / unit + 1)
    }

    fn op(&mut self) -> Op {
        let reads = match self.options.workload {
            Workload::RandomRead | Workload::SequentialRead => true,
            Workload::RandomWrite | Workload::SequentialWrite => false,
            _ => self.operations.chance(self.options.read_share),
        };
        if reads { Op::Read } else { Op::Write }
    }
}

impl Iterator for Generator {
    type Item = GeneratedRequest;

    fn next(&mut self) -> Option<GeneratedRequest> {
        self.remaining = self.remaining.checked_sub(1)?;
        let sectors = self.sectors();
        let lba = self.lba(sectors);
        self.previous = Some((lba, sectors));
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
