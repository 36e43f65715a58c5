//! `pool export`: takes a pool off the list, so that its drives can be moved and imported elsewhere. Needs no drive to be
//! there; every command leaves the drives in order, so there is nothing else to do.
//!
//! Expected faults: a pool in use.

use clap::Args;
use serde::Serialize;

use crate::candidates::noted_export;
use crate::commands::App;
use crate::failure::{Exit, Result};
use crate::home::KnownPool;
use crate::names::PoolName;
use crate::nest::refuse_if_used;
use crate::session::Access;

/// Take a pool off the list, to use its drives elsewhere
#[derive(Args)]
pub struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
}

#[derive(Serialize)]
struct Exported {
    exported: KnownPool,
}

/// Runs it.
pub async fn run(options: &Options, app: &App) -> Result<Exit> {
    let home = app.home()?;
    let pool = home.pool(&options.name.0)?;
    let what = format!("export pool `{}`", pool.name);
    refuse_if_used(&home, &what, &pool.name, None)?;
    let _held = app.served.hold(&what, &pool.name, None)?;
    let doing = format!("pool export {}", pool.name);
    match app.served.end(&pool.name) {
        Some(session) => session.close().await?,
        None => drop(home.lock_pool(&app.executor()?.context(), &pool, Access::Change, &doing, None).await?),
    }
    home.forget(&pool.id)?;
    let exported = Exported { exported: pool };
    app.printer.result(&exported, |page| {
        let pool = &exported.exported;
        page.line(format!("pool {} is no longer used here; its drives are", pool.name));
        for drive in &pool.drives {
            page.line(format!("  {}", drive.path.display()));
        }
    })?;
    let pool = &exported.exported;
    let export = pool.drives.iter().find(|drive| noted_export(&drive.path).is_some());
    let by =
        export.map_or_else(|| "--dir DIR".to_owned(), |drive| format!("--drive '{}'", drive.path.display()));
    app.printer.note(format!("`stripewise pool import {by} {}` brings it back", pool.name));
    Ok(Exit::Success)
}
