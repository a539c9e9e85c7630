//! What results of all kinds have in common.

use std::time::{SystemTime, UNIX_EPOCH};

use chronodisk_report::utc_timestamp;

/// The present, as in RFC 3339.
pub fn now_rfc3339() -> String {
    utc_timestamp(unix_seconds(), "-:")
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A note for readers of a run that this signal ended.
pub fn ended_early(signal: &str) -> String {
    format!("{signal} ended the run; its last repetition is not that of a whole command")
}
