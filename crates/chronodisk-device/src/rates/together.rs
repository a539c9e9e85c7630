//! Several closed loops on one device at once, such as a stream with random writes beside it.

use chronodisk_sim::{Completion, Nanos, Op, RandomStream, Request, SECTOR_BYTES};

use super::{Measured, step};
use crate::DeviceModel;

/// The order in which a loop visits its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Each request begins at the end of the previous one.
    Sequential,
    /// Each request ends at the beginning of the previous one.
    Backwards,
    /// Anywhere.
    Random,
}

/// Operations of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ops {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads and writes by turns.
    Mixed,
}

/// A loop that keeps `depth` requests outstanding in its own region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Pattern of its addresses.
    pub pattern: Pattern,
    /// The operations.
    pub ops: Ops,
    /// Bytes of a request, a multiple of 512.
    pub bytes: u32,
    /// Requests outstanding.
    pub depth: u32,
    /// First sector of its region.
    pub first_sector: u64,
    /// Sectors of its region.
    pub sectors: u64,
}

impl Loop {
    /// The first sector of its request of this number.
    fn place(&self, number: u64, stream: &mut RandomStream) -> u64 {
        let sectors = u64::from(self.bytes) / SECTOR_BYTES;
        let room = self.sectors / sectors;
        let index = match self.pattern {
            Pattern::Sequential => number % room,
            Pattern::Backwards => room - 1 - number % room,
            Pattern::Random => stream.below(room),
        };
        self.first_sector + index * sectors
    }

    fn op(&self, number: u64) -> Op {
        match self.ops {
            Ops::Read => Op::Read,
            Ops::Write => Op::Write,
            Ops::Mixed if number.is_multiple_of(2) => Op::Read,
            Ops::Mixed => Op::Write,
        }
    }
}

/// Runs the loops for `time` and then to their ends. The rates count completions within `time`; the longest wait counts
/// every request, including those at the end.
///
/// If a region has no room for a request, or the device breaks the contract of [`DeviceModel`].
pub fn measure_together(device: &mut dyn DeviceModel, loops: &[Loop], time: Nanos, seed: u64) -> Vec<Measured> {
    let mut streams: Vec<RandomStream> =
        (0..loops.len()).map(|index| RandomStream::new(seed, "loops", &index.to_string())).collect();
    let mut asked = vec![0; loops.len()];
    let mut done = vec![0u64; loops.len()];
    let mut longest = vec![Nanos::ZERO; loops.len()];
    let mut arrivals: Vec<(usize, Nanos)> = Vec::new();
    let mut submit = |device: &mut dyn DeviceModel, arrivals: &mut Vec<(usize, Nanos)>, index: usize| {
        let it = &loops[index];
        let (number, id) = (asked[index], arrivals.len() as u64);
        asked[index] += 1;
        let lba = it.place(number, &mut streams[index]);
        device.submit(Request::new(id, it.op(number), lba, it.bytes / SECTOR_BYTES as u32));
        arrivals.push((index, device.now()));
    };
    for turn in 0..loops.iter().map(|it| it.depth).max().unwrap_or(0) {
        for index in (0..loops.len()).filter(|&index| turn < loops[index].depth) {
            submit(device, &mut arrivals, index);
        }
    }
    let mut completed: Vec<Completion> = Vec::new();
    while device.outstanding() > 0 {
        step(device, &mut completed);
        for completion in completed.drain(..) {
            let (index, arrived) = arrivals[completion.id.0 as usize];
            longest[index] = longest[index].max(completion.at - arrived);
            if completion.at <= time {
                done[index] += 1;
                submit(device, &mut arrivals, index);
            }
        }
    }
    let elapsed = u128::from(time.as_nanos().max(1));
    let measured = |index: usize| Measured {
        bytes_per_second: (u128::from(done[index] * u64::from(loops[index].bytes)) * 1_000_000_000 / elapsed) as u64,
        requests_per_kilosecond: (u128::from(done[index]) * 1_000_000_000_000 / elapsed) as u64,
        longest_wait: longest[index],
    };
    (0..loops.len()).map(measured).collect()
}
