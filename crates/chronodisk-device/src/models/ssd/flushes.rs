//! Flushes that wait until all earlier data of the write buffer are in flash.

use super::command::{Command, CommandLine};
use super::pool::{NONE, Pool};

/// The flushes, in order of arrival. A command's `pending` counts the entries of the buffer for which it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flushes(CommandLine);

impl Flushes {
    pub(super) fn new() -> Self {
        Flushes(CommandLine::EMPTY)
    }

    /// A flush waits for the `held` entries of the buffer. Their orders are below `order`.
    pub(super) fn enter(&mut self, commands: &mut Pool<Command>, number: u32, held: u32, order: u64) {
        let command = &mut commands[number];
        (command.pending, command.order) = (held, order);
        self.0.push(commands, number);
    }

    /// The order below which entries of the buffer must be programmed soon; zero without a flush. The entries of the
    /// last flush include the entries of earlier flushes.
    #[inline]
    pub(super) fn awaited_below(&self, commands: &Pool<Command>) -> u64 {
        self.0.last().map_or(0, |last| commands[last].order)
    }

    /// An entry of this order needs no program any more.
    #[inline]
    pub(super) fn settle(&self, commands: &mut Pool<Command>, order: u64) {
        let mut at = self.0.first();
        while let Some(number) = at {
            let command = &mut commands[number];
            command.pending -= u32::from(order < command.order);
            at = (command.next != NONE).then_some(command.next);
        }
    }

    /// Takes a flush that waits for no entry. Flushes cover all earlier writes, so the first one completes first.
    #[inline]
    pub(super) fn take_done(&mut self, commands: &Pool<Command>) -> Option<u32> {
        let first = self.0.first()?;
        if commands[first].pending > 0 { None } else { self.0.pop(commands) }
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Nanos, Op, Request};

    use super::*;

    #[test]
    fn a_flush_waits_for_the_entries_before_it() {
        let (mut flushes, mut commands) = (Flushes::new(), Pool::new());
        assert_eq!(flushes.awaited_below(&commands), 0);
        let [one, two] = [(2, 3), (3, 4)].map(|(held, order)| {
            let number = commands.insert(Command::new(Request::new(0, Op::Flush, 0, 0), Nanos::ZERO));
            flushes.enter(&mut commands, number, held, order);
            number
        });
        assert_eq!(flushes.awaited_below(&commands), 4);
        let done = [3, 1, 2].map(|order| {
            flushes.settle(&mut commands, order);
            [(); 2].map(|()| flushes.take_done(&commands))
        });
        assert_eq!(done, [[None; 2], [None; 2], [Some(one), Some(two)]]);
        assert_eq!(flushes.awaited_below(&commands), 0);
    }
}
