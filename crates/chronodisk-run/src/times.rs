//! The host's date and time, and the time that is left.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chronodisk_report::utc_timestamp;

/// The present, as in RFC 3339.
pub fn now_rfc3339() -> String {
    utc_timestamp(unix_seconds(), "-:")
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Estimated time for `left` further runs, from the mean of the `done` ones, for the end of a progress line. Empty
/// before the first run has ended.
pub fn time_left(elapsed: Duration, done: u32, left: u32) -> String {
    if done == 0 || left == 0 {
        return String::new();
    }
    let seconds = (elapsed.as_secs_f64() / f64::from(done) * f64::from(left)).ceil();
    match seconds {
        ..120.0 => format!(", about {seconds:.0} s left"),
        ..7_200.0 => format!(", about {:.0} min left", seconds / 60.0),
        _ => format!(", about {:.1} h left", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_runs_that_have_ended() {
        let left = |seconds, done, left| time_left(Duration::from_secs(seconds), done, left);
        assert_eq!(left(0, 0, 12), "");
        assert_eq!(left(10, 1, 11), ", about 110 s left");
        assert_eq!(left(100, 2, 10), ", about 8 min left");
        assert_eq!(left(3_600, 1, 3), ", about 3.0 h left");
        assert_eq!(left(100, 12, 0), "");
    }
}
