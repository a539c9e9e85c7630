//! fio's jobs, as far as a device model can follow them: jobs of job files, and options repeated in fio's results.
//!
//! [`FioJob::parse`] is pure: a text gives jobs, or an error with line, key, text found and text expected.
//! [`FioJob::of_options`] reads the same options one by one. A [`FioThread`] makes the requests of one of a job's
//! threads. All follow fio 3.33; [`options`] lists each of its options, with its treatment:
//!
//! - Random requests of one size without `norandommap` visit each block of the region once before any is visited again.
//! - Sequential reads and writes of a mixed job have a position each. Both restart once the job has issued as many
//!   bytes as its region has.
//! - A thread ends once it has issued `io_size` bytes.
//! - `thinktime` is a pause after each `thinktime_blocks` requests, which begins when no request is outstanding.
//! - `rate` and `rate_iops` set the earliest instant of each request; a thread that is late catches up.
//! - Units follow `kb_base`: at 1024, fio's default, `4k` has 4096 bytes and `4kib` has 4000.
//! - Files lie side by side on the device, unless all jobs use the same.
//!
//! Not modelled, and refused: the page cache (`direct=1` is needed), file systems, verification, zones, and further
//! options that the table refuses. Addresses are drawn from streams of Chronodisk, so they differ from fio's with
//! the same seed. Zipf's law is exact, while fio's generator is an approximation: at theta 1.2 on 256 blocks fio
//! chooses one of them for 53 % of the requests, the law for 25 %. Random blocks of several sizes may repeat, while fio
//! shortens requests that would repeat a block.

mod engines;
mod files;
mod keys;
pub mod options;
mod pace;
mod permutation;
mod places;
mod quantity;
mod section;
mod sizes;
mod thread;
mod treatment;

use std::fmt;

use chronodisk_sim::{Nanos, Priority};

pub use self::engines::{ENGINES, Engine, OPTIONS as ENGINE_OPTIONS};
pub use self::files::{FilePlace, lay_out};
pub use self::places::{Distribution, Strides};
pub use self::sizes::BlockSizes;
pub use self::thread::{FioThread, Region};

/// A job of a job file, with `numjobs` threads.
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// Name of its section.
    pub name: String,
    /// Line of the section's name, from 1.
    pub line: u32,
    /// Operations of the job.
    pub mix: Mix,
    /// Order of its addresses.
    pub order: Order,
    /// Shares of random addresses in a random order, for reads, writes and trims.
    pub random_shares: [f64; 3],
    /// Whether a random block may repeat before all others were visited.
    pub repeats: bool,
    /// Distribution of random addresses.
    pub distribution: Distribution,
    /// Sizes of reads, writes and trims; multiples of 512 bytes.
    pub sizes: [BlockSizes; 3],
    /// Alignment of random offsets; `None`: the smallest block size.
    pub align: [Option<u64>; 3],
    /// The used stretches of the region; `None` for all of it.
    pub strides: Option<Strides>,
    /// Its I/O engine.
    pub engine: &'static Engine,
    /// Outstanding requests of each thread.
    pub depth: u32,
    /// Whether `iodepth` asks for more than its engine keeps outstanding.
    pub is_capped: bool,
    /// Completions for which a full queue waits.
    pub complete_min: u32,
    /// Number of requests to which a full queue drains.
    pub low: u32,
    /// The file; `None`: one for each thread.
    pub file: Option<String>,
    /// The directory, with a slash at the end; empty if none is given.
    pub directory: String,
    /// Format of the names of threads' files.
    pub file_format: Option<String>,
    /// Size of its file in bytes.
    pub file_size: Option<u64>,
    /// Beginning of the region.
    pub offset: Amount,
    /// Alignment of an offset given as a share, which is rounded up.
    pub offset_align: Option<u64>,
    /// Distance between the beginnings of the regions of successive threads.
    pub offset_increment: Amount,
    /// Size of the region; `None`: to the end of the file.
    pub size: Option<Amount>,
    /// Bytes that each thread issues; `None`: the region's size.
    pub io: Option<Amount>,
    /// Number of times that each thread repeats its I/O.
    pub loops: u32,
    /// Most requests of each thread.
    pub requests_max: Option<u64>,
    /// Number of threads.
    pub threads: u32,
    /// Pace of each thread's reads, writes and trims.
    pub rates: [Option<Rate>; 3],
    /// Whether intervals of paced requests are exponential instead of equal.
    pub is_poisson: bool,
    /// Pause before a request.
    pub think: Nanos,
    /// Requests between two pauses.
    pub think_every: u64,
    /// Time after its ramp from which no further request is issued.
    pub runtime: Option<Nanos>,
    /// Whether it repeats until the runtime is over.
    pub is_time_based: bool,
    /// Time at its beginning during which requests are not measured.
    pub ramp: Nanos,
    /// Pause before its first request.
    pub start_delay: Nanos,
    /// Whether it waits until all jobs before it have ended.
    pub waits: bool,
    /// The job that must end before this one begins.
    pub waits_for: Option<String>,
    /// Writes between two flushes; 0 for none.
    pub flush_every: u64,
    /// Whether a flush follows its last write.
    pub flushes_at_end: bool,
    /// Whether a thread waits for its flushes.
    pub waits_for_flush: bool,
    /// Whether each write is forced to the medium.
    pub forces_writes: bool,
    /// Priority of its requests.
    pub priority: Priority,
    /// Shares of reads, writes and trims with the other priority, `urgency`.
    pub urgent_shares: [f64; 3],
    /// The other priority.
    pub urgency: Priority,
}

/// The operations of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// One operation only.
    Only(Direction),
    /// Reads and writes.
    ReadsAndWrites {
        /// Share of reads, 0 to 1.
        read_share: f64,
    },
    /// Each block is trimmed and then written.
    TrimThenWrite,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A read.
    Read = 0,
    /// A write.
    Write = 1,
    /// A discard.
    Trim = 2,
}

/// Order of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each request follows the one before it.
    Sequential {
        /// Bytes between two requests; negative for backwards.
        gap_bytes: i64,
    },
    /// Runs of sequential requests at random addresses.
    Random {
        /// Requests of a run, at least one.
        run: u64,
        /// Whether all requests of a run have the same address.
        is_identical: bool,
    },
}

/// A size in bytes, or a share of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A number of bytes.
    Bytes(u64),
    /// Per cent of the device, 0 to 100.
    Percent(u8),
}

/// The pace of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Requests per second.
    Requests(f64),
    /// Bytes per second.
    Bytes(f64),
}

/// Environment of a job file: variables, and included files.
pub trait Surroundings {
    /// The value of an environment variable, if it is set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The text of an included file.
    ///
    /// # Errors
    /// The expected value.
    fn include(&self, name: &str) -> Result<String, String>;
}

/// An environment without variables or included files.
struct Alone;

impl Surroundings for Alone {
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn include(&self, _name: &str) -> Result<String, String> {
        Err("all settings in this file".to_owned())
    }
}

/// An unsupported part of a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FioJobError {
    /// The included file; `None`: the job file.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: u32,
    /// The key, or the kind of line.
    pub key: String,
    /// Text found.
    pub found: String,
    /// Text expected.
    pub expected: String,
}

impl FioJobError {
    fn new(line: u32, key: &str, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        FioJobError { file: None, line, key: shown(key), found: found.to_string(), expected: expected.to_string() }
    }

    fn in_file(self, file: Option<&str>) -> Self {
        FioJobError { file: file.map(shown), ..self }
    }

    /// The message without its place.
    #[must_use]
    pub fn message(&self) -> String {
        format!("{}: {}; expected {}", self.key, self.found, self.expected)
    }
}

impl fmt::Display for FioJobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        write!(f, "{}: {}", self.line, self.message())
    }
}

impl std::error::Error for FioJobError {}

/// The beginning of a text, short enough for a message.
fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Most threads of a job file.
pub const THREADS_MAX: u32 = 4_096;

impl Amount {
    fn is_zero(self) -> bool {
        matches!(self, Amount::Bytes(0) | Amount::Percent(0))
    }

    /// In bytes, on a device of this size; a share is rounded to whole sectors.
    #[must_use]
    pub fn bytes(self, device_bytes: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => {
                let bytes = u128::from(device_bytes) * u128::from(percent) / 100;
                (bytes / 512 * 512) as u64
            }
        }
    }
}

impl FioJob {
    /// The jobs of a job file without variables and included files, in order; at least one.
    ///
    /// # Errors
    /// The first line that is not supported.
    pub fn parse(text: &str) -> Result<Vec<FioJob>, FioJobError> {
        FioJob::parse_in(text, &Alone)
    }

    /// The jobs of a job file, in order; at least one.
    ///
    /// # Errors
    /// Like [`parse`](Self::parse).
    pub fn parse_in(text: &str, surroundings: &dyn Surroundings) -> Result<Vec<FioJob>, FioJobError> {
        let lines = section::lines(text, surroundings)?;
        let sections = section::sections(&lines)?;
        let jobs: Vec<FioJob> = sections.iter().map(keys::job).collect::<Result<_, _>>()?;
        let Some(last) = sections.last() else {
            return Err(FioJobError::new(1, "section", "none", "a job, such as [reads]"));
        };
        let threads: u64 = jobs.iter().map(|job| u64::from(job.threads)).sum();
        if threads > u64::from(THREADS_MAX) {
            let found = format!("{threads} threads of all jobs");
            return Err(FioJobError::new(last.line, "numjobs", found, format_args!("at most {THREADS_MAX}")));
        }
        keys::expect_order(&sections, &jobs)?;
        Ok(jobs)
    }

    /// A job with these options; the last one of a name applies. `line` is its place in messages.
    ///
    /// # Errors
    /// The first option that is not supported.
    pub fn of_options(name: &str, line: u32, options: &[(&str, Option<&str>)]) -> Result<FioJob, FioJobError> {
        let settings = options.iter().map(|(key, value)| section::Setting::new(key, *value, line, None)).collect();
        keys::job(&section::Section { name, line, settings })
    }

    /// The operations of the job.
    pub fn directions(&self) -> impl Iterator<Item = Direction> + use<> {
        let (read, write, trim) = match self.mix {
            Mix::Only(direction) => {
                (direction == Direction::Read, direction == Direction::Write, direction == Direction::Trim)
            }
            Mix::ReadsAndWrites { read_share } => (read_share > 0.0, read_share < 1.0, false),
            Mix::TrimThenWrite => (false, true, true),
        };
        let all = [(Direction::Read, read), (Direction::Write, write), (Direction::Trim, trim)];
        all.into_iter().filter(|(_, comes)| *comes).map(|(direction, _)| direction)
    }

    /// The size of all its requests, if they have one size.
    #[must_use]
    pub fn block_bytes(&self) -> Option<u64> {
        let mut sizes = self.directions().map(|direction| self.sizes[direction as usize].only());
        let first = sizes.next()??;
        sizes.all(|size| size == Some(first)).then_some(first)
    }

    /// Whether addresses are random instead of sequential.
    #[must_use]
    pub fn is_random(&self) -> bool {
        matches!(self.order, Order::Random { .. })
    }

    /// Whether each random block is visited once before any is visited again.
    fn visits_once(&self) -> bool {
        let is_plain = self.order == Order::Random { run: 1, is_identical: false } && self.strides.is_none();
        let jumps = self.directions().all(|direction| self.random_shares[direction as usize] >= 1.0);
        let is_aligned = self.align == [None; 3];
        is_plain
            && jumps
            && is_aligned
            && !self.repeats
            && self.distribution == Distribution::Uniform
            && self.block_bytes().is_some()
    }

    /// The offset in a file of this size. A share is rounded up to its alignment.
    fn aligned_offset(&self, file_bytes: u64) -> u64 {
        let offset = self.offset.bytes(file_bytes);
        match self.offset {
            Amount::Bytes(_) => offset,
            Amount::Percent(_) => {
                let least = self.directions().map(|direction| self.sizes[direction as usize].min()).min();
                offset.checked_next_multiple_of(self.offset_align.or(least).unwrap_or(1).max(1)).unwrap_or(offset)
            }
        }
    }
}

#[cfg(test)]
mod tests;
