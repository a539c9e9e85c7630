//! A target: its name, its logical unit, and the credentials that it expects.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::scsi::LogicalUnit;

/// The beginning of all target names: the naming authority's date and reversed domain; RFC 3721.
const NAME_PREFIX: &str = "iqn.2026-11.org.chronodisk:";
/// Longest name; RFC 3722.
pub(crate) const NAME_BYTES_MAX: usize = 223;
/// The shortest secret: 96 bits without encryption of the connection; RFC 7143, 9.2.1.
pub const SECRET_BYTES_MIN: usize = 12;
/// The longest secret.
pub const SECRET_BYTES_MAX: usize = 255;

/// A target with logical unit 0.
#[derive(Debug)]
pub struct IscsiTarget {
    /// Its name.
    pub name: String,
    /// Its logical unit.
    pub unit: LogicalUnit,
    /// Expected credentials; without them every initiator is served.
    pub credentials: Option<Credentials>,
    sessions: AtomicU16,
}

impl IscsiTarget {
    /// A target without sessions.
    #[must_use]
    pub fn new(name: String, unit: LogicalUnit, credentials: Option<Credentials>) -> Self {
        IscsiTarget { name, unit, credentials, sessions: AtomicU16::new(0) }
    }

    /// The target's handle for a new session (`TSIH`), which is not zero.
    pub(crate) fn next_session(&self) -> u16 {
        self.sessions.fetch_add(1, Ordering::Relaxed) % u16::MAX + 1
    }
}

/// Name and secret of the initiators, for CHAP.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name (`CHAP_N`).
    pub user: String,
    /// The secret, of [`SECRET_BYTES_MIN`] to [`SECRET_BYTES_MAX`] bytes.
    pub secret: Vec<u8>,
}

impl fmt::Debug for Credentials {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The name of a device's target. Characters that a name can't have become hyphens.
#[must_use]
pub fn target_name(device: &str) -> String {
    let normal = |character: char| match character.to_ascii_lowercase() {
        character @ ('a'..='z' | '0'..='9' | '-' | '.') => character,
        _ => '-',
    };
    let device = device.chars().map(normal).take(NAME_BYTES_MAX - NAME_PREFIX.len());
    NAME_PREFIX.chars().chain(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_characters_of_the_standard() {
        assert_eq!(target_name("cheetah-9lp"), "iqn.2026-11.org.chronodisk:cheetah-9lp");
        assert_eq!(target_name("My Disk_2/ü"), "iqn.2026-11.org.chronodisk:my-disk-2--");
        assert_eq!(target_name(&"x".repeat(500)).len(), NAME_BYTES_MAX);
    }
}
