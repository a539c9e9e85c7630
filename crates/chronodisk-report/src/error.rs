//! Errors of files.

use std::io;
use std::path::PathBuf;

use chronodisk_sim::{OverLimit, TextError};

/// A result or a log that can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted action: "read", "write", ...
        action: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
    /// Not JSON, or not of the expected form.
    #[error("{}: {message}", .path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The problem, with line and column.
        message: String,
    },
    /// Another kind of file, or one of another version.
    #[error("{}: schema is {}; expected '{expected}'", .path.display(), .found.as_ref().map_or("missing".into(), |found| format!("'{found}'")))]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema that it names.
        found: Option<String>,
        /// The schema that this version reads.
        expected: &'static str,
    },
    /// Not a Parquet file, or a damaged one.
    #[error("{}: not a readable Parquet file: {message}", .path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The problem.
        message: String,
    },
    /// A column is missing, or has the wrong type or a value that can't be.
    #[error("{}: column '{column}'{}: {message}", .path.display(), .row.map_or(String::new(), |row| format!(", row {row}")))]
    Column {
        /// The file.
        path: PathBuf,
        /// Name of the column.
        column: &'static str,
        /// Row, counted from 0, if it is about one.
        row: Option<u64>,
        /// The value found and the value expected.
        message: String,
    },
    /// More than the memory that may be used for it.
    #[error("{}: {over}", .path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// Needed memory, and the limit.
        over: OverLimit,
    },
    /// A text that is too long, or none.
    #[error("{}: {error}", .path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The problem.
        error: TextError,
    },
    /// A plot could not be drawn.
    #[error("{}: cannot draw: {message}", .path.display())]
    Plot {
        /// The file.
        path: PathBuf,
        /// The problem.
        message: String,
    },
}
