//! How a model that is elsewhere can fail.

use std::fmt;

/// A model that is elsewhere is lost. Nothing more can be learnt from it, and the run must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who}: {what}")]
pub struct ModelFault {
    /// Kind of failure, to match on.
    pub kind: FaultKind,
    /// Which model.
    pub who: String,
    /// The failure, as a sentence without its subject.
    pub what: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// It can't be reached, or not any more.
    Unreachable,
    /// It is there, but does not know of this run: it was restarted.
    Restarted,
    /// It speaks another version of the protocol.
    Version,
    /// The model refuses its parameters.
    Refused,
    /// The program ended.
    Ended,
    /// It does not answer.
    Silent,
    /// An answer breaks the protocol or contradicts an earlier one.
    Nonsense,
}

impl ModelFault {
    pub(crate) fn new(kind: FaultKind, who: &str, what: impl fmt::Display) -> Self {
        ModelFault { kind, who: who.to_owned(), what: what.to_string() }
    }
}
