//! The requests of one thread of a job.

use chronodisk_sim::{Nanos, Op, RandomStream, Request, SECTOR_BYTES};

use super::permutation::Permutation;
use super::{FioJob, Rate};
use crate::Addresses;

/// Makes the requests of a thread, each when there is room for it.
#[derive(Clone, Debug)]
pub struct FioThread {
    region: Region,
    read_share: f64,
    is_random: bool,
    repeats: bool,
    addresses: Addresses,
    depth: u32,
    /// Requests that are still to be issued; `None`: until the runtime is over.
    left: Option<u64>,
    rate: Option<Rate>,
    think: Nanos,
    think_every: u64,
    runtime: Option<Nanos>,
    start_delay: Nanos,
    issuer: u32,
    /// When the first request may be issued.
    begun: Nanos,
    issued: u64,
    /// Instant of the next request by an exponential pace, in nanoseconds after the beginning.
    paced_ns: f64,
    /// Next block of sequential reads, and of writes.
    next: [u64; 2],
    order: Permutation,
    /// Requests after which the region begins anew, and how many of them were issued.
    pass: u64,
    in_pass: u64,
    places: RandomStream,
    operations: RandomStream,
    paces: RandomStream,
}

/// The blocks of the device that a thread uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    first_sector: u64,
    block_sectors: u32,
    blocks: u64,
}

impl Region {
    /// The region of a job's thread, counted from 0, on a device of this size with blocks of `align_bytes`.
    ///
    /// # Errors
    /// A sentence that names the problem.
    pub fn new(job: &FioJob, thread: u32, device_bytes: u64, align_bytes: u64) -> Result<Self, String> {
        let name = &job.name;
        let increment_bytes = job.offset_increment_bytes.saturating_mul(u64::from(thread));
        let offset_bytes = job.offset.bytes(device_bytes).saturating_add(increment_bytes);
        for (key, bytes) in [("bs", job.block_bytes), ("offset", offset_bytes)] {
            if !bytes.is_multiple_of(align_bytes) {
                return Err(format!(
                    "[{name}]: {key} is {bytes} bytes; expected a multiple of the device's blocks of {align_bytes} \
                     bytes"
                ));
            }
        }
        let rest_bytes = device_bytes.saturating_sub(offset_bytes);
        let size_bytes = job.size.map_or(rest_bytes, |size| size.bytes(device_bytes));
        if size_bytes > rest_bytes {
            return Err(format!(
                "[{name}]: offset and size reach to byte {}, but the device has {device_bytes} bytes",
                offset_bytes.saturating_add(size_bytes)
            ));
        }
        let blocks = size_bytes / job.block_bytes;
        if blocks == 0 {
            return Err(format!("[{name}]: a size of {size_bytes} bytes holds no block of {} bytes", job.block_bytes));
        }
        let block_sectors = (job.block_bytes / SECTOR_BYTES) as u32;
        Ok(Region { first_sector: offset_bytes / SECTOR_BYTES, block_sectors, blocks })
    }
}

impl FioThread {
    /// A job's thread, counted from 0, in its region of a device of this size. Equal seeds give equal requests;
    /// `issuer` identifies the thread in their log.
    #[must_use]
    pub fn new(job: &FioJob, thread: u32, region: Region, device_bytes: u64, seed: u64, issuer: u32) -> Self {
        let component = format!("fio job {issuer} {} {thread}", job.name);
        let stream = |purpose| RandomStream::new(seed, &component, purpose);
        let mut places = stream("place");
        let of_size = match job.io {
            Some(io) => io.bytes(device_bytes).div_ceil(job.block_bytes),
            None => region.blocks,
        };
        let left = if job.is_time_based { None } else { Some(of_size) };
        let left = job.requests_max.map_or(left, |most| Some(left.map_or(most, |left| left.min(most))));
        FioThread {
            order: Permutation::draw(region.blocks, &mut places),
            region,
            read_share: job.read_share,
            is_random: job.is_random,
            repeats: job.repeats,
            addresses: job.addresses,
            depth: job.depth,
            left,
            rate: job.rate,
            think: job.think,
            think_every: job.think_every,
            runtime: job.runtime,
            start_delay: job.start_delay,
            issuer,
            begun: Nanos::ZERO,
            issued: 0,
            paced_ns: 0.0,
            next: [0, 0],
            pass: if job.is_time_based { of_size.min(region.blocks) } else { region.blocks },
            in_pass: 0,
            places,
            operations: stream("operation"),
            paces: stream("pace"),
        }
    }

    /// Requests that are outstanding at most.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Begins at this instant.
    pub fn begin(&mut self, now: Nanos) {
        self.begun = now.saturating_add(self.start_delay);
    }

    /// The next request and its instant, if there is room for one from `now` on; `None` at the end.
    pub fn next(&mut self, now: Nanos) -> Option<(Nanos, Request)> {
        let at = self.instant(now.max(self.begun));
        if self.left == Some(0) || self.runtime.is_some_and(|runtime| at.saturating_sub(self.begun) >= runtime) {
            return None;
        }
        self.left = self.left.map(|left| left - 1);
        self.issued += 1;
        let is_read = match self.read_share {
            1.0 => true,
            0.0 => false,
            share => self.operations.chance(share),
        };
        let op = if is_read { Op::Read } else { Op::Write };
        let lba = self.region.first_sector + self.block(is_read) * u64::from(self.region.block_sectors);
        let request = Request::new(0, op, lba, self.region.block_sectors);
        Some((at, Request { issuer: self.issuer, ..request }))
    }

    /// When the next request is issued, if there is room for it at `now`.
    fn instant(&mut self, now: Nanos) -> Nanos {
        let pauses = self.issued > 0 && self.issued.is_multiple_of(self.think_every);
        let ready = if pauses { now.saturating_add(self.think) } else { now };
        let Some(rate) = self.rate else { return ready };
        let gap_ns = 1e9 / rate.per_s;
        if rate.is_poisson && self.issued > 0 {
            self.paced_ns -= (1.0 - self.paces.unit()).ln() * gap_ns;
        } else {
            self.paced_ns = self.issued as f64 * gap_ns;
        }
        ready.max(self.begun.saturating_add(Nanos::from_nanos(self.paced_ns as u64)))
    }

    fn block(&mut self, is_read: bool) -> u64 {
        if self.in_pass == self.pass {
            self.in_pass = 0;
            self.next = [0, 0];
            self.order = Permutation::draw(self.region.blocks, &mut self.places);
        }
        self.in_pass += 1;
        if !self.is_random {
            let next = &mut self.next[usize::from(is_read)];
            *next += 1;
            return *next - 1;
        }
        if self.repeats || self.addresses != Addresses::Uniform {
            return self.addresses.choose(self.region.blocks, &mut self.places);
        }
        self.order.at(self.in_pass - 1)
    }
}
