//! Fits text to the width of a terminal: wraps sentences between words, and splits rows of wide
//! tables over several lines.
//!
//! Expected faults: words wider than the terminal, such as paths: they are not broken, so that they
//! can be copied.

use std::ops::Range;

use terminal_size::{Width, terminal_size_of};

/// Default width of results.
pub(super) const COLUMNS: usize = 80;
/// Minimum width assumed of an output.
const FEWEST_COLUMNS: usize = 40;
/// Spaces between the columns of a table.
pub(super) const GAP: usize = 2;
/// Indent of the continuation lines of a row.
pub(super) const FURTHER: usize = 2;
/// Minimum width for wrapping the last column in place.
const LEAST_TEXT: usize = 24;
/// Minimum width of a shortened first column.
const LEAST_FIRST: usize = 8;

/// Width of standard output: `COLUMNS` if set, else that of the terminal. `None` if it is not a
/// terminal.
pub(super) fn columns_of_output() -> Option<usize> {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let seen = || terminal_size_of(std::io::stdout()).map(|(Width(columns), _)| usize::from(columns));
    asked.or_else(seen).map(|columns: usize| columns.max(FEWEST_COLUMNS))
}

/// Number of terminal cells that `text` takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Wraps a text to `columns`.
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

/// Distributes the columns of a table, whose widths are `widths`, over the lines of a row, so that
/// no line is wider than `columns`: as many per line as fit, at least one. `indent` precedes each
/// line.
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

/// Width for wrapping the last column in place, if the table is too wide and enough width is left.
pub(super) fn text_width(widths: &[usize], indent: usize, columns: usize) -> Option<usize> {
    let (last, others) = widths.split_last()?;
    let before = indent + others.iter().map(|width| width + GAP).sum::<usize>();
    let left = columns.saturating_sub(before);
    (*last > left && left >= LEAST_TEXT).then_some(left)
}

/// Width of the first column with which a row fits a line, if it is too wide and enough is left.
pub(super) fn first_width(widths: &[usize], indent: usize, columns: usize) -> Option<usize> {
    let (first, others) = widths.split_first()?;
    let behind: usize = others.iter().map(|width| width + GAP).sum();
    let left = columns.saturating_sub(indent + behind);
    (*first > left && left >= LEAST_FIRST).then_some(left)
}

/// The end of a text that is wider than `columns`, behind a mark.
pub(super) fn end_of(text: &str, columns: usize) -> String {
    match width(text).checked_sub(columns) {
        None | Some(0) => text.to_owned(),
        Some(surplus) => format!("…{}", text.chars().skip(surplus + 1).collect::<String>()),
    }
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
        // A column that is too wide gets its own line.
        assert_eq!(ends(&[90, 5, 5], 0, 40), [1, 3]);
        assert_eq!(text_width(&[10, 100], 0, 80), Some(68));
        assert_eq!(text_width(&[10, 60], 0, 80), None);
        assert_eq!(text_width(&[70, 60], 0, 80), None);
    }
}
