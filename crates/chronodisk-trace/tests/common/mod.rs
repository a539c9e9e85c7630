//! Traces of the tests, and what readers and writers make of them.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::Path;

use chronodisk_sim::{Lba, Nanos, Op, Priority, RequestRecord, Status};
use chronodisk_trace::block::{Format, ReadCounts, TraceInfo, TraceReader, TraceWriter};

/// A file of `traces`.
pub fn sample(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name)).unwrap()
}

pub type Read = (Vec<RequestRecord>, TraceInfo, ReadCounts);

/// Reads bytes in pieces of so many.
pub fn read_in(format: Format, bytes: &[u8], piece: usize) -> Result<Read, String> {
    let (mut reader, mut records) = (TraceReader::new(format), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        reader.read(piece, &mut records).map_err(|error| error.to_string())?;
    }
    reader.finish(&mut records).map_err(|error| error.to_string())?;
    Ok((records, reader.info().clone(), reader.counts()))
}

pub fn read(format: Format, bytes: &[u8]) -> Result<Read, String> {
    read_in(format, bytes, usize::MAX)
}

pub fn written(format: Format, info: &TraceInfo, records: &[RequestRecord]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(format, info.clone(), &mut bytes).unwrap();
    writer.write(records, &mut bytes);
    let counts = writer.finish(&mut bytes);
    assert_eq!(counts.requests + counts.left_out, records.len() as u64);
    bytes
}

pub fn request(op: Op, lba: u64, sectors: u32, arrival_ns: u64) -> RequestRecord {
    RequestRecord {
        device: 0,
        order: 0,
        op,
        fua: false,
        priority: Priority::default(),
        lba: Lba(lba),
        sectors,
        queue: 0,
        issuer: 0,
        arrival: Nanos::from_nanos(arrival_ns),
        due: Nanos::MAX,
        completed: Nanos::MAX,
        status: Status::Ok,
        store_failed: false,
        stolen: false,
        model_time: Nanos::ZERO,
        store_time: Nanos::ZERO,
    }
}

pub type Plain = (Op, u64, u32, u64);

pub fn plain(records: &[RequestRecord]) -> Vec<Plain> {
    records.iter().map(|record| (record.op, record.lba.0, record.sectors, record.arrival.as_nanos())).collect()
}
