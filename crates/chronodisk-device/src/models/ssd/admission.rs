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
