//! The command queue: requests before the drive and in it, and the command that is being decoded.

use std::collections::VecDeque;

use chronodisk_sim::{Op, Request};

use super::super::drive::{Control, ExtraTicks};
use super::super::mechanics::Ticks;
use super::{Command, NEVER};

/// The queue, and the history that determines the overhead of the next command.
#[derive(Clone, Debug, Default)]
pub(super) struct Commands {
    /// Requests that the drive has not taken, in order of arrival.
    outside: VecDeque<Command>,
    in_drive: u32,
    decoding: Option<(Command, Ticks)>,
    /// Whether the last read or write that completed was a write.
    last_was_write: bool,
    /// The block behind the last write that arrived.
    last_write_end: u64,
}

impl Commands {
    /// Number of requests that have not completed.
    pub(super) fn outstanding(&self) -> u32 {
        self.outside.len() as u32 + self.in_drive
    }

    pub(super) fn arrive(&mut self, request: Request, now: Ticks) {
        self.outside.push_back(Command { request, arrived: now, has_extra_disconnect: false });
    }

    /// The next command, if the drive has room for one and decodes no other.
    pub(super) fn take(&mut self, depth: u32) -> Option<Command> {
        if self.decoding.is_some() || self.in_drive >= depth {
            return None;
        }
        let command = self.outside.pop_front()?;
        self.in_drive += 1;
        Some(command)
    }

    pub(super) fn decode(&mut self, command: Command, until: Ticks) {
        self.decoding = Some((command, until));
    }

    /// The command that is decoded by an instant.
    pub(super) fn decoded(&mut self, by: Ticks) -> Option<Command> {
        self.decoding.take_if(|&mut (_, at)| at <= by).map(|(command, _)| command)
    }

    /// When the command is decoded; [`NEVER`] without one.
    pub(super) fn next_event(&self) -> Ticks {
        self.decoding.as_ref().map_or(NEVER, |&(_, at)| at)
    }

    /// A request has completed: a read or a write, or another one.
    pub(super) fn complete(&mut self, write: Option<bool>) {
        self.last_was_write = write.unwrap_or(self.last_was_write);
        self.in_drive -= 1;
    }

    /// A write is decoded.
    pub(super) fn write(&mut self, command: &Command) {
        self.last_write_end = command.end();
    }

    /// Whether a write begins where the last one ended.
    pub(super) fn continues_last_write(&self, command: &Command) -> bool {
        command.first() == self.last_write_end
    }

    /// The time to decode a command; `hit`: the buffer has a read's first block.
    pub(super) fn overhead(&self, command: &Command, hit: bool, control: &Control) -> Ticks {
        let overhead = match command.request.op {
            Op::Read if hit => control.read_hit,
            Op::Read => control.read_miss,
            _ => control.write,
        };
        self.extra_disconnect(command, control).map_or(overhead.after(self.last_was_write), |extra| extra.overhead)
    }

    /// The extra disconnection of a write that follows another one and does not continue it.
    pub(super) fn extra_disconnect(&self, command: &Command, control: &Control) -> Option<ExtraTicks> {
        let extra = control.extra_disconnect?;
        let is_write = matches!(command.request.op, Op::Write | Op::WriteZeroes);
        (is_write && self.last_was_write && !self.continues_last_write(command)).then_some(extra)
    }

    /// The commands that are not decoded.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Command> {
        self.outside.iter().chain(self.decoding.as_ref().map(|(command, _)| command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::disk::Drive;
    use crate::models::disk::tests::small;

    fn command(op: Op, lba: u64) -> Command {
        Command { request: Request::new(lba, op, lba, 8), arrived: 0, has_extra_disconnect: false }
    }

    #[test]
    fn commands_are_decoded_one_after_the_other_and_as_many_as_the_drive_holds() {
        let mut commands = Commands::default();
        (0..3).for_each(|lba| commands.arrive(command(Op::Read, lba).request, lba));
        let first = commands.take(2).expect("a command");
        commands.decode(first, 10);
        assert!(commands.take(2).is_none(), "one is being decoded");
        assert_eq!((commands.next_event(), commands.decoded(9).is_some()), (10, false));
        assert_eq!(commands.decoded(10).map(|command| command.arrived), Some(0));
        assert_eq!(commands.next_event(), NEVER);
        assert!(commands.take(2).is_some());
        assert!(commands.take(2).is_none(), "the drive has two");
        commands.complete(Some(false));
        assert_eq!((commands.outstanding(), commands.waiting().count()), (2, 1));
        assert!(commands.take(2).is_some());
    }

    #[test]
    fn a_write_behind_another_one_has_the_extra_disconnection_unless_it_continues_it() {
        let control = Drive::new(&small()).expect("a drive").control;
        let extra = ExtraTicks { overhead: 7, data_delay: 0, completion: 0 };
        let control = Control { extra_disconnect: Some(extra), ..control };
        let mut commands = Commands { in_drive: 1, ..Commands::default() };
        commands.write(&command(Op::Write, 0));
        let extra = |commands: &Commands, op, lba| commands.extra_disconnect(&command(op, lba), &control).is_some();
        assert!(!extra(&commands, Op::Write, 100), "none has completed");
        commands.complete(Some(true));
        assert_eq!(commands.overhead(&command(Op::Write, 100), false, &control), 7);
        assert!(!extra(&commands, Op::Write, 8) && !extra(&commands, Op::Read, 100));
    }
}
