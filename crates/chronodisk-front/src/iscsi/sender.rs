//! PDUs to the initiator.

use super::wire::{Header, NO_TAG, digest, flag, opcode, padding_bytes};
use crate::scsi::wire::status;
use crate::stream::Output;

/// Unsent PDUs, and the numbers that PDUs carry.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    pub output: Output,
    /// Number of the next status (`StatSN`).
    pub status_number: u32,
    /// Number of the next command (`ExpCmdSN`).
    pub next_command: u32,
    /// Number of the last command that the initiator may send (`MaxCmdSN`).
    pub last_command: u32,
    pub header_digest: bool,
    pub data_digest: bool,
}

/// Difference between a command's amount of data and the initiator's expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Residual {
    flag: u8,
    bytes: u32,
}

impl Residual {
    /// The command has `actual` bytes of data.
    pub fn of(actual: u32, expected: u32) -> Self {
        let flag = match actual.cmp(&expected) {
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Less => flag::UNDERFLOW,
            std::cmp::Ordering::Greater => flag::OVERFLOW,
        };
        Residual { flag, bytes: actual.abs_diff(expected) }
    }
}

/// The data of an answer.
pub(crate) struct DataIn<'a> {
    pub tag: u32,
    pub data: &'a [u8],
    /// The slot in which the data stay; else they are copied.
    pub slot: Option<u32>,
    pub residual: Residual,
    /// Most bytes in a PDU, and in a sequence of PDUs.
    pub pdu_bytes: usize,
    pub burst_bytes: usize,
}

/// Whether a PDU takes a number of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Yes,
    No,
}

impl Sender {
    /// Appends a PDU, whose numbers are set here.
    pub fn send(&mut self, mut header: Header, data: &[u8], counted: Counted) {
        header.set_data_bytes(data.len());
        self.number(&mut header);
        if counted == Counted::Yes {
            self.status_number = self.status_number.wrapping_add(1);
        }
        self.head(&header);
        if !data.is_empty() {
            self.output.head(data);
            self.end_data(data);
        }
    }

    /// Appends the response to a command without data, with its sense data if there are any.
    pub fn response(&mut self, tag: u32, status: u8, sense: &[u8], residual: Residual) {
        let mut header = Header::new(opcode::SCSI_RESPONSE, flag::FINAL | residual.flag);
        header.0[3] = status;
        header.set_u32(16, tag);
        header.set_u32(44, residual.bytes);
        if sense.is_empty() {
            return self.send(header, &[], Counted::Yes);
        }
        // Shorter than 256 bytes.
        let data = [&(sense.len() as u16).to_be_bytes()[..], sense].concat();
        self.send(header, &data, Counted::Yes);
    }

    /// Appends data that end a command successfully. There is at least one byte.
    pub fn data_in(&mut self, answer: &DataIn<'_>) {
        let total = answer.data.len();
        let (mut start, mut number, mut burst_end) = (0, 0, answer.burst_bytes.min(total));
        while start < total {
            let end = (start + answer.pdu_bytes).min(burst_end);
            let piece = &answer.data[start..end];
            let mut header = Header::new(opcode::DATA_IN, 0);
            header.set_u32(16, answer.tag);
            header.set_u32(20, NO_TAG);
            self.number(&mut header);
            if end == burst_end {
                header.0[1] |= flag::FINAL;
                burst_end = (burst_end + answer.burst_bytes).min(total);
            }
            if end == total {
                header.0[1] |= flag::STATUS | answer.residual.flag;
                header.0[3] = status::GOOD;
                header.set_u32(44, answer.residual.bytes);
                self.status_number = self.status_number.wrapping_add(1);
            } else {
                header.set_u32(24, 0);
            }
            header.set_u32(36, number);
            // A transfer has fewer than 2^32 bytes.
            header.set_u32(40, start as u32);
            header.set_data_bytes(piece.len());
            self.head(&header);
            match answer.slot {
                Some(slot) => self.output.data(slot, start, piece.len(), end == total),
                None => self.output.head(piece),
            }
            self.end_data(piece);
            start = end;
            number += 1;
        }
    }

    fn number(&self, header: &mut Header) {
        header.set_u32(24, self.status_number);
        header.set_u32(28, self.next_command);
        header.set_u32(32, self.last_command);
    }

    fn head(&mut self, header: &Header) {
        self.output.head(&header.0);
        if self.header_digest {
            self.output.head(&digest(&[&header.0]));
        }
    }

    fn end_data(&mut self, data: &[u8]) {
        let padding = &[0; 3][..padding_bytes(data.len())];
        self.output.head(padding);
        if self.data_digest {
            self.output.head(&digest(&[data, padding]));
        }
    }
}
