//! The one place that prints: results on standard output for people or as one JSON document,
//! everything else on standard error. Honours `NO_COLOR`, `--quiet`, and a reader that leaves
//! early.

use std::cell;
use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::rc::Rc;

use serde::Serialize;
use stripewise_control::daemon::caller::{Caller, Left};
use stripewise_control::daemon::socket::frames::{Colours, ListForm};
use stripewise_drive::Buffer;

use crate::failure::{Failure, Result};
use crate::log_lines;

mod fit;
pub(crate) mod plain;

/// The version of every JSON document printed; raised when a key changes its meaning or goes.
pub(crate) const OUTPUT_VERSION: u32 = 1;

/// Style of a piece of text, shown as colour on terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// As it is.
    Plain,
    /// Headings.
    Strong,
    /// All is well.
    Good,
    /// Wants attention.
    Warning,
    /// Lost or failed.
    Bad,
}

/// Destination and format of output.
pub(crate) struct Printer {
    /// Client that sent this command; `None` for standard output and standard error.
    caller: Option<Rc<Caller>>,
    json: bool,
    quiet: bool,
    colour_out: bool,
    colour_err: bool,
    columns: Option<usize>,
    lists: ListForm,
    /// Failures go into a log that is JSON.
    failures_as_json: cell::Cell<bool>,
}

#[derive(Serialize)]
struct Document<'a, T> {
    output_version: u32,
    #[serde(flatten)]
    body: &'a T,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
    hint: Option<&'a str>,
}

impl Printer {
    /// From the common options and the environment.
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            caller: None,
            json,
            quiet,
            colour_out: wanted && std::io::stdout().is_terminal(),
            colour_err: wanted && std::io::stderr().is_terminal(),
            columns: fit::columns_of_output(),
            lists: ListForm::default(),
            failures_as_json: cell::Cell::new(false),
        }
    }

    /// Prints to the client that sent this command.
    pub(crate) fn to_caller(json: bool, quiet: bool, colours: Colours, caller: Rc<Caller>) -> Self {
        Self {
            caller: Some(caller),
            json,
            quiet,
            colour_out: colours.out,
            colour_err: colours.err,
            columns: colours.columns,
            lists: ListForm::default(),
            failures_as_json: cell::Cell::new(false),
        }
    }

    /// Prints lists in this form.
    pub(crate) fn with_lists(self, lists: ListForm) -> Self {
        Self { lists, ..self }
    }

    /// Form of lists.
    pub(crate) fn lists(&self) -> &ListForm {
        &self.lists
    }

    /// Colours and width of this process's own output.
    pub(crate) fn colours(&self) -> Colours {
        Colours { out: self.colour_out, err: self.colour_err, columns: self.columns }
    }

    /// Client that sent this command, if any.
    pub(crate) fn caller(&self) -> Option<&Rc<Caller>> {
        self.caller.as_ref()
    }

    /// If `as_json`, this process reports failures as lines of its JSON log from now on.
    pub(crate) fn log_failures_as_json(&self, as_json: bool) {
        self.failures_as_json.set(as_json);
    }

    /// True if this prints for a process that keeps a log.
    fn is_logging(&self) -> bool {
        self.caller.is_none() && log_lines::is_kept()
    }

    /// True if results are printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// True if progress and notes are suppressed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a command's result: `document` with `--json`, else the text that `page` writes.
    pub(crate) fn result<T: Serialize>(&self, document: &T, page: impl FnOnce(&mut Page)) -> Result<()> {
        let text = if self.json {
            document_text(document)
        } else {
            let lists = self.lists.clone();
            let mut to = Page { text: String::new(), colour: self.colour_out, columns: self.columns, lists };
            page(&mut to);
            plain::page(&to.text, self.colour_out)
        };
        self.out(text.as_bytes())
    }

    /// Prints bytes of a volume; waits until the reader has taken them.
    ///
    /// # Panics
    /// With a phantom.
    pub(crate) async fn bytes(&self, bytes: &Buffer) -> Result<()> {
        match &self.caller {
            None => bytes.with(write_out).expect("real drives give real bytes"),
            Some(caller) => caller.output_bulk(&bytes.to_vec()).await.map_err(|Left| Failure::reader_left()),
        }
    }

    /// As [`Self::result`] for what has both forms already.
    pub(crate) fn text_or_json(&self, text: &str, json: &str) -> Result<()> {
        self.out(if self.json { json } else { text }.as_bytes())
    }

    /// A message about what is going on; not with `--quiet`.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if self.is_logging() {
            let text = text.as_ref();
            tracing::info!(target: "daemon", "{}", text.strip_prefix("note: ").unwrap_or(text));
        } else if !self.quiet {
            self.message(text.as_ref());
        }
    }

    /// Something the user should know even with `--quiet`.
    pub(crate) fn warning(&self, text: impl AsRef<str>) {
        if self.is_logging() {
            tracing::warn!(target: "daemon", "{}", text.as_ref());
            return;
        }
        self.message(&format!("{} {}", paint("warning:", Style::Warning, self.colour_err), text.as_ref()));
    }

    /// A command's failure, in the one error style.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.is_silent() {
            return;
        }
        if self.failures_as_json.get() {
            tracing::error!(target: "daemon", hint = failure.hint, "{}", failure.message);
        } else {
            self.message(&format!("{} {}", paint("error:", Style::Bad, self.colour_err), failure.message));
            if let Some(hint) = &failure.hint {
                self.message(&format!("{} {hint}", paint("hint:", Style::Good, self.colour_err)));
            }
        }
        if self.json {
            let body = ErrorBody { error: &failure.message, hint: failure.hint.as_deref() };
            // The process ends with a failure anyway, and a failed write has no other reader.
            let _ = self.out(json_text(&Document { output_version: OUTPUT_VERSION, body: &body }).as_bytes());
        }
    }

    fn out(&self, bytes: &[u8]) -> Result<()> {
        match &self.caller {
            None => write_out(bytes),
            Some(caller) => {
                caller.output(bytes);
                Ok(())
            }
        }
    }

    fn message(&self, text: &str) {
        let text = &*plain::page(text, self.colour_err);
        match &self.caller {
            None if log_lines::is_kept() => log_lines::write_line(text.as_bytes()),
            None => write_message(text.as_bytes()),
            Some(caller) => caller.message(text),
        }
    }
}

/// Writes a line to standard error.
pub(crate) fn write_message(text: &[u8]) {
    // A closed standard error must not stop the work.
    let mut to = std::io::stderr().lock();
    let _ = to.write_all(text).and_then(|()| to.write_all(b"\n"));
}

/// A result as its document.
pub(crate) fn document_text(body: &impl Serialize) -> String {
    json_text(&Document { output_version: OUTPUT_VERSION, body })
}

fn json_text(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document).expect("plain data becomes JSON");
    let mut text = plain::json(&text);
    text.push('\n');
    text
}

/// A command line that makes no sense, as `--json` has failures.
pub(crate) fn usage_document(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut parts = text.split("\n\n").map(str::trim);
    let message = parts.next().unwrap_or_default();
    let message =
        message.strip_prefix("error:").unwrap_or(message).split_whitespace().collect::<Vec<_>>().join(" ");
    let hint = parts.find_map(|part| part.strip_prefix("tip:")).map(|tip| tip.trim().to_owned());
    let body = ErrorBody { error: &message, hint: hint.as_deref() };
    json_text(&Document { output_version: OUTPUT_VERSION, body: &body })
}

/// Writes bytes to standard output.
pub(crate) fn write_out(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::reader_left(),
        _ => Failure::because("cannot write to standard output", &error),
    })
}

fn paint(text: &str, style: Style, colour: bool) -> String {
    let code = match style {
        _ if !colour => return text.to_owned(),
        Style::Plain => return text.to_owned(),
        Style::Strong => "1",
        Style::Good => "32",
        Style::Warning => "33",
        Style::Bad => "1;31",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Text for people, gathered before it is printed at once.
pub(crate) struct Page {
    text: String,
    colour: bool,
    /// Maximum width in columns; `None` for no limit.
    columns: Option<usize>,
    lists: ListForm,
}

/// Column at which the values of fields start.
const VALUES_AT: usize = 13;

impl Page {
    /// One line.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        self.text.push_str(text.as_ref());
        self.text.push('\n');
    }

    /// From here on it keeps to the width of a terminal also where it does not go to one.
    pub(crate) fn keep_narrow(&mut self) {
        self.columns.get_or_insert(fit::COLUMNS);
    }

    /// A table of at most `columns` columns, also on a wider terminal or in a file.
    pub(crate) fn table_within(&mut self, table: &Table, columns: usize) {
        let known = self.columns;
        self.columns = Some(known.map_or(columns, |known| known.min(columns)));
        self.table(table);
        self.columns = known;
    }

    /// One line of a label and a value, as status pages have them; more where the value is long.
    pub(crate) fn field(&mut self, label: &str, value: impl AsRef<str>, style: Style) {
        let columns = self.columns.map_or(usize::MAX, |columns| columns.saturating_sub(VALUES_AT));
        for (index, part) in fit::wrap(&plain::in_a_line(value.as_ref()), columns).iter().enumerate() {
            let part = paint(part, style, self.colour);
            match index {
                0 => self.line(format!("{label:>11}: {part}")),
                _ => self.line(format!("{:VALUES_AT$}{part}", "")),
            }
        }
    }

    /// The table of a list, in the form that the caller asked for.
    pub(crate) fn list(&mut self, table: Table) {
        let table = table.with_columns(&self.lists.columns);
        if !self.lists.is_bare {
            return self.table(&table);
        }
        for row in &table.rows {
            let cells: Vec<&str> = row.iter().map(|(text, _)| text.as_str()).collect();
            self.line(cells.join("\t"));
        }
    }

    /// A table, its columns as wide as they need to be.
    pub(crate) fn table(&mut self, table: &Table) {
        let mut widths: Vec<usize> = (0..table.columns.len())
            .map(|column| {
                let cells = table.rows.iter().map(|row| fit::width(&row[column].0));
                cells.chain([fit::width(table.columns[column].name)]).max().unwrap_or(0)
            })
            .collect();
        let columns = self.columns.unwrap_or(usize::MAX);
        if table.is_shortening_first
            && let Some(width) = fit::first_width(&widths, table.indent.len(), columns)
        {
            widths[0] = width;
        }
        if let Some(last) = widths.len().checked_sub(1)
            && table.rows.iter().any(|row| row[last].0.contains(' '))
            && let Some(width) = fit::text_width(&widths, table.indent.len(), columns)
        {
            widths[last] = width;
        }
        let lines = fit::lines_of_rows(&widths, table.indent.len(), columns);
        let heading: Vec<Cell> =
            table.columns.iter().map(|column| (column.name.to_owned(), Style::Strong)).collect();
        for row in std::iter::once(&heading).chain(&table.rows) {
            for line in &lines {
                self.line_of_row(table, row, &widths, line.clone());
            }
        }
    }

    fn line_of_row(&mut self, table: &Table, row: &[Cell], widths: &[usize], columns: Range<usize>) {
        let further = if columns.start > 0 { fit::FURTHER } else { 0 };
        let mut line = format!("{}{:further$}", table.indent, "");
        let mut at = line.len();
        for column in columns.clone() {
            let ((text, style), width) = (&row[column], widths[column]);
            let shortened = (column == 0 && table.is_shortening_first).then(|| fit::end_of(text, width));
            let text = shortened.as_ref().unwrap_or(text);
            if column > columns.start {
                line += &" ".repeat(fit::GAP);
                at += fit::GAP;
            }
            let mut parts = fit::wrap(text, width).into_iter();
            let text = parts.next().unwrap_or_default();
            let padding = " ".repeat(width.saturating_sub(fit::width(&text)));
            let painted = paint(&text, *style, self.colour);
            line += &match table.columns[column].right {
                true => format!("{padding}{painted}"),
                false => format!("{painted}{padding}"),
            };
            // Only the last column is narrower than what is in it.
            for part in parts {
                line.truncate(line.trim_end().len());
                line += &format!("\n{:at$}{}", "", paint(&part, *style, self.colour));
            }
            at += width;
        }
        self.line(line.trim_end());
    }
}

type Cell = (String, Style);

#[derive(Clone)]
struct Column {
    name: &'static str,
    right: bool,
}

/// Rows under headings.
#[derive(Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    indent: &'static str,
    is_shortening_first: bool,
}

impl Table {
    /// With headings; one that starts with `>` is a column of numbers, aligned to the right.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        let column = |heading: &&'static str| match heading.strip_prefix('>') {
            Some(name) => Column { name, right: true },
            None => Column { name: heading, right: false },
        };
        Self { columns: headings.iter().map(column).collect(), ..Self::default() }
    }

    /// The columns with these headings, in this order; all if there are none.
    fn with_columns(self, headings: &[String]) -> Self {
        if headings.is_empty() {
            return self;
        }
        let place = |heading: &String| self.columns.iter().position(|column| column.name == heading);
        let places: Vec<usize> = headings.iter().filter_map(place).collect();
        let rows = self.rows.iter().map(|row| places.iter().map(|place| row[*place].clone()).collect());
        Self {
            rows: rows.collect(),
            columns: places.iter().map(|place| self.columns[*place].clone()).collect(),
            indent: self.indent,
            is_shortening_first: self.is_shortening_first,
        }
    }

    /// Moved to the right, to stand under something.
    pub(crate) fn indented(mut self) -> Self {
        self.indent = "  ";
        self
    }

    /// Shows the ends of the first cells if the rows do not fit a line otherwise.
    pub(crate) fn shortening_first(mut self) -> Self {
        self.is_shortening_first = true;
        self
    }

    /// Adds a row, one cell for each heading.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> =
            cells.into_iter().map(|(text, style)| (plain::in_a_line(&text), style)).collect();
        assert_eq!(cells.len(), self.columns.len(), "one cell for each heading");
        self.rows.push(cells);
    }
}

/// A cell without colour.
pub(crate) fn plain(text: impl Into<String>) -> (String, Style) {
    (text.into(), Style::Plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(colour: bool, columns: Option<usize>) -> Page {
        Page { text: String::new(), colour, columns, lists: ListForm::default() }
    }

    #[test]
    fn lists_for_scripts_have_the_columns_asked_for() {
        let table = || {
            let mut table = Table::new(&["DRIVE", ">SIZE", "STATE"]);
            table.row([plain("a b.img"), plain("64 MiB"), ("online".to_owned(), Style::Good)]);
            table
        };
        let columns = vec!["STATE".to_owned(), "DRIVE".to_owned()];
        let mut chosen =
            Page { lists: ListForm { is_bare: false, columns: columns.clone() }, ..page(false, None) };
        chosen.list(table());
        assert_eq!(chosen.text, "STATE   DRIVE\nonline  a b.img\n");
        let mut bare = Page { lists: ListForm { is_bare: true, columns }, ..page(false, Some(40)) };
        bare.list(table());
        assert_eq!(bare.text, "online\ta b.img\n");
    }

    #[test]
    fn output_keeps_to_the_terminal_width() {
        let mut table = Table::new(&["DRIVE", ">SIZE", "STATE", "ID"]).indented();
        table.row([
            plain("/dev/disk/by-id/ata-one"),
            plain("64 MiB"),
            plain("online"),
            plain("0123456789ab"),
        ]);
        let mut narrow = page(false, Some(41));
        narrow.table(&table);
        narrow.field("condition", "everything can be read and written", Style::Plain);
        let mut events = Table::new(&["TIME", "WHAT"]);
        events.row([plain("07:00"), plain("a drive was taken out of service: it answered nothing")]);
        narrow.table(&events);
        assert_eq!(
            narrow.text,
            "  DRIVE                      SIZE  STATE\n\
             \x20   ID\n\
             \x20 /dev/disk/by-id/ata-one  64 MiB  online\n\
             \x20   0123456789ab\n\
             \x20 condition: everything can be read and\n\
             \x20            written\n\
             TIME   WHAT\n\
             07:00  a drive was taken out of service:\n\
             \x20      it answered nothing\n"
        );
    }

    #[test]
    fn long_path_shows_its_end_in_one_line() {
        let mut table = Table::new(&["DRIVE", "STATE", "ID"]).indented().shortening_first();
        table.row([plain("/dev/disk/by-id/ata-WDC_WD80EFAX-68LHPN0_7SGK"), plain("online"), plain("0123")]);
        table.row([plain("/d/0"), plain("missing"), plain("4567")]);
        let mut narrow = page(false, Some(40));
        narrow.table(&table);
        assert_eq!(
            narrow.text,
            "  DRIVE                    STATE    ID\n\
             \x20 …_WD80EFAX-68LHPN0_7SGK  online   0123\n\
             \x20 /d/0                     missing  4567\n"
        );
    }

    #[test]
    fn tables_align_their_columns() {
        let mut table = Table::new(&["DRIVE", ">SIZE", "STATE"]);
        table.row([plain("a.img"), plain("64 MiB"), ("online".to_owned(), Style::Good)]);
        table.row([plain("längerer.img"), plain("1 GiB"), plain("")]);
        let mut page = page(false, None);
        page.table(&table);
        assert_eq!(
            page.text,
            "DRIVE           SIZE  STATE\n\
             a.img         64 MiB  online\n\
             längerer.img   1 GiB\n"
        );
    }

    #[test]
    fn colour_is_outside_the_padding() {
        let mut table = Table::new(&["A", "B"]);
        table.row([("x".to_owned(), Style::Good), plain("y")]);
        let mut page = page(true, None);
        page.table(&table);
        assert_eq!(page.text, "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\n\x1b[32mx\x1b[0m  y\n");
    }
}
