//! Task management: aborting tasks, and resetting the unit; RFC 7143, 11.5 and 11.6.

use super::commands::is_unit_0;
use super::sender::Counted;
use super::session::IscsiSession;
use super::tasks::{Management, State};
use super::wire::{Header, flag, function, function_response as response, opcode};

/// Most functions that wait.
const WAITING_COUNT_MAX: usize = 16;
/// "Function rejected".
const REJECTED: u8 = 255;

impl IscsiSession {
    /// Performs a function.
    pub(super) fn manage(&mut self, header: &Header) {
        let function = header.flags() & 0x7F;
        let aborts = match function {
            function::ABORT_TASK => match self.tasks.find(header.u32(20)) {
                Some(slot) => slot..slot + 1,
                None => return self.respond(header.task_tag(), response::NO_TASK),
            },
            function::ABORT_TASK_SET
            | function::CLEAR_TASK_SET
            | function::LOGICAL_UNIT_RESET
            | function::TARGET_WARM_RESET => self.tasks.slots(),
            function::TASK_REASSIGN => return self.respond(header.task_tag(), response::NO_REASSIGNMENT),
            _ => return self.respond(header.task_tag(), response::NOT_SUPPORTED),
        };
        if function != function::TARGET_WARM_RESET && !is_unit_0(header.unit()) {
            return self.respond(header.task_tag(), response::NO_UNIT);
        }
        if self.managements.len() >= WAITING_COUNT_MAX {
            return self.respond(header.task_tag(), REJECTED);
        }
        self.abort(header.task_tag(), aborts);
        if matches!(function, function::LOGICAL_UNIT_RESET | function::TARGET_WARM_RESET) {
            self.target.unit.reset();
        }
    }

    fn abort(&mut self, tag: u32, slots: std::ops::Range<u32>) {
        // A number in use belongs to one of the last few functions.
        let number = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1);
        let mut left = 0;
        for slot in slots {
            let task = self.tasks.get_mut(slot);
            match task.state {
                State::Receiving | State::Ready => self.tasks.free(slot),
                State::AtDevice if task.aborted_by.is_none() => {
                    task.aborted_by = Some(number);
                    left += 1;
                }
                _ => {}
            }
        }
        match left {
            0 => self.respond(tag, response::COMPLETE),
            left => self.managements.push(Management { number, tag, left }),
        }
    }

    /// The device has finished a task that was aborted.
    pub(super) fn one_aborted(&mut self, number: u32) {
        let Some(index) = self.managements.iter().position(|management| management.number == number) else { return };
        self.managements[index].left -= 1;
        if self.managements[index].left == 0 {
            let management = self.managements.swap_remove(index);
            self.respond(management.tag, response::COMPLETE);
        }
    }

    fn respond(&mut self, tag: u32, response: u8) {
        let mut header = Header::new(opcode::TASK_MANAGEMENT_RESPONSE, flag::FINAL);
        header.0[2] = response;
        header.set_u32(16, tag);
        self.sender.send(header, &[], Counted::Yes);
    }
}
