//! Limits on the memory for the contents of files.

use std::fmt;
use std::io::{self, Read};

/// The most memory that a command may use for the contents of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentsLimit {
    bytes: u64,
}

impl ContentsLimit {
    /// No limit: for files that this process has just written itself.
    pub const NONE: ContentsLimit = ContentsLimit { bytes: u64::MAX };

    /// A limit of this many bytes.
    #[must_use]
    pub const fn of_bytes(bytes: u64) -> Self {
        ContentsLimit { bytes }
    }

    /// The limit in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Checks a need against the limit.
    ///
    /// # Errors
    /// If the need exceeds the limit.
    pub const fn allow(self, need_bytes: u64) -> Result<(), OverLimit> {
        if need_bytes > self.bytes {
            return Err(OverLimit { need_bytes, is_whole: true, limit: self });
        }
        Ok(())
    }
}

/// The rest of a [`ContentsLimit`] while a file of unknown length is read.
#[derive(Clone, Copy, Debug)]
pub struct ContentsBudget {
    limit: ContentsLimit,
    used_bytes: u64,
}

impl ContentsBudget {
    /// The whole limit.
    #[must_use]
    pub const fn new(limit: ContentsLimit) -> Self {
        ContentsBudget { limit, used_bytes: 0 }
    }

    /// Uses a part of the budget.
    ///
    /// # Errors
    /// If the limit is exceeded.
    pub const fn take(&mut self, bytes: u64) -> Result<(), OverLimit> {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        if self.used_bytes > self.limit.bytes {
            return Err(OverLimit { need_bytes: self.used_bytes, is_whole: false, limit: self.limit });
        }
        Ok(())
    }
}

/// Reads bytes that will occupy a multiple of their number in memory. Fails with [`OverLimit`] at the limit.
#[derive(Debug)]
pub struct MeteredRead<R> {
    bytes: R,
    /// Bytes of memory for each byte of the file.
    factor: u64,
    budget: ContentsBudget,
}

impl<R: Read> MeteredRead<R> {
    /// Reads from `bytes`, with `factor` bytes of memory for each.
    pub const fn new(bytes: R, factor: u64, limit: ContentsLimit) -> Self {
        MeteredRead { bytes, factor, budget: ContentsBudget::new(limit) }
    }
}

impl<R: Read> Read for MeteredRead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.bytes.read(buffer)?;
        self.budget.take(len as u64 * self.factor).map_err(io::Error::other)?;
        Ok(len)
    }
}

/// A file that needs more memory than the limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// The memory that the file needs.
    pub need_bytes: u64,
    /// Whether `need_bytes` is the exact need. Otherwise it is a lower bound, since the end of the file was not
    /// reached.
    pub is_whole: bool,
    /// The limit.
    pub limit: ContentsLimit,
}

impl OverLimit {
    /// Advice to the user.
    pub const HELP: &'static str = "--memory-limit sets another limit, such as --memory-limit 16GiB";
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = if self.is_whole { "about" } else { "more than" };
        let [need, limit] = [self.need_bytes, self.limit.bytes].map(shown);
        write!(f, "its contents need {bound} {need} of memory; the limit is {limit}")
    }
}

impl std::error::Error for OverLimit {}

/// The amount in mebibytes, or in gibibytes with one decimal.
fn shown(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 1 << 30 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        bytes => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends_at_its_limit() {
        let limit = ContentsLimit::of_bytes(3 << 29);
        limit.allow(3 << 29).unwrap();
        let over = limit.allow(17 << 29).unwrap_err().to_string();
        assert_eq!(over, "its contents need about 8.5 GiB of memory; the limit is 1.5 GiB");
        let mut budget = ContentsBudget::new(ContentsLimit::of_bytes(100));
        budget.take(100).unwrap();
        let over = budget.take(1).unwrap_err().to_string();
        assert_eq!(over, "its contents need more than 1 MiB of memory; the limit is 1 MiB");
        ContentsBudget::new(ContentsLimit::NONE).take(u64::MAX).unwrap();
    }
}
