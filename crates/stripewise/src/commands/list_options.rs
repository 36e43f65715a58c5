//! Options of commands that print a list: the form of its rows for scripts.

use clap::Args;
use stripewise_control::daemon::socket::frames::ListForm;

use crate::failure::{Failure, Result};

/// Form of a list.
#[derive(Args)]
pub(crate) struct ListOptions {
    /// Print no header, and tabs between the columns, for scripts
    #[arg(short = 'H', long)]
    no_header: bool,
    /// Columns to print, by their headings, separated by commas
    #[arg(short = 'o', long, value_name = "COLUMNS", value_delimiter = ',')]
    columns: Vec<String>,
}

impl ListOptions {
    /// The form; fails for a column that is not among `headings`.
    pub(crate) fn form(&self, headings: &[&str]) -> Result<ListForm> {
        let names: Vec<&str> = headings.iter().map(|heading| heading.trim_start_matches('>')).collect();
        let column = |asked: &String| {
            let asked = asked.trim().replace('-', " ");
            let found = names.iter().find(|name| name.eq_ignore_ascii_case(&asked));
            found.map(|name| (*name).to_owned()).ok_or_else(|| {
                let known: Vec<String> =
                    names.iter().map(|name| name.to_lowercase().replace(' ', "-")).collect();
                Failure::usage(format!("there is no column `{asked}`"))
                    .hint(format!("columns: {}", known.join(", ")))
            })
        };
        let columns = self.columns.iter().map(column).collect::<Result<Vec<String>>>()?;
        Ok(ListForm { is_bare: self.no_header, columns })
    }
}
