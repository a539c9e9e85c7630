//! Tencent Cloud block storage: `Timestamp,Offset,Size,IOType,VolumeID`.
//!
//! As the README of the distribution says (SNIA IOTTA 28064): time stamp in whole seconds since 1970, offset and size
//! in sectors of 512 bytes, type 0 for a read and 1 for a write.

use std::io::Write;

use chronodisk_sim::{Op, RequestRecord};

use super::super::TraceInfo;
use super::super::line::{At, Fields, Problem, Said};
use super::super::sink::Sink;
use super::{Encoder, LineDecoder, unix_ns, volume_number};

#[derive(Debug)]
pub(super) struct Tencent;

const SECOND_NS: u64 = 1_000_000_000;

impl LineDecoder for Tencent {
    fn line(&mut self, line: &str, sink: &mut Sink, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        let mut fields = Fields::of_commas(line);
        let seconds = fields.number("time stamp", u64::MAX / SECOND_NS)?;
        let offset = fields.number("offset", u64::MAX / 512)?;
        let size = fields.number("size", u64::MAX / 512)?;
        let op = fields.one_of("type", &[("0", Op::Read), ("1", Op::Write)])?;
        let volume = fields.text("volume")?;
        fields.end()?;
        let said = Said {
            at: At::Unix { ns: seconds * SECOND_NS },
            op,
            fua: false,
            offset_bytes: offset * 512,
            len_bytes: size * 512,
            volume,
            issuer: 0,
            response_ns: None,
        };
        sink.add(said, records)
    }
}

impl Encoder for Tencent {
    fn record(&mut self, record: &RequestRecord, info: &TraceInfo, out: &mut Vec<u8>) -> bool {
        let op = match record.op {
            Op::Read => 0,
            Op::Write => 1,
            _ => return false,
        };
        let (seconds, volume) = (unix_ns(record, info) / SECOND_NS, volume_number(record, info));
        let _ = writeln!(out, "{seconds},{},{},{op},{volume}", record.lba, record.sectors);
        true
    }
}
