//! A die: its present operation and its queues.

use chronodisk_sim::Nanos;

use super::{AWAITED_READS, BACKGROUND, CLASSES, Class, URGENT_ORDER};

/// The number of no transaction.
pub(super) const NONE: u32 = u32::MAX;

/// Phase of a die's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No operation.
    Idle,
    /// Takes the pages of a program.
    DataIn,
    /// Reads, programs or erases, until `until`; the command is still on its way before `array_since`.
    Array,
    /// Holds data that leave until `until`.
    DataOut,
    /// Is about to suspend a program or an erase.
    Suspending,
}

/// A queue of transactions, in order of arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) first: u32,
    pub(super) last: u32,
}

/// The state of a die.
#[derive(Clone, Copy, Debug)]
pub(super) struct Die {
    pub(super) phase: Phase,
    pub(super) urgent: bool,
    /// Whether an event will look at the die when its data have left.
    pub(super) wakes: bool,
    /// Class of the present operation, or of the last one.
    pub(super) doing: Class,
    pub(super) running: u32,
    pub(super) until: Nanos,
    /// Beginning of the present phase.
    pub(super) since: Nanos,
    pub(super) array_since: Nanos,
    /// Instant at which the output register is free.
    pub(super) register_free: Nanos,
    pub(super) generation: u32,
    pub(super) pages_left: u32,
    /// Suspensions of the present operation.
    pub(super) suspensions: u32,
    pub(super) reads_in_a_row: u32,
    /// Instant and length of the bus reservation for the command of the next read, if it is already reserved.
    pub(super) command: Option<(Nanos, Nanos)>,
    /// The suspended operation: transaction, class, time left.
    pub(super) suspended: Option<(u32, Class, Nanos)>,
    /// A bit for each class with waiting transactions.
    pub(super) waiting: u32,
    pub(super) lines: [Line; CLASSES],
}

impl Line {
    pub(super) const EMPTY: Line = Line { first: NONE, last: NONE };
}

impl Die {
    pub(super) fn new() -> Self {
        Die {
            phase: Phase::Idle,
            urgent: false,
            wakes: false,
            doing: Class::HostRead,
            running: NONE,
            until: Nanos::ZERO,
            since: Nanos::ZERO,
            array_since: Nanos::ZERO,
            register_free: Nanos::ZERO,
            generation: 0,
            pages_left: 0,
            suspensions: 0,
            reads_in_a_row: 0,
            command: None,
            suspended: None,
            waiting: 0,
            lines: [Line::EMPTY; CLASSES],
        }
    }

    /// Class to serve next; `None` if the suspended operation resumes.
    pub(super) fn next_class(&self, most_reads: u32) -> Option<Class> {
        let patient = self.reads_in_a_row < most_reads;
        let allowed = match self.suspended {
            Some(_) if patient => self.waiting & AWAITED_READS,
            Some(_) => 0,
            None if patient || self.waiting & BACKGROUND == 0 => self.waiting,
            None => self.waiting & BACKGROUND,
        };
        if allowed == 0 {
            return None;
        }
        if self.urgent {
            return URGENT_ORDER.into_iter().find(|&class| allowed & (1 << class as u32) != 0);
        }
        Some(IN_ORDER[allowed.trailing_zeros() as usize])
    }

    /// Takes the first transaction of a class.
    pub(super) fn take(&mut self, class: Class, next: impl Fn(u32) -> u32) -> u32 {
        let line = &mut self.lines[class as usize];
        let number = line.first;
        line.first = next(number);
        if line.first == NONE {
            line.last = NONE;
            self.waiting &= !(1 << class as u32);
        }
        number
    }

    /// Whether it would take a command if the bus were free.
    pub(super) fn wants_command(&self) -> bool {
        self.waiting != 0 && self.phase == Phase::Idle
    }
}

const IN_ORDER: [Class; CLASSES] = [
    Class::MappingRead,
    Class::HostReadFirst,
    Class::HostRead,
    Class::ReadAhead,
    Class::CollectorRead,
    Class::MappingProgram,
    Class::HostProgram,
    Class::CollectorProgram,
    Class::Erase,
];
