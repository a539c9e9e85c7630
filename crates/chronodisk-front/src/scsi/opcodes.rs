//! `REPORT SUPPORTED OPERATION CODES`; SPC-4, 6.35.

use super::table::{SUPPORTED, Supported};
use super::{LogicalUnit, OpcodeReport, Sense};

/// Bytes of a descriptor of timeouts; its length precedes the rest.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// A service action is valid (`SERVACTV`).
const HAS_SERVICE_ACTION: u8 = 0x01;
/// Timeouts follow (`CTDP`): in a descriptor of all commands, and of one command.
const HAS_TIMEOUTS: u8 = 0x02;
const ONE_HAS_TIMEOUTS: u8 = 0x80;
/// The field `SUPPORT`.
const NOT_SUPPORTED: u8 = 1;
const AS_IN_THE_STANDARD: u8 = 3;

/// The answer.
pub(crate) fn report(unit: &LogicalUnit, asked: &OpcodeReport) -> Result<Vec<u8>, Sense> {
    let named = SUPPORTED.iter().filter(|command| unit.supports(command) && command.opcode == asked.opcode);
    let has_actions = named.clone().any(|command| command.service_action.is_some());
    let is_known = named.clone().next().is_some();
    let action = |command: &&Supported| command.service_action.map(u16::from) == Some(asked.service_action);
    let found = match asked.options {
        0 => return Ok(all(unit, asked.timeouts)),
        1 if has_actions => return Err(Sense::in_command(2)),
        1 => named.clone().next(),
        2 if is_known && !has_actions => return Err(Sense::in_command(2)),
        2 => named.clone().find(action),
        3 if has_actions => named.clone().find(action),
        3 => named.clone().next().filter(|_| asked.service_action == 0),
        _ => return Err(Sense::in_command(2)),
    };
    let Some(command) = found else { return Ok(vec![0, NOT_SUPPORTED, 0, 0]) };
    let timeouts = if asked.timeouts { ONE_HAS_TIMEOUTS } else { 0 };
    let mut bytes = vec![0, AS_IN_THE_STANDARD | timeouts, 0, command.len as u8];
    bytes.extend(&command.usage[..command.len]);
    if asked.timeouts {
        bytes.extend(TIMEOUTS);
    }
    Ok(bytes)
}

fn all(unit: &LogicalUnit, timeouts: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for command in SUPPORTED.iter().filter(|command| unit.supports(command)) {
        let has_action = if command.service_action.is_some() { HAS_SERVICE_ACTION } else { 0 };
        let has_timeouts = if timeouts { HAS_TIMEOUTS } else { 0 };
        bytes.extend([command.opcode, 0, 0, command.service_action.unwrap_or(0), 0, has_action | has_timeouts]);
        bytes.extend((command.len as u16).to_be_bytes());
        if timeouts {
            bytes.extend(TIMEOUTS);
        }
    }
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}
