//! Text on its way to a terminal: names, paths and reasons come from drives, and could hold
//! sequences that move the cursor, rename the window or type commands. Characters that are not
//! shown as themselves are written as `\\u{…}`; of escape sequences only this program's own colours
//! pass.

use std::fmt::Write;

use stripewise_control::plain::is_unsafe;

/// The program's own colours.
const COLOURS: [&str; 5] = ["\x1b[0m", "\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[1;31m"];

/// Text for people, with this program's colours where it has any.
pub(crate) fn page(text: &str, has_colours: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let colour = COLOURS.iter().find(|colour| has_colours && rest.starts_with(**colour));
        if let Some(colour) = colour {
            out.push_str(colour);
            rest = &rest[colour.len()..];
            continue;
        }
        match letter {
            '\n' | '\t' => out.push(letter),
            letter if is_unsafe(letter) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => out.push(letter),
        }
        rest = &rest[letter.len_utf8()..];
    }
    out
}

/// A value on its way into a field or a table: what would end its line, and begin one that the
/// program did not write, is escaped.
pub(crate) fn in_a_line(text: &str) -> String {
    text.replace('\n', "\\u{a}").replace('\t', "\\u{9}")
}

/// A JSON document: such characters stand in strings only, where an escape means the same.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => out.push(letter),
            letter if is_unsafe(letter) => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_colours_reach_a_terminal() {
        let title = "d\x1b]0;owned\x07\u{9b}2J\x7f\u{202e}x\r";
        assert_eq!(page(title, true), "d\\u{1b}]0;owned\\u{7}\\u{9b}2J\\u{7f}\\u{202e}x\\u{d}");
        assert_eq!(page("\x1b[32mgood\x1b[0m\tday\n", true), "\x1b[32mgood\x1b[0m\tday\n");
        assert_eq!(page("\x1b[32mgood\x1b[0m", false), "\\u{1b}[32mgood\\u{1b}[0m");
        assert_eq!(page("\x1b[2Jäö…", true), "\\u{1b}[2Jäö…");
    }

    #[test]
    fn a_value_stays_in_its_line() {
        assert_eq!(in_a_line("tank\ntank2  online\t"), "tank\\u{a}tank2  online\\u{9}");
    }

    #[test]
    fn json_says_the_same_in_safe_characters() {
        let value = serde_json::json!({"path": "a\u{9b}2J\x7f\x1b[2J\u{202e}ä"});
        let text = json(&serde_json::to_string_pretty(&value).expect("JSON"));
        assert!(text.chars().all(|letter| !is_unsafe(letter) || letter == '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("JSON"), value);
    }
}
