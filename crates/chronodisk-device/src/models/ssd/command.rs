//! Commands in the drive, and lines of them.

use chronodisk_sim::{Nanos, Request, Status};

use super::pool::{NONE, Pool};

/// A request in the drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) request: Request,
    pub(super) arrived: Nanos,
    /// Pending work before the next stage: transactions, or entries of the buffer that a flush waits for.
    pub(super) pending: u32,
    /// End of the latest work so far.
    pub(super) latest: Nanos,
    /// The units that it touches: the next to be admitted, and the one after the last.
    pub(super) next_unit: u32,
    pub(super) end_unit: u32,
    /// Index of the unit that arrives next in the buffer.
    pub(super) next_arrival: u32,
    /// Next command in the same queue.
    pub(super) next: u32,
    /// Instant since which a write waits for places in the buffer.
    pub(super) since: Nanos,
    /// For a flush: all entries of the buffer before this order must be programmed first.
    pub(super) order: u64,
    /// Status of the completion.
    pub(super) status: Status,
    /// Whether data of a read have entered the output stage.
    pub(super) in_output: bool,
}

impl Command {
    pub(super) fn new(request: Request, arrived: Nanos) -> Self {
        Command {
            request,
            arrived,
            pending: 0,
            latest: Nanos::ZERO,
            next_unit: 0,
            end_unit: 0,
            next_arrival: 0,
            next: NONE,
            since: Nanos::ZERO,
            order: 0,
            status: Status::Ok,
            in_output: false,
        }
    }
}

/// A line of commands, linked by their `next`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandLine {
    first: u32,
    last: u32,
}

impl CommandLine {
    pub(super) const EMPTY: CommandLine = CommandLine { first: NONE, last: NONE };

    pub(super) fn push(&mut self, commands: &mut Pool<Command>, number: u32) {
        commands[number].next = NONE;
        match self.last {
            NONE => self.first = number,
            last => commands[last].next = number,
        }
        self.last = number;
    }

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }

    pub(super) fn pop(&mut self, commands: &Pool<Command>) -> Option<u32> {
        let number = self.first()?;
        self.first = commands[number].next;
        if self.first == NONE {
            self.last = NONE;
        }
        Some(number)
    }
}
