//! A table of figures as HTML.

use std::fmt::Write;

use super::svg::escape;
use crate::reports::tables::{ColumnGroup, Table};

/// A cell of a table without groups.
pub(crate) enum Cell {
    /// A figure or a short word, aligned to the right.
    Figure(String),
    /// Text, aligned to the left.
    Text(String),
    /// HTML, aligned to the left.
    Html(String),
}

/// A table without groups of columns; the first column names the row. On narrow screens each row is
/// a card, so that nothing is cut.
pub(crate) fn cards(page: &mut String, columns: &[String], rows: &[(String, Vec<Cell>)]) {
    page.push_str("<div class=\"scroll\"><table class=\"cards\">\n<thead><tr>");
    for column in columns {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escape(column));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (name, cells) in rows {
        let _ = write!(page, "<tr><th scope=\"row\">{}</th>", escape(name));
        for (cell, column) in cells.iter().zip(columns.iter().skip(1)) {
            let (class, text) = match cell {
                Cell::Figure(text) => ("", escape(text)),
                Cell::Text(text) => (" class=\"text\"", escape(text)),
                Cell::Html(text) => (" class=\"text\"", text.clone()),
            };
            let _ = write!(page, "<td{class} data-label=\"{}\">{text}</td>", escape(column));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

/// A table with its headings tied to their columns and rows. `caption` is HTML.
pub(super) fn table(page: &mut String, table: &Table, caption: &str, class: &str) {
    let _ = writeln!(page, "<div class=\"scroll\"><table class=\"cards {class}\">");
    let _ =
        writeln!(page, "<caption><span><b>{}.</b> {caption}</span></caption>\n<thead>", escape(&table.title));
    let grouped = table.groups.iter().any(|group| !group.title.is_empty());
    let edge = |position: usize, group: &ColumnGroup| {
        if position == 0 && !group.title.is_empty() { " class=\"edge\"" } else { "" }
    };
    if grouped {
        page.push_str("<tr>");
        for group in &table.groups {
            let span = group.columns.len();
            if group.title.is_empty() {
                let _ = write!(page, "<td colspan=\"{span}\"></td>");
            } else {
                let title = escape(&group.title);
                let _ = write!(page, "<th scope=\"colgroup\" colspan=\"{span}\" class=\"edge\">{title}</th>");
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("<tr>");
    for group in &table.groups {
        for (position, column) in group.columns.iter().enumerate() {
            let _ = write!(page, "<th scope=\"col\"{}>{}</th>", edge(position, group), escape(column));
        }
    }
    page.push_str("</tr>\n</thead>\n<tbody>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        let mut cells = row.iter();
        for (group_number, group) in table.groups.iter().enumerate() {
            for (position, (column, cell)) in group.columns.iter().zip(&mut cells).enumerate() {
                if group_number == 0 && position == 0 {
                    let _ = write!(page, "<th scope=\"row\">{}</th>", escape(cell));
                    continue;
                }
                let text = match cell.strip_suffix('!') {
                    Some(figure) => {
                        format!(
                            "{}<a class=\"mark\" href=\"#remarks\" title=\"see the remarks\">!</a>",
                            escape(figure)
                        )
                    }
                    None => escape(cell),
                };
                let label = escape(format!("{} {column}", group.title).trim());
                let _ = write!(page, "<td{} data-label=\"{label}\">{text}</td>", edge(position, group));
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}
