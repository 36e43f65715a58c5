//! Bytes of a file as lines of text, and the messages of a tool among them.
//!
//! Expects text of Windows programs (UTF-16, marks in the middle of joined files), logs of
//! terminals (escape sequences, lines overwritten with carriage returns), and binary files.

/// Messages of the tool that are kept as notes.
const MAX_MESSAGES: usize = 10;
/// Openings of a line in which a tool reports an error or a warning.
const COMPLAINTS: [&str; 8] =
    ["fio: ", "ERROR", "Error: ", "error: ", "FATAL: ", "WARNING: ", "Can't ", "warning: "];

/// Decodes UTF-8 or UTF-16; lines end in `\n`, without byte-order marks and escape sequences.
pub(in crate::records::import) fn decode(bytes: &[u8]) -> String {
    let wide = |rest: &[u8], join: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = rest.chunks_exact(2).map(|pair| join([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        // Without a mark: text in Latin letters has a zero in each pair.
        [_, 0, _, 0, ..] => wide(bytes, u16::from_le_bytes),
        [0, _, 0, _, ..] => wide(bytes, u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    if text.contains(['\r', '\u{feff}', '\u{1b}', '\0']) { without_controls(&text) } else { text }
}

fn without_controls(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '\u{feff}' | '\0' => {}
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' => clean.push('\n'),
            '\u{1b}' => {
                // `ESC [ … letter` sets colours and moves the cursor; others are one character.
                if rest.next() == Some('[') {
                    while rest.next().is_some_and(|one| !one.is_ascii_alphabetic() && one != '\n') {}
                }
            }
            other => clean.push(other),
        }
    }
    clean
}

/// Errors and warnings that the tool printed around its records.
pub(in crate::records::import) fn complaints(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let said = lines.filter(|line| COMPLAINTS.iter().any(|opening| line.starts_with(opening)));
    let mut notes: Vec<String> = Vec::new();
    for line in said {
        let note = format!("the tool reported: {line}");
        if !notes.contains(&note) {
            notes.push(note);
        }
        if notes.len() == MAX_MESSAGES {
            break;
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_terminal_text_is_decoded() {
        let wide: Vec<u8> = "añ\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(decode(&[&[0xff, 0xfe], &wide[..]].concat()), "añ\n");
        let plain: Vec<u8> = "ab".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(decode(&plain), "ab");
        assert_eq!(decode("\u{feff}a\rb\u{1b}[1;31mc\u{1b}[0m\n\u{feff}d".as_bytes()), "a\nbc\nd");
        assert_eq!(decode(b"\x1b[31"), "");
    }

    #[test]
    fn messages_are_kept_once() {
        let text = "fio: pid=3, err=28\nall is well\nfio: pid=3, err=28\n  Error: no room\n";
        assert_eq!(
            complaints(text),
            ["the tool reported: fio: pid=3, err=28", "the tool reported: Error: no room"]
        );
    }
}
