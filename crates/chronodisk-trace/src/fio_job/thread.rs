//! The requests of one thread of a job.

use chronodisk_sim::{Nanos, Op, Priority, RandomStream, Request, SECTOR_BYTES};

use super::files::FilePlace;
use super::pace::Pace;
use super::places::Places;
use super::{Direction, FioJob, Mix};

/// Makes the requests of a thread, each when there is room for it.
#[derive(Clone, Debug)]
pub struct FioThread {
    region: Region,
    mix: Mix,
    /// Least block of the operations that come.
    least_bytes: u64,
    depth: u32,
    /// A full queue drains to this.
    drained: u32,
    is_draining: bool,
    limits: Limits,
    think: Nanos,
    think_every: u64,
    /// Requests issued before the last pause.
    paused_after: u64,
    end: Option<Nanos>,
    ramp: Nanos,
    start_delay: Nanos,
    issuer: u32,
    fua: bool,
    priority: Priority,
    urgent: [f64; 3],
    urgency: Priority,
    flushes: Flushes,
    begun: Nanos,
    issued: u64,
    /// The block that was trimmed and is to be written.
    trimmed: Option<(u64, u64)>,
    places: Places,
    pace: Pace,
    operations: RandomStream,
    priorities: RandomStream,
}

/// Amount that a thread issues.
#[derive(Clone, Debug)]
struct Limits {
    requests: Option<u64>,
    /// Bytes in all; `None`: as many as `passes` have.
    bytes: Option<u64>,
    /// Passes that are still to be made after this one; `None`: until the runtime is over.
    passes: Option<u64>,
    /// Bytes of a pass, after which places begin anew, and the rest of the present pass.
    pass_bytes: u64,
    left_bytes: u64,
}

/// Rule by which a thread flushes the device's cache.
#[derive(Clone, Debug)]
struct Flushes {
    /// After so many writes; 0: never.
    every: u64,
    at_end: bool,
    /// Whether the thread waits for a flush.
    waits: bool,
    /// Whether the thread waits until nothing is outstanding.
    is_waiting: bool,
    writes: u64,
    /// Nothing was issued since the last one.
    is_last: bool,
}

/// The bytes of the device that a thread uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first.
    pub begin_bytes: u64,
    /// Length of the range in bytes.
    pub len_bytes: u64,
}

impl Region {
    /// The region of the thread of a job, counted from 0, in a file on a device whose blocks have `align_bytes`.
    ///
    /// # Errors
    /// A sentence that says what does not fit.
    pub fn new(job: &FioJob, thread: u32, file: FilePlace, align_bytes: u64) -> Result<Self, String> {
        let name = &job.name;
        let increment_bytes = job.offset_increment.bytes(file.len_bytes).saturating_mul(u64::from(thread));
        let offset_bytes = job.aligned_offset(file.len_bytes).saturating_add(increment_bytes);
        let sizes = job.directions().flat_map(|direction| {
            let index = direction as usize;
            let align = job.align[index].map(|bytes| ("blockalign", bytes));
            job.sizes[index].all().into_iter().map(|bytes| ("bs", bytes)).chain(align)
        });
        for (key, bytes) in sizes.chain([("offset", offset_bytes)]) {
            if !bytes.is_multiple_of(align_bytes) {
                return Err(format!(
                    "[{name}]: {key} is {bytes} bytes; expected a multiple of the device's blocks of {align_bytes} \
                     bytes"
                ));
            }
        }
        let rest_bytes = file.len_bytes.saturating_sub(offset_bytes);
        let of_file = job.file_size.map_or(rest_bytes, |bytes| bytes.saturating_sub(offset_bytes));
        let size_bytes = job.size.map_or(of_file, |size| size.bytes(job.file_size.unwrap_or(file.len_bytes)));
        if size_bytes > rest_bytes {
            return Err(format!(
                "[{name}]: offset and size reach to byte {}, but the device has {} bytes",
                offset_bytes.saturating_add(size_bytes),
                file.len_bytes
            ));
        }
        let most = job.directions().flat_map(|direction| job.sizes[direction as usize].all()).max().unwrap_or(0);
        if size_bytes < most {
            return Err(format!("[{name}]: a size of {size_bytes} bytes holds no block of {most} bytes"));
        }
        Ok(Region { begin_bytes: file.begin_bytes + offset_bytes, len_bytes: size_bytes })
    }
}

impl FioThread {
    /// The thread of a job, counted from 0, in its region of a file of this size. Equal seeds give equal requests;
    /// `issuer` is what their log says of the thread.
    #[must_use]
    pub fn new(job: &FioJob, thread: u32, region: Region, file: FilePlace, seed: u64, issuer: u32) -> Self {
        let component = format!("fio job {issuer} {} {thread}", job.name);
        let stream = |purpose| RandomStream::new(seed, &component, purpose);
        let bytes = job.io.map(|io| io.bytes(file.len_bytes));
        let pass_bytes = match bytes {
            Some(bytes) if job.is_time_based => bytes.min(region.len_bytes),
            _ => region.len_bytes,
        };
        FioThread {
            region,
            mix: job.mix,
            least_bytes: job.directions().map(|direction| job.sizes[direction as usize].min()).min().unwrap_or(0),
            depth: job.depth,
            drained: job.depth.saturating_sub(job.complete_min.max(1)).min(job.low),
            is_draining: false,
            limits: Limits {
                requests: job.requests_max,
                bytes: bytes.filter(|_| !job.is_time_based),
                passes: (!job.is_time_based).then(|| u64::from(job.loops) - 1),
                pass_bytes,
                left_bytes: pass_bytes,
            },
            think: job.think,
            think_every: job.think_every,
            paused_after: 0,
            end: job.runtime.map(|runtime| runtime.saturating_add(job.ramp)),
            ramp: job.ramp,
            start_delay: job.start_delay,
            issuer,
            fua: job.forces_writes,
            priority: job.priority,
            urgent: job.urgent_shares,
            urgency: job.urgency,
            flushes: Flushes {
                every: job.flush_every,
                at_end: job.flushes_at_end,
                waits: job.waits_for_flush,
                is_waiting: false,
                writes: 0,
                is_last: false,
            },
            begun: Nanos::ZERO,
            issued: 0,
            trimmed: None,
            places: Places::new(job, region, stream("place")),
            pace: Pace::new(job, stream("pace")),
            operations: stream("operation"),
            priorities: stream("priority"),
        }
    }

    /// A device without a volatile cache: the kernel sends it no flushes.
    pub fn without_flushes(&mut self) {
        (self.flushes.every, self.flushes.at_end) = (0, false);
    }

    /// Requests that are outstanding at most.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Time after its beginning in which its requests are not measured.
    #[must_use]
    pub fn ramp(&self) -> Nanos {
        self.ramp
    }

    /// Begins at this instant.
    pub fn begin(&mut self, now: Nanos) {
        self.begun = now.saturating_add(self.start_delay);
        self.pace.begin(self.begun);
    }

    /// The next request and its instant, if there is room for one from `now` on, while so many are outstanding. After
    /// `None` it is to be asked again when one of these has completed; with none outstanding, this is the end.
    pub fn next(&mut self, now: Nanos, outstanding: u32) -> Option<(Nanos, Request)> {
        let now = now.max(self.begun);
        if outstanding > 0 && (self.flushes.is_waiting || (self.is_draining && outstanding > self.drained)) {
            return None;
        }
        (self.flushes.is_waiting, self.is_draining) = (false, false);
        let request = self.due(now, outstanding)?;
        self.is_draining = outstanding + 1 >= self.depth && self.drained + 1 < self.depth;
        Some(request)
    }

    fn due(&mut self, now: Nanos, outstanding: u32) -> Option<(Nanos, Request)> {
        if !self.goes_on() {
            return self.flush_at_end(now, outstanding);
        }
        if self.flushes.is_due() {
            return Some(self.flush(now));
        }
        let pauses =
            self.think > Nanos::ZERO && self.issued > self.paused_after && self.issued.is_multiple_of(self.think_every);
        if pauses && outstanding > 0 {
            return None;
        }
        let ready = if pauses { now.saturating_add(self.think) } else { now };
        let direction = self.direction(ready);
        let at = ready.max(self.pace.due(direction));
        if self.end.is_some_and(|end| at.saturating_sub(self.begun) >= end) {
            self.limits.requests = Some(0);
            return self.flush_at_end(now, outstanding);
        }
        if pauses {
            self.paused_after = self.issued;
        }
        Some((at, self.request(direction)))
    }

    /// Whether there is a further request, but for the runtime.
    fn goes_on(&mut self) -> bool {
        let limits = &mut self.limits;
        if limits.requests == Some(0) || limits.bytes == Some(0) {
            return false;
        }
        if limits.left_bytes >= self.least_bytes {
            return true;
        }
        match (limits.bytes, &mut limits.passes) {
            (Some(_), _) | (None, None) => {}
            (None, Some(0)) => return false,
            (None, Some(passes)) => *passes -= 1,
        }
        limits.left_bytes = limits.pass_bytes.max(self.least_bytes);
        self.places.restart();
        true
    }

    fn direction(&mut self, now: Nanos) -> Direction {
        match self.mix {
            Mix::Only(direction) => direction,
            Mix::TrimThenWrite if self.trimmed.is_some() => Direction::Write,
            Mix::TrimThenWrite => Direction::Trim,
            Mix::ReadsAndWrites { read_share } => {
                let is_read = match read_share {
                    1.0 => true,
                    0.0 => false,
                    share => self.operations.chance(share),
                };
                let drawn = if is_read { Direction::Read } else { Direction::Write };
                let is_mixed = read_share > 0.0 && read_share < 1.0;
                if is_mixed { self.pace.direction(now, drawn) } else { drawn }
            }
        }
    }

    fn request(&mut self, direction: Direction) -> Request {
        let (offset, bytes) = match self.trimmed.take() {
            Some(block) => block,
            None => self.places.choose(direction),
        };
        if self.mix == Mix::TrimThenWrite && direction == Direction::Trim {
            self.trimmed = Some((offset, bytes));
        }
        self.pace.issued(direction, bytes);
        self.issued += 1;
        let limits = &mut self.limits;
        limits.requests = limits.requests.map(|requests| requests - 1);
        limits.bytes = limits.bytes.map(|left| left.saturating_sub(bytes));
        limits.left_bytes = limits.left_bytes.saturating_sub(bytes);
        self.flushes.is_last = false;
        self.flushes.writes += u64::from(direction == Direction::Write);
        let op = match direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Trim => Op::Discard,
        };
        let lba = (self.region.begin_bytes + offset) / SECTOR_BYTES;
        let request = Request::new(0, op, lba, (bytes / SECTOR_BYTES) as u32);
        let share = self.urgent[direction as usize];
        let is_urgent = share > 0.0 && self.priorities.chance(share);
        Request {
            issuer: self.issuer,
            fua: self.fua && op == Op::Write,
            priority: if is_urgent { self.urgency } else { self.priority },
            ..request
        }
    }

    fn flush_at_end(&mut self, now: Nanos, outstanding: u32) -> Option<(Nanos, Request)> {
        let is_due = self.flushes.at_end && self.flushes.writes > 0 && outstanding == 0;
        is_due.then(|| {
            self.flushes.at_end = false;
            self.flush(now)
        })
    }

    fn flush(&mut self, now: Nanos) -> (Nanos, Request) {
        self.flushes.is_last = true;
        self.flushes.is_waiting = self.flushes.waits;
        let request = Request::new(0, Op::Flush, 0, 0);
        (now, Request { issuer: self.issuer, priority: self.priority, ..request })
    }
}

impl Flushes {
    /// fio looks before each request whether the number of writes so far is a multiple.
    fn is_due(&self) -> bool {
        self.every > 0 && !self.is_last && self.writes > 0 && self.writes.is_multiple_of(self.every)
    }
}
