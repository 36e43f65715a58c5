//! `volume list`: the volumes of one or all pools.

use clap::Args;

use crate::commands::{App, Volumes};
use crate::failure::{Exit, Result};
use crate::names::PoolName;
use crate::report::volume_table;
use crate::session::{Access, with_pool};

/// List volumes
#[derive(Args)]
pub struct Options {
    /// The pool; all known ones if left out
    #[arg(value_name = "POOL")]
    pool: Option<PoolName>,
}

/// Runs it.
pub fn run(options: &Options, app: &App) -> Result<Exit> {
    let home = app.home()?;
    let pools = match &options.pool {
        Some(name) => vec![home.pool(&name.0)?],
        None => home.pools()?,
    };
    let mut volumes = Vec::new();
    for pool in pools {
        match with_pool(app, &pool.name, Access::Look, "volume list", |session| Ok(session.report().volumes))
        {
            Ok(found) => volumes.extend(found),
            // One pool that is away does not hide the others.
            Err(failure) if options.pool.is_none() => app.printer.warning(failure.message),
            Err(failure) => return Err(failure),
        }
    }
    if volumes.is_empty() {
        app.printer
            .note("there are no volumes; `stripewise volume create POOL/VOL --layout LAYOUT` makes one");
    }
    let volumes = Volumes { volumes };
    app.printer.result(&volumes, |page| {
        if !volumes.volumes.is_empty() {
            page.table(&volume_table(&volumes.volumes));
        }
    })?;
    Ok(Exit::Success)
}
