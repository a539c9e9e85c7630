//! Constants and fields of iSCSI's protocol data units (PDUs); RFC 7143, section 11.

/// Bytes of a basic header segment.
pub const HEADER_BYTES: usize = 48;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;
/// A tag that names no task.
pub const NO_TAG: u32 = 0xFFFF_FFFF;
/// The registered TCP port.
pub const PORT: u16 = 3260;

/// Operation codes; 11.2.1.2.
pub mod opcode {
    /// `NOP-Out`.
    pub const NOP_OUT: u8 = 0x00;
    /// `SCSI Command`.
    pub const SCSI_COMMAND: u8 = 0x01;
    /// `SCSI Task Management Function Request`.
    pub const TASK_MANAGEMENT: u8 = 0x02;
    /// `Login Request`.
    pub const LOGIN: u8 = 0x03;
    /// `Text Request`.
    pub const TEXT: u8 = 0x04;
    /// `SCSI Data-Out`.
    pub const DATA_OUT: u8 = 0x05;
    /// `Logout Request`.
    pub const LOGOUT: u8 = 0x06;
    /// `NOP-In`.
    pub const NOP_IN: u8 = 0x20;
    /// `SCSI Response`.
    pub const SCSI_RESPONSE: u8 = 0x21;
    /// `SCSI Task Management Function Response`.
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    /// `Login Response`.
    pub const LOGIN_RESPONSE: u8 = 0x23;
    /// `Text Response`.
    pub const TEXT_RESPONSE: u8 = 0x24;
    /// `SCSI Data-In`.
    pub const DATA_IN: u8 = 0x25;
    /// `Logout Response`.
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    /// `Ready To Transfer`.
    pub const READY_TO_TRANSFER: u8 = 0x31;
    /// `Reject`.
    pub const REJECT: u8 = 0x3F;
}

/// Flags of the first two bytes.
pub mod flag {
    /// The PDU is delivered at once (`I`), in the first byte.
    pub const IMMEDIATE: u8 = 0x40;
    /// The last PDU of a sequence (`F`); also `T`, the transition of a login.
    pub const FINAL: u8 = 0x80;
    /// The text continues (`C`).
    pub const CONTINUE: u8 = 0x40;
    /// The command reads (`R`).
    pub const READ: u8 = 0x40;
    /// The command writes (`W`).
    pub const WRITE: u8 = 0x20;
    /// Fewer bytes than expected (`U`).
    pub const UNDERFLOW: u8 = 0x02;
    /// More bytes than expected (`O`).
    pub const OVERFLOW: u8 = 0x04;
    /// The PDU has the command's status (`S`).
    pub const STATUS: u8 = 0x01;
}

/// Task attributes; 11.3.1.
pub mod attribute {
    /// Without an attribute: as `SIMPLE`.
    pub const UNTAGGED: u8 = 0;
    /// `Simple`.
    pub const SIMPLE: u8 = 1;
    /// `Ordered`.
    pub const ORDERED: u8 = 2;
    /// `Head of queue`.
    pub const HEAD_OF_QUEUE: u8 = 3;
}

/// Functions of task management; 11.5.1.
pub mod function {
    /// `ABORT TASK`.
    pub const ABORT_TASK: u8 = 1;
    /// `ABORT TASK SET`.
    pub const ABORT_TASK_SET: u8 = 2;
    /// `CLEAR TASK SET`.
    pub const CLEAR_TASK_SET: u8 = 4;
    /// `LOGICAL UNIT RESET`.
    pub const LOGICAL_UNIT_RESET: u8 = 5;
    /// `TARGET WARM RESET`.
    pub const TARGET_WARM_RESET: u8 = 6;
    /// `TASK REASSIGN`.
    pub const TASK_REASSIGN: u8 = 8;
}

/// Responses to task management; 11.6.1.
pub mod function_response {
    /// `Function complete`.
    pub const COMPLETE: u8 = 0;
    /// `Task does not exist`.
    pub const NO_TASK: u8 = 1;
    /// `LUN does not exist`.
    pub const NO_UNIT: u8 = 2;
    /// `Task allegiance reassignment not supported`.
    pub const NO_REASSIGNMENT: u8 = 4;
    /// `Task management function not supported`.
    pub const NOT_SUPPORTED: u8 = 5;
}

/// Stages of login; 11.12.3.
pub mod stage {
    /// `SecurityNegotiation`.
    pub const SECURITY: u8 = 0;
    /// `LoginOperationalNegotiation`.
    pub const OPERATIONAL: u8 = 1;
    /// `FullFeaturePhase`.
    pub const FULL_FEATURE: u8 = 3;
}

/// Status class and detail of a login; 11.13.5.
pub mod login_status {
    /// Class and detail as one number.
    pub type Status = u16;

    /// Success, so far.
    pub const SUCCESS: Status = 0x0000;
    /// `Initiator error`.
    pub const INITIATOR_ERROR: Status = 0x0200;
    /// `Authentication failure`.
    pub const AUTHENTICATION_FAILURE: Status = 0x0201;
    /// `Not found`: no target of that name.
    pub const NOT_FOUND: Status = 0x0203;
    /// `Unsupported version`.
    pub const UNSUPPORTED_VERSION: Status = 0x0205;
    /// `Missing parameter`.
    pub const MISSING_PARAMETER: Status = 0x0207;
    /// `Session type not supported`.
    pub const SESSION_TYPE: Status = 0x0209;
    /// `Session does not exist`.
    pub const NO_SESSION: Status = 0x020A;
    /// `Invalid during login`.
    pub const INVALID_DURING_LOGIN: Status = 0x020B;
}

/// Reasons of `Reject`; 11.17.1.
pub mod reject {
    /// `Data (payload) digest error`.
    pub const DATA_DIGEST: u8 = 0x02;
    /// `Protocol error`.
    pub const PROTOCOL_ERROR: u8 = 0x04;
    /// `Command not supported`.
    pub const NOT_SUPPORTED: u8 = 0x05;
    /// `Invalid PDU field`.
    pub const INVALID_FIELD: u8 = 0x09;
}

/// A basic header segment with access to its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER_BYTES]);

impl Header {
    /// A header with this operation code and these flags, else zeros.
    #[must_use]
    pub fn new(opcode: u8, flags: u8) -> Self {
        let mut bytes = [0; HEADER_BYTES];
        (bytes[0], bytes[1]) = (opcode, flags);
        Header(bytes)
    }

    /// The operation code.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3F
    }

    /// Whether the PDU is delivered at once.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.0[0] & flag::IMMEDIATE != 0
    }

    /// The flags of the second byte.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Whether the PDU is the last of its sequence.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.flags() & flag::FINAL != 0
    }

    /// Bytes of the additional header segments.
    #[must_use]
    pub fn additional_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of the data segment, without padding.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        usize::from(self.0[5]) << 16 | usize::from(self.0[6]) << 8 | usize::from(self.0[7])
    }

    /// Sets the length of the data segment, which has 24 bits.
    pub fn set_data_bytes(&mut self, len: usize) {
        self.0[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
    }

    /// The address of the logical unit.
    #[must_use]
    pub fn unit(&self) -> [u8; 8] {
        let mut unit = [0; 8];
        unit.copy_from_slice(&self.0[8..16]);
        unit
    }

    /// The number in the 4 bytes at a place; a place beyond the header is a defect of the caller.
    #[must_use]
    pub fn u32(&self, place: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[place..place + 4]);
        u32::from_be_bytes(bytes)
    }

    /// Sets the number in the 4 bytes at a place.
    pub fn set_u32(&mut self, place: usize, number: u32) {
        self.0[place..place + 4].copy_from_slice(&number.to_be_bytes());
    }

    /// The initiator's task tag.
    #[must_use]
    pub fn task_tag(&self) -> u32 {
        self.u32(16)
    }

    /// The number of the command (`CmdSN`).
    #[must_use]
    pub fn command_number(&self) -> u32 {
        self.u32(24)
    }
}

/// Bytes until the next multiple of four.
#[must_use]
pub const fn padding_bytes(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// The digest of bytes as it goes over the wire.
#[must_use]
pub fn digest(pieces: &[&[u8]]) -> [u8; DIGEST_BYTES] {
    pieces.iter().fold(0, |sum, piece| crc32c::crc32c_append(sum, piece)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7143, appendix A.4.
    #[test]
    fn digests_are_those_of_the_standard() {
        let ascending: Vec<u8> = (0..32).collect();
        for (bytes, expected) in [
            (vec![0; 32], [0xAA, 0x36, 0x91, 0x8A]),
            (vec![0xFF; 32], [0x43, 0xAB, 0xA8, 0x62]),
            (ascending, [0x4E, 0x79, 0xDD, 0x46]),
        ] {
            assert_eq!(digest(&[&bytes[..7], &bytes[7..]]), expected);
        }
        assert_eq!([0, 1, 2, 3, 4, 5].map(padding_bytes), [0, 3, 2, 1, 0, 3]);
    }
}
