//! Figures and their units as people read them.

/// Formats three digits, without needless decimals; large numbers with thousands apart.
pub fn number(value: f64) -> String {
    match value.abs() {
        huge if huge >= 9999.5 => thousands(value),
        large if large >= 99.95 => format!("{value:.0}"),
        middle if middle >= 9.995 => format!("{value:.1}"),
        small if small >= 0.9995 => format!("{value:.2}"),
        0.0 => "0".into(),
        tiny => {
            let decimals = (2.0 - tiny.log10().floor()).min(9.0) as usize;
            format!("{value:.decimals$}").trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats microseconds to three digits in the unit that people read them in.
pub fn time_text(microseconds: f64) -> String {
    match microseconds.abs() {
        seconds if seconds >= 999_500.0 => format!("{} s", number(microseconds / 1e6)),
        milliseconds if milliseconds >= 999.5 => format!("{} ms", number(microseconds / 1e3)),
        0.0 => "0 µs".into(),
        nanoseconds if nanoseconds < 0.9995 => format!("{} ns", number(microseconds * 1e3)),
        _ => format!("{} µs", number(microseconds)),
    }
}

/// Formats microseconds as milliseconds to three digits.
pub fn milliseconds(microseconds: f64) -> String {
    let milliseconds = microseconds / 1e3;
    if milliseconds < 1.0 { format!("{milliseconds:.3}") } else { number(milliseconds) }
}

/// Formats bytes in the largest binary unit with a value of at least one.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let text = if scaled < 10.0 { format!("{scaled:.2}") } else { format!("{scaled:.1}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}", UNITS[unit])
}

/// Formats seconds in usual units.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    if whole < 3600 {
        return format!("{} min {:02} s", whole / 60, whole % 60);
    }
    let minutes = (seconds / 60.0).round() as u64;
    format!("{} h {:02} min", minutes / 60, minutes % 60)
}
