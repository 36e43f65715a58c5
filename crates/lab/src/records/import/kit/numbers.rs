//! Numbers as programs and spreadsheets of any locale write them.
//!
//! Expects decimal commas, thousands in groups, and texts such as `1,234` that can be two numbers:
//! other numbers of the file decide, else the text is refused.

/// Decimal mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::records::import) enum Mark {
    /// `138.7`
    Dot,
    /// `138,7`
    Comma,
}

impl Mark {
    fn letter(self) -> char {
        match self {
            Self::Dot => '.',
            Self::Comma => ',',
        }
    }

    /// The mark that separates thousands.
    fn other(self) -> Self {
        match self {
            Self::Dot => Self::Comma,
            Self::Comma => Self::Dot,
        }
    }
}

/// Reads the numbers of one file, by the decimal mark that its unambiguous numbers have.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::records::import) struct Numbers {
    mark: Option<Mark>,
}

impl Numbers {
    /// Finds the decimal mark of a file's figures; `otherwise` applies if none of them shows it.
    pub(in crate::records::import) fn of<'a>(
        figures: impl IntoIterator<Item = &'a str>,
        otherwise: Option<Mark>,
    ) -> Self {
        let (mut dots, mut commas) = (false, false);
        for mark in figures.into_iter().filter_map(evident_mark) {
            match mark {
                Mark::Dot => dots = true,
                Mark::Comma => commas = true,
            }
        }
        let mark = match (dots, commas) {
            (true, false) => Some(Mark::Dot),
            (false, true) => Some(Mark::Comma),
            (false, false) => otherwise,
            (true, true) => None,
        };
        Self { mark }
    }

    /// A figure that can be stored: finite and not negative. `None` also if it can be two numbers.
    pub(in crate::records::import) fn read(self, text: &str) -> Option<f64> {
        let text = compact(text);
        let plain = match (text.contains(','), text.matches('.').count()) {
            // A lone dot is the mark that programs use, unless the file has commas in its place.
            (false, 0) => text,
            (false, 1) if self.mark != Some(Mark::Comma) || evident_mark(&text).is_some() => text,
            _ => {
                let mark = evident_mark(&text).or(self.mark)?;
                let (whole, fraction) = match text.rsplit_once(mark.letter()) {
                    Some((whole, fraction)) => (whole, Some(fraction)),
                    None => (text.as_str(), None),
                };
                let whole = without_groups(whole, mark.other().letter())?;
                fraction.map_or(whole.clone(), |fraction| format!("{whole}.{fraction}"))
            }
        };
        plain.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)
    }
}

/// Without a percent sign, and without the spaces and apostrophes that group thousands.
fn compact(text: &str) -> String {
    let text = text.trim().trim_end_matches('%').trim_end();
    text.chars().filter(|letter| !matches!(letter, ' ' | '\'' | '\u{a0}' | '\u{202f}' | '’')).collect()
}

/// Decimal mark of a number in which it can only be that one.
fn evident_mark(text: &str) -> Option<Mark> {
    let text = compact(text);
    if text.is_empty() || !text.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | ',')) {
        return None;
    }
    let (dots, commas) = (text.matches('.').count(), text.matches(',').count());
    match (dots, commas) {
        (0, 0) => None,
        (0, 1) | (1, 0) => {
            let (mark, letter) = if dots == 1 { (Mark::Dot, '.') } else { (Mark::Comma, ',') };
            let (whole, fraction) = text.split_once(letter)?;
            let is_group = fraction.len() == 3 && (1..=3).contains(&whole.len()) && whole != "0";
            (!is_group).then_some(mark)
        }
        (0, _) => Some(Mark::Dot),
        (_, 0) => Some(Mark::Comma),
        _ if text.rfind('.') > text.rfind(',') => Some(Mark::Dot),
        _ => Some(Mark::Comma),
    }
}

/// Removes the marks between thousands; `None` if they are elsewhere.
fn without_groups(text: &str, mark: char) -> Option<String> {
    let mut groups = text.split(mark);
    let first = groups.next().filter(|first| !text.contains(mark) || (1..=3).contains(&first.len()))?;
    let mut whole = first.to_owned();
    for group in groups {
        if group.len() != 3 {
            return None;
        }
        whole.push_str(group);
    }
    whole.chars().all(|letter| letter.is_ascii_digit()).then_some(whole)
}

/// True for the texts that stand for a figure that was not measured.
pub(in crate::records::import) fn is_absent(text: &str) -> bool {
    let text = text.trim().trim_start_matches(['-', '+']).to_ascii_lowercase();
    let is_nan = text.starts_with("nan") || text.starts_with("1.#");
    is_nan || matches!(&*text, "" | "–" | "—" | "n/a" | "na" | "null" | "none" | "inf" | "infinity" | "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_locale_are_read() {
        let alone = Numbers::default();
        for (text, value) in [
            ("138,7", 138.7),
            ("91,25", 91.25),
            ("0,000000", 0.0),
            ("0,125", 0.125),
            ("1234,567", 1234.567),
            ("1,083.671", 1083.671),
            ("1.083,671", 1083.671),
            ("1,234,567", 1_234_567.0),
            ("1 234,5", 1234.5),
            ("1'234.5", 1234.5),
            ("138.715", 138.715),
            (" 98% ", 98.0),
            ("1.5e+03", 1500.0),
        ] {
            assert_eq!(alone.read(text), Some(value), "{text}");
        }
        for text in ["-1", "inf", "nan", "+++", "", "1,2,3", "1.2.3", "12,34.5", "1,234"] {
            assert_eq!(alone.read(text), None, "{text}");
        }
    }

    #[test]
    fn other_numbers_decide_what_a_comma_is() {
        let german = Numbers::of(["1,234", "138,7"], None);
        assert_eq!((german.read("1,234"), german.read("1.234")), (Some(1.234), Some(1234.0)));
        let english = Numbers::of(["1,234", "138.7"], None);
        assert_eq!((english.read("1,234"), english.read("1.234")), (Some(1234.0), Some(1.234)));
        let both = Numbers::of(["138,7", "138.7"], Some(Mark::Comma));
        assert_eq!((both.read("1,234"), both.read("138,7")), (None, Some(138.7)));
        assert_eq!(Numbers::of(["1,234"], Some(Mark::Comma)).read("1,234"), Some(1.234));
    }

    #[test]
    fn texts_for_no_figure_are_known() {
        for text in ["", " ", "-", "+++++", "-nan", "NaN", "-nan(ind)", "1.#IND", "n/a", "null"] {
            assert!(is_absent(text), "{text}");
        }
        assert!(!is_absent("0") && !is_absent("fast"));
    }
}
