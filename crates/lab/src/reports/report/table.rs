//! A table of figures as HTML.

use std::fmt::Write;

use super::svg::escape;
use crate::reports::tables::{ColumnGroup, Table};

/// A table with its headings tied to their columns and rows. `caption` is HTML.
pub(super) fn table(page: &mut String, table: &Table, caption: &str, class: &str) {
    let _ = writeln!(page, "<div class=\"scroll\"><table class=\"{class}\">");
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
            for (position, (_, cell)) in group.columns.iter().zip(&mut cells).enumerate() {
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
                let _ = write!(page, "<td{}>{text}</td>", edge(position, group));
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}
