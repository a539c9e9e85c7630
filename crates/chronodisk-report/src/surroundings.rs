//! Influences on a guest's behaviour besides its options and its device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Equal surroundings, options and devices give equal nanoseconds on the exact clock, if the command does nothing else
/// that depends on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// Hash over the executable of the guest's kernel, with the name of the hash before a colon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_hash: Option<String>,
    /// Name and version of the host's distribution, whose files the guest sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// Hash over names, versions and architectures of the host's installed packages, if it keeps a list of Debian's
    /// form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packages_hash: Option<String>,
    /// Hash over the executable of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_hash: Option<String>,
    /// The length of each environment variable in bytes, and 16 bits of a hash of its value. They reveal a difference,
    /// but not the value.
    pub environment: BTreeMap<String, String>,
}

impl Surroundings {
    /// Names of the variables that are not the same in both.
    pub(crate) fn variables_that_differ<'a>(&'a self, other: &'a Surroundings) -> Vec<&'a str> {
        let (one, two) = (&self.environment, &other.environment);
        let mut names: Vec<&str> = one.keys().chain(two.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| one.get(*name) != two.get(*name));
        names
    }
}
