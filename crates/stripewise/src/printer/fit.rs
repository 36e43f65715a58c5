//! Text in the width of a terminal: sentences are wrapped between words, and rows of tables that
//! are too wide go over several lines.
//!
//! Expected faults: words that are wider than the terminal (paths): they stay whole, so that they
//! can be copied.

use std::ops::Range;

use terminal_size::{Width, terminal_size_of};

/// The width of results where nothing tells another.
pub(super) const COLUMNS: usize = 80;
/// No output is taken to be narrower.
const FEWEST_COLUMNS: usize = 40;
/// Between the columns of a table.
pub(super) const GAP: usize = 2;
/// How far the further lines of a row are moved to the right.
pub(super) const FURTHER: usize = 2;
/// A last column of sentences is wrapped in its place from this width on.
const LEAST_TEXT: usize = 24;

/// How wide standard output is: as `COLUMNS` says, else the terminal. `None`: it is no terminal.
pub(super) fn columns_of_output() -> Option<usize> {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let seen = || terminal_size_of(std::io::stdout()).map(|(Width(columns), _)| usize::from(columns));
    asked.or_else(seen).map(|columns: usize| columns.max(FEWEST_COLUMNS))
}

/// Cells that `text` takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// The lines of a text that may be `columns` wide.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    if width(text) <= columns {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            line.push_str(word);
        } else if width(line) + 1 + width(word) <= columns {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Which columns of a table stand on which line of its rows, so that no line is wider than
/// `columns`: as many on each line as fit, and at least one. `widths` are those of the table's
/// columns, `indent` what stands before each line.
pub(super) fn lines_of_rows(widths: &[usize], indent: usize, columns: usize) -> Vec<Range<usize>> {
    let (mut lines, mut start, mut at) = (Vec::new(), 0, indent);
    for (column, width) in widths.iter().enumerate() {
        let gap = if column > start { GAP } else { 0 };
        if column > start && at + gap + width > columns {
            lines.push(start..column);
            (start, at) = (column, indent + FURTHER + width);
        } else {
            at += gap + width;
        }
    }
    lines.push(start..widths.len());
    lines
}

/// How wide the last column may be where it is of sentences, and the whole table too wide.
pub(super) fn text_width(widths: &[usize], indent: usize, columns: usize) -> Option<usize> {
    let (last, others) = widths.split_last()?;
    let before = indent + others.iter().map(|width| width + GAP).sum::<usize>();
    let left = columns.saturating_sub(before);
    (*last > left && left >= LEAST_TEXT).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_between_words_and_keeps_long_ones() {
        assert_eq!(wrap("a drive is away", 8), ["a drive", "is away"]);
        assert_eq!(wrap("see /a/very/long/path now", 8), ["see", "/a/very/long/path", "now"]);
        assert_eq!(wrap("", 8), [""]);
    }

    #[test]
    fn rows_go_over_as_many_lines_as_they_need() {
        let ends = |widths: &[usize], indent, columns| -> Vec<usize> {
            lines_of_rows(widths, indent, columns).iter().map(|line| line.end).collect()
        };
        assert_eq!(ends(&[10, 10, 10], 2, 36), [3]);
        assert_eq!(ends(&[10, 10, 10], 2, 35), [2, 3]);
        assert_eq!(ends(&[30, 5, 5, 5, 30], 0, 40), [2, 4, 5]);
        // One that fits nowhere stands alone.
        assert_eq!(ends(&[90, 5, 5], 0, 40), [1, 3]);
        assert_eq!(text_width(&[10, 100], 0, 80), Some(68));
        assert_eq!(text_width(&[10, 60], 0, 80), None);
        assert_eq!(text_width(&[70, 60], 0, 80), None);
    }
}
