//! Failures of remote models.

use std::fmt;

/// A remote model is lost. No further completion can be known, and the run must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who}: {what}")]
pub struct ModelFault {
    /// Kind of failure, to match on.
    pub kind: FaultKind,
    /// Name of the model.
    pub who: String,
    /// The failure, as a sentence without its subject.
    pub what: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The model can't be reached (any more).
    Unreachable,
    /// The model is reachable, but was restarted and does not know this run.
    Restarted,
    /// The other side uses another version of the protocol.
    Version,
    /// The model refuses its parameters.
    Refused,
    /// The program ended.
    Ended,
    /// The model does not answer.
    Silent,
    /// An answer breaks the protocol or contradicts an earlier one.
    Nonsense,
}

impl ModelFault {
    pub(crate) fn new(kind: FaultKind, who: &str, what: impl fmt::Display) -> Self {
        ModelFault { kind, who: who.to_owned(), what: what.to_string() }
    }
}
