//! The formats, one file each, and their list.

mod alibaba;
mod blkparse;
mod blktrace;
mod disksim;
mod fio;
mod fiu;
mod msr;
mod spc;
mod systor17;
mod tencent;

use std::fmt::Debug;

use chronodisk_sim::RequestRecord;

use super::line::Problem;
use super::sink::Sink;
use super::{Format, TraceInfo};

/// Decoder of a format's files.
#[derive(Debug)]
pub(super) enum Decoder {
    Lines(Box<dyn LineDecoder>),
    Binary(blktrace::BlktraceDecoder),
}

/// Knows the lines of a text format.
pub(super) trait LineDecoder: Debug + Send {
    /// A line that is not blank, without its end.
    fn line(&mut self, line: &str, sink: &mut Sink, records: &mut Vec<RequestRecord>) -> Result<(), Problem>;
}

/// Makes the bytes of a format's files.
pub(super) trait Encoder: Debug + Send {
    /// Writes the bytes before the first request.
    fn head(&mut self, _info: &TraceInfo, _out: &mut Vec<u8>) {}
    /// Writes a request. Returns false if the format has no requests of this kind.
    fn record(&mut self, record: &RequestRecord, info: &TraceInfo, out: &mut Vec<u8>) -> bool;
    /// Writes the bytes after the last one.
    fn tail(&mut self, _info: &TraceInfo, _out: &mut Vec<u8>) {}
}

pub(super) fn decoder(format: Format) -> Decoder {
    Decoder::Lines(match format {
        Format::FioV2 => Box::new(fio::FioDecoder::v2()),
        Format::FioV3 => Box::new(fio::FioDecoder::v3()),
        Format::DiskSim => Box::new(disksim::DiskSim),
        Format::Msr => Box::new(msr::Msr),
        Format::Spc => Box::new(spc::Spc),
        Format::Alibaba => Box::new(alibaba::Alibaba),
        Format::Tencent => Box::new(tencent::Tencent),
        Format::Systor17 => Box::new(systor17::Systor17),
        Format::Fiu => Box::new(fiu::Fiu),
        Format::Blkparse => Box::new(blkparse::BlkparseDecoder),
        Format::Blktrace => return Decoder::Binary(blktrace::BlktraceDecoder),
    })
}

/// The writer of a format; `None` if it is only read.
pub(super) fn encoder(format: Format) -> Option<Box<dyn Encoder>> {
    Some(match format {
        Format::FioV2 => Box::new(fio::FioEncoder::v2()),
        Format::FioV3 => Box::new(fio::FioEncoder::v3()),
        Format::DiskSim => Box::new(disksim::DiskSim),
        Format::Msr => Box::new(msr::Msr),
        Format::Spc => Box::new(spc::Spc),
        Format::Alibaba => Box::new(alibaba::Alibaba),
        Format::Tencent => Box::new(tencent::Tencent),
        Format::Systor17 => Box::new(systor17::Systor17),
        Format::Blkparse => Box::new(blkparse::BlkparseEncoder::default()),
        Format::Blktrace => Box::new(blktrace::BlktraceEncoder::default()),
        Format::Fiu => return None,
    })
}

pub(super) fn detect(bytes: &[u8]) -> Option<Format> {
    if blktrace::begins(bytes) {
        return Some(Format::Blktrace);
    }
    let text = std::str::from_utf8(&bytes[..bytes.len().min(4096)]).or_else(|error| {
        // The cut may be within a character.
        std::str::from_utf8(&bytes[..error.valid_up_to()])
    });
    let text = text.ok()?;
    if text.starts_with("fio version 2 iolog") {
        return Some(Format::FioV2);
    }
    if text.starts_with("fio version 3 iolog") {
        return Some(Format::FioV3);
    }
    if text.starts_with(systor17::HEADER) {
        return Some(Format::Systor17);
    }
    // The first may have the names of the columns.
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.take(DETECTION_LINES).find_map(detect_in_line)
}

/// Number of lines that are searched for a format.
const DETECTION_LINES: usize = 8;

/// Whether a line has the names of columns: several words with commas between them, and no number.
pub(super) fn is_heading(line: &str) -> bool {
    let is_name = |field: &str| {
        field.trim().starts_with(|first: char| first.is_alphabetic() || first == '_' || first == '"')
            && field.trim().len() > 1
    };
    line.split(',').count() >= 4 && line.split(',').all(is_name)
}

fn detect_in_line(line: &str) -> Option<Format> {
    let commas: Vec<&str> = line.split(',').map(str::trim).collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_letter = |text: &str| ["r", "w"].contains(&text.to_ascii_lowercase().as_str());
    match commas[..] {
        [_, _, _, op, _, _, _] if ["read", "write"].contains(&op.to_ascii_lowercase().as_str()) => Some(Format::Msr),
        [_, _, op, _, _, _] if is_letter(op) => Some(Format::Systor17),
        [device, op, _, _, _] if is_letter(op) && is_number(device) => Some(Format::Alibaba),
        [_, _, _, op, _, ..] if is_letter(op) => Some(Format::Spc),
        [time, _, _, op, _] if is_number(time) && ["0", "1"].contains(&op) => Some(Format::Tencent),
        [..] => {
            let blanks: Vec<&str> = line.split_whitespace().collect();
            match blanks[..] {
                [device, cpu, _, time, ..] if device.contains(',') && is_number(cpu) && time.contains('.') => {
                    Some(Format::Blkparse)
                }
                [_, _, _, _, _, op, ..] if is_letter(op) && blanks.len() >= 9 => Some(Format::Fiu),
                [time, device, _, _, flags] if time.contains('.') && is_number(device) && is_number(flags) => {
                    Some(Format::DiskSim)
                }
                _ => None,
            }
        }
    }
}

/// The name of a record's volume, or its number.
pub(super) fn volume_of(record: &RequestRecord, info: &TraceInfo) -> String {
    match info.volumes.get(usize::from(record.device)) {
        Some(name) => name.clone(),
        None => record.device.to_string(),
    }
}

/// A number for a volume, for formats without names: its name, if that is a number, or its index.
pub(super) fn volume_number(record: &RequestRecord, info: &TraceInfo) -> u64 {
    volume_of(record, info).parse().unwrap_or_else(|_| u64::from(record.device))
}

/// The instant of a record in nanoseconds since 1970; a trace without a calendar begins then.
pub(super) fn unix_ns(record: &RequestRecord, info: &TraceInfo) -> u64 {
    info.origin_unix_ns.unwrap_or(0).saturating_add(record.arrival.as_nanos())
}

/// Response time of a record, or 0 if unknown.
pub(super) fn response_ns(record: &RequestRecord) -> u64 {
    if record.is_completed() { (record.completed - record.arrival).as_nanos() } else { 0 }
}
