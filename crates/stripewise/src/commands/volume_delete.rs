//! `volume delete`: a volume and all that it holds.

use clap::Args;

use crate::commands::{App, Volumes, confirmed};
use crate::failure::{Exit, Result};
use crate::names::VolumeName;
use crate::nest::refuse_if_used;
use crate::session::{Access, pool_failure, with_pool};

/// Erase a volume
#[derive(Args)]
pub struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// Yes, lose all that it holds
    #[arg(long)]
    yes: bool,
}

/// Runs it.
pub async fn run(options: &Options, app: &App) -> Result<Exit> {
    let name = &options.name;
    let home = app.home()?;
    home.pool(&name.pool)?;
    let what = format!("delete volume `{name}`");
    refuse_if_used(&home, &what, &name.pool, Some(&name.volume))?;
    let _held = app.served.hold(&what, &name.pool, Some(&name.volume))?;
    confirmed(
        options.yes,
        &format!("volume delete {name}"),
        &format!("deleting `{name}` loses all that it holds"),
    )?;
    let volumes =
        with_pool(app, &name.pool, Access::Change, &format!("volume delete {name}"), async |session| {
            let deleted = session.pool.delete_volume(&name.volume).await;
            deleted.map_err(|error| pool_failure(format!("cannot delete volume `{name}`"), &error))?;
            Ok(session.report().volumes)
        })
        .await?;
    app.printer.result(&Volumes { volumes }, |page| page.line(format!("volume {name} is deleted")))?;
    Ok(Exit::Success)
}
