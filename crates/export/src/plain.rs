//! Foreign text (from clients, drives, other machines) in this program's output: on one line,
//! without characters that a terminal would act on, and cut if it is long.

use std::fmt::Write;

/// Tests if a terminal would act on a character instead of showing it: control characters, and
/// those that change the direction of text or are invisible.
pub fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text on one line: unsafe characters are written as `\u{…}`.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_unsafe(letter) {
            true => drop(write!(out, "\\u{{{:x}}}", u32::from(letter))),
            false => out.push(letter),
        }
    }
    out
}

/// At most the first `most_bytes` of a text, with the number of bytes left out.
pub fn cut(text: &str, most_bytes: usize) -> String {
    if text.len() <= most_bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most_bytes);
    format!("{}… ({} more bytes)", &text[..end], text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_shows_what_it_holds() {
        assert_eq!(one_line("a\nb\r\x1b[2J\u{202e}c\u{9b}ä"), "a\\u{a}b\\u{d}\\u{1b}[2J\\u{202e}c\\u{9b}ä");
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("ääää", 5), "ää… (4 more bytes)");
        assert_eq!(cut(&"x".repeat(1000), 10), "xxxxxxxxxx… (990 more bytes)");
    }
}
