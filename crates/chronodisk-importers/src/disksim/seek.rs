//! Files of extracted seek curves: `Seek distances measured: N`, then `distance, milliseconds[, deviation]` a line.

use chronodisk_device::ProfileError;
use chronodisk_device::disk::{Picos, SeekPoint, limits};

use super::lexer::{MAX_FILE_BYTES, SourceFile};
use super::reader::decimal;

/// Most decimals of a millisecond that a picosecond has.
const MILLISECOND_DECIMALS: u32 = 9;

/// Content of a seek file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeekFile {
    /// Ascending, at least one.
    pub points: Vec<SeekPoint>,
    /// Number of points according to its first line.
    pub announced: usize,
}

/// Parses the curve in `file`.
///
/// # Errors
/// The first wrong line, and the value expected.
pub fn parse_seek_curve(file: &SourceFile) -> Result<SeekFile, ProfileError> {
    let wrong = |line: usize, message: String| ProfileError {
        file: file.label.clone(),
        line: u32::try_from(line + 1).ok(),
        column: Some(1),
        message,
        help: None,
    };
    if file.text.len() > MAX_FILE_BYTES {
        return Err(wrong(0, "the seek curve is too long".to_owned()));
    }
    let mut lines = file.text.lines().enumerate();
    let announced = lines.next().and_then(|(_, first)| first.strip_prefix("Seek distances measured:"));
    let Some(announced) = announced.and_then(|count| count.trim().parse::<usize>().ok()) else {
        return Err(wrong(0, "expected `Seek distances measured: ` and a number".to_owned()));
    };
    let mut points: Vec<SeekPoint> = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let mut fields = line.split(',').map(str::trim);
        let cylinders = fields.next().and_then(|field| field.parse::<u32>().ok());
        let time = fields.next().and_then(|field| decimal(field, MILLISECOND_DECIMALS));
        let deviation = fields.next().map(|field| decimal(field, MILLISECOND_DECIMALS));
        let (Some(cylinders), Some(time), None, true) = (cylinders, time, fields.next(), deviation != Some(None))
        else {
            return Err(wrong(index, "expected a distance in cylinders, a comma and milliseconds".to_owned()));
        };
        if points.last().map_or(cylinders == 0, |last| cylinders <= last.cylinders) || cylinders > limits::CYLINDERS {
            return Err(wrong(index, format!("{cylinders} cylinders; expected ascending distances from 1 on")));
        }
        if !(0..=limits::TIME_PICOS).contains(&time) {
            return Err(wrong(index, "expected a seek of 0 ms to ten seconds".to_owned()));
        }
        if points.len() >= limits::SEEK_POINTS {
            return Err(wrong(index, format!("expected at most {} distances", limits::SEEK_POINTS)));
        }
        points.push(SeekPoint { cylinders, time: Picos(time) });
    }
    if points.is_empty() {
        return Err(wrong(0, "no distance follows; expected at least one".to_owned()));
    }
    Ok(SeekFile { points, announced })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SeekFile, String> {
        parse_seek_curve(&SourceFile { label: "a.seek".to_owned(), text: text.to_owned() })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn distances_and_times_are_read() {
        let file = parse("Seek distances measured: 2\n1,\t0.83100\n30, 1.014396800, 0.02\n\n").unwrap();
        let expected = [(1, 831_000_000), (30, 1_014_396_800)];
        assert_eq!(file.announced, 2);
        assert_eq!(file.points, expected.map(|(cylinders, time)| SeekPoint { cylinders, time: Picos(time) }));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            ("", "a.seek:1:1: expected `Seek distances measured: `"),
            ("Seek distances measured: x\n", "a.seek:1:1: expected `Seek"),
            ("Seek distances measured: 2\n", "a.seek:1:1: no distance follows"),
            ("Seek distances measured: 1\n1 2\n", "a.seek:2:1: expected a distance"),
            ("Seek distances measured: 1\n1, x\n", "a.seek:2:1: expected a distance"),
            ("Seek distances measured: 1\n1, 2, x\n", "a.seek:2:1: expected a distance"),
            ("Seek distances measured: 1\n1, 2, 3, 4\n", "a.seek:2:1: expected a distance"),
            ("Seek distances measured: 2\n2, 2\n2, 3\n", "a.seek:3:1: 2 cylinders; expected ascending"),
            ("Seek distances measured: 1\n0, 2\n", "a.seek:2:1: 0 cylinders; expected ascending"),
            ("Seek distances measured: 1\n1, -2\n", "a.seek:2:1: expected a seek of 0 ms"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
