//! Pieces of one request, put together where they follow each other on a member.

/// Pieces by member. Adjacent pieces on a member become one, as the block layer below a striped device merges them.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    open: Vec<Run>,
    closed: Vec<(usize, Run)>,
}

/// A range of a member's sectors; may be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Number of merged pieces.
    pub(crate) pieces: u32,
    /// Whether it is parity rather than data.
    pub(crate) parity: bool,
}

impl Runs {
    pub(crate) fn new(members: usize) -> Self {
        Runs { open: vec![Run::default(); members], closed: Vec::new() }
    }

    /// Adds a piece; each member's pieces come in order of their addresses.
    pub(crate) fn add(&mut self, member: usize, start: u64, end: u64, parity: bool) {
        let open = &mut self.open[member];
        if open.pieces > 0 && open.end == start && open.parity == parity && end - open.start <= LONGEST_SECTORS {
            open.end = end;
            open.pieces += 1;
            return;
        }
        let before = std::mem::replace(open, Run { start, end, pieces: 1, parity });
        if before.pieces > 0 {
            self.closed.push((member, before));
        }
    }

    /// Ends the request: afterwards [`take`](Self::take) returns all runs.
    pub(crate) fn close(&mut self) {
        for (member, open) in self.open.iter_mut().enumerate() {
            let run = std::mem::take(open);
            if run.pieces > 0 {
                self.closed.push((member, run));
            }
        }
        // The first closed is the first submitted.
        self.closed.reverse();
    }

    /// The next run; each member's runs come in order of their addresses.
    pub(crate) fn take(&mut self) -> Option<(usize, Run)> {
        self.closed.pop()
    }
}

/// Longest request.
const LONGEST_SECTORS: u64 = u32::MAX as u64;
