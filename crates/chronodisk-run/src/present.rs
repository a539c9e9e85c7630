//! The host's date and time.

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
