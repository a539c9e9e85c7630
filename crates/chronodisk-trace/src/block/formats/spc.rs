//! Storage Performance Council, trace file format revision 1.0.1: `ASU,LBA,Size,Opcode,Timestamp` and further fields.
//!
//! The logical block address counts blocks of 512 bytes (as in the traces of the UMass repository), the size is in
//! bytes, the opcode `R` or `W` in either case, the time stamp in seconds since the beginning. Fields after the fifth
//! are optional by the specification, and passed over. It
//! also allows a size of zero, whose meaning it leaves to the device: such requests are passed over.

use std::io::Write;

use chronodisk_sim::{Op, RequestRecord};

use super::super::TraceInfo;
use super::super::line::{At, Fields, Problem, Said};
use super::super::sink::Sink;
use super::{Encoder, LineDecoder, volume_number};

#[derive(Debug)]
pub(super) struct Spc;

const SECOND_NS: u64 = 1_000_000_000;

impl LineDecoder for Spc {
    fn line(&mut self, line: &str, sink: &mut Sink, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        let mut fields = Fields::of_commas(line);
        let volume = fields.text("application storage unit")?;
        let lba = fields.number("logical block address", u64::MAX / 512)?;
        let len_bytes = fields.number("size", u64::MAX)?;
        let op = fields.one_of("opcode", &[("R", Op::Read), ("W", Op::Write)])?;
        let at = At::Relative { ns: fields.seconds("time stamp")? };
        if len_bytes == 0 {
            sink.skip();
            return Ok(());
        }
        let offset_bytes = lba * 512;
        sink.add(Said { at, op, fua: false, offset_bytes, len_bytes, volume, issuer: 0, response_ns: None }, records)
    }
}

impl Encoder for Spc {
    fn record(&mut self, record: &RequestRecord, info: &TraceInfo, out: &mut Vec<u8>) -> bool {
        let op = match record.op {
            Op::Read => 'R',
            Op::Write => 'W',
            _ => return false,
        };
        let ns = record.arrival.as_nanos();
        // Traces have six decimals; more are written only if they are not zero.
        let fraction = match (ns % SECOND_NS, ns % 1_000) {
            (fraction, 0) => format!("{:06}", fraction / 1_000),
            (fraction, _) => format!("{fraction:09}"),
        };
        let (unit, len) = (volume_number(record, info), u64::from(record.sectors) * 512);
        let _ = writeln!(out, "{unit},{},{len},{op},{}.{fraction}", record.lba, ns / SECOND_NS);
        true
    }
}
