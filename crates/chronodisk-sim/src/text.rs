//! Text files of bounded length: one table of limits, and the one function that reads such a file.
//!
//! A file may come from anywhere, and need not be a regular file: a pipe or a device without an end is read as far as
//! the limit of its kind, and refused.

use std::fmt;
use std::io::{self, Read};

/// A kind of text file that is read as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFile {
    /// A profile of a device.
    Profile,
    /// Another simulator's description of a device, such as a parameter file of DiskSim.
    DeviceDescription,
    /// A job file of fio.
    FioJob,
    /// The description of a sweep.
    Sweep,
    /// The result of a run or of a simulation, and the device of a simulation.
    Result,
    /// Results and provenance of a sweep.
    SweepResults,
    /// Results of fio, or a table of measurements, for `fit`.
    Measurements,
    /// A histogram of delays.
    Histogram,
    /// Costs of a machine, from `calibrate`.
    Calibration,
    /// The token of an emulator server.
    Token,
    /// Certificates and keys in PEM.
    Certificates,
}

impl TextFile {
    /// All kinds of text files.
    pub const ALL: [TextFile; 11] = [
        TextFile::Profile,
        TextFile::DeviceDescription,
        TextFile::FioJob,
        TextFile::Sweep,
        TextFile::Result,
        TextFile::SweepResults,
        TextFile::Measurements,
        TextFile::Histogram,
        TextFile::Calibration,
        TextFile::Token,
        TextFile::Certificates,
    ];

    /// The name in messages and in the reference.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TextFile::Profile => "a profile",
            TextFile::DeviceDescription => "a file of another simulator",
            TextFile::FioJob => "a job file of fio",
            TextFile::Sweep => "the description of a sweep",
            TextFile::Result => "the result of a run or a simulation",
            TextFile::SweepResults => "the results of a sweep",
            TextFile::Measurements => "a file of measurements",
            TextFile::Histogram => "a histogram of delays",
            TextFile::Calibration => "a calibration",
            TextFile::Token => "a token",
            TextFile::Certificates => "certificates or a key",
        }
    }

    /// The longest file of this kind that is read.
    #[must_use]
    pub const fn limit_bytes(self) -> u64 {
        const MIB: u64 = 1 << 20;
        match self {
            TextFile::Profile
            | TextFile::FioJob
            | TextFile::Sweep
            | TextFile::Histogram
            | TextFile::Calibration
            | TextFile::Certificates => MIB,
            TextFile::DeviceDescription => 4 * MIB,
            // A value of JSON takes up to 16 times its text in memory.
            TextFile::Result | TextFile::Measurements => 32 * MIB,
            TextFile::SweepResults => 64 * MIB,
            TextFile::Token => 4 << 10,
        }
    }

    /// Reads a whole text in UTF-8.
    ///
    /// # Errors
    /// If it can't be read, is longer than the limit, or is not in UTF-8.
    pub fn read(self, bytes: impl Read) -> Result<String, TextError> {
        let bytes = self.read_bytes(bytes)?;
        String::from_utf8(bytes).map_err(|error| TextError::Encoding { at: error.utf8_error().valid_up_to() })
    }

    /// Reads a whole text in any encoding.
    ///
    /// # Errors
    /// If it can't be read, or is longer than the limit.
    pub fn read_bytes(self, bytes: impl Read) -> Result<Vec<u8>, TextError> {
        let mut read = Vec::new();
        bytes.take(self.limit_bytes() + 1).read_to_end(&mut read).map_err(TextError::Unreadable)?;
        match read.len() as u64 > self.limit_bytes() {
            true => Err(TextError::TooLong { file: self }),
            false => Ok(read),
        }
    }
}

/// Error of reading a text.
#[derive(Debug)]
pub enum TextError {
    /// The operating system refuses.
    Unreadable(io::Error),
    /// The file is longer than its kind may be.
    TooLong {
        /// The kind.
        file: TextFile,
    },
    /// The bytes are not in UTF-8.
    Encoding {
        /// Offset of the first invalid byte.
        at: usize,
    },
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::Unreadable(error) => error.fmt(f),
            TextError::TooLong { file } => {
                let (limit, unit) = match file.limit_bytes() {
                    limit if limit < 1 << 20 => (limit >> 10, "KiB"),
                    limit => (limit >> 20, "MiB"),
                };
                write!(f, "the file is longer than {limit} {unit}, the limit of {}", file.name())
            }
            TextError::Encoding { at } => write!(f, "not a text in UTF-8 (byte {at})"),
        }
    }
}

impl std::error::Error for TextError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TextError::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_at_the_limit_is_read_and_a_longer_one_is_refused() {
        for file in TextFile::ALL {
            let limit = file.limit_bytes();
            assert_eq!(file.read(io::repeat(b'x').take(limit)).unwrap().len() as u64, limit);
            for longer in [limit + 1, u64::MAX] {
                let error = file.read(io::repeat(b'x').take(longer)).unwrap_err().to_string();
                assert!(error.contains(file.name()), "{error}");
            }
        }
        assert_eq!(TextFile::Profile.read(&b"a\xff"[..]).unwrap_err().to_string(), "not a text in UTF-8 (byte 1)");
    }
}
