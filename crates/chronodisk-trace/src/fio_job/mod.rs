//! fio's job files, as far as a device model can follow them.
//!
//! [`FioJob::parse`] is pure: a text gives jobs, or an error with line, key, what was found and what was expected. A
//! [`FioThread`] makes the requests of one of a job's threads. Both follow fio 3.33:
//!
//! - Random requests without `norandommap` visit each block of the region once before any is visited again.
//! - Sequential reads and writes of a mixed job have a position each. Both begin anew once the job has issued as many
//!   bytes as its region has.
//! - A thread ends once it has issued `io_size` bytes.
//! - `thinktime` is a pause between a completion and the next request, after each `thinktime_blocks` requests.
//! - `rate_iops` sets the earliest instant of each request; a thread that is late catches up.
//! - Units follow `kb_base=1024`, fio's default: `4k` has 4096 bytes, `4kib` has 4000.
//!
//! Not modelled, and refused: the page cache (`direct=1` is needed), file systems and several files, verification,
//! `fsync`, trims, several block sizes, and whatever else is not in the table of the documentation. Addresses are
//! drawn from streams of Chronodisk, so they are not those of fio with the same seed. Zipf's law is exact, while fio's
//! generator is an approximation: at theta 1.2 on 256 blocks fio chooses one of them for 53 % of the requests, the law
//! for 25 %.

mod keys;
mod permutation;
mod quantity;
mod section;
mod thread;

use std::fmt;

use chronodisk_sim::Nanos;

pub use self::thread::{FioThread, Region};
use crate::Addresses;

/// A job of a job file; it has several threads if `numjobs` says so.
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// Name of its section.
    pub name: String,
    /// Line of the section's name, from 1.
    pub line: u32,
    /// Share of reads, 0 to 1.
    pub read_share: f64,
    /// Whether addresses are random; else sequential.
    pub is_random: bool,
    /// Whether a random block may come again before all others have come.
    pub repeats: bool,
    /// Where random requests go.
    pub addresses: Addresses,
    /// Size of each request in bytes; a multiple of 512.
    pub block_bytes: u64,
    /// Requests outstanding of each thread.
    pub depth: u32,
    /// Whether `iodepth` asks for more than its engine keeps outstanding.
    pub is_capped: bool,
    /// Beginning of the region.
    pub offset: Amount,
    /// Distance between the beginnings of neighbouring threads' regions, in bytes.
    pub offset_increment_bytes: u64,
    /// Size of the region; `None`: the rest after `offset`.
    pub size: Option<Amount>,
    /// Bytes that each thread issues; `None`: the region's size.
    pub io: Option<Amount>,
    /// Requests that each thread issues at most.
    pub requests_max: Option<u64>,
    /// Number of threads.
    pub threads: u32,
    /// Requests per second and thread at most.
    pub rate: Option<Rate>,
    /// Pause before a request.
    pub think: Nanos,
    /// Requests between two pauses.
    pub think_every: u64,
    /// Issues nothing from this instant after its beginning on.
    pub runtime: Option<Nanos>,
    /// Whether it begins again until the runtime is over.
    pub is_time_based: bool,
    /// Pause before its first request.
    pub start_delay: Nanos,
    /// Whether it waits until all jobs before it have ended.
    pub waits: bool,
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
pub struct Rate {
    /// Requests per second.
    pub per_s: f64,
    /// Times between requests are exponential; else they are equal.
    pub is_poisson: bool,
}

/// An unsupported part of a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FioJobError {
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
        FioJobError { line, key: shown(key), found: found.to_string(), expected: expected.to_string() }
    }
}

impl fmt::Display for FioJobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}; expected {}", self.line, self.key, self.found, self.expected)
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
    /// The jobs of a job file, in order; at least one.
    ///
    /// # Errors
    /// On the first line that can't be followed.
    pub fn parse(text: &str) -> Result<Vec<FioJob>, FioJobError> {
        let sections = section::sections(text)?;
        let jobs: Vec<FioJob> = sections.iter().map(keys::job).collect::<Result<_, _>>()?;
        let Some(last) = sections.last() else {
            return Err(FioJobError::new(1, "section", "none", "a job, such as [reads]"));
        };
        let threads: u64 = jobs.iter().map(|job| u64::from(job.threads)).sum();
        if threads > u64::from(THREADS_MAX) {
            let found = format!("{threads} threads of all jobs");
            return Err(FioJobError::new(last.line, "numjobs", found, format_args!("at most {THREADS_MAX}")));
        }
        section::expect_one_file(&sections, threads)?;
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests;
