//! The supported commands, and the bits of each that may be set.

use super::wire::{CDB_BYTES, opcode, reserve_in, reserve_out, service_action};

/// A supported command.
#[derive(Debug)]
pub(crate) struct Supported {
    pub opcode: u8,
    /// The value of the field of that name, for operation codes with several commands.
    pub service_action: Option<u8>,
    /// Length of the command descriptor block.
    pub len: usize,
    /// Bits that may be set, as `REPORT SUPPORTED OPERATION CODES` reports them.
    pub usage: [u8; CDB_BYTES],
}

const F: u8 = 0xFF;
/// Bits of the field `GROUP NUMBER`, which has no effect.
const G: u8 = 0x1F;

/// `DPO` and `FUA`.
const DPO_FUA: u8 = 0x18;
/// `DPO` and `BYTCHK`.
const DPO_BYTCHK: u8 = 0x16;

/// The commands in ascending order of their operation codes.
pub(crate) static SUPPORTED: [Supported; 41] = [
    command(opcode::TEST_UNIT_READY, &[0; 5]),
    command(opcode::REQUEST_SENSE, &[1, 0, 0, F, 0]),
    command(opcode::READ_6, &[0x1F, F, F, F, 0]),
    command(opcode::WRITE_6, &[0x1F, F, F, F, 0]),
    command(opcode::INQUIRY, &[1, F, F, F, 0]),
    command(opcode::MODE_SELECT_6, &[0x11, 0, 0, F, 0]),
    command(opcode::RESERVE_6, &[0; 5]),
    command(opcode::RELEASE_6, &[0; 5]),
    command(opcode::MODE_SENSE_6, &[8, F, F, F, 0]),
    command(opcode::START_STOP_UNIT, &[1, 0, 0, 5, 0]),
    command(opcode::READ_CAPACITY_10, &[0; 9]),
    command(opcode::READ_10, &[DPO_FUA, F, F, F, F, G, F, F, 0]),
    command(opcode::WRITE_10, &[DPO_FUA, F, F, F, F, G, F, F, 0]),
    command(opcode::VERIFY_10, &[DPO_BYTCHK, F, F, F, F, G, F, F, 0]),
    command(opcode::SYNCHRONIZE_CACHE_10, &[2, F, F, F, F, G, F, F, 0]),
    command(opcode::WRITE_SAME_10, &[8, F, F, F, F, G, F, F, 0]),
    command(opcode::UNMAP, &[0, 0, 0, 0, 0, G, F, F, 0]),
    command(opcode::MODE_SELECT_10, &[0x11, 0, 0, 0, 0, 0, F, F, 0]),
    command(opcode::MODE_SENSE_10, &[0x18, F, F, 0, 0, 0, F, F, 0]),
    persistent_in(reserve_in::READ_KEYS),
    persistent_in(reserve_in::READ_RESERVATION),
    persistent_in(reserve_in::REPORT_CAPABILITIES),
    persistent_in(reserve_in::READ_FULL_STATUS),
    persistent_out(reserve_out::REGISTER),
    persistent_out(reserve_out::RESERVE),
    persistent_out(reserve_out::RELEASE),
    persistent_out(reserve_out::CLEAR),
    persistent_out(reserve_out::PREEMPT),
    persistent_out(reserve_out::PREEMPT_AND_ABORT),
    persistent_out(reserve_out::REGISTER_AND_IGNORE),
    command(opcode::READ_16, &[DPO_FUA, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    command(opcode::WRITE_16, &[DPO_FUA, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    command(opcode::VERIFY_16, &[DPO_BYTCHK, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    command(opcode::SYNCHRONIZE_CACHE_16, &[2, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    command(opcode::WRITE_SAME_16, &[9, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    action(opcode::SERVICE_ACTION_IN_16, service_action::READ_CAPACITY_16, &[0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
    command(opcode::REPORT_LUNS, &[0, F, 0, 0, 0, F, F, F, F, 0, 0]),
    action(
        opcode::MAINTENANCE_IN,
        service_action::REPORT_SUPPORTED_OPERATION_CODES,
        &[0x87, F, F, F, F, F, F, F, 0, 0],
    ),
    command(opcode::READ_12, &[DPO_FUA, F, F, F, F, F, F, F, F, G, 0]),
    command(opcode::WRITE_12, &[DPO_FUA, F, F, F, F, F, F, F, F, G, 0]),
    command(VERIFY_12, &[DPO_BYTCHK, F, F, F, F, F, F, F, F, G, 0]),
];

/// `VERIFY (12)`.
pub(crate) const VERIFY_12: u8 = 0xAF;

/// The last byte, `CONTROL`, must be zero.
const fn command(opcode: u8, after_opcode: &[u8]) -> Supported {
    Supported { opcode, service_action: None, len: 1 + after_opcode.len(), usage: usage(opcode, 1, after_opcode) }
}

const fn action(opcode: u8, service_action: u8, after_action: &[u8]) -> Supported {
    let mut usage = usage(opcode, 2, after_action);
    usage[1] = service_action;
    Supported { opcode, service_action: Some(service_action), len: 2 + after_action.len(), usage }
}

const fn persistent_in(service_action: u8) -> Supported {
    action(opcode::PERSISTENT_RESERVE_IN, service_action, &[0, 0, 0, 0, 0, F, F, 0])
}

const fn persistent_out(service_action: u8) -> Supported {
    action(opcode::PERSISTENT_RESERVE_OUT, service_action, &[F, 0, 0, F, F, F, F, 0])
}

const fn usage(opcode: u8, start: usize, bits: &[u8]) -> [u8; CDB_BYTES] {
    let mut usage = [0; CDB_BYTES];
    usage[0] = opcode;
    let mut index = 0;
    while index < bits.len() {
        usage[start + index] = bits[index];
        index += 1;
    }
    usage
}

impl Supported {
    /// The command of a command descriptor block.
    pub fn of(cdb: &[u8; CDB_BYTES]) -> Option<&'static Supported> {
        let is_it = |command: &&Supported| {
            command.opcode == cdb[0] && command.service_action.is_none_or(|action| action == cdb[1] & 0x1F)
        };
        SUPPORTED.iter().find(is_it)
    }

    /// The first byte with a bit that must not be set.
    pub fn wrong_byte(&self, cdb: &[u8; CDB_BYTES]) -> Option<u16> {
        let wrong = |index: &usize| *index > 0 && cdb[*index] & !self.usage[*index] != 0;
        // Below the length of a block.
        (0..self.len).find(wrong).map(|index| index as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_from_the_group_of_the_operation_code() {
        for command in &SUPPORTED {
            let len = match command.opcode >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                group => panic!("group {group}"),
            };
            assert_eq!(command.len, len, "{:#x}", command.opcode);
        }
        assert!(SUPPORTED.is_sorted_by_key(|command| command.opcode));
    }
}
