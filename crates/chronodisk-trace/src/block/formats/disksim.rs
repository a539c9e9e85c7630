//! DiskSim's default ASCII trace: arrival, device, block, size, flags, with white space between them.
//!
//! As the reference manual of DiskSim 4.0 says (section 5.1.4): arrival in milliseconds with decimals, block and size
//! in blocks of 512 bytes, flags in hexadecimal digits whose lowest bit is set for a read. DiskSim itself writes tabs
//! and six decimals.

use std::io::Write;

use chronodisk_sim::{Op, RequestRecord};

use super::super::TraceInfo;
use super::super::line::{At, Problem, Said, decimal, number, wrong};
use super::super::sink::Sink;
use super::{Encoder, LineDecoder, volume_number};

#[derive(Debug)]
pub(super) struct DiskSim;

/// Decimals of a millisecond in nanoseconds.
const MILLI_DIGITS: u32 = 6;

impl LineDecoder for DiskSim {
    fn line(&mut self, line: &str, sink: &mut Sink, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        let fields: Vec<&str> = line.split_whitespace().take(6).collect();
        let &[time, volume, block, size, flags] = &fields[..] else {
            return Err("expected five fields: arrival in ms, device, block, blocks, flags".to_owned());
        };
        let ns = decimal(time, MILLI_DIGITS).ok_or_else(|| wrong(1, "arrival", time, "milliseconds"))?;
        let block = number(block, u64::MAX / 512).ok_or_else(|| wrong(3, "block", block, "a block's number"))?;
        let size = number(size, u64::MAX / 512).ok_or_else(|| wrong(4, "size", size, "a number of blocks"))?;
        let flags = u32::from_str_radix(flags, 16).map_err(|_| wrong(5, "flags", flags, "hexadecimal digits"))?;
        let said = Said {
            at: At::Relative { ns },
            op: if flags & 1 == 1 { Op::Read } else { Op::Write },
            fua: false,
            offset_bytes: block * 512,
            len_bytes: size * 512,
            volume,
            issuer: 0,
            response_ns: None,
        };
        sink.add(said, records)
    }
}

impl Encoder for DiskSim {
    fn record(&mut self, record: &RequestRecord, info: &TraceInfo, out: &mut Vec<u8>) -> bool {
        let flags = match record.op {
            Op::Read => 1,
            Op::Write => 0,
            _ => return false,
        };
        let (ns, device) = (record.arrival.as_nanos(), volume_number(record, info));
        let (lba, sectors) = (record.lba, record.sectors);
        let _ = writeln!(out, "{}.{:06}\t{device}\t{lba}\t{sectors}\t{flags}", ns / 1_000_000, ns % 1_000_000);
        true
    }
}
