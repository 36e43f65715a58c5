//! Dates as instants: ISO 8601 in UTC, read from the forms that tools print.
//!
//! A date without a time zone is taken as UTC. Expects ambiguous dates (`3/4/2024`) and
//! numbers that are no date; both have no instant.

const SECONDS_PER_DAY: i64 = 86_400;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Formats seconds since 1970 as `2026-01-02T03:04:05Z`.
pub fn iso_8601(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // Days since 0000-03-01; an era is 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Seconds since 1970 of a date as a tool prints it; `None` if it is no date, is before 1970, or if
/// its day and month cannot be distinguished.
pub fn seconds_of(text: &str) -> Option<u64> {
    let text = text.get(..text.len().min(64)).unwrap_or(text);
    let words: Vec<String> =
        text.replace(['T', 'Z', ','], " ").split_whitespace().map(str::to_lowercase).collect();
    let clock_at = words.iter().position(|word| word.contains(':'));
    let clock = clock_at.map_or(Some(0), |at| clock_seconds(&words[at], words.get(at + 1)))?;
    let [year, month, day] = day_of(&words)?;
    let seconds =
        days_since_1970(year, month, day)? * SECONDS_PER_DAY + clock - offset_seconds(&words, clock_at);
    u64::try_from(seconds).ok()
}

/// A tool's date as ISO 8601, or an empty text.
pub(crate) fn instant(text: &str) -> String {
    seconds_of(text).map(iso_8601).unwrap_or_default()
}

/// Seconds of the day of `5:41:48`, `04:05:06:789` and `5:41 pm`.
fn clock_seconds(word: &str, next: Option<&String>) -> Option<i64> {
    let (clock, half) = match word.find(|c: char| !c.is_ascii_digit() && c != ':') {
        Some(at) => word.split_at(at),
        None => (word, ""),
    };
    let mut parts = clock.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().map_or(Some(0), |part| part)?;
    let hour = match [half, next.map_or("", String::as_str)] {
        [half, next] if half == "pm" || next == "pm" => hour % 12 + 12,
        [half, next] if half == "am" || next == "am" => hour % 12,
        _ => hour,
    };
    let fits = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..61).contains(&second);
    fits.then_some(hour * 3600 + minute * 60 + second)
}

/// Year, month, day.
fn day_of(words: &[String]) -> Option<[i64; 3]> {
    let whole = |text: &str| text.parse::<i64>().ok().filter(|value| (1..=9999).contains(value));
    for separator in ['-', '/', '.'] {
        let joined = words.iter().find(|word| word.split(separator).filter_map(whole).count() == 3);
        let Some(parts) = joined.map(|word| word.split(separator).filter_map(whole).collect::<Vec<_>>())
        else {
            continue;
        };
        return match (separator, parts.as_slice()) {
            (_, [year, month, day]) if *year > 31 => Some([*year, *month, *day]),
            ('.' | '-', [day, month, year]) => Some([*year, *month, *day]),
            (_, [day, month, year]) if *day > 12 || day == month => Some([*year, *month, *day]),
            (_, [month, day, year]) if *day > 12 => Some([*year, *month, *day]),
            _ => None,
        };
    }
    let month_of = |word: &String| MONTHS.iter().position(|month| word.starts_with(month));
    let (at, month) = words.iter().enumerate().find_map(|(at, word)| Some((at, month_of(word)?)))?;
    let numbers: Vec<i64> = words.iter().filter_map(|word| whole(word.trim_end_matches('.'))).collect();
    let year = numbers.iter().copied().find(|value| *value > 31)?;
    let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|at| words.get(at));
    let day = beside.filter_map(|word| whole(word.trim_end_matches('.'))).find(|value| *value <= 31)?;
    Some([year, month as i64 + 1, day])
}

/// Seconds that a zone such as `+0200` or `+02:00` after the time is ahead of UTC.
fn offset_seconds(words: &[String], clock_at: Option<usize>) -> i64 {
    let Some(at) = clock_at else { return 0 };
    let glued = words[at].find(['+', '-']).map(|start| &words[at][start..]);
    let apart = || words.get(at + 1).map(String::as_str).filter(|word| word.starts_with(['+', '-']));
    let Some(zone) = glued.or_else(apart) else { return 0 };
    let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
    let (hours, minutes) = match digits.len() {
        4 => digits.split_at(2),
        2 => (digits.as_str(), "0"),
        _ => return 0,
    };
    let seconds = hours.parse().unwrap_or(0) * 3600 + minutes.parse().unwrap_or(0) * 60;
    if zone.starts_with('-') { -seconds } else { seconds }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1970..=9999).contains(&year) || !(1..=longest).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is the last.
    let (from_march, year) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * from_march + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_dates_become_instants() {
        for (text, iso) in [
            ("2024/01/06 5:41:48", "2024-01-06T05:41:48Z"),
            ("2024-05-01 10:00:00", "2024-05-01T10:00:00Z"),
            ("2024-02-03 04:05:06:789", "2024-02-03T04:05:06Z"),
            ("2026/01/02 03:04:05 UTC", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
            ("2026-01-02 03:04:05 -0130", "2026-01-02T04:34:05Z"),
            ("03.02.2024 04:05", "2024-02-03T04:05:00Z"),
            ("25/12/2024 1:02:03 PM", "2024-12-25T13:02:03Z"),
            ("12/25/2024 12:02:03 AM", "2024-12-25T00:02:03Z"),
            ("Thu Oct  9 08:53:20 2025", "2025-10-09T08:53:20Z"),
            ("Thu, 29 Feb 2024 23:59:59 +0000", "2024-02-29T23:59:59Z"),
            ("2000-02-29", "2000-02-29T00:00:00Z"),
        ] {
            assert_eq!(instant(text), iso, "{text}");
        }
    }

    #[test]
    fn no_date_is_guessed() {
        for text in [
            "3/4/2024 10:00",
            "",
            "8/14/01",
            "2023-02-29",
            "2024-13-01",
            "25:00",
            "2024-01-01 25:00",
            "ü".repeat(99).as_str(),
        ] {
            assert_eq!(seconds_of(text), None, "{text}");
        }
    }

    #[test]
    fn instants_and_dates_are_inverse() {
        for day in (0..60_000u64).step_by(17) {
            let seconds = day * 86_400 + day % 86_400;
            assert_eq!(seconds_of(&iso_8601(seconds)), Some(seconds));
        }
    }
}
