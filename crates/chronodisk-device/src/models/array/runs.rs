//! Pieces of requests, put together where they follow each other on a member.

use chronodisk_sim::Op;

/// Pieces by member. Adjacent pieces on a member become one, as the block layer below a striped device merges them.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    open: Vec<Option<Run>>,
    closed: Vec<(usize, Run)>,
}

/// A range of a member's sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Number of merged pieces.
    pub(crate) pieces: u32,
    pub(crate) op: Op,
    /// Force unit access.
    pub(crate) fua: bool,
}

impl Runs {
    pub(crate) fn new(members: usize) -> Self {
        Runs { open: vec![None; members], closed: Vec::new() }
    }

    /// Adds a piece. It extends the member's last run if it follows that run and has the same operation.
    pub(crate) fn add(&mut self, member: usize, (start, end): (u64, u64), op: Op, fua: bool) {
        let open = &mut self.open[member];
        if let Some(run) = open
            && (run.end, run.op, run.fua) == (start, op, fua)
            && end - run.start <= LONGEST_SECTORS
        {
            run.end = end;
            run.pieces += 1;
            return;
        }
        if let Some(before) = open.replace(Run { start, end, pieces: 1, op, fua }) {
            self.closed.push((member, before));
        }
    }

    /// Adds a piece that is not merged with others.
    pub(crate) fn add_alone(&mut self, member: usize, (start, end): (u64, u64), op: Op) {
        let run = Run { start, end, pieces: 1, op, fua: false };
        if let Some(before) = self.open[member].take() {
            self.closed.push((member, before));
        }
        self.closed.push((member, run));
    }

    /// Ends the collection: afterwards [`take`](Self::take) returns all runs.
    pub(crate) fn close(&mut self) {
        for (member, open) in self.open.iter_mut().enumerate() {
            if let Some(run) = open.take() {
                self.closed.push((member, run));
            }
        }
        // The first closed is the first submitted.
        self.closed.reverse();
    }

    /// The next run; each member's runs come in order of their collection.
    pub(crate) fn take(&mut self) -> Option<(usize, Run)> {
        self.closed.pop()
    }
}

/// Longest request.
const LONGEST_SECTORS: u64 = u32::MAX as u64;
