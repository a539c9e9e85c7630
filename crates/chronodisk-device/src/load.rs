//! Closed loops of equal requests, and their measured rates, in the terms of data sheets.

/// A closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Whether each request begins at the end of the previous one; otherwise addresses are random.
    pub sequential: bool,
    /// Whether it writes.
    pub write: bool,
    /// Bytes of a request, a multiple of 512.
    pub bytes: u32,
    /// Requests outstanding.
    pub depth: u32,
}

impl Load {
    /// Requests of a measurement: as many as show a steady state, which a drive with many dies takes longer to reach
    /// than one with an arm.
    #[must_use]
    pub fn requests(&self, rotational: bool) -> u64 {
        let bytes = u64::from(self.bytes);
        match (self.sequential, rotational) {
            (true, true) => ((64 << 20) / bytes).clamp(128, 8_192),
            (true, false) => ((512 << 20) / bytes).clamp(512, 32_768),
            (false, true) => ((256 << 20) / bytes).clamp(256, 1_024),
            (false, false) => ((512 << 20) / bytes).clamp(512, 16_384),
        }
    }

    /// Name of the load: `sequential-read`, `random-write` and so on.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match (self.sequential, self.write) {
            (true, false) => "sequential-read",
            (true, true) => "sequential-write",
            (false, false) => "random-read",
            (false, true) => "random-write",
        }
    }
}

/// A device's rates in a listing: 128 KiB sequential and 4 KiB random, both at depth 32. `None` if a fresh device
/// refuses such requests or has no data to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes per second of sequential reads.
    pub sequential_read: Option<u64>,
    /// Bytes per second of sequential writes.
    pub sequential_write: Option<u64>,
    /// Random reads a second.
    pub random_read: Option<u64>,
    /// Random writes a second.
    pub random_write: Option<u64>,
}

impl Summary {
    /// A line of the table of built-in profiles: the rates in the order of the fields, joined by commas.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let rates = [self.sequential_read, self.sequential_write, self.random_read, self.random_write];
        rates.map(|rate| rate.map_or_else(String::new, |rate| rate.to_string())).join(",")
    }

    /// The inverse of [`to_csv`](Self::to_csv).
    pub(crate) fn of_csv(text: &str) -> Option<Summary> {
        let mut cells = text.split(',');
        let mut next = || cells.next().map(|cell| cell.parse().ok());
        let (sequential_read, sequential_write, random_read) = (next()?, next()?, next()?);
        Some(Summary { sequential_read, sequential_write, random_read, random_write: next()? })
    }
}
