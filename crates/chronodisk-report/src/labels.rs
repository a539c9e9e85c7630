//! A user's labels of a run.

use serde::{Deserialize, Serialize};

/// A run's name, tags and note, as the user gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    /// Name; several runs may share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tags, by which runs are grouped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Labels {
    /// Whether the user gave none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Labels::default()
    }
}
