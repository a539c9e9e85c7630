//! fio's jobs, as far as a device model can follow them: those of job files, and the options that fio's results repeat.
//!
//! [`FioJob::parse`] is pure: a text gives jobs, or an error with line, key, what was found and what was expected.
//! [`FioJob::of_options`] reads the same options one by one. A [`FioThread`] makes the requests of one of a job's
//! threads. All follow fio 3.33; [`options`] has each of its options, and what is done with it:
//!
//! - Random requests of one size without `norandommap` visit each block of the region once before any is visited again.
//! - Sequential reads and writes of a mixed job have a position each. Both begin anew once the job has issued as many
//!   bytes as its region has.
//! - A thread ends once it has issued `io_size` bytes.
//! - `thinktime` is a pause after each `thinktime_blocks` requests, which begins when nothing is outstanding.
//! - `rate` and `rate_iops` set the earliest instant of each request; a thread that is late catches up.
//! - Units follow `kb_base`: at 1024, fio's default, `4k` has 4096 bytes and `4kib` has 4000.
//! - Files lie side by side on the device, unless all jobs use the same.
//!
//! Not modelled, and refused: the page cache (`direct=1` is needed), file systems, verification, zones, and whatever
//! else the table refuses. Addresses are drawn from streams of Chronodisk, so they are not those of fio with the same
//! seed. Zipf's law is exact, while fio's generator is an approximation: at theta 1.2 on 256 blocks fio chooses one of
//! them for 53 % of the requests, the law for 25 %. Random blocks of several sizes may repeat, while fio shortens those
//! that would.

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

use std::fmt;

use chronodisk_sim::{Nanos, Priority};

pub use self::engines::{ENGINES, Engine, OPTIONS as ENGINE_OPTIONS};
pub use self::files::{FilePlace, lay_out};
pub use self::places::{Distribution, Strides};
pub use self::sizes::BlockSizes;
pub use self::thread::{FioThread, Region};

/// A job of a job file; it has several threads if `numjobs` says so.
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// Name of its section.
    pub name: String,
    /// Line of the section's name, from 1.
    pub line: u32,
    /// Its operations.
    pub mix: Mix,
    /// How its places follow each other.
    pub order: Order,
    /// Shares of random places among those of a random order, of reads, writes and trims.
    pub random_shares: [f64; 3],
    /// Whether a random block may come again before all others have come.
    pub repeats: bool,
    /// Where random requests go.
    pub distribution: Distribution,
    /// Sizes of reads, writes and trims; multiples of 512 bytes.
    pub sizes: [BlockSizes; 3],
    /// The alignment of random offsets; `None`: the least block size.
    pub align: [Option<u64>; 3],
    /// Stretches of the region that are used.
    pub strides: Option<Strides>,
    /// Its engine.
    pub engine: &'static Engine,
    /// Requests outstanding of each thread.
    pub depth: u32,
    /// Whether `iodepth` asks for more than its engine keeps outstanding.
    pub is_capped: bool,
    /// A full queue waits for so many completions.
    pub complete_min: u32,
    /// A full queue drains to so many requests.
    pub low: u32,
    /// The file; `None`: each thread has its own.
    pub file: Option<String>,
    /// The directory, with a slash behind it; or nothing.
    pub directory: String,
    /// How the files of threads are named.
    pub file_format: Option<String>,
    /// Size of its file in bytes.
    pub file_size: Option<u64>,
    /// Beginning of the region.
    pub offset: Amount,
    /// The alignment of an offset that is a share; it is rounded up.
    pub offset_align: Option<u64>,
    /// Distance between the beginnings of the regions of successive threads.
    pub offset_increment: Amount,
    /// Size of the region; `None`: what follows `offset`.
    pub size: Option<Amount>,
    /// Bytes that each thread issues; `None`: the region's size.
    pub io: Option<Amount>,
    /// How often each thread does all of its I/O.
    pub loops: u32,
    /// Requests that each thread issues at most.
    pub requests_max: Option<u64>,
    /// Number of threads.
    pub threads: u32,
    /// Pace of the reads, writes and trims of each thread.
    pub rates: [Option<Rate>; 3],
    /// Times between paced requests are exponential; else they are equal.
    pub is_poisson: bool,
    /// Pause before a request.
    pub think: Nanos,
    /// Requests between two pauses.
    pub think_every: u64,
    /// Issues nothing from this instant after its ramp on.
    pub runtime: Option<Nanos>,
    /// Whether it begins again until the runtime is over.
    pub is_time_based: bool,
    /// Time at its beginning whose requests are not measured.
    pub ramp: Nanos,
    /// Pause before its first request.
    pub start_delay: Nanos,
    /// Whether it waits until all jobs before it have ended.
    pub waits: bool,
    /// The job that has to end before it begins.
    pub waits_for: Option<String>,
    /// A flush follows so many writes; 0: none does.
    pub flush_every: u64,
    /// Whether a flush follows its last write.
    pub flushes_at_end: bool,
    /// Whether a thread waits for a flush.
    pub waits_for_flush: bool,
    /// Whether each write is forced to the medium.
    pub forces_writes: bool,
    /// Urgency of its requests.
    pub priority: Priority,
    /// Shares of reads, writes and trims that have another urgency, and that one.
    pub urgent_shares: [f64; 3],
    /// The other urgency.
    pub urgency: Priority,
}

/// The operations of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// All alike.
    Only(Direction),
    /// Reads and writes.
    ReadsAndWrites {
        /// Share of reads, 0 to 1.
        read_share: f64,
    },
    /// Each block is trimmed, and then written.
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

/// How places follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One behind the other.
    Sequential {
        /// Bytes between two, below zero for backwards.
        gap_bytes: i64,
    },
    /// A random place, and those that follow it.
    Random {
        /// Requests from one random place to the next, at least one.
        run: u64,
        /// Whether these have the same place instead.
        is_identical: bool,
    },
}

/// A size in bytes, or a share of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the device; 0 to 100.
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

/// Where a job file is: its variables, and the files that it includes.
pub trait Surroundings {
    /// The value of an environment variable, if it is set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The text of an included file.
    ///
    /// # Errors
    /// The expected value.
    fn include(&self, name: &str) -> Result<String, String>;
}

/// A job file on its own.
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

/// At most so much of a file's text, for messages.
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

    /// In bytes, of a device of this size; a share is whole sectors.
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
    /// On the first line that can't be followed.
    pub fn parse(text: &str) -> Result<Vec<FioJob>, FioJobError> {
        FioJob::parse_in(text, &Alone)
    }

    /// The jobs of a job file, in order; at least one.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
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

    /// A job of these options; the last one of a name counts. `line` is its place in messages.
    ///
    /// # Errors
    /// On the first option that can't be followed.
    pub fn of_options(name: &str, line: u32, options: &[(&str, Option<&str>)]) -> Result<FioJob, FioJobError> {
        let settings = options.iter().map(|(key, value)| section::Setting::new(key, *value, line, None)).collect();
        keys::job(&section::Section { name, line, settings })
    }

    /// The directions that come.
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

    /// Whether addresses are random; else sequential.
    #[must_use]
    pub fn is_random(&self) -> bool {
        matches!(self.order, Order::Random { .. })
    }

    /// Whether each random block comes once before any comes again.
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
