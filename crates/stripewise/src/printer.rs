//! The one place that prints: results on standard output for people or as one JSON document, everything else on standard
//! error. Honours `NO_COLOR`, `--quiet`, and a reader that leaves early.

use std::cell;
use std::io::{IsTerminal, Write};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use stripewise_drive::Buffer;

use crate::control::{Caller, Left};
use crate::failure::{Failure, Result};
use crate::log;

/// The version of every JSON document printed; raised when a key changes its meaning or goes.
pub const OUTPUT_VERSION: u32 = 1;

/// What a piece of text is, for colour on terminals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
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

/// Which outputs take colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Colours {
    /// Standard output.
    pub out: bool,
    /// Standard error.
    pub err: bool,
}

/// Where and how to print.
pub struct Printer {
    /// Whoever had this command carried out here; `None`: standard output and standard error.
    caller: Option<Rc<Caller>>,
    json: bool,
    quiet: bool,
    colour_out: bool,
    colour_err: bool,
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
    pub fn new(json: bool, quiet: bool) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            caller: None,
            json,
            quiet,
            colour_out: wanted && std::io::stdout().is_terminal(),
            colour_err: wanted && std::io::stderr().is_terminal(),
            failures_as_json: cell::Cell::new(false),
        }
    }

    /// To whoever had this command carried out here.
    pub fn to_caller(json: bool, quiet: bool, colours: Colours, caller: Rc<Caller>) -> Self {
        let (colour_out, colour_err) = (colours.out, colours.err);
        Self {
            caller: Some(caller),
            json,
            quiet,
            colour_out,
            colour_err,
            failures_as_json: cell::Cell::new(false),
        }
    }

    /// What colours this process's own output takes.
    pub fn colours(&self) -> Colours {
        Colours { out: self.colour_out, err: self.colour_err }
    }

    /// Who had this command carried out here.
    pub fn caller(&self) -> Option<&Rc<Caller>> {
        self.caller.as_ref()
    }

    /// From now on failures of this process are told in its log, if that is JSON.
    pub fn log_failures_as_json(&self, as_json: bool) {
        self.failures_as_json.set(as_json);
    }

    /// Whether this speaks for a process that keeps a log.
    fn is_logging(&self) -> bool {
        self.caller.is_none() && log::is_kept()
    }

    /// Whether results are printed as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether progress and notes are wanted.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a command's result: `document` with `--json`, else the text that `page` writes.
    pub fn result<T: Serialize>(&self, document: &T, page: impl FnOnce(&mut Page)) -> Result<()> {
        let text = if self.json {
            json_text(&Document { output_version: OUTPUT_VERSION, body: document })
        } else {
            let mut to = Page { text: String::new(), colour: self.colour_out };
            page(&mut to);
            to.text
        };
        self.out(text.as_bytes())
    }

    /// Bytes of a volume, as many as there are: waits for whoever reads them.
    ///
    /// # Panics
    /// With a phantom.
    pub async fn bytes(&self, bytes: &Buffer) -> Result<()> {
        match &self.caller {
            None => bytes.with(write_out).expect("real drives give real bytes"),
            Some(caller) => caller.output_bulk(&bytes.to_vec()).await.map_err(|Left| Failure::reader_left()),
        }
    }

    /// As [`Self::result`] for what has both forms already.
    pub fn text_or_json(&self, text: &str, json: &str) -> Result<()> {
        self.out(if self.json { json } else { text }.as_bytes())
    }

    /// A message about what is going on; not with `--quiet`.
    pub fn note(&self, text: impl AsRef<str>) {
        if self.is_logging() {
            let text = text.as_ref();
            tracing::info!(target: "daemon", "{}", text.strip_prefix("note: ").unwrap_or(text));
        } else if !self.quiet {
            self.message(text.as_ref());
        }
    }

    /// Something the user should know even with `--quiet`.
    pub fn warning(&self, text: impl AsRef<str>) {
        if self.is_logging() {
            tracing::warn!(target: "daemon", "{}", text.as_ref());
            return;
        }
        self.message(&format!("{} {}", paint("warning:", Style::Warning, self.colour_err), text.as_ref()));
    }

    /// A command's failure, in the one error style.
    pub fn failure(&self, failure: &Failure) {
        if failure.silent {
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
            // The process ends with a failure anyway; there is nobody left to tell that this could not be written.
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
        match &self.caller {
            None if log::is_kept() => log::write_line(text.as_bytes()),
            None => write_message(text.as_bytes()),
            Some(caller) => caller.message(text),
        }
    }
}

/// Writes a line to standard error.
pub fn write_message(text: &[u8]) {
    // A closed standard error must not stop the work.
    let mut to = std::io::stderr().lock();
    let _ = to.write_all(text).and_then(|()| to.write_all(b"\n"));
}

fn json_text(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(document).expect("plain data becomes JSON");
    text.push('\n');
    text
}

/// Writes bytes to standard output.
pub fn write_out(bytes: &[u8]) -> Result<()> {
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
pub struct Page {
    text: String,
    colour: bool,
}

impl Page {
    /// One line.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.text.push_str(text.as_ref());
        self.text.push('\n');
    }

    /// One line of a label and a value, as status pages have them.
    pub fn field(&mut self, label: &str, value: impl AsRef<str>, style: Style) {
        let value = paint(value.as_ref(), style, self.colour);
        self.line(format!("{label:>11}: {value}"));
    }

    /// A table, its columns as wide as they need to be.
    pub fn table(&mut self, table: &Table) {
        let widths: Vec<usize> = (0..table.columns.len())
            .map(|column| {
                let cells = table.rows.iter().map(|row| row[column].0.chars().count());
                cells.chain([table.columns[column].name.chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let heading: Vec<Cell> =
            table.columns.iter().map(|column| (column.name.to_owned(), Style::Strong)).collect();
        for row in std::iter::once(&heading).chain(&table.rows) {
            let cells =
                row.iter().zip(&table.columns).zip(&widths).map(|(((text, style), column), &width)| {
                    let padding = " ".repeat(width - text.chars().count());
                    let painted = paint(text, *style, self.colour);
                    if column.right { format!("{padding}{painted}") } else { format!("{painted}{padding}") }
                });
            let line = cells.collect::<Vec<_>>().join("  ");
            self.line(format!("{}{}", table.indent, line.trim_end()));
        }
    }
}

type Cell = (String, Style);

struct Column {
    name: &'static str,
    right: bool,
}

/// Rows under headings.
#[derive(Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    indent: &'static str,
}

impl Table {
    /// With headings; one that starts with `>` is a column of numbers, aligned to the right.
    pub fn new(headings: &[&'static str]) -> Self {
        let column = |heading: &&'static str| match heading.strip_prefix('>') {
            Some(name) => Column { name, right: true },
            None => Column { name: heading, right: false },
        };
        Self { columns: headings.iter().map(column).collect(), ..Self::default() }
    }

    /// Moved to the right, to stand under something.
    pub fn indented(mut self) -> Self {
        self.indent = "  ";
        self
    }

    /// Adds a row, one cell for each heading.
    pub fn row<const N: usize>(&mut self, cells: [(String, Style); N]) {
        assert_eq!(N, self.columns.len(), "one cell for each heading");
        self.rows.push(cells.into());
    }
}

/// A cell without colour.
pub fn plain(text: impl Into<String>) -> (String, Style) {
    (text.into(), Style::Plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_their_columns() {
        let mut table = Table::new(&["DRIVE", ">SIZE", "STATE"]);
        table.row([plain("a.img"), plain("64 MiB"), ("online".to_owned(), Style::Good)]);
        table.row([plain("längerer.img"), plain("1 GiB"), plain("")]);
        let mut page = Page { text: String::new(), colour: false };
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
        let mut page = Page { text: String::new(), colour: true };
        page.table(&table);
        assert_eq!(page.text, "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\n\x1b[32mx\x1b[0m  y\n");
    }
}
