//! fio's I/O logs, after its documentation ("Trace file format") and the output of fio 3.33.
//!
//! Version 2: `FILE add|open|close` and `FILE ACTION OFFSET LENGTH`, actions `read`, `write`, `sync`, `datasync`,
//! `trim` and `wait`, whose offset is a pause in microseconds since the last `wait`. Version 3: each line begins with a
//! time stamp in microseconds since the beginning, and there is no `wait`. Offset and length are in bytes.
//!
//! The replay of `wait` by fio 3.33 differs from its documentation: it sleeps until that number of milliseconds has
//! passed since it began (`iolog.c`, `read_iolog_get`). Logs of version 3 keep their times in fio, those of version 2
//! do not.

use std::io::Write;

use chronodisk_sim::{Op, RequestRecord};

use super::super::TraceInfo;
use super::super::line::{At, Problem, Said, number, shown, wrong};
use super::super::sink::Sink;
use super::{Encoder, LineDecoder, volume_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

impl Version {
    fn head(self) -> &'static str {
        match self {
            Version::Two => "fio version 2 iolog",
            Version::Three => "fio version 3 iolog",
        }
    }
}

const MICRO_NS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct FioDecoder {
    version: Version,
    begun: bool,
    /// Version 2: the sum of all pauses so far.
    waited_us: u64,
}

impl FioDecoder {
    pub(super) fn v2() -> Self {
        FioDecoder { version: Version::Two, begun: false, waited_us: 0 }
    }

    pub(super) fn v3() -> Self {
        FioDecoder { version: Version::Three, ..FioDecoder::v2() }
    }
}

impl LineDecoder for FioDecoder {
    fn line(&mut self, line: &str, sink: &mut Sink, records: &mut Vec<RequestRecord>) -> Result<(), Problem> {
        if !self.begun {
            if line.trim() != self.version.head() {
                return Err(format!("\"{}\"; expected \"{}\"", shown(line), self.version.head()));
            }
            self.begun = true;
            return Ok(());
        }
        if line.trim() == self.version.head() {
            // fio appends to the file of an earlier run, and the times of both runs are unrelated.
            return Err(
                "a second log begins here; expected one log in a file (fio appends to what is there)".to_owned()
            );
        }
        let mut fields: Vec<&str> = line.split_whitespace().take(6).collect();
        let mut at_us = self.waited_us;
        let offset_of_fields = usize::from(self.version == Version::Three);
        if self.version == Version::Three {
            let stamp = if fields.is_empty() { "" } else { fields.remove(0) };
            let most = u64::MAX / MICRO_NS;
            at_us = number(stamp, most).ok_or_else(|| wrong(1, "time stamp", stamp, "microseconds"))?;
        }
        let (file, action, offset, len) = match fields[..] {
            [_, "add" | "open" | "close" | "unlink"] => {
                sink.skip();
                return Ok(());
            }
            [file, action, offset, len] => (file, action, offset, len),
            _ => return Err("expected a file, an action, an offset and a length".to_owned()),
        };
        let parse = |place: usize, name: &str, text: &str| {
            number(text, u64::MAX).ok_or_else(|| wrong(place + offset_of_fields, name, text, "bytes"))
        };
        let (offset_bytes, len_bytes) = (parse(3, "offset", offset)?, parse(4, "length", len)?);
        let op = match action {
            "read" => Op::Read,
            "write" => Op::Write,
            "sync" | "datasync" => Op::Flush,
            "trim" => Op::Discard,
            // It only starts to write a file's pages; the call itself needs nothing from the device.
            "sync_file_range" => {
                sink.skip();
                return Ok(());
            }
            "wait" if self.version == Version::Two => {
                let waited = self.waited_us.checked_add(offset_bytes).filter(|us| *us <= u64::MAX / MICRO_NS);
                self.waited_us = waited.ok_or_else(|| wrong(3, "pause", offset, "less than 500,000 years"))?;
                return Ok(());
            }
            other => {
                let expected = "read, write, sync, datasync or trim";
                return Err(wrong(2 + offset_of_fields, "action", other, expected));
            }
        };
        let said = Said {
            at: At::Relative { ns: at_us * MICRO_NS },
            op,
            fua: false,
            offset_bytes,
            len_bytes,
            volume: file,
            issuer: 0,
            response_ns: None,
        };
        sink.add(said, records)
    }
}

#[derive(Debug)]
pub(super) struct FioEncoder {
    version: Version,
    waited_us: u64,
    /// Files that are open: fio ends with a segmentation fault on a request to one that is not.
    open: Vec<String>,
}

impl FioEncoder {
    pub(super) fn v2() -> Self {
        FioEncoder { version: Version::Two, waited_us: 0, open: Vec::new() }
    }

    pub(super) fn v3() -> Self {
        FioEncoder { version: Version::Three, ..FioEncoder::v2() }
    }

    fn action(&self, at_us: u64, file: &str, action: &str, out: &mut Vec<u8>) {
        let _ = match self.version {
            Version::Two => writeln!(out, "{file} {action}"),
            Version::Three => writeln!(out, "{at_us} {file} {action}"),
        };
    }

    /// Files are known when they are used: a run's log names no volumes.
    fn open(&mut self, at_us: u64, file: &str, out: &mut Vec<u8>) {
        if self.open.iter().any(|open| open == file) {
            return;
        }
        self.action(at_us, file, "add", out);
        self.action(at_us, file, "open", out);
        self.open.push(file.to_owned());
    }
}

/// A file's name as one word.
fn word(name: &str) -> String {
    name.replace(char::is_whitespace, "_")
}

impl Encoder for FioEncoder {
    fn head(&mut self, _info: &TraceInfo, out: &mut Vec<u8>) {
        let _ = writeln!(out, "{}", self.version.head());
    }

    fn record(&mut self, record: &RequestRecord, info: &TraceInfo, out: &mut Vec<u8>) -> bool {
        let action = match record.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "sync",
            Op::Discard => "trim",
            _ => return false,
        };
        let volume = word(&volume_of(record, info));
        let at_us = record.arrival.as_nanos() / MICRO_NS;
        let (offset, len) = (record.lba.offset_bytes(), u64::from(record.sectors) * 512);
        self.open(at_us, &volume, out);
        if self.version == Version::Three {
            let _ = writeln!(out, "{at_us} {volume} {action} {offset} {len}");
            self.waited_us = at_us;
            return true;
        }
        if at_us > self.waited_us {
            let _ = writeln!(out, "{volume} wait {} 0", at_us - self.waited_us);
            self.waited_us = at_us;
        }
        let _ = writeln!(out, "{volume} {action} {offset} {len}");
        true
    }

    fn tail(&mut self, _info: &TraceInfo, out: &mut Vec<u8>) {
        for file in &self.open {
            self.action(self.waited_us, file, "close", out);
        }
    }
}
