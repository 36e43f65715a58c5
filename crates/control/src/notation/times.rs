//! Timestamps as text: `2026-03-09 14:05:59Z`. Always in UTC, so that the histories of two machines
//! can be compared.

use std::time::{SystemTime, UNIX_EPOCH};

use stripewise_pool::{HostUse, date};

/// Current time, milliseconds since 1970; 0 if the clock is set before that.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A timestamp in UTC, to the second.
pub fn moment_text(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// The host that used a pool last, the time of that use, and whether it exported the pool.
pub fn host_in_words(host: &HostUse) -> String {
    let exported = if host.exported { "exported cleanly" } else { "not exported" };
    format!("{} ({}), {}; {exported}", host.name, host.id, moment_text(host.unix_s.saturating_mul(1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_print_as_calendar_dates() {
        assert_eq!(moment_text(0), "1970-01-01 00:00:00Z");
        assert_eq!(moment_text(951_782_399_999), "2000-02-28 23:59:59Z");
        assert_eq!(moment_text(951_868_800_000), "2000-03-01 00:00:00Z");
        assert_eq!(moment_text(1_709_210_096_000), "2024-02-29 12:34:56Z");
        assert_eq!(moment_text(4_102_444_800_000), "2100-01-01 00:00:00Z");
        assert_eq!(moment_text(u64::MAX / 2_000_000), "2262-04-11 23:47:16Z");
    }
}
