//! The text that blkparse prints by default, as its manual page has it:
//! `MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PROCESS ACTION RWBS SECTOR + SECTORS [NAME]`.
//!
//! Requests begin when they are issued to the driver (`D`) or queued (`Q`), and end with `C`. Other actions, and the
//! summary after the events, are passed over.

use std::io::Write;

use chronodisk_sim::{Op, RequestRecord};

use super::super::TraceInfo;
use super::super::events::{Event, Kind, Letters, letters};
use super::super::line::{Problem, decimal, number, wrong};
use super::super::sink::Sink;
use super::{Encoder, LineDecoder, volume_of};

#[derive(Debug)]
pub(super) struct BlkparseDecoder;

impl LineDecoder for BlkparseDecoder {
    fn line(&mut self, line: &str, sink: &mut Sink, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        let mut words = line.split_whitespace();
        let mut next = || words.next().unwrap_or_default();
        let volume = next();
        let is_device = volume.split_once(',').is_some_and(|(major, minor)| {
            [major, minor].into_iter().all(|text| number(text, u64::from(u32::MAX)).is_some())
        });
        if !is_device {
            // A line of the summary.
            sink.skip();
            return Ok(());
        }
        let (_cpu, _sequence, time, process, action, kind_letters) = (next(), next(), next(), next(), next(), next());
        let kind = match action {
            "Q" => Kind::Queue,
            "D" => Kind::Issue,
            "R" => Kind::Requeue,
            "C" => Kind::Complete,
            _ => {
                sink.skip();
                return Ok(());
            }
        };
        let said = letters(kind_letters);
        let at_ns = decimal(time, 9).ok_or_else(|| wrong(4, "time stamp", time, "seconds"))?;
        let issuer = number(process, u64::from(u32::MAX)).ok_or_else(|| wrong(5, "process", process, "a number"))?;
        let (first, plus, count) = (next(), next(), next());
        let (lba, sectors) = if plus == "+" {
            let lba = number(first, 1 << 55).ok_or_else(|| wrong(8, "sector", first, "a sector's number"))?;
            (lba, number(count, 1 << 32).ok_or_else(|| wrong(10, "sectors", count, "a number of sectors"))?)
        } else {
            (0, 0)
        };
        // Without a range it is a flush, even if the kernel queued it as another operation (FWS), or a command.
        let (op, lba) = match said.op {
            Some(op) if sectors > 0 => (op, lba),
            Some(Op::Discard) => {
                sink.skip();
                return Ok(());
            }
            _ if sectors == 0 && said.preflush => (Op::Flush, 0),
            _ => {
                sink.skip();
                return Ok(());
            }
        };
        let Letters { fua, preflush, .. } = said;
        let fua = fua && op != Op::Flush;
        sink.event(Event { kind, at_ns, volume, op, fua, preflush, lba, sectors, issuer: issuer as u32 }, records)
    }
}

/// Writes the events of each request beside each other: sorting by time is blkparse's.
#[derive(Debug, Default)]
pub(super) struct BlkparseEncoder {
    sequence: u64,
}

/// The letters of blktrace for an operation; `None` if it has none.
pub(super) fn letters_of(record: &RequestRecord) -> Option<String> {
    let letter = match record.op {
        Op::Read => "R",
        Op::Write => "W",
        Op::Discard => "D",
        Op::Flush => return Some("FN".to_owned()),
        _ => return None,
    };
    Some(if record.fua { format!("{letter}F") } else { letter.to_owned() })
}

impl Encoder for BlkparseEncoder {
    fn record(&mut self, record: &RequestRecord, info: &TraceInfo, out: &mut Vec<u8>) -> bool {
        let Some(letters) = letters_of(record) else { return false };
        let volume = volume_of(record, info);
        let device = match volume.split_once(',') {
            Some((major, minor)) => format!("{major:>3},{minor:<3}"),
            None => format!("259,{:<3}", record.device),
        };
        // The same events as from the kernel: tools that read traces need more than the issue.
        let mut events: Vec<(&str, u64)> =
            ["Q", "G", "I", "D"].map(|action| (action, record.arrival.as_nanos())).into();
        if record.is_completed() {
            events.push(("C", record.completed.as_nanos()));
        }
        for (action, ns) in events {
            self.sequence += 1;
            let (seconds, nanos, process) = (ns / 1_000_000_000, ns % 1_000_000_000, record.issuer);
            let _ = write!(out, "{device} {:>2} {:>8} ", 0, self.sequence);
            let _ = write!(out, "{seconds:>5}.{nanos:09} {process:>5} {action:>2} {letters:>3} ");
            let range = match record.op {
                Op::Flush => String::new(),
                _ => format!("{} + {} ", record.lba, record.sectors),
            };
            let _ = writeln!(out, "{range}[{}]", if action == "C" { "0" } else { "chronodisk" });
        }
        true
    }
}
