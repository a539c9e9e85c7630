//! Failures as the terminal shows them.

use std::fmt;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

pub use chronodisk_run::{Failure, status};

/// Result of every command: the exit status, or the failure.
pub type Outcome = Result<u8, Failure>;

/// A failure as miette renders it: for a mistake in a file, with the line and a mark under the place.
#[derive(Debug)]
pub struct Rendered {
    failure: Failure,
    source: Option<NamedSource<String>>,
}

impl From<Failure> for Rendered {
    fn from(failure: Failure) -> Self {
        let source = failure.place().map(|place| NamedSource::new(&place.file, place.text.clone()));
        Rendered { failure, source }
    }
}

impl fmt::Display for Rendered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)
    }
}

impl std::error::Error for Rendered {}

impl Diagnostic for Rendered {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.failure.advice().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let place = self.failure.place()?;
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(Some(place.label.clone()), place.span.clone()))))
    }
}
