//! Alibaba Cloud: `device_id,opcode,offset,length,timestamp`.
//!
//! As the traces' repository says (alibaba/block-traces): opcode `R` or `W`, offset and length in bytes, time stamp in
//! microseconds since 1970. A first line with the names of the columns is passed over.

use std::io::Write;

use chronodisk_sim::{Op, RequestRecord};

use super::super::TraceInfo;
use super::super::line::{At, Fields, Problem, Said};
use super::super::sink::Sink;
use super::{Encoder, LineDecoder, unix_ns, volume_number};

#[derive(Debug)]
pub(super) struct Alibaba;

impl LineDecoder for Alibaba {
    fn line(&mut self, line: &str, sink: &mut Sink, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        if line.starts_with("device_id,") {
            sink.skip();
            return Ok(());
        }
        let mut fields = Fields::of_commas(line);
        let volume = fields.text("device")?;
        let op = fields.one_of("operation", &[("R", Op::Read), ("W", Op::Write)])?;
        let offset_bytes = fields.number("offset", u64::MAX)?;
        let len_bytes = fields.number("length", u64::MAX)?;
        let micros = fields.number("time stamp", u64::MAX / 1_000)?;
        fields.end()?;
        let at = At::Unix { ns: micros * 1_000 };
        let said = Said { at, op, fua: false, offset_bytes, len_bytes, volume, issuer: 0, response_ns: None };
        sink.add(said, records)
    }
}

impl Encoder for Alibaba {
    fn record(&mut self, record: &RequestRecord, info: &TraceInfo, out: &mut Vec<u8>) -> bool {
        let op = match record.op {
            Op::Read => 'R',
            Op::Write => 'W',
            _ => return false,
        };
        let device = volume_number(record, info);
        let (offset, len) = (record.lba.offset_bytes(), u64::from(record.sectors) * 512);
        let _ = writeln!(out, "{device},{op},{offset},{len},{}", unix_ns(record, info) / 1_000);
        true
    }
}
