//! Traces of measured disks: a real drive's response time for each request.
//!
//! One request per line, six fields with blanks between them:
//!
//! ```text
//! R Hit 1975456 4 15362.0 56074.0
//! ```
//!
//! reads (`R`, or writes: `W`) 4 sectors of 512 bytes from sector 1975456 on; the tracer's class of the request (`Hit`,
//! `Miss`, or `Doub` and `Trip` for writes with two and three disconnections from the bus); the drive's response took
//! 15,362 µs; the next request was issued 56,074 µs after it. This is the format of the validation traces of the
//! DiskSim distribution. Blank lines are ignored.

use std::fmt;
use std::io::BufRead;

use chronodisk_sim::{Lba, Nanos, Op};

/// A request as a real drive served it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredRequest {
    /// Read or write.
    pub op: Op,
    /// The tracer's class.
    pub class: MeasuredClass,
    /// First sector.
    pub lba: Lba,
    /// Length in sectors, at least one.
    pub sectors: u32,
    /// The drive's response time.
    pub response: Nanos,
    /// Pause between its completion and the issue of the next request.
    pub think_after: Nanos,
}

/// A tracer's classification of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredClass {
    /// Served from the buffer; automatic tracers also write it for every request.
    Hit,
    /// Served from the medium.
    Miss,
    /// A write with two disconnections.
    Double,
    /// A write with three disconnections.
    Triple,
}

/// An error in a trace, with its place.
#[derive(Debug)]
pub struct TraceError {
    /// The file as the user named it.
    pub file: String,
    /// Line, counted from 1; zero if no line could be read.
    pub line: u64,
    /// The problem, and the value expected.
    pub problem: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.problem),
            line => write!(f, "{}:{line}: {}", self.file, self.problem),
        }
    }
}

impl std::error::Error for TraceError {}

/// Longest line in bytes.
pub const MEASURED_LINE_BYTES_MAX: usize = 1_024;
/// Most requests of a trace.
pub const MEASURED_REQUESTS_MAX: usize = 50_000_000;
/// Longest request in sectors: 1 GiB.
const MAX_SECTORS: u64 = 1 << 21;
/// Longest time of a field in microseconds: a day.
const MAX_MICROS: u64 = 86_400_000_000;

/// Reads all requests of a trace; errors name it as `file`.
///
/// # Errors
/// The first wrong line, with the field and the value expected; a trace without requests.
pub fn read_measured(mut trace: impl BufRead, file: &str) -> Result<Vec<MeasuredRequest>, TraceError> {
    let failed = |line: u64, problem: String| TraceError { file: file.to_owned(), line, problem };
    let mut requests = Vec::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let mut limited = std::io::Read::take(&mut trace, MEASURED_LINE_BYTES_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut bytes);
        if read.map_err(|error| failed(0, format!("can't read the trace: {error}")))? == 0 {
            break;
        }
        if bytes.len() > MEASURED_LINE_BYTES_MAX {
            return Err(failed(
                line,
                format!("a line of more than {MEASURED_LINE_BYTES_MAX} bytes; expected six fields"),
            ));
        }
        let Ok(text) = std::str::from_utf8(&bytes) else {
            return Err(failed(line, "no text in UTF-8; expected six fields".to_owned()));
        };
        if text.trim().is_empty() {
            continue;
        }
        if requests.len() >= MEASURED_REQUESTS_MAX {
            return Err(failed(line, format!("more than {MEASURED_REQUESTS_MAX} requests")));
        }
        requests.push(parse_line(text).map_err(|problem| failed(line, problem))?);
    }
    if requests.is_empty() {
        return Err(failed(0, "no requests; expected lines such as `R Hit 1975456 4 15362.0 56074.0`".to_owned()));
    }
    Ok(requests)
}

fn parse_line(line: &str) -> Result<MeasuredRequest, String> {
    let fields: Vec<&str> = line.split_whitespace().take(7).collect();
    let [op, class, lba, sectors, response, think] = fields.as_slice() else {
        return Err(format!(
            "{} fields; expected six: R or W, class, first sector, sectors, response in µs, pause in µs",
            if fields.len() > 6 { "more than six".to_owned() } else { fields.len().to_string() }
        ));
    };
    let op = match *op {
        "R" => Op::Read,
        "W" => Op::Write,
        other => return Err(format!("field 1, operation: \"{}\"; expected R or W", shown(other))),
    };
    let class = match *class {
        "Hit" => MeasuredClass::Hit,
        "Miss" => MeasuredClass::Miss,
        "Doub" => MeasuredClass::Double,
        "Trip" => MeasuredClass::Triple,
        other => return Err(format!("field 2, class: \"{}\"; expected Hit, Miss, Doub or Trip", shown(other))),
    };
    // Below the largest sector of any device, so that no sum overflows.
    let lba = whole(lba, "field 3, first sector", 0, 1 << 55)?;
    let sectors = whole(sectors, "field 4, sectors", 1, MAX_SECTORS)?;
    let response = micros(response, "field 5, response")?;
    let think_after = micros(think, "field 6, pause")?;
    Ok(MeasuredRequest { op, class, lba: Lba(lba), sectors: sectors as u32, response, think_after })
}

fn whole(text: &str, field: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{field}: \"{}\"; expected a whole number from {least} to {most}", shown(text)))
}

/// A decimal number of microseconds to the nearest nanosecond.
fn micros(text: &str, field: &str) -> Result<Nanos, String> {
    let wrong = || format!("{field}: \"{}\"; expected microseconds, not negative", shown(text));
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().ok().filter(|&whole| whole <= MAX_MICROS).ok_or_else(wrong)?;
    let decimals: String = decimals.chars().chain("0000".chars()).take(4).collect();
    let tenths: u64 = decimals.parse().map_err(|_| wrong())?;
    Ok(Nanos::from_nanos(whole * 1_000 + (tenths + 5) / 10))
}

/// At most a line's worth of a file's text, for messages.
fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<MeasuredRequest>, String> {
        read_measured(text.as_bytes(), "drive.trace").map_err(|error| error.to_string())
    }

    #[test]
    fn lines_become_requests() {
        let requests =
            read("R Hit 1975456 4 15362.0 56074.0\n\nW   Trip 1205090\t13 10133.390 19712.7706\r\n").unwrap();
        let first = MeasuredRequest {
            op: Op::Read,
            class: MeasuredClass::Hit,
            lba: Lba(1_975_456),
            sectors: 4,
            response: Nanos::from_micros(15_362),
            think_after: Nanos::from_micros(56_074),
        };
        assert_eq!(requests[0], first);
        assert_eq!((requests[1].op, requests[1].class), (Op::Write, MeasuredClass::Triple));
        assert_eq!(requests[1].response, Nanos::from_nanos(10_133_390));
        assert_eq!(requests[1].think_after, Nanos::from_nanos(19_712_771));
        assert_eq!(read("R Miss 0 1 7 0").unwrap()[0].response, Nanos::from_micros(7));
    }

    #[test]
    fn errors_name_line_field_and_what_was_expected() {
        for (text, expected) in [
            ("", "drive.trace: no requests; expected lines such as"),
            ("R Hit 0 1 1.0 1.0\nX Hit 0 1 1.0 1.0", "drive.trace:2: field 1, operation: \"X\"; expected R or W"),
            ("R Hut 0 1 1.0 1.0", "drive.trace:1: field 2, class: \"Hut\"; expected Hit, Miss, Doub or Trip"),
            ("R Hit -1 1 1.0 1.0", "field 3, first sector: \"-1\"; expected a whole number"),
            ("R Hit 0 0 1.0 1.0", "field 4, sectors: \"0\"; expected a whole number from 1 to 2097152"),
            ("R Hit 0 1 1e3 1.0", "field 5, response: \"1e3\"; expected microseconds"),
            ("R Hit 0 1 -1.0 1.0", "field 5, response: \"-1.0\"; expected microseconds"),
            ("R Hit 0 1 1.0 99999999999999999999", "field 6, pause"),
            ("R Hit 0 1 1.0", "drive.trace:1: 5 fields; expected six"),
            ("R Hit 0 1 1.0 1.0 1.0", "drive.trace:1: more than six fields; expected six"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(read(&"x".repeat(5_000)).unwrap_err().contains("a line of more than 1024 bytes"));
        let bytes = read_measured(&b"R Hit \xff"[..], "drive.trace").unwrap_err();
        assert!(bytes.to_string().contains("no text in UTF-8"), "{bytes}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(prop_oneof![Just(b' '), Just(b'\n'), any::<u8>()], 0..200),
        ) {
            if let Err(error) = read_measured(bytes.as_slice(), "x") {
                prop_assert!(error.line as usize <= bytes.iter().filter(|&&byte| byte == b'\n').count() + 1);
            }
        }
    }
}
