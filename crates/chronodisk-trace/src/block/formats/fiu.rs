//! Florida International University's traces of I/O deduplication.
//!
//! As the README of the distribution says (SNIA IOTTA 411): time stamp in nanoseconds, process, its name, first block
//! and blocks of 512 bytes, `W` or `R`, major and minor number of the device, MD5 of each 4 KiB (in some, of each
//! block). The sums are passed over.

use chronodisk_sim::{Op, RequestRecord};

use super::super::line::{At, Problem, Said, number, wrong};
use super::super::sink::Sink;
use super::LineDecoder;

#[derive(Debug)]
pub(super) struct Fiu;

impl LineDecoder for Fiu {
    fn line(&mut self, line: &str, sink: &mut Sink, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // A process's name may contain blanks, so the fields after it are counted from the letter.
        let letter = (5..fields.len().saturating_sub(2)).find(|&at| {
            let is_op = |text: &str| text.eq_ignore_ascii_case("r") || text.eq_ignore_ascii_case("w");
            let is_number = |text: &str| number(text, u64::MAX).is_some();
            is_op(fields[at]) && [at - 2, at - 1, at + 1, at + 2].iter().all(|&at| is_number(fields[at]))
        });
        let expected = "time stamp, process, name, block, blocks, W or R, major and minor number, MD5";
        let letter = letter.ok_or_else(|| format!("expected {expected}"))?;
        let nanos = number(fields[0], u64::MAX).ok_or_else(|| wrong(1, "time stamp", fields[0], "nanoseconds"))?;
        let process =
            number(fields[1], u64::from(u32::MAX)).ok_or_else(|| wrong(2, "process", fields[1], "a number"))?;
        let blocks = |at: usize| number(fields[at], u64::MAX / 512).unwrap_or(u64::MAX / 512) * 512;
        let said = Said {
            at: At::Relative { ns: nanos },
            op: if fields[letter].eq_ignore_ascii_case("r") { Op::Read } else { Op::Write },
            fua: false,
            offset_bytes: blocks(letter - 2),
            len_bytes: blocks(letter - 1),
            volume: &format!("{},{}", fields[letter + 1], fields[letter + 2]),
            issuer: process as u32,
            response_ns: None,
        };
        sink.add(said, records)
    }
}
