//! `pool list`: the pools that this user works with, without opening them.

use clap::Args;
use serde::Serialize;
use stripewise_control::registry::KnownPool;
use stripewise_control::request::ListPools;

use crate::commands::App;
use crate::failure::{Exit, Result};
use crate::printer::{Table, plain};

/// List the known pools
#[derive(Args)]
pub(crate) struct Options {}

#[derive(Serialize)]
struct Listed {
    pools: Vec<KnownPool>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ListPools {
        ListPools {}
    }
}

/// Runs it.
pub(crate) fn run(_asked: &ListPools, app: &App) -> Result<Exit> {
    let listed = Listed { pools: app.home()?.pools()? };
    if listed.pools.is_empty() {
        app.printer.note(
            "no pools are known; `stripewise pool create` makes one, `stripewise pool import` finds one",
        );
    }
    app.printer.result(&listed, |page| {
        if listed.pools.is_empty() {
            return;
        }
        let mut table = Table::new(&["POOL", ">DRIVES", ">THERE", "ID"]);
        for pool in &listed.pools {
            let there = pool.drives.iter().filter(|drive| drive.path.exists()).count();
            table.row([
                plain(&pool.name),
                plain(pool.drives.len().to_string()),
                plain(there.to_string()),
                plain(&pool.id),
            ]);
        }
        page.table(&table);
    })?;
    Ok(Exit::Success)
}
