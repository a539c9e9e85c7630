//! Instants as texts in UTC, without a library for calendars.

/// A date and time that sorts by time: `20261121T204835Z` without separators, which needs no quoting in a shell, or
/// `2026-11-21T20:48:35Z` with `-` and `:`.
#[must_use]
pub fn utc_timestamp(unix_s: u64, separators: &str) -> String {
    let (days, rest) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (rest / 3_600, rest % 3_600 / 60, rest % 60);
    let dash = separators.get(..1).unwrap_or_default();
    let colon = separators.get(1..).unwrap_or_default();
    format!("{year:04}{dash}{month:02}{dash}{day:02}T{hour:02}{colon}{minute:02}{colon}{second:02}Z")
}

/// Seconds since 1970 of an instant that [`utc_timestamp`] wrote with `-` and `:`.
#[must_use]
pub fn unix_seconds_of(timestamp: &str) -> Option<u64> {
    let (date, time) = timestamp.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, separator| -> Option<[u64; 3]> {
        text.split(separator).map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>()?.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(time, ':')?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // The inverse of `civil_date`: years begin in March, so that the leap day is the last.
    let year = year - u64::from(month <= 2);
    let (era, year_of_era, month_from_march) = (year / 400, year % 400, (month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some((days.checked_sub(719_468)? * 86_400) + hour * 3_600 + minute * 60 + second)
}

/// Year, month and day of the day that is `days` after 1970-01-01.
///
/// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`, for days from
/// the epoch on.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_of_known_instants() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
        ] {
            assert_eq!(utc_timestamp(seconds, ""), text);
            assert_eq!(unix_seconds_of(&utc_timestamp(seconds, "-:")), Some(seconds));
        }
        assert_eq!(utc_timestamp(951_782_400, "-:"), "2000-02-29T00:00:00Z");
        for wrong in ["", "2000-02-29", "2000-13-01T00:00:00Z", "x-y-zT0:0:0Z", "1969-01-01T00:00:00Z"] {
            assert_eq!(unix_seconds_of(wrong), None, "{wrong}");
        }
    }
}
