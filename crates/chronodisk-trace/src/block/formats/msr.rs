//! Microsoft Research Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! As the README of the distribution says (SNIA IOTTA 387): time stamp and response time in Windows file time (100 ns;
//! since 1601), type `Read` or `Write`, offset and size in bytes. A volume is named `HOST_DISK`, as the files are.

use std::io::Write;

use chronodisk_sim::{Op, RequestRecord};

use super::super::TraceInfo;
use super::super::line::{At, Fields, Problem, Said};
use super::super::sink::Sink;
use super::{Encoder, LineDecoder, response_ns, unix_ns, volume_of};

#[derive(Debug)]
pub(super) struct Msr;

/// From 1601 to 1970, in units of 100 ns: 369 years with 89 leap days.
const UNIX_EPOCH_TICKS: u64 = (369 * 365 + 89) * 86_400 * 10_000_000;
const TICK_NS: u64 = 100;

impl LineDecoder for Msr {
    fn line(&mut self, line: &str, sink: &mut Sink, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        let mut fields = Fields::of_commas(line);
        let ticks = fields.number("time stamp", u64::MAX / TICK_NS)?;
        let since_1970 = ticks.checked_sub(UNIX_EPOCH_TICKS).ok_or("field 1, time stamp: before 1970")?;
        let host = fields.text("host name")?;
        let disk = fields.number("disk number", u64::from(u32::MAX))?;
        let op = fields.one_of("type", &[("Read", Op::Read), ("Write", Op::Write)])?;
        let offset_bytes = fields.number("offset", u64::MAX)?;
        let len_bytes = fields.number("size", u64::MAX)?;
        let response = fields.number("response time", u64::MAX / TICK_NS)?;
        fields.end()?;
        let said = Said {
            at: At::Unix { ns: since_1970 * TICK_NS },
            op,
            fua: false,
            offset_bytes,
            len_bytes,
            volume: &format!("{host}_{disk}"),
            issuer: 0,
            response_ns: Some(response * TICK_NS),
        };
        sink.add(said, records)
    }
}

impl Encoder for Msr {
    fn record(&mut self, record: &RequestRecord, info: &TraceInfo, out: &mut Vec<u8>) -> bool {
        let op = match record.op {
            Op::Read => "Read",
            Op::Write => "Write",
            _ => return false,
        };
        let volume = volume_of(record, info);
        let (host, disk) = match volume.rsplit_once('_') {
            Some((host, disk)) if disk.bytes().all(|byte| byte.is_ascii_digit()) => (host, disk.to_owned()),
            _ => (volume.as_str(), record.device.to_string()),
        };
        let host = host.replace(',', "_");
        let ticks = UNIX_EPOCH_TICKS + unix_ns(record, info) / TICK_NS;
        let (offset, size) = (record.lba.offset_bytes(), u64::from(record.sectors) * 512);
        let response = response_ns(record) / TICK_NS;
        let _ = writeln!(out, "{ticks},{host},{disk},{op},{offset},{size},{response}");
        true
    }
}
