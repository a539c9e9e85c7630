//! Sense data: the reason of a refusal or a failure.

/// Bytes of sense data in the fixed format; SPC-4, 4.5.3.
pub const FIXED_SENSE_BYTES: usize = 18;
/// Bytes of sense data in the descriptor format without descriptors; SPC-4, 4.5.2.
pub const DESCRIPTOR_SENSE_BYTES: usize = 8;

/// Category of a condition; SPC-4, 4.5.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SenseKey {
    /// Nothing to report.
    NoSense = 0x0,
    /// The unit must be started first.
    NotReady = 0x2,
    /// The medium failed.
    MediumError = 0x3,
    /// The device failed.
    HardwareError = 0x4,
    /// The command is wrong.
    IllegalRequest = 0x5,
    /// The unit's state has changed by another event.
    UnitAttention = 0x6,
    /// Writing is not permitted.
    DataProtect = 0x7,
    /// The command was given up, and may succeed if repeated.
    AbortedCommand = 0xB,
    /// The compared data differ.
    Miscompare = 0xE,
}

/// Reason why a command did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sense {
    /// The category.
    pub key: SenseKey,
    /// Additional sense code and its qualifier; SPC-4, annex D.
    pub code: (u8, u8),
    /// The wrong field, if it is known.
    pub field: Option<Field>,
    /// The block of a medium's failure, or the offset of a difference in bytes.
    pub information: Option<u32>,
}

/// Position of a wrong field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// The field is in the command descriptor block, not in its parameters.
    pub in_command: bool,
    /// The field's first byte.
    pub byte: u16,
}

impl Sense {
    const fn new(key: SenseKey, code: (u8, u8)) -> Self {
        Sense { key, code, field: None, information: None }
    }

    const fn illegal(code: (u8, u8)) -> Self {
        Sense::new(SenseKey::IllegalRequest, code)
    }

    /// Nothing to report.
    pub const NOTHING: Sense = Sense::new(SenseKey::NoSense, (0x00, 0x00));
    /// Unknown operation code.
    pub const INVALID_OPCODE: Sense = Sense::illegal((0x20, 0x00));
    /// A block beyond the end.
    pub const OUT_OF_RANGE: Sense = Sense::illegal((0x21, 0x00));
    /// The logical unit does not exist.
    pub const NO_SUCH_UNIT: Sense = Sense::illegal((0x25, 0x00));
    /// The parameters are longer or shorter than their length says.
    pub const PARAMETER_LENGTH: Sense = Sense::illegal((0x1A, 0x00));
    /// A release names another type than the reservation has.
    pub const INVALID_RELEASE: Sense = Sense::illegal((0x26, 0x04));
    /// The unit has its most registrations.
    pub const NO_REGISTRATION: Sense = Sense::illegal((0x55, 0x04));
    /// Parameters can't be saved.
    pub const SAVING_NOT_SUPPORTED: Sense = Sense::illegal((0x39, 0x00));
    /// The transport announced another length than the command.
    pub const TRANSFER_LENGTH: Sense = Sense::new(SenseKey::AbortedCommand, (0x0E, 0x03));
    /// The initiator must start the unit first.
    pub const STOPPED: Sense = Sense::new(SenseKey::NotReady, (0x04, 0x02));
    /// The unit is read-only.
    pub const WRITE_PROTECTED: Sense = Sense::new(SenseKey::DataProtect, (0x27, 0x00));
    /// The unit was reset.
    pub const RESET: Sense = Sense::new(SenseKey::UnitAttention, (0x29, 0x03));
    /// Another initiator has changed a mode page.
    pub const MODE_CHANGED: Sense = Sense::new(SenseKey::UnitAttention, (0x2A, 0x01));
    /// Another initiator has removed the reservation with all registrations.
    pub const RESERVATIONS_PREEMPTED: Sense = Sense::new(SenseKey::UnitAttention, (0x2A, 0x03));
    /// Another initiator has ended a reservation that gave registrants access, or changed its type.
    pub const RESERVATIONS_RELEASED: Sense = Sense::new(SenseKey::UnitAttention, (0x2A, 0x04));
    /// Another initiator has removed the registration.
    pub const REGISTRATIONS_PREEMPTED: Sense = Sense::new(SenseKey::UnitAttention, (0x2A, 0x05));
    /// Unknown task attribute.
    pub const INVALID_MESSAGE: Sense = Sense::new(SenseKey::AbortedCommand, (0x49, 0x00));
    /// Data that the target did not ask for.
    pub const UNEXPECTED_DATA: Sense = Sense::new(SenseKey::AbortedCommand, (0x0C, 0x0C));
    /// A sequence of data has another length than the transport announced.
    pub const DATA_LENGTH: Sense = Sense::new(SenseKey::AbortedCommand, (0x0C, 0x0D));
    /// A message is missing in a sequence of data.
    pub const DATA_ORDER: Sense = Sense::new(SenseKey::AbortedCommand, (0x4B, 0x00));
    /// The device gave the command up.
    pub const GIVEN_UP: Sense = Sense::new(SenseKey::AbortedCommand, (0x00, 0x00));
    /// The emulator's store failed.
    pub const INTERNAL: Sense = Sense::new(SenseKey::HardwareError, (0x44, 0x00));
    /// The emulator's store is full.
    pub const NO_SPACE: Sense = Sense::new(SenseKey::DataProtect, (0x27, 0x07));

    /// The field at this byte of the command descriptor block is wrong.
    #[must_use]
    pub const fn in_command(byte: u16) -> Self {
        Sense { field: Some(Field { in_command: true, byte }), ..Sense::illegal((0x24, 0x00)) }
    }

    /// The field at this byte of the parameters is wrong.
    #[must_use]
    pub const fn in_parameters(byte: u16) -> Self {
        Sense { field: Some(Field { in_command: false, byte }), ..Sense::illegal((0x26, 0x00)) }
    }

    /// The medium can't be read or written at this block.
    #[must_use]
    pub fn medium_error(writes: bool, block: u64) -> Self {
        let code = if writes { (0x0C, 0x00) } else { (0x11, 0x00) };
        Sense { information: u32::try_from(block).ok(), ..Sense::new(SenseKey::MediumError, code) }
    }

    /// The data differ at this byte.
    #[must_use]
    pub fn miscompare(offset_bytes: u32) -> Self {
        Sense { information: Some(offset_bytes), ..Sense::new(SenseKey::Miscompare, (0x1D, 0x00)) }
    }

    /// Sense data in the fixed format.
    #[must_use]
    pub fn fixed(&self) -> [u8; FIXED_SENSE_BYTES] {
        let mut bytes = [0; FIXED_SENSE_BYTES];
        bytes[0] = 0x70;
        bytes[2] = self.key as u8;
        if let Some(information) = self.information {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        // The length of the rest.
        bytes[7] = (FIXED_SENSE_BYTES - 8) as u8;
        (bytes[12], bytes[13]) = self.code;
        if let Some(field) = self.field {
            bytes[15] = 0x80 | if field.in_command { 0x40 } else { 0 };
            bytes[16..18].copy_from_slice(&field.byte.to_be_bytes());
        }
        bytes
    }

    /// Sense data in the descriptor format, without descriptors.
    #[must_use]
    pub fn descriptor(&self) -> [u8; DESCRIPTOR_SENSE_BYTES] {
        [0x72, self.key as u8, self.code.0, self.code.1, 0, 0, 0, 0]
    }
}
