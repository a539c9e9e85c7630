//! Writes that wait for places in the write buffer, and the way of their data over the link.

use std::sync::Arc;

use chronodisk_sim::Nanos;

use super::buffer::Buffer;
use super::command::{Command, CommandLine};
use super::front::{Direction, Front};
use super::pool::Pool;
use super::units::Units;

/// The waiting writes.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    /// In order of arrival.
    writes: CommandLine,
    /// Whether the data of writes must not overtake each other, and the arrival of the latest data.
    in_order: bool,
    last_arrival: Nanos,
    waits: BufferWaits,
}

/// Waits for places in the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BufferWaits {
    /// Writes that waited behind other writes.
    pub(super) held_back: u64,
    /// Time that writes waited.
    pub(super) nanos: u64,
}

/// Units of a write that cross the link together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    pub(super) command: u32,
    pub(super) units: u32,
    /// The instant at which they are in the controller.
    pub(super) at: Nanos,
}

/// Units that are admitted together at most: the link carries them in one piece.
const MOST_ADMITTED: u32 = 32;

impl Admission {
    pub(super) fn new(in_order: bool) -> Self {
        Admission { writes: CommandLine::EMPTY, in_order, last_arrival: Nanos::ZERO, waits: BufferWaits::default() }
    }

    pub(super) fn waits(&self) -> BufferWaits {
        self.waits
    }

    /// Whether a write waits for places.
    pub(super) fn waits_for_room(&self) -> bool {
        self.writes.first().is_some()
    }

    /// A write is ready for the buffer. Returns whether no other one waits.
    #[inline]
    pub(super) fn enter(&mut self, now: Nanos, commands: &mut Pool<Command>, number: u32) -> bool {
        let alone = self.writes.first().is_none();
        commands[number].since = now;
        self.waits.held_back += u64::from(!alone);
        self.writes.push(commands, number);
        alone
    }

    /// Admits data of the first write. `None` if there is no write, or no room.
    #[inline]
    pub(super) fn admit(
        &mut self,
        now: Nanos,
        commands: &mut Pool<Command>,
        (buffer, units_of_drive): (&mut Arc<Buffer>, &Units),
        front: &mut Front,
    ) -> Option<Admitted> {
        let number = self.writes.first()?;
        let command = &mut commands[number];
        let units = (command.end_unit - command.next_unit).min(buffer.free()).min(MOST_ADMITTED);
        if units == 0 {
            return None;
        }
        Arc::make_mut(buffer).admit(units);
        let ready = now.max(command.latest);
        let mut at = ready;
        if command.request.op.moves_data() {
            let bytes = units_of_drive.bytes_in(&command.request, command.next_unit, command.next_unit + units);
            at = front.transfer(now, ready, bytes, Direction::FromHost);
        }
        if self.in_order {
            at = at.max(self.last_arrival);
            self.last_arrival = at;
        }
        command.next_unit += units;
        if command.next_unit == command.end_unit {
            self.waits.nanos += (now - command.since).as_nanos();
            self.writes.pop(commands);
        }
        Some(Admitted { command: number, units, at })
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Op, Request};

    use super::*;
    use crate::models::ssd::testing::SLOW_LINK;

    #[test]
    fn a_write_is_admitted_in_pieces_as_places_become_free() {
        let mut commands = Pool::new();
        let numbers = [0, 320].map(|lba| {
            let command = Command::new(Request::new(lba, Op::Write, lba, 320), Nanos::ZERO);
            let first = (lba / 8) as u32;
            commands.insert(Command { next_unit: first, end_unit: first + 40, ..command })
        });
        let (mut admission, mut front) = (Admission::new(false), Front::new(Arc::new(SLOW_LINK)));
        let (mut buffer, units) = (Arc::new(Buffer::new(36, false)), Units::new(4_096, 10_000));
        let alone = numbers.map(|number| admission.enter(Nanos::ZERO, &mut commands, number));
        assert_eq!(alone, [true, false]);
        let mut admit = |micros, buffer: &mut Arc<Buffer>| {
            let admitted = admission.admit(Nanos::from_micros(micros), &mut commands, (buffer, &units), &mut front);
            admitted.map(|Admitted { command, units, at }| (command, units, at.as_nanos()))
        };
        let link = |units: u64| 4_096 * units;
        assert_eq!(admit(0, &mut buffer), Some((numbers[0], 32, link(32))));
        assert_eq!(admit(0, &mut buffer), Some((numbers[0], 4, link(36))));
        assert_eq!(admit(0, &mut buffer), None);
        let mut free = Arc::new(Buffer::new(36, false));
        assert_eq!(admit(1_000, &mut free), Some((numbers[0], 4, 1_000_000 + link(4))));
        assert_eq!(admit(1_000, &mut free), Some((numbers[1], 32, 1_000_000 + link(36))));
        assert_eq!(admission.waits(), BufferWaits { held_back: 1, nanos: 1_000_000 });
    }
}
