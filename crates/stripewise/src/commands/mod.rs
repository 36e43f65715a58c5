//! One file per command: its options as clap reads them, and `run`.

pub mod drive_make;
pub mod drive_show;
pub mod evaluate;
pub mod pool_add;
pub mod pool_create;
pub mod pool_destroy;
pub mod pool_events;
pub mod pool_export;
pub mod pool_import;
pub mod pool_iostat;
pub mod pool_list;
pub mod pool_offline;
pub mod pool_online;
pub mod pool_remove;
pub mod pool_replace;
pub mod pool_retire;
pub mod pool_scrub;
pub mod pool_set;
pub mod pool_status;
pub mod pool_wait;
pub mod simulate_torture;
pub mod volume_convert;
pub mod volume_create;
pub mod volume_delete;
pub mod volume_list;
pub mod volume_pin;
pub mod volume_read;
pub mod volume_resize;
pub mod volume_show;
pub mod volume_write;

use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::home::Home;
use crate::printer::Printer;
use crate::report::{PoolReport, VolumeReport};

/// What every command gets: where to print, and where the list of pools is.
pub struct App {
    /// Prints results and messages.
    pub printer: Printer,
}

impl App {
    /// The state folder; only asked for by commands that need it.
    pub fn home(&self) -> Result<Home> {
        Home::from_environment()
    }
}

/// Pools as JSON has them.
#[derive(Serialize)]
pub struct Pools {
    /// One or more.
    pub pools: Vec<PoolReport>,
}

/// Volumes as JSON has them.
#[derive(Serialize)]
pub struct Volumes {
    /// None or more.
    pub volumes: Vec<VolumeReport>,
}

/// What cannot be undone is only done when `--yes` says so.
pub fn confirmed(yes: bool, command: &str, loss: &str) -> Result<()> {
    match yes {
        true => Ok(()),
        false => Err(Failure::usage(format!("{loss}; that cannot be undone"))
            .hint(format!("if that is what you want: stripewise {command} --yes"))),
    }
}
