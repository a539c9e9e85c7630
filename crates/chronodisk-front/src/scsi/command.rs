//! Decodes and checks command descriptor blocks.

use super::table::{Supported, VERIFY_12};
use super::unit::LogicalUnit;
use super::wire::{CDB_BYTES, number, opcode};
use super::{PARAMETER_BYTES_MAX, Sense, TRANSFER_BYTES_MAX};

/// A checked command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The command.
    pub command: Command,
    /// Most bytes of the answer, for commands that the unit answers itself.
    pub allocation_bytes: u32,
    /// Bytes that the initiator sends: the data of a write, or parameters.
    pub outgoing_bytes: u32,
}

/// Contiguous blocks, within the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
}

/// A command. `READ (6)` to `READ (16)` are one, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `TEST UNIT READY`.
    TestUnitReady,
    /// `REQUEST SENSE`.
    RequestSense {
        /// The sense data have the descriptor format.
        descriptor: bool,
    },
    /// `INQUIRY`.
    Inquiry {
        /// The page of vital product data; `None` for the standard data.
        page: Option<u8>,
    },
    /// `REPORT LUNS`.
    ReportLuns {
        /// The field `SELECT REPORT`.
        select: u8,
    },
    /// `MODE SENSE`.
    ModeSense(ModeSense),
    /// `MODE SELECT`.
    ModeSelect {
        /// The parameters have the header of the 10-byte command.
        long: bool,
    },
    /// `READ CAPACITY`.
    ReadCapacity {
        /// The answer has 32 bytes.
        long: bool,
    },
    /// `REPORT SUPPORTED OPERATION CODES`.
    ReportOpcodes(OpcodeReport),
    /// `READ`.
    Read(Range),
    /// `WRITE`.
    Write {
        /// The blocks.
        range: Range,
        /// The data are durable before the answer.
        fua: bool,
    },
    /// `VERIFY`.
    Verify {
        /// The blocks.
        range: Range,
        /// The comparison.
        check: ByteCheck,
    },
    /// `WRITE SAME`.
    WriteSame {
        /// The blocks.
        range: Range,
        /// The blocks may be discarded if they are then zero.
        unmap: bool,
        /// The initiator sends no block; zeros are written.
        no_data: bool,
    },
    /// `UNMAP`.
    Unmap,
    /// `SYNCHRONIZE CACHE`.
    Synchronize,
    /// `START STOP UNIT`.
    StartStop {
        /// Starts the unit.
        start: bool,
        /// Writes the cache back before a stop.
        flush: bool,
    },
    /// `RESERVE (6)`.
    Reserve,
    /// `RELEASE (6)`.
    Release,
    /// `PERSISTENT RESERVE IN`.
    ReserveIn {
        /// The service action, of [`reserve_in`](super::wire::reserve_in).
        action: u8,
    },
    /// `PERSISTENT RESERVE OUT`.
    ReserveOut(ReserveOut),
}

/// The fields of `PERSISTENT RESERVE OUT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveOut {
    /// The service action, of [`reserve_out`](super::wire::reserve_out).
    pub action: u8,
    /// The fields `SCOPE` and `TYPE`.
    pub scope_and_type: u8,
    /// The field `PARAMETER LIST LENGTH`.
    pub parameter_bytes: u32,
}

/// The fields of `MODE SENSE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// The answer has the header of the 10-byte command.
    pub long: bool,
    /// The answer has no block descriptor.
    pub no_descriptor: bool,
    /// A block descriptor may have 16 bytes.
    pub long_descriptor: bool,
    /// The field `PC`: current, changeable, default or saved values.
    pub control: u8,
    /// The page.
    pub page: u8,
    /// The subpage.
    pub subpage: u8,
}

/// The fields of `REPORT SUPPORTED OPERATION CODES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeReport {
    /// The answer has timeouts.
    pub timeouts: bool,
    /// The field `REPORTING OPTIONS`.
    pub options: u8,
    /// The requested operation code.
    pub opcode: u8,
    /// The requested service action.
    pub service_action: u16,
}

/// The comparison of `VERIFY`; the field `BYTCHK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteCheck {
    /// The medium is read, and nothing is compared.
    Medium,
    /// The blocks equal the initiator's.
    Equal,
    /// Each block equals the initiator's single block.
    EachEqual,
}

impl LogicalUnit {
    /// Decodes a command descriptor block; a shorter one is padded with zeros.
    ///
    /// # Errors
    /// The sense data of a refusal.
    pub fn decode(&self, cdb: &[u8; CDB_BYTES]) -> Result<Decoded, Sense> {
        let supported = Supported::of(cdb).filter(|supported| self.supports(supported));
        let supported = supported.ok_or_else(|| unknown(cdb))?;
        if let Some(byte) = supported.wrong_byte(cdb) {
            return Err(Sense::in_command(byte));
        }
        let decoded = match cdb[0] {
            opcode::READ_6 | opcode::READ_10 | opcode::READ_12 | opcode::READ_16 => {
                answered(Command::Read(self.transferred(cdb)?), u32::MAX)
            }
            opcode::WRITE_6 | opcode::WRITE_10 | opcode::WRITE_12 | opcode::WRITE_16 => {
                let range = self.transferred(cdb)?;
                // The 6-byte command has part of the address there.
                let fua = cdb[0] != opcode::WRITE_6 && cdb[1] & 0x08 != 0;
                sent(Command::Write { range, fua }, range.blocks * self.description().block_bytes)
            }
            opcode::VERIFY_10 | VERIFY_12 | opcode::VERIFY_16 => self.verify(cdb)?,
            opcode::WRITE_SAME_10 | opcode::WRITE_SAME_16 => self.write_same(cdb)?,
            opcode::UNMAP => sent(Command::Unmap, parameters(number(&cdb[7..9]), 7)?),
            opcode::SYNCHRONIZE_CACHE_10 | opcode::SYNCHRONIZE_CACHE_16 => {
                self.in_range(cdb)?;
                answered(Command::Synchronize, 0)
            }
            opcode::START_STOP_UNIT => {
                answered(Command::StartStop { start: cdb[4] & 1 != 0, flush: cdb[4] & 4 == 0 }, 0)
            }
            opcode::PERSISTENT_RESERVE_IN | opcode::PERSISTENT_RESERVE_OUT => persistent(cdb)?,
            _ => primary(cdb)?,
        };
        self.permits(&decoded.command)?;
        Ok(decoded)
    }

    /// The range of a command, whose data would go over the wire.
    fn transferred(&self, cdb: &[u8; CDB_BYTES]) -> Result<Range, Sense> {
        let range = self.in_range(cdb)?;
        if u64::from(range.blocks) * u64::from(self.description().block_bytes) > u64::from(TRANSFER_BYTES_MAX) {
            return Err(Sense::in_command(length_byte(cdb[0])));
        }
        Ok(range)
    }

    fn in_range(&self, cdb: &[u8; CDB_BYTES]) -> Result<Range, Sense> {
        let (lba, blocks) = match cdb[0] {
            // A length of zero means 256 blocks.
            opcode::READ_6 | opcode::WRITE_6 => {
                (number(&cdb[1..4]) & 0x1F_FFFF, if cdb[4] == 0 { 256 } else { u64::from(cdb[4]) })
            }
            code if code >> 5 == 5 => (number(&cdb[2..6]), number(&cdb[6..10])),
            code if code >> 5 == 4 => (number(&cdb[2..10]), number(&cdb[10..14])),
            _ => (number(&cdb[2..6]), number(&cdb[7..9])),
        };
        if lba.checked_add(blocks).is_none_or(|end| end > self.blocks()) {
            return Err(Sense::OUT_OF_RANGE);
        }
        // The field has at most 32 bits.
        Ok(Range { lba, blocks: blocks as u32 })
    }

    fn verify(&self, cdb: &[u8; CDB_BYTES]) -> Result<Decoded, Sense> {
        let range = self.transferred(cdb)?;
        let block_bytes = self.description().block_bytes;
        let (check, outgoing_bytes) = match cdb[1] >> 1 & 3 {
            0 => (ByteCheck::Medium, 0),
            1 => (ByteCheck::Equal, range.blocks * block_bytes),
            3 if range.blocks == 0 => (ByteCheck::EachEqual, 0),
            3 => (ByteCheck::EachEqual, block_bytes),
            _ => return Err(Sense::in_command(1)),
        };
        Ok(sent(Command::Verify { range, check }, outgoing_bytes))
    }

    fn write_same(&self, cdb: &[u8; CDB_BYTES]) -> Result<Decoded, Sense> {
        let range = self.transferred(cdb)?;
        // The page of block limits says so (`WSNZ`).
        if range.blocks == 0 {
            return Err(Sense::in_command(length_byte(cdb[0])));
        }
        let unmap = cdb[1] & 8 != 0;
        if unmap && self.description().discard_bytes.is_none() {
            return Err(Sense::in_command(1));
        }
        let no_data = cdb[1] & 1 != 0;
        let outgoing_bytes = if no_data { 0 } else { self.description().block_bytes };
        Ok(sent(Command::WriteSame { range, unmap, no_data }, outgoing_bytes))
    }
}

/// Commands of SPC-4.
fn primary(cdb: &[u8; CDB_BYTES]) -> Result<Decoded, Sense> {
    Ok(match cdb[0] {
        opcode::TEST_UNIT_READY => answered(Command::TestUnitReady, 0),
        opcode::RESERVE_6 => answered(Command::Reserve, 0),
        opcode::RELEASE_6 => answered(Command::Release, 0),
        opcode::REQUEST_SENSE => answered(Command::RequestSense { descriptor: cdb[1] & 1 != 0 }, cdb[4].into()),
        opcode::INQUIRY => {
            let page = (cdb[1] & 1 != 0).then_some(cdb[2]);
            if page.is_none() && cdb[2] != 0 {
                return Err(Sense::in_command(2));
            }
            answered(Command::Inquiry { page }, number(&cdb[3..5]) as u32)
        }
        opcode::MODE_SELECT_6 | opcode::MODE_SELECT_10 => {
            let long = cdb[0] == opcode::MODE_SELECT_10;
            // Parameters of vendors, and saved ones.
            if cdb[1] != 0x10 {
                return Err(Sense::in_command(1));
            }
            let len = if long { number(&cdb[7..9]) } else { cdb[4].into() };
            sent(Command::ModeSelect { long }, parameters(len, length_byte(cdb[0]))?)
        }
        opcode::MODE_SENSE_6 | opcode::MODE_SENSE_10 => {
            let long = cdb[0] == opcode::MODE_SENSE_10;
            let allocation_bytes = if long { number(&cdb[7..9]) as u32 } else { cdb[4].into() };
            let sense = ModeSense {
                long,
                no_descriptor: cdb[1] & 0x08 != 0,
                long_descriptor: cdb[1] & 0x10 != 0,
                control: cdb[2] >> 6,
                page: cdb[2] & 0x3F,
                subpage: cdb[3],
            };
            answered(Command::ModeSense(sense), allocation_bytes)
        }
        opcode::READ_CAPACITY_10 => answered(Command::ReadCapacity { long: false }, u32::MAX),
        opcode::SERVICE_ACTION_IN_16 => answered(Command::ReadCapacity { long: true }, number(&cdb[10..14]) as u32),
        opcode::REPORT_LUNS => {
            if cdb[2] > 2 {
                return Err(Sense::in_command(2));
            }
            answered(Command::ReportLuns { select: cdb[2] }, number(&cdb[6..10]) as u32)
        }
        opcode::MAINTENANCE_IN => {
            let report = OpcodeReport {
                timeouts: cdb[2] & 0x80 != 0,
                options: cdb[2] & 7,
                opcode: cdb[3],
                service_action: number(&cdb[4..6]) as u16,
            };
            answered(Command::ReportOpcodes(report), number(&cdb[6..10]) as u32)
        }
        _ => return Err(Sense::INVALID_OPCODE),
    })
}

/// Commands of persistent reservations.
fn persistent(cdb: &[u8; CDB_BYTES]) -> Result<Decoded, Sense> {
    let action = cdb[1] & 0x1F;
    if cdb[0] == opcode::PERSISTENT_RESERVE_IN {
        return Ok(answered(Command::ReserveIn { action }, number(&cdb[7..9]) as u32));
    }
    let parameter_bytes = parameters(number(&cdb[5..9]), 5)?;
    Ok(sent(Command::ReserveOut(ReserveOut { action, scope_and_type: cdb[2], parameter_bytes }), parameter_bytes))
}

/// The refusal of an unknown command, or of an unknown action of a known one.
fn unknown(cdb: &[u8; CDB_BYTES]) -> Sense {
    match cdb[0] {
        opcode::PERSISTENT_RESERVE_IN | opcode::PERSISTENT_RESERVE_OUT => Sense::in_command(1),
        _ => Sense::INVALID_OPCODE,
    }
}

/// The byte of a command's length.
fn length_byte(opcode: u8) -> u16 {
    match opcode >> 5 {
        0 => 4,
        4 => 10,
        5 => 6,
        _ => 7,
    }
}

fn parameters(len: u64, byte: u16) -> Result<u32, Sense> {
    if len > u64::from(PARAMETER_BYTES_MAX) {
        return Err(Sense::in_command(byte));
    }
    Ok(len as u32)
}

fn answered(command: Command, allocation_bytes: u32) -> Decoded {
    Decoded { command, allocation_bytes, outgoing_bytes: 0 }
}

fn sent(command: Command, outgoing_bytes: u32) -> Decoded {
    Decoded { command, allocation_bytes: 0, outgoing_bytes }
}
