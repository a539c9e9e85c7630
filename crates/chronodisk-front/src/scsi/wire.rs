//! Constants of SCSI: SPC-4 (primary commands), SBC-3 (block commands) and SAM-5 (status, task attributes).

/// Operation codes; SPC-4 and SBC-3, "Commands".
pub mod opcode {
    /// `TEST UNIT READY`.
    pub const TEST_UNIT_READY: u8 = 0x00;
    /// `REQUEST SENSE`.
    pub const REQUEST_SENSE: u8 = 0x03;
    /// `READ (6)`.
    pub const READ_6: u8 = 0x08;
    /// `WRITE (6)`.
    pub const WRITE_6: u8 = 0x0A;
    /// `INQUIRY`.
    pub const INQUIRY: u8 = 0x12;
    /// `MODE SELECT (6)`.
    pub const MODE_SELECT_6: u8 = 0x15;
    /// `RESERVE (6)`; SPC-2.
    pub const RESERVE_6: u8 = 0x16;
    /// `RELEASE (6)`; SPC-2.
    pub const RELEASE_6: u8 = 0x17;
    /// `MODE SENSE (6)`.
    pub const MODE_SENSE_6: u8 = 0x1A;
    /// `START STOP UNIT`.
    pub const START_STOP_UNIT: u8 = 0x1B;
    /// `READ CAPACITY (10)`.
    pub const READ_CAPACITY_10: u8 = 0x25;
    /// `READ (10)`.
    pub const READ_10: u8 = 0x28;
    /// `WRITE (10)`.
    pub const WRITE_10: u8 = 0x2A;
    /// `VERIFY (10)`.
    pub const VERIFY_10: u8 = 0x2F;
    /// `SYNCHRONIZE CACHE (10)`.
    pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    /// `WRITE SAME (10)`.
    pub const WRITE_SAME_10: u8 = 0x41;
    /// `UNMAP`.
    pub const UNMAP: u8 = 0x42;
    /// `MODE SELECT (10)`.
    pub const MODE_SELECT_10: u8 = 0x55;
    /// `MODE SENSE (10)`.
    pub const MODE_SENSE_10: u8 = 0x5A;
    /// `PERSISTENT RESERVE IN`.
    pub const PERSISTENT_RESERVE_IN: u8 = 0x5E;
    /// `PERSISTENT RESERVE OUT`.
    pub const PERSISTENT_RESERVE_OUT: u8 = 0x5F;
    /// `READ (16)`.
    pub const READ_16: u8 = 0x88;
    /// `WRITE (16)`.
    pub const WRITE_16: u8 = 0x8A;
    /// `VERIFY (16)`.
    pub const VERIFY_16: u8 = 0x8F;
    /// `SYNCHRONIZE CACHE (16)`.
    pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    /// `WRITE SAME (16)`.
    pub const WRITE_SAME_16: u8 = 0x93;
    /// `SERVICE ACTION IN (16)`.
    pub const SERVICE_ACTION_IN_16: u8 = 0x9E;
    /// `REPORT LUNS`.
    pub const REPORT_LUNS: u8 = 0xA0;
    /// `MAINTENANCE IN`.
    pub const MAINTENANCE_IN: u8 = 0xA3;
    /// `READ (12)`.
    pub const READ_12: u8 = 0xA8;
    /// `WRITE (12)`.
    pub const WRITE_12: u8 = 0xAA;
}

/// Service actions.
pub mod service_action {
    /// `READ CAPACITY (16)`, of `SERVICE ACTION IN (16)`.
    pub const READ_CAPACITY_16: u8 = 0x10;
    /// `REPORT SUPPORTED OPERATION CODES`, of `MAINTENANCE IN`.
    pub const REPORT_SUPPORTED_OPERATION_CODES: u8 = 0x0C;
}

/// Service actions of `PERSISTENT RESERVE IN`; SPC-4, 6.15.1.
pub mod reserve_in {
    /// `READ KEYS`.
    pub const READ_KEYS: u8 = 0x00;
    /// `READ RESERVATION`.
    pub const READ_RESERVATION: u8 = 0x01;
    /// `REPORT CAPABILITIES`.
    pub const REPORT_CAPABILITIES: u8 = 0x02;
    /// `READ FULL STATUS`.
    pub const READ_FULL_STATUS: u8 = 0x03;
}

/// Service actions of `PERSISTENT RESERVE OUT`; SPC-4, 6.16.2.
pub mod reserve_out {
    /// `REGISTER`.
    pub const REGISTER: u8 = 0x00;
    /// `RESERVE`.
    pub const RESERVE: u8 = 0x01;
    /// `RELEASE`.
    pub const RELEASE: u8 = 0x02;
    /// `CLEAR`.
    pub const CLEAR: u8 = 0x03;
    /// `PREEMPT`.
    pub const PREEMPT: u8 = 0x04;
    /// `PREEMPT AND ABORT`.
    pub const PREEMPT_AND_ABORT: u8 = 0x05;
    /// `REGISTER AND IGNORE EXISTING KEY`.
    pub const REGISTER_AND_IGNORE: u8 = 0x06;
    /// `REGISTER AND MOVE`, which is refused.
    pub const REGISTER_AND_MOVE: u8 = 0x07;
}

/// Status codes; SAM-5, 5.3.1.
pub mod status {
    /// `GOOD`.
    pub const GOOD: u8 = 0x00;
    /// `CHECK CONDITION`.
    pub const CHECK_CONDITION: u8 = 0x02;
    /// `BUSY`.
    pub const BUSY: u8 = 0x08;
    /// `RESERVATION CONFLICT`.
    pub const RESERVATION_CONFLICT: u8 = 0x18;
    /// `TASK SET FULL`.
    pub const TASK_SET_FULL: u8 = 0x28;
    /// `TASK ABORTED`.
    pub const TASK_ABORTED: u8 = 0x40;
}

/// Pages of vital product data; SPC-4, 7.8, and SBC-3, 6.5.
pub mod vital {
    /// Supported pages.
    pub const SUPPORTED_PAGES: u8 = 0x00;
    /// Unit serial number.
    pub const SERIAL_NUMBER: u8 = 0x80;
    /// Device identification.
    pub const IDENTIFICATION: u8 = 0x83;
    /// Block limits.
    pub const BLOCK_LIMITS: u8 = 0xB0;
    /// Block device characteristics.
    pub const CHARACTERISTICS: u8 = 0xB1;
    /// Logical block provisioning.
    pub const PROVISIONING: u8 = 0xB2;
    /// All pages, in ascending order.
    pub const ALL: [u8; 6] =
        [SUPPORTED_PAGES, SERIAL_NUMBER, IDENTIFICATION, BLOCK_LIMITS, CHARACTERISTICS, PROVISIONING];
}

/// Mode pages; SPC-4, 7.5, and SBC-3, 6.4.
pub mod mode_page {
    /// Caching.
    pub const CACHING: u8 = 0x08;
    /// Control.
    pub const CONTROL: u8 = 0x0A;
    /// All pages.
    pub const ALL: u8 = 0x3F;
}

/// Bytes of a command descriptor block; longer ones are not supported.
pub const CDB_BYTES: usize = 16;

/// Reads a big-endian number of up to 8 bytes. The caller bounds the range.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
