//! Sweeps as comma-separated values with a header.
//!
//! | column | is | needed |
//! |---|---|---|
//! | `set` | the sweep's name, which may tell operation, pattern and zones | or `workload` |
//! | `workload`, `rw` | `randread`, `randwrite`, `randrw`, `read`, `write`, or a workload of `simulate` | or `set` |
//! | `read_share` | share of reads of a mixture, 0 to 1 | |
//! | `bs`, `block_size` | size of a request: `4096`, `4096bs`, `4KiB` | yes |
//! | `qd`, `depth`, `iodepth` | requests outstanding | yes |
//! | `zones` | zones that it went to: `1`, `1zone` | |
//! | `iops` | requests per second | or `mean_us` |
//! | `mean_us`, `p50_us`, `p99_us`, `p999_us` | latency in microseconds | or `iops` |
//! | `MBps`, `p95_us` and others that end in `_us` | not used | |
//!
//! A column takes precedence over the set's name. An empty cell counts as absent.

use chronodisk_device::parse_capacity;

use super::{Access, MAX_DEPTH, MAX_POINTS, Measured, Override, Point, PointRegion, overridden, understand};
use crate::FitError;

/// Synonyms of columns, with the name used here.
const SYNONYMS: [(&str, &str); 7] = [
    ("rw", "workload"),
    ("block_size", "bs"),
    ("depth", "qd"),
    ("iodepth", "qd"),
    ("mbps", "mb_per_s"),
    ("operation", "workload"),
    ("name", "set"),
];

/// Columns that are read, and one that is known but not used.
const COLUMNS: [&str; 12] = [
    "set",
    "workload",
    "read_share",
    "bs",
    "qd",
    "zones",
    "iops",
    "mean_us",
    "p50_us",
    "p99_us",
    "p999_us",
    "mb_per_s",
];

/// Reads comma-separated values.
///
/// # Errors
/// The first fault, with its line and column.
pub fn read_csv(text: &str, file: &str, overrides: &[Override]) -> Result<Vec<Point>, FitError> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let broken = |error: csv::Error| {
        let line = error.position().map_or(1, csv::Position::line);
        FitError::new(format!("not a row of values: {}", describe(&error))).in_file(file).at_line(line)
    };
    let header: Vec<String> = reader.headers().map_err(broken)?.iter().map(known_name).collect();
    check_header(&header).map_err(|error| error.in_file(file).at_line(1))?;
    let mut points = Vec::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        let line = record.position().map_or(0, csv::Position::line);
        if points.len() == MAX_POINTS {
            return Err(FitError::new(format!("more than {MAX_POINTS} points")).in_file(file).at_line(line));
        }
        let row = Row { header: &header, record: &record };
        points.push(row.point(file, line, overrides).map_err(|error| error.in_file(file).at_line(line))?);
    }
    Ok(points)
}

fn describe(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} values; expected {expected_len}, as in the header")
        }
        csv::ErrorKind::Utf8 { .. } => "not a text in UTF-8".to_owned(),
        _ => error.to_string(),
    }
}

fn known_name(name: &str) -> String {
    let lower = name.trim_start_matches('\u{feff}').to_lowercase();
    SYNONYMS.iter().find(|entry| entry.0 == lower).map_or(lower, |entry| entry.1.to_owned())
}

fn check_header(header: &[String]) -> Result<(), FitError> {
    for (index, name) in header.iter().enumerate() {
        if header[..index].contains(name) {
            return Err(FitError::new("this column is there twice").in_field(name));
        }
        if !COLUMNS.contains(&name.as_str()) && !name.ends_with("_us") {
            let known = format!("the columns are {}; others may end in _us", COLUMNS.join(", "));
            return Err(FitError::new("unknown column").in_field(name).with_help(known));
        }
    }
    let has = |name: &str| header.iter().any(|column| column == name);
    for (one, other) in [("set", "workload"), ("bs", "bs"), ("qd", "qd"), ("mean_us", "iops")] {
        if !has(one) && !has(other) {
            let column = if one == other { one.to_owned() } else { format!("{one}` or `{other}") };
            return Err(FitError::new(format!("the header has no column `{column}`")));
        }
    }
    Ok(())
}

/// A record, with its header.
struct Row<'a> {
    header: &'a [String],
    record: &'a csv::StringRecord,
}

impl Row<'_> {
    /// The value in a column; `None` if it is absent or empty.
    fn get(&self, column: &str) -> Option<&str> {
        let index = self.header.iter().position(|name| name == column)?;
        self.record.get(index).filter(|value| !value.is_empty())
    }

    fn point(&self, file: &str, line: u64, overrides: &[Override]) -> Result<Point, FitError> {
        let name = self.get("set").or(self.get("workload")).unwrap_or_default();
        let set: String = name.chars().take(200).collect();
        let understood = understand(&set);
        let access = match (overridden(overrides, &set), self.get("workload")) {
            (Some(access), _) => access,
            (None, Some(workload)) => self.access(workload)?,
            (None, None) => understood.as_ref().map(|understood| understood.access).map_err(|problem| {
                FitError::new(format!("{problem}; expected a name such as \"drive X 4K randread\""))
                    .in_field("set")
                    .with_help("add a column `workload`, or --workload 'SET=random-read'")
            })?,
        };
        let zones = match self.get("zones") {
            Some(text) => Some(self.whole("zones", text, "zone", 1 << 20)? as u32),
            None => understood.ok().and_then(|understood| understood.zones),
        };
        Ok(Point {
            file: file.to_owned(),
            line,
            set,
            access,
            only: None,
            block_bytes: self.size()?,
            depth: self.whole("qd", self.get("qd").unwrap_or_default(), "", MAX_DEPTH)? as u32,
            zones,
            region: PointRegion::WHOLE,
            requests: None,
            measured: Measured {
                iops: self.positive("iops")?,
                mean_us: self.positive("mean_us")?,
                p50_us: self.positive("p50_us")?,
                p99_us: self.positive("p99_us")?,
                p999_us: self.positive("p999_us")?,
            },
        })
    }

    fn access(&self, workload: &str) -> Result<Access, FitError> {
        let mut access = named_access(workload).map_err(|problem| FitError::new(problem).in_field("workload"))?;
        if let Some(text) = self.get("read_share") {
            let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
            let expected = || FitError::new(format!("\"{text}\"; expected a number from 0 to 1"));
            access.read_share = share.ok_or_else(|| expected().in_field("read_share"))?;
        }
        Ok(access)
    }

    fn size(&self) -> Result<u64, FitError> {
        let text = self.get("bs").unwrap_or_default();
        let bare = text.strip_suffix("bs").unwrap_or(text);
        let size = bare.parse::<u64>().or_else(|_| parse_capacity(bare));
        size.map_err(|_| FitError::new(format!("\"{text}\"; expected a size such as 4096 or 4KiB")).in_field("bs"))
    }

    /// A whole number from one to `most`, optionally followed by `word`.
    fn whole(&self, column: &str, text: &str, word: &str, most: u64) -> Result<u64, FitError> {
        let singular =
            if word.is_empty() { text } else { text.trim_end_matches('s').trim_end_matches(word).trim_end() };
        let number = singular.parse::<u64>().ok().filter(|number| (1..=most).contains(number));
        let expected = || FitError::new(format!("\"{text}\"; expected a whole number from 1 to {most}"));
        number.ok_or_else(|| expected().in_field(column))
    }

    fn positive(&self, column: &str) -> Result<Option<f64>, FitError> {
        let Some(text) = self.get(column) else { return Ok(None) };
        let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number < 1e15);
        let expected = || FitError::new(format!("\"{text}\"; expected a number above 0"));
        number.map(Some).ok_or_else(|| expected().in_field(column))
    }
}

/// The access with one of fio's names or of this program's workload names.
pub(super) fn named_access(name: &str) -> Result<Access, String> {
    let (read_share, random) = match name.to_lowercase().as_str() {
        "randread" | "random-read" => (1.0, true),
        "randwrite" | "random-write" => (0.0, true),
        "randrw" | "random-mixed" => (0.7, true),
        "read" | "seq-read" => (1.0, false),
        "write" | "seq-write" => (0.0, false),
        _ => {
            let words = "randread, randwrite, randrw, read, write, or a workload of `chronodisk simulate`";
            let shown: String = name.chars().take(40).collect();
            return Err(format!("\"{shown}\"; expected one of {words}"));
        }
    };
    Ok(Access { read_share, random })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_sweep;

    const HEADER: &str = "set,bs,zones,qd,iops,MBps,mean_us,p50_us,p95_us,p99_us,p999_us\n";

    fn read(text: &str) -> Result<Vec<Point>, FitError> {
        read_sweep(text, "a.csv", &[])
    }

    #[test]
    fn a_sweep_as_it_was_published() {
        let text = format!(
            "{HEADER}\"zns-a SPDK 4K randread, 1 zone\",4096bs,1zone,16,174321,714,91.3,81.4,148.5,195.6,261.1\n\
             nvme-a 4K randwrite (preconditioned),4KiB,,1,102373,419,9.3,9.0,10.3,13.4,\n"
        );
        let points = read(&text).unwrap();
        assert_eq!(points.len(), 2);
        let (first, second) = (&points[0], &points[1]);
        assert_eq!((first.block_bytes, first.depth, first.zones, first.line), (4_096, 16, Some(1), 2));
        assert_eq!((first.measured.p99_us, first.measured.p999_us), (Some(195.6), Some(261.1)));
        assert_eq!(first.access, Access { read_share: 1.0, random: true });
        assert_eq!(second.access, Access { read_share: 0.0, random: true });
        assert_eq!((second.zones, second.measured.p999_us), (None, None));
        // 16 outstanding at 174,321 requests per second: a cycle of 91.785 µs, 91.3 µs of it in the drive.
        assert!((first.host_us() - 0.485).abs() < 0.001, "{}", first.host_us());
    }

    #[test]
    fn requests_per_second_alone_give_the_mean() {
        let points = read("workload,bs,qd,iops\nread,131072,4,20000\n").unwrap();
        assert_eq!((points[0].mean_us(), points[0].host_us()), (Some(200.0), 0.0));
        assert_eq!(points[0].set, "read");
    }

    #[test]
    fn columns_go_before_names_and_flags_before_columns() {
        let text = "set,workload,read_share,bs,qd,mean_us\nx randread,randrw,0.5,4k,1,80\n";
        assert_eq!(read(text).unwrap()[0].access, Access { read_share: 0.5, random: true });
        let access = Access { read_share: 0.0, random: false };
        let overrides = [Override { set: "x rand".to_owned(), access }];
        assert_eq!(read_sweep(text, "a.csv", &overrides).unwrap()[0].access, access);
    }

    #[test]
    fn mistakes_are_told_with_line_and_column() {
        let row = "\"d randread\",4096,1,1,100,0,10,10,10,10,10\n";
        for (text, expected) in [
            (format!("{HEADER}{row}d randread,4096,1,many,100,0,10,10,10,10,10\n"), "a.csv:3: `qd`: \"many\""),
            (format!("{HEADER}{row}d randread,4096,1,0,100,0,10,10,10,10,10\n"), "a.csv:3: `qd`: \"0\""),
            (format!("{HEADER}d randread,40 fortnights,1,1,1,0,1,1,1,1,1\n"), "a.csv:2: `bs`: \"40 fortnights\""),
            (format!("{HEADER}d randread,1000,1,1,1,0,1,1,1,1,1\n"), "a.csv:2: `bs`: 1000 bytes"),
            (format!("{HEADER}d randread,4096,1,1,100,0,-3,10,10,10,10\n"), "a.csv:2: `mean_us`: \"-3\""),
            (format!("{HEADER}d randread,4096,1,1,100,0,NaN,10,10,10,10\n"), "a.csv:2: `mean_us`: \"NaN\""),
            (format!("{HEADER}d randread,4096,1,1,,0,,10,10,10,10\n"), "a.csv:2: `mean_us`: neither"),
            (format!("{HEADER}{row}d randread,4096,1\n"), "a.csv:3: not a row of values: 3 values; expected 11"),
            (format!("{HEADER}what,4096,1,1,100,0,10,10,10,10,10\n"), "a.csv:2: `set`: \"what\" names neither"),
            ("set,bs,qd\nx read,4096,1\n".to_owned(), "a.csv:1: the header has no column `mean_us` or `iops`"),
            ("set,bs,qd,iops,colour\n".to_owned(), "a.csv:1: `colour`: unknown column"),
            ("set,bs,qd,depth,iops\n".to_owned(), "a.csv:1: `qd`: this column is there twice"),
            (HEADER.to_owned(), "a.csv: no points"),
            (String::new(), "a.csv:1: the header has no column"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}\nexpected {expected}");
        }
    }
}
