//! Errors in the input of a fit, with their places.

use std::fmt;

/// A failure of a fit; `Display` is one line, without the advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FitError {
    /// The file as the user named it; empty if the error concerns no file.
    pub file: String,
    /// Line, counted from 1.
    pub line: Option<u64>,
    /// Name of the column or of the key.
    pub field: Option<String>,
    /// The problem, and the value expected.
    pub message: String,
    /// Advice.
    pub help: Option<String>,
}

impl FitError {
    /// About no file.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        FitError { file: String::new(), line: None, field: None, message: message.into(), help: None }
    }

    /// In this file.
    #[must_use]
    pub fn in_file(self, file: &str) -> Self {
        FitError { file: file.to_owned(), ..self }
    }

    /// Adds the number of the line.
    #[must_use]
    pub fn at_line(self, line: u64) -> Self {
        FitError { line: Some(line), ..self }
    }

    /// In this column or key.
    #[must_use]
    pub fn in_field(self, field: &str) -> Self {
        FitError { field: Some(field.to_owned()), ..self }
    }

    /// Adds advice.
    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Self {
        FitError { help: Some(help.into()), ..self }
    }
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            f.write_str(" ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "`{field}`: ")?;
        }
        f.write_str(&self.message)
    }
}
