//! Fujitsu's traces of SYSTOR '17: `Timestamp,Response,IOType,LUN,Offset,Size`.
//!
//! As the README of the distribution says (SNIA IOTTA 4964): time stamp and response in seconds with nine decimals
//! (since 1970; accurate to microseconds), type `R`, `W` or nothing, offset and size in bytes. Requests without a type
//! are passed over. The first line has the names of the columns.

use std::io::Write;

use chronodisk_sim::{Op, RequestRecord};

use super::super::TraceInfo;
use super::super::line::{At, Fields, Problem, Said};
use super::super::sink::Sink;
use super::{Encoder, LineDecoder, response_ns, unix_ns, volume_number};

#[derive(Debug)]
pub(super) struct Systor17;

pub(super) const HEADER: &str = "Timestamp,Response,IOType,LUN,Offset,Size";
const SECOND_NS: u64 = 1_000_000_000;

impl LineDecoder for Systor17 {
    fn line(&mut self, line: &str, sink: &mut Sink, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        if line.trim() == HEADER {
            return Ok(());
        }
        let mut fields = Fields::of_commas(line);
        let ns = fields.seconds("time stamp")?;
        let response = fields.seconds("response")?;
        let op = fields.one_of("type", &[("R", Some(Op::Read)), ("W", Some(Op::Write)), ("", None)])?;
        let volume = fields.text("LUN")?;
        let offset_bytes = fields.number("offset", u64::MAX)?;
        let len_bytes = fields.number("size", u64::MAX)?;
        fields.end()?;
        let Some(op) = op else {
            sink.skip();
            return Ok(());
        };
        let (at, response_ns) = (At::Unix { ns }, Some(response));
        sink.add(Said { at, op, fua: false, offset_bytes, len_bytes, volume, issuer: 0, response_ns }, records)
    }
}

impl Encoder for Systor17 {
    fn head(&mut self, _info: &TraceInfo, out: &mut Vec<u8>) {
        let _ = writeln!(out, "{HEADER}");
    }

    fn record(&mut self, record: &RequestRecord, info: &TraceInfo, out: &mut Vec<u8>) -> bool {
        let op = match record.op {
            Op::Read => 'R',
            Op::Write => 'W',
            _ => return false,
        };
        let seconds = |ns: u64| format!("{}.{:09}", ns / SECOND_NS, ns % SECOND_NS);
        let (at, response) = (seconds(unix_ns(record, info)), seconds(response_ns(record)));
        let (offset, len) = (record.lba.offset_bytes(), u64::from(record.sectors) * 512);
        let _ = writeln!(out, "{at},{response},{op},{},{offset},{len}", volume_number(record, info));
        true
    }
}
