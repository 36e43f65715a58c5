//! One file per command: its options as clap reads them, and `run`.

pub mod drive_make;

/// What every command gets: where to print, and where the list of pools is.
pub struct App {
    /// Prints results and messages.
    pub printer: crate::printer::Printer,
}

impl App {
    /// The state folder; only asked for by commands that need it.
    pub fn home(&self) -> crate::failure::Result<crate::home::Home> {
        crate::home::Home::from_environment()
    }
}
